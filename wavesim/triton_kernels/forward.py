"""One stage of a forward step in one launch: record, update, keep history, inject."""

from __future__ import annotations

import triton
import triton.language as tl

from .points import inject, record
from .stencil import central, layer_offset, second, staggered
from .tile import cells, keep_history, load_all, past, tile_of_program

LANES = tl.constexpr(32)


@triton.jit
def second_layer(f, at, s, rh, rh2, prof, i, L, read, write, spot, STENCIL: tl.constexpr):
    """Pasalic and McGarry (2010): ``t = (1+e) D2 u + de D1 u + D1 P``, result ``(1+e) t + c Z``,
    with the memories ``P <- c (e D1 u + P)`` (that is c psi) and ``Z <- e t + c Z``."""
    mo, ms, owned = spot
    c, e, de = tl.load(prof + i), tl.load(prof + L + i), tl.load(prof + 2 * L + i)
    du = central(f, at, s, rh, STENCIL)
    t = (1 + e) * second(f, at, s, rh2, STENCIL) + de * du + central(read[0], mo, ms, rh, STENCIL)
    cz = c * tl.load(read[1] + mo)
    tl.store(write[0] + mo, c * (e * du + tl.load(read[0] + mo)), mask=owned)
    tl.store(write[1] + mo, e * t + cz, mask=owned)
    return (1 + e) * t + cz


@triton.jit
def staggered_layer(
    f, at, s, rh, prof, i, L, read, write, spot, SIDE: tl.constexpr, STENCIL: tl.constexpr
):
    """``psi <- b psi + a D f``, result ``D f / kappa + psi``."""
    mo, _, owned = spot
    HALF: tl.constexpr = 3 if SIDE > 0 else 0
    rows = prof + HALF * L
    d = staggered(f, at, s, rh, SIDE, STENCIL)
    psi = (
        tl.load(rows + i) * tl.load(read[0] + mo, mask=owned, other=0.0) + tl.load(rows + L + i) * d
    )
    tl.store(write[0] + mo, psi, mask=owned)
    return d * tl.load(rows + 2 * L + i) + psi


@triton.jit
def plain(f, at, s, rh, rh2, SIDE: tl.constexpr, STENCIL: tl.constexpr):
    """The derivative where no layer is felt."""
    if SIDE == 0:
        value = second(f, at, s, rh2, STENCIL)
    else:
        value = staggered(f, at, s, rh, SIDE, STENCIL)
    return value


@triton.jit
def derivative(
    kind, shot, where, fields, base, at, steps, tables, L, read, write,
    COLUMNS: tl.constexpr, d: tl.constexpr, STENCIL: tl.constexpr, LAYERS: tl.constexpr,
):  # fmt: skip
    """Derivative number d of a stage, with its layer in tiles that feel one."""
    geometry, factors, profiles = tables
    AXIS: tl.constexpr = COLUMNS[1 + 6 * d + 1]
    SIDE: tl.constexpr = COLUMNS[1 + 6 * d + 2]
    M: tl.constexpr = COLUMNS[1 + 6 * d + 5]
    HALF: tl.constexpr = 1 if SIDE > 0 else 0
    f = fields[COLUMNS[1 + 6 * d]] + base
    s = steps[AXIS]
    rh, rh2 = tl.load(factors + AXIS), tl.load(factors + 3 + AXIS)
    if LAYERS and M >= 0:
        if (kind & (1 << AXIS)) > 0:
            prof = profiles + AXIS * 6 * L + 16
            i = where[AXIS]
            spot = layer_offset(geometry, AXIS, shot, where[0], where[1], where[2], i, HALF)
            if SIDE == 0:
                old, new = (read[M], read[M + 1]), (write[M], write[M + 1])
                value = second_layer(f, at, s, rh, rh2, prof, i, L, old, new, spot, STENCIL)
            else:
                value = staggered_layer(
                    f, at, s, rh, prof, i, L, (read[M],), (write[M],), spot, SIDE, STENCIL
                )
        else:
            value = plain(f, at, s, rh, rh2, SIDE, STENCIL)
    else:
        value = plain(f, at, s, rh, rh2, SIDE, STENCIL)
    return value


