"""Point moment tensors: equal to what they reduce to, and with the symmetry of their radiation."""

from __future__ import annotations

from math import prod

import pytest
import torch
from physics.runs import noise, relative_l2, relative_max

import wavesim
from wavesim import PML, Receivers, Sources, moduli, moment_tensor

DT, SPACING, FREQUENCY = 5e-4, (5.0, 6.5, 5.5), 40.0
SHAPES = {2: (15, 19), 3: (9, 11, 13)}
COUNT = {2: 3, 3: 6}
CHANNELS = {2: ("syy", "sxx", "sxy"), 3: ("szz", "syy", "sxx", "syz", "sxz", "sxy")}


def medium(shape, random: bool = False):
    vp, vs, rho = (torch.full(shape, x, dtype=torch.float64) for x in (2000.0, 1100.0, 2200.0))
    if random:
        vp, vs, rho = (
            x * (1 + 0.2 * noise(*shape, seed=k).tanh()) for k, x in enumerate((vp, vs, rho))
        )
    return moduli(vp, vs, rho)


def run(model, sources, receivers, **options):
    ndim = model[0].ndim
    settings = {"spacing": SPACING[:ndim], "dt": DT, "max_velocity": 3200.0, "backend": "eager"}
    settings["boundary"] = PML(width=6, frequency=FREQUENCY)
    return wavesim.elastic(*model, sources=sources, receivers=receivers, **settings | options)


def everywhere(ndim: int) -> dict[str, Receivers]:
    names = ("p", *(f"v{n}" for n in "zyx"[3 - ndim :]))
    cells = torch.tensor([[[1] * ndim, [n - 3 for n in SHAPES[ndim]]]])
    return {name: Receivers(cells) for name in names}


@pytest.mark.parametrize("ndim", [2, 3])
def test_an_isotropic_moment_is_a_pressure_source(ndim):
    """Equal normal components M: the channel p with amplitude M / volume (worst: 0)."""
    rate, at = noise(1, 1, 1, 40), torch.tensor([[[4] * ndim]])
    isotropic = torch.zeros(1, 1, COUNT[ndim], 40, dtype=torch.float64)
    isotropic[:, :, :ndim] = rate
    model, seen = medium(SHAPES[ndim], random=True), everywhere(ndim)
    got = run(model, moment_tensor(isotropic, at, SPACING[:ndim]), seen).receivers
    explosion = Sources(rate[0] / prod(SPACING[:ndim]), at)
    expected = run(model, {"p": explosion}, seen).receivers
    for name in expected:
        assert relative_max(got[name], expected[name]) < 1e-13, name


DOUBLE_COUPLE_SIDE = 20


def double_couple() -> tuple[torch.Tensor, torch.Tensor]:
    """Pressure at the nodes and rotation at the half cells [y, x], some time after a shear moment
    in the middle of a square."""
    n = 2 * DOUBLE_COUPLE_SIDE + 1
    rate = torch.zeros(1, 1, 3, 120, dtype=torch.float64)
    a = (torch.pi * 40.0 * (torch.arange(120) * DT - 0.03)) ** 2
    rate[0, 0, 2] = (1 - 2 * a) * torch.exp(-a)
    middle = torch.tensor([[[DOUBLE_COUPLE_SIDE] * 2]])
    out = run(medium((n, n)), moment_tensor(rate, middle, 5.0), {}, spacing=(5.0, 5.0))
    width = 6
    f = {k: v[0, width:-width, width:-width] for k, v in out.state.fields.items()}
    vy, vx = f["vy"], f["vx"]
    rotation = (vx[1:, :-1] - vx[:-1, :-1]) - (vy[:-1, 1:] - vy[:-1, :-1])
    return -(f["syy"] + f["sxx"]) / 2, rotation


def test_a_double_couple_has_its_nodal_planes():
    """M_xy radiates P as sin 2 theta and S as cos 2 theta.

    So P (the pressure at the nodes) is exactly antisymmetric under a flip of either axis through
    the source, which makes the two axes nodal planes, and S (the rotation, at the corners of four
    cells) is antisymmetric under exchange of the axes, which makes the diagonals nodal planes.
    Worst over the largest value: 0 in all four, the arithmetic being symmetric too.
    """
    p, s = double_couple()
    diagonal = torch.arange(2 * DOUBLE_COUPLE_SIDE + 1)
    assert p[diagonal, diagonal].abs().max() > 0.5 * p.abs().max()
    assert s[DOUBLE_COUPLE_SIDE].abs().max() > 0.5 * s.abs().max()
    for axis in (0, 1):
        assert relative_max(p.flip(axis), -p) < 1e-12
    assert p[DOUBLE_COUPLE_SIDE].abs().max() < 1e-12 * p.abs().max()
    assert relative_max(p.T, p) < 1e-12
    assert relative_max(s.T, -s) < 1e-12


def pressure_at(components: dict[int, float], away: tuple[int, int], finer: int) -> torch.Tensor:
    """Pressure record ``away`` times 5 m from a moment in a homogeneous medium, 40 Hz, order 8."""
    half, nt, dt = 24 * finer, 210 * finer, DT / finer
    a = (torch.pi * 40.0 * (torch.arange(nt).double() * dt - 0.03)) ** 2
    rate = torch.zeros(1, 1, 3, nt, dtype=torch.float64)
    for k, share in components.items():
        rate[0, 0, k] = share * (1 - 2 * a) * torch.exp(-a)
    sources = moment_tensor(rate, torch.tensor([[[half, half]]]), 5.0 / finer)
    seen = Receivers(torch.tensor([[[half + finer * c for c in away]]]))
    settings = {"spacing": (5.0 / finer,) * 2, "dt": dt, "order": 8}
    settings["boundary"] = PML(width=20, frequency=40.0)
    model = medium((2 * half + 1,) * 2)
    return run(model, sources, {"p": seen}, **settings).receivers["p"][0, 0]


