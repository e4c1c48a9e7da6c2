"""What the boundary layers send back, against a domain too large to send anything back."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from physics.runs import BACKENDS, records, relative_max, staggered, uniform

from wavesim import moduli

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


VP, VS, RHO = 2000.0, 1000.0, 2000.0
MARGINS = {"acoustic": MARGIN, "elastic": 85}  # 400 ms at 2000 m/s are 160 cells
STAGGERED_RUNS = (("acoustic", "p"), ("elastic", "p"), ("elastic", "vy"))
CHANNELS = ("p", "vy", "vx")


def model(equation: str, n: int) -> dict[str, torch.Tensor]:
    if equation == "acoustic":
        return uniform((n, n), v=SPEED, rho=RHO)
    values = moduli(**uniform((n, n), vp=VP, vs=VS, rho=RHO))
    return dict(zip(("lamb", "mu", "buoyancy"), values, strict=True))


def cells(by: int = 0) -> list[list[int]]:
    """The receivers, one cell further in where a velocity has no half cell."""
    return [[min(c, SIDE - 2) + by for c in r] for r in RECEIVERS]


def ours_staggered(equation: str, source: str, width: int, margin: int = 0) -> torch.Tensor:
    """[channel, receiver, time]"""
    records = staggered(
        equation,
        model(equation, SIDE + 2 * margin),
        sources={source: (shifted(margin)[0], wavelet())},
        receivers={c: cells(margin) for c in CHANNELS},
        width=width,
        frequency=FREQUENCY,
        spacing=DX,
        dt=DT,
        order=ORDER,
        substeps=False,
    ).receivers
    return torch.stack([records[c][0] for c in CHANNELS])


@lru_cache(maxsize=3)
def unbounded_staggered(equation: str, source: str) -> torch.Tensor:
    return ours_staggered(equation, source, 20, MARGINS[equation])


def worst_channel(equation: str, source: str, got: torch.Tensor) -> float:
    """Largest error over largest signal, of the channel where it is worst."""
    expected = unbounded_staggered(equation, source)
    return max(relative_max(a, b) for a, b in zip(got, expected, strict=True))


RESIDUAL_STAGGERED = {
    ("acoustic", "p"): {5: 8.6e-4, 10: 2.55e-4, 20: 2.55e-4, 40: 1.65e-4},
    ("elastic", "p"): {5: 6.9e-4, 10: 1.7e-4, 20: 2.15e-4, 40: 2.45e-4},
    ("elastic", "vy"): {5: 1.21e-2, 10: 8.2e-4, 20: 2.05e-4, 40: 1.78e-4},
}
runs = pytest.mark.parametrize(
    ("equation", "source", "width"), [(*run, w) for run in STAGGERED_RUNS for w in WIDTHS]
)


@runs
def test_staggered_layers_send_back_no_more_than_measured(equation, source, width):
    """p, vy and vx, the worst of them, for a source of pressure and for a force.

    Seen at widths 5, 10, 20, 40: acoustic 8.35e-4, 2.48e-4, 2.45e-4, 1.59e-4; elastic, pressure
    6.66e-4, 1.65e-4, 2.06e-4, 2.35e-4; elastic, force 1.18e-2, 7.94e-4, 1.95e-4, 1.72e-4.
    """
    found = worst_channel(equation, source, ours_staggered(equation, source, width))
    assert found < RESIDUAL_STAGGERED[equation, source][width]


def theirs_staggered(equation: str, source: str, width: int) -> torch.Tensor:
    import deepwave

    acoustic = equation == "acoustic"
    rate = "volume_rate" if acoustic else "pressure_rate"
    channel, at = {"p": rate, "vy": "y"}[source], torch.tensor(cells())[None]
    out = (deepwave.acoustic if acoustic else deepwave.elastic)(
        *model(equation, SIDE).values(),
        DX,
        DT,
        accuracy=ORDER,
        pml_width=width,
        pml_freq=FREQUENCY,
        max_vel=SPEED if acoustic else VP,
        **{
            f"source_amplitudes_{channel}": wavelet()[None],
            f"source_locations_{channel}": torch.tensor(shifted(0)[0])[None],
        },
        **{f"receiver_locations_{c[-1]}": at for c in CHANNELS},
    )
    return torch.stack([getattr(out, f"receiver_amplitudes_{c[-1]}")[0] for c in CHANNELS])


@runs
def test_staggered_layers_send_back_no_more_than_those_of_deepwave(equation, source, width):
    """The same runs by both, where Deepwave is installed (records equal to 1.7e-15)."""
    pytest.importorskip("deepwave")
    got = worst_channel(equation, source, ours_staggered(equation, source, width))
    expected = worst_channel(equation, source, theirs_staggered(equation, source, width))
    assert got <= expected * (1 + 1e-6)