@triton.jit
def forward_tile(
    tile, tables, fields, coefs, changes, read, write, hist, step, sizes,
    UPDATE: tl.constexpr, HISTORY: tl.constexpr, PUSH: tl.constexpr, COLUMNS: tl.constexpr,
    SLOTS: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr, LAYERS: tl.constexpr,
):  # fmt: skip
    """``targets <- update(old, reads, g, coefficients)`` on one block of cells; of a tangent run
    plus ``PUSH(history, changes)``, the history being that of the run it belongs to."""
    N0: tl.constexpr = SLOTS[0]
    N1: tl.constexpr = SLOTS[1]
    kind, shot = tile[0], tile[1]
    L = sizes[5]
    at, base, cbase, where, corner = cells(tile, sizes, BLOCKS, LAYERS)
    steps = (sizes[1], sizes[2], 1)
    GROUPS: tl.constexpr = COLUMNS[0]
    TERMS: tl.constexpr = (len(COLUMNS) - 1) // 6
    g = ()
    for group in tl.static_range(GROUPS):
        total = tl.zeros(at.shape, fields[0].dtype.element_ty)
        for d in tl.static_range(TERMS):
            if COLUMNS[1 + 6 * d + 3] == group:
                value = derivative(
                    kind, shot, where, fields, base, at, steps, tables, L, read, write,
                    COLUMNS, d, STENCIL, LAYERS,
                )  # fmt: skip
                if COLUMNS[1 + 6 * d + 4] > 0:
                    total += value
                else:
                    total -= value
        g = g + (total,)
    old = ()
    for k in tl.static_range(N1):
        old = old + (tl.load(fields[SLOTS[4 + N0 + k]] + base + at),)
    reads = ()
    for k in tl.static_range(N0):
        reads = reads + (tl.load(fields[SLOTS[4 + k]] + base + at),)
    c = load_all(coefs, cbase, at)
    new = UPDATE(old, reads, g, c)
    if PUSH is None:
        for k in tl.static_range(N1):
            tl.store(fields[SLOTS[4 + N0 + k]] + base + at, new[k])
        if len(hist) > 0:
            keep_history(
                HISTORY(old, reads, g), hist, tables[0], step, where, corner, sizes, LAYERS
            )
    else:
        kept = past(hist, tables[0], step, where, corner, sizes, LAYERS)
        more = PUSH(kept, load_all(changes, cbase, at))
        for k in tl.static_range(N1):
            tl.store(fields[SLOTS[4 + N0 + k]] + base + at, new[k] + more[k])


@triton.jit(do_not_specialize=["step"])
def stage_forward_kernel(
    table, tables, fields, coefs, changes, read, write, hist, recording, injecting, clock, step,
    sizes,
    UPDATE: tl.constexpr, HISTORY: tl.constexpr, PUSH: tl.constexpr, COLUMNS: tl.constexpr,
    SLOTS: tl.constexpr, STENCIL: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """A tile of one shot: ``forward_tile`` between the recording and the injection of its points.

    COLUMNS: groups, then (source, axis, side, group, sign, first memory or -1) per derivative.
    SLOTS: four counts, then the fields read, targets, recorded, injected into. BLOCKS: interior
    block, then boundary block. PUSH: None, or of a tangent run the effect of changed coefficients.
    The step is ``clock + step``.
    """
    N0: tl.constexpr = SLOTS[0]
    N1: tl.constexpr = SLOTS[1]
    N2: tl.constexpr = SLOTS[2]
    N3: tl.constexpr = SLOTS[3]
    key, tile = tile_of_program(table, sizes)
    step = tl.load(clock) + step
    first = tile[1] * sizes[0]
    for k in tl.static_range(N2):
        record(
            fields[SLOTS[4 + N0 + N1 + k]] + first, recording[3 * k], recording[3 * k + 1],
            recording[3 * k + 2], step, key, LANES,
        )  # fmt: skip
    if tile[0] == 0:
        forward_tile(
            tile, tables, fields, coefs, changes, read, write, hist, step, sizes,
            UPDATE, HISTORY, PUSH, COLUMNS, SLOTS, STENCIL, BLOCKS, False,
        )  # fmt: skip
    else:
        forward_tile(
            tile, tables, fields, coefs, changes, read, write, hist, step, sizes,
            UPDATE, HISTORY, PUSH, COLUMNS, SLOTS, STENCIL, BLOCKS, True,
        )  # fmt: skip
    for k in tl.static_range(N3):
        inject(
            fields[SLOTS[4 + N0 + N1 + N2 + k]] + first, injecting[4 * k], injecting[4 * k + 1],
            injecting[4 * k + 2], injecting[4 * k + 3], step, key, LANES,
        )  # fmt: skip
