"""Arrays in the aligned layout: allocated as zeros, filled from and read back to plain tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from .layout import (
    ALIGN,
    PROFILE_MARGIN,
    Layout,
    Strides,
    near_tiles,
    profile_rows,
    round_up,
    spacing_factors,
    tile_of_block,
    tile_table,
)


def _view(buffer: Tensor, shots: int, shape: tuple[int, ...], s: Strides) -> Tensor:
    """[shot, z, y, x] view of an aligned buffer's own cells."""
    start = buffer.storage_offset() + s.origin
    return buffer.as_strided((shots, *shape), (s.shot, s.z, s.y, 1), start)


def field_view(layout: Layout, buffer: Tensor) -> Tensor:
    """[shot, *box] view of a field's cells."""
    shots = buffer.numel() // layout.strides.shot
    view = _view(buffer, shots, layout.box, layout.strides)
    return view.reshape(shots, *layout.plan.box)


def history_view(layout: Layout, row: Tensor) -> Tensor:
    """[shot, *box] view of a step's values in a history, [shot, z y row]."""
    z, y, x = layout.box
    cells = row.view(row.shape[0], z, y, layout.history_row)[..., :x]
    return cells.reshape(row.shape[0], *layout.plan.box)


PACKED = 2**28
"""Bytes up to which arrays share an allocation: above, their zeros take longer than a launch."""


