"""The Triton kernels, interpreted on the CPU, against the eager reference."""

from __future__ import annotations

import pytest
import torch
from conftest import rms_ratio
from parity.cases import Case, poison, run

import wavesim
from wavesim.device import interpreting

pytestmark = pytest.mark.skipif(not interpreting(), reason="needs TRITON_INTERPRET=1")

CASES = [
    Case((17,), 4, ((4, 5),)),
    Case((70,), 8, ((4, 0),), nt=8),
    Case((7, 13), 2, ((2, 3), (3, 2)), shots=1),
    Case((5, 6), 6, ((1, 0), (0, 2)), nt=8, batched=True),
    Case((12, 13), 8, ((0, 5), (8, 8)), shots=1, nt=8),
    Case((3, 4, 5), 4, ((1, 2), (2, 1), (0, 2)), shots=1, nt=3),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_triton_equals_eager_in_float64(case):
    """Outputs and every gradient: RMS of the difference over the RMS, worst seen 8e-16."""
    expected = run(case, "eager", torch.float64, "cpu")
    got = run(case, "triton", torch.float64, "cpu")
    for ours, theirs in zip(got, expected, strict=True):
        for name in theirs:
            assert rms_ratio(ours[name], theirs[name]) < 1e-14, name


def test_unwritten_memory_is_never_read(monkeypatch):
    """With every uninitialised allocation full of NaN the numbers are the same, bit for bit."""
    case = CASES[2]
    expected = run(case, "triton", torch.float64, "cpu")
    poison(monkeypatch)
    got = run(case, "triton", torch.float64, "cpu")
    for ours, theirs in zip(got, expected, strict=True):
        for name in theirs:
            assert torch.equal(ours[name], theirs[name]), name


def test_a_state_read_late_is_that_of_its_run():
    """Of a run that nothing is differentiated in it lies in buffers that no later run gets; it is
    copied once."""
    settings = {
        "spacing": [5.0, 5.0],
        "dt": 5e-4,
        "nt": 5,
        "boundary": wavesim.PML(3, frequency=25.0),
    }
    u = torch.randn(1, 9, 11, dtype=torch.float64)

    def call(backend: str, scale: float) -> wavesim.Result:
        v, initial = torch.full((9, 11), 2000.0).double(), wavesim.State({"u": scale * u})
        return wavesim.scalar(v, initial=initial, backend=backend, **settings)

    late, others = call("triton", 1.0), [call("triton", n) for n in (2.0, 3.0)]
    assert late.state is late.state
    for out, scale in zip([late, *others], (1.0, 2.0, 3.0), strict=True):
        expected = call("eager", scale).state
        for name in expected.fields:
            assert rms_ratio(out.state.fields[name], expected.fields[name]) < 1e-14
        for ours, theirs in zip(out.state.memory, expected.memory, strict=True):
            assert rms_ratio(ours, theirs) < 1e-14
