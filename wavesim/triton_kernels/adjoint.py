"""One stage of an adjoint step in one launch: the exact transpose of a forward stage, gathered.

The pointwise cotangent ``q`` of a derivative is evaluated again at each neighbour the transposed
stencil asks for, or was stored by the stage that ran before; nothing is scattered, so there are no
atomics and the bits repeat.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .metadata import launch_metadata
from .points import LANES, ask, facts_of, inject, points_of, record, record_asked
from .stencil import load_if, pull
from .tile import (
    arrive,
    block_offsets,
    cells,
    choose,
    counter_of,
    lacking,
    load_all,
    members,
    memory_cells,
    past,
    per_tile,
    pick,
    place_of,
    store_all,
    store_late,
    tile_and_shot,
    tile_of,
    wait_for_all,
    wait_for_near,
)


@triton.jit
def second_transposed(
    b, c, base, cbase, at, s, rh2, PULL: tl.constexpr, GROUP: tl.constexpr, SIGN: tl.constexpr,
    STENCIL: tl.constexpr,
):  # fmt: skip
    """``D2 q``: the collocated second derivative is symmetric."""
    R: tl.constexpr = STENCIL[0]
    q0 = pull(b, c, base, cbase, at, PULL, GROUP, SIGN)
    total = q0 * 0.0
    for k in tl.static_range(1, R + 1):
        upper = pull(b, c, base, cbase, at + k * s, PULL, GROUP, SIGN) - q0
        total += STENCIL[k] * (
            upper + (pull(b, c, base, cbase, at - k * s, PULL, GROUP, SIGN) - q0)
        )
    return total * rh2


@triton.jit
def _cotangents(q, prof, i, L, p, z, mo, on):
    """``t = (1+e) q + Z``, ``(1+e) t`` and ``de t + P`` at a block of cells: see second_layer."""
    e, de = tl.load(prof + L + i), tl.load(prof + 2 * L + i)
    t = (1 + e) * q + load_if(z + mo, on)
    return t, (1 + e) * t, de * t + load_if(p + mo, on)


@triton.jit
def second_layer_transposed(
    b, c, base, cbase, at, s, rh, rh2, prof, i, L, read, spot, on, PULL: tl.constexpr,
    GROUP: tl.constexpr, SIGN: tl.constexpr, STENCIL: tl.constexpr,
):  # fmt: skip
    """Transposes second_layer: ``D2 ((1+e) t) - D1 (de t + P)`` with ``t = (1+e) q + Z``, where
    ``Z <- c (e q + Z)`` is e times the adjoint of zeta and ``P <- c P - c e D1 t`` is c e times
    that of the memory ``c psi``."""
    R: tl.constexpr = STENCIL[0]
    first, mo, ms = spot
    p, z = read[0] + first, read[1] + first
    q0 = pull(b, c, base, cbase, at, PULL, GROUP, SIGN)
    _, a0, _ = _cotangents(q0, prof, i, L, p, z, mo, on)
    d2, d1, dt = q0 * 0.0, q0 * 0.0, q0 * 0.0
    for k in tl.static_range(1, R + 1):
        qu = pull(b, c, base, cbase, at + k * s, PULL, GROUP, SIGN)
        ql = pull(b, c, base, cbase, at - k * s, PULL, GROUP, SIGN)
        tu, au, bu = _cotangents(qu, prof, i + k, L, p, z, mo + k * ms, on)
        t_low, al, bl = _cotangents(ql, prof, i - k, L, p, z, mo - k * ms, on)
        d2 += STENCIL[k] * ((au - a0) + (al - a0))
        d1 += STENCIL[R + k] * (bu - bl)
        dt += STENCIL[R + k] * (tu - t_low)
    decay, e = tl.load(prof + i), tl.load(prof + L + i)
    own_p, own_z = load_if(p + mo, on), load_if(z + mo, on)
    kept = (decay * own_p - decay * e * (dt * rh), decay * (e * q0 + own_z))
    return d2 * rh2 - d1 * rh, kept


@triton.jit
def staggered_transposed(
    b, c, base, cbase, at, s, rh, PULL: tl.constexpr, GROUP: tl.constexpr, SIGN: tl.constexpr,
    SIDE: tl.constexpr, STENCIL: tl.constexpr,
):  # fmt: skip
    """Minus the first derivative of q to the other side."""
    R: tl.constexpr = STENCIL[0]
    UP: tl.constexpr = 1 if SIDE > 0 else 0
    total = pull(b, c, base, cbase, at, PULL, GROUP, SIGN) * 0.0
    for k in tl.static_range(1, R + 1):
        upper = pull(b, c, base, cbase, at + (k - UP) * s, PULL, GROUP, SIGN)
        total += STENCIL[2 * R + k] * (
            upper - pull(b, c, base, cbase, at - (k - 1 + UP) * s, PULL, GROUP, SIGN)
        )
    return -total * rh


@triton.jit
def _staggered_cotangent(q, rows, i, L, psi, mo, on):
    """``q / kappa + a (q + psi)``: the memory's recursion precedes the derivative's transpose."""
    return q * tl.load(rows + 2 * L + i) + tl.load(rows + L + i) * (q + load_if(psi + mo, on))


@triton.jit
def staggered_layer_transposed(
    b, c, base, cbase, at, s, rh, prof, i, L, read, spot, on, PULL: tl.constexpr,
    GROUP: tl.constexpr, SIGN: tl.constexpr, SIDE: tl.constexpr, STENCIL: tl.constexpr,
):  # fmt: skip
    """Transposes staggered_layer: ``psi <- b (psi + q)`` beside the transposed derivative."""
    R: tl.constexpr = STENCIL[0]
    first, mo, ms = spot
    old = read + first
    UP: tl.constexpr = 1 if SIDE > 0 else 0
    HALF: tl.constexpr = 3 if SIDE > 0 else 0
    rows = prof + HALF * L
    q0 = pull(b, c, base, cbase, at, PULL, GROUP, SIGN)
    total = q0 * 0.0
    for k in tl.static_range(1, R + 1):
        up, down = k - UP, k - 1 + UP
        qu = pull(b, c, base, cbase, at + up * s, PULL, GROUP, SIGN)
        ql = pull(b, c, base, cbase, at - down * s, PULL, GROUP, SIGN)
        upper = _staggered_cotangent(qu, rows, i + up, L, old, mo + up * ms, on)
        total += STENCIL[2 * R + k] * (
            upper - _staggered_cotangent(ql, rows, i - down, L, old, mo - down * ms, on)
        )
    return -total * rh, (tl.load(rows + i) * (q0 + load_if(old + mo, on)),)


@triton.jit
def plain_transposed(
    b, c, base, cbase, at, s, rh, rh2, PULL: tl.constexpr, GROUP: tl.constexpr,
    SIGN: tl.constexpr, SIDE: tl.constexpr, STENCIL: tl.constexpr,
):  # fmt: skip
    """The transposed derivative where no layer is felt."""
    if SIDE == 0:
        value = second_transposed(b, c, base, cbase, at, s, rh2, PULL, GROUP, SIGN, STENCIL)
    else:
        value = staggered_transposed(b, c, base, cbase, at, s, rh, PULL, GROUP, SIGN, SIDE, STENCIL)
    return value


@triton.jit
def layered_transposed(
    tile, d, b, c, base, cbase, at, s, rh, rh2, numbers, read, spot, on, PULL: tl.constexpr,
    AXIS: tl.constexpr, SIDE: tl.constexpr, GROUP: tl.constexpr, SIGN: tl.constexpr,
    M: tl.constexpr, STENCIL: tl.constexpr,
):  # fmt: skip
    """The transpose where a layer is felt, and what its memories' cotangents become."""
    L = numbers[2][5]
    prof = numbers[1] + AXIS * 6 * L + 16 + tile[2 + AXIS]
    if SIDE == 0:
        value, kept = second_layer_transposed(
            b, c, base, cbase, at, s, rh, rh2, prof, d[AXIS], L, (read[M], read[M + 1]), spot, on,
            PULL, GROUP, SIGN, STENCIL,
        )  # fmt: skip
    else:
        value, kept = staggered_layer_transposed(
            b, c, base, cbase, at, s, rh, prof, d[AXIS], L, read[M], spot, on,
            PULL, GROUP, SIGN, SIDE, STENCIL,
        )  # fmt: skip
    return value, kept


