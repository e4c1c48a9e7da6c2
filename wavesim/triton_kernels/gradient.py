"""What a step adds to the gradient where the history holds the first stage's targets alone.

With a compact history (see `wavesim.history`) the adjoint stages run as without one. Between them
this kernel adds what each would have: the second stage's groups are differentiated again from the
targets ``v`` of the step, and the first stage's, times its coefficient, are the step's change of v.

A layer's memory ``psi <- b psi + a D v`` is not worked out again: with the cotangent w of a group
in the gradient of a coefficient, ``sum_n w_n psi_n = sum_n phi_n a D v_n`` where
``phi <- w + b phi`` runs backward in time, as the adjoint does. One trace phi to a coefficient and
derivative, in the layer's cells only.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .metadata import gradient_metadata
from .stencil import load_if, staggered
from .tile import (
    block_offsets,
    cells,
    history_offsets,
    load_all,
    members,
    memory_cells,
    place_of,
    tile_and_shot,
    tile_of,
)


@triton.jit
def unit(like, COUNT: tl.constexpr, ONE: tl.constexpr):
    """Several blocks of zeros, and of ones at number ONE."""
    out = ()
    for k in tl.static_range(COUNT):
        out = out + (tl.full(like.shape, 1.0 if k == ONE else 0.0, like.dtype),)
    return out


@triton.jit
def add_to(grads, NUMBERS: tl.constexpr, at, more):
    """Add to some of several gradients at a block of cells."""
    for k in tl.static_range(len(NUMBERS)):
        to = grads[NUMBERS[k]] + at
        tl.store(to, tl.load(to) + more[k])


@triton.jit
def changes_of(hist, first, where, inside, before, COUNT: tl.constexpr):
    """The step's changes of what the history holds."""
    out = ()
    for k in tl.static_range(COUNT):
        now = hist[k] + first + where
        out = out + (load_if(now, inside) - load_if(now - before, inside),)
    return out


