"""Recording and injection by the tile that owns a cell, and the lists that say which points it has.

Points are sorted by tile, shot and cell; coincident ones follow each other, and the first of them
adds them up in their order, so that the sum does not depend on how the work is dealt out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..layout import Layout, tiles


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
    """``field[cells[j]] += data[row, j]`` for the points of a key, after the tile was stored."""
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

    SHIFTS: steps by which each injection is late.
    """
    for k in tl.static_range(len(SLOTS)):
        inject_channel(
            fields[SLOTS[k]] + first, injecting[START + 4 * k], injecting[START + 4 * k + 1],
            injecting[START + 4 * k + 2], injecting[START + 4 * k + 3], step + SHIFTS[k],
            key, keys, LANES,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class PointList:
    """The points of one channel: sorting order, and per sorted point its cell and run length.

    ``offsets[key]`` is where key = tile * shots + shot starts; the last entry is the row length.
    """

    order: Tensor
    offsets: Tensor
    cells: Tensor
    runs: Tensor

    @staticmethod
    def build(layout: Layout, owner: Tensor, flat: Tensor) -> PointList:
        """From the tiles that own blocks and flat box indices [shot, point], -1 for unused slots.

        Nothing is read back from the device.
        """
        device, shots = flat.device, layout.plan.shots
        _, ny, nx = layout.box
        used = flat >= 0
        x, y, z = flat % nx, flat // nx % ny, flat // (nx * ny)
        bz, by, bx = layout.choice.boundary
        index = tuple(torch.where(used, i, 0) for i in (z // bz, y // by, x // bx))
        shot = torch.arange(shots, device=device)[:, None]
        programs = tiles(layout) * shots
        key = torch.where(used, owner[index].long() * shots + shot, programs).flatten()
        s = layout.strides
        cell = torch.where(used, s.origin + z * s.z + y * s.y + x, 0).flatten()
        order = torch.argsort(key * s.shot + cell, stable=True)
        key, cell = key[order], cell[order]
        offsets = torch.searchsorted(key, torch.arange(programs + 1, device=device))
        count = torch.full((1,), flat.numel(), dtype=torch.int64, device=device)
        return PointList(order, torch.cat([offsets, count]), cell, _run_lengths(key, cell))

    def sort(self, values: Tensor) -> Tensor:
        """[shot, point, time] to [time, sorted point]."""
        return values.flatten(0, 1).t()[:, self.order].contiguous()

    def unsort(self, rows: Tensor, shots: int) -> Tensor:
        """[time, sorted point] to [shot, point, time]."""
        out = torch.empty_like(rows)
        out[:, self.order] = rows
        return out.t().reshape(shots, -1, rows.shape[0])


def _run_lengths(key: Tensor, cell: Tensor) -> Tensor:
    """At the first of equal (key, cell) neighbours how many there are, elsewhere 0."""
    n = len(key)
    first = torch.ones(n, dtype=torch.bool, device=key.device)
    first[1:] = (key[1:] != key[:-1]) | (cell[1:] != cell[:-1])
    position = torch.arange(n, device=key.device)
    following = torch.full((n + 1,), n, device=key.device)
    following[:-1] = torch.where(first, position, n)
    if n:
        following = following.flip(0).cummin(0).values.flip(0)
    return torch.where(first, following[1:] - position, 0)
