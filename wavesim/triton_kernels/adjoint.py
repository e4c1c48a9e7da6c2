"""One stage of an adjoint step in one launch: the exact transpose of a forward stage, gathered.

The pointwise cotangent ``q`` of a derivative is evaluated again at each neighbour the transposed
stencil asks for; nothing is scattered, so there are no atomics and the bits repeat.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .points import inject, record
from .stencil import layer_offset, pull

LANES = tl.constexpr(32)


@triton.jit
def second_transposed(b, c, base, cbase, at, s, rh2, PULL: tl.constexpr, GROUP: tl.constexpr, SIGN: tl.constexpr, R: tl.constexpr, W: tl.constexpr):
    """``D2 q``: the collocated second derivative is symmetric."""
    q0 = pull(b, c, base, cbase, at, PULL, GROUP, SIGN)
    total = q0 * 0.0
    for k in tl.static_range(1, R + 1):
        upper = pull(b, c, base, cbase, at + k * s, PULL, GROUP, SIGN) - q0
        total += W[k - 1] * (upper + (pull(b, c, base, cbase, at - k * s, PULL, GROUP, SIGN) - q0))
    return total * rh2


@triton.jit
def _cotangents(q, prof, i, L, read, mo):
    """``t = (1+e) q + Z``, ``(1+e) t`` and ``de t + P`` at a block of cells: see second_layer."""
    e, de = tl.load(prof + L + i), tl.load(prof + 2 * L + i)
    t = (1 + e) * q + tl.load(read[1] + mo)
    return t, (1 + e) * t, de * t + tl.load(read[0] + mo)


@triton.jit
def second_layer_transposed(b, c, base, cbase, at, s, rh, rh2, prof, i, L, read, write, spot, PULL: tl.constexpr, GROUP: tl.constexpr, SIGN: tl.constexpr, R: tl.constexpr, W2: tl.constexpr, W1: tl.constexpr):
    """Transposes second_layer: ``D2 ((1+e) t) - D1 (de t + P)`` with ``t = (1+e) q + Z``, where
    ``Z <- c (e q + Z)`` is e times the adjoint of zeta and ``P <- c P - c e D1 t`` is c e times
    that of the memory ``c psi``."""
    mo, ms, owned = spot
    q0 = pull(b, c, base, cbase, at, PULL, GROUP, SIGN)
    t0, a0, _ = _cotangents(q0, prof, i, L, read, mo)
    d2, d1, dt = q0 * 0.0, q0 * 0.0, q0 * 0.0
    for k in tl.static_range(1, R + 1):
        qu = pull(b, c, base, cbase, at + k * s, PULL, GROUP, SIGN)
        ql = pull(b, c, base, cbase, at - k * s, PULL, GROUP, SIGN)
        tu, au, bu = _cotangents(qu, prof, i + k, L, read, mo + k * ms)
        t_low, al, bl = _cotangents(ql, prof, i - k, L, read, mo - k * ms)
        d2 += W2[k - 1] * ((au - a0) + (al - a0))
        d1 += W1[k - 1] * (bu - bl)
        dt += W1[k - 1] * (tu - t_low)
    decay, e = tl.load(prof + i), tl.load(prof + L + i)
    tl.store(write[0] + mo, decay * tl.load(read[0] + mo) - decay * e * (dt * rh), mask=owned)
    tl.store(write[1] + mo, decay * (e * q0 + tl.load(read[1] + mo)), mask=owned)
    return d2 * rh2 - d1 * rh


@triton.jit
def staggered_transposed(b, c, base, cbase, at, s, rh, PULL: tl.constexpr, GROUP: tl.constexpr, SIGN: tl.constexpr, SIDE: tl.constexpr, R: tl.constexpr, W: tl.constexpr):
    """Minus the first derivative of q to the other side."""
    UP: tl.constexpr = 1 if SIDE > 0 else 0
    total = pull(b, c, base, cbase, at, PULL, GROUP, SIGN) * 0.0
    for k in tl.static_range(1, R + 1):
        upper = pull(b, c, base, cbase, at + (k - UP) * s, PULL, GROUP, SIGN)
        total += W[k - 1] * (upper - pull(b, c, base, cbase, at - (k - 1 + UP) * s, PULL, GROUP, SIGN))
    return -total * rh


@triton.jit
def _staggered_cotangent(q, rows, i, L, read, mo):
    """``q / kappa + a (q + psi)``: the memory's recursion comes before the transposed derivative."""
    return q * tl.load(rows + 2 * L + i) + tl.load(rows + L + i) * (q + tl.load(read[0] + mo))


