"""A small elastic experiment without forces, for histories of velocities alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from wavesim import PML, Receivers, Sources, elastic

RANGES = ((2e3, 9e3), (1e3, 4e3), (400.0, 1000.0))
SHAPE, SPACING, STEPS, SHOTS = (3, 5, 6), (5.0, 6.5, 5.5), 5, 2
VALUES = {2: (5, 2), 3: (9, 3)}
"""A cell and step, full and compact."""


def random(*shape: int, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def model(
    ndim: int,
    *lead: int,
    dtype: torch.dtype = torch.float64,
    shape: tuple[int, ...] = SHAPE,
    device: torch.device | str = "cpu",
) -> list[Tensor]:
    """lamb, mu and buoyancy; lead: a leading axis, if there is one a shot."""
    rng, shape = torch.Generator().manual_seed(1), (*lead, *shape[3 - ndim :])
    unit = [torch.rand(*shape, generator=rng, dtype=torch.float64) for _ in RANGES]
    values = [a + (b - a) * u for (a, b), u in zip(RANGES, unit, strict=True)]
    return [v.to(device, dtype).requires_grad_() for v in values]


def call(
    parameters: list[Tensor], ndim: int, backend: str = "triton", steps: int = STEPS, **options
):
    """The result, and the gradients of a random sum of all that it holds."""
    dtype, device = parameters[0].dtype, parameters[0].device
    at = torch.tensor([[[1] * ndim, [2] * ndim, [1] * ndim]], device=device).repeat(SHOTS, 1, 1)
    amplitudes = random(SHOTS, 3, steps).to(device, dtype)
    settings = {
        "spacing": SPACING[3 - ndim :],
        "dt": 2e-4,
        "sources": {"p": Sources(amplitudes, at)},
        "receivers": {name: Receivers(at) for name in ("p", "vx", "vy")},
        "boundary": PML(width=3, frequency=25.0),
        "max_velocity": 4800.0,
        "backend": backend,
    }
    out = elastic(*parameters, **{**settings, **options})
    kept = [*out.receivers.values(), *out.state.fields.values(), *out.state.memory]
    weights = [random(*k.shape, seed=i).to(device, dtype) for i, k in enumerate(kept)]
    total = sum((w * k).sum() for w, k in zip(weights, kept, strict=True))
    return out, torch.autograd.grad(total, parameters)


def compact(result, ndim: int, steps: int = STEPS) -> bool:
    """Whether the history was; by its bytes, of rows rounded up to 4 cells."""
    report, (full, few) = result.report, VALUES[ndim]
    *outer, x = report.padded_shape
    row = math.prod(outer) * ((x + 3) // 4 * 4) * SHOTS * result.state.fields["vx"].element_size()
    steps *= report.step_ratio
    assert report.history_bytes in (full * steps * row, few * (steps + 1) * row)
    return report.history_bytes == few * (steps + 1) * row


def deviation(got, expected) -> float:
    pairs = zip(got, expected, strict=True)
    return max(((a - b).norm() / b.norm()).item() for a, b in pairs)
