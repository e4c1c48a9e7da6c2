"""Every registered equation on the Triton kernels, interpreted or on a GPU, against eager."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from adjoint.cases import LOWEST, case_id, dot, make
from conftest import rms_ratio

from wavesim import PML
from wavesim.device import interpreting
from wavesim.equations import REGISTRY

pytestmark = pytest.mark.skipif(
    not (interpreting() or torch.cuda.is_available()), reason="needs TRITON_INTERPRET=1 or a GPU"
)
BOXES = {
    1: ((17,), ((4, 5),)),
    2: ((3, 9), ((2, 2), (3, 5))),
    3: ((2, 2, 5), ((1, 1), (0, 2), (2, 3))),
}


def worst_error(equation: str, ndim: int, order: int, nt: int, **boundary) -> tuple[float, str]:
    """RMS ratio of outputs and every gradient on one device, and where it is largest."""
    e = make(equation, ndim, order, "triton" if torch.cuda.is_available() else "eager",
             nt=nt, box=BOXES[ndim])  # fmt: skip
    if boundary:
        e.options["boundary"] = PML(width=BOXES[ndim][1], **boundary)
    found = []
    for backend in ("eager", "triton"):
        one = replace(e, backend=backend)
        weights = one.weights()
        with torch.no_grad():
            outputs = one.run()
        found.append({**outputs, **one.gradients(lambda out, w=weights: dot(out, w))})
    expected, got = found
    return max((rms_ratio(got[name], expected[name]), name) for name in expected)


@pytest.mark.parametrize("case", LOWEST, ids=case_id)
def test_triton_equals_eager(case):
    """Records of every channel, final fields, memory, and every gradient, in float64."""
    equation, ndim, order = case
    error, name = worst_error(equation, ndim, order, nt=8 if ndim < 3 else 2)
    assert error < 1e-13, name


@pytest.mark.parametrize("order", [2, 6, 8])
@pytest.mark.parametrize("equation", sorted(e for e in REGISTRY if 2 in REGISTRY[e].dimensions))
def test_other_orders_equal_eager(equation, order):
    """The same in 2-D, with stretching and settings that differ by face."""
    boundary = {"reflection": [1e-2, (1e-3, 1e-4)], "power": [(2, 3), 2], "alpha_max": [40.0, 60.0]}
    if equation != "scalar":
        boundary["kappa_max"] = [3.0, (1.0, 5.0)]
    error, name = worst_error(equation, 2, order, nt=5, **boundary)
    assert error < 1e-13, name
