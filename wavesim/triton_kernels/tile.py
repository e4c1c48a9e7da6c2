"""What both directions do with a tile: its cells, its coefficients, its place in the history.

Offsets of cells inside a block are 32-bit, those of blocks 64-bit. Sizes and layers are the tuples
of `wavesim.layout.Sizes`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.constexpr_function
def members(SLOTS, group):
    """A group of SLOTS: the number of groups, their lengths, then their members one after another
    (nested constexprs do not compile)."""
    groups = SLOTS[0]
    start = 1 + groups + sum(SLOTS[1 : 1 + group])
    return tuple(SLOTS[start : start + SLOTS[1 + group]])


@triton.constexpr_function
def lacking(numbers, others):
    """Which of some numbers are not among others."""
    return tuple(n not in others for n in numbers)


@triton.jit
def pick(items, NUMBERS: tl.constexpr):
    """Some of several items."""
    out = ()
    for k in tl.static_range(len(NUMBERS)):
        out = out + (items[NUMBERS[k]],)
    return out


@triton.jit
def store_all(values, arrays, NUMBERS: tl.constexpr, base, at):
    """Store values to some of several arrays at a block of cells."""
    for k in tl.static_range(len(NUMBERS)):
        tl.store(arrays[NUMBERS[k]] + base + at, values[k])


@triton.jit
def store_late(late, write, COLUMNS: tl.constexpr):
    """The memories of all derivatives that left them to be stored."""
    for n in tl.static_range(len(late)):
        if len(late[n]) > 0:
            where, on, kept = late[n]
            for k in tl.static_range(len(kept)):
                tl.store(write[COLUMNS[1 + 6 * n + 5] + k] + where, kept[k], mask=on)


@triton.jit
def choose(condition, yes, no):
    """One of two tuples of pointers; ``no`` if the other is empty."""
    if len(yes) == 0:
        out = no
    else:
        out = ()
        for k in tl.static_range(len(yes)):
            out = out + (tl.where(condition, yes[k], no[k]),)
    return out


@triton.jit
def counter_of(counters, shot, tiles):
    """The first of a shot's counters: one to a tile, whole cache lines to a shot."""
    return counters + shot * ((tiles + 31) // 32 * 32)


@triton.jit
def arrive(counter):
    """Count one more stage or program; what this program wrote before is visible to those that
    wait for it."""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release", scope="gpu")


@triton.jit
def wait_for_all(counter, target):
    """Wait until ``target`` programs arrived at a counter. What they wrote before is then visible
    to loads of this program.

    On an H200 one thread that waits by loads, in inline PTX, takes up to a half longer.
    """
    while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < target:
        pass
    tl.debug_barrier()


@triton.jit
def wait_for_near(counters, target):
    """Wait until every one of a block of counters has come to ``target``, as `wait_for_all`."""
    while tl.min(tl.atomic_add(counters, 0, sem="acquire", scope="gpu")) < target:
        pass
    tl.debug_barrier()


@triton.jit
def tile_and_shot(shots, tiles, SHOT_FASTEST: tl.constexpr):
    """Which tile of which of a launch's shots a program computes."""
    program = tl.program_id(0)
    if SHOT_FASTEST:
        number, shot = program // shots, program % shots
    else:
        number, shot = program % tiles, program // tiles
    return number, shot


@triton.jit
def place_of(table, number):
    """(kind, z0, y0, x0) of a tile of the table."""
    row = table + 4 * number
    return tl.load(row), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3)


@triton.jit
def tile_of(place, shot):
    """(kind, shot, z0, y0, x0) of a tile that lies at (kind, z0, y0, x0)."""
    return place[0], shot.to(tl.int64), place[1], place[2], tl.multiple_of(place[3], 16)


@triton.jit
def per_tile(numbers, part):
    """The same numbers, but as if something of the tile had a part in the strides: or the compiler
    computes every offset before the loops, and keeps more of them than there are registers.
    part: below 16."""
    factors, profiles, sizes, layers, box = numbers
    zero = part >> 4
    loose = ()
    for k in tl.static_range(len(layers)):
        loose = loose + (tl.multiple_of(layers[k] + zero, 16),)
    SS, SZ, SY, origin, model_stride, L = sizes
    SZ, SY = tl.multiple_of(SZ + zero, 16), tl.multiple_of(SY + zero, 16)
    return factors, profiles, (SS, SZ, SY, origin, model_stride, L + zero), loose, box


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
def load_all(arrays, NUMBERS: tl.constexpr, base, at):
    """The values of some of several arrays at a block of cells."""
    out = ()
    for k in tl.static_range(len(NUMBERS)):
        out = out + (tl.load(arrays[NUMBERS[k]] + base + at),)
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
def keep_history(values, hist, NUMBERS: tl.constexpr, step, tile, d, box, LAYERS: tl.constexpr):
    """Store a block's history values of a step."""
    first, at = history_offsets(step, tile, d, box)
    for k in tl.static_range(len(NUMBERS)):
        to = hist[NUMBERS[k]] + first + at
        if LAYERS:
            mask = in_history(tile, d, box)
            tl.store(to, values[k], mask=mask, cache_modifier=".cs")
        else:
            tl.store(to, values[k], cache_modifier=".cs")


@triton.jit
def past(hist, NUMBERS: tl.constexpr, step, tile, d, box, LAYERS: tl.constexpr):
    """A block's history values of a step, zero outside the box."""
    first, at = history_offsets(step, tile, d, box)
    out = ()
    for k in tl.static_range(len(NUMBERS)):
        start = hist[NUMBERS[k]] + first + at
        if LAYERS:
            mask = in_history(tile, d, box)
            value = tl.load(start, mask=mask, other=0.0, eviction_policy="evict_first")
        else:
            value = tl.load(start, eviction_policy="evict_first")
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
