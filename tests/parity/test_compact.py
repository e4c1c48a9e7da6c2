"""Gradients from a history of velocities alone, against those from a full one and eager ones."""

from __future__ import annotations

import pytest
import torch
from parity.compact import SHAPE, SHOTS, SPACING, STEPS, call, compact, deviation, model, random
from torch.autograd import forward_ad

from wavesim import PML, History, Receivers, Sources, State, elastic, scalar
from wavesim.device import interpreting

pytestmark = pytest.mark.skipif(not interpreting(), reason="needs TRITON_INTERPRET=1")

CASES = [
    (2, 4, 3, False, False),
    (2, 2, [(0, 2), (3, 0)], True, False),
    (2, 8, [2, (0, 0)], False, True),
    (2, 4, 0, True, True),
    (3, 4, [2, (0, 2), (1, 3)], True, False),
]


@pytest.mark.parametrize(("ndim", "order", "width", "begun", "batched"), CASES)
def test_gradients_are_those_of_a_full_history(ndim, order, width, begun, batched):
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
    out, full = call(model(ndim, *lead), ndim, history=History(compact=False), **options)
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
    out, found = call(empty[0], 2, max_velocity=6000.0)  # beside a vacuum waves are faster
    assert not compact(out, 2)
    assert deviation(found, call(empty[1], 2, "eager", max_velocity=6000.0)[1]) < 5e-15

    assert not compact(call(model(2), 2, validate=False)[0], 2)
    assert compact(call(model(2), 2, validate=False, history=History(compact=True))[0], 2)
    with forward_ad.dual_level():
        lamb, mu, buoyancy = (p.detach() for p in model(2))
        dual = forward_ad.make_dual(lamb, torch.ones_like(lamb)).requires_grad_(False)
        settings = {"spacing": SPACING[1:], "dt": 2e-4, "receivers": {"p": Receivers(at)}}
        settings |= {"sources": force, "boundary": PML(width=3, frequency=25.0)}
        moved = elastic(dual, mu, buoyancy, max_velocity=4800.0, backend="triton", **settings)
        assert not compact(moved, 2)


def test_a_compact_history_that_cannot_be_had_is_refused():
    at, wanted = torch.tensor([[[1, 2]]]).repeat(SHOTS, 1, 1), History(compact=True)
    call(model(2), 2, history=wanted)
    for changes, got in (
        ({"sources": {"vy": Sources(random(SHOTS, 1, STEPS), at)}}, "sources of what is kept"),
        ({"initial": State(memory=call(model(2), 2)[0].state.memory)}, "boundary memory"),
        ({"backend": "eager"}, "eager"),
    ):
        with pytest.raises(ValueError, match=rf"History\.compact: .*{got}"):
            call(model(2), 2, history=wanted, **changes)
    empty = model(2)
    empty[2].data[3, 3] = 0
    with pytest.raises(ValueError, match=r"History\.compact: .*zeros in buoyancy"):
        call(empty, 2, history=wanted, max_velocity=6000.0)
    v = torch.full((9, 9), 1500.0)  # also where no gradient is to come
    with pytest.raises(ValueError, match=r"History\.compact: .*scalar waves"):
        scalar(v, spacing=[5.0, 5.0], dt=1e-4, nt=2, boundary=PML(width=3, frequency=25.0),
               backend="triton", history=wanted)  # fmt: skip
