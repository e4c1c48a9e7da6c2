"""What the boundary layers send back, against a domain too large to send anything back."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from physics.runs import BACKENDS, records, relative_max

SPEED, DX, DT, NT, SIDE, FREQUENCY = 1500.0, 5.0, 1e-3, 400, 40, 25.0
SOURCE = (SIDE // 2, 4)
RECEIVERS = [(y, x) for y in (0, 2, SIDE // 2, SIDE - 3) for x in (0, 3, 15, SIDE - 1)]
MARGIN = 70  # cells: in the whole record a wave goes NT DT SPEED / DX = 120, out and back
WIDTHS = (5, 10, 20, 40)
ORDER = 4


def wavelet() -> torch.Tensor:
    a = (torch.pi * FREQUENCY * (torch.arange(NT).double() * DT - 0.06)) ** 2
    return ((1 - 2 * a) * torch.exp(-a))[None]


def shifted(by: int) -> tuple[list, list]:
    return [[c + by for c in SOURCE]], [[c + by for c in r] for r in RECEIVERS]


def ours(width: int, margin: int, backend: str) -> torch.Tensor:
    n = SIDE + 2 * margin
    sources, receivers = shifted(margin)
    return records(
        torch.full((n, n), SPEED, dtype=torch.float64),
        backend,
        sources=sources,
        amplitudes=wavelet(),
        receivers=receivers,
        width=width,
        frequency=FREQUENCY,
        spacing=DX,
        dt=DT,
        order=ORDER,
    )


@lru_cache(maxsize=2)
def unbounded(backend: str) -> torch.Tensor:
    return ours(20, MARGIN, backend)


def residual(width: int, backend: str) -> float:
    """Largest error over largest signal at receivers on edges, corners and inside."""
    return relative_max(ours(width, 0, backend), unbounded(backend))


RESIDUAL = {5: 2.7e-3, 10: 2.55e-4, 20: 3.0e-4, 40: 2.5e-4}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("width", WIDTHS)
def test_layers_send_back_no_more_than_measured(width, backend):
    """Error over signal against a large domain (seen: 2.63e-3, 2.49e-4, 2.92e-4, 2.45e-4)."""
    assert residual(width, backend) < RESIDUAL[width]


def theirs(width: int) -> torch.Tensor:
    import deepwave

    sources, receivers = shifted(0)
    return deepwave.scalar(
        torch.full((SIDE, SIDE), SPEED, dtype=torch.float64),
        DX,
        DT,
        source_amplitudes=wavelet()[None],
        source_locations=torch.tensor(sources)[None],
        receiver_locations=torch.tensor(receivers)[None],
        accuracy=ORDER,
        pml_width=width,
        pml_freq=FREQUENCY,
        max_vel=SPEED,
    )[-1][0]


@pytest.mark.parametrize("width", WIDTHS)
def test_layers_send_back_no_more_than_those_of_deepwave(width):
    """The same run by both, where Deepwave is installed (residuals equal to 2e-13 of them)."""
    pytest.importorskip("deepwave")
    got = residual(width, "eager")
    assert got <= relative_max(theirs(width), unbounded("eager")) * (1 + 1e-6)
