"""What the benchmarks time is compared with eager first: here with the interpreted kernels."""

from __future__ import annotations

import pytest
import torch

from benchmarks import __main__ as benchmarks
from benchmarks.cases import CASES, MEDIA, Case, Experiment, deviation
from wavesim.device import interpreting

pytestmark = pytest.mark.skipif(not interpreting(), reason="needs TRITON_INTERPRET=1")


def test_a_case_is_verified_before_it_is_timed(monkeypatch):
    """Float32 parity of records and gradients; an error above the bound stops the program."""
    case = Case("scalar", (1000, 1000), 16, 500)
    assert benchmarks.verify(case, "cpu", (1, 3, 5)) < benchmarks.PARITY["float32"]
    monkeypatch.setattr(Experiment, "error", lambda self: float("nan"))
    with pytest.raises(SystemExit, match="parity error"):
        benchmarks.verify(case, "cpu")


def test_float64_cases_are_held_to_float64():
    """Parity of rounding size (worst observed: 1.1e-15)."""
    case = Case("scalar", (1000, 1000), 16, 500, dtype="float64")
    assert case.name.endswith("-float64")
    assert benchmarks.verify(case, "cpu", (1, 3, 5)) < benchmarks.PARITY["float64"] == 1e-11


def test_what_is_not_a_number_is_red():
    """Also beside numbers that are good."""
    good = torch.ones(3)
    assert deviation(good, good) == 0
    assert deviation(good * float("nan"), good) == deviation(0 * good, 0 * good) == float("inf")


def test_every_equation_has_cases():
    assert {c.equation for c in CASES} == set(MEDIA)
    assert len({c.name for c in CASES}) == len(CASES)
    assert {c.order for c in CASES} == {2, 4, 6, 8}
    assert {c.dtype for c in CASES} == {"float32", "float64"}


KINDS = sorted({(c.equation, len(c.shape), c.order) for c in CASES})


@pytest.mark.parametrize("equation, ndim, order", KINDS)
def test_cases_take_one_internal_step(equation, ndim, order):
    """Below the stable limit, so that what is timed is the number of steps that is counted."""
    experiment = Experiment(Case(equation, (12, 13, 14)[:ndim], 1, 3, order), False, "cpu")
    records, report = experiment.run("eager")
    assert report.step_ratio == 1
    assert records.abs().max() > 0
