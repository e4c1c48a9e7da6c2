"""The forward and adjoint time loops over a range of steps; stages are known by number only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import buffers
from .buffers import Arrays, Final, Memory, MemoryShape, Tables
from .choice import STORED
from .history import DeviceHistory
from .layout import Layout
from .plan import Plan
from .points import add, at_cells, take
from .triton_kernels.constants import traced
from .triton_kernels.launch import Launcher, Points, Work, signals
from .triton_kernels.lists import PointList

Tensors = tuple[Tensor, ...]
Given = Tensor | None
"""None stands for zeros."""


@dataclass(eq=False)
class Run:
    """What both directions of a call share: tables, coefficients and point lists on the device.

    ready: the aligned arrays that the coefficients are views of, if they are.
    """

    layout: Layout
    tables: Tables
    coefs: Tensors
    ready: Tensors
    source_points: list[PointList | None]
    receiver_points: list[PointList | None]
    source_cells: Tensors
    receiver_cells: Tensors

    @staticmethod
    def start(
        layout: Layout,
        coefs: Tensors,
        source_cells: Tensors,
        receiver_cells: Tensors,
        *,
        sources: Sequence[bool] | None = None,
        ready: Tensors = (),
    ) -> Run:
        """sources: which are listed, None for all."""
        tables, split = Tables.of(layout, coefs[0].dtype, coefs[0].device), len(source_cells)
        channels = [None if sources and not sources[i] else c for i, c in enumerate(source_cells)]
        points = PointList.of(layout, tables, (*channels, *receiver_cells))
        return Run(
            layout=layout,
            tables=tables,
            coefs=coefs,
            ready=ready,
            source_points=points[:split],
            receiver_points=points[split:],
            source_cells=source_cells,
            receiver_cells=receiver_cells,
        )

    def arrays(
        self, fields: Sequence[Given], memory: Sequence[Given], more: Sequence[int]
    ) -> Arrays:
        """The kernels' arrays from plain tensors, None being zeros, and more arrays of zeros, of
        lengths that are rounded up."""
        layout, plan = self.layout, self.layout.plan
        shapes = [MemoryShape.of(layout, axis, side) for axis, side in plan.memories]
        length, coefs = layout.strides.shot, () if self.ready else self.coefs
        sizes = [c.shape[0] * length for c in coefs]
        sizes += [plan.shots * length] * len(fields)
        for at in shapes:
            sizes += [plan.shots * at.strides.shot] * 2
        sizes.append(signals(layout))
        found = buffers.packed_zeros(self.coefs[0], [*sizes, *more])
        given = (*coefs, *fields)
        live = [buffers.fill(layout, b, f) for b, f in zip(found, given, strict=False)]
        both = found[len(live) : len(sizes) - 1]
        pairs = zip(both[::2], both[1::2], strict=True)
        return Arrays(
            coefs=self.ready or tuple(live[: len(coefs)]),
            fields=live[len(coefs) :],
            memories=[Memory(*m) for m in zip(shapes, pairs, memory, strict=True)],
            signals=found[len(sizes) - 1],
            more=found[len(sizes) :],
        )

    def launch(self, work: Work, steps: range, changes: Tensors = (), *, adjoint: bool = False):
        """Run the kernels; (fields, costs). The memories are left as the last step wrote them."""
        moved = buffers.aligned(self.layout, changes)
        launcher = Launcher(self.layout, self.tables, work, moved, adjoint=adjoint)
        costs = launcher.run(steps)
        if len(steps) % 2:
            for memory in work.arrays.memories:
                memory.swap()
        return launcher.fields_after(len(steps)), costs


def forward(
    run: Run,
    amplitudes: Tensors,
    fields: Sequence[Given],
    memory: Sequence[Given],
    history: DeviceHistory | None,
    changes: Tensors = (),
) -> tuple[Tensors, Final, dict[str, int]]:
    """All steps forward: (records [shot, receiver, time], final fields and memory, costs).

    With changes of the coefficients it is the tangent run to the one that kept the history, and all
    other inputs are changes too.
    """
    layout, plan = run.layout, run.layout.plan
    system = plan.system
    asked = [(slot, p) for slot, p in zip(system.recorded, run.receiver_points, strict=True) if p]
    arrays = run.arrays(fields, memory, [places.count * plan.steps for _, places in asked])
    recording = [
        Points(slot, places, places.rows(plan.steps, data))
        for (slot, places), data in zip(asked, arrays.more, strict=True)
    ]
    injecting: list[list[Points]] = [[] for _ in system.stages]
    for entry, places, values in zip(system.injections, run.source_points, amplitudes, strict=True):
        if places is not None:
            slot = system.rotation[entry.field]
            injecting[entry.stage].append(Points(slot, places, places.sort(values)))

    work = Work(
        arrays=arrays,
        history=history.tensors if history is not None else [[] for _ in system.stages],
        recording=[recording] + [[] for _ in system.stages[1:]],
        injecting=injecting,
    )
    live, costs = run.launch(work, range(plan.steps), changes)
    filled, records = iter(recording), []
    for places, cells in zip(run.receiver_points, run.receiver_cells, strict=True):
        if places is None:
            records.append(live[0].new_empty(plan.shots, 0, plan.steps))
            continue
        points = next(filled)
        values = places.unsort(points.data)
        if system.record_after:  # the field before step n + 1 is the one after step n
            last = take(buffers.plain(layout, live[points.slot]), cells)[..., None]
            values = torch.cat([values[..., 1:], last], -1)
        records.append(values)
    return tuple(records), Final(layout, live, arrays.memories), costs


def _late(plan: Plan, slot: int) -> tuple[int, int]:
    """(stage, shift) of the first adjoint launch after a step's own that writes an adjoint slot."""
    stages = plan.system.stages
    if slot in _written(plan, 0):
        return 0, 0
    for index in reversed(range(1, len(stages))):
        if slot in _written(plan, index):
            return index, 1
    raise NotImplementedError(f"no adjoint stage writes field {plan.system.fields[slot]}")