def turned_error(finer: int) -> float:
    """75 m away along y, or at an angle with 2 sin cos = 0.96."""
    normal = pressure_at({0: 1.0, 1: -1.0}, (15, 0), finer)
    return relative_l2(pressure_at({2: 1.0}, (12, 9), finer), 0.96 * normal)


def test_a_shear_moment_is_a_turned_pair_of_normal_ones():
    """The pressure of a moment without trace is n M n times a function of distance.

    So M_xy gives 2 n_x n_y of what M_yy = -M_xx gives along y, in sign and size.

    The four cells of a shear moment make it smoother: the difference falls with the square of the
    spacing (seen at 5 and 2.5 m: .0817 and .0210).
    """
    coarse, fine = turned_error(1), turned_error(2)
    assert coarse < 0.085
    assert fine < 0.022


@pytest.mark.parametrize("ndim", [2, 3])
def test_gradients_reach_the_moment_rate(ndim):
    """<F m, w> = <m, F' w> for random rates and weights (worst: 9e-16); no component is idle."""
    rate = noise(1, 2, COUNT[ndim], 20).requires_grad_()
    at = torch.tensor([[[4] * ndim, [n - 2 for n in SHAPES[ndim]]]])
    out = run(medium(SHAPES[ndim], True), moment_tensor(rate, at, SPACING[:ndim]), everywhere(ndim))
    product = sum((noise(*r.shape, seed=k) * r).sum() for k, r in enumerate(out.receivers.values()))
    (gradient,) = torch.autograd.grad(product, rate)
    assert gradient.abs().amax((0, 1, 3)).min() > 0
    back = (rate * gradient).sum()
    assert abs(back - product) < 1e-12 * abs(product)


@pytest.mark.parametrize("ndim", [2, 3])
def test_components_enter_their_channels_with_their_weights(ndim):
    """Each channel adds up to -M / volume, and its cells' centre is the node."""
    rate, at = noise(1, 1, COUNT[ndim], 5), torch.tensor([[[4] * ndim]])
    sources = moment_tensor(rate, at, SPACING[:ndim])
    assert tuple(sources) == CHANNELS[ndim]
    for k, (name, s) in enumerate(sources.items()):
        whole = s.amplitudes.sum(1)[0]
        torch.testing.assert_close(whole, -rate[0, 0, k] / prod(SPACING[:ndim]), rtol=1e-14, atol=0)
        half = torch.tensor([n in name[1:] and name[1] != name[2] for n in "zyx"[3 - ndim :]])
        centre = (s.locations[0] + half / 2).double().mean(0)
        assert torch.equal(centre, torch.full((ndim,), 4.0, dtype=torch.float64)), name


def test_unused_slots_stay_unused():
    """A shot with an IGNORE slot radiates what it does without the slot, bit for bit."""
    rate = noise(1, 2, 3, 30)
    at = torch.tensor([[[5, 6], [wavesim.IGNORE] * 2]])
    sources = moment_tensor(rate, at, SPACING[:2])
    used = (sources["sxy"].locations != wavesim.IGNORE).all(-1)
    assert used[0].tolist() == [True] * 4 + [False] * 4
    model, seen = medium(SHAPES[2]), everywhere(2)
    got = run(model, sources, seen).receivers
    expected = run(model, moment_tensor(rate[:, :1], at[:, :1], SPACING[:2]), seen).receivers
    assert all(torch.equal(got[k], expected[k]) for k in expected)


def test_the_edge_is_refused():
    """A node on the first or last index of an axis has no four shear cells around it."""
    rate = torch.zeros(1, 1, 3, 5, dtype=torch.float64)
    for at, axis in (([0, 3], 0), ([3, 0], 1), ([-2, 3], 0)):
        with pytest.raises(ValueError, match=rf"shot 0, source 0, axis {axis}\].*got .*expected 1"):
            moment_tensor(rate, torch.tensor([[at]]), 5.0)
    for at in ([14, 3], [3, 18]):
        sources = moment_tensor(rate, torch.tensor([[at]]), 5.0)
        with pytest.raises(ValueError, match=r"sources\['sxy'\].locations.*expected a cell in 0"):
            run(medium(SHAPES[2]), sources, everywhere(2))


@pytest.mark.parametrize(
    "change, text",
    [
        ({"moment_rate": torch.zeros(1, 1, 6, 5)}, r"moment_rate: got shape.*\[1, 1, 3, time\]"),
        ({"moment_rate": torch.zeros(2, 1, 3, 5)}, r"moment_rate: got shape.*\[1, 1, 3, time\]"),
        ({"locations": torch.tensor([[[3]]])}, "locations: got 1 coordinates, expected 2 or 3"),
        ({"spacing": (5.0, 5.0, 5.0)}, "spacing: got .*expected one number or 2"),
        ({"spacing": -5.0}, "spacing: got -5.0, expected positive"),
    ],
)
def test_wrong_input_says_what_was_expected(change, text):
    given = {"moment_rate": torch.zeros(1, 1, 3, 5), "locations": torch.tensor([[[3, 3]]])}
    with pytest.raises(ValueError, match=text):
        moment_tensor(**{**given, "spacing": 5.0, **change})
