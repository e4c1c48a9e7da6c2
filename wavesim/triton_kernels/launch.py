"""From a plan's stages to kernel launches: constexpr columns, argument tuples, one call a stage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from math import prod
from typing import Any

import torch
import triton
from torch import Tensor

from ..buffers import Arrays, Tables, near_table
from ..choice import GRAPH, LOOP, SHOT
from ..device import card, interpreting
from ..layout import Layout, Sizes, round_up, tiles
from ..plan import Plan
from ..stencils import CENTRAL, SECOND, STAGGERED
from .adjoint import loop_adjoint_kernel, stage_adjoint_kernel
from .compiled import FEW_SPILLS, compiled, execute
from .forward import loop_forward_kernel, stage_forward_kernel
from .gradient import gradient_kernel
from .graph import PART_CELLS, Lead, run_steps
from .lists import PointList


@cache
def jitted(function: Callable) -> Callable:
    """An equation's pointwise function as a jit function; the interpreter calls it as it is."""
    return function if interpreting() else triton.jit(function)


@lru_cache(maxsize=256)
def columns(plan: Plan, index: int, adjoint: bool) -> tuple[int, ...]:
    """COLUMNS of a stage: groups, then six numbers per derivative, axes counted among three."""
    lead, memory, out = 3 - plan.ndim, 0, []
    for number, stage in enumerate(plan.system.stages):
        for d in stage.derivatives:
            has = plan.has_layer(d.axis)
            if number == index:
                source = stage.sources.index(d.source) if adjoint else d.source
                first = memory if has else -1
                out += [source, d.axis + lead, d.side, d.group, d.sign, first]
            memory += plan.memory_count(d.side) if has else 0
    return (plan.system.stages[index].groups, *out)