@triton.jit
def transposed(
    tile, d, b, c, base, cbase, at, numbers, read, write, PULL: tl.constexpr,
    COLUMNS: tl.constexpr, n: tl.constexpr, STENCIL: tl.constexpr, EARLY: tl.constexpr,
    LAYERS: tl.constexpr,
):  # fmt: skip
    """The transpose of derivative number n of a stage, see `forward.derivative`."""
    factors, _, sizes, layers, box = numbers
    AXIS: tl.constexpr = COLUMNS[1 + 6 * n + 1]
    SIDE: tl.constexpr = COLUMNS[1 + 6 * n + 2]
    GROUP: tl.constexpr = COLUMNS[1 + 6 * n + 3]
    SIGN: tl.constexpr = COLUMNS[1 + 6 * n + 4]
    M: tl.constexpr = COLUMNS[1 + 6 * n + 5]
    s = sizes[1] if AXIS == 0 else (sizes[2] if AXIS == 1 else 1)
    rh, rh2 = tl.load(factors + AXIS), tl.load(factors + 3 + AXIS)
    late = ()
    if LAYERS and M >= 0:
        on = (tile[0] & (1 << AXIS)) > 0
        if EARLY:
            spot = memory_cells(tile, d, layers, box, AXIS)
            value, kept = layered_transposed(
                tile, d, b, c, base, cbase, at, s, rh, rh2, numbers, read, spot, on,
                PULL, AXIS, SIDE, GROUP, SIGN, M, STENCIL,
            )  # fmt: skip
            late = (spot[0] + spot[1], on, kept)
        else:
            if on:
                spot = memory_cells(tile, d, layers, box, AXIS)
                value, kept = layered_transposed(
                    tile, d, b, c, base, cbase, at, s, rh, rh2, numbers, read, spot, None,
                    PULL, AXIS, SIDE, GROUP, SIGN, M, STENCIL,
                )  # fmt: skip
                for k in tl.static_range(len(kept)):
                    tl.store(write[M + k] + spot[0] + spot[1], kept[k])
            else:
                value = plain_transposed(
                    b, c, base, cbase, at, s, rh, rh2, PULL, GROUP, SIGN, SIDE, STENCIL
                )
    else:
        value = plain_transposed(
            b, c, base, cbase, at, s, rh, rh2, PULL, GROUP, SIGN, SIDE, STENCIL
        )
    return value, late


