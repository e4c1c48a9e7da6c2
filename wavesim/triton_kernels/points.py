"""Recording and injection by the tile that owns a cell; `lists` says which points it has.

Points are sorted by shot, tile and cell; coincident ones follow each other, and the first of them
adds them up in their order, so that the sum does not depend on how the work is dealt out.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .tile import lacking, members, per_tile, place_of, tile_of

LANES = tl.constexpr(32)


@triton.jit
def points_of(lists, key, keys, SLOTS: tl.constexpr, START: tl.constexpr, EACH: tl.constexpr):
    """(start, stop) of a key's points for every channel, and the length of a step's samples; EACH
    of the lists are a channel's."""
    out = ()
    for k in tl.static_range(len(SLOTS)):
        offsets = lists[START + EACH * k]
        start, stop = tl.load(offsets + key).to(tl.int32), tl.load(offsets + key + 1).to(tl.int32)
        out = out + ((start, stop, tl.load(offsets + keys)),)
    return out


@triton.jit
def key_of(number, shot, box):
    """Where the offsets of a shot's tile lie, and how many there are before the last one."""
    keys = box[10] + 1
    return shot * keys + number, box[9] * keys


@triton.jit
def facts_of(number, shot, table, recording, injecting, box, SLOTS: tl.constexpr):
    """What is the same in all steps of a tile: its place, the points that it records and where the
    first of them lie, and those that it injects."""
    key, keys = key_of(number, shot, box)
    STARTS: tl.constexpr = members(SLOTS, 6)
    RECORDED: tl.constexpr = members(SLOTS, 2)
    recorded, cells = points_of(recording, key, keys, RECORDED, STARTS[0], 3), ()
    for k in tl.static_range(len(RECORDED)):
        lane = recorded[k][0] + tl.arange(0, LANES)
        at = recording[STARTS[0] + 3 * k + 1] + lane
        cells = cells + (tl.load(at, mask=lane < recorded[k][1], other=0),)
    injected = points_of(injecting, key, keys, members(SLOTS, 3), STARTS[1], 4)
    return place_of(table, number), recorded, cells, injected


@triton.jit
def ask(fields, first, points, cells, SLOTS: tl.constexpr):
    """The values of every channel's first points, for ``record_asked``."""
    out = ()
    for k in tl.static_range(len(SLOTS)):
        lane = points[k][0] + tl.arange(0, LANES)
        at = fields[SLOTS[k]] + first + cells[k]
        out = out + (tl.load(at, mask=lane < points[k][1], other=0.0),)
    return out


@triton.jit
def record_asked(recording, step, points, values, SLOTS: tl.constexpr, START: tl.constexpr):
    """Store what was asked for before the tile was worked on: that does not wait for them then."""
    for k in tl.static_range(len(SLOTS)):
        start, stop, length = points[k]
        lane = start + tl.arange(0, LANES)
        row = recording[START + 3 * k + 2] + step * length
        tl.store(row + lane, values[k], mask=lane < stop)


@triton.jit
def record(
    fields, first, recording, step, points, SLOTS: tl.constexpr, KEPT: tl.constexpr,
    START: tl.constexpr, ASKED: tl.constexpr,
):  # fmt: skip
    """``data[step, j] = field[cells[j]]`` for a tile's points of every channel, but those asked
    for. KEPT: whether the tile leaves a field as it is.

    Three lists a channel, from ``recording[START]`` on: offsets, cells, data.
    """
    for k in tl.static_range(len(SLOTS)):
        start, stop, length = points[k]
        field, cells = fields[SLOTS[k]] + first, recording[START + 3 * k + 1]
        row = recording[START + 3 * k + 2] + step * length
        for some in range(start + ASKED, stop, LANES):
            lane = some + tl.arange(0, LANES)
            used = lane < stop
            at = field + tl.load(cells + lane, mask=used, other=0)
            tl.store(row + lane, tl.load(at, mask=used, other=0.0), mask=used)
        if not KEPT[k]:  # noqa: SIM102 - the one is decided when compiling
            if stop > start:
                tl.debug_barrier()


@triton.jit
def inject_channel(field, cells, runs, row, start, stop):
    """``field[cells[j]] += row[j]`` for the points from start to stop, after the tile was stored;
    the first of those in one cell adds them all."""
    for some in range(start, stop, LANES):
        lane = some + tl.arange(0, LANES)
        run = tl.load(runs + lane, mask=lane < stop, other=0)
        leads = run > 0
        total = tl.load(row + lane, mask=leads, other=0.0)
        at = field + tl.load(cells + lane, mask=leads, other=0)
        for r in range(1, tl.max(run, axis=0)):
            total += tl.load(row + lane + r, mask=r < run, other=0.0)
        tl.debug_barrier()
        tl.store(at, tl.load(at, mask=leads, other=0.0) + total, mask=leads)


@triton.jit
def inject(
    fields, first, injecting, step, points, SLOTS: tl.constexpr, SHIFTS: tl.constexpr,
    START: tl.constexpr,
):  # fmt: skip
    """Inject a tile's points of every channel; returns how many there are.

    SHIFTS: steps by which each injection is late. Four lists a channel, from ``injecting[START]``
    on: offsets, cells, runs, data.
    """
    count = step * 0
    for k in tl.static_range(len(SLOTS)):
        start, stop, length = points[k]
        inject_channel(
            fields[SLOTS[k]] + first, injecting[START + 4 * k + 1], injecting[START + 4 * k + 2],
            injecting[START + 4 * k + 3] + (step + SHIFTS[k]) * length, start, stop,
        )  # fmt: skip
        count += stop - start
    return count


@triton.jit
def before_tile(
    number, facts, shot, table, numbers, fields, recording, step, SLOTS: tl.constexpr,
    ONCE: tl.constexpr,
):  # fmt: skip
    """Record a tile's points before it changes; ONCE: ask for the first of them, its ``facts``
    being known. Returns the tile, its numbers, and what `after_tile` needs of the points."""
    STARTS: tl.constexpr = members(SLOTS, 6)
    RECORDED: tl.constexpr = members(SLOTS, 2)
    KEPT: tl.constexpr = lacking(RECORDED, members(SLOTS, 1))
    box = numbers[4]
    key, keys = key_of(number, shot, box)
    if ONCE:
        place, recorded, cells, injected = facts
        part = number >> 26
    else:
        place = place_of(table, number)
        recorded = points_of(recording, key, keys, RECORDED, STARTS[0], 3)
        injected = ()
        part = place[0]
    tile = tile_of(place, shot)
    numbers = per_tile(numbers, part)
    first = tile[1] * numbers[2][0]
    values = ()
    if ONCE:
        values = ask(fields, first, recorded, cells, RECORDED)
    record(
        fields, first, recording, step, recorded, RECORDED, KEPT, STARTS[0], LANES if ONCE else 0
    )
    return tile, numbers, (key, keys, first, recorded, values, injected)


@triton.jit
def after_tile(points, fields, recording, injecting, step, SLOTS: tl.constexpr, ONCE: tl.constexpr):
    """Store what was asked for, and inject; returns how many points were injected into."""
    STARTS: tl.constexpr = members(SLOTS, 6)
    INJECTED: tl.constexpr = members(SLOTS, 3)
    key, keys, first, recorded, values, injected = points
    if ONCE:
        record_asked(recording, step, recorded, values, members(SLOTS, 2), STARTS[0])
    else:
        injected = points_of(injecting, key, keys, INJECTED, STARTS[1], 4)
    return inject(fields, first, injecting, step, injected, INJECTED, members(SLOTS, 7), STARTS[1])