def stencil(order: int) -> tuple:
    """STENCIL: reach, then the weights of the second, central and staggered derivatives."""
    return (order // 2, *SECOND[order], *CENTRAL[order], *STAGGERED[order])


def slots(*groups: tuple[int, ...]) -> tuple[int, ...]:
    """SLOTS, see `tile.members`."""
    return (len(groups), *(len(g) for g in groups), *(i for g in groups for i in g))


@lru_cache(maxsize=64)
def traced(plan: Plan) -> tuple[tuple[int, int], ...]:
    """Coefficient and derivative of every trace of `gradient`, among the second stage's."""
    stage = plan.system.stages[1]
    bars = [tuple(float(i == j) for j in range(len(stage.bars))) for i in range(len(stage.bars))]
    found = []
    for n, d in enumerate(stage.derivatives):
        one = tuple(float(group == d.group) for group in range(stage.groups))
        by_bar = zip(*(stage.pull_coefficients(b, one) for b in bars), strict=True)
        found += [(k, n) for k, weights in enumerate(by_bar) if any(weights)]
    return tuple((k, n) for k, n in found if plan.has_layer(stage.derivatives[n].axis))


@dataclass(eq=False)
class Points:
    """A channel's points and its samples [time, sorted point]; shift: steps that it is late."""

    slot: int
    places: PointList
    data: Tensor
    shift: int = 0

    @property
    def recorded(self) -> tuple[Tensor, ...]:
        return self.places.offsets, self.places.cells, self.data

    @property
    def injected(self) -> tuple[Tensor, ...]:
        return self.places.offsets, self.places.cells, self.places.runs, self.data


@dataclass(eq=False)
class Work:
    """What the kernels of one direction read and write, by the numbers of the system.

    History, recording and injecting by stage; the gradients by coefficient, if there are any; by
    stage the stored cotangents of its derivatives, if that is the adjoint's route; and the traces
    of `triton_kernels.gradient`.
    """

    arrays: Arrays
    history: list[list[Tensor]]
    recording: list[list[Points]]
    injecting: list[list[Points]]
    grads: list[Tensor] = field(default_factory=list)
    pulled: list[list[Tensor]] = field(default_factory=list)
    traces: list[Tensor] = field(default_factory=list)


@contextlib.contextmanager
def on_device(device: torch.device):
    """Make a CUDA device current for the launches inside, and restore the one before."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        yield


def _lines(layout: Layout) -> int:
    """Counters of a loop: one to a tile, whole cache lines to a shot."""
    return round_up(tiles(layout), 32) * layout.plan.shots


def _parts(layout: Layout, steps: int, shots: int) -> tuple[int, range]:
    """(steps of a loop's parts, where they start): it is cut up if it is long."""
    length = max(2, PART_CELLS // (prod(layout.extent) * shots) // 2 * 2)
    return length, range(0, steps, length)


def signals(layout: Layout) -> int:
    """Numbers of the plan's type that `Launcher` needs as ``Arrays.signals``: counters for every
    part of a loop, which groups of shots share, as each has its own; else one clock."""
    plan, choice = layout.plan, layout.choice
    if choice.mode != LOOP:
        return 8 // plan.itemsize
    parts = _parts(layout, plan.steps, min(choice.shots, plan.shots))[1]
    return len(parts) * _lines(layout) * 4 // plan.itemsize


FEW_PROGRAMS = 128
"""Registers of a thread where every program has one tile: with them loads can be asked for early,
and there are too few programs to need the room. Left alone, ptxas takes 80."""


GRADIENT_REGISTERS = 64
"""Of a thread of the gradient kernel, if few spill; in three dimensions with twice the warps. On an
H200, elastic 256^3: 2.2 ms a step left alone (206 registers), 1.3 ms so."""


class Launcher:
    """Runs the stages of one direction; everything a kernel reads is an argument of it.

    With changes of the coefficients it is a tangent run.
    """

    def __init__(
        self,
        layout: Layout,
        tables: Tables,
        work: Work,
        changes: tuple[Tensor, ...] = (),
        *,
        adjoint: bool = False,
    ) -> None:
        self.layout, self.plan, self.choice = layout, layout.plan, layout.choice
        self.work, self.adjoint, self.tangent = work, adjoint, bool(changes)
        self.device, self.interpreted = tables.tiles.device, interpreting()
        arrays = work.arrays
        numbers = Sizes.of(layout, arrays.coefs[0].numel() > layout.strides.shot)
        self.common = {
            "table": tables.tiles,
            "factors": tables.factors,
            "profiles": tables.profiles,
            "coefs": arrays.coefs,
            "hist": tuple(t for stage in work.history for t in stage),
            "recording": tuple(t for stage in work.recording for p in stage for t in p.recorded),
            "injecting": tuple(t for stage in work.injecting for p in stage for t in p.injected),
            "sizes": numbers.sizes,
            "layers": numbers.layers,
            "box": numbers.box,
            "STENCIL": stencil(self.plan.order),
            "BLOCKS": (*self.choice.interior, *self.choice.boundary),
            "num_warps": self.choice.warps,
            "enable_fp_fusion": False,
        }
        if self.choice.registers and not torch.version.hip:
            self.common["maxnreg"] = self.choice.registers
        if adjoint:
            self.common["grads"] = tuple(work.grads)
            self.common["pulled"] = tuple(t for stage in work.pulled for t in stage)
        else:
            self.common["changes"] = changes
        read = tuple(m.read for m in arrays.memories)
        write = tuple(m.write for m in arrays.memories)
        now, then = tuple(arrays.fields), tuple(self.fields_after(1))
        self.buffers = (
            {"fields": now, "read": read, "write": write},
            {"fields": then, "read": write, "write": read},
        )
        count = range(len(self.plan.system.stages))
        self.stages = [self._constants(index) for index in count]
        self.between = adjoint and self.plan.compact and bool(work.grads)
        self.known: dict[Hashable, Any] = {}
        looped = self.choice.mode == LOOP
        self.clock = None if looped else arrays.signals.view(torch.int64)

    def fields_after(self, steps: int) -> list[Tensor]:
        """The fields, by number, after so many steps."""
        turned = self.plan.system.rotation
        fields = self.work.arrays.fields
        return [fields[i] for i in turned] if steps % 2 else fields

    def _constants(self, index: int) -> dict[str, Any]:
        """What a stage's kernel is compiled for."""
        stage, work = self.plan.system.stages[index], self.work
        recording, injecting = work.recording[index], work.injecting[index]
        start = sum(len(h) for h in work.history[:index])
        history = tuple(range(start, start + len(work.history[index])))
        firsts = (
            3 * sum(len(p) for p in work.recording[:index]),
            4 * sum(len(p) for p in work.injecting[:index]),
        )
        points = tuple(p.slot for p in recording), tuple(p.slot for p in injecting)
        shifts = tuple(p.shift for p in injecting)
        columned = {"COLUMNS": columns(self.plan, index, self.adjoint)}
        if self.adjoint:
            coefs = stage.coefficients + stage.adjoint_reads
            own = stage.coefficients if work.grads and not self.plan.compact else ()
            arrays = stage.bars, stage.adjoint_targets, *points, coefs, history
            following, told = self._following(index)
            return {
                "PULL": jitted(stage.pull_derivatives),
                "FIELDS": jitted(stage.pull_fields),
                "GRADIENT": jitted(stage.pull_coefficients),
                "NEXT": following,
                "SLOTS": slots(*arrays, firsts, shifts, own, *told),
                **columned,
            }
        arrays = stage.reads, stage.targets, *points, stage.coefficients, history
        return {
            "UPDATE": jitted(stage.update),
            "HISTORY": None if self.plan.compact else jitted(stage.history),
            "PUSH": jitted(stage.push_coefficients) if self.tangent else None,
            "SLOTS": slots(*arrays, firsts, shifts),
            **columned,
        }

    def _following(self, index: int) -> tuple[Callable | None, tuple[tuple[int, ...], ...]]:
        """With stored cotangents: the pointwise function of the stage that runs after this one,
        and SLOTS from what this stage reads of them on, see ``adjoint_stage``."""
        stages, pulled = self.plan.system.stages, self.work.pulled
        if not pulled:
            return None, ((), (), (), ())
        after = (index - 1) % len(stages)
        starts = [sum(len(p) for p in pulled[:i]) for i in range(len(stages))]
        own, its = (
            tuple(range(starts[i], starts[i] + len(pulled[i]))) for i in (index, after)
        )  # fmt: skip
        bars = tuple(stages[index].adjoint_targets.index(b) for b in stages[after].bars)
        coefs = stages[after].coefficients + stages[after].adjoint_reads
        return jitted(stages[after].pull_derivatives), (own, bars, coefs, its)

    def run(self, steps: range) -> dict[str, int]:
        """Every step of a range, group of shots by group: launches, and steps in graphs."""
        launches = replayed = 0
        lead = Lead(self.device)
        for first in range(0, self.plan.shots, self.choice.shots):
            shots = min(self.choice.shots, self.plan.shots - first)
            cells = prod(self.layout.extent) * shots
            if self.clock is None:
                launches += self._loop(steps, first, shots, lead)
                continue
            advance = partial(self._step, start=steps[0], first_shot=first, shots=shots)
            launches += len(steps) * (len(self.stages) + self.between)
            replayed += run_steps(
                advance, steps, self.clock, lead, cells, capture=self.choice.mode == GRAPH
            )
        return {"kernel_launches": launches, "graph_steps": replayed}

    def _kernel(
        self,
        kernel: Any,
        name: Hashable,
        shots: int,
        arguments: dict[str, Any],
        limit: int | None = None,
    ) -> Any:
        """What runs these arguments: found once for all calls that are alike."""
        if (name, shots) not in self.known:
            points = tuple(stage["SLOTS"] for stage in self.stages)
            kept = len(self.common["hist"])
            key = (name, shots, self.layout, self.device, points, kept, self.tangent)
            self.known[name, shots] = compiled(kernel, key, arguments, limit)
        return self.known[name, shots]

    def step_arguments(self, index: int, odd: int = 0) -> dict[str, Any]:
        """Of a stage's kernel, all but the step and the shots."""
        buffers = self.buffers[odd]
        own = {"clock": self.clock, "SHOT_FASTEST": self.choice.fastest == SHOT}
        return {**self.common, **buffers, **self.stages[index], **own}

    def gradient_arguments(self) -> dict[str, Any]:
        """Of the kernel that runs between two adjoint stages, all but the step and the shots."""
        stages, work = self.plan.system.stages, self.work
        names = ("table", "factors", "profiles", "hist", "grads", "sizes", "layers", "box")
        names += ("STENCIL", "BLOCKS", "enable_fp_fusion")
        return {
            **{name: self.common[name] for name in names},
            "clock": self.clock,
            "fields": tuple(work.arrays.fields),
            "traces": tuple(work.traces),
            "FIRST": jitted(stages[0].pull_coefficients),
            "SECOND": jitted(stages[1].pull_coefficients),
            "COLUMNS": columns(self.plan, 1, False),
            "SLOTS": slots(*((s.bars, s.coefficients)[i] for s in stages for i in (0, 1))),
            "PAIRS": tuple(number for pair in traced(self.plan) for number in pair),
            "SHOT_FASTEST": self.choice.fastest == SHOT,
            "num_warps": self.choice.warps * (2 if self.plan.ndim == 3 else 1),
        }

    def _step(self, n: int, *, start: int, first_shot: int, shots: int) -> None:
        """Launch the stages of one step, the last one first if it is an adjoint one."""
        kernel = stage_adjoint_kernel if self.adjoint else stage_forward_kernel
        programs = tiles(self.layout) * shots
        order = range(len(self.stages))
        group = {"step": n, "first_shot": first_shot, "shots": shots}
        for index in reversed(order) if self.adjoint else order:
            arguments = self.step_arguments(index, abs(n - start) % 2) | group
            found = self._kernel(kernel, index, shots, arguments)
            execute(found, kernel, programs, arguments)
            if self.between and index == 1:
                arguments = self.gradient_arguments() | group
                found = self._kernel(
                    gradient_kernel, "gradient", shots, arguments, GRADIENT_REGISTERS
                )
                execute(found, gradient_kernel, programs, arguments)

    def loop_arguments(self) -> dict[str, Any]:
        """Of a loop's kernel, all but its counters, the steps and the shots."""
        if self.between:
            raise RuntimeError(
                "choice: got a loop for an adjoint run with a compact history, expected a launch a "
                "stage. Choose another mode."
            )
        if len(self.stages) > 2:
            raise RuntimeError(
                f"choice: got a loop over {len(self.stages)} stages, expected one or two. Choose "
                f"another mode."
            )
        rotation = self.plan.system.rotation
        still = rotation == tuple(range(len(rotation)))
        second = self.stages[1] if len(self.stages) > 1 else dict.fromkeys(self.stages[0])
        return {
            **self.common,
            **self.buffers[0],
            **self.stages[0],
            **{f"{k}2": v for k, v in second.items()},
            "turned": () if still else self.buffers[1]["fields"],
            "launch_cooperative_grid": not self.interpreted,
        }

    def _loop(self, steps: range, first_shot: int, shots: int, lead: Lead) -> int:
        """Launch the whole loop, a few times if it is long; the number of launches."""
        kernel = loop_adjoint_kernel if self.adjoint else loop_forward_kernel
        length, starts = _parts(self.layout, len(steps), shots)
        lines = _lines(self.layout)
        counters = self.work.arrays.signals.view(torch.int32)
        counters = counters.as_strided((len(starts), lines), (lines, 1))
        arguments = self.loop_arguments() | {
            "counters": counters,
            "step": 0,
            "steps": 0,
            "first_shot": first_shot,
            "shots": shots,
            "programs": 1,
        }
        found, programs, constants = self._looping(kernel, shots, arguments)
        for row, start in zip(counters, starts, strict=False):
            part = steps[start : start + length]
            own = {"counters": row, "step": part[0], "steps": len(part), "programs": programs}
            execute(found, kernel, programs * shots, arguments | constants | own)
            lead.launched(prod(self.layout.extent) * shots * len(part))
        return len(starts)

    def _looping(
        self, kernel: Any, shots: int, arguments: dict[str, Any]
    ) -> tuple[Any, int, dict[str, Any]]:
        """What runs the loop, how many of its programs share a shot (what was chosen, but no more
        than all shots' fit on the card together), and what it is compiled for: ONCE, each of them
        has one tile."""
        wanted = min(self.choice.programs or tiles(self.layout), tiles(self.layout))
        for once in (True, False):
            if once and (wanted < tiles(self.layout) or self._fitting(shots) < wanted):
                continue
            near = near_table(self.layout, self.device) if once else None
            own = {"ONCE": once, "near": near, "NEAR": near.shape[1] if once else 0}
            limit = FEW_PROGRAMS if once and not self.choice.registers else None
            found = self._kernel(kernel, ("loop", once), shots, arguments | own, limit)
            if once and not self.interpreted and found.n_spills > FEW_SPILLS:
                continue
            programs = min(wanted, self._fitting(shots, found))
            if programs == wanted:
                break
        if programs == 0:
            raise RuntimeError(
                f"choice: got {shots} shots in a loop, expected no more than fit on the GPU at "
                f"once. Run fewer shots a group, or another mode."
            )
        return found, programs, own

    def _fitting(self, shots: int, found: Any = None) -> int:
        """Programs of a shot that are on the card at once; without a kernel, the most of any."""
        if self.interpreted:
            return 1  # it runs programs one after another, and they wait for each other
        registers = found.n_regs if found else 0
        return card(self.device).blocks(registers, self.choice.warps) // shots
