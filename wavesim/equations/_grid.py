"""Parameters at half cells, and norms of staggered differences between them: torch, any axes.

``dim`` counts from the end, so that a leading shot axis does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def neighbours(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """x at the two nodes around each of the N - 1 half cells of an axis."""
    n = x.shape[dim]
    return x.narrow(dim, 0, n - 1), x.narrow(dim, 1, n - 1)


def close(x: Tensor, dim: int) -> Tensor:
    """Values at the N - 1 half cells of an axis, and the zero of the last index, which is none."""
    shape = list(x.shape)
    shape[dim] = 1
    return torch.cat([x, x.new_zeros(shape)], dim)


def mean(x: Tensor, dim: int) -> Tensor:
    """Arithmetic mean half a cell up an axis, zero at its last index."""
    low, high = neighbours(x, dim)
    return close((low + high) / 2, dim)


def inverse(x: Tensor) -> Tensor:
    """1/x, and 0 with a gradient of 0 where x is 0."""
    empty = x == 0
    return x.masked_fill(empty, 1.0).reciprocal().masked_fill(empty, 0.0)


def harmonic_means(x: Tensor, pairs: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Of the four nodes around a cell's centre in two axes, for each pair of axes; 0, without
    gradient, if any of the four is 0."""
    zero = x == 0
    inverted, out = x.masked_fill(zero, 1.0).reciprocal(), []
    for first, second in pairs:
        a, b, c, d = _corners(inverted, first, second)
        e, f, g, h = _corners(zero, first, second)
        centre = (4 / (a + b + c + d)).masked_fill(e | f | g | h, 0.0)
        out.append(close(close(centre, first), second))
    return out


def _corners(x: Tensor, first: int, second: int) -> list[Tensor]:
    return [c for part in neighbours(x, first) for c in neighbours(part, second)]


Pair = tuple[Tensor, Tensor, int]
"""What a staggered difference D lies between, for ``|| sqrt(node) D sqrt(half) ||``: node, half and
``dim``, the negative axis of the difference."""


def largest_products(pairs: Sequence[Pair], reach: int) -> list[Tensor]:
    """Of pairs of one shape, by pair and tap k = 1, 2, ... the largest ``node half`` of the cells
    that the tap joins above, and of those that it joins below; 0 of none."""
    out = []
    for node, half, dim in pairs:
        n = node.shape[dim]
        for k in range(1, reach + 1):
            if n < k + 1:
                out += [node.new_zeros(())] * 2
                continue
            out.append((node.narrow(dim, k, n - k) * half.narrow(dim, 0, n - k)).max())
            out.append((node.narrow(dim, 0, n - k) * half.narrow(dim, k - 1, n - k)).max())
    return out


def pair_speeds(products: Sequence[float], weights: Sequence[float]) -> list[float]:
    """By pair, from `largest_products`, a bound of ``|| sqrt(node) D sqrt(half) || / ||D||``, m/s:
    the mean of ``max sqrt(node half)`` over both sides of all taps, with their weights ``|c_k|``.
    Of a homogeneous medium its speed."""
    roots = [math.sqrt(p) for p in products]
    taps = [sum(roots[i : i + 2]) for i in range(0, len(roots), 2)]
    count, total = len(weights), 2 * sum(weights)
    rows = [taps[i : i + count] for i in range(0, len(taps), count)]
    return [sum(c * t for c, t in zip(weights, row, strict=True)) / total for row in rows]


def homogeneous_speed(squares: float, spacing: Sequence[float]) -> float:
    """The speed whose homogeneous medium has as large a frequency as one where those of the parts
    are at most ``speed / h`` times the difference's: ``squares`` is the sum of their squares."""
    return math.sqrt(squares / sum(h**-2 for h in spacing))
