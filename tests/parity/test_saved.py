"""Coefficients too large for a shared block are saved once, as the kernels read them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from adjoint.cases import dot, make
from torch.autograd.graph import saved_tensors_hooks

from wavesim import buffers, trials
from wavesim.choice import Choice
from wavesim.device import interpreting

pytestmark = pytest.mark.skipif(not interpreting(), reason="needs TRITON_INTERPRET=1")
BOX = (6, 30), ((3, 0), (2, 3))
SAME, OTHER = (Choice("steps", (1, 8, x), (1, 8, x), 4, 2) for x in (32, 128))


@pytest.mark.parametrize("equation", ["scalar", "acoustic"])
@pytest.mark.parametrize("adjoint", [SAME, OTHER], ids=["same strides", "others"])
def test_no_bit_of_a_gradient_changes(equation, adjoint, monkeypatch):
    """Also where the adjoint run has another layout, and where saved tensors are stored away."""
    experiment = make(equation, 2, 4, "eager", nt=2, box=BOX, per_shot=True)
    experiment = replace(experiment, backend="triton")
    weights = experiment.weights()
    choices = {False: SAME, True: adjoint}
    monkeypatch.setattr(trials, "choose", lambda task, *_: (choices[task.adjoint], "tuned"))
    filled, fill = [], buffers.fill

    def gradients() -> list[torch.Tensor]:
        filled.clear()
        return list(experiment.gradients(lambda out: dot(out, weights)).values())

    monkeypatch.setattr(buffers, "fill", lambda *given: (filled.append(0), fill(*given))[1])
    expected, copies = gradients(), len(filled)
    monkeypatch.setattr(buffers, "PACKED", 0)
    found, spared = gradients(), copies - len(filled)
    with saved_tensors_hooks(lambda t: t.flatten().clone().view(t.shape), lambda t: t):
        stored = gradients()
    count = {"scalar": 1, "acoustic": 3}[equation]
    assert spared == (count if adjoint is SAME else 0)
    for a, b, c in zip(expected, found, stored, strict=True):
        assert torch.equal(a, b) and torch.equal(a, c)


def test_a_second_derivative_raises(monkeypatch):
    """They are no longer what depends on the model."""
    monkeypatch.setattr(buffers, "PACKED", 0)
    experiment = make("scalar", 2, 2, "eager", nt=2, box=((3, 4), ((1, 1), (0, 1))))
    experiment = replace(experiment, backend="triton")
    (v,) = (p.requires_grad_() for p in experiment.parameters.values())
    loss = sum(out.square().sum() for out in experiment.run().values())
    (gradient,) = torch.autograd.grad(loss, v, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        gradient.sum().backward()
