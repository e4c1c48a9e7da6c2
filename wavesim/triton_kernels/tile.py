"""What both directions do with a tile: its cells, its coefficients, its place in the history.

Offsets of cells inside a block are 32-bit, those of blocks 64-bit. Sizes and layers are the tuples
of `wavesim.layout.Sizes`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_of(table, number, shot):
    """(kind, shot, z0, y0, x0) of a tile of the table."""
    row = table + 4 * number
    x0 = tl.multiple_of(tl.load(row + 3), 16)
    return tl.load(row), shot.to(tl.int64), tl.load(row + 1), tl.load(row + 2), x0


@triton.jit
def block_offsets(BLOCKS: tl.constexpr, LAYERS: tl.constexpr):
    """(dz, dy, dx) of a tile's block."""
    BZ: tl.constexpr = BLOCKS[3] if LAYERS else BLOCKS[0]
    BY: tl.constexpr = BLOCKS[4] if LAYERS else BLOCKS[1]
    BX: tl.constexpr = BLOCKS[5] if LAYERS else BLOCKS[2]
    dz = tl.arange(0, BZ)[:, None, None]
    dy = tl.arange(0, BY)[None, :, None]
    dx = tl.arange(0, BX)[None, None, :]
    return dz, dy, dx


@triton.jit
def cells(tile, d, sizes):
    """Of a tile's block: offsets from its first cell, and of that in fields and coefficients."""
    _, shot, z0, y0, x0 = tile
    SS, SZ, SY, origin, model_stride, _ = sizes
    inside = tl.multiple_of(origin + z0.to(tl.int64) * SZ + y0.to(tl.int64) * SY + x0, 16)
    return d[0] * SZ + d[1] * SY + d[2], shot * SS + inside, shot * model_stride + inside


@triton.jit
def load_all(arrays, base, at):
    """The values of several arrays at a block of cells."""
    out = ()
    for k in tl.static_range(len(arrays)):
        out = out + (tl.load(arrays[k] + base + at),)
    return out


@triton.jit
def history_offsets(step, tile, d, box):
    """(first cell, block offsets) in the history of a step: dense rows, see `wavesim.history`."""
    _, shot, z0, y0, x0 = tile
    row, plane = 4 * box[3], 4 * box[4]
    first = (step.to(tl.int64) * box[9] + shot) * box[5] + z0.to(tl.int64) * plane + y0 * row + x0
    return tl.multiple_of(first, 4), d[0] * plane + d[1] * row + d[2]


@triton.jit
def in_history(tile, d, box):
    """Which cells of a boundary tile the history has, rows to their end, so that four in a row
    are always of a kind; interior tiles lie in the box whole."""
    _, _, z0, y0, x0 = tile
    inside = (z0 + d[0] < box[0]) & (y0 + d[1] < box[1])
    return inside & (x0 + d[2] < 4 * box[3])


@triton.jit
def keep_history(values, hist, step, tile, d, box, LAYERS: tl.constexpr):
    """Store a block's history values of a step."""
    first, at = history_offsets(step, tile, d, box)
    for k in tl.static_range(len(hist)):
        if LAYERS:
            mask = in_history(tile, d, box)
            tl.store(hist[k] + first + at, values[k], mask=mask, cache_modifier=".cs")
        else:
            tl.store(hist[k] + first + at, values[k], cache_modifier=".cs")


@triton.jit
def past(hist, step, tile, d, box, LAYERS: tl.constexpr):
    """A block's history values of a step, zero outside the box."""
    first, at = history_offsets(step, tile, d, box)
    out = ()
    for k in tl.static_range(len(hist)):
        if LAYERS:
            mask = in_history(tile, d, box)
            value = tl.load(
                hist[k] + first + at, mask=mask, other=0.0, eviction_policy="evict_first"
            )
        else:
            value = tl.load(hist[k] + first + at, eviction_policy="evict_first")
        out = out + (value,)
    return out


@triton.jit
def memory_cells(tile, d, layers, box, AXIS: tl.constexpr):
    """Where a boundary tile lies in an axis' memory: (first cell, block offsets, stride)."""
    _, shot, z0, y0, x0 = tile
    MZ, MY = layers[5 * AXIS + 1], layers[5 * AXIS + 2]
    start = tile[2 + AXIS]
    origin = tl.where(start < box[6 + AXIS], layers[5 * AXIS + 3], layers[5 * AXIS + 4])
    first = shot * layers[5 * AXIS] + origin + z0.to(tl.int64) * MZ + y0.to(tl.int64) * MY + x0
    stride = MZ if AXIS == 0 else (MY if AXIS == 1 else 1)
    return tl.multiple_of(first, 16), d[0] * MZ + d[1] * MY + d[2], stride
