"""What the benchmarks time is compared with eager first: here with the interpreted kernels."""

from __future__ import annotations

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.cases import CASES, MEDIA, Case, Experiment
from wavesim.device import interpreting

pytestmark = pytest.mark.skipif(not interpreting(), reason="needs TRITON_INTERPRET=1")


def test_a_case_is_verified_before_it_is_timed(monkeypatch):
    """Float32 parity of records and gradients; an error above the bound stops the program."""
    case = Case("scalar", (1000, 1000), 16, 500)
    assert benchmarks.verify(case, "cpu", (1, 3, 5)) < benchmarks.PARITY
    monkeypatch.setattr(Experiment, "error", lambda self: float("nan"))
    with pytest.raises(SystemExit, match="parity error"):
        benchmarks.verify(case, "cpu")


def test_every_equation_has_cases():
    assert {c.equation for c in CASES} == set(MEDIA)
    assert len({c.name for c in CASES}) == len(CASES)


@pytest.mark.parametrize("equation", sorted(MEDIA))
def test_cases_take_one_internal_step(equation):
    """Below the stable limit, so that what is timed is the number of steps that is counted."""
    shape = (12, 13, 14) if equation == "maxwell" else (12, 13)
    out = Experiment(Case(equation, shape, 1, 3), False, "cpu").run("eager")
    assert out.report.step_ratio == 1
    assert all(r.abs().max() > 0 for r in out.receivers.values())
