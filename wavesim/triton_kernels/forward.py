"""One stage of a forward step in one launch: record, update, keep history, inject."""

from __future__ import annotations

import triton
import triton.language as tl

from .metadata import launch_metadata
from .points import after_tile, before_tile, facts_of
from .stencil import central, load_if, second, staggered
from .tile import (
    arrive,
    block_offsets,
    cells,
    choose,
    counter_of,
    keep_history,
    load_all,
    members,
    memory_cells,
    past,
    store_all,
    store_late,
    tile_and_shot,
    wait_for_all,
    wait_for_near,
)


@triton.jit
def second_layer(f, at, s, rh, rh2, prof, i, L, read, spot, on, STENCIL: tl.constexpr):
    """Pasalic and McGarry (2010): ``t = (1+e) D2 u + de D1 u + D1 P``, result ``(1+e) t + c Z``,
    with the memories ``P <- c (e D1 u + P)`` (that is c psi) and ``Z <- e t + c Z``."""
    first, mo, ms = spot
    p, z = read[0] + first, read[1] + first
    c, e, de = tl.load(prof + i), tl.load(prof + L + i), tl.load(prof + 2 * L + i)
    du = central(f, at, s, rh, None, STENCIL)
    t = (1 + e) * second(f, at, s, rh2, STENCIL) + de * du + central(p, mo, ms, rh, on, STENCIL)
    cz = c * load_if(z + mo, on)
    return (1 + e) * t + cz, (c * (e * du + load_if(p + mo, on)), e * t + cz)


@triton.jit
def staggered_layer(
    f, at, s, rh, prof, i, L, read, spot, on, SIDE: tl.constexpr, STENCIL: tl.constexpr
):
    """``psi <- b psi + a D f``, result ``D f / kappa + psi``."""
    first, mo, _ = spot
    HALF: tl.constexpr = 3 if SIDE > 0 else 0
    rows = prof + HALF * L + i
    d = staggered(f, at, s, rh, None, SIDE, STENCIL)
    psi = tl.load(rows) * load_if(read + first + mo, on) + tl.load(rows + L) * d
    return d * tl.load(rows + 2 * L) + psi, (psi,)


@triton.jit
def layered(
    tile, d, f, at, s, rh, rh2, numbers, read, spot, on, AXIS: tl.constexpr, SIDE: tl.constexpr,
    M: tl.constexpr, STENCIL: tl.constexpr,
):  # fmt: skip
    """The derivative where a layer is felt, and what its memories become."""
    L = numbers[2][5]
    prof = numbers[1] + AXIS * 6 * L + 16 + tile[2 + AXIS]
    if SIDE == 0:
        value, kept = second_layer(
            f, at, s, rh, rh2, prof, d[AXIS], L, (read[M], read[M + 1]), spot, on, STENCIL
        )
    else:
        value, kept = staggered_layer(
            f, at, s, rh, prof, d[AXIS], L, read[M], spot, on, SIDE, STENCIL
        )
    return value, kept


@triton.jit
def plain(f, at, s, rh, rh2, SIDE: tl.constexpr, STENCIL: tl.constexpr):
    """The derivative where no layer is felt."""
    if SIDE == 0:
        value = second(f, at, s, rh2, STENCIL)
    else:
        value = staggered(f, at, s, rh, None, SIDE, STENCIL)
    return value


@triton.jit
def derivative(
    tile, d, f, at, numbers, read, write,
    COLUMNS: tl.constexpr, n: tl.constexpr, STENCIL: tl.constexpr, EARLY: tl.constexpr,
    LAYERS: tl.constexpr,
):  # fmt: skip
    """Derivative number n of a stage, with its layer in tiles that feel one; EARLY: and where its
    memories lie, whether the tile feels them, and their values, to be stored."""
    factors, _, sizes, layers, box = numbers
    AXIS: tl.constexpr = COLUMNS[1 + 6 * n + 1]
    SIDE: tl.constexpr = COLUMNS[1 + 6 * n + 2]
    M: tl.constexpr = COLUMNS[1 + 6 * n + 5]
    s = sizes[1] if AXIS == 0 else (sizes[2] if AXIS == 1 else 1)
    rh, rh2 = tl.load(factors + AXIS), tl.load(factors + 3 + AXIS)
    late = ()
    if LAYERS and M >= 0:
        on = (tile[0] & (1 << AXIS)) > 0
        if EARLY:
            spot = memory_cells(tile, d, layers, box, AXIS)
            value, kept = layered(
                tile, d, f, at, s, rh, rh2, numbers, read, spot, on, AXIS, SIDE, M, STENCIL
            )
            late = (spot[0] + spot[1], on, kept)
        else:
            if on:
                spot = memory_cells(tile, d, layers, box, AXIS)
                value, kept = layered(
                    tile, d, f, at, s, rh, rh2, numbers, read, spot, None, AXIS, SIDE, M, STENCIL
                )
                for k in tl.static_range(len(kept)):
                    tl.store(write[M + k] + spot[0] + spot[1], kept[k])
            else:
                value = plain(f, at, s, rh, rh2, SIDE, STENCIL)
    else:
        value = plain(f, at, s, rh, rh2, SIDE, STENCIL)
    return value, late