@triton.jit
def staggered_layer_transposed(b, c, base, cbase, at, s, rh, prof, i, L, read, write, spot, PULL: tl.constexpr, GROUP: tl.constexpr, SIGN: tl.constexpr, SIDE: tl.constexpr, R: tl.constexpr, W: tl.constexpr):
    """Transposes staggered_layer: ``psi <- b (psi + q)`` beside the transposed derivative."""
    mo, ms, owned = spot
    UP: tl.constexpr = 1 if SIDE > 0 else 0
    HALF: tl.constexpr = 3 if SIDE > 0 else 0
    rows = prof + HALF * L
    q0 = pull(b, c, base, cbase, at, PULL, GROUP, SIGN)
    total = q0 * 0.0
    for k in tl.static_range(1, R + 1):
        up, down = k - UP, k - 1 + UP
        qu = pull(b, c, base, cbase, at + up * s, PULL, GROUP, SIGN)
        ql = pull(b, c, base, cbase, at - down * s, PULL, GROUP, SIGN)
        upper = _staggered_cotangent(qu, rows, i + up, L, read, mo + up * ms)
        total += W[k - 1] * (upper - _staggered_cotangent(ql, rows, i - down, L, read, mo - down * ms))
    psi = tl.load(rows + i) * (q0 + tl.load(read[0] + mo))
    tl.store(write[0] + mo, psi, mask=owned)
    return -total * rh


