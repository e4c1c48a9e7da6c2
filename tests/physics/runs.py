"""Short ways to run an equation in float64, shared by the physics tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

import wavesim
from wavesim import PML, Receivers, Sources

BACKENDS = ["eager"] + (["triton"] if torch.cuda.is_available() else [])
DEVICE = {"eager": "cpu", "triton": "cuda"}


def scalar(
    v: Tensor,
    backend: str,
    *,
    sources: Sequence | Tensor = (),
    amplitudes: Tensor | None = None,
    receivers: Sequence | Tensor = (),
    width=8,
    frequency: float = 25.0,
    **options,
) -> wavesim.Result:
    """`wavesim.scalar` on a backend's device for one shot; locations [point, axis]."""
    device = DEVICE[backend]
    at = [torch.as_tensor(s) for s in (sources, receivers)]
    given = {}
    if amplitudes is not None:
        given["sources"] = Sources(amplitudes[None].to(device), at[0][None].to(device))
    if len(at[1]):
        given["receivers"] = Receivers(at[1][None].to(device))
    boundary = PML(width=width, frequency=frequency)
    return wavesim.scalar(v.to(device), boundary=boundary, backend=backend, **given, **options)


def records(*args, **options) -> Tensor:
    """What `scalar` records, [receiver, time], on the CPU."""
    return scalar(*args, **options).receivers[0].cpu()


Cells = Sequence[Sequence[int]]


def staggered(
    equation: str,
    parameters: Mapping[str, Tensor],
    *,
    sources: Mapping[str, tuple[Cells, Tensor]] | None = None,
    receivers: Mapping[str, Cells] | None = None,
    shots: int = 1,
    width=0,
    frequency: float = 25.0,
    **options,
) -> wavesim.Result:
    """`wavesim.simulate` on the eager backend; the same points for all shots.

    By channel: sources (cells, amplitudes [source, time]), and receivers' cells.
    """

    def every(x):
        return torch.as_tensor(x).expand(shots, -1, -1)

    given = {k: Sources(every(a), every(at)) for k, (at, a) in (sources or {}).items()}
    recording = {k: Receivers(every(at)) for k, at in (receivers or {}).items()}
    boundary = PML(width=width, frequency=frequency)
    return wavesim.simulate(
        equation,
        parameters,
        sources=given,
        receivers=recording,
        boundary=boundary,
        backend="eager",
        **options,
    )


def uniform(shape: Sequence[int], **values: float) -> dict[str, Tensor]:
    """Homogeneous parameters by name."""
    return {k: torch.full(tuple(shape), x, dtype=torch.float64) for k, x in values.items()}


def random_model(shape: Sequence[int], seed: int = 1) -> Tensor:
    """1000 to 2500 m/s, independent in every cell."""
    rng = torch.Generator().manual_seed(seed)
    return 1000 + 1500 * torch.rand(tuple(shape), generator=rng, dtype=torch.float64)


def noise(*shape: int, seed: int = 2) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=rng, dtype=torch.float64)


def relative_l2(got: Tensor, expected: Tensor) -> float:
    return ((got - expected).norm() / expected.norm()).item()


def relative_max(got: Tensor, expected: Tensor) -> float:
    return ((got - expected).abs().max() / expected.abs().max()).item()