@triton.jit
def past_and_sums(
    hist, grads, step, tile, d, box, base, at, SLOTS: tl.constexpr, LAYERS: tl.constexpr
):
    """A block's history of a step, and its gradients so far."""
    kept, sums = (), ()
    if len(members(SLOTS, 8)) > 0:
        kept = past(hist, members(SLOTS, 5), step, tile, d, box, LAYERS)
        sums = load_all(grads, members(SLOTS, 8), base, at)
    return kept, sums


@triton.jit
def adjoint_tile(
    tile, numbers, arrays, step, wait,
    PULL: tl.constexpr, FIELDS: tl.constexpr, GRADIENT: tl.constexpr, NEXT: tl.constexpr,
    COLUMNS: tl.constexpr, SLOTS: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr,
    EARLY: tl.constexpr, LAYERS: tl.constexpr,
):  # fmt: skip
    """``out <- pull_fields(out, bar, transposed derivatives, coefficients)`` on one block; and
    ``q <- NEXT(out, its coefficients)`` for the next stage if that does not do it itself."""
    fields, coefs, read, write, hist, grads, _, _, pulled = arrays
    BARS: tl.constexpr = members(SLOTS, 0)
    OUTPUTS: tl.constexpr = members(SLOTS, 1)
    COEFS: tl.constexpr = members(SLOTS, 4)
    GRADS: tl.constexpr = members(SLOTS, 8)
    PULLED: tl.constexpr = members(SLOTS, 9)
    d = block_offsets(BLOCKS, LAYERS)
    at, base, cbase = cells(tile, d, numbers[2])
    if len(PULLED) > 0:
        bars, used = pick(pulled, PULLED), ()
    else:
        bars, used = pick(fields, BARS), pick(coefs, COEFS)
    ANEW: tl.constexpr = PULL if len(PULLED) == 0 else None
    TERMS: tl.constexpr = (len(COLUMNS) - 1) // 6
    # with many gradients their old sums and the history take too many registers
    SOON: tl.constexpr = len(GRADS) == 1 or NEXT is not None
    if EARLY:
        b = load_all(fields, BARS, base, at)
        out = load_all(fields, OUTPUTS, base, at)
        model = load_all(coefs, COEFS, cbase, at)
        kept, sums = past_and_sums(hist, grads, step, tile, d, numbers[4], base, at, SLOTS, LAYERS)
        wait_for_near(wait[0], wait[1])
    values, late = (), ()
    for n in tl.static_range(TERMS):
        value, its = transposed(
            tile, d, bars, used, base, cbase, at, numbers, read, write,
            ANEW, COLUMNS, n, STENCIL, EARLY, LAYERS,
        )  # fmt: skip
        values, late = values + (value,), late + (its,)
    div = ()
    for output in tl.static_range(len(OUTPUTS)):
        total = tl.zeros(at.shape, fields[0].dtype.element_ty)
        for n in tl.static_range(TERMS):
            if COLUMNS[1 + 6 * n] == output:
                total += values[n]
        div = div + (total,)
    if not EARLY:
        b = load_all(fields, BARS, base, at)
        out = load_all(fields, OUTPUTS, base, at)
        model = load_all(coefs, COEFS, cbase, at)
    if SOON and not EARLY:  # loads are not moved before stores
        kept, sums = past_and_sums(hist, grads, step, tile, d, numbers[4], base, at, SLOTS, LAYERS)
    new = FIELDS(out, b, div, model)
    store_late(late, write, COLUMNS)
    store_all(new, fields, OUTPUTS, base, at)
    if NEXT is not None:
        q = NEXT(pick(new, members(SLOTS, 10)), load_all(coefs, members(SLOTS, 11), cbase, at))
        store_all(q, pulled, members(SLOTS, 12), base, at)
    if len(GRADS) > 0:
        if SOON or EARLY:
            more = GRADIENT(b, kept)
            for k in tl.static_range(len(GRADS)):
                tl.store(grads[GRADS[k]] + base + at, sums[k] + more[k])
        else:
            more = GRADIENT(b, past(hist, members(SLOTS, 5), step, tile, d, numbers[4], LAYERS))
            for k in tl.static_range(len(GRADS)):
                to_grad = grads[GRADS[k]] + base + at
                tl.store(to_grad, tl.load(to_grad) + more[k])


