"""Transposes of the derivatives of one axis inside a tile, with and without boundary layer.

A derivative's cotangent ``q`` at a block of cells is what `stencil.pull` gives.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .stencil import load_if, pull
from .tile import memory_cells


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