def _written(plan: Plan, index: int) -> dict[int, int]:
    """Field whose adjoint a stage's transpose writes, to the buffer slot that it writes."""
    stage = plan.system.stages[index]
    return dict(zip(stage.sources, stage.adjoint_targets, strict=True))


class Scales:
    """By field, the factor with which its adjoint is kept, a number times perhaps a coefficient."""

    def __init__(self, plan: Plan, coefs: Tensors) -> None:
        self.pairs, self.coefs = plan.system.adjoint_scale, coefs

    def of(self, field: int) -> Tensor | float:
        """[1 or shot, box], or one number."""
        factor, number = self.pairs[field]
        return factor if number is None else _times(self.coefs[number], factor)

    def at(self, field: int, cells: Tensor) -> Tensor | float:
        """[shot, point, 1] at cells, or one number; any at unused slots."""
        factor, number = self.pairs[field]
        if number is None:
            return factor
        return _times(at_cells(self.coefs[number], cells), factor)[..., None]


def _times(x: Tensor, factor: Tensor | float) -> Tensor:
    return x if isinstance(factor, float) and factor == 1 else x * factor


def _over(x: Tensor, factor: Tensor | float) -> Tensor:
    return x if isinstance(factor, float) and factor == 1 else x / factor


def _memory_scales(run: Run) -> list[Tensor | float]:
    """By memory, the factor of its kept adjoint: ``c e`` and e (see `triton_kernels.adjoint`)."""
    plan, lead = run.layout.plan, run.layout.lead
    out: list[Tensor | float] = []
    for d in plan.system.derivatives:
        if not plan.has_layer(d.axis):
            continue
        if d.side != 0:
            out.append(1.0)
            continue
        parts = [run.tables.nodes(d.axis + lead, a, b) for a, b in plan.slabs(d.axis, 0)]
        c, e, _ = torch.cat(parts, 1)
        shape = (1,) * (d.axis + 1) + (-1,) + (1,) * (plan.ndim - 1 - d.axis)
        out += [(c * e).reshape(shape), e.reshape(shape)]
    return out


@dataclass(eq=False)
class Cotangents:
    """What the adjoint run returns, by input, None where it is not needed."""

    coefs: list[Given]
    amplitudes: list[Given]
    fields: list[Given]
    memory: list[Given]


