"""The shared code on first derivatives and two stages: Triton, interpreted, against eager."""

from __future__ import annotations

import pytest
import torch
from conftest import pick_device, rms_ratio
from parity.two_stage import EQUATION

import wavesim
from wavesim.device import interpreting
from wavesim.equations import REGISTRY

pytestmark = pytest.mark.skipif(
    not (interpreting() or torch.cuda.is_available()), reason="needs TRITON_INTERPRET=1 or a GPU"
)


def run(backend: str, order: int, kappa: float) -> tuple[dict, tuple]:
    rng = torch.Generator().manual_seed(3)
    device = pick_device()

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64).to(device)

    widths, shape, shots, nt = ((3, 4), (5, 2)), (6, 9), 2, 7
    box = [n + a + b for n, (a, b) in zip(shape, widths, strict=True)]
    leaves = {"v": 1500 + 300 * normal(*shape).tanh(), "rho": 2 + normal(*shape).tanh()}
    leaves |= {"f": normal(shots, 2, nt), "s": normal(shots, 2, nt)}
    leaves |= {name: normal(shots, *box) for name in ("p", "vy", "vx")}
    leaves = {k: x.requires_grad_() for k, x in leaves.items()}
    places = torch.tensor([[[1, 2], [1, 2]], [[0, 0], [5, 7]]]).to(device)
    out = wavesim.simulate(
        "two_stage",
        {"v": leaves["v"], "rho": leaves["rho"]},
        spacing=[5.0, 6.5],
        dt=4e-4,
        sources={
            "p": wavesim.Sources(leaves["s"], places),
            "vy": wavesim.Sources(leaves["f"], places),
        },
        receivers={name: wavesim.Receivers(places) for name in ("p", "vy", "vx")},
        boundary=wavesim.PML(width=widths, frequency=25.0, kappa_max=kappa),
        order=order,
        initial=wavesim.State({k: leaves[k] for k in ("p", "vy", "vx")}),
        max_velocity=1900.0,
        backend=backend,
    )
    outputs = {**out.receivers, **{f"final_{k}": x for k, x in out.state.fields.items()}}
    outputs |= {f"memory{i}": m for i, m in enumerate(out.state.memory)}
    weights = torch.Generator().manual_seed(4)
    loss = sum(
        (torch.randn(*x.shape, generator=weights, dtype=torch.float64).to(x) * x).sum()
        for x in outputs.values()
    )
    return outputs, torch.autograd.grad(loss, list(leaves.values()))


@pytest.mark.parametrize(("order", "kappa"), [(2, 1.0), (4, 3.0), (8, 1.0)])
def test_two_stage_equation_agrees_with_eager(monkeypatch, order, kappa):
    """Records of every channel, final fields and memory, and every gradient."""
    monkeypatch.setitem(REGISTRY, "two_stage", EQUATION)
    expected, theirs = run("eager", order, kappa)
    got, ours = run("triton", order, kappa)
    for name in expected:
        assert rms_ratio(got[name], expected[name]) < 1e-14, name
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert rms_ratio(a, b) < 1e-13, number
