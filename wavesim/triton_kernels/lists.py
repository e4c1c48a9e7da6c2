"""The lists that tell the kernels which points a tile has: sorted by shot, tile and cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..buffers import Tables
from ..layout import Layout, round_up, tiles
from ..plan import Plan
from .compiled import Numbers, run_alike

BLOCK, LANES = 32, 32
COUNTED = 2048
"""Points of a shot up to which each is compared with all others, which takes one launch for all
channels. Where one has more each takes a place for every point, PyTorch's sort, and a search."""


@triton.jit
def cells_kernel(locations, cells, counts, steps, start, ALONG: tl.constexpr, BLOCK: tl.constexpr):
    """By channel, the flat box index of each location [point, ALONG], -1 for unused slots.

    steps: of the flat index along an axis; start: that of the model's first cell.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for k in tl.static_range(len(locations)):
        flat = tl.zeros((BLOCK,), tl.int64) + start
        for axis in tl.static_range(ALONG):
            at = tl.load(locations[k] + i.to(tl.int64) * ALONG + axis, mask=i < counts[k], other=0)
            flat += at.to(tl.int64) * steps[axis]
        tl.store(cells[k] + i, tl.maximum(flat, -1), mask=i < counts[k])


@triton.jit
def places_of(flat, i, points, origins, size, box, blocks, across, strides):
    """The places of points i of a shot among its (tile, cell): ``size[1]``, after all, for unused
    ones, and one more past the last point.

    origins: where the tile of a block begins; size: the number of a tile's places, of all tiles',
    and of shots. box, blocks: shapes of the box and a block; across: blocks in a plane and in a
    row; strides: of z and y.
    """
    cell = tl.load(flat + i, mask=i < points, other=-1)
    used = cell >= 0
    x, row = cell % box[2], cell // box[2]
    y, z = row % box[1], row // box[1]
    block = z // blocks[0] * across[0] + y // blocks[1] * across[1] + x // blocks[2]
    place = tl.load(origins + block, mask=used, other=0) + z * strides[0] + y * strides[1] + x
    return tl.where(used, place, size[1] + (i >= points))


@triton.jit
def place_kernel(
    flat, places, points, origins, size, box, blocks, across, strides, BLOCK: tl.constexpr
):
    """`places_of` all points [shot, point]."""
    each = tl.cdiv(points, BLOCK)
    shot, part = tl.program_id(0) // each, tl.program_id(0) % each
    first, i = shot.to(tl.int64) * points, part * BLOCK + tl.arange(0, BLOCK)
    place = places_of(flat + first, i, points, origins, size, box, blocks, across, strides)
    tl.store(places + first + i, place, mask=i < points)


@triton.jit
def even(count):
    """Of all lists the pointers are multiples of 16 bytes."""
    return (count + 1) // 2 * 2


@triton.jit
def list_kernel(
    flats, lists, counts, keys, origins, size, box, blocks, across, strides,
    BLOCK: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """The lists of every channel's points, see `PointList`, from their cells' flat indices; counts:
    points of a shot.

    What is before a point is counted: of a shot's points, each is compared with all.
    """
    program, begin, at = tl.program_id(0), 0, tl.zeros((), tl.int64)
    flat, points, before, start = flats[0], counts[0], begin, at
    for k in tl.static_range(len(flats)):
        on = program >= begin
        flat, points = tl.where(on, flats[k], flat), tl.where(on, counts[k], points)
        before, start = tl.where(on, begin, before), tl.where(on, at, start)
        begin += size[2] * (tl.cdiv(counts[k], BLOCK) + tl.cdiv(keys, BLOCK))
        at += 4 * even(size[2] * counts[k]) + even(size[2] * keys + 1)
    parts = tl.cdiv(points, BLOCK)
    each = parts + tl.cdiv(keys, BLOCK)
    shot, part = (program - before) // each, (program - before) % each
    first = shot.to(tl.int64) * points
    flat += first
    i = part * BLOCK + tl.arange(0, BLOCK)
    if part < parts:
        place = places_of(flat, i, points, origins, size, box, blocks, across, strides)
        below, earlier, alike = i * 0, i * 0, i * 0
        for some in range(0, points, LANES):
            j = some + tl.arange(0, LANES)
            other = places_of(flat, j, points, origins, size, box, blocks, across, strides)
            same = (other[None, :] == place[:, None]) & (j < points)[None, :]
            below += tl.sum((other[None, :] < place[:, None]).to(tl.int32), 1)
            earlier += tl.sum((same & (j[None, :] < i[:, None])).to(tl.int32), 1)
            alike += tl.sum(same.to(tl.int32), 1)
        run = tl.where((earlier == 0) & (place < size[1]), alike, 0)
        keep_point(lists + start, size[2] * points, first, i, below + earlier, place % size[0],
                   run, i < points)  # fmt: skip
    else:
        key = i - parts * BLOCK
        ahead = key * 0
        for some in range(0, points, LANES):
            j = some + tl.arange(0, LANES)
            other = places_of(flat, j, points, origins, size, box, blocks, across, strides)
            its = key.to(tl.int64) * size[0]
            ahead += tl.sum((other[None, :] < its[:, None]).to(tl.int32), 1)
        keep_offset(lists + start, size[2] * points, shot, first, key, ahead, points, keys)


@triton.jit
def keep_point(lists, count, first, point, rank, cell, run, on):
    """Store which of a shot's points is the rank-th, its cell, and its run."""
    tl.store(lists + first + rank, first + point, mask=on)
    tl.store(lists + even(count) + first + point, first + rank, mask=on)
    tl.store(lists + 2 * even(count) + first + rank, cell, mask=on)
    tl.store(lists + 3 * even(count) + first + rank, run.to(tl.int64), mask=on)


