"""The final state of a run that is differentiated, asked for late or not at all."""

from __future__ import annotations

import pytest
import torch

import wavesim
from wavesim.buffers import Final
from wavesim.device import interpreting

pytestmark = pytest.mark.skipif(not interpreting(), reason="needs TRITON_INTERPRET=1")


def run(v: torch.Tensor, backend: str) -> wavesim.Result:
    at = torch.tensor([[[2, 3]]])
    return wavesim.scalar(
        v,
        spacing=5.0,
        dt=5e-4,
        sources=wavesim.Sources(torch.ones(1, 1, 5, dtype=v.dtype), at),
        receivers=wavesim.Receivers(at + 1),
        boundary=wavesim.PML(width=2, frequency=25.0),
        backend=backend,
    )


def test_it_is_copied_when_asked_for_and_its_gradient_is_that_of_eager(monkeypatch):
    """Wherever it is asked for, before or after the records' own backward pass."""
    copies, plain = [], Final.plain
    monkeypatch.setattr(Final, "plain", lambda self: (copies.append(1), plain(self))[1])
    v = torch.full((6, 7), 1500.0, dtype=torch.float64, requires_grad=True)
    found = {}
    for backend in ("eager", "triton"):
        out = run(v, backend)
        (by_records,) = torch.autograd.grad(out.receivers.sum(), v, retain_graph=True)
        assert not copies
        with torch.no_grad():
            state = out.state
        assert len(copies) == (backend == "triton")
        assert state is out.state
        values = [*state.fields.values(), *state.memory]
        one = values[-1].square().sum()
        (by_one,) = torch.autograd.grad(one, v, retain_graph=True)
        (by_all,) = torch.autograd.grad(sum(x.square().sum() for x in values), v)
        found[backend] = [*(x.detach() for x in values), by_records, by_one, by_all]
    for a, b in zip(found["triton"], found["eager"], strict=True):
        assert b.abs().max() > 0
        assert torch.allclose(a, b, rtol=1e-11, atol=1e-13 * b.abs().max().item())


def test_a_second_derivative_through_it_raises():
    v = torch.full((6, 7), 1500.0, dtype=torch.float64, requires_grad=True)
    loss = run(v, "triton").state.fields["u"].square().sum()
    (gradient,) = torch.autograd.grad(loss, v, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        gradient.sum().backward()
