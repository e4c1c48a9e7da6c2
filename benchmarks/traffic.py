"""Bytes that a step has to move once: what an ideal kernel per stage reads and writes."""

from __future__ import annotations

from math import prod

from wavesim.equations import REGISTRY, System


def bytes_per_cell(system: System, itemsize: int, gradient: bool = False) -> int:
    """Bytes a cell of the padded grid and a step.

    The rule: each stage is one pass over the grid, in which every distinct array is read once and
    every target written once. Forward, a stage reads the fields it differentiates, the others it
    names, the old targets and its coefficients. With a gradient it also writes its history, and
    its transpose reads that, the adjoint fields, the coefficients and the gradients so far, and
    writes adjoint fields and gradients. Boundary memory, sources and receivers do not count: they
    are no part of most cells. Coefficients count for every shot, also where all shots share them.

    Coefficients are counted as the equation keeps them, averaged to the place of each field. So
    float32 scalar waves have 16 bytes (with the gradient 48), acoustic ones 48 in 2-D and 64 in
    3-D. A kernel that averages anew in every step needs one array for each parameter and stage:
    elastic waves then have 72 and 120 bytes, not the 80 and 140 counted here. Maxwell's equations
    without losses, with one array of mu and one of epsilon, have 44 (TM) and 80 (3-D); here it is
    52 and 108, with mu at each magnetic place and two coefficients at each electric one.
    """
    arrays = 0
    for stage in system.stages:
        read = set(stage.sources) | set(stage.reads) | set(stage.targets)
        arrays += len(read) + len(stage.coefficients) + len(stage.targets)
        if gradient:
            read = set(stage.bars) | set(stage.adjoint_targets)
            arrays += len(read) + len(set(stage.coefficients) | set(stage.adjoint_reads))
            arrays += len(stage.adjoint_targets)
            arrays += 2 * stage.histories + 2 * len(stage.coefficients)
    return arrays * itemsize


def bytes_per_step(
    equation: str, padded: tuple[int, ...], shots: int, dtype: str, gradient: bool
) -> int:
    """Of a whole step of all shots on the padded grid."""
    itemsize = int(dtype.removeprefix("float")) // 8
    system = REGISTRY[equation].build(len(padded))
    return prod(padded) * shots * bytes_per_cell(system, itemsize, gradient)
