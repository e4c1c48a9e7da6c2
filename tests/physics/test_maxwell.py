"""Maxwell's equations against analytic solutions, and what a scheme of Yee's must conserve."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from physics.runs import noise, relative_l2, relative_max

import wavesim
from wavesim import PML, Receivers, Sources, State

pytest.importorskip("scipy")

from wavesim.reference.analytic import (
    EPSILON_0,
    MU_0,
    Medium,
    current_dipole,
    line_current,
    reflection,
    response,
    ricker,
)

SPEED = (EPSILON_0 * MU_0) ** -0.5
FUNCTION = {2: wavesim.maxwell_tm, 3: wavesim.maxwell}
AXES = {2: "zx", 3: "zyx"}


def filled(shape, medium: Medium) -> list[torch.Tensor]:
    values = (medium.epsilon, medium.sigma, medium.mu)
    return [torch.full(tuple(shape), x, dtype=torch.float64) for x in values]


def run(model, source=None, wavelet=None, receivers=None, **options) -> wavesim.Result:
    """One source (channel, cell), receivers (channel, cell), eager."""
    given: dict = {"backend": "eager"}
    if source is not None:
        channel, cell = source
        amplitudes = torch.as_tensor(wavelet)[None, None]
        given["sources"] = {channel: Sources(amplitudes, torch.tensor([[list(cell)]]))}
    if receivers:
        cells: dict = {}
        for channel, cell in receivers:
            cells.setdefault(channel, []).append(list(cell))
        given["receivers"] = {k: Receivers(torch.tensor([v])) for k, v in cells.items()}
    return FUNCTION[options.pop("ndim", model[0].ndim)](*model, **{**given, **options})


def place(channel: str, cell, axes: str) -> np.ndarray:
    """Position in cells: E_i half up i (TM: at the nodes), H_i half up the others."""
    up = [(a == channel[1]) == (channel[0] == "e") for a in axes]
    return np.asarray(cell) + 0.5 * np.asarray(up)


# line current

LOSSY, LOSSLESS = Medium(4.0, 0.01, 1.5), Medium(4.0, 0.0, 1.0)


def line_errors(dx: float, medium: Medium) -> dict[str, float]:
    """Relative L2 errors 1 m away on an oblique line, 200 MHz Ricker current, order 8."""
    frequency, near = 200e6, round(0.3 / dx)
    along, down = round(0.8 / dx), round(0.6 / dx)
    speed = SPEED / (medium.epsilon * medium.mu) ** 0.5
    dt = 0.2 * dx / (speed * 2**0.5)
    nt = round((1.0 / speed + 3.0 / frequency) / dt)
    wavelet = ricker(frequency, nt, dt, 1.5 / frequency)
    source, cell = (near, near), (near + down, near + along)
    seen = [(channel, cell) for channel in ("ey", "hz", "hx")]
    out = run(
        filled((2 * near + down, 2 * near + along), medium),
        ("ey", source),
        wavelet,
        seen,
        spacing=dx,
        dt=dt,
        order=8,
        boundary=PML(width=20),
    )
    assert out.report.step_ratio == 1
    errors = {}
    for channel, at in seen:
        offset = dx * (place(channel, at, "zx") - place("ey", source, "zx"))
        exact = response(
            wavelet,
            dt,
            lambda f, o=offset, c=channel: line_current(f, o, c, medium),
            delay=dt / 2 if channel == "ey" else 0.0,
        )
        errors[channel] = relative_l2(out.receivers[channel][0, 0], torch.from_numpy(exact))
    return errors


LINE = {  # (dx, medium): largest relative L2 error allowed in ey, hz, hx, and as observed
    (0.04, LOSSLESS): 0.0023,  # .00215, .00218, .00217
    (0.02, LOSSLESS): 0.00057,  # .000538, .000540, .000539
    (0.04, LOSSY): 0.0043,  # .00404, .00408, .00407
    (0.02, LOSSY): 0.00107,  # .00101, .00102, .00101
}


@pytest.mark.parametrize("setting", LINE, ids=str)
def test_a_line_current_radiates_the_hankel_function(setting):
    """E_y = -(omega mu / 4) H_0^(2)(k r) I with complex k, and H from its curl: sign and amplitude.

    The current of step k acts at (k + 1/2) dt, E is seen at (k + 1) dt, H at (k + 1/2) dt.
    """
    errors = line_errors(*setting)
    assert max(errors.values()) < LINE[setting], errors


def test_internal_steps_are_seen_one_of_them_late():
    """With a ratio r, sample k is that of index r k of a run at the internal step.

    So E is seen at ``k dt + internal_dt``. Away from the record's ends, which wrap around; relative
    L2, seen: ey 1.34e-5, hx 4.9e-6 (2e-2 if taken an index later).
    """
    dt, nt, seen = 1.2e-10, 600, [("ey", (40, 40)), ("hx", (40, 40))]

    def records(ratio):
        wavelet = ricker(50e6, nt * ratio, dt / ratio, 3e-8)
        model = filled((60, 60), Medium(4.0))
        return run(model, ("ey", (20, 20)), wavelet, seen, spacing=0.04, dt=dt / ratio)

    coarse, fine = records(1), records(2)
    assert (coarse.report.step_ratio, fine.report.step_ratio) == (2, 1)
    for channel in ("ey", "hx"):
        got, expected = (r.receivers[channel][0, 0] for r in (coarse, fine))
        assert relative_l2(got[5:-40], expected[::2][5:-40]) < 1.5e-5


# point dipole

DX, SIDE, FAR = 0.1, 8, 24
DIPOLE_FREQUENCY = 150e6
VACUUM = Medium()


@lru_cache(maxsize=1)
def dipole_records() -> tuple[np.ndarray, float, tuple, dict, dict]:
    """A current dipole along x in vacuum: wavelet, dt, source cell, receivers by name, records.

    "axis" and "equator" are ex straight ahead and at right angles, at FAR / 2 and FAR cells.
    """
    dt = 0.3 * DX / (SPEED * 3**0.5)
    nt = round((FAR * DX / SPEED + 3.0 / DIPOLE_FREQUENCY) / dt)
    wavelet = ricker(DIPOLE_FREQUENCY, nt, dt, 1.5 / DIPOLE_FREQUENCY)
    source = (SIDE, SIDE, SIDE)
    seen = {}
    for share, cells in (("near", FAR // 2), ("far", FAR)):
        seen[f"axis {share}"] = ("ex", (SIDE, SIDE, SIDE + cells))
        seen[f"equator {share}"] = ("ex", (SIDE, SIDE + cells, SIDE))
    oblique = (SIDE + 6, SIDE + 14, SIDE + 17)
    seen |= {f"oblique {c}": (c, oblique) for c in ("ex", "ey", "ez", "hx", "hy", "hz")}
    model = filled((2 * SIDE + 6, 2 * SIDE + FAR, 2 * SIDE + FAR), VACUUM)
    out = run(
        model, ("ex", source), wavelet, seen.values(),
        spacing=DX, dt=dt, order=8, boundary=PML(width=10),
    )  # fmt: skip
    rows: dict = {c: iter(r[0]) for c, r in out.receivers.items()}
    return wavelet, dt, source, seen, {name: next(rows[c]) for name, (c, _) in seen.items()}


def dipole_exact(name: str) -> torch.Tensor:
    wavelet, dt, source, seen, _ = dipole_records()
    channel, cell = seen[name]
    offset = DX * (place(channel, cell, "zyx") - place("ex", source, "zyx"))
    delay = dt / 2 if channel[0] == "e" else 0.0
    exact = response(wavelet, dt, lambda f: current_dipole(f, offset, "ex", channel, VACUUM), delay)
    return torch.from_numpy(exact)


DIPOLE = ("axis near", "equator near", "axis far", "equator far")
OBLIQUE = tuple(f"oblique {c}" for c in ("ex", "ey", "ez", "hy", "hz"))


@pytest.mark.parametrize("name", DIPOLE + OBLIQUE)
def test_a_point_current_radiates_the_field_of_a_hertzian_dipole(name):
    """E and H of I dl, near terms included; k r is 3.8 and 7.5 at the peak frequency.

    Relative L2 error, worst: axis .0024, equator .0031, oblique .0030.
    """
    assert relative_l2(dipole_records()[-1][name], dipole_exact(name)) < 0.0033


def test_a_dipole_does_not_radiate_along_its_axis():
    """Twice as far, E halves on the equator and falls to a quarter on the axis (1.96, 4.14)."""
    size = {name: record.norm().item() for name, record in dipole_records()[-1].items()}
    assert 3.9 < size["axis near"] / size["axis far"] < 4.3
    assert 1.9 < size["equator near"] / size["equator far"] < 2.1


def test_a_dipole_has_no_magnetic_field_along_itself():
    """H is p x n, so H_x of a current along x is zero (seen: 2e-15 of H_z)."""
    records = dipole_records()[-1]
    assert records["oblique hx"].abs().max() < 1e-13 * records["oblique hz"].abs().max()


# a plane interface at normal incidence

STEPS = {
    "dielectric": (Medium(1.0), Medium(9.0)),
    "conducting": (Medium(4.0, 0.001), Medium(9.0, 0.03)),
    "magnetic": (Medium(2.0), Medium(2.0, 0.0, 4.0)),
}


def interface_errors(kind: str, dx: float, averaging: str = "arithmetic") -> tuple[float, float]:
    """Relative L2 errors of the reflected and of the transmitted E, 200 MHz, order 4.

    One cell along x and no layer there: H_z has no place, so waves are plane. The interface lies
    between two nodes, half a cell below the first node of the second medium.
    """
    first, second = STEPS[kind]
    frequency, wall = 200e6, round(0.8 / dx)
    source, above, below = round(0.2 / dx), round(0.4 / dx), wall + round(0.2 / dx)
    dt = 0.4 * dx / SPEED
    nt = round(20e-9 / dt)
    wavelet = ricker(frequency, nt, dt, 1.5 / frequency)
    one, two = (filled((wall + round(0.4 / dx), 1), m) for m in (first, second))
    model = [torch.cat([a[:wall], b[wall:]]) for a, b in zip(one, two, strict=True)]

    def records(parameters):
        return run(
            parameters, ("ey", (source, 0)), wavelet, [("ey", (above, 0)), ("ey", (below, 0))],
            spacing=dx, dt=dt, boundary=PML(width=[(30, 30), (0, 0)]), averaging=averaging,
        ).receivers["ey"][0]  # fmt: skip

    reflected = (records(model) - records(one))[0]
    transmitted = records(model)[1]
    depth = (wall - 0.5) * dx  # of the interface

    def incident(f, z):
        sheet = -first.impedance(f) / (2 * dx)  # E over I of a current I / dx a metre
        return sheet * np.exp(-1j * first.wavenumber(f) * (z - source * dx))

    def up(f):
        return incident(f, 2 * depth - above * dx) * reflection(f, first, second)

    def down(f):
        beyond = np.exp(-1j * second.wavenumber(f) * (below * dx - depth))
        return incident(f, depth) * (1 + reflection(f, first, second)) * beyond

    exact = (torch.from_numpy(response(wavelet, dt, g, dt / 2)) for g in (up, down))
    return tuple(map(relative_l2, (reflected, transmitted), exact))


INTERFACE = {  # largest relative L2 errors allowed (reflected, transmitted), and as observed
    "dielectric": (0.0014, 0.00047),  # .00131, .00044
    "conducting": (0.0027, 0.00027),  # .00249, .00025
    "magnetic": (0.0037, 0.00049),  # .00347, .00045
}


@pytest.mark.parametrize("kind", STEPS)
def test_an_interface_reflects_and_transmits_as_fresnel_says(kind):
    """R = (eta_2 - eta_1) / (eta_2 + eta_1), complex in a conductor, and 1 + R; dx = 1 cm."""
    reflected, transmitted = interface_errors(kind, 0.01)
    assert reflected < INTERFACE[kind][0]
    assert transmitted < INTERFACE[kind][1]


def test_averaging_keeps_the_order_two_at_an_interface():
    """A step of mu: errors fall with order 2, and collocated, half a cell away, with order 1.

    Seen from 2 cm to 1 cm: 2.00 and 1.00 (reflected), 2.03 and 1.00 (transmitted); at 1 cm the
    averaged errors are 1/19 and 1/73 of the collocated ones.
    """
    errors = {
        how: [interface_errors("magnetic", dx, how) for dx in (0.02, 0.01)]
        for how in ("arithmetic", "collocated")
    }
    for part in (0, 1):
        slopes = {how: np.log2(e[0][part] / e[1][part]) for how, e in errors.items()}
        assert abs(slopes["arithmetic"] - 2) < 0.1, slopes
        assert abs(slopes["collocated"] - 1) < 0.1, slopes
        assert errors["arithmetic"][1][part] < errors["collocated"][1][part] / 15


def test_averaging_does_not_touch_what_lies_at_the_nodes():
    """TM uses epsilon and sigma at the nodes: with mu constant both ways agree bit for bit."""
    model = random_media((9, 11))
    model[2] = torch.full((9, 11), 1.5, dtype=torch.float64)
    at = [("ey", (7, 8)), ("hx", (2, 3))]
    both = [
        run(model, ("ey", (2, 3)), noise(50), at, spacing=0.02, dt=2e-11, averaging=how).receivers
        for how in ("arithmetic", "collocated")
    ]
    assert all(torch.equal(both[0][c], both[1][c]) for c in ("ey", "hx"))


# identities of the discrete system

SHAPE = {2: (11, 13), 3: (6, 7, 8)}
SPACING = {2: (0.02, 0.025), 3: (0.02, 0.025, 0.022)}
STEP = 2.5e-11  # Courant numbers .48 (TM) and .59 (3-D)


def random_media(shape, loss: float = 0.05) -> list[torch.Tensor]:
    """epsilon 1 to 20, sigma 0 to ``loss``, mu 1 to 3, independent in every cell."""
    rng = torch.Generator().manual_seed(3)
    draw = [torch.rand(tuple(shape), generator=rng, dtype=torch.float64) for _ in range(3)]
    return [1 + 19 * draw[0], loss * draw[1], 1 + 2 * draw[2]]


def at_place(x: torch.Tensor, field: str, axes: str) -> torch.Tensor:
    """Mean of a parameter over the nodes around a field's place, 0 where there is no place."""
    for dim, up in enumerate(place(field, [0] * len(axes), axes)):
        if up:
            n = x.shape[dim]
            middle = (x.narrow(dim, 0, n - 1) + x.narrow(dim, 1, n - 1)) / 2
            x = torch.cat([middle, torch.zeros_like(x.narrow(dim, 0, 1))], dim)
    return x


