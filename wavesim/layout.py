"""How a plan's arrays lie in device memory, and how its cells are dealt out in tiles.

Rows start on a multiple of 32 cells; what is left of one at its end is the next one's margin too.
Cells outside the box hold zero coefficients and stay zero: the kernels need no masks there. Numbers
only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from .choice import Choice, Triple
from .plan import Plan, profiles

ALIGN = 32
PROFILE_MARGIN = 16


def round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


@dataclass(frozen=True)
class Strides:
    """An array [shot, z, y, x] in the aligned layout: offset = shot + origin + z*.. + y*.. + x."""

    shot: int
    z: int
    y: int
    origin: int

    @staticmethod
    def of(extent: Triple, cells: int, ndim: int, reach: int) -> Strides:
        """cells: of a row that may not be zero."""
        margin_z, margin_y = (reach if ndim > 2 else 0), (reach if ndim > 1 else 0)
        y = round_up(max(extent[2], cells + 2 * reach), ALIGN)
        y += ALIGN * (y % 256 == 0)  # out of caution for a cache's sets; not timed by itself
        z = (extent[1] + margin_y) * y
        origin = margin_z * z + margin_y * y + ALIGN
        return Strides(origin + (extent[0] + margin_z) * z + margin_y * y + ALIGN, z, y, origin)


@dataclass(frozen=True)
class Layout:
    """Shapes, strides and tiles of a plan run in a chosen way; axes always (z, y, x).

    ``reach`` is how many cells inside the model feel a layer: a second derivative's ``de`` spreads
    by the stencil, and its transpose by the stencil once more.
    """

    plan: Plan
    choice: Choice
    reach: int

    @cached_property
    def _hash(self) -> int:
        return hash((self.plan, self.choice, self.reach))

    def __hash__(self) -> int:
        return self._hash  # tables are looked up by layout, many times a call

    @staticmethod
    def of(plan: Plan, choice: Choice, *, adjoint: bool = False) -> Layout:
        own = plan.stencil_reach if plan.system.collocated else 1
        return Layout(plan, choice, own + plan.stencil_reach * adjoint)

    @cached_property
    def lead(self) -> int:
        """Leading axes of length 1 that a plan of fewer than three dimensions lacks."""
        return 3 - self.plan.ndim

    @cached_property
    def box(self) -> Triple:
        return (1,) * self.lead + self.plan.box  # type: ignore[return-value]

    @cached_property
    def extent(self) -> Triple:
        """The box rounded up to whole boundary blocks: cells that tiles may touch."""
        return tuple(round_up(n, b) for n, b in zip(self.box, self.choice.boundary, strict=True))  # type: ignore[return-value]

    @cached_property
    def strides(self) -> Strides:
        return Strides.of(self.extent, self.box[2], self.plan.ndim, self.plan.stencil_reach)

    @cached_property
    def history_row(self) -> int:
        return round_up(self.box[2], 4)

    @cached_property
    def history_shot(self) -> int:
        return self.box[0] * self.box[1] * self.history_row

    def cut(self, axis: int) -> tuple[int, int]:
        """(split, shift): index i of an axis lies at i in its boundary memory, which leaves the
        interior out, and a tile that starts at ``split`` or above finds it at ``i - shift``.

        Tiles near one layer do not reach the other's cells: they write zero to those of their own
        that are in neither, and read zeros beyond. The split is below the first such start: as a
        multiple of 16 it would have its own kernels.
        """
        (low, high), size = self.widths(axis), self.choice.boundary[axis]
        first, last = self.spans(axis)
        after, before = round_up(first, size), last // size * size  # where others start
        shift = min(self.box[axis] - high - 1 - after, before - low) - self.plan.stencil_reach
        shift = max(0, shift)
        return after - (size > 1), shift - (shift % ALIGN if axis == 2 else 0)

    def memory_extent(self, axis: int) -> Triple:
        cut = list(self.extent)
        cut[axis] -= self.cut(axis)[1]
        return cut[0], cut[1], cut[2]

    def memory_strides(self, axis: int) -> Strides:
        cells = self.box[2] - (self.cut(axis)[1] if axis == 2 else 0)
        return Strides.of(self.memory_extent(axis), cells, self.plan.ndim, self.plan.stencil_reach)

    def widths(self, axis: int) -> tuple[int, int]:
        return self.plan.widths[axis - self.lead] if axis >= self.lead else (0, 0)

    def faces(self) -> tuple[int, ...]:
        """1 for an axis with boundary layers, else 0."""
        return tuple(int(any(self.widths(a))) for a in range(3))

    def spans(self, axis: int) -> tuple[int, int]:
        """[start, stop) along an axis that no boundary layer influences."""
        low, high = self.widths(axis)
        reach = self.reach
        return (low + reach if low else 0), self.box[axis] - (high + reach if high else 0)


@lru_cache(maxsize=32)
def tile_table(layout: Layout) -> np.ndarray:
    """Rows (kind, z0, y0, x0) int32 that cover every cell of the box once: boundary tiles first,
    which evens out the work of programs that have several; in three dimensions in the order of
    their cells, which shares more of the caches.

    kind 0 is an interior block without boundary work; otherwise a boundary block, bit a set where
    a layer along axis a can be felt, and bit 3 always.
    """
    big, small = np.array(layout.choice.interior), np.array(layout.choice.boundary)
    extent = np.array(layout.extent)
    spans = np.array([layout.spans(a) for a in range(3)])
    # an interior block must lie inside the box: on its far side only where all of it is real cells
    start = np.minimum(-(-spans[:, 0] // small) * small, extent)
    count = np.maximum(0, (spans[:, 1] - start) // big)
    stop = start + count * big
    if not count.all():
        start = stop = np.zeros(3, dtype=int)
    corners = _corners(np.zeros(3, dtype=int), extent, small)
    corners = corners[~((corners >= start) & (corners < stop)).all(1)]
    ends = np.minimum(corners + small, layout.box)
    near = ((corners < spans[:, 0]) | (ends > spans[:, 1])) & np.array(layout.faces(), dtype=bool)
    outer = np.column_stack([8 + near @ (1, 2, 4), corners])
    inner = _corners(start, stop, big)
    inner = np.column_stack([np.zeros(len(inner), dtype=int), inner])
    table = np.concatenate([outer, inner]).astype(np.int32)
    return table[np.lexsort(table.T[:0:-1])] if layout.plan.ndim == 3 else table


def _corners(start: np.ndarray, stop: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Lowest corners of the blocks that tile [start, stop), [block, 3], x fastest."""
    ranges = [np.arange(a, b, s) for a, b, s in zip(start, stop, size, strict=True)]
    return np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, 3)