@triton.jit
def keep_offset(lists, count, shot, first, key, before, points, keys):
    """Store how many points are before a shot's key, and after the last shot how many there are."""
    row = lists + 4 * even(count) + shot.to(tl.int64) * keys
    tl.store(row + key, first + before, mask=key < keys)
    tl.store(row + keys + key * 0, first + points + key * 0, mask=key == keys - 1)


@triton.jit
def sorted_kernel(places, sorting, lists, points, keys, size, BLOCK: tl.constexpr):
    """As `list_kernel`, from a shot's sorted places and which of its points they are."""
    parts = tl.cdiv(points, BLOCK)
    each = parts + tl.cdiv(keys, BLOCK)
    shot, part = tl.program_id(0) // each, tl.program_id(0) % each
    first = shot.to(tl.int64) * points
    places += first
    i = part * BLOCK + tl.arange(0, BLOCK)
    if part < parts:
        place = tl.load(places + i, mask=i < points, other=-1)
        before = tl.load(places + i - 1, mask=(i > 0) & (i < points), other=-1)
        leads = (place != before) & (place < size[1]) & (i < points)
        run, ahead = leads.to(tl.int32), 1
        while tl.max(leads.to(tl.int32)) > 0:
            leads &= tl.load(places + i + ahead, mask=i + ahead < points, other=-1) == place
            run += leads.to(tl.int32)
            ahead += 1
        point = tl.load(sorting + first + i, mask=i < points, other=0)
        keep_point(lists, size[2] * points, first, point, i, place % size[0], run, i < points)
    else:
        key = i - parts * BLOCK
        low, high = key * 0, key * 0 + points
        while tl.max(high - low) > 0:  # the first place that is not below the key's
            middle = (low + high) // 2
            place = tl.load(places + middle, mask=low < high, other=0)
            below = place < key.to(tl.int64) * size[0]
            low = tl.where((low < high) & below, middle + 1, low)
            high = tl.where((low < high) & ~below, middle, high)
        keep_offset(lists, size[2] * points, shot, first, key, low, points, keys)


@lru_cache(maxsize=64)
def _numbers_of_cells(plan: Plan, counts: tuple[int, ...]) -> Numbers:
    steps = tuple(prod(plan.box[axis + 1 :]) for axis in range(plan.ndim))
    start = sum(low * step for (low, _), step in zip(plan.widths, steps, strict=True))
    return Numbers(counts=counts, steps=steps, start=start, ALONG=plan.ndim, BLOCK=BLOCK)


