"""The forward and adjoint time loops over a range of steps; stages are known by number only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import buffers
from .buffers import Memory, Tables
from .history import DeviceHistory
from .layout import Layout
from .plan import Plan
from .points import add, take
from .triton_kernels.launch import Launcher, Points, Work
from .triton_kernels.points import PointList

Tensors = tuple[Tensor, ...]


@dataclass(eq=False)
class Run:
    """What both directions of a call share: tables, coefficients and point lists on the device."""

    layout: Layout
    tables: Tables
    coefs: Tensors
    source_points: list[PointList | None]
    receiver_points: list[PointList | None]
    source_cells: Tensors
    receiver_cells: Tensors

    @staticmethod
    def start(
        layout: Layout, coefs: Tensors, source_cells: Tensors, receiver_cells: Tensors
    ) -> Run:

        tables = Tables.of(layout, coefs[0].dtype, coefs[0].device)

        def listed(cells: Tensor) -> PointList | None:
            return PointList.build(layout, tables.owner, cells) if cells.shape[1] else None

        return Run(
            layout=layout,
            tables=tables,
            coefs=tuple(buffers.aligned(layout, c) for c in coefs),
            source_points=[listed(c) for c in source_cells],
            receiver_points=[listed(c) for c in receiver_cells],
            source_cells=source_cells,
            receiver_cells=receiver_cells,
        )

    def memories(self, values: Sequence[Tensor]) -> list[Memory]:
        kinds = self.layout.plan.memories
        return [Memory(self.layout, a, s, v) for (a, s), v in zip(kinds, values, strict=True)]

    def launch(self, work: Work, steps: range, changes: Tensors = (), *, adjoint: bool = False):
        """Run the kernels; (fields, costs). The memories are left as the last step wrote them."""
        moved = tuple(buffers.aligned(self.layout, c) for c in changes)
        launcher = Launcher(self.layout, self.tables, self.coefs, work, moved, adjoint=adjoint)
        costs = launcher.run(steps)
        if len(steps) % 2:
            for memory in work.memories:
                memory.swap()
        return launcher.fields_after(len(steps)), costs


def forward(
    run: Run,
    amplitudes: Tensors,
    fields: Tensors,
    memory: Tensors,
    history: DeviceHistory | None,
    changes: Tensors = (),
) -> tuple[Tensors, Tensors, Tensors, dict[str, int]]:
    """All steps forward: (records [shot, receiver, time], fields, memory, costs).

    With changes of the coefficients it is the tangent run to the one that kept the history, and all
    other inputs are changes too.
    """
    layout, plan = run.layout, run.layout.plan
    system = plan.system
    live = [buffers.aligned(layout, f) for f in fields]
    recording = [
        Points(slot, places, live[0].new_zeros(plan.steps, len(places.order)))
        for slot, places in zip(system.recorded, run.receiver_points, strict=True)
        if places is not None
    ]
    injecting: list[list[Points]] = [[] for _ in system.stages]
    for entry, places, values in zip(system.injections, run.source_points, amplitudes, strict=True):
        if places is not None:
            slot = system.rotation[entry.field]
            injecting[entry.stage].append(Points(slot, places, places.sort(values)))

    work = Work(
        fields=live,
        memories=run.memories(memory),
        history=history.tensors if history is not None else [[] for _ in system.stages],
        recording=[recording] + [[] for _ in system.stages[1:]],
        injecting=injecting,
    )
    live, costs = run.launch(work, range(plan.steps), changes)
    out = tuple(buffers.plain(layout, f) for f in live)
    filled, records = iter(recording), []
    for places, cells in zip(run.receiver_points, run.receiver_cells, strict=True):
        if places is None:
            records.append(fields[0].new_zeros(plan.shots, 0, plan.steps))
            continue
        points = next(filled)
        values = places.unsort(points.data, plan.shots)
        if system.record_after:  # the field before step n + 1 is the one after step n
            last = take(out[points.slot], cells)[..., None]
            values = torch.cat([values[..., 1:], last], -1)
        records.append(values)
    return tuple(records), out, tuple(m.plain() for m in work.memories), costs


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


def _scales(plan: Plan, coefs: Tensors) -> list[Tensor]:
    """By field, the factor with which its adjoint is kept: [1 or shot, box]."""
    out = []
    for factor, number in plan.system.adjoint_scale:
        one = torch.ones_like(coefs[0][:1]) if number is None else coefs[number]
        out.append(factor * one)
    return out


def _memory_scales(run: Run) -> list[Tensor | None]:
    """By memory, the factor of its kept adjoint: ``c e`` and e (see `triton_kernels.adjoint`)."""
    plan, lead = run.layout.plan, run.layout.lead
    out: list[Tensor | None] = []
    for d in plan.system.derivatives:
        if not plan.has_layer(d.axis):
            continue
        if d.side != 0:
            out.append(None)
            continue
        parts = [run.tables.nodes(d.axis + lead, a, b) for a, b in plan.slabs(d.axis, 0)]
        c, e, _ = torch.cat(parts, 1)
        shape = (1,) * (d.axis + 1) + (-1,) + (1,) * (plan.ndim - 1 - d.axis)
        out += [(c * e).reshape(shape), e.reshape(shape)]
    return out


@dataclass(eq=False)
class Cotangents:
    """What the adjoint run returns, by input; coefficients only if asked for."""

    coefs: list[Tensor | None]
    amplitudes: list[Tensor]
    fields: list[Tensor]
    memory: list[Tensor]


def adjoint(
    run: Run,
    coefs: Tensors,
    history: DeviceHistory | None,
    bars: tuple[Tensors, Tensors, Tensors],
) -> Cotangents:
    """All steps backward, from the cotangents of (records, fields, memory)."""
    layout, plan = run.layout, run.layout.plan
    system = plan.system
    record_bars, field_bars, memory_bars = bars
    scales, memory_scales = _scales(plan, coefs), _memory_scales(run)
    live = [buffers.aligned(layout, b * s) for b, s in zip(field_bars, scales, strict=True)]
    memories = run.memories(
        [m if s is None else m * s for m, s in zip(memory_bars, memory_scales, strict=True)]
    )
    grads = [buffers.zeros(layout, plan.shots, live[0]) for _ in coefs] if history else []

    injecting, left = _record_cotangents(run, scales, live, record_bars)
    recorded: list[Points | None] = []
    recording: list[list[Points]] = [[] for _ in system.stages]
    for entry, places in zip(system.injections, run.source_points, strict=True):
        points = None
        if places is not None:
            rows = live[0].new_zeros(plan.steps, len(places.order))
            points = Points(entry.field, places, rows)
            recording[entry.stage].append(points)
        recorded.append(points)

    work = Work(
        fields=live,
        memories=memories,
        history=history.tensors if history else [[] for _ in system.stages],
        recording=recording,
        injecting=injecting,
        grads=grads,
    )
    live, _ = run.launch(work, range(plan.steps - 1, -1, -1), adjoint=True)
    fields = [buffers.plain(layout, f) for f in live]
    for field, where, values in left:
        fields[field] = add(fields[field], where, values)
    return Cotangents(
        coefs=_coefficient_gradients(layout, grads, scales, coefs),
        amplitudes=_amplitude_cotangents(run, scales, recorded),
        fields=[f / s for f, s in zip(fields, scales, strict=True)],
        memory=[
            m.plain() if s is None else m.plain() / s
            for m, s in zip(memories, memory_scales, strict=True)
        ],
    )


def _record_cotangents(run: Run, scales: list[Tensor], live: list[Tensor], bars: Tensors):
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
        values = values * take(scales[field], where)[..., None]
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


def _amplitude_cotangents(
    run: Run, scales: list[Tensor], recorded: list[Points | None]
) -> list[Tensor]:
    """[shot, source, time] of every injection, from the adjoint fields at its cells."""
    plan, out = run.layout.plan, []
    for entry, points, where in zip(
        plan.system.injections, recorded, run.source_cells, strict=True
    ):
        if points is None:
            out.append(scales[0].new_zeros(plan.shots, 0, plan.steps))
            continue
        values = points.places.unsort(points.data, plan.shots)
        scale = take(scales[entry.field], where)
        out.append(values / torch.where(where < 0, 1, scale)[..., None])
    return out


def _coefficient_gradients(
    layout: Layout, grads: list[Tensor], scales: list[Tensor], coefs: Tensors
) -> list[Tensor | None]:
    """Per-shot sums to the coefficients' own shape, shots added in ascending order."""
    if not grads:
        return [None] * len(coefs)
    out: list[Tensor | None] = []
    target_scale = {
        i: scales[stage.bars[0]] for stage in layout.plan.system.stages for i in stage.coefficients
    }
    for number, (buffer, coef) in enumerate(zip(grads, coefs, strict=True)):
        per_shot = buffers.field_view(layout, buffer)
        if coef.shape[0] == 1:
            total = per_shot[:1].clone()
            for shot in range(1, per_shot.shape[0]):
                total += per_shot[shot : shot + 1]
        else:
            total = per_shot
        out.append(total / target_scale[number])
    return out
