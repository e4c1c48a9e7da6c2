"""The lists of points by tile, against the plain reading of what they should hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from unit.tuned import plan_of

from wavesim.buffers import Tables
from wavesim.choice import Card, default_choice
from wavesim.device import interpreting
from wavesim.layout import Layout, tile_of_block, tiles
from wavesim.triton_kernels.lists import PointList

pytestmark = pytest.mark.skipif(not interpreting(), reason="runs the kernels in the interpreter")


@pytest.mark.parametrize(
    ("equation", "ndim", "shots", "points"),
    [("scalar", 1, 1, 1), ("scalar", 2, 3, 7), ("acoustic", 2, 1, 1500), ("scalar", 3, 2, 40)],
)
def test_lists_hold_every_point_once_in_its_tile(equation, ndim, shots, points):
    """Sorted by tile, shot and cell; coincident points are runs; unused slots come after all."""
    plan = plan_of(equation, ndim, 40, shots=shots)
    layout = Layout.of(plan, default_choice(plan, Card()))
    tables = Tables.of(layout, torch.float32, torch.device("cpu"))
    rng = np.random.default_rng(points)
    flat = rng.integers(-1, int(np.prod(plan.box)), (shots, points))
    flat[:, points // 2 :] = flat[:, : points - points // 2]  # half of them twice
    channel = torch.from_numpy(flat)
    found, again, none = PointList.of(layout, tables, [channel, channel, channel[:, :0]])
    assert found is again and none is None and found is not None

    small, strides = np.array(layout.choice.boundary), layout.strides
    expected = []
    for number, index in enumerate(flat.ravel()):
        if index < 0:
            continue
        at = np.array(np.unravel_index(index, layout.box))
        tile = tile_of_block(layout)[tuple(at // small)]
        shot = number // points
        cell = strides.origin + at @ (strides.z, strides.y, 1)
        expected.append((int(tile) * shots + shot, int(cell), number))
    expected.sort()
    keys, used = tiles(layout) * shots, len(expected)
    offsets, cells, runs = (t.numpy() for t in (found.offsets, found.cells, found.runs))
    if flat.size > 1:  # the order of one is not looked at
        assert found.order.tolist()[:used] == [number for *_, number in expected]
    assert cells[:used].tolist() == [cell for _, cell, _ in expected]
    starts = np.searchsorted([key for key, *_ in expected], np.arange(keys + 1))
    assert offsets.tolist() == [*starts.tolist(), flat.size]
    places = [place[:2] for place in expected]
    first = [k == 0 or places[k] != places[k - 1] for k in range(used)]
    assert runs[:used].tolist() == [f * places.count(p) for f, p in zip(first, places, strict=True)]
    assert not runs[used : flat.size].any()
