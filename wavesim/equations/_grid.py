"""Parameters at half cells, and norms of staggered differences between them: torch, any axes.

``dim`` counts from the end, so that a leading shot axis does not matter.
"""

from __future__ import annotations

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


def difference_norms(pairs: Sequence[tuple[Tensor, Tensor, int]], spacing, weights) -> Tensor:
    """Bounds of ``|| sqrt(node) D sqrt(half) ||`` for staggered differences D, one for each pair.

    pairs: (node, half, dim), ``dim`` the negative axis of the difference. The sum over the taps of
    ``|c_k| max sqrt(node half) / h``, over the nodes and half cells that a tap joins: exact for a
    homogeneous medium. ``weights``: ``|c_k|``, k = 1, 2, ...
    """
    taps = []
    for k, _ in enumerate(weights, 1):
        for node, half, dim in pairs:
            n = node.shape[dim]
            if n < k + 1:
                taps += [node.new_zeros(())] * 2
                continue
            taps.append((node.narrow(dim, k, n - k) * half.narrow(dim, 0, n - k)).max())
            taps.append((node.narrow(dim, 0, n - k) * half.narrow(dim, k - 1, n - k)).max())
    roots = torch.stack(taps).view(len(weights), len(pairs), 2).sqrt()
    each = (roots[..., 0] + roots[..., 1]).unbind()  # [tap][pair]
    total = weights[0] * each[0]
    for c, both in zip(weights[1:], each[1:], strict=True):
        total = total + c * both
    steps = [spacing[dim] for _, _, dim in pairs]
    if len(set(steps)) == 1:
        return total / steps[0]
    return torch.stack([t / h for t, h in zip(total.unbind(), steps, strict=True)])


def homogeneous_speed(rate: Tensor, spacing, weights) -> Tensor:
    """The speed whose homogeneous medium has the largest frequency ``rate``, 1/s, on this grid."""
    return rate / (2 * sum(weights) * sum(h**-2 for h in spacing) ** 0.5)


def largest_eigenvalue(q: Tensor) -> Tensor:
    """Of a small symmetric matrix of non-negative numbers, from above.

    Collatz and Wielandt: ``max (q w) / w`` is a bound for any positive w; power iteration makes
    w almost the eigenvector. Nothing is read back, unlike by an eigenvalue routine.
    """
    w = torch.ones_like(q[0])
    for _ in range(8):
        w = q @ w
        w = (w / w.max().clamp(min=1e-30)).clamp(min=1e-3)
    return ((q @ w) / w).max()