@dataclass(frozen=True)
class Needs:
    """Which cotangents are wanted, by input."""

    coefs: tuple[bool, ...]
    amplitudes: tuple[bool, ...]
    fields: tuple[bool, ...]
    memory: tuple[bool, ...]


def adjoint(
    run: Run,
    coefs: Tensors,
    history: DeviceHistory | None,
    bars: tuple[Sequence[Given], Sequence[Given], Sequence[Given]],
    needs: Needs,
) -> Cotangents:
    """All steps backward, from the cotangents of (records, fields, memory)."""
    layout, plan = run.layout, run.layout.plan
    system = plan.system
    record_bars, field_bars, memory_bars = bars
    scales = Scales(plan, coefs)
    used = any(needs.memory) or any(m is not None for m in memory_bars)
    memory_scales = _memory_scales(run) if used else [1.0] * len(memory_bars)
    asked = [
        (i, entry, places)
        for i, (entry, places) in enumerate(zip(system.injections, run.source_points, strict=True))
        if places is not None and needs.amplitudes[i]
    ]
    count, stored = len(coefs) if history else 0, _stored_groups(layout)
    sizes = [plan.shots * layout.strides.shot] * (count + sum(stored))
    sizes += _trace_sizes(layout) if history and plan.compact else []
    arrays = run.arrays(
        [None if b is None else _times(b, scales.of(i)) for i, b in enumerate(field_bars)],
        [m if m is None else _times(m, s) for m, s in zip(memory_bars, memory_scales, strict=True)],
        [*sizes, *(places.count * plan.steps for _, _, places in asked)],
    )
    live, more = arrays.fields, arrays.more
    grads, rows = more[:count], more[len(sizes) :]
    injecting, left = _record_cotangents(run, scales, live, record_bars)
    zero = all(b is None for b in field_bars) and not system.record_after
    recorded: dict[int, Points] = {}
    recording: list[list[Points]] = [[] for _ in system.stages]
    for (i, entry, places), data in zip(asked, rows, strict=True):
        recorded[i] = Points(entry.field, places, places.rows(plan.steps, data))
        recording[entry.stage].append(recorded[i])

    work = Work(
        arrays=arrays,
        history=history.tensors if history else [[] for _ in system.stages],
        recording=recording,
        injecting=injecting,
        grads=grads,
        pulled=_pulled(layout, arrays, more[count:], stored, zero=zero),
        traces=more[count + sum(stored) : len(sizes)],
    )
    live, _ = run.launch(work, range(plan.steps - 1, -1, -1), adjoint=True)
    out = Cotangents(
        coefs=[],
        amplitudes=_amplitude_cotangents(run, scales, recorded),
        fields=_field_cotangents(run, scales, live, left, needs.fields),
        memory=[
            _over(m.plain(), s) if needed else None
            for m, s, needed in zip(arrays.memories, memory_scales, needs.memory, strict=True)
        ],
    )
    del work, arrays, live, more  # room for the gradients
    out.coefs = _coefficient_gradients(layout, grads, scales, coefs, needs.coefs)
    return out


def _field_cotangents(
    run: Run,
    scales: Scales,
    live: list[Tensor],
    left: list[tuple[int, Tensor, Tensor]],
    needed: tuple[bool, ...],
) -> list[Given]:
    """Of the initial fields; left: what is still to be added, (field, cells, values)."""
    found: list[Given] = [None] * len(needed)
    for field in (i for i, wanted in enumerate(needed) if wanted):
        out = buffers.plain(run.layout, live[field])
        for _, where, values in (added for added in left if added[0] == field):
            out = add(out, where, values)
        found[field] = _over(out, scales.of(field))
    return found


def _stored_groups(layout: Layout) -> list[int]:
    """By stage, how many cotangents of derivatives are stored; empty if the choice stores none."""
    stages = layout.plan.system.stages
    stored = layout.choice.route == STORED and len(stages) == 2
    return [stage.groups for stage in stages] if stored else []


def _trace_sizes(layout: Layout) -> list[int]:
    """Of a compact history's traces: each like a memory of its axis."""
    plan = layout.plan
    axes = [plan.system.stages[1].derivatives[n].axis for _, n in traced(plan)]
    return [plan.shots * layout.memory_strides(axis + layout.lead).shot for axis in axes]


