"""The lists of points by tile, against the plain reading of what they should hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from unit.tuned import plan_of

from wavesim.buffers import Tables
from wavesim.choice import Card, default_choice
from wavesim.config import IGNORE
from wavesim.device import interpreting
from wavesim.layout import Layout, tile_of_block, tiles
from wavesim.points import box_cells
from wavesim.triton_kernels import lists
from wavesim.triton_kernels.lists import PointList, flat_cells

pytestmark = pytest.mark.skipif(not interpreting(), reason="runs the kernels in the interpreter")


@pytest.mark.parametrize(
    ("equation", "ndim", "shots", "points"),
    [("scalar", 1, 1, 1), ("scalar", 2, 3, 7), ("acoustic", 2, 1, 1500), ("scalar", 3, 2, 40)],
)
@pytest.mark.parametrize("counted", [True, False])
def test_lists_hold_every_point_once_in_its_tile(
    equation, ndim, shots, points, counted, monkeypatch
):
    """Sorted by shot, tile and cell; coincident points are runs; unused slots come last."""
    monkeypatch.setattr(lists, "COUNTED", points if counted else 0)
    plan = plan_of(equation, ndim, 40, shots=shots)
    layout = Layout.of(plan, default_choice(plan, Card()))
    tables = Tables.of(layout, torch.float32, torch.device("cpu"))
    rng = np.random.default_rng(points)
    flat = rng.integers(-1, int(np.prod(plan.box)), (shots, points))
    flat[:, points // 2 :] = flat[:, : points - points // 2]  # half of them twice
    channel = torch.from_numpy(flat)
    other = torch.zeros(shots, 2, dtype=torch.int64)
    first, found, again, none = PointList.of(
        layout, tables, [other, channel, channel, channel[:, :0]]
    )
    assert found is again and none is None and found is not None and first is not None
    assert first.runs[: 2 * shots].tolist() == [2, 0] * shots  # one of several channels

    small, strides = np.array(layout.choice.boundary), layout.strides
    count, places = tiles(layout), []
    for number, index in enumerate(flat.ravel()):
        tile, cell = count, 0
        if index >= 0:
            at = np.array(np.unravel_index(index, layout.box))
            tile = int(tile_of_block(layout)[tuple(at // small)])
            cell = int(strides.origin + at @ (strides.z, strides.y, 1))
        places.append((number // points * (count + 1) + tile, cell, number))
    places.sort()
    keys, cells, order = zip(*places, strict=True)
    used = [key % (count + 1) < count for key in keys]
    size = flat.size
    assert found.order.tolist() == list(order)
    assert found.inverse[found.order].tolist() == list(range(size))
    assert found.cells[:size][used].tolist() == [c for c, u in zip(cells, used, strict=True) if u]
    starts = np.searchsorted(keys, np.arange(shots * (count + 1)))
    assert found.offsets.tolist() == [*starts.tolist(), size]
    alike = [place[:2] for place in places]
    first = [k == 0 or alike[k] != alike[k - 1] for k in range(size)]
    runs = [f * u * alike.count(p) for f, u, p in zip(first, used, alike, strict=True)]
    assert found.runs[:size].tolist() == runs


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
def test_cells_of_locations_are_those_of_the_eager_backend(dtype):
    """Of several channels at once: none, one and many points, and slices of other tensors."""
    plan, rng = plan_of("acoustic", 2, 40, shots=3), np.random.default_rng(2)
    locations = []
    for points in (1, 0, 150):
        at = rng.integers(0, 40, (3, points, 2))
        at[:, points // 2 :: 3] = IGNORE if dtype != torch.int16 else 0
        locations.append(torch.from_numpy(at).to(dtype))
    locations.append(locations[2][:, ::2])
    expected = [box_cells(at, plan.widths, plan.box) for at in locations]
    for got, want in zip(flat_cells(plan, locations), expected, strict=True):
        assert torch.equal(got, want)
    assert [c.shape for c in flat_cells(plan, [locations[1]])] == [(3, 0)]