def energy_balance(ndim: int, order: int, loss: float) -> tuple[float, float, list[float]]:
    """Worst error of the energy balance, its largest term, and the energy after each step.

    ``W_n = sum epsilon |E_n|^2 + mu H_{n-1/2} . H_{n+1/2}`` and
    ``W_{n+1} - W_n = -dt / 2 sum sigma |E_{n+1} + E_n|^2`` in a box of zeros.
    """
    axes, model = AXES[ndim], random_media(SHAPE[ndim], loss)
    names = list(wavesim.equations.REGISTRY[FUNCTION[ndim].__name__].build(ndim).fields)
    scale = {"e": 1.0, "h": (EPSILON_0 / MU_0) ** 0.5}
    start = {f: noise(1, *SHAPE[ndim], seed=k) * scale[f[0]] for k, f in enumerate(names)}
    epsilon, sigma = (
        {f: factor * at_place(x, f, axes) for f in names if f[0] == "e"}
        for x, factor in ((model[0], EPSILON_0), (model[1], 1.0))
    )
    mu = {f: MU_0 * at_place(model[2], f, axes) for f in names if f[0] == "h"}
    states, state = [], State(start)
    for _ in range(80):
        state = run(
            model, spacing=SPACING[ndim], dt=STEP, order=order, nt=1, initial=state,
            boundary=PML(width=0), max_velocity=SPEED, ndim=ndim,
        ).state  # fmt: skip
        assert state.ratio == 1
        states.append({f: x[0] for f, x in state.fields.items()})
    energy, lost = [], []
    for now, later in pairwise(states):
        electric = sum((w * now[f].square()).sum() for f, w in epsilon.items())
        magnetic = sum((w * now[f] * later[f]).sum() for f, w in mu.items())
        energy.append((electric + magnetic).item())
        heat = sum((w * (now[f] + later[f]).square()).sum() for f, w in sigma.items())
        lost.append((STEP / 2 * heat).item())
    wrong = max(abs(b - a + c) for a, b, c in zip(energy, energy[1:], lost, strict=False))
    return wrong / energy[0], max(lost) / energy[0], energy