@triton.jit
def add_traced(
    extra, tile, d, numbers, traces, bars, plain, rows, SECOND: tl.constexpr,
    COLUMNS: tl.constexpr, n: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """The second stage's gradients, and what the memory of derivative n adds, by its traces."""
    AXIS: tl.constexpr = COLUMNS[1 + 6 * n + 1]
    first, mo, _ = memory_cells(tile, d, numbers[3], numbers[4], AXIS)
    GROUPS: tl.constexpr = COLUMNS[0]
    GROUP: tl.constexpr = COLUMNS[1 + 6 * n + 3]
    weight = SECOND(bars, unit(plain, GROUPS, GROUP))
    b, a = tl.load(rows), tl.load(rows + numbers[2][5])
    out = ()
    for k in tl.static_range(len(extra)):
        value = extra[k]
        for pair in tl.static_range(len(PAIRS) // 2):
            if PAIRS[2 * pair] == k and PAIRS[2 * pair + 1] == n:
                at = traces[pair] + first + mo
                phi = weight[k] * COLUMNS[1 + 6 * n + 4] + b * tl.load(at)
                tl.store(at, phi)
                value += phi * (a * plain)
        out = out + (value,)
    return out


@triton.jit
def term(
    extra, tile, d, numbers, arrays, bars, first, where, inside, SECOND: tl.constexpr,
    COLUMNS: tl.constexpr, n: tl.constexpr, PAIRS: tl.constexpr, STENCIL: tl.constexpr,
    LAYERS: tl.constexpr,
):  # fmt: skip
    """Derivative n of the second stage less its memory, and the gradients, see `add_traced`."""
    _, hist, traces, _ = arrays
    factors, profiles, sizes, _, box = numbers
    AXIS: tl.constexpr = COLUMNS[1 + 6 * n + 1]
    SIDE: tl.constexpr = COLUMNS[1 + 6 * n + 2]
    HALF: tl.constexpr = 3 if SIDE > 0 else 0
    s = 4 * box[4] if AXIS == 0 else (4 * box[3] if AXIS == 1 else 1)
    edge = (tile[2 + AXIS] + d[AXIS], box[AXIS], inside) if LAYERS else None
    rh, source = tl.load(factors + AXIS), hist[COLUMNS[1 + 6 * n]] + first
    value = staggered(source, where, s, rh, edge, SIDE, STENCIL)
    if LAYERS and COLUMNS[1 + 6 * n + 5] >= 0:  # noqa: SIM102 - decided when compiling
        if (tile[0] & (1 << AXIS)) > 0:
            rows = profiles + (AXIS * 6 + HALF) * sizes[5] + 16 + tile[2 + AXIS] + d[AXIS]
            extra = add_traced(
                extra, tile, d, numbers, traces, bars, value, rows, SECOND, COLUMNS, n, PAIRS
            )
            value *= tl.load(rows + 2 * sizes[5])
    return value, extra


@triton.jit
def gradient_tile(
    tile, numbers, arrays, step, FIRST: tl.constexpr, SECOND: tl.constexpr,
    COLUMNS: tl.constexpr, SLOTS: tl.constexpr, PAIRS: tl.constexpr, STENCIL: tl.constexpr,
    BLOCKS: tl.constexpr, LAYERS: tl.constexpr,
):  # fmt: skip
    """Both stages' gradients on a block of cells."""
    fields, hist, _, grads = arrays
    box = numbers[4]
    d = block_offsets(BLOCKS, LAYERS)
    at, base, _ = cells(tile, d, numbers[2])
    first, where = history_offsets(step, tile, d, box)
    inside = None
    if LAYERS:
        inside = (tile[2] + d[0] < box[0]) & (tile[3] + d[1] < box[1]) & (tile[4] + d[2] < box[2])
    before = tl.cast(box[9], tl.int64) * box[5]
    FIRST_BARS: tl.constexpr = members(SLOTS, 0)
    changes = changes_of(hist, first, where, inside, before, len(FIRST_BARS))
    more = FIRST(load_all(fields, FIRST_BARS, base, at), changes)
    add_to(grads, members(SLOTS, 1), base + at, more)

    bars = load_all(fields, members(SLOTS, 2), base, at)
    OWN: tl.constexpr = members(SLOTS, 3)
    GROUPS: tl.constexpr = COLUMNS[0]
    TERMS: tl.constexpr = (len(COLUMNS) - 1) // 6
    zero = tl.zeros(at.shape, fields[0].dtype.element_ty)
    extra, terms = (), ()
    for _ in tl.static_range(len(OWN)):
        extra = extra + (zero,)
    for n in tl.static_range(TERMS):
        value, extra = term(
            extra, tile, d, numbers, arrays, bars, first, where, inside, SECOND, COLUMNS, n,
            PAIRS, STENCIL, LAYERS,
        )  # fmt: skip
        terms = terms + (value,)
    groups, out = (), ()
    for group in tl.static_range(GROUPS):
        total = zero
        for n in tl.static_range(TERMS):
            if COLUMNS[1 + 6 * n + 3] == group:
                total += terms[n] * COLUMNS[1 + 6 * n + 4]
        groups = groups + (total,)
    more = SECOND(bars, groups)
    for k in tl.static_range(len(OWN)):
        out = out + (more[k] + extra[k],)
    add_to(grads, OWN, base + at, out)


@triton.jit(launch_metadata=gradient_metadata, do_not_specialize=["step", "first_shot", "box"])
def gradient_kernel(
    table, factors, profiles, clock, step, first_shot, shots, fields, hist, traces, grads, sizes,
    layers, box, FIRST: tl.constexpr, SECOND: tl.constexpr, COLUMNS: tl.constexpr,
    SLOTS: tl.constexpr, PAIRS: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr,
    SHOT_FASTEST: tl.constexpr,
):  # fmt: skip
    """Of step ``clock + step`` on a tile of a shot, after the transpose of its second stage and
    before that of its first.

    COLUMNS: of the second stage, see ``forward_stage``. SLOTS: adjoint fields and gradients of the
    first stage, then of the second. PAIRS: coefficient of the second stage and derivative of every
    trace.
    """
    number, shot = tile_and_shot(shots, box[10], SHOT_FASTEST)
    tile = tile_of(place_of(table, number), shot + first_shot)
    numbers, arrays = (factors, profiles, sizes, layers, box), (fields, hist, traces, grads)
    if tile[0] == 0:
        gradient_tile(
            tile, numbers, arrays, tl.load(clock) + step, FIRST, SECOND, COLUMNS, SLOTS, PAIRS,
            STENCIL, BLOCKS, False,
        )  # fmt: skip
    else:
        gradient_tile(
            tile, numbers, arrays, tl.load(clock) + step, FIRST, SECOND, COLUMNS, SLOTS, PAIRS,
            STENCIL, BLOCKS, True,
        )  # fmt: skip
