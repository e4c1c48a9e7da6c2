"""The lists that tell the kernels which points a tile has: sorted by tile, shot and cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..buffers import Tables
from ..layout import Layout, round_up, tiles
from .compiled import compiled, execute

BLOCK = 1024


@triton.jit
def place_kernel(
    flat, origins, places, count, points, end, box, blocks, across, strides, BLOCK: tl.constexpr
):
    """The place of each flat box index among (tile, shot, cell): ``end``, after all, for -1.

    origins: where a block's tile and shot 0 begin. box, blocks: shapes of the box and a block;
    across: blocks in a plane and in a row; strides: of a shot, z and y. Lists [shot, point].
    """
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    cell = tl.load(flat + i, mask=i < count, other=-1)
    used = cell >= 0
    x, row = cell % box[2], cell // box[2]
    y, z = row % box[1], row // box[1]
    block = z // blocks[0] * across[0] + y // blocks[1] * across[1] + x // blocks[2]
    place = tl.load(origins + block, mask=used, other=0) + i // points * strides[0]
    place += z * strides[1] + y * strides[2] + x
    tl.store(places + i, tl.where(used, place, end), mask=i < count)


@triton.jit
def list_kernel(places, offsets, cells, runs, count, keys, size, end, BLOCK: tl.constexpr):
    """From sorted places, ``size`` of them a key: offsets[key] is where a key's points start, that
    of ``keys`` where all of them end, and one more is the count; a point's cell; and at the first
    of the points in one place how many there are, elsewhere 0."""
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    low, high = i * 0, i * 0 + count
    while tl.max(high - low) > 0:  # the first place that is not below the key's
        middle = (low + high) // 2
        below = tl.load(places + middle, mask=low < high, other=0) < i * size
        low = tl.where((low < high) & below, middle + 1, low)
        high = tl.where((low < high) & ~below, middle, high)
    tl.store(offsets + i, tl.where(i > keys, count, low), mask=i < keys + 2)
    place = tl.load(places + i, mask=i < count, other=-1)
    tl.store(cells + i, place % size, mask=i < count)
    before = tl.load(places + i - 1, mask=(i > 0) & (i < count), other=-1)
    alike = (place != before) & (place < end) & (i < count)
    run, ahead = alike.to(tl.int64), 1
    while tl.max(alike.to(tl.int32)) > 0:
        alike &= tl.load(places + i + ahead, mask=i + ahead < count, other=-1) == place
        run += alike.to(tl.int64)
        ahead += 1
    tl.store(runs + i, run, mask=i < count)


@dataclass(frozen=True, eq=False)
class PointList:
    """The points of one channel: sorting order, and per sorted point its cell and run length.

    ``offsets[key]`` is where key = tile * shots + shot starts; the last entry is the row length.
    ``runs`` holds at the first of points in one place how many there are, elsewhere 0.
    """

    order: Tensor
    offsets: Tensor
    cells: Tensor
    runs: Tensor
    shots: int

    @staticmethod
    def of(
        layout: Layout, tables: Tables, channels: Sequence[Tensor | None]
    ) -> list[PointList | None]:
        """From flat box indices [shot, point] by channel, -1 for unused slots; None for no list.

        Nothing is read back from the device. A tensor given twice makes one list.
        """
        given = {id(c): c for c in channels if c is not None and c.shape[1]}
        lists = {key: _listed(layout, tables, c) for key, c in given.items()}
        return [lists.get(id(c)) for c in channels]

    def sort(self, values: Tensor) -> Tensor:
        """[shot, point, time] to [time, sorted point]."""
        rows = values.flatten(0, 1).t()
        return (rows[:, self.order] if self.order.shape[0] > 1 else rows).contiguous()

    def unsort(self, rows: Tensor) -> Tensor:
        """[time, sorted point] to [shot, point, time], a copy."""
        if self.order.shape[0] > 1:
            out = torch.empty_like(rows)
            out[:, self.order] = rows
        else:
            out = rows.clone()
        return out.t().reshape(self.shots, -1, rows.shape[0])


def _listed(layout: Layout, tables: Tables, channel: Tensor) -> PointList:
    """One channel's list, in four operations."""
    s, blocks, box = layout.strides, layout.choice.boundary, layout.box
    shots, count = layout.plan.shots, channel.numel()
    keys = tiles(layout) * shots
    rows = layout.extent[2] // blocks[2]
    places = torch.empty(count, dtype=torch.int64, device=channel.device)
    where = {
        "flat": channel.contiguous(), "origins": tables.places, "places": places,
        "count": count, "points": channel.shape[1], "end": keys * s.shot,
        "box": box, "blocks": blocks, "across": (rows * (layout.extent[1] // blocks[1]), rows),
        "strides": (s.shot, s.z, s.y),
    }  # fmt: skip
    _run(place_kernel, count, layout, where)
    if count > 1:
        places, order = torch.sort(places, stable=True)
    else:  # its order is not looked at
        order = places
    even = round_up(count, 2)  # pointers to all three are multiples of 16 bytes
    lists = torch.empty(2 * even + keys + 2, dtype=torch.int64, device=channel.device)
    cells, runs, offsets = lists.split([even, even, keys + 2])
    listed = {
        "places": places, "offsets": offsets, "cells": cells, "runs": runs,
        "count": count, "keys": keys, "size": s.shot, "end": keys * s.shot,
    }  # fmt: skip
    _run(list_kernel, max(count, keys + 2), layout, listed)
    return PointList(order, offsets, cells, runs, shots)


def _run(kernel, items: int, layout: Layout, arguments: dict) -> None:
    """An item a thread; compiled again where a count or a layout is new."""
    arguments["BLOCK"] = BLOCK
    pointers = tuple(v.data_ptr() % 16 for v in arguments.values() if isinstance(v, Tensor))
    key = (layout, arguments["count"], pointers, arguments["places"].device)
    execute(compiled(kernel, key, arguments), kernel, -(-items // BLOCK), arguments)
