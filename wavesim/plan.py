"""A call's facts in one frozen, hashable object: numbers only, no tensors."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache

import numpy as np

from .cpml import Axis, Damping, collocated_profile, staggered_profile
from .equations import Equation, System


@dataclass(frozen=True)
class Plan:
    """What is to be computed. Lengths are cells, axes in the order [z, y, x].

    ``steps`` and ``dt`` are internal ones, ``ratio`` to a user's step. ``compact``: a history is
    kept as `equations.System.compact` says.
    """

    equation: Equation
    model: tuple[int, ...]
    widths: tuple[tuple[int, int], ...]
    spacing: tuple[float, ...]
    order: int
    steps: int
    ratio: int
    dt: float
    shots: int
    dtype: str
    damping: tuple[tuple[Damping, Damping], ...]
    compact: bool = False

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, f.name) for f in fields(self)))

    def __hash__(self) -> int:
        return self._hash  # tables and layouts are looked up by plan, dozens of times a call

    @property
    def ndim(self) -> int:
        return len(self.model)

    @cached_property
    def system(self) -> System:
        return self.equation.build(self.ndim)

    @cached_property
    def box(self) -> tuple[int, ...]:
        """The model and its boundary layers."""
        return tuple(n + low + high for n, (low, high) in zip(self.model, self.widths, strict=True))

    @property
    def itemsize(self) -> int:
        return int(self.dtype.removeprefix("float")) // 8

    @property
    def stencil_reach(self) -> int:
        return self.order // 2

    def axis(self, a: int) -> Axis:
        low, high = self.widths[a]
        return Axis(self.box[a], self.spacing[a], low, high, self.dt, self.damping[a])

    def has_layer(self, a: int) -> bool:
        return any(self.widths[a])

    def memory_count(self, side: int) -> int:
        """Memories that one derivative keeps: psi and zeta (collocated) or psi (staggered)."""
        return 2 if side == 0 else 1

    def slabs(self, axis: int, side: int) -> tuple[tuple[int, int], ...]:
        """The non-empty [start, stop) ranges along an axis that hold a derivative's memory."""
        low, high = self.widths[axis]
        start = self.axis(axis).high_start(int(side > 0))
        return tuple((a, b) for a, b in ((0, low), (start, start + high)) if b > a)

    @cached_property
    def memories(self) -> tuple[tuple[int, int], ...]:
        """(axis, side) of every boundary memory, in the order of the derivatives."""
        return tuple(
            (d.axis, d.side)
            for d in self.system.derivatives
            if self.has_layer(d.axis)
            for _ in range(self.memory_count(d.side))
        )

    def memory_shape(self, axis: int) -> tuple[int, ...]:
        """[shot, box], the axis cut down to its two layers."""
        cut = list(self.box)
        cut[axis] = sum(self.widths[axis])
        return (self.shots, *cut)


@lru_cache(maxsize=64)
def compacted(plan: Plan) -> Plan:
    """The same with a compact history."""
    return replace(plan, compact=True)


@lru_cache(maxsize=64)
def profiles(plan: Plan, axis: int, side: int) -> np.ndarray:
    """[3, cells] rows of a derivative's boundary profile in float64, see `wavesim.cpml`."""
    if side == 0:
        return collocated_profile(plan.axis(axis), plan.order)
    return staggered_profile(plan.axis(axis), half=int(side > 0))
