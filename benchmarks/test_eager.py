"""The eager backend on a CPU, timed by pytest-benchmark: ``make bench-cpu``."""

from __future__ import annotations

import pytest
import torch

from .cases import MEDIA, Case, Experiment

SHAPES = {"maxwell": (20, 24, 28)}


@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
@pytest.mark.parametrize("equation", sorted(MEDIA))
def test_eager_run(benchmark, equation, gradient):
    """40 steps of a small grid on one thread, with its backward pass or without."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        case = Case(equation, SHAPES.get(equation, (60, 120)), 1, 40)
        out = benchmark(Experiment(case, gradient, "cpu").run, "eager")
    finally:
        torch.set_num_threads(threads)
    assert out.report.backend == "eager"
