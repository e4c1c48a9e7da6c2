"""The stable time step of explicit leapfrog schemes on uniform grids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from .stencils import SECOND, STAGGERED

COURANT = 0.6
"""Default bound on ``dt v_max ||1/h||_2``, the one Deepwave uses: ratios then agree."""


def critical_courant(order: int, *, collocated: bool) -> float:
    """Largest stable ``dt v_max ||1/h||_2`` of an order, for a homogeneous medium.

    >>> round(critical_courant(4, collocated=True), 4), critical_courant(2, collocated=False)
    (0.866, 1.0)
    """
    if collocated:  # symbol of the second derivative at the Nyquist wavenumber: only odd k count
        return 1 / math.sqrt(sum(c for k, c in enumerate(SECOND[order], 1) if k % 2))
    return 1 / sum(abs(c) for c in STAGGERED[order])


def courant_number(dt: float, max_velocity: float, spacing: Sequence[float]) -> float:
    """``dt v_max ||1/h||_2``, dimensionless."""
    return abs(dt) * max_velocity * _steepness(tuple(spacing))


@lru_cache(maxsize=64)
def _steepness(spacing: tuple[float, ...]) -> float:
    """``||1/h||_2``, 1/m."""
    return math.sqrt(sum(h**-2 for h in spacing))


def step_ratio(dt: float, max_velocity: float, spacing: Sequence[float]) -> int:
    """Internal steps per user step that keep the Courant number at most ``COURANT``."""
    return max(1, math.ceil(courant_number(dt, max_velocity, spacing) / COURANT))


def largest_stable_dt(max_velocity: float, spacing: Sequence[float]) -> float:
    """The largest dt that needs no sub-steps, s."""
    return COURANT / courant_number(1.0, max_velocity, spacing)
