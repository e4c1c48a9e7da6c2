"""Parameters at half cells, and norms of staggered differences between them: torch, any axes.

``dim`` counts from the end, so that a leading shot axis does not matter.
"""

from __future__ import annotations

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
    return torch.where(empty, 0.0, 1 / torch.where(empty, 1.0, x))


def harmonic_mean(x: Tensor, dims: tuple[int, int]) -> Tensor:
    """Of the four nodes around a cell's centre in two axes; 0, without gradient, if any is 0."""
    corners = [c for part in neighbours(x, dims[0]) for c in neighbours(part, dims[1])]
    empty = (corners[0] == 0) | (corners[1] == 0) | (corners[2] == 0) | (corners[3] == 0)
    total = sum(1 / torch.where(empty, 1.0, c) for c in corners)
    centre = torch.where(empty, 0.0, 4 / total)
    return close(close(centre, dims[0]), dims[1])


def difference_norm(node: Tensor, half: Tensor, dim: int, h: float, weights) -> Tensor:
    """Bound of ``|| sqrt(node) D sqrt(half) ||`` for a staggered difference D along an axis.

    The sum over the taps of ``|c_k| max sqrt(node half) / h``, over the pairs that a tap joins:
    exact for a homogeneous medium. ``weights``: ``|c_k|``, k = 1, 2, ...
    """
    n, total = node.shape[dim], node.new_zeros(())
    for k, c in enumerate(weights, 1):
        if n < k + 1:
            continue
        above = node.narrow(dim, k, n - k) * half.narrow(dim, 0, n - k)
        below = node.narrow(dim, 0, n - k) * half.narrow(dim, k - 1, n - k)
        total = total + c * (above.max().sqrt() + below.max().sqrt())
    return total / h


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
