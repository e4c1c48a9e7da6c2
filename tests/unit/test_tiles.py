"""How cells are dealt out in tiles, checked cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
from unit.tuned import plan_of

from wavesim.choice import Choice
from wavesim.layout import Layout, near_tiles, tile_of_block, tiles


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