def packed_zeros(like: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """Arrays of zeros, longer by less than `ALIGN`, cut from one block while they are small: one
    launch for all.

    Nothing that outlives a call may be a view of one: it would keep the block.
    """
    cells = [round_up(length, ALIGN) for length in lengths]
    total = sum(cells)
    if total * like.element_size() > PACKED:
        return [like.new_zeros(n) for n in cells]
    return list(like.new_zeros(total).split_with_sizes(cells))


def fill(layout: Layout, buffer: Tensor, values: Tensor | None) -> Tensor:
    """Copy values [shots, *box] into an aligned buffer of zeros; None leaves them."""
    if values is not None:
        field_view(layout, buffer).copy_(values)
    return buffer


def aligned(layout: Layout, arrays: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Copies of arrays [shots, *box] in the aligned layout."""
    if not arrays:
        return ()
    buffers = packed_zeros(arrays[0], [a.shape[0] * layout.strides.shot for a in arrays])
    return tuple(fill(layout, b, a) for b, a in zip(buffers, arrays, strict=True))


def plain(layout: Layout, buffer: Tensor) -> Tensor:
    """A contiguous copy [shots, *box] of an aligned field."""
    return field_view(layout, buffer).clone(memory_format=torch.contiguous_format)


@dataclass(frozen=True)
class MemoryShape:
    """Where a boundary memory's cells lie in its buffers."""

    dim: int
    shape: tuple[int, ...]
    extent: tuple[int, int, int]
    strides: Strides
    parts: tuple[tuple[int, int], ...]

    @staticmethod
    @lru_cache(maxsize=256)
    def of(layout: Layout, axis: int, side: int) -> MemoryShape:
        """Of a derivative along an axis; its layers are ``parts``, (start, count) each."""
        plan, three = layout.plan, axis + layout.lead
        extent = list(layout.box)
        extent[three] = layout.memory_extent(three)[three]
        shift, low = layout.cut(three)[1], plan.widths[axis][0]
        return MemoryShape(
            dim=axis + 1,
            shape=(plan.shots, *extent[layout.lead :]),
            extent=(extent[0], extent[1], extent[2]),
            strides=layout.memory_strides(three),
            parts=tuple((a if b <= low else a - shift, b - a) for a, b in plan.slabs(axis, side)),
        )


class Memory:
    """One boundary memory: two aligned buffers that a step reads and writes in turn."""

    def __init__(self, at: MemoryShape, buffers: tuple[Tensor, Tensor], values: Tensor | None):
        """buffers: zeros; values: as `plain` returns them, None for zeros."""
        self.at, (self.read, self.write) = at, buffers
        if values is None:
            return
        done = 0
        for start, count in at.parts:
            target = self._whole().narrow(at.dim, start, count)
            target.copy_(values.narrow(at.dim, done, count))
            done += count

    def _whole(self) -> Tensor:
        at = self.at
        return _view(self.read, at.shape[0], at.extent, at.strides).reshape(at.shape)

    def swap(self) -> None:
        self.read, self.write = self.write, self.read

    def plain(self) -> Tensor:
        """[shot, box with the axis cut down to its layers]."""
        whole, dim = self._whole(), self.at.dim
        return torch.cat([whole.narrow(dim, a, n) for a, n in self.at.parts], dim)


@dataclass(eq=False)
class Arrays:
    """What the kernels of one direction read and write, aligned: coefficients; fields and boundary
    memories; what programs signal each other with; and more, all zeros at first."""

    coefs: tuple[Tensor, ...]
    fields: list[Tensor]
    memories: list[Memory]
    signals: Tensor
    more: list[Tensor]


@dataclass(eq=False)
class Final:
    """Fields and boundary memories after the last step, in the run's buffers."""

    layout: Layout
    live: list[Tensor]
    memories: list[Memory]

    def __post_init__(self) -> None:
        for memory in self.memories:
            memory.write = memory.read  # the other buffer is free

    def stand_ins(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Tensors of the shapes of their copies, of one number each."""
        plan, like = self.layout.plan, self.live[0]

        def one(shape: Sequence[int]) -> Tensor:
            return like.new_empty_strided(shape, (0,) * len(shape))

        fields = tuple(one((plan.shots, *plan.box)) for _ in self.live)
        return fields, tuple(one(plan.memory_shape(axis)) for axis, _ in plan.memories)

    def plain(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Copies of them, made on the current stream; the buffers are free then."""
        kept = [*self.live, *(m.read for m in self.memories)]
        if kept[0].is_cuda:
            for buffer in kept:  # the run's stream may be another
                buffer.record_stream(torch.cuda.current_stream(buffer.device))
        fields = tuple(plain(self.layout, f) for f in self.live)
        memory = tuple(m.plain() for m in self.memories)
        self.live, self.memories = [], []
        return fields, memory


def _places(layout: Layout) -> np.ndarray:
    """By boundary-sized block, where the points of the tile that owns it begin among a shot's
    places (tile, cell) in the order of the point lists, and the origin of its cells."""
    s = layout.strides
    return tile_of_block(layout).ravel().astype(np.int64) * s.shot + s.origin


@dataclass(frozen=True, eq=False)
class Tables:
    """The read-only arrays of a layout on a device.

    Kept for the next call of the same layout: they are small, and copying them waits for the
    device, which a call must not do, least of all inside the user's graph capture. That wait is
    also why they may be read on any stream.
    """

    tiles: Tensor
    places: Tensor
    factors: Tensor
    profiles: Tensor

    @staticmethod
    @lru_cache(maxsize=64)
    def of(layout: Layout, dtype: torch.dtype, device: torch.device) -> Tables:
        def real(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(device=device, dtype=dtype)

        return Tables(
            tiles=torch.from_numpy(tile_table(layout)).to(device),
            places=torch.from_numpy(_places(layout)).to(device),
            factors=real(spacing_factors(layout)),
            profiles=real(profile_rows(layout)),
        )

    def nodes(self, three: int, start: int, stop: int) -> Tensor:
        """The node profile's rows on a range of one of the three axes, [3, cells]."""
        return self.profiles[three, :3, PROFILE_MARGIN + start : PROFILE_MARGIN + stop]


@lru_cache(maxsize=32)
def near_table(layout: Layout, device: torch.device) -> Tensor:
    """`layout.near_tiles` on a device, kept as `Tables` are."""
    return torch.from_numpy(near_tiles(layout)).to(device)
