"""Elastic gradients from a history of velocities alone, compiled, on a GPU."""

from __future__ import annotations

import pytest
import torch
from gpu.test_gpu import force, log
from parity.compact import call, compact, deviation, model

from wavesim import PML, History

SHAPES = {2: (1, 45, 70), 3: (13, 23, 39)}
STEPS = 60
BOUND = {torch.float64: 3e-14, torch.float32: 2e-5}


def run(ndim: int, order: int, dtype: torch.dtype, device, backend: str = "triton", **options):
    options |= {"order": order, "boundary": PML(width=7, frequency=25.0), "steps": STEPS}
    parameters = model(ndim, dtype=dtype, shape=SHAPES[ndim], device=device)
    return call(parameters, ndim, backend, **options)


@pytest.mark.parametrize("order", [2, 4, 6, 8])
@pytest.mark.parametrize("ndim", [2, 3])
def test_gradients_are_those_of_the_eager_backend(ndim, order, gpu, monkeypatch):
    """And of a full history; the same bits in launches and in graphs of them, and again."""
    _, expected = run(ndim, order, torch.float64, gpu, "eager")
    for dtype, bound in BOUND.items():
        found = []
        for mode in ("steps", "graph", "graph"):
            with monkeypatch.context() as patch:
                force(patch, mode=mode)
                out, gradients = run(ndim, order, dtype, gpu, history=History(compact=True))
            assert compact(out, ndim, STEPS)
            assert (out.report.graph_steps > 0) == (mode == "graph")
            found.append(gradients)
        for other in found[1:]:
            assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
        out, full = run(ndim, order, dtype, gpu, history=History(compact=False))
        assert not compact(out, ndim, STEPS)
        errors = [deviation([g.double() for g in some], expected) for some in (found[0], full)]
        case = f"elastic-{ndim}d-order{order}-compact"
        log({"case": case, "dtype": str(dtype), "errors": errors})
        assert max(errors) < bound, errors
