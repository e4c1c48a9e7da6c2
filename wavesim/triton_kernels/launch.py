"""From a direction's work to kernel launches: argument tuples, one call a stage or a loop."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from ..buffers import Arrays, Tables, near_table
from ..choice import GRAPH, LOOP, SHOT
from ..device import card, interpreting
from ..layout import Layout, round_up, tiles
from .adjoint import loop_adjoint_kernel, stage_adjoint_kernel
from .compiled import FEW_SPILLS, compiled, execute
from .constants import Wiring, constants, gradient_constants
from .forward import loop_forward_kernel, stage_forward_kernel
from .gradient import gradient_kernel
from .graph import PART_CELLS, Lead, run_steps
from .lists import PointList


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


def on_device(device: torch.device) -> contextlib.AbstractContextManager:
    """Make a CUDA device current for the launches inside, and restore the one before."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


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
        self.work, self.adjoint = work, adjoint
        self.device, self.interpreted = tables.tiles.device, interpreting()
        arrays = work.arrays
        self.wiring = Wiring(
            adjoint=adjoint,
            tangent=bool(changes),
            batched=arrays.coefs[0].numel() > layout.strides.shot,
            kept=tuple([len(stage) for stage in work.history]),
            recorded=tuple([tuple([p.slot for p in stage]) for stage in work.recording]),
            injected=tuple([tuple([p.slot for p in stage]) for stage in work.injecting]),
            shifts=tuple([tuple([p.shift for p in stage]) for stage in work.injecting]),
            gradients=bool(work.grads),
            pulled=tuple([len(stage) for stage in work.pulled]),
        )
        self.constants = constants(layout, self.wiring)
        self.tensors: dict[str, Any] = {
            "table": tables.tiles,
            "factors": tables.factors,
            "profiles": tables.profiles,
            "coefs": arrays.coefs,
            "hist": tuple([t for stage in work.history for t in stage]),
            "recording": tuple([t for stage in work.recording for p in stage for t in p.recorded]),
            "injecting": tuple([t for stage in work.injecting for p in stage for t in p.injected]),
        }
        if adjoint:
            self.tensors["grads"] = tuple(work.grads)
            self.tensors["pulled"] = tuple([t for stage in work.pulled for t in stage])
        else:
            self.tensors["changes"] = changes
        read = tuple([m.read for m in arrays.memories])
        write = tuple([m.write for m in arrays.memories])
        now, then = tuple(arrays.fields), tuple(self.fields_after(1))
        self.buffers = (
            {"fields": now, "read": read, "write": write},
            {"fields": then, "read": write, "write": read},
        )
        self.between = adjoint and self.plan.compact and bool(work.grads)
        self.known: dict[Hashable, Any] = {}
        looped = self.choice.mode == LOOP
        self.clock = None if looped else arrays.signals.view(torch.int64)

    def fields_after(self, steps: int) -> list[Tensor]:
        """The fields, by number, after so many steps."""
        turned = self.plan.system.rotation
        fields = self.work.arrays.fields
        return [fields[i] for i in turned] if steps % 2 else fields

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
            launches += len(steps) * (len(self.plan.system.stages) + self.between)
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
            key = (name, shots, self.layout, self.device, self.wiring)
            self.known[name, shots] = compiled(kernel, key, arguments, limit)
        return self.known[name, shots]

    def step_arguments(self, index: int, odd: int = 0) -> dict[str, Any]:
        """Of a stage's kernel, all but the step and the shots."""
        buffers = self.buffers[odd]
        own = {"clock": self.clock, "SHOT_FASTEST": self.choice.fastest == SHOT}
        told = self.constants
        return {**told.common, **told.stages[index], **self.tensors, **buffers, **own}

    def gradient_arguments(self) -> dict[str, Any]:
        """Of the kernel that runs between two adjoint stages, all but the step and the shots."""
        names = ("table", "factors", "profiles", "hist", "grads")
        return {
            **gradient_constants(self.layout, self.wiring),
            **{name: self.tensors[name] for name in names},
            "clock": self.clock,
            "fields": tuple(self.work.arrays.fields),
            "traces": tuple(self.work.traces),
        }

    def _step(self, n: int, *, start: int, first_shot: int, shots: int) -> None:
        """Launch the stages of one step, the last one first if it is an adjoint one."""
        kernel = stage_adjoint_kernel if self.adjoint else stage_forward_kernel
        programs = tiles(self.layout) * shots
        order = range(len(self.plan.system.stages))
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
        stages = len(self.plan.system.stages)
        if stages > 2:
            raise RuntimeError(
                f"choice: got a loop over {stages} stages, expected at most 2. Choose another mode."
            )
        return {
            **self.constants.loop,
            **self.tensors,
            **self.buffers[0],
            "turned": self.buffers[1]["fields"] if self.constants.turns else (),
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
        found, programs, compiled_for = self._looping(kernel, shots, arguments)
        for row, start in zip(counters, starts, strict=False):
            part = steps[start : start + length]
            own = {"counters": row, "step": part[0], "steps": len(part), "programs": programs}
            execute(found, kernel, programs * shots, arguments | compiled_for | own)
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