@pytest.mark.parametrize("ndim, order", [(2, 2), (2, 8), (3, 2), (3, 8)])
def test_energy_is_kept_without_conductivity(ndim, order):
    """Random epsilon and mu between zeros outside: W_n stays what it was (worst: 4e-16)."""
    wrong, lost, energy = energy_balance(ndim, order, loss=0.0)
    assert lost == 0
    assert min(energy) > 0
    assert wrong < 1e-14
    assert max(energy) - min(energy) < 1e-13 * energy[0]


@pytest.mark.parametrize("ndim, order", [(2, 2), (2, 8), (3, 2), (3, 8)])
def test_energy_is_lost_to_conductivity_alone(ndim, order):
    """Each step loses ``dt / 2 sum sigma |E_{n+1} + E_n|^2`` and no more (worst: 3e-16)."""
    wrong, lost, energy = energy_balance(ndim, order, loss=0.05)
    assert lost > 1e-3
    assert wrong < 1e-14
    assert all(b < a for a, b in pairwise(energy))


def energies(ndim: int, order: int, steps: int) -> list[float]:
    """Largest sum of squares of H in each fifth of a run that starts from noise in E_y.

    The upper half of the model is air, the lower half conducts. (In 3-D noise in E has charges,
    whose electric field stays in the air for ever; H has no such part.)
    """
    model = random_media(SHAPE[ndim])
    half = SHAPE[ndim][0] // 2
    model[0][:half], model[1][:half], model[2][:half] = 1.0, 0.0, 1.0
    model[1][half:] *= 20
    widths = ((4, 3), (5, 4), (3, 4))[:ndim]
    state, found = State({"ey": noise(1, *SHAPE[ndim])}), []
    for _ in range(20):
        state = run(
            model, spacing=SPACING[ndim], dt=STEP, order=order, nt=steps // 20, initial=state,
            boundary=PML(width=widths), ndim=ndim,
        ).state  # fmt: skip
        magnetic = [x for f, x in state.fields.items() if f[0] == "h"]
        found.append(sum(x.square().sum().item() for x in magnetic))
    return [max(found[i : i + 4]) for i in range(0, 20, 4)]


