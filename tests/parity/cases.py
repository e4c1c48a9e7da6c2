"""Random runs of the scalar equation on one backend, for comparison with another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import wavesim


@dataclass(frozen=True)
class Case:
    """Model shape, order, layer widths; everything random but the geometry's parity."""

    shape: tuple[int, ...]
    order: int
    widths: tuple[tuple[int, int], ...]
    shots: int = 2
    nt: int = 12
    dt: float = 4e-4
    batched: bool = False

    @property
    def id(self) -> str:
        size, widths = "x".join(map(str, self.shape)), "-".join(f"{a}.{b}" for a, b in self.widths)
        return f"{size}-order{self.order}-pml{widths}" + ("-batched" if self.batched else "")


SPACING = (5.0, 6.5, 5.5)


def normal(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def inputs(case: Case) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Float inputs by name, source locations, receiver locations; some points coincide."""
    rng = torch.Generator().manual_seed(7)
    ndim, shots = len(case.shape), case.shots
    model = (shots, *case.shape) if case.batched else case.shape
    found = {"v": 1000 + 1500 * torch.rand(*model, generator=rng, dtype=torch.float64)}
    found["amplitudes"] = normal(rng, shots, 4, case.nt) * 0.01
    box = [n + a + b for n, (a, b) in zip(case.shape, case.widths, strict=True)]
    for name in ("u", "um1"):
        found[name] = normal(rng, shots, *box)
    for axis in range(ndim):
        if any(case.widths[axis]):
            cut = list(box)
            cut[axis] = sum(case.widths[axis])
            for name in ("psi", "zeta"):
                found[f"{name}{axis}"] = normal(rng, shots, *cut) * 0.01

    def places(count: int) -> Tensor:
        return torch.stack(
            [torch.randint(0, n, (shots, count), generator=rng) for n in case.shape], -1
        )

    sources, receivers = places(4), places(9)
    sources[:, 1] = sources[:, 0]  # coincident
    sources[:, 3] = wavesim.IGNORE
    receivers[:, 0] = sources[:, 0]  # on a source
    receivers[:, 1] = receivers[:, 2]
    receivers[:, 3] = torch.tensor(case.shape) - 1
    receivers[:, 4] = wavesim.IGNORE
    return found, sources, receivers


def run(case: Case, backend: str, dtype: torch.dtype, device: torch.device | str):
    """(outputs, gradients) by name, of a random weighting of every output."""
    values, sources, receivers = inputs(case)
    leaves = {
        k: x.to(device=device, dtype=dtype, copy=True).requires_grad_() for k, x in values.items()
    }
    memory = tuple(x for k, x in leaves.items() if k.startswith(("psi", "zeta")))
    out = wavesim.scalar(
        leaves["v"],
        spacing=SPACING[: len(case.shape)],
        dt=case.dt,
        sources=wavesim.Sources(leaves["amplitudes"], sources.to(device)),
        receivers=wavesim.Receivers(receivers.to(device)),
        boundary=wavesim.PML(width=case.widths, frequency=25.0),
        order=case.order,
        initial=wavesim.State({"u": leaves["u"], "um1": leaves["um1"]}, memory),
        max_velocity=2600.0,
        backend=backend,
    )
    outputs = {"receivers": out.receivers, **out.state.fields}
    outputs |= {f"memory{i}": m for i, m in enumerate(out.state.memory)}
    rng = torch.Generator().manual_seed(8)
    loss = sum((normal(rng, *x.shape).to(x) * x).sum() for x in outputs.values())
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return (
        {k: x.detach() for k, x in outputs.items()},
        {f"grad_{k}": g for k, g in zip(leaves, gradients, strict=True)},
    )


def poison(monkeypatch) -> None:
    """Fill every uninitialised floating-point allocation with NaN."""
    empty = torch.Tensor.new_empty

    def filled(self, *args, **kwargs):
        out = empty(self, *args, **kwargs)
        return out.fill_(float("nan")) if out.is_floating_point() and out.numel() else out

    monkeypatch.setattr(torch.Tensor, "new_empty", filled)
