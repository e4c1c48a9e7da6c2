"""Conversions between parametrisations: inverses of each other, with gradients that stay finite."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from wavesim import PML, State, acoustic, bulk_modulus, elastic, moduli, speeds


def between(low: float, high: float, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(6, 7, generator=rng, dtype=torch.float64)


def solid() -> tuple[Tensor, Tensor, Tensor]:
    return between(1800, 2600, 1), between(900, 1400, 2), between(1500, 2600, 3)


def test_moduli_and_speeds_are_inverse():
    """speeds(moduli(x)) = x, in float64 (worst: 2.1e-16), a fluid and a vacuum included."""
    vp, vs, rho = solid()
    vs[:2] = 0
    vp[0], rho[0] = 0, 0
    for got, expected in zip(speeds(*moduli(vp, vs, rho)), (vp, vs, rho), strict=True):
        assert ((got - expected).abs() <= 1e-14 * expected).all()


def test_moduli_are_those_of_the_formulas():
    """mu = rho vs^2, lamb + 2 mu = rho vp^2, buoyancy = 1 / rho; K = rho v^2."""
    vp, vs, rho = (torch.tensor([x], dtype=torch.float64) for x in (3000.0, 1500.0, 2000.0))
    lamb, mu, buoyancy = moduli(vp, vs, rho)
    assert (lamb.item(), mu.item(), buoyancy.item()) == (9e9, 4.5e9, 5e-4)
    assert bulk_modulus(vp, rho).item() == 1.8e10


@pytest.mark.parametrize("convert", [moduli, speeds])
def test_gradients_are_those_of_finite_differences(convert):
    """Of every output with respect to every input, in units of their sizes."""
    x = [v[:2, :2] for v in (solid() if convert is moduli else moduli(*solid()))]
    into, out = ([v.abs().mean() for v in values] for values in (x, convert(*x)))

    def scaled(*values: Tensor) -> tuple[Tensor, ...]:
        found = convert(*(v * s for v, s in zip(values, into, strict=True)))
        return tuple(v / s for v, s in zip(found, out, strict=True))

    ones = [(v / s).requires_grad_() for v, s in zip(x, into, strict=True)]
    assert torch.autograd.gradcheck(scaled, ones, eps=1e-6, atol=1e-7, rtol=0)


def test_gradients_at_zero_are_finite():
    """Fluid and vacuum cells: the roots and inverses have a gradient of 0 there, not nan."""
    vp, vs, rho = (v.requires_grad_() for v in emptied(*solid()))
    made = moduli(vp, vs, rho)
    found = torch.autograd.grad(made[2].sum(), rho)[0]
    assert (found[:2] == 0).all()
    assert (found[2:] < 0).all()
    leaves = [m.detach().requires_grad_() for m in made]
    back = torch.autograd.grad(sum(v.sum() for v in speeds(*leaves)), leaves)
    assert all(g.isfinite().all() for g in back)
    assert all((g[:2] == 0).all() for g in back)  # vacuum
    whole = torch.autograd.grad(sum(m.sum() for m in moduli(vp, vs, rho)), (vp, vs, rho))
    assert all(g.isfinite().all() for g in whole)


def emptied(vp: Tensor, vs: Tensor, rho: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same model with two rows of vacuum and two of fluid above it."""
    vs[:4], rho[:2] = 0, 0
    return vp, vs, rho


def loss(equation: str, parameters: tuple[Tensor, ...]) -> Tensor:
    """Of records and final fields of 12 steps from noise above, at and below the surface."""
    ndim, rng = 2, torch.Generator().manual_seed(9)
    names = ("p", "vy", "vx") if equation == "acoustic" else ("vy", "vx", "syy", "sxx", "sxy")
    scale = {k: 1.0 if k[0] == "v" else 3e6 for k in names}
    start = torch.randn(len(names), 1, 6, 7, generator=rng, dtype=torch.float64)
    initial = State({k: s * scale[k] for k, s in zip(names, start, strict=True)})
    run = acoustic if equation == "acoustic" else elastic
    out = run(*parameters, spacing=[5.0] * ndim, dt=5e-4, nt=12, initial=initial,
              boundary=PML(width=3, frequency=25.0), max_velocity=6000.0)  # fmt: skip
    return sum((out.state.fields[k] / scale[k]).square().sum() for k in names)


@pytest.mark.parametrize("equation", ["acoustic", "elastic"])
def test_simulations_with_fluid_and_vacuum_have_finite_gradients(equation):
    """And right ones: along a change of the cells that hold something (seen: 4.8e-7).

    A central difference of the loss, with 1e-4 of the model.
    """
    vp, vs, rho = emptied(*solid())
    model = (vp, rho) if equation == "acoustic" else moduli(vp, vs, rho)
    leaves = [m.clone().requires_grad_() for m in model]
    found = torch.autograd.grad(loss(equation, tuple(leaves)), leaves)
    assert all(g.isfinite().all() for g in found)
    change = [m * (between(-1, 1, 20 + i)) for i, m in enumerate(model)]
    slope = sum((g * c).sum() for g, c in zip(found, change, strict=True)).item()
    moved = [
        loss(equation, tuple(m + h * c for m, c in zip(model, change, strict=True))).item()
        for h in (1e-4, -1e-4)
    ]
    assert slope == pytest.approx((moved[0] - moved[1]) / 2e-4, rel=1e-6)