@triton.jit
def forward_tile(
    tile, numbers, arrays, step, wait,
    UPDATE: tl.constexpr, HISTORY: tl.constexpr, PUSH: tl.constexpr, COLUMNS: tl.constexpr,
    SLOTS: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr, EARLY: tl.constexpr,
    LAYERS: tl.constexpr,
):  # fmt: skip
    """``targets <- update(old, reads, g, coefficients)`` on one block of cells; of a tangent run
    plus ``PUSH(history, changes)``, the history being that of the run it belongs to.

    EARLY: ask for a block's own values first, which takes registers; what the layers store keeps
    later loads from being asked for before.
    """
    fields, coefs, changes, read, write, hist, _, _ = arrays
    TARGETS: tl.constexpr = members(SLOTS, 1)
    COEFS: tl.constexpr = members(SLOTS, 4)
    HIST: tl.constexpr = members(SLOTS, 5)
    d = block_offsets(BLOCKS, LAYERS)
    at, base, cbase = cells(tile, d, numbers[2])
    if EARLY:
        old = load_all(fields, TARGETS, base, at)
        reads = load_all(fields, members(SLOTS, 0), base, at)
        model = load_all(coefs, COEFS, cbase, at)
        wait_for_near(wait[0], wait[1])
    GROUPS: tl.constexpr = COLUMNS[0]
    TERMS: tl.constexpr = (len(COLUMNS) - 1) // 6
    values, late = (), ()
    for n in tl.static_range(TERMS):
        value, its = derivative(
            tile, d, fields[COLUMNS[1 + 6 * n]] + base, at, numbers, read, write,
            COLUMNS, n, STENCIL, EARLY, LAYERS,
        )  # fmt: skip
        values, late = values + (value,), late + (its,)
    g = ()
    for group in tl.static_range(GROUPS):
        total = tl.zeros(at.shape, fields[0].dtype.element_ty)
        for n in tl.static_range(TERMS):
            if COLUMNS[1 + 6 * n + 3] == group:
                if COLUMNS[1 + 6 * n + 4] > 0:
                    total += values[n]
                else:
                    total -= values[n]
        g = g + (total,)
    if not EARLY:
        old = load_all(fields, TARGETS, base, at)
        reads = load_all(fields, members(SLOTS, 0), base, at)
        model = load_all(coefs, COEFS, cbase, at)
    new = UPDATE(old, reads, g, model)
    store_late(late, write, COLUMNS)
    if PUSH is not None:
        kept = past(hist, HIST, step, tile, d, numbers[4], LAYERS)
        more = PUSH(kept, load_all(changes, COEFS, cbase, at))
        for k in tl.static_range(len(TARGETS)):
            tl.store(fields[TARGETS[k]] + base + at, new[k] + more[k])
    else:
        store_all(new, fields, TARGETS, base, at)
        if len(HIST) > 0:
            values = new
            if HISTORY is not None:
                values = HISTORY(old, reads, g)
            keep_history(values, hist, HIST, step, tile, d, numbers[4], LAYERS)


@triton.jit
def forward_stage(
    number, facts, shot, table, numbers, arrays, step, wait,
    UPDATE: tl.constexpr, HISTORY: tl.constexpr, PUSH: tl.constexpr, COLUMNS: tl.constexpr,
    SLOTS: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr, ONCE: tl.constexpr,
):  # fmt: skip
    """A tile of one shot: ``forward_tile`` between the recording and the injection of its points.

    COLUMNS: groups, then (source, axis, side, group, sign, first memory or -1) per derivative.
    SLOTS: fields read, targets, recorded, injected into; coefficients; history; the first of the
    stage's recordings and injections; steps by which injections are late. BLOCKS: interior block,
    then boundary block. HISTORY: None if that is the targets. PUSH: None, or of a tangent run
    the effect of changed coefficients. ONCE:
    the tile is its program's only one, and these ``facts`` of it are known.
    """
    tile, numbers, points = before_tile(
        number, facts, shot, table, numbers, arrays[0], arrays[6], step, SLOTS, ONCE
    )
    if tile[0] == 0:
        forward_tile(
            tile, numbers, arrays, step, wait,
            UPDATE, HISTORY, PUSH, COLUMNS, SLOTS, STENCIL, BLOCKS, ONCE, False,
        )  # fmt: skip
    else:
        forward_tile(
            tile, numbers, arrays, step, wait,
            UPDATE, HISTORY, PUSH, COLUMNS, SLOTS, STENCIL, BLOCKS, ONCE, True,
        )  # fmt: skip
    after_tile(points, arrays[0], arrays[6], arrays[7], step, SLOTS, ONCE)