@triton.jit
def pull_again(
    tile, numbers, arrays, NEXT: tl.constexpr, SLOTS: tl.constexpr, BLOCKS: tl.constexpr,
    LAYERS: tl.constexpr,
):  # fmt: skip
    """``q`` of a block whose adjoint fields were injected into after it was stored."""
    fields, coefs, pulled = arrays[0], arrays[1], arrays[8]
    at, base, cbase = cells(tile, block_offsets(BLOCKS, LAYERS), numbers[2])
    bars = load_all(pick(fields, members(SLOTS, 1)), members(SLOTS, 10), base, at)
    q = NEXT(bars, load_all(coefs, members(SLOTS, 11), cbase, at))
    store_all(q, pulled, members(SLOTS, 12), base, at)


@triton.jit
def adjoint_stage(
    number, facts, shot, table, numbers, arrays, step, wait,
    PULL: tl.constexpr, FIELDS: tl.constexpr, GRADIENT: tl.constexpr, NEXT: tl.constexpr,
    COLUMNS: tl.constexpr, SLOTS: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr,
    ONCE: tl.constexpr,
):  # fmt: skip
    """A tile of one shot, transposing ``forward_stage``: the bars at source points are the
    amplitudes' cotangents, and the records' cotangents enter the adjoint fields.

    COLUMNS: groups, then (output, axis, side, group, sign, first memory or -1) per derivative.
    SLOTS as forward, with bars and outputs; then the gradients that are added to; the stored
    cotangents that are read; and for NEXT, of the next stage, its bars among the outputs, its
    coefficients, and its stored cotangents.
    """
    STARTS: tl.constexpr = members(SLOTS, 6)
    RECORDED: tl.constexpr = members(SLOTS, 2)
    INJECTED: tl.constexpr = members(SLOTS, 3)
    KEPT: tl.constexpr = lacking(RECORDED, members(SLOTS, 1))
    box = numbers[4]
    key, keys = number * box[9] + shot, box[9] * box[10]
    if ONCE:
        place, recorded, cells, injected = facts
        part = number >> 26
    else:
        place = place_of(table, number)
        recorded = points_of(arrays[6], key, keys, RECORDED, STARTS[0], 3)
        part = place[0]
    tile = tile_of(place, shot)
    numbers = per_tile(numbers, part)
    first = tile[1] * numbers[2][0]
    if ONCE:
        values = ask(arrays[0], first, recorded, cells, RECORDED)
    record(
        arrays[0], first, arrays[6], step, recorded, RECORDED, KEPT, STARTS[0],
        LANES if ONCE else 0,
    )  # fmt: skip
    if tile[0] == 0:
        adjoint_tile(
            tile, numbers, arrays, step, wait,
            PULL, FIELDS, GRADIENT, NEXT, COLUMNS, SLOTS, STENCIL, BLOCKS, ONCE, False,
        )  # fmt: skip
    else:
        adjoint_tile(
            tile, numbers, arrays, step, wait,
            PULL, FIELDS, GRADIENT, NEXT, COLUMNS, SLOTS, STENCIL, BLOCKS, ONCE, True,
        )  # fmt: skip
    if ONCE:
        record_asked(arrays[6], step, recorded, values, RECORDED, STARTS[0])
    else:
        injected = points_of(arrays[7], key, keys, INJECTED, STARTS[1], 4)
    count = inject(
        arrays[0], first, arrays[7], step, injected, INJECTED, members(SLOTS, 7), STARTS[1],
    )  # fmt: skip
    if NEXT is not None:  # noqa: SIM102 - the one is decided when compiling
        if count > 0:
            tl.debug_barrier()
            if tile[0] == 0:
                pull_again(tile, numbers, arrays, NEXT, SLOTS, BLOCKS, False)
            else:
                pull_again(tile, numbers, arrays, NEXT, SLOTS, BLOCKS, True)


