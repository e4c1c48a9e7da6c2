"""Bytes that a step must move, counted from the equations."""

from __future__ import annotations

from math import prod

import pytest

from benchmarks.traffic import bytes_per_cell, bytes_per_step
from wavesim.equations import REGISTRY

# equation, dimensions: float32 bytes with one array per parameter and stage where the equation
# averages, and how many more arrays its own coefficients are
LEAST = {
    ("scalar", 2): (16, 0),
    ("scalar", 3): (16, 0),
    ("acoustic", 2): (48, 0),
    ("acoustic", 3): (64, 0),
    ("elastic", 2): (72, 2),
    ("elastic", 3): (120, 5),
    ("maxwell_tm", 2): (44, 2),
    ("maxwell", 3): (80, 7),
}


@pytest.mark.parametrize("equation, ndim", LEAST)
def test_forward_bytes_are_arrays_read_and_written(equation, ndim):
    """The least bytes, and four more for each further coefficient."""
    least, more = LEAST[equation, ndim]
    system = REGISTRY[equation].build(ndim)
    assert bytes_per_cell(system, 4) == least + 4 * more
    assert bytes_per_cell(system, 8) == 2 * bytes_per_cell(system, 4)


def test_scalar_gradient_adds_history_and_transpose():
    """Forward 16, history written and read 8, adjoint 16, gradient 8."""
    system = REGISTRY["scalar"].build(2)
    assert bytes_per_cell(system, 4, gradient=True) == 48


@pytest.mark.parametrize("equation, ndim", LEAST)
def test_gradient_bytes_exceed_two_forward_runs(equation, ndim):
    """Its transpose moves what the forward step does, and there are history and gradient."""
    system = REGISTRY[equation].build(ndim)
    assert bytes_per_cell(system, 4, gradient=True) > 2 * bytes_per_cell(system, 4)


def test_a_step_counts_padded_cells_of_all_shots():
    assert bytes_per_step("scalar", (340, 340), 32, "float64", False) == prod((340, 340, 32, 32))