@lru_cache(maxsize=32)
def tile_of_block(layout: Layout) -> np.ndarray:
    """The tile that owns each boundary-sized block, int32 [z blocks, y blocks, x blocks]."""
    small, table = np.array(layout.choice.boundary), tile_table(layout)
    owner = np.full(np.array(layout.extent) // small, -1, dtype=np.int32)
    for interior in (False, True):
        tile = np.flatnonzero((table[:, 0] == 0) == interior)
        first = table[tile, 1:] // small
        inside = np.array(layout.choice.interior) // small if interior else np.ones(3, dtype=int)
        for step in _corners(np.zeros(3, dtype=int), inside, np.ones(3, dtype=int)):
            owner[tuple((first + step).T)] = tile
    return owner


@lru_cache(maxsize=32)
def near_tiles(layout: Layout) -> np.ndarray:
    """By tile, those whose cells its stencils reach along an axis, which reach its own; int32, rows
    filled up with the tile itself to a power of two."""
    owner, size = tile_of_block(layout), layout.choice.boundary
    both = [np.empty((0, 2), dtype=np.int32)]
    for axis in range(layout.lead, 3):
        for far in range(1, -(-layout.plan.stencil_reach // size[axis]) + 1):
            blocks = np.moveaxis(owner, axis, 0)
            pairs = np.stack([blocks[:-far].ravel(), blocks[far:].ravel()], 1)
            both += [pairs, pairs[:, ::-1]]
    pairs = np.unique(np.concatenate(both), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    count = np.bincount(pairs[:, 0], minlength=tiles(layout))
    width = 1 << int(max(count.max() - 1, 0)).bit_length()
    out = np.repeat(np.arange(tiles(layout), dtype=np.int32)[:, None], width, 1)
    rank = np.arange(len(pairs)) - (np.cumsum(count) - count)[pairs[:, 0]]
    out[pairs[:, 0], rank] = pairs[:, 1]
    return out


@dataclass(frozen=True)
class Sizes:
    """The numbers that kernels get as arguments.

    ``sizes``: strides of a shot, z and y, origin, the shot stride of the coefficients, length of a
    profile row. ``layers``, per axis: strides of a shot, z and y in the axis' memory, and where
    cell (0, 0, 0) lies for tiles below the split and above it. ``box``: its shape, a quarter of
    the history's row and plane, its shot, the splits, the number of shots and of tiles.
    """

    sizes: tuple[int, ...]
    layers: tuple[int, ...]
    box: tuple[int, ...]

    @staticmethod
    @lru_cache(maxsize=64)
    def of(layout: Layout, batched: bool) -> Sizes:
        s, layers, splits = layout.strides, [], []
        for axis in range(3):
            m = layout.memory_strides(axis)
            split, shift = layout.cut(axis)
            layers += [m.shot, m.z, m.y, m.origin, m.origin - shift * (m.z, m.y, 1)[axis]]
            splits.append(split)
        quarter = layout.history_row // 4  # told like this, kernels know that rows are aligned
        dense = (quarter, quarter * layout.box[1], layout.history_shot)
        return Sizes(
            (s.shot, s.z, s.y, s.origin, s.shot if batched else 0, profile_length(layout)),
            tuple(layers),
            (*layout.box, *dense, *splits, layout.plan.shots, tiles(layout)),
        )


def profile_length(layout: Layout) -> int:
    return round_up(max(layout.extent) + 2 * PROFILE_MARGIN, 16)


@lru_cache(maxsize=32)
def profile_rows(layout: Layout) -> np.ndarray:
    """[axis, row, index] float64: three rows at nodes, three at half cells, one margin first."""
    out = np.zeros((3, 6, profile_length(layout)))
    plan = layout.plan
    sides = (0,) if plan.system.collocated else (-1, 1)
    for a in range(plan.ndim):
        for number, side in enumerate(sides):
            rows = profiles(plan, a, side)
            stop = PROFILE_MARGIN + rows.shape[1]
            out[a + layout.lead, 3 * number : 3 * number + 3, PROFILE_MARGIN:stop] = rows
    return out


def spacing_factors(layout: Layout) -> np.ndarray:
    """1/h per axis, then 1/h^2 per axis, float64 [6]."""
    inverse = np.zeros(3)
    inverse[layout.lead :] = 1 / np.array(layout.plan.spacing)
    return np.concatenate([inverse, inverse**2])


def field_bytes(layout: Layout) -> int:
    """Bytes of the fields and both buffers of the boundary memories."""
    plan = layout.plan
    cells = len(plan.system.fields) * layout.strides.shot
    cells += 2 * sum(layout.memory_strides(a + layout.lead).shot for a, _ in plan.memories)
    return cells * plan.shots * plan.itemsize


def tiles(layout: Layout) -> int:
    return len(tile_table(layout))