@triton.jit(launch_metadata=launch_metadata, do_not_specialize=["step", "first_shot", "box"])
def stage_adjoint_kernel(
    table, factors, profiles, clock, step, first_shot, shots, fields, coefs, read, write, hist,
    grads, recording, injecting, pulled, sizes, layers, box,
    PULL: tl.constexpr, FIELDS: tl.constexpr, GRADIENT: tl.constexpr, NEXT: tl.constexpr,
    COLUMNS: tl.constexpr, SLOTS: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr,
    SHOT_FASTEST: tl.constexpr,
):  # fmt: skip
    """The transpose of a stage of step ``clock + step`` on a tile of a shot."""
    number, shot = tile_and_shot(shots, box[10], SHOT_FASTEST)
    shot += first_shot
    arrays = (fields, coefs, read, write, hist, grads, recording, injecting, pulled)
    adjoint_stage(
        number, None, shot, table, (factors, profiles, sizes, layers, box), arrays,
        tl.load(clock) + step, None,
        PULL, FIELDS, GRADIENT, NEXT, COLUMNS, SLOTS, STENCIL, BLOCKS, False,
    )  # fmt: skip


@triton.jit
def adjoint_round(
    workers, facts, shot, table, numbers, arrays, step, done, counter, near,
    PULL: tl.constexpr, FIELDS: tl.constexpr, GRADIENT: tl.constexpr, NEXT: tl.constexpr,
    COLUMNS: tl.constexpr, SLOTS: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr,
    ONCE: tl.constexpr,
):  # fmt: skip
    """A stage on all tiles of a program, ``workers`` being its number and how many share a shot,
    after ``done`` stages. ONCE: it waits for the programs ``near``, and has asked for its only
    tile's own values by then; else for all, when its tiles are done."""
    worker, programs = workers
    wait = (near, done) if ONCE else None
    for number in range(worker, numbers[4][10], programs):
        adjoint_stage(
            number, facts, shot, table, numbers, arrays, step, wait,
            PULL, FIELDS, GRADIENT, NEXT, COLUMNS, SLOTS, STENCIL, BLOCKS, ONCE,
        )  # fmt: skip
    arrive(counter)
    if not ONCE:
        wait_for_all(counter, (done + 1) * programs)