@pytest.mark.parametrize("ndim, order, steps", [(2, 2, 5000), (2, 8, 5000), (3, 4, 2000)])
def test_noise_never_grows_in_a_conducting_model_with_layers(ndim, order, steps):
    """Air over a random conductor (to 1 S/m): each fifth of a long run holds less.

    Worst ratio .46.
    """
    left = energies(ndim, order, steps)
    assert all(b < 0.6 * a for a, b in pairwise(left)), left


def exchanged(ndim: int, order: int, width: int, first: str, second: str) -> float:
    shape = SHAPE[ndim]
    a, b = tuple([1] * ndim), tuple(n - 3 for n in shape)
    wavelet = noise(120) * torch.hann_window(120, False, dtype=torch.float64)
    there, back = (
        run(
            random_media(shape), source, wavelet, [receiver],
            spacing=SPACING[ndim], dt=STEP, order=order, boundary=PML(width=width),
        ).receivers[receiver[0]]
        for source, receiver in (((first, a), (second, b)), ((second, b), (first, a)))
    )  # fmt: skip
    return relative_max(there, back)


PAIRS = [(2, "ey", "ey"), (3, "ey", "ey"), (3, "ex", "ez"), (3, "ez", "ey")]


@pytest.mark.parametrize("width", [0, 6])
@pytest.mark.parametrize("order", [2, 4, 6, 8])
@pytest.mark.parametrize("ndim, first, second", PAIRS)
def test_current_and_field_may_be_exchanged(ndim, first, second, order, width):
    """E_i at a of a current J_j at b is E_j at b of J_i at a, in a random lossy medium.

    Between zeros, and with layers too: stretching a coordinate only weights the equations, which
    stay symmetric. Worst: 6e-15.
    """
    assert exchanged(ndim, order, width, first, second) < 1e-12