@triton.jit(launch_metadata=launch_metadata, do_not_specialize=["step", "first_shot", "box"])
def stage_forward_kernel(
    table, factors, profiles, clock, step, first_shot, shots, fields, coefs, changes, read, write,
    hist, recording, injecting, sizes, layers, box,
    UPDATE: tl.constexpr, HISTORY: tl.constexpr, PUSH: tl.constexpr, COLUMNS: tl.constexpr,
    SLOTS: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr,
    SHOT_FASTEST: tl.constexpr,
):  # fmt: skip
    """A stage of step ``clock + step`` on a tile of a shot, see ``forward_stage``."""
    number, shot = tile_and_shot(shots, box[10], SHOT_FASTEST)
    shot += first_shot
    arrays = (fields, coefs, changes, read, write, hist, recording, injecting)
    forward_stage(
        number, None, shot, table, (factors, profiles, sizes, layers, box), arrays,
        tl.load(clock) + step, None,
        UPDATE, HISTORY, PUSH, COLUMNS, SLOTS, STENCIL, BLOCKS, False,
    )  # fmt: skip


@triton.jit
def forward_round(
    workers, facts, shot, table, numbers, arrays, step, done, counter, near,
    UPDATE: tl.constexpr, HISTORY: tl.constexpr, PUSH: tl.constexpr, COLUMNS: tl.constexpr,
    SLOTS: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr, ONCE: tl.constexpr,
):  # fmt: skip
    """A stage on all tiles of a program, ``workers`` being its number and how many share a shot,
    after ``done`` stages. ONCE: it waits for the programs ``near``, and has asked for its only
    tile's own values by then; else for all, when its tiles are done."""
    worker, programs = workers
    wait = (near, done) if ONCE else None
    for number in range(worker, numbers[4][10], programs):
        forward_stage(
            number, facts, shot, table, numbers, arrays, step, wait,
            UPDATE, HISTORY, PUSH, COLUMNS, SLOTS, STENCIL, BLOCKS, ONCE,
        )  # fmt: skip
    arrive(counter)
    if not ONCE:
        wait_for_all(counter, (done + 1) * programs)


@triton.jit(
    launch_metadata=launch_metadata,
    do_not_specialize=["step", "steps", "first_shot", "programs", "box"],
)
def loop_forward_kernel(
    counters, table, near, factors, profiles, step, steps, first_shot, shots, programs, fields,
    turned, coefs, changes, read, write, hist, recording, injecting, sizes, layers, box,
    UPDATE: tl.constexpr, HISTORY: tl.constexpr, PUSH: tl.constexpr, COLUMNS: tl.constexpr,
    SLOTS: tl.constexpr,
    UPDATE2: tl.constexpr, HISTORY2: tl.constexpr, PUSH2: tl.constexpr, COLUMNS2: tl.constexpr,
    SLOTS2: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr, ONCE: tl.constexpr,
    NEAR: tl.constexpr,
):  # fmt: skip
    """Steps ``step`` to ``step + steps`` of one or two stages (UPDATE2 None: one).

    ``programs`` of them share a shot: tiles are dealt out cyclically, and all wait for each other
    after a stage. ONCE: one to each, and it waits for the NEAR ones beside it. After an odd number
    of steps the fields are ``turned``, and the buffers of the memories changed over.
    """
    STAGES: tl.constexpr = 1 if UPDATE2 is None else 2
    worker, shot = tl.program_id(0) // shots, first_shot + tl.program_id(0) % shots
    numbers, workers = (factors, profiles, sizes, layers, box), (worker, programs)
    counter = counter_of(counters, shot, box[10])
    facts, facts2, beside = None, None, None
    if ONCE:
        beside = counter + tl.load(near + worker * NEAR + tl.arange(0, NEAR))
        counter += worker
        facts = facts_of(worker, shot, table, recording, injecting, box, SLOTS)
        if UPDATE2 is not None:
            facts2 = facts_of(worker, shot, table, recording, injecting, box, SLOTS2)
    for n in range(steps):
        odd, done = n % 2 == 1, n * STAGES
        arrays = (
            choose(odd, turned, fields), coefs, changes, choose(odd, write, read),
            choose(odd, read, write), hist, recording, injecting,
        )  # fmt: skip
        forward_round(
            workers, facts, shot, table, numbers, arrays, step + n, done, counter, beside,
            UPDATE, HISTORY, PUSH, COLUMNS, SLOTS, STENCIL, BLOCKS, ONCE,
        )  # fmt: skip
        if UPDATE2 is not None:
            forward_round(
                workers, facts2, shot, table, numbers, arrays, step + n, done + 1, counter, beside,
                UPDATE2, HISTORY2, PUSH2, COLUMNS2, SLOTS2, STENCIL, BLOCKS, ONCE,
            )  # fmt: skip
