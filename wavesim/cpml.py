"""Profiles of the convolutional perfectly matched layer, on the host in float64.

Komatitsch and Martin (2007) for first derivatives, Pasalic and McGarry (2010) for second ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .stencils import CENTRAL


@dataclass(frozen=True)
class Damping:
    """One face's layer: the speed it is tuned for, m/s, and its shape; alpha, guard, floor in 1/s.

    Without a ``reflection`` the largest damping is ``(power + 1) rate / h``, rate in m/s.
    """

    max_velocity: float
    reflection: float | None = 1e-3
    rate: float = 0.0
    power: float = 2.0
    kappa_max: float = 1.0
    alpha_max: float = 0.0
    alpha_min: float = 0.0
    guard: float = 0.0
    floor: float = 0.0

    def largest(self, width: int, spacing: float) -> float:
        """sigma at the outermost node, 1/s."""
        if self.reflection is None:
            return (self.power + 1) * self.rate / spacing
        scale = -(self.power + 1) * self.max_velocity * math.log(self.reflection)
        return scale / (2 * width * spacing)


@dataclass(frozen=True)
class Axis:
    """One axis of the padded box: cells, spacing, its two boundary layers, and dt."""

    cells: int
    spacing: float
    low: int
    high: int
    dt: float
    damping: tuple[Damping, Damping]

    def high_start(self, half: int) -> int:
        """First index of the upper layer, on nodes (half = 0) or half cells (half = 1)."""
        return self.cells - self.high - half


def _shape(axis: Axis, half: int) -> tuple[np.ndarray, ...]:
    """(x, sigma, alpha, kappa) at every index; x is the depth fraction, zero inside the model."""
    i = np.arange(axis.cells) + 0.5 * half
    x, sigma, alpha = np.zeros((3, axis.cells))
    kappa = np.ones(axis.cells)
    depths = axis.low - i, i - (axis.cells - 1 - axis.high)
    for width, depth, damping in zip((axis.low, axis.high), depths, axis.damping, strict=True):
        if width == 0:
            continue
        fraction = np.clip(depth / width, 0.0, 1.0)
        deeper, shape = fraction > x, fraction**damping.power
        face = damping.largest(width, axis.spacing) * shape
        sigma = np.where(deeper, np.where(face > damping.floor, face, 0.0), sigma)
        slope = (damping.alpha_max - damping.alpha_min) * (1 - fraction)
        alpha = np.where(deeper, slope + damping.alpha_min, alpha)
        kappa = np.where(deeper, 1 + (damping.kappa_max - 1) * shape, kappa)
        x = np.maximum(x, fraction)
    return x, sigma, alpha, kappa


def collocated_profile(axis: Axis, order: int) -> np.ndarray:
    """Rows c, e and ``de`` of the second-order form, [3, cells].

    ``c = exp(-(sigma + alpha) dt)``, ``e = sigma / (sigma + alpha) (c - 1)``, both zero inside the
    model; ``de`` is the central derivative of e, continued past the box by its end values.
    """
    x, sigma, alpha, _ = _shape(axis, half=0)
    rate = np.where(x > 0, sigma + alpha, 1.0)
    c = np.where(x > 0, np.exp(-rate * axis.dt), 0.0)
    e = np.where(x > 0, sigma / rate * np.expm1(-rate * axis.dt), 0.0)
    reach = order // 2
    wide = np.pad(e, reach, mode="edge")
    de = np.zeros_like(e)
    for k, weight in enumerate(CENTRAL[order], 1):
        above = wide[reach + k : reach + k + axis.cells]
        below = wide[reach - k : reach - k + axis.cells]
        de += weight * (above - below) / axis.spacing
    return np.stack([c, e, de])


def staggered_profile(axis: Axis, half: int) -> np.ndarray:
    """Rows b, a, 1/kappa of the memory ``psi <- b psi + a D f``, nodes or half cells, [3, cells].

    N nodes carry N - 1 half cells: the last index of a half profile holds no memory.
    """
    x, sigma, alpha, kappa = _shape(axis, half)
    guard = max(d.guard for d in axis.damping)
    rate = np.where(x > 0, sigma / kappa + alpha, 1.0)
    b = np.where(x > 0, np.exp(-rate * axis.dt), 0.0)
    below = np.where(x > 0, kappa * (sigma + kappa * alpha) + guard, 1.0)
    a = np.where(x > 0, sigma * np.expm1(-rate * axis.dt) / below, 0.0)
    if half:
        a[-1] = b[-1] = 0.0
    return np.stack([b, a, 1 / kappa])
