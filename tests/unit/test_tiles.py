"""How cells are dealt out in tiles, checked cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
from unit.tuned import plan_of

from wavesim.choice import Choice
from wavesim.layout import ALIGN, Layout, near_tiles, tile_of_block, tile_table, tiles


@pytest.mark.parametrize(
    ("ndim", "n", "order", "choice"),
    [
        (1, 300, 8, Choice("loop", (1, 1, 64), (1, 1, 16), 1, 1)),
        (2, 70, 4, Choice("loop", (1, 8, 64), (1, 8, 32), 4, 1)),
        (2, 90, 8, Choice("loop", (1, 4, 64), (1, 2, 16), 4, 1)),
    ],
)
def test_near_tiles_are_those_that_stencils_reach(ndim, n, order, choice):
    """Cell by cell: who owns the cells up to the reach away along an axis; both ways."""
    plan = plan_of("scalar", ndim, n, order=order)
    layout = Layout.of(plan, choice)
    size = np.array(layout.choice.boundary)
    owner = tile_of_block(layout)
    for axis in range(3):
        owner = np.repeat(owner, size[axis], axis)
    expected = {t: {t} for t in range(tiles(layout))}
    for axis in range(3 - ndim, 3):
        lines = np.moveaxis(owner, axis, 0)
        for far in range(1, plan.stencil_reach + 1):
            for a, b in zip(lines[:-far].ravel(), lines[far:].ravel(), strict=True):
                expected[int(a)].add(int(b))
                expected[int(b)].add(int(a))
    found = near_tiles(layout)
    assert found.dtype == np.int32 and found.shape[1] & (found.shape[1] - 1) == 0
    assert [set(row) | {t} for t, row in enumerate(found.tolist())] == list(expected.values())


@pytest.mark.parametrize("equation", ["scalar", "elastic"])
@pytest.mark.parametrize("widths", [(0, 3), (3, 0), (1, 1), (4, 6), (20, 20)])
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("order", [2, 4, 8])
@pytest.mark.parametrize("size", [1, 2, 8, 32])
def test_the_two_layers_of_a_memory_stay_apart(equation, widths, adjoint, order, size):
    """Cell by cell: where a tile that feels a layer, or its stencils, find a cell of a layer in the
    memory, that cell lies and no other; where they find one of no layer, none does."""
    cuts = 0
    for axis, n in ((a, n) for a in (1, 2) for n in (*range(4, 40, 3), 128, 333)):
        block = (1, size, 32) if axis == 1 else (1, 2, size)
        plan = plan_of(equation, 2, n, order=order, widths=(widths,) * 2)
        layout = Layout.of(plan, Choice("steps", block, block, 1, 1), adjoint=adjoint)
        split, shift = layout.cut(axis)
        assert axis == 1 or shift % ALIGN == 0
        cuts += shift > 0
        slabs = plan.slabs(axis - 1, 0 if plan.system.collocated else -1)
        slabs += plan.slabs(axis - 1, 0 if plan.system.collocated else 1)
        kept = {i for a, b in slabs for i in range(a, b)}
        kinds = tile_table(layout)[:, [0, axis + 1]].tolist()
        starts = {start for kind, start in kinds if kind >> axis & 1}
        found: dict[int, set[int]] = {}
        for start in starts:
            moved = shift if start >= split else 0
            for i in range(start - plan.stencil_reach, start + size + plan.stencil_reach):
                found.setdefault(i - moved, set()).add(i)
        assert kept <= {i for start in starts for i in range(start, start + size)}
        for cells in found.values():
            assert len(cells) == 1 or not cells & kept
    assert cuts