def flat_cells(plan: Plan, locations: Sequence[Tensor]) -> list[Tensor]:
    """Of each channel's locations [shot, point, axis] the flat index in the box, [shot, point]
    int64, -1 for unused slots: `wavesim.points.box_cells` in one launch for all of them."""
    starts, cells = [0], []
    for at in locations:
        starts.append(starts[-1] + round_up(at.shape[0] * at.shape[1], 2))
    if not starts[-1]:
        return [at.new_empty(at.shape[:2], dtype=torch.int64) for at in locations]
    whole = locations[0].new_empty(starts[-1], dtype=torch.int64)
    for at, start in zip(locations, starts, strict=False):
        cells.append(whole.as_strided(at.shape[:2], (at.shape[1], 1), start))
    given = [
        (at.contiguous(), flat) for at, flat in zip(locations, cells, strict=True) if flat.numel()
    ]
    counts = tuple([flat.numel() for _, flat in given])
    run_alike(
        cells_kernel,
        -(-max(counts) // BLOCK),
        _numbers_of_cells(plan, counts),
        locations=tuple([at for at, _ in given]),
        cells=tuple([flat for _, flat in given]),
    )
    return cells


@dataclass(eq=False)
class PointList:
    """The points of one channel, sorted by shot, tile and cell, and as they are where those agree;
    unused ones come last of their shot.

    ``order``: which point is at a place of the list; ``inverse``: at which place a point is. Per
    sorted point its cell, and ``runs``: at the first of the points in one cell how many there are,
    elsewhere 0. ``offsets[key]`` is where key = shot * (tiles + 1) + tile starts, tile ``tiles``
    being the unused ones; the last entry is the number of points.
    """

    order: Tensor
    inverse: Tensor
    cells: Tensor
    runs: Tensor
    offsets: Tensor
    shots: int

    @staticmethod
    def of(
        layout: Layout, tables: Tables, channels: Sequence[Tensor | None]
    ) -> list[PointList | None]:
        """From flat box indices [shot, point] by channel, -1 for unused slots; None for no list.

        Nothing is read back from the device. A tensor given twice makes one list.
        """
        given = {id(c): c.contiguous() for c in channels if c is not None and c.shape[1]}
        found = _listed(layout, tables, list(given.values())) if given else []
        lists = dict(zip(given, found, strict=True))
        return [lists.get(id(c)) for c in channels]

    @property
    def count(self) -> int:
        """Points of all shots."""
        return self.order.shape[0]

    def rows(self, steps: int, data: Tensor) -> Tensor:
        """[time, sorted point] view of an array that has room for it."""
        return data.as_strided((steps, self.count), (self.count, 1))

    def sort(self, values: Tensor) -> Tensor:
        """[shot, point, time] to [time, sorted point]."""
        rows = values.flatten(0, 1).t()
        return (rows[:, self.order] if self.count > 1 else rows).contiguous()

    def unsort(self, rows: Tensor) -> Tensor:
        """[time, sorted point] to [shot, point, time], a copy."""
        return rows.t()[self.inverse].view(self.shots, -1, rows.shape[0])


@lru_cache(maxsize=64)
def _geometry(layout: Layout) -> dict[str, Any]:
    """Numbers of a layout, see `places_of`."""
    s, blocks = layout.strides, layout.choice.boundary
    row = layout.extent[2] // blocks[2]
    return {
        "size": (s.shot, tiles(layout) * s.shot, layout.plan.shots),
        "box": layout.box,
        "blocks": blocks,
        "across": (row * (layout.extent[1] // blocks[1]), row),
        "strides": (s.z, s.y),
    }


@dataclass(frozen=True)
class _Sizes:
    """Of the lists of channels with so many points a shot each: how many programs make them, what
    these are told, and where in one block of so many numbers the lists begin, by channel."""

    programs: int
    numbers: Numbers
    starts: tuple[int, ...]
    length: int

    @staticmethod
    @lru_cache(maxsize=64)
    def of(layout: Layout, counts: tuple[int, ...]) -> _Sizes:
        shots, keys = layout.plan.shots, tiles(layout) + 1
        starts = [0]
        for n in counts:
            starts.append(starts[-1] + 4 * round_up(shots * n, 2) + round_up(shots * keys + 1, 2))
        programs = shots * sum(-(-n // BLOCK) - (-keys // BLOCK) for n in counts)
        more = {"counts": counts, "keys": keys, "BLOCK": BLOCK, "LANES": LANES}
        return _Sizes(
            programs, Numbers(**_geometry(layout), **more), tuple(starts[:-1]), starts[-1]
        )


def _listed(layout: Layout, tables: Tables, channels: list[Tensor]) -> list[PointList]:
    """The lists of channels, all in one block of memory."""
    counts = tuple([c.shape[1] for c in channels])
    sizes = _Sizes.of(layout, counts)
    whole = torch.empty(sizes.length, dtype=torch.int64, device=tables.tiles.device)
    if max(counts) <= COUNTED:
        where = {"flats": tuple(channels), "lists": whole, "origins": tables.places}
        run_alike(list_kernel, sizes.programs, sizes.numbers, **where)
    else:
        for channel, start in zip(channels, sizes.starts, strict=True):
            _sort(layout, tables, channel, whole[start:])
    shots, found = layout.plan.shots, []
    keyed = shots * (tiles(layout) + 1) + 1
    for points, start in zip(counts, sizes.starts, strict=True):
        n, even = shots * points, round_up(shots * points, 2)
        lengths = (n, n, even, even, keyed)
        lists = [whole.as_strided((m,), (1,), start + i * even) for i, m in enumerate(lengths)]
        found.append(PointList(*lists, shots))
    return found


def _sort(layout: Layout, tables: Tables, channel: Tensor, lists: Tensor) -> None:
    """Fill one channel's lists."""
    (shots, points), keys, parts = channel.shape, tiles(layout) + 1, -(-channel.shape[1] // BLOCK)
    places, geometry = torch.empty_like(channel), _geometry(layout)
    numbers = Numbers(**geometry, points=points, BLOCK=BLOCK)
    where = {"flat": channel, "origins": tables.places, "places": places}
    run_alike(place_kernel, shots * parts, numbers, **where)
    places, sorting = torch.sort(places, dim=1, stable=True)
    numbers = Numbers(size=geometry["size"], points=points, keys=keys, BLOCK=BLOCK)
    programs = shots * (parts - (-keys // BLOCK))
    run_alike(sorted_kernel, programs, numbers, places=places, sorting=sorting, lists=lists)
