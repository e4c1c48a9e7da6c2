"""Profiles of the convolutional perfectly matched layer, on the host in float64.

Komatitsch and Martin (2007) for first derivatives, Pasalic and McGarry (2010) for second ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .stencils import CENTRAL


@dataclass(frozen=True)
class Axis:
    """One axis of the padded box: cells, spacing, the widths of its two boundary layers, and dt."""

    cells: int
    spacing: float
    low: int
    high: int
    dt: float

    def high_start(self, half: int) -> int:
        """First index of the upper layer, on nodes (half = 0) or half cells (half = 1)."""
        return self.cells - self.high - half


@dataclass(frozen=True)
class Damping:
    """The layer's numbers: speed, m/s, and frequency, Hz, it is tuned for, and its shape."""

    max_velocity: float
    frequency: float
    reflection: float = 1e-3
    power: float = 2.0
    kappa_max: float = 1.0


def _shape(axis: Axis, damping: Damping, half: int) -> tuple[np.ndarray, ...]:
    """(x, sigma, alpha, kappa) at every index; x is the depth fraction, zero inside the model."""
    i = np.arange(axis.cells) + 0.5 * half
    x = np.zeros(axis.cells)
    sigma = np.zeros(axis.cells)
    for width, depth in ((axis.low, axis.low - i), (axis.high, i - (axis.cells - 1 - axis.high))):
        if width == 0:
            continue
        fraction = np.clip(depth / width, 0.0, 1.0)
        scale = -(damping.power + 1) * damping.max_velocity * math.log(damping.reflection)
        face = scale / (2 * width * axis.spacing) * fraction**damping.power
        sigma = np.where(fraction > x, face, sigma)
        x = np.maximum(x, fraction)
    alpha = math.pi * damping.frequency * (1 - x)
    kappa = 1 + (damping.kappa_max - 1) * x**damping.power
    return x, sigma, alpha, kappa


def collocated_profile(axis: Axis, damping: Damping, order: int) -> np.ndarray:
    """Rows c, e and ``de`` of the second-order form, [3, cells].

    ``c = exp(-(sigma + alpha) dt)``, ``e = sigma / (sigma + alpha) (c - 1)``, both zero inside the
    model; ``de`` is the central derivative of e, continued past the box by its end values.
    """
    x, sigma, alpha, _ = _shape(axis, damping, half=0)
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


def staggered_profile(axis: Axis, damping: Damping, half: int) -> np.ndarray:
    """Rows b, a, 1/kappa of the memory ``psi <- b psi + a D f``, nodes or half cells, [3, cells].

    N nodes carry N - 1 half cells: the last index of a half profile holds no memory.
    """
    x, sigma, alpha, kappa = _shape(axis, damping, half)
    rate = np.where(x > 0, sigma / kappa + alpha, 1.0)
    b = np.where(x > 0, np.exp(-rate * axis.dt), 0.0)
    below = np.where(x > 0, kappa * (sigma + kappa * alpha), 1.0)
    a = np.where(x > 0, sigma * np.expm1(-rate * axis.dt) / below, 0.0)
    if half:
        a[-1] = b[-1] = 0.0
    return np.stack([b, a, 1 / kappa])
