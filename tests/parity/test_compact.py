"""Gradients from a history of velocities alone, against those from a full one and eager ones."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from wavesim import PML, Receivers, Sources, State, autograd, elastic
from wavesim.device import interpreting

pytestmark = pytest.mark.skipif(not interpreting(), reason="needs TRITON_INTERPRET=1")

RANGES = ((2e3, 9e3), (1e3, 4e3), (400.0, 1000.0))
SHAPE, SPACING, STEPS, SHOTS = (3, 5, 6), (5.0, 6.5, 5.5), 5, 2
VALUES = {2: (5, 2), 3: (9, 3)}
"""A cell and step, full and compact."""


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)


def model(ndim: int, *lead: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    rng, shape = torch.Generator().manual_seed(1), (*lead, *SHAPE[3 - ndim :])
    unit = [torch.rand(*shape, generator=rng, dtype=torch.float64) for _ in RANGES]
    return [
        (a + (b - a) * u).to(dtype).requires_grad_() for (a, b), u in zip(RANGES, unit, strict=True)
    ]


def call(parameters: list[Tensor], ndim: int, backend: str = "triton", **options):
    """The result, and the gradients of a random sum of all that it holds."""
    dtype = parameters[0].dtype
    at = torch.tensor([[[1] * ndim, [2] * ndim, [1] * ndim]]).repeat(SHOTS, 1, 1)
    settings = {
        "spacing": SPACING[3 - ndim :],
        "dt": 2e-4,
        "sources": {"p": Sources(random(SHOTS, 3, STEPS, dtype=dtype), at)},
        "receivers": {name: Receivers(at) for name in ("p", "vx", "vy")},
        "boundary": PML(width=3, frequency=25.0),
        "max_velocity": 4800.0,
        "backend": backend,
    }
    out = elastic(*parameters, **{**settings, **options})
    kept = [*out.receivers.values(), *out.state.fields.values(), *out.state.memory]
    total = sum((random(*k.shape, seed=i, dtype=dtype) * k).sum() for i, k in enumerate(kept))
    return out, torch.autograd.grad(total, parameters)


def compact(result, ndim: int) -> bool:
    """Whether the history was; by its bytes, of rows rounded up to 4 cells."""
    report, (full, few) = result.report, VALUES[ndim]
    *outer, x = report.padded_shape
    row = math.prod(outer) * ((x + 3) // 4 * 4) * SHOTS * result.state.fields["vx"].element_size()
    steps = STEPS * report.step_ratio
    assert report.history_bytes in (full * steps * row, few * (steps + 1) * row)
    return report.history_bytes == few * (steps + 1) * row


def deviation(got, expected) -> float:
    pairs = zip(got, expected, strict=True)
    return max(((a - b).norm() / b.norm()).item() for a, b in pairs)


CASES = [
    (2, 4, 3, False, False),
    (2, 2, [(0, 2), (3, 0)], True, False),
    (2, 8, [2, (0, 0)], False, True),
    (2, 4, 0, True, True),
    (3, 4, [2, (0, 2), (1, 3)], True, False),
]


@pytest.mark.parametrize(("ndim", "order", "width", "begun", "batched"), CASES)
def test_gradients_are_those_of_a_full_history(ndim, order, width, begun, batched, monkeypatch):
    """Also from initial fields, and with a model per shot; worst seen 5e-16."""
    options: dict = {"order": order, "boundary": PML(width=width, frequency=25.0)}
    lead = (SHOTS,) * batched
    if begun:
        fields = {n: random(SHOTS, *SHAPE[3 - ndim :], seed=k) for k, n in enumerate(("vx", "syy"))}
        options["initial"] = State(fields)
    out, found = call(model(ndim, *lead), ndim, **options)
    assert compact(out, ndim)
    _, eager = call(model(ndim, *lead), ndim, "eager", **options)
    assert deviation(found, eager) < 5e-15
    monkeypatch.setattr(autograd, "_compact", lambda plan, *_: plan)
    out, full = call(model(ndim, *lead), ndim, **options)
    assert not compact(out, ndim)
    assert deviation(found, full) < 5e-15


def test_single_precision_loses_nothing():
    """Differences of velocities are what a step added to them, rounding included."""
    _, exact = call(model(2), 2, "eager")
    single = model(2, dtype=torch.float32)
    out, found = call(single, 2)
    assert compact(out, 2)
    assert deviation([g.double() for g in found], exact) < 5e-6  # worst seen: 1e-6


def test_where_velocities_do_not_tell_everything_the_history_is_full():
    """Forces move what is kept, a layer's memory may not begin at zero, a change of a velocity
    tells nothing where buoyancy is 0, nor is that known unchecked, and tangents need all."""
    at = torch.tensor([[[1, 2]]]).repeat(SHOTS, 1, 1)
    force = {"vy": Sources(random(SHOTS, 1, STEPS), at)}
    out, found = call(model(2), 2, sources=force)
    assert not compact(out, 2)
    assert deviation(found, call(model(2), 2, "eager", sources=force)[1]) < 5e-15

    begun = State(memory=tuple(random(*m.shape) for m in out.state.memory))
    out, found = call(model(2), 2, initial=begun)
    assert not compact(out, 2)
    assert deviation(found, call(model(2), 2, "eager", initial=begun)[1]) < 5e-15

    empty = [model(2), model(2)]
    for parameters in empty:
        parameters[2].data[3, 3] = 0
    out, found = call(empty[0], 2)
    assert not compact(out, 2)
    assert deviation(found, call(empty[1], 2, "eager")[1]) < 5e-15

    assert not compact(call(model(2), 2, validate=False)[0], 2)
    with forward_ad.dual_level():
        lamb, mu, buoyancy = (p.detach() for p in model(2))
        dual = forward_ad.make_dual(lamb, torch.ones_like(lamb)).requires_grad_(False)
        settings = {"spacing": SPACING[1:], "dt": 2e-4, "receivers": {"p": Receivers(at)}}
        settings |= {"sources": force, "boundary": PML(width=3, frequency=25.0)}
        moved = elastic(dual, mu, buoyancy, max_velocity=4800.0, backend="triton", **settings)
        assert not compact(moved, 2)
