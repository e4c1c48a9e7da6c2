"""What both directions do with a tile: its cells, its coefficients, its place in the history."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_of_program(table, sizes):
    """(key of the tile's points, (kind, shot, z0, y0, x0)); the shot varies fastest."""
    key = tl.program_id(0).to(tl.int64)
    shot, row = key % sizes[6], table + 4 * (key // sizes[6])
    z0, y0 = tl.load(row + 1).to(tl.int64), tl.load(row + 2).to(tl.int64)
    x0 = tl.multiple_of(tl.load(row + 3).to(tl.int64), 32)
    return key, (tl.load(row), shot, z0, y0, x0)


@triton.jit
def cells(tile, sizes, BLOCKS: tl.constexpr, LAYERS: tl.constexpr):
    """Of a tile's block: offsets from its first cell, offsets of that in fields and coefficients,
    coordinates in the box, and the history's (dz, dy, dx, z0, y0, x0, shot)."""
    _, shot, z0, y0, x0 = tile
    SS, SZ, SY, origin, model_stride, _, _ = sizes
    BZ: tl.constexpr = BLOCKS[3] if LAYERS else BLOCKS[0]
    BY: tl.constexpr = BLOCKS[4] if LAYERS else BLOCKS[1]
    BX: tl.constexpr = BLOCKS[5] if LAYERS else BLOCKS[2]
    dz = tl.arange(0, BZ)[:, None, None]
    dy = tl.arange(0, BY)[None, :, None]
    dx = tl.arange(0, BX)[None, None, :]
    inside = tl.multiple_of(origin + z0 * SZ + y0 * SY + x0, 16)
    at, where = dz * SZ + dy * SY + dx, (z0 + dz, y0 + dy, x0 + dx)
    corner = (dz, dy, dx, z0, y0, x0, shot)
    return at, shot * SS + inside, shot * model_stride + inside, where, corner


@triton.jit
def load_all(arrays, base, at):
    """The values of several arrays at a block of cells."""
    out = ()
    for k in tl.static_range(len(arrays)):
        out = out + (tl.load(arrays[k] + base + at),)
    return out


@triton.jit
def history_offsets(geometry, step, corner, sizes):
    """Where a block of cells lies in the history of a step: dense rows, see `wavesim.history`."""
    dz, dy, dx, z0, y0, x0, shot = corner
    row, plane = tl.load(geometry + 3), tl.load(geometry + 4)
    start = (step * sizes[6] + shot) * tl.load(geometry + 5) + z0 * plane + y0 * row + x0
    return tl.multiple_of(start, 4) + dz * plane + dy * row + dx


@triton.jit
def in_box(geometry, where):
    """Which cells of a boundary tile lie in the box: interior tiles lie in it whole."""
    z, y, x = where
    inside = (z < tl.load(geometry)) & (y < tl.load(geometry + 1))
    return inside & (x < tl.load(geometry + 2))


@triton.jit
def keep_history(values, hist, geometry, step, where, corner, sizes, LAYERS: tl.constexpr):
    """Store a block's history values of a step."""
    to = history_offsets(geometry, step, corner, sizes)
    for k in tl.static_range(len(hist)):
        if LAYERS:
            tl.store(hist[k] + to, values[k], mask=in_box(geometry, where), cache_modifier=".cs")
        else:
            tl.store(hist[k] + to, values[k], cache_modifier=".cs")


@triton.jit
def past(hist, geometry, step, where, corner, sizes, LAYERS: tl.constexpr):
    """A block's history values of a step, zero outside the box."""
    at = history_offsets(geometry, step, corner, sizes)
    out = ()
    for k in tl.static_range(len(hist)):
        if LAYERS:
            mask = in_box(geometry, where)
            value = tl.load(hist[k] + at, mask=mask, other=0.0, eviction_policy="evict_first")
        else:
            value = tl.load(hist[k] + at, eviction_policy="evict_first")
        out = out + (value,)
    return out
