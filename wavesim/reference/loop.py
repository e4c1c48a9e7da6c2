"""The eager time loop: every registered equation, in any number of dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..plan import Plan, profiles
from ..points import add, take
from ..stencils import CENTRAL, SECOND, STAGGERED

Tensors = tuple[Tensor, ...]


def _taps(f: Tensor, dim: int, start: int, stop: int, reach: int) -> list[Tensor]:
    """f at [start - reach, stop + reach) along dim, zeros outside, as 2 reach + 1 shifted views."""
    low, high = max(0, start - reach), min(f.shape[dim], stop + reach)
    part = f.narrow(dim, low, high - low)
    outside = [low - (start - reach), stop + reach - high]
    if any(outside):
        part = torch.nn.functional.pad(part, [0, 0] * (f.ndim - 1 - dim) + outside)
    return [part.narrow(dim, k, stop - start) for k in range(2 * reach + 1)]


def _widened(ranges: Sequence[tuple[int, int]], cells: int, n: int) -> list[tuple[int, int]]:
    """Ranges of an axis of n cells, each with some more cells on either side; one if they meet."""
    wide = [(max(0, a - cells), min(n, b + cells)) for a, b in ranges]
    return [(0, n)] if len(wide) == 2 and wide[0][1] > wide[1][0] else wide


def _joined(f: Tensor, dim: int, ranges: Sequence[tuple[int, int]]) -> Tensor:
    """f at some ranges of an axis, one after the other."""
    return torch.cat([f.narrow(dim, a, b - a) for a, b in ranges], dim)


def _combine(taps: Sequence[Tensor], weights: Sequence[float], side: int, h: float) -> Tensor:
    """First derivative from shifted views: central (side 0), or half a cell above or below."""
    mid, total = len(taps) // 2, torch.zeros((), dtype=taps[0].dtype, device=taps[0].device)
    for k, c in enumerate(weights, 1):
        upper = taps[mid + k - (side < 0)]
        lower = taps[mid - k + (side > 0)]
        total = torch.add(total, upper - lower, alpha=c / h)
    return total


def _second(taps: Sequence[Tensor], weights: Sequence[float], h: float) -> Tensor:
    mid, total = len(taps) // 2, torch.zeros((), dtype=taps[0].dtype, device=taps[0].device)
    for k, c in enumerate(weights, 1):  # exactly zero for a constant field
        pair = torch.sub(taps[mid + k] + taps[mid - k], taps[mid], alpha=2)
        total = torch.add(total, pair, alpha=c / (h * h))
    return total


class Derivative:
    """One axis' derivative with its boundary layers; ``__call__`` also advances the memory.

    The layers are dealt with on the *ends* of the axis, put one after the other: each layer and
    twice the stencil's reach, the outer half of which the layer does not influence.
    """

    def __init__(self, plan: Plan, axis: int, side: int, like: Tensor) -> None:
        self.order, self.reach, self.side = plan.order, plan.stencil_reach, side
        self.h, self.n, self.dim = plan.spacing[axis], plan.box[axis], axis + 1
        slabs = plan.slabs(axis, side)
        whole = [(0, self.n)]
        ends = _widened(slabs, 2 * self.reach, self.n)
        self.ends = whole if side or len(ends) < len(slabs) else ends
        self.influenced = whole if self.ends == whole else _widened(slabs, self.reach, self.n)
        self.cells = sum(b - a for a, b in self.ends)
        self.layers = [self._on_ends(a, b) for a, b in slabs]
        if slabs:
            shape = (1, -1) + (1,) * (plan.ndim - 1 - axis)
            rows = torch.from_numpy(profiles(plan, axis, side)).to(like)
            self.rows = [_joined(r.reshape(shape), 1, self.ends) for r in rows]

    def _on_ends(self, start: int, stop: int) -> tuple[int, int]:
        """A range of the axis, counted on its ends: one not at the start is in the last end."""
        removed = self.n - self.cells if start else 0
        return start - removed, stop - removed

    def _scatter(self, memory: Tensor) -> Tensor:
        """A memory [.., layers, ..] laid out over the ends, zero between the layers."""
        pieces = memory.split([b - a for a, b in self.layers], self.dim)
        parts, at, shape = [], 0, list(memory.shape)
        for (a, b), piece in zip(self.layers, pieces, strict=True):
            shape[self.dim] = a - at
            parts += [memory.new_zeros(shape), piece]
            at = b
        shape[self.dim] = self.cells - at
        return torch.cat([*parts, memory.new_zeros(shape)], self.dim)

    def _gather(self, full: Tensor) -> Tensor:
        return _joined(full, self.dim, self.layers)

    def __call__(self, f: Tensor, memory: Tensors) -> tuple[Tensor, Tensors]:
        if self.side == 0:
            return self._collocated(f, memory) if self.layers else (self._second(f, 0, self.n), ())
        taps = _taps(f, self.dim, 0, self.n, self.reach)
        plain = _combine(taps, STAGGERED[self.order], self.side, self.h)
        if not self.layers:
            return plain, ()
        b, a, inverse_kappa = self.rows
        psi = b * self._scatter(memory[0]) + a * plain
        return plain * inverse_kappa + psi, (self._gather(psi),)

    def _second(self, f: Tensor, start: int, stop: int) -> Tensor:
        """The second derivative of f on a range of the axis."""
        return _second(_taps(f, self.dim, start, stop, self.reach), SECOND[self.order], self.h)

    def _collocated(self, f: Tensor, memory: Tensors) -> tuple[Tensor, Tensors]:
        """Pasalic and McGarry (2010); the first memory is ``c psi``, the second zeta."""
        c, e, de = self.rows
        psi, old = (self._scatter(m) for m in memory)
        taps = _taps(_joined(f, self.dim, self.ends), self.dim, 0, self.cells, self.reach)
        plain = _second(taps, SECOND[self.order], self.h)
        du = _combine(taps, CENTRAL[self.order], 0, self.h)
        taps = _taps(psi, self.dim, 0, self.cells, self.reach)
        dp = _combine(taps, CENTRAL[self.order], 0, self.h)
        t = torch.addcmul(torch.addcmul(plain + dp, e, plain), de, du)
        zeta = torch.addcmul(c * old, e, t)
        stretched, parts, at = t + zeta, [], 0
        for start, stop in (*self.influenced, (self.n, self.n)):
            if start > at:
                parts.append(self._second(f, at, start))
            a, b = self._on_ends(start, stop)
            if b > a:
                parts.append(stretched.narrow(self.dim, a, b - a))
            at = stop
        new = self._gather(c * torch.addcmul(psi, e, du)), self._gather(zeta)
        return torch.cat(parts, self.dim), new


class Stepper:
    """Runs a range of steps of a plan."""

    def __init__(self, plan: Plan, source_cells: Tensors, receiver_cells: Tensors, like: Tensor):
        self.system = plan.system
        self.source_cells, self.receiver_cells = source_cells, receiver_cells
        self.derivatives, self.spans, at = [], [], 0
        for d in self.system.derivatives:
            self.derivatives.append(Derivative(plan, d.axis, d.side, like))
            count = plan.memory_count(d.side) if plan.has_layer(d.axis) else 0
            self.spans.append((at, at + count))
            at += count

    def step(
        self, fields: list[Tensor], memory: list[Tensor], coefs: Tensors, amplitudes: Sequence
    ) -> tuple[list[Tensor], list[Tensor]]:
        """One internal step; amplitudes [shot, source] by injection."""
        fields, memory, number = list(fields), list(memory), 0
        for index, stage in enumerate(self.system.stages):
            groups: list = [None] * stage.groups
            for d in stage.derivatives:
                a, b = self.spans[number]
                value, memory[a:b] = self.derivatives[number](fields[d.source], tuple(memory[a:b]))
                value = value if d.sign > 0 else -value
                known = groups[d.group]
                groups[d.group] = value if known is None else known + value
                number += 1
            old = [fields[i] for i in stage.targets]
            reads = [fields[i] for i in stage.reads]
            new = stage.update(old, reads, groups, [coefs[i] for i in stage.coefficients])
            for slot, value in zip(stage.targets, new, strict=True):
                fields[slot] = value
            for entry, cells, values in zip(
                self.system.injections, self.source_cells, amplitudes, strict=True
            ):
                if entry.stage == index and cells.shape[1]:
                    slot = self.system.rotation[entry.field]
                    fields[slot] = add(fields[slot], cells, values)
        return [fields[i] for i in self.system.rotation], memory

    def run(
        self, coefs: Tensors, amplitudes: Tensors, fields: Tensors, memory: Tensors, steps: int
    ):
        """Steps in a row: (records [shot, receiver, time] by field recorded, fields, memory)."""
        f, m = list(fields), list(memory)
        slots = self.system.recorded
        records: list[list[Tensor]] = [[] for _ in slots]
        for n in range(steps):
            before = f
            f, m = self.step(f, m, coefs, [a[..., n] for a in amplitudes])
            seen = f if self.system.record_after else before
            for out, slot, cells in zip(records, slots, self.receiver_cells, strict=True):
                out.append(take(seen[slot], cells))
        stacked = tuple(torch.stack(r, -1) for r in records)
        return stacked, tuple(f), tuple(m)


def propagate(
    plan: Plan,
    coefs: Tensors,
    amplitudes: Tensors,
    fields: Tensors,
    memory: Tensors,
    source_cells: Tensors,
    receiver_cells: Tensors,
    *,
    segments: int | None = None,
) -> tuple[Tensors, Tensors, Tensors]:
    """Run a plan: (records [shot, receiver, time] by field recorded, fields, memory).

    With a gradient to come, the run is cut into segments whose insides are recomputed backwards,
    about sqrt(steps) of them unless ``segments`` says otherwise.
    """
    stepper = Stepper(plan, source_cells, receiver_cells, coefs[0])
    inputs = (*coefs, *amplitudes, *fields, *memory)
    differentiate = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
    count = segments if segments is not None else math.ceil(math.sqrt(plan.steps))
    if not differentiate or count == 1:
        return stepper.run(coefs, amplitudes, fields, memory, plan.steps)
    length = math.ceil(plan.steps / count)
    pieces: list[Tensors] = []
    for start in range(0, plan.steps, length):
        part = tuple(a[..., start : start + length] for a in amplitudes)
        steps = min(length, plan.steps - start)
        records, fields, memory = checkpoint(
            stepper.run, coefs, part, fields, memory, steps, use_reentrant=False
        )
        pieces.append(records)
    return tuple(torch.cat(p, -1) for p in zip(*pieces, strict=True)), fields, memory
