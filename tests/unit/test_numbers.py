"""The rooms of numbers: stencils, stable steps, boundary profiles, resampling."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from wavesim import cfl
from wavesim.cpml import Axis, Damping, collocated_profile, staggered_profile
from wavesim.resample import downsample, upsample
from wavesim.stencils import CENTRAL, ORDERS, SECOND, STAGGERED

H = 0.5


def second(f, x, order):
    pairs = enumerate(SECOND[order], 1)
    return sum(c * ((f(x + k * H) - f(x)) + (f(x - k * H) - f(x))) for k, c in pairs) / H**2


def central(f, x, order):
    return sum(c * (f(x + k * H) - f(x - k * H)) for k, c in enumerate(CENTRAL[order], 1)) / H


def staggered(f, x, order):
    """To the half cell above node x - H / 2, that is at x."""
    pairs = enumerate(STAGGERED[order], 1)
    return sum(c * (f(x + (k - 0.5) * H) - f(x - (k - 0.5) * H)) for k, c in pairs) / H


def derivative(degree, x, times):
    """The times-th derivative of x^degree."""
    return math.perm(degree, times) * x ** (degree - times) if degree >= times else 0.0


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("stencil", "times"),
    [(second, 2), (central, 1), (staggered, 1)],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_stencils_are_exact_up_to_their_order(stencil, times, order):
    """An order-p stencil of the m-th derivative is exact to degree p + m - 1, not p + m.

    (Symmetry makes degree p + m - 1 exact for free; at 0.3, degree p + m shows the error term.)
    """
    x = 0.3
    for degree in range(order + times):
        got = stencil(lambda s, d=degree: s**d, x, order)
        assert got == pytest.approx(derivative(degree, x, times), abs=1e-10)
    degree = order + times
    got = stencil(lambda s: s**degree, x, order)
    assert abs(got - derivative(degree, x, times)) > 1e-3 * H**order


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("stencil", [second, central, staggered])
def test_stencils_vanish_exactly_on_constants(stencil, order):
    """A constant field has a derivative of exactly 0, in floating point too."""
    assert stencil(lambda s: 0.1, 0.0, order) == 0.0


@pytest.mark.parametrize(
    ("order", "collocated", "expected"),
    [
        (2, True, 1.0),
        (4, True, 0.8660),
        (6, True, 0.8135),
        (8, True, 0.7844),
        (2, False, 1.0),
        (4, False, 0.8571),
        (6, False, 0.8054),
        (8, False, 0.7774),
    ],
)
def test_critical_courant_numbers(order, collocated, expected):
    """Published bounds of ``dt v ||1/h||`` for the Taylor stencils."""
    assert cfl.critical_courant(order, collocated=collocated) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("order", ORDERS)
def test_critical_courant_is_the_edge_of_stability(order):
    """At C the largest |2 - C^2 s| over wavenumbers, s the symbol of -h^2 D2, is just 2."""
    theta = np.linspace(0, np.pi, 2001)
    symbol = sum(2 * c * (1 - np.cos(k * theta)) for k, c in enumerate(SECOND[order], 1))
    c = cfl.critical_courant(order, collocated=True)
    assert c**2 * symbol.max() == pytest.approx(4, rel=1e-12)


def test_default_courant_is_stable_at_every_order():
    critical = [cfl.critical_courant(o, collocated=c) for o in ORDERS for c in (True, False)]
    assert min(critical) > cfl.COURANT


@pytest.mark.parametrize("spacing", [(5.0,), (5.0, 6.5), (5.0, 6.5, 5.5)])
def test_step_ratio_is_the_smallest_that_is_stable(spacing):
    """ratio steps keep the Courant number within the bound, ratio - 1 do not."""
    for dt in (1e-4, 1e-3, 2.9e-3, 1e-2):
        ratio = cfl.step_ratio(dt, 2500.0, spacing)
        assert cfl.courant_number(dt / ratio, 2500.0, spacing) <= cfl.COURANT * (1 + 1e-12)
        if ratio > 1:
            assert cfl.courant_number(dt / (ratio - 1), 2500.0, spacing) > cfl.COURANT


def test_largest_stable_dt_needs_one_step_and_more_needs_two():
    largest = cfl.largest_stable_dt(2500.0, (5.0, 6.5))
    assert cfl.step_ratio(largest * (1 - 1e-9), 2500.0, (5.0, 6.5)) == 1
    assert cfl.step_ratio(largest * (1 + 1e-9), 2500.0, (5.0, 6.5)) == 2


DAMPING = Damping(max_velocity=3000.0, alpha_max=25.0 * math.pi)
AXIS = Axis(cells=40, spacing=5.0, low=6, high=9, dt=5e-4, damping=(DAMPING, DAMPING))


@pytest.mark.parametrize("order", ORDERS)
def test_collocated_profile_is_zero_inside_the_model(order):
    """c and e vanish on the model's nodes, de a stencil's reach further in."""
    c, e, de = collocated_profile(AXIS, order)
    inside = slice(AXIS.low, AXIS.cells - AXIS.high)
    assert not c[inside].any() and not e[inside].any()
    reach = order // 2
    assert not de[AXIS.low + reach : AXIS.cells - AXIS.high - reach].any()
    assert de[AXIS.low + reach - 1] != 0


def test_collocated_profile_takes_the_closed_form_at_the_faces():
    """On the outermost node x = 1: alpha = 0, e = c - 1, sigma = -3 v ln R / (2 L)."""
    c, e, _ = collocated_profile(AXIS, 4)
    for index, width in ((0, AXIS.low), (-1, AXIS.high)):
        sigma = -3 * 3000.0 * math.log(1e-3) / (2 * width * 5.0)
        assert c[index] == pytest.approx(math.exp(-sigma * AXIS.dt), rel=1e-14)
        assert e[index] == pytest.approx(math.expm1(-sigma * AXIS.dt), rel=1e-14)


def test_profiles_decay_and_absorb():
    """0 < c < 1, -1 < e < 0, and e deepens towards the face: the layer only takes energy."""
    c, e, _ = collocated_profile(AXIS, 4)
    layer = np.r_[0 : AXIS.low, AXIS.cells - AXIS.high : AXIS.cells]
    assert ((c[layer] > 0) & (c[layer] < 1)).all()
    assert ((e[layer] < 0) & (e[layer] > -1)).all()
    assert (np.diff(e[: AXIS.low + 1]) > 0).all()
    assert (np.diff(e[AXIS.cells - AXIS.high - 1 :]) < 0).all()


@pytest.mark.parametrize("order", ORDERS)
def test_equal_faces_have_mirrored_profiles(order):
    """Right and bottom absorb exactly as left and top: c, e even, de odd under a flip."""
    axis = replace(AXIS, cells=31, spacing=4.0, low=7, high=7)
    c, e, de = collocated_profile(axis, order)
    np.testing.assert_array_equal(c, c[::-1])
    np.testing.assert_array_equal(e, e[::-1])
    np.testing.assert_allclose(de, -de[::-1], rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize("half", [0, 1])
def test_faces_of_width_zero_hold_nothing(half):
    axis = replace(AXIS, cells=12, low=0, high=0)
    assert not collocated_profile(axis, 8).any()
    b, a, inverse_kappa = staggered_profile(axis, half)
    assert not b.any() and not a.any()
    assert (inverse_kappa == 1).all()


def test_profile_is_the_same_in_other_units():
    """Hz and m against MHz and um: c, e are dimensionless, and equal to 1e-13."""
    tuned = replace(DAMPING, alpha_max=DAMPING.alpha_max * 1e6)
    scaled = replace(AXIS, spacing=AXIS.spacing * 1e-6, dt=AXIS.dt * 1e-6, damping=(tuned, tuned))
    want, got = collocated_profile(AXIS, 4), collocated_profile(scaled, 4)
    np.testing.assert_allclose(got[:2], want[:2], rtol=1e-13)


def test_small_damping_keeps_its_absorption():
    """e is formed by expm1: with sigma dt = 1e-12 it is -1e-12, not 0."""
    weak = Damping(1.0, reflection=math.exp(-2 / 3))
    axis = Axis(cells=5, spacing=1.0, low=1, high=0, dt=1e-12, damping=(weak, weak))
    _, e, _ = collocated_profile(axis, 2)
    assert e[0] == pytest.approx(-1e-12, rel=1e-10)


def test_staggered_profile_without_stretching_is_the_collocated_recursion():
    """With kappa = 1 on nodes, b = c and a = e."""
    b, a, inverse_kappa = staggered_profile(AXIS, 0)
    c, e, _ = collocated_profile(AXIS, 4)
    np.testing.assert_array_equal(b, c)
    np.testing.assert_allclose(a, e, rtol=1e-14)
    assert (inverse_kappa == 1).all()


def test_half_profile_ends_one_cell_early():
    """N nodes carry N - 1 half cells, so the last index holds no memory."""
    b, a, _ = staggered_profile(AXIS, 1)
    assert b[-1] == a[-1] == 0
    assert b[-2] != 0 and a[-2] != 0


def test_stretching_reaches_kappa_max_at_the_face():
    stretched = replace(DAMPING, kappa_max=4.0)
    _, _, inverse_kappa = staggered_profile(replace(AXIS, damping=(stretched, stretched)), 0)
    assert inverse_kappa[0] == inverse_kappa[-1] == 0.25
    assert (inverse_kappa[AXIS.low : AXIS.cells - AXIS.high] == 1).all()


@pytest.mark.parametrize("n", [1, 2, 7, 12])
@pytest.mark.parametrize("ratio", [2, 3, 5])
@pytest.mark.parametrize(("taper", "padding"), [(0.0, 0), (0.4, 0), (0.3, 5)])
def test_resampling_pair_is_transposed(n, ratio, taper, padding):
    """<up x, y> = ratio <x, down y>; worst observed relative difference 1e-15."""
    generator = torch.Generator().manual_seed(n * 100 + ratio)
    x = torch.randn(3, n, dtype=torch.float64, generator=generator)
    y = torch.randn(3, n * ratio, dtype=torch.float64, generator=generator)
    left = (upsample(x, ratio, taper=taper, padding=padding) * y).sum()
    right = ratio * (x * downsample(y, ratio, taper=taper, padding=padding)).sum()
    scale = x.norm() * y.norm()
    assert abs(left - right) <= 1e-13 * scale


@pytest.mark.parametrize("taper", [0.0, 0.5])
def test_ratio_one_is_the_identity(taper):
    """Nothing is filtered at ratio 1: the very same tensor comes back."""
    x = torch.randn(2, 9)
    assert upsample(x, 1, taper=taper, padding=3) is x
    assert downsample(x, 1, taper=taper, padding=3) is x


@pytest.mark.parametrize("n", [9, 16])
def test_upsampling_interpolates_band_limited_signals(n):
    """A signal below Nyquist passes through its samples, and down(up(x)) = x to 1e-14."""
    t = torch.arange(n, dtype=torch.float64) / n
    x = 0.3 + torch.cos(2 * torch.pi * 2 * t) + torch.sin(2 * torch.pi * 3 * t)
    fine = upsample(x, 4)
    torch.testing.assert_close(fine[::4], x, rtol=0, atol=1e-14)
    torch.testing.assert_close(downsample(fine, 4), x, rtol=0, atol=1e-14)
