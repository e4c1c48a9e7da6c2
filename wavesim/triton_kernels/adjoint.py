"""One stage of an adjoint step in one launch: the exact transpose of a forward stage, gathered.

The pointwise cotangent ``q`` of a derivative is evaluated again at each neighbour the transposed
stencil asks for, or was stored by the stage that ran before; nothing is scattered, so there are no
atomics and the bits repeat.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .metadata import launch_metadata
from .points import after_tile, before_tile, facts_of
from .tile import (
    arrive,
    block_offsets,
    cells,
    choose,
    counter_of,
    load_all,
    members,
    past,
    pick,
    store_all,
    store_late,
    tile_and_shot,
    wait_for_all,
    wait_for_near,
)
from .transposed import transposed


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
def by_output(values, OUTPUTS: tl.constexpr, COLUMNS: tl.constexpr, zero):
    """Sums of the derivatives' values that belong to each of the outputs."""
    out = ()
    for output in tl.static_range(OUTPUTS):
        total = zero
        for n in tl.static_range(len(values)):
            if COLUMNS[1 + 6 * n] == output:
                total += values[n]
        out = out + (total,)
    return out


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
    div = by_output(values, len(OUTPUTS), COLUMNS, tl.zeros(at.shape, fields[0].dtype.element_ty))
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
    tile, numbers, points = before_tile(
        number, facts, shot, table, numbers, arrays[0], arrays[6], step, SLOTS, ONCE
    )
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
    count = after_tile(points, arrays[0], arrays[6], arrays[7], step, SLOTS, ONCE)
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
