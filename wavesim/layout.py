"""How a plan's arrays lie in device memory, and how its cells are dealt out in tiles.

Rows start on a multiple of 32 cells and are followed by the next row's margin. Cells outside the
box hold zero coefficients and stay zero: the kernels need no masks there. Numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .plan import Plan, profiles

ALIGN = 32
PROFILE_MARGIN = 16
GEOMETRY_HEADER, GEOMETRY_AXIS = 8, 12
Triple = tuple[int, int, int]

# interior block, boundary block (z, y, x) and warps by number of dimensions: boundary blocks divide
# interior ones along every axis, so that the two kinds tile the box without overlap
BLOCKS: dict[int, tuple[Triple, Triple, int]] = {
    1: ((1, 1, 256), (1, 1, 64), 2),
    2: ((1, 8, 128), (1, 8, 32), 4),
    3: ((2, 4, 64), (2, 4, 32), 8),
}


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
    def of(extent: Triple, ndim: int, reach: int) -> Strides:
        margin_z, margin_y = (reach if ndim > 2 else 0), (reach if ndim > 1 else 0)
        y = round_up(extent[2], ALIGN) + ALIGN
        z = (extent[1] + margin_y) * y
        origin = margin_z * z + margin_y * y + ALIGN
        return Strides(origin + (extent[0] + margin_z) * z + margin_y * y + ALIGN, z, y, origin)


@dataclass(frozen=True)
class LayerMap:
    """Index along an axis to index in its boundary memory, which leaves the interior out.

    ``m(i) = min(i, limit)`` below ``split``, ``max(i - shift, limit)`` from there on; the memory
    around ``limit`` is zero for a stencil's reach, so that cells between the layers read zeros.
    """

    low: int
    high: int
    cells: int
    limit: int
    split: int
    shift: int


@dataclass(frozen=True)
class Layout:
    """Shapes, strides and tiles of a plan for a choice of block shapes; axes always (z, y, x)."""

    plan: Plan
    interior: Triple
    boundary: Triple
    warps: int
    reach: int

    @staticmethod
    def default(plan: Plan, *, adjoint: bool = False) -> Layout:
        """The untuned choice. ``reach`` is how many cells inside the model feel a layer: a second
        derivative's ``de`` spreads by the stencil, and its transpose by the stencil once more."""
        r = plan.stencil_reach
        own = r if plan.system.collocated else 1
        interior, boundary, warps = BLOCKS[plan.ndim]
        if plan.system.collocated and plan.ndim == 3:
            warps = 4  # measured faster; the staggered equations would run out of registers
        elif not plan.system.collocated and plan.dtype == "float64":
            z, y, x = interior
            interior = z, y, x // 2  # or elastic kernels of order 8 spill
        return Layout(plan, interior, boundary, warps, own + r * adjoint)

    @property
    def lead(self) -> int:
        """Leading axes of length 1 that a plan of fewer than three dimensions lacks."""
        return 3 - self.plan.ndim

    @property
    def box(self) -> Triple:
        return (1,) * self.lead + self.plan.box  # type: ignore[return-value]

    @property
    def extent(self) -> Triple:
        """The box rounded up to whole boundary blocks: cells that tiles may touch."""
        return tuple(round_up(n, b) for n, b in zip(self.box, self.boundary, strict=True))  # type: ignore[return-value]

    @property
    def strides(self) -> Strides:
        return Strides.of(self.extent, self.plan.ndim, self.plan.stencil_reach)

    @property
    def history_row(self) -> int:
        return round_up(self.box[2], 4)

    @property
    def history_shot(self) -> int:
        return self.box[0] * self.box[1] * self.history_row

    def layer_map(self, axis: int) -> LayerMap:
        """Of one of the three axes."""
        low, upper = self.widths(axis)
        cells, reach = self.box[axis], self.plan.stencil_reach
        high = cells - upper - 1  # a half-cell profile's layer starts one index lower
        shift = max(0, high - (low + 2 * reach + 1))
        if axis == 2:
            shift -= shift % ALIGN
        if shift == 0:
            return LayerMap(low, high, cells, 2**30, 2**30, 0)
        return LayerMap(low, high, cells, low + reach, (low + high) // 2, shift)

    def memory_extent(self, axis: int) -> Triple:
        cut = list(self.extent)
        cut[axis] -= self.layer_map(axis).shift
        return cut[0], cut[1], cut[2]

    def memory_strides(self, axis: int) -> Strides:
        return Strides.of(self.memory_extent(axis), self.plan.ndim, self.plan.stencil_reach)

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
    """Rows (kind, z0, y0, x0) int32 that cover every cell of the box once, boundary tiles first.

    kind 0 is an interior block without boundary work; otherwise a boundary block, bit a set where
    a layer along axis a can be felt, and bit 3 always.
    """
    big, small = np.array(layout.interior), np.array(layout.boundary)
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
    return np.concatenate([outer, inner]).astype(np.int32)


def _corners(start: np.ndarray, stop: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Lowest corners of the blocks that tile [start, stop), [block, 3], x fastest."""
    ranges = [np.arange(a, b, s) for a, b, s in zip(start, stop, size, strict=True)]
    return np.stack(np.meshgrid(*ranges, indexing="ij"), -1).reshape(-1, 3)


@lru_cache(maxsize=32)
def tile_of_block(layout: Layout) -> np.ndarray:
    """The tile that owns each boundary-sized block, int32 [z blocks, y blocks, x blocks]."""
    small, table = np.array(layout.boundary), tile_table(layout)
    owner = np.full(np.array(layout.extent) // small, -1, dtype=np.int32)
    for interior in (False, True):
        tile = np.flatnonzero((table[:, 0] == 0) == interior)
        first = table[tile, 1:] // small
        inside = np.array(layout.interior) // small if interior else np.ones(3, dtype=int)
        for step in _corners(np.zeros(3, dtype=int), inside, np.ones(3, dtype=int)):
            owner[tuple((first + step).T)] = tile
    return owner


@lru_cache(maxsize=32)
def geometry(layout: Layout) -> np.ndarray:
    """The numbers that boundary tiles and history need, int64: a header, then a row per axis."""
    out = np.zeros(GEOMETRY_HEADER + 3 * GEOMETRY_AXIS, dtype=np.int64)
    out[:3] = layout.box
    out[3] = layout.history_row
    out[4] = layout.history_row * layout.box[1]
    out[5] = layout.history_shot
    for axis in range(3):
        s, m = layout.memory_strides(axis), layout.layer_map(axis)
        row = (s.shot, s.z, s.y, s.origin, m.low, m.high, m.cells, m.limit, m.split, m.shift)
        at = GEOMETRY_HEADER + axis * GEOMETRY_AXIS
        out[at : at + len(row)] = row
    return out


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
