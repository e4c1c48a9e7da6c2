"""Recording and injection by the tile that owns a cell, and the lists that say which points it has.

Points are sorted by tile, shot and cell; coincident ones follow each other, and the first of them
adds them up in their order, so that the sum does not depend on how the work is dealt out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..buffers import Tables
from ..layout import Layout


@triton.jit
def record_channel(field, offsets, cells, data, row, key, keys, LANES: tl.constexpr):
    """``data[row, j] = field[cells[j]]`` for the points of a key."""
    start, stop = tl.load(offsets + key), tl.load(offsets + key + 1)
    if stop > start:
        out = data + row * tl.load(offsets + keys + 1)
        for first in range(start, stop, LANES):
            lane = first + tl.arange(0, LANES)
            used = lane < stop
            value = tl.load(field + tl.load(cells + lane, mask=used, other=0), mask=used, other=0.0)
            tl.store(out + lane, value, mask=used)
        tl.debug_barrier()


@triton.jit
def inject_channel(field, offsets, cells, runs, data, row, key, keys, LANES: tl.constexpr):
    """``field[cells[j]] += data[row, j]`` for the points of a key, after the tile was stored;
    how many there are."""
    start, stop = tl.load(offsets + key), tl.load(offsets + key + 1)
    if stop > start:
        tl.debug_barrier()
        values = data + row * tl.load(offsets + keys + 1)
        for first in range(start, stop, LANES):
            lane = first + tl.arange(0, LANES)
            run = tl.load(runs + lane, mask=lane < stop, other=0)
            leads = run > 0
            total = tl.load(values + lane, mask=leads, other=0.0)
            for r in range(1, tl.max(run, axis=0)):
                total += tl.load(values + lane + r, mask=r < run, other=0.0)
            at = field + tl.load(cells + lane, mask=leads, other=0)
            tl.store(at, tl.load(at, mask=leads, other=0.0) + total, mask=leads)
    return stop - start


LANES = tl.constexpr(32)


@triton.jit
def record(fields, first, recording, step, key, keys, SLOTS: tl.constexpr, START: tl.constexpr):
    """Record a key's points of every channel; three arrays each, from ``recording[START]`` on."""
    for k in tl.static_range(len(SLOTS)):
        record_channel(
            fields[SLOTS[k]] + first, recording[START + 3 * k], recording[START + 3 * k + 1],
            recording[START + 3 * k + 2], step, key, keys, LANES,
        )  # fmt: skip


@triton.jit
def inject(
    fields, first, injecting, step, key, keys, SLOTS: tl.constexpr, SHIFTS: tl.constexpr,
    START: tl.constexpr,
):  # fmt: skip
    """Inject a key's points of every channel; four arrays each, from ``injecting[START]`` on.

    SHIFTS: steps by which each injection is late. Returns how many points there are.
    """
    count = key * 0
    for k in tl.static_range(len(SLOTS)):
        count += inject_channel(
            fields[SLOTS[k]] + first, injecting[START + 4 * k], injecting[START + 4 * k + 1],
            injecting[START + 4 * k + 2], injecting[START + 4 * k + 3], step + SHIFTS[k],
            key, keys, LANES,
        )  # fmt: skip
    return count


@dataclass(frozen=True, eq=False)
class PointList:
    """The points of one channel: sorting order, and per sorted point its cell and run length.

    ``offsets[key]`` is where key = tile * shots + shot starts; the last entry is the row length.
    ``places`` are the sorted points' numbers in the order of (tile, shot, cell).
    """

    order: Tensor
    offsets: Tensor
    cells: Tensor
    places: Tensor
    shots: int

    @staticmethod
    def of(layout: Layout, tables: Tables, channels: Sequence[Tensor]) -> list[PointList | None]:
        """From flat box indices [shot, point] by channel, -1 for unused slots.

        Nothing is read back from the device. A tensor given twice makes one list, and all channels
        are dealt with together: few operations matter here, not their size.
        """
        distinct = {id(c): c for c in channels if c.shape[1]}
        flat = [c.reshape(-1) for c in distinct.values()]
        if not flat:
            return [None] * len(channels)
        found = _places(layout, tables, torch.cat(flat) if len(flat) > 1 else flat[0])
        shots, size = layout.plan.shots, layout.strides.shot
        first = torch.arange(shots, device=found.device)[:, None] * size if shots > 1 else None
        lists: dict[int, PointList] = {}
        for key, part in zip(distinct, found.split([f.shape[0] for f in flat]), strict=True):
            if first is not None:
                part = (part.view(shots, -1) + first).view(-1)
            if part.shape[0] > 1:
                places, order = torch.sort(part, stable=True)
            else:  # its order is not looked at
                places = order = part
            offsets = torch.searchsorted(places, tables.bounds)
            lists[key] = PointList(order, offsets, places % size, places, shots)
        return [lists.get(id(c)) for c in channels]

    @cached_property
    def runs(self) -> Tensor:
        """At the first of points in one place how many there are, elsewhere 0."""
        places, n = self.places, self.places.shape[0]
        if n == self.shots:  # a point a shot
            return torch.ones_like(places)
        first = torch.searchsorted(places, places)
        leads = first == torch.arange(n, device=places.device)
        return torch.searchsorted(places, places, right=True).sub_(first).mul_(leads)

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


def _places(layout: Layout, tables: Tables, flat: Tensor) -> Tensor:
    """The place of each flat box index among (tile, shot 0, cell); after all tiles for -1."""
    s, lead = layout.strides, layout.lead
    rest, cell, block = flat, None, None
    ranges = list(
        zip(layout.box, layout.extent, layout.choice.boundary, (s.z, s.y, 1), strict=True)
    )[lead:]
    blocks = 1
    for axis, (cells, extent, size, stride) in reversed(list(enumerate(ranges))):
        if axis:  # the first axis takes what is left, -1 if the index is
            whole = rest // cells
            index, rest = torch.sub(rest, whole, alpha=cells), whole
        else:
            index = rest
        of_axis = index // size if size > 1 else index
        cell = index if cell is None else torch.add(cell, index, alpha=stride)
        block = of_axis if block is None else torch.add(block, of_axis, alpha=blocks)
        blocks *= extent // size
    return tables.places[block] + cell
