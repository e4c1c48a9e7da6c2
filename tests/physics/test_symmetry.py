"""What must not change a result, or must change it in a known way: no analytic solution needed."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from physics.runs import (
    BACKENDS,
    DEVICE,
    noise,
    random_model,
    records,
    relative_max,
    scalar,
    staggered,
)

from wavesim import State, moduli
from wavesim.equations import REGISTRY
from wavesim.stencils import ORDERS

torch.set_num_threads(1)

backends = pytest.mark.parametrize("backend", BACKENDS)
orders = pytest.mark.parametrize("order", ORDERS)

SHAPE, SPACING, DT, NT = (13, 17), (5.0, 6.5), 8e-4, 60
WIDTHS = ((4, 7), (0, 5))


def band_limited(*shape: int, keep: float = 0.3, seed: int = 4) -> torch.Tensor:
    """Noise [.., time] without the upper frequencies, faded in and out."""
    n = shape[-1]
    spectrum = torch.fft.rfft(noise(*shape, seed=seed))
    spectrum[..., int(keep * spectrum.shape[-1]) :] = 0
    return torch.fft.irfft(spectrum, n=n) * torch.hann_window(n, False, dtype=torch.float64)


def reciprocity_error(order: int, width, ndim: int, backend: str) -> float:
    shape = (11, 13, 9)[:ndim]
    a, b = [1] * ndim, [n - 2 for n in shape]
    v, wavelet = random_model(shape), band_limited(1, 90)
    there, back = (
        records(v, backend, sources=[s], amplitudes=wavelet, receivers=[r], width=width,
                spacing=(5.0, 6.5, 5.5)[:ndim], dt=DT, order=order)
        for s, r in ((a, b), (b, a))
    )  # fmt: skip
    return relative_max(there, back)


@backends
@orders
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_source_and_receiver_may_be_exchanged(ndim, order, backend):
    """G(a, b) = G(b, a) in a random model, between zeros outside (worst, eager: 5e-15)."""
    assert reciprocity_error(order, 0, ndim, backend) < 1e-12


@backends
@orders
def test_layers_keep_reciprocity_nearly(order, backend):
    """The layers are not symmetric as matrices: what they add (worst, eager: 3.5e-5)."""
    assert reciprocity_error(order, 10, 2, backend) < 4e-5


SOURCES, RECEIVERS = [[0, 3], [6, 8]], [[0, 3], [12, 16], [5, 0], [9, 11]]


def plain(backend: str, amplitudes: torch.Tensor, **options) -> torch.Tensor:
    settings = {"spacing": SPACING, "dt": DT, "width": WIDTHS, "sources": SOURCES}
    settings |= {"receivers": RECEIVERS, **options}
    return records(random_model(SHAPE), backend, amplitudes=amplitudes, **settings)


@backends
@orders
def test_records_are_linear_in_the_amplitudes(order, backend):
    """F(2 x - 3 y) = 2 F x - 3 F y (worst, eager: 1.2e-15)."""
    x, y = noise(2, NT, seed=5), noise(2, NT, seed=6)
    got = plain(backend, 2 * x - 3 * y, order=order)
    fx, fy = (plain(backend, a, order=order) for a in (x, y))
    assert relative_max(got, 2 * fx - 3 * fy) < 1e-13


@backends
@orders
def test_a_later_source_gives_the_same_record_later(order, backend):
    """Delaying amplitudes by 7 samples delays records by 7 samples, bit for bit."""
    x = noise(2, NT)
    late = torch.cat([torch.zeros(2, 7, dtype=x.dtype), x[:, :-7]], 1)
    got, early = (plain(backend, a, order=order) for a in (late, x))
    assert got[:, :7].abs().max() == 0
    assert torch.equal(got[:, 7:], early[:, :-7])


def ratio_error(backend: str) -> float:
    n, ratio, quiet = 240, 3, 40
    coarse = torch.zeros(2, n, dtype=torch.float64)  # silent at the end: nothing wraps around
    coarse[:, :quiet] = band_limited(2, quiet) * torch.hann_window(quiet, False).double() ** 3
    fine = torch.fft.irfft(torch.fft.rfft(coarse), n=ratio * n) * ratio
    reached = plain(backend, fine, dt=DT, width=12)[:, ::ratio]
    got = plain(backend, coarse, dt=ratio * DT, width=12)
    return relative_max(got[:, quiet // 2 : -quiet // 2], reached[:, quiet // 2 : -quiet // 2])


@backends
def test_records_do_not_depend_on_the_step_ratio(backend):
    """Three internal steps a sample, or samples at each internal step: equal.

    Away from the record's ends, which wrap around in the Fourier transform (worst, eager: 4e-5).
    """
    assert ratio_error(backend) < 1e-4


def units_error(order: int, backend: str) -> float:
    metre, second = 1e3, 1e6  # millimetres and microseconds in one
    v, x = random_model(SHAPE), noise(2, NT)
    at = {"sources": SOURCES, "receivers": RECEIVERS, "width": WIDTHS, "order": order}
    spacing, dt, frequency = [5e-4, 6.5e-4], 8e-8, 2.5e5
    si = records(v, backend, amplitudes=x, spacing=spacing, dt=dt, frequency=frequency, **at)
    other = records(
        v * metre / second,
        backend,
        amplitudes=x / metre**2,
        spacing=[h * metre for h in spacing],
        dt=dt * second,
        frequency=frequency / second,
        **at,
    )
    return relative_max(other, si)


@backends
@orders
def test_units_do_not_matter(order, backend):
    """Metres and seconds, or millimetres and microseconds: equal (worst, eager: 1.1e-15)."""
    assert units_error(order, backend) < 1e-12


@backends
def test_scale_does_not_matter(backend):
    """25 Hz on metres and 1 MHz on millimetres of the same shape: equal (worst: 6e-16)."""
    x, at = noise(2, NT), {"sources": SOURCES, "receivers": RECEIVERS, "width": WIDTHS}
    v, length, time = random_model(SHAPE), 1e-3, 25.0 / 1e6
    big = records(v, backend, amplitudes=x, spacing=SPACING, dt=DT, frequency=25.0, **at)
    small = records(
        v * length / time,
        backend,
        amplitudes=x / length**2,
        spacing=[h * length for h in SPACING],
        dt=DT * time,
        frequency=1e6,
        **at,
    )
    assert relative_max(small, big) < 1e-12


def moved(kind: str, order: int, backend: str) -> float:
    """Error after flipping or transposing the whole 3-D problem."""
    shape, spacing, widths = (6, 7, 9), (5.0, 6.5, 5.5), ((3, 5), (0, 4), (6, 2))
    v, x = random_model(shape), noise(2, 40)
    points = [torch.tensor([[0, 2, 8], [3, 3, 4]]), torch.tensor([[0, 2, 8], [5, 0, 0], [2, 6, 5]])]
    axes = [int(c) for c in kind.split()[1]]

    def run(v, spacing, widths, points):
        return records(v, backend, sources=points[0], amplitudes=x, receivers=points[1],
                       spacing=spacing, width=widths, dt=DT, order=order)  # fmt: skip

    before = run(v, spacing, widths, points)
    if kind.startswith("flip"):
        new = [p.clone() for p in points]
        for axis in axes:
            for p in new:
                p[:, axis] = shape[axis] - 1 - p[:, axis]
        pairs = tuple(w[::-1] if a in axes else w for a, w in enumerate(widths))
        after = run(v.flip(axes), spacing, pairs, new)
    else:
        after = run(
            v.permute(axes).contiguous(),
            [spacing[a] for a in axes],
            tuple(widths[a] for a in axes),
            [p[:, axes].contiguous() for p in points],
        )
    return relative_max(after, before)


FLIPS = ("flip 0", "flip 1", "flip 2", "flip 012")
MOVES = (*FLIPS, "transpose 102", "transpose 210", "transpose 120")


@backends
@orders
@pytest.mark.parametrize("kind", MOVES)
def test_flips_and_transposes_move_the_result_along(kind, order, backend):
    """No axis or face is special: random model, a width per face (worst, eager: 1.2e-15)."""
    assert moved(kind, order, backend) < 1e-13


def permuted(equation: str, axes: tuple[int, ...], order: int) -> float:
    """Of every channel of a 3-D run and its permuted twin, random media, a width per face."""
    shape, spacing, widths = (7, 9, 8), [5.0, 6.5, 5.5], ((2, 3), (3, 0), (1, 2))
    names = {"acoustic": ("v", "rho"), "elastic": ("lamb", "mu", "buoyancy")}[equation]
    values = [random_model(shape, seed=s) for s in (1, 2, 3)]
    if equation == "elastic":
        values = moduli(values[0], values[1] / 4, values[2])
    channels = list(REGISTRY[equation].build(3).receivers)
    sources = {c: ([1 + i % 3, 2 + i % 5, 3 + i % 4], i) for i, c in enumerate(channels)}
    receivers = {c: [[5, 6, 2 + i % 4], [0, i % 5, 1]] for i, c in enumerate(channels)}
    letters = dict(zip(("zyx"[a] for a in axes), "zyx", strict=True))

    def renamed(channel: str) -> str:
        """A component's name after its axes have moved, a stress's letters in order x, y, z."""
        return channel[0] + "".join(sorted(letters[c] for c in channel[1:]))

    def run(move: bool) -> dict[str, torch.Tensor]:
        along = axes if move else (0, 1, 2)
        name = renamed if move else str
        return staggered(
            equation,
            {k: x.permute(along).contiguous() for k, x in zip(names, values, strict=False)},
            sources={
                name(c): ([[at[a] for a in along]], noise(1, 30, seed=i))
                for c, (at, i) in sources.items()
            },
            receivers={name(c): [[r[a] for a in along] for r in at] for c, at in receivers.items()},
            width=[widths[a] for a in along],
            spacing=[spacing[a] for a in along],
            dt=4e-4,
            order=order,
        ).receivers

    before, after = run(False), run(True)
    return max(relative_max(after[renamed(c)], before[c]) for c in channels)


@pytest.mark.parametrize("order", [2, 8])
@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 1, 0), (1, 2, 0)], ids=str)
@pytest.mark.parametrize("equation", ["acoustic", "elastic"])
def test_transposes_move_components_along(equation, axes, order):
    """Velocities and stresses take the new names; random model, every channel (worst: 5e-16)."""
    assert permuted(equation, axes, order) < 1e-12


def energies(v: torch.Tensor, start: torch.Tensor, order: int, backend: str) -> list[float]:
    """Largest sum of squares in each 1000 of 5000 steps of a field released from rest."""
    field = start[None].to(DEVICE[backend])
    state, found = State({"u": field, "um1": field}), []
    for _ in range(50):
        out = scalar(v, backend, spacing=SPACING, dt=9e-4, order=order, nt=100,
                     width=((6, 5), (4, 7)), initial=state)  # fmt: skip
        state = out.state
        found.append(state.fields["u"].square().sum().item())
    return [max(found[i : i + 10]) for i in range(0, 50, 10)]


def two_halves() -> torch.Tensor:
    v = torch.full((7, 9), 1500.0, dtype=torch.float64)
    v[:, 5:] = 2500
    return v


def pulse() -> torch.Tensor:
    y, x = torch.meshgrid(torch.arange(7.0), torch.arange(9.0), indexing="ij")
    return torch.exp(-((y - 2).square() + (x - 3).square()) / 8).double()


@backends
@pytest.mark.parametrize("order", [2, 8])
def test_noise_never_grows_in_the_layers(order, backend):
    """White noise in a random model, 5000 steps at a Courant number of 0.57: each 1000 hold less.

    Waves of two cells hardly move, so they leave slowly (worst ratio, eager: .76).
    """
    left = energies(random_model((7, 9)), noise(7, 9), order, backend)
    assert all(b < 0.9 * a for a, b in pairwise(left)), left


@backends
@pytest.mark.parametrize("order", [2, 8])
def test_energy_leaves_through_the_layers_for_good(order, backend):
    """What 5000 steps leave of a smooth pulse, contrast 1.7 (worst, eager: 1.8e-13)."""
    start = pulse()
    left = energies(two_halves(), start, order, backend)
    assert all(b < a for a, b in pairwise(left)), left
    assert left[-1] < 1e-12 * start.square().sum().item()
