"""Derivatives of one axis inside a tile, with and without boundary layer, and their transposes.

``f + at`` are pointers to a block of cells, ``s`` the distance to the next cell along the axis, R
the reach; STENCIL holds R, then R weights each of the second, central and staggered derivatives, as
constexpr numbers so that float64 kernels keep their digits.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def second(f, at, s, rh2, STENCIL: tl.constexpr):
    """``sum_k W_k ((f[i+k] - f[i]) + (f[i-k] - f[i])) / h^2``."""
    R: tl.constexpr = STENCIL[0]
    f0 = tl.load(f + at)
    total = STENCIL[1] * ((tl.load(f + at + s) - f0) + (tl.load(f + at - s) - f0))
    for k in tl.static_range(2, R + 1):
        total += STENCIL[k] * ((tl.load(f + at + k * s) - f0) + (tl.load(f + at - k * s) - f0))
    return total * rh2


@triton.jit
def load_if(pointers, on):
    """A block, zeros unless ``on``, which None is."""
    if on is None:
        value = tl.load(pointers)
    else:
        value = tl.load(pointers, mask=on, other=0.0)
    return value


@triton.jit
def central(f, at, s, rh, on, STENCIL: tl.constexpr):
    """``sum_k W_k (f[i+k] - f[i-k]) / h``, of zeros unless ``on``."""
    R: tl.constexpr = STENCIL[0]
    total = STENCIL[R + 1] * (load_if(f + at + s, on) - load_if(f + at - s, on))
    for k in tl.static_range(2, R + 1):
        total += STENCIL[R + k] * (load_if(f + at + k * s, on) - load_if(f + at - k * s, on))
    return total * rh


@triton.jit
def neighbour(pointers, k, edge):
    """The k-th neighbours along an axis, zeros outside the box; edge: None if none is, else their
    own place, the cells along the axis, and which are inside along the others."""
    if edge is None:
        value = tl.load(pointers)
    else:
        place, count, inside = edge
        on = inside & (place + k >= 0) & (place + k < count)
        value = tl.load(pointers, mask=on, other=0.0)
    return value


@triton.jit
def staggered(f, at, s, rh, edge, SIDE: tl.constexpr, STENCIL: tl.constexpr):
    """``sum_k W_k (f[i+k] - f[i+1-k]) / h`` for SIDE 1, one index lower for SIDE -1; edge as in
    `neighbour`."""
    R: tl.constexpr = STENCIL[0]
    UP: tl.constexpr = 0 if SIDE > 0 else 1
    upper = neighbour(f + at + (1 - UP) * s, 1 - UP, edge)
    total = STENCIL[2 * R + 1] * (upper - neighbour(f + at - UP * s, -UP, edge))
    for k in tl.static_range(2, R + 1):
        upper = neighbour(f + at + (k - UP) * s, k - UP, edge)
        lower = neighbour(f + at - (k - 1 + UP) * s, 1 - k - UP, edge)
        total += STENCIL[2 * R + k] * (upper - lower)
    return total * rh


@triton.jit
def pull(bars, coefs, base, cbase, at, PULL: tl.constexpr, GROUP: tl.constexpr, SIGN: tl.constexpr):
    """The cotangent of a group's derivative at a block of cells; without PULL it was stored."""
    if PULL is None:
        g = tl.load(bars[GROUP] + base + at)
    else:
        b = ()
        for j in tl.static_range(len(bars)):
            b = b + (tl.load(bars[j] + base + at),)
        c = ()
        for j in tl.static_range(len(coefs)):
            c = c + (tl.load(coefs[j] + cbase + at),)
        g = PULL(b, c)[GROUP]
    return g if SIGN > 0 else -g
