"""Long loops are launched in parts, which give the bits of one launch and end at an interrupt."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from adjoint.cases import dot, make

from wavesim import trials
from wavesim.choice import LOOP, default_choice
from wavesim.device import interpreting
from wavesim.triton_kernels import launch

pytestmark = pytest.mark.skipif(not interpreting(), reason="counts launches in the interpreter")


@pytest.fixture
def experiment(monkeypatch):
    """A scalar run in loops, of a plan that every call shares."""
    monkeypatch.setattr(trials, "default_choice", looped)
    return replace(make("scalar", 1, 4, "eager", nt=10), backend="triton")


def looped(plan, card, **direction):
    return replace(default_choice(plan, card, **direction), mode=LOOP)


def everything(experiment):
    weights = experiment.weights()
    with torch.no_grad():
        outputs = experiment.run()
    return {**outputs, **experiment.gradients(lambda out: dot(out, weights))}


def test_parts_of_a_loop_give_its_bits(experiment, monkeypatch):
    """Of an even number of steps each, so that buffers that change places are back."""
    count, real = [], launch.execute
    monkeypatch.setattr(launch, "execute", lambda *a: (count.append(1), real(*a)))
    whole, launches = everything(experiment), len(count)
    monkeypatch.setattr(launch, "PART_CELLS", 1)
    parts = everything(experiment)
    assert len(count) - launches == 5 * launches  # two of the ten steps each
    assert all(torch.equal(parts[k], whole[k]) for k in whole)


def test_an_interrupt_between_parts_leaves_nothing_behind(experiment, monkeypatch):
    """Ctrl-C is raised where it was pressed; the next call gives the bits of an undisturbed one."""
    expected = everything(experiment)
    monkeypatch.setattr(launch, "PART_CELLS", 1)
    real, left = launch.execute, iter([True, True])

    def interrupted(*arguments):
        if next(left, None) is None:
            raise KeyboardInterrupt
        real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(launch, "execute", interrupted)
        with pytest.raises(KeyboardInterrupt):
            experiment.run()
    found = everything(experiment)
    assert all(torch.equal(found[k], expected[k]) for k in expected)
