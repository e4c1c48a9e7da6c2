"""Arrays in the aligned layout: allocated as zeros, filled from and read back to plain tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from .layout import (
    PROFILE_MARGIN,
    Layout,
    Strides,
    profile_rows,
    spacing_factors,
    tile_of_block,
    tile_table,
)


def _view(buffer: Tensor, shots: int, shape: tuple[int, ...], s: Strides) -> Tensor:
    """[shot, z, y, x] view of an aligned buffer's own cells."""
    return buffer.as_strided((shots, *shape), (s.shot, s.z, s.y, 1), s.origin)


def field_view(layout: Layout, buffer: Tensor) -> Tensor:
    """[shot, *box] view of a field's cells."""
    shots = buffer.shape[0]
    view = _view(buffer, shots, layout.box, layout.strides)
    return view.reshape(shots, *layout.plan.box)


def zeros(layout: Layout, shots: int, like: Tensor) -> Tensor:
    """An aligned field of zeros [shots, cells and margins]."""
    return like.new_zeros(shots, layout.strides.shot)


def aligned(layout: Layout, values: Tensor) -> Tensor:
    """A copy of values [shots, *box] in the aligned layout."""
    buffer = zeros(layout, values.shape[0], values)
    view = _view(buffer, values.shape[0], layout.box, layout.strides)
    view.copy_(values.reshape(values.shape[0], *layout.box))
    return buffer


def plain(layout: Layout, buffer: Tensor) -> Tensor:
    """A contiguous copy [shots, *box] of an aligned field."""
    return field_view(layout, buffer).clone(memory_format=torch.contiguous_format)


class Memory:
    """One boundary memory: two aligned buffers that a step reads and writes in turn."""

    def __init__(self, layout: Layout, axis: int, side: int, values: Tensor) -> None:
        plan = layout.plan
        self.dim, three = axis + 1, axis + layout.lead
        strides = layout.memory_strides(three)
        self.read = values.new_zeros(plan.shots, strides.shot)
        self.write = torch.zeros_like(self.read)
        extent = list(layout.box)
        extent[three] = layout.memory_extent(three)[three]
        shape = extent[layout.lead :]
        self.shape, self.strides = (plan.shots, *shape), strides
        self.extent = (extent[0], extent[1], extent[2])
        shift = layout.cut(three)[1]
        low = plan.widths[axis][0]
        self.parts = [(a if b <= low else a - shift, b - a) for a, b in plan.slabs(axis, side)]
        at = 0
        for start, count in self.parts:
            target = self._whole(self.read).narrow(self.dim, start, count)
            target.copy_(values.narrow(self.dim, at, count))
            at += count

    def _whole(self, buffer: Tensor) -> Tensor:
        return _view(buffer, self.shape[0], self.extent, self.strides).reshape(self.shape)

    def swap(self) -> None:
        self.read, self.write = self.write, self.read

    def plain(self) -> Tensor:
        """[shot, box with the axis cut down to its layers]."""
        whole = self._whole(self.read)
        return torch.cat([whole.narrow(self.dim, a, n) for a, n in self.parts], self.dim)


@dataclass(frozen=True, eq=False)
class Tables:
    """The read-only arrays of a layout on a device.

    Kept for the next call of the same layout: they are small, and copying them waits for the
    device, which a call must not do, least of all inside the user's graph capture. That wait is
    also why they may be read on any stream.
    """

    tiles: Tensor
    owner: Tensor
    factors: Tensor
    profiles: Tensor

    @staticmethod
    @lru_cache(maxsize=64)
    def of(layout: Layout, dtype: torch.dtype, device: torch.device) -> Tables:
        def real(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(device=device, dtype=dtype)

        return Tables(
            tiles=torch.from_numpy(tile_table(layout)).to(device),
            owner=torch.from_numpy(tile_of_block(layout)).to(device),
            factors=real(spacing_factors(layout)),
            profiles=real(profile_rows(layout)),
        )

    def nodes(self, three: int, start: int, stop: int) -> Tensor:
        """The node profile's rows on a range of one of the three axes, [3, cells]."""
        return self.profiles[three, :3, PROFILE_MARGIN + start : PROFILE_MARGIN + stop]