# what the layers send back

RESIDUAL_MEDIUM = Medium(4.0, 0.0, 1.0)
CELLS, MARGIN, SAMPLES, PEAK, GRID = 40, 75, 400, 200e6, 0.02
RESIDUAL_STEP = 0.5 * GRID / (SPEED / 2 * 2**0.5)
SOURCE = (CELLS // 2, 4)
SEEN = [(z, x) for z in (0, 2, CELLS // 2, CELLS - 3) for x in (0, 3, 15, CELLS - 1)]
WIDTHS = (5, 10, 20, 40)


def ours(width: int, margin: int) -> torch.Tensor:
    model = filled((CELLS + 2 * margin,) * 2, RESIDUAL_MEDIUM)
    source, seen = (tuple(c + margin for c in SOURCE), [[c + margin for c in r] for r in SEEN])
    wavelet = ricker(PEAK, SAMPLES, RESIDUAL_STEP, 1.5 / PEAK)
    out = run(
        model, ("ey", source), wavelet, [("ey", r) for r in seen],
        spacing=GRID, dt=RESIDUAL_STEP, boundary=PML(width=width),
    )  # fmt: skip
    assert out.report.step_ratio == 1
    return out.receivers["ey"][0]


@lru_cache(maxsize=1)
def unbounded() -> torch.Tensor:
    """A domain so large that in the whole record nothing comes back: 150 cells out and back, and
    a wave goes 141."""
    return ours(20, MARGIN)


RESIDUAL = {5: 5.4e-3, 10: 7.6e-5, 20: 1.1e-6, 40: 7e-7}


@pytest.mark.parametrize("width", WIDTHS)
def test_layers_send_back_no_more_than_measured(width):
    """Error over signal against a large domain (seen: 5.23e-3, 7.34e-5, 9.96e-7, 6.12e-7)."""
    assert relative_max(ours(width, 0), unbounded()) < RESIDUAL[width]


def theirs(width: int) -> torch.Tensor:
    from tide.maxwell.tm2d import maxwelltm

    found = maxwelltm(
        *filled((CELLS, CELLS), RESIDUAL_MEDIUM),
        GRID,
        RESIDUAL_STEP,
        torch.from_numpy(ricker(PEAK, SAMPLES, RESIDUAL_STEP, 1.5 / PEAK))[None, None],
        torch.tensor([[list(SOURCE)]]),
        torch.tensor([SEEN]),
        stencil=4,
        pml_width=width,
        python_backend=True,
    )
    return found[-1][:, 0].T


@pytest.mark.parametrize("width", WIDTHS)
def test_layers_send_back_no_more_than_those_of_tide(width):
    """The same run by both, where tide-gpr is installed (records equal to 3e-15)."""
    pytest.importorskip("tide")
    got = relative_max(ours(width, 0), unbounded())
    assert got <= relative_max(theirs(width), unbounded()) * (1 + 1e-6)
