"""Every registered equation, compiled, on a GPU: parity with the eager float64 run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from adjoint.cases import CASES, Experiment, case_id, dot, make
from conftest import rms_ratio
from gpu.test_gpu import force, log

BOXES = {
    1: ((211,), ((12, 7),)),
    2: ((37, 153), ((5, 0), (8, 11))),
    3: ((13, 23, 39), ((8, 9), (7, 8), (10, 6))),
}
BOUND = {torch.float64: 3e-14, torch.float32: 2e-5}


def everything(e: Experiment, weights: dict) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        outputs = e.run()
    return {**outputs, **e.gradients(lambda out: dot(out, weights))}


def cast(values: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {k: v.to(dtype) for k, v in values.items()}


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_triton_equals_eager_on_the_gpu(case, gpu):
    """RMS ratio of records, final fields, memory and every gradient, float64 and float32."""
    equation, ndim, order = case
    e = make(equation, ndim, order, "triton", nt=40, box=BOXES[ndim])
    weights = e.weights()
    expected = everything(replace(e, backend="eager"), weights)
    for dtype, bound in BOUND.items():
        one = replace(e, parameters=cast(e.parameters, dtype), inputs=cast(e.inputs, dtype))
        got = everything(one, cast(weights, dtype))
        errors = {name: rms_ratio(got[name], expected[name]) for name in expected}
        log({"case": case_id(case), "dtype": str(dtype), "errors": errors})
        assert max(errors.values()) < bound, errors


@pytest.mark.parametrize("case", [c for c in CASES if c[2] == 4 and c[1] > 1], ids=case_id)
def test_ten_runs_give_the_same_bits(case, gpu):
    """No order of additions is left to chance."""
    e = make(*case, "triton", nt=20, box=BOXES[case[1]])
    weights = e.weights()
    first = everything(e, weights)
    for _ in range(9):
        again = everything(e, weights)
        assert all(torch.equal(again[k], first[k]) for k in first)


MODES = [
    *({"mode": mode, "shots": 1} for mode in ("steps", "graph", "loop")),
    {"mode": "loop", "programs": 3},  # of several tiles each
]
FORCED = [{**mode, "route": route} for mode in MODES for route in ("fused", "stored")]


@pytest.mark.parametrize("changes", FORCED, ids=str)
@pytest.mark.parametrize("case", [c for c in CASES if c[1:] == (2, 4)], ids=case_id)
def test_no_choice_changes_a_bit(case, changes, gpu, monkeypatch):
    """The untuned choice's bits, in every launch mode and by every route of the adjoint."""
    e = make(*case, "triton", nt=60, box=BOXES[case[1]])
    weights = e.weights()
    expected = everything(e, weights)
    force(monkeypatch, **changes)
    found = everything(e, weights)
    assert all(torch.equal(found[k], expected[k]) for k in expected)