@triton.jit
def adjoint_tile(
    kind, at0, tables, fields, coefs, read, write, hist, grads, step, sizes,
    PULL: tl.constexpr, FIELDS: tl.constexpr, GRADIENT: tl.constexpr, COLUMNS: tl.constexpr, SLOTS: tl.constexpr, STENCIL: tl.constexpr,
    BLOCK: tl.constexpr, LAYERS: tl.constexpr,
):  # fmt: skip
    """``out <- pull_fields(out, bar, transposed derivatives, coefficients)`` on one block."""
    geometry, factors, profiles = tables
    SS, SZ, SY, origin, model_stride, L, shots = sizes
    shot, z0, y0, x0 = at0
    dz = tl.arange(0, BLOCK[0])[:, None, None]
    dy = tl.arange(0, BLOCK[1])[None, :, None]
    dx = tl.arange(0, BLOCK[2])[None, None, :]
    at = dz * SZ + dy * SY + dx
    inside = tl.multiple_of(origin + z0 * SZ + y0 * SY + x0, 16)
    base, cbase = shot * SS + inside, shot * model_stride + inside
    steps = (SZ, SY, 1)
    where = (z0 + dz, y0 + dy, x0 + dx)
    R: tl.constexpr = STENCIL[0]
    bars = ()
    for k in tl.static_range(len(SLOTS[0])):
        bars = bars + (fields[SLOTS[0][k]],)
    div = ()
    for out in tl.static_range(len(SLOTS[1])):
        total = tl.zeros((BLOCK[0], BLOCK[1], BLOCK[2]), fields[0].dtype.element_ty)
        for d in tl.static_range((len(COLUMNS) - 1) // 6):
            if COLUMNS[1 + 6 * d] == out:
                axis: tl.constexpr = COLUMNS[1 + 6 * d + 1]
                side: tl.constexpr = COLUMNS[1 + 6 * d + 2]
                group: tl.constexpr = COLUMNS[1 + 6 * d + 3]
                sign: tl.constexpr = COLUMNS[1 + 6 * d + 4]
                memory: tl.constexpr = COLUMNS[1 + 6 * d + 5]
                s = steps[axis]
                rh, rh2 = tl.load(factors + axis), tl.load(factors + 3 + axis)
                layer = (kind & (1 << axis)) > 0
                if LAYERS and memory >= 0:
                    if layer:
                        prof = profiles + axis * 6 * L + 16
                        spot = layer_offset(geometry, axis, shot, where[0], where[1], where[2], where[axis], side > 0)
                        if side == 0:
                            value = second_layer_transposed(bars, coefs, base, cbase, at, s, rh, rh2, prof, where[axis], L, (read[memory], read[memory + 1]), (write[memory], write[memory + 1]), spot, PULL, group, sign, R, STENCIL[1], STENCIL[2])
                        else:
                            value = staggered_layer_transposed(bars, coefs, base, cbase, at, s, rh, prof, where[axis], L, (read[memory],), (write[memory],), spot, PULL, group, sign, side, R, STENCIL[3])
                    else:
                        if side == 0:
                            value = second_transposed(bars, coefs, base, cbase, at, s, rh2, PULL, group, sign, R, STENCIL[1])
                        else:
                            value = staggered_transposed(bars, coefs, base, cbase, at, s, rh, PULL, group, sign, side, R, STENCIL[3])
                else:
                    if side == 0:
                        value = second_transposed(bars, coefs, base, cbase, at, s, rh2, PULL, group, sign, R, STENCIL[1])
                    else:
                        value = staggered_transposed(bars, coefs, base, cbase, at, s, rh, PULL, group, sign, side, R, STENCIL[3])
                total += value
        div = div + (total,)
    b = ()
    for k in tl.static_range(len(SLOTS[0])):
        b = b + (tl.load(bars[k] + base + at),)
    old = ()
    for k in tl.static_range(len(SLOTS[1])):
        old = old + (tl.load(fields[SLOTS[1][k]] + base + at),)
    c = ()
    for k in tl.static_range(len(coefs)):
        c = c + (tl.load(coefs[k] + cbase + at),)
    new = FIELDS(old, b, div, c)
    for k in tl.static_range(len(SLOTS[1])):
        tl.store(fields[SLOTS[1][k]] + base + at, new[k])
    if len(grads) > 0:
        row, plane = tl.load(geometry + 3), tl.load(geometry + 4)
        start = (step * shots + shot) * tl.load(geometry + 5) + z0 * plane + y0 * row + x0
        to = tl.multiple_of(start, 4) + dz * plane + dy * row + dx
        kept = ()
        for k in tl.static_range(len(hist)):
            if LAYERS:
                real = (where[0] < tl.load(geometry)) & (where[1] < tl.load(geometry + 1)) & (where[2] < tl.load(geometry + 2))
                kept = kept + (tl.load(hist[k] + to, mask=real, other=0.0, eviction_policy="evict_first"),)
            else:
                kept = kept + (tl.load(hist[k] + to, eviction_policy="evict_first"),)
        more = GRADIENT(b, kept)
        for k in tl.static_range(len(grads)):
            to_grad = grads[k] + base + at
            tl.store(to_grad, tl.load(to_grad) + more[k])


@triton.jit
def stage_adjoint_kernel(
    table, tables, fields, coefs, read, write, hist, grads, recording, injecting, step, sizes,
    PULL: tl.constexpr, FIELDS: tl.constexpr, GRADIENT: tl.constexpr, COLUMNS: tl.constexpr, SLOTS: tl.constexpr, STENCIL: tl.constexpr,
    SHIFTS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """A tile of one shot, transposing ``stage_forward_kernel``: the bars at source points are the
    amplitudes' cotangents, and the records' cotangents enter the adjoint fields.

    COLUMNS: groups, then (which output, axis, side, group, sign, first memory or -1) per derivative.
    SLOTS: bars, outputs, recorded, injected into. SHIFTS: steps by which each injection is late.
    """
    key = tl.program_id(0).to(tl.int64)
    shots = sizes[6]
    shot, tile = key % shots, key // shots
    kind = tl.load(table + 4 * tile)
    z0 = tl.load(table + 4 * tile + 1).to(tl.int64)
    y0 = tl.load(table + 4 * tile + 2).to(tl.int64)
    x0 = tl.multiple_of(tl.load(table + 4 * tile + 3).to(tl.int64), 32)
    at0 = (shot, z0, y0, x0)
    first = shot * sizes[0]
    for k in tl.static_range(len(SLOTS[2])):
        record(fields[SLOTS[2][k]] + first, recording[3 * k], recording[3 * k + 1], recording[3 * k + 2], step, key, LANES)
    if kind == 0:
        adjoint_tile(kind, at0, tables, fields, coefs, read, write, hist, grads, step, sizes, PULL, FIELDS, GRADIENT, COLUMNS, SLOTS, STENCIL, BLOCKS[0], False)
    else:
        adjoint_tile(kind, at0, tables, fields, coefs, read, write, hist, grads, step, sizes, PULL, FIELDS, GRADIENT, COLUMNS, SLOTS, STENCIL, BLOCKS[1], True)
    for k in tl.static_range(len(SLOTS[3])):
        inject(fields[SLOTS[3][k]] + first, injecting[4 * k], injecting[4 * k + 1], injecting[4 * k + 2], injecting[4 * k + 3], step + SHIFTS[k], key, LANES)