@triton.jit(
    launch_metadata=launch_metadata,
    do_not_specialize=["step", "steps", "first_shot", "programs", "box"],
)
def loop_adjoint_kernel(
    counters, table, near, factors, profiles, step, steps, first_shot, shots, programs, fields,
    turned, coefs, read, write, hist, grads, recording, injecting, pulled, sizes, layers, box,
    PULL: tl.constexpr, FIELDS: tl.constexpr, GRADIENT: tl.constexpr, NEXT: tl.constexpr,
    COLUMNS: tl.constexpr, SLOTS: tl.constexpr,
    PULL2: tl.constexpr, FIELDS2: tl.constexpr, GRADIENT2: tl.constexpr, NEXT2: tl.constexpr,
    COLUMNS2: tl.constexpr, SLOTS2: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr,
    ONCE: tl.constexpr, NEAR: tl.constexpr,
):  # fmt: skip
    """Steps ``step`` to ``step - steps``, the last stage first: see ``loop_forward_kernel``."""
    STAGES: tl.constexpr = 1 if PULL2 is None else 2
    worker, shot = tl.program_id(0) // shots, first_shot + tl.program_id(0) % shots
    numbers, workers = (factors, profiles, sizes, layers, box), (worker, programs)
    counter = counter_of(counters, shot, box[10])
    facts, facts2, beside = None, None, None
    if ONCE:
        beside = counter + tl.load(near + worker * NEAR + tl.arange(0, NEAR))
        counter += worker
        facts = facts_of(worker, shot, table, recording, injecting, box, SLOTS)
        if PULL2 is not None:
            facts2 = facts_of(worker, shot, table, recording, injecting, box, SLOTS2)
    for n in range(steps):
        odd, done = n % 2 == 1, n * STAGES
        arrays = (
            choose(odd, turned, fields), coefs, choose(odd, write, read),
            choose(odd, read, write), hist, grads, recording, injecting, pulled,
        )  # fmt: skip
        if PULL2 is not None:
            adjoint_round(
                workers, facts2, shot, table, numbers, arrays, step - n, done, counter, beside,
                PULL2, FIELDS2, GRADIENT2, NEXT2, COLUMNS2, SLOTS2, STENCIL, BLOCKS, ONCE,
            )  # fmt: skip
        adjoint_round(
            workers, facts, shot, table, numbers, arrays, step - n, done + STAGES - 1, counter,
            beside, PULL, FIELDS, GRADIENT, NEXT, COLUMNS, SLOTS, STENCIL, BLOCKS, ONCE,
        )  # fmt: skip