def _pulled(
    layout: Layout, arrays: Arrays, zeros: list[Tensor], stored: list[int], *, zero: bool
) -> list[list[Tensor]]:
    """By stage, the stored cotangents: those of the last stage, which runs first, from the adjoint
    fields, which may be ``zero``; the other's are written before they are read."""
    if not stored:
        return []
    parts = [zeros[: stored[0]], zeros[stored[0] : sum(stored)]]
    if zero:
        return parts
    last = layout.plan.system.stages[-1]

    def by_shot(array: Tensor) -> Tensor:
        return array.view(-1, layout.strides.shot)

    coefs = [by_shot(arrays.coefs[i]) for i in last.coefficients + last.adjoint_reads]
    first = last.pull_derivatives([by_shot(arrays.fields[i]) for i in last.bars], coefs)
    for buffer, values in zip(parts[1], first, strict=True):
        by_shot(buffer).copy_(values)
    return parts


def _record_cotangents(run: Run, scales: Scales, live: list[Tensor], bars: Sequence[Given]):
    """(points by the stage they are injected in, (field, cells, values) added at the very end).

    The sample after the last step is added to the adjoint fields at once.
    """
    layout, plan = run.layout, run.layout.plan
    injecting: list[list[Points]] = [[] for _ in plan.system.stages]
    left: list[tuple[int, Tensor, Tensor]] = []
    for field, places, where, values in zip(
        plan.system.recorded, run.receiver_points, run.receiver_cells, bars, strict=True
    ):
        if places is None:
            continue
        if values is None:
            values = live[0].new_zeros(*where.shape, plan.steps)
        values = _times(values, scales.at(field, where))
        if plan.system.record_after:
            buffers.field_view(layout, live[field]).copy_(
                add(buffers.plain(layout, live[field]), where, values[..., -1])
            )
            values = torch.cat([torch.zeros_like(values[..., :1]), values[..., :-1]], -1)
        index, shift = _late(plan, field)
        rows = places.sort(values)
        if shift:
            rows = torch.cat([rows, torch.zeros_like(rows[:1])])
            left.append((field, where, values[..., 0]))
        slot = _written(plan, index)[field]
        injecting[index].append(Points(slot, places, rows, shift))
    return injecting, left


def _amplitude_cotangents(run: Run, scales: Scales, recorded: dict[int, Points]) -> list[Given]:
    """[shot, source, time] of the injections recorded, from the adjoint fields at their cells."""
    out: list[Given] = []
    for i, (entry, where) in enumerate(
        zip(run.layout.plan.system.injections, run.source_cells, strict=True)
    ):
        if i not in recorded:
            out.append(None)
            continue
        scale = scales.at(entry.field, where)
        if isinstance(scale, Tensor):  # an unused slot's might be zero
            scale = scale.masked_fill(where[..., None] < 0, 1)
        out.append(_over(recorded[i].places.unsort(recorded[i].data), scale))
    return out


def _coefficient_gradients(
    layout: Layout,
    grads: list[Tensor],
    scales: Scales,
    coefs: Tensors,
    needed: tuple[bool, ...],
) -> list[Given]:
    """Per-shot sums to the coefficients' own shape, shots added in order; each buffer is let go."""
    if not grads:
        return [None] * len(coefs)
    out: list[Given] = []
    kept = {
        i: scales.of(stage.bars[0])
        for stage in layout.plan.system.stages
        for i in stage.coefficients
    }
    for number, coef in enumerate(coefs):
        buffer = grads.pop(0)
        if not needed[number]:
            out.append(None)
            continue
        total, scale = buffers.field_view(layout, buffer), kept[number]
        if coef.shape[0] < total.shape[0]:
            parts = total.split(1)
            total = parts[0] + parts[1]
            for part in parts[2:]:
                total += part
        elif isinstance(scale, float):
            total = buffers.plain(layout, buffer)
        out.append(_over(total, scale))
    if layout.plan.compact:  # of these the sum was of the changes, group times coefficient
        for i in layout.plan.system.stages[0].coefficients:
            change = out[i]
            out[i] = change if change is None else torch.where(coefs[i] == 0, 0, change / coefs[i])
    return out
