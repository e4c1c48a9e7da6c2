"""From a plan's stages to kernel launches: constexpr columns, argument tuples, one call a stage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch
import triton
from torch import Tensor

from ..buffers import Memory, Tables
from ..device import interpreting
from ..layout import Layout, Sizes, tiles
from ..plan import Plan
from ..stencils import CENTRAL, SECOND, STAGGERED
from .adjoint import stage_adjoint_kernel
from .forward import stage_forward_kernel
from .points import PointList


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
    """SLOTS: the length of each group, then their members (nested constexprs do not compile)."""
    return tuple(len(g) for g in groups) + tuple(i for g in groups for i in g)


@dataclass(eq=False)
class Points:
    """A channel's points and its samples [time, sorted point]."""

    slot: int
    places: PointList
    data: Tensor
    shift: int = 0


@contextlib.contextmanager
def on_device(device: torch.device):
    """Make a CUDA device current for the launches inside, and restore the one before."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        yield


REGISTER_LIMITS = (56, 64, 72, 80, 96, 128, 168, 255)
"""ptxas sometimes gives up a register too many to fit one more block on a processor, and spills a
few bytes; told a limit it does not. The lowest without spills is taken: it fits most blocks."""
_limits: dict[Hashable, dict[str, int]] = {}


def spill_free(kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> dict[str, int]:
    """The launch options without spills: none, or a register limit; the last one if all spill."""

    def built(**options: int) -> Any:
        compiled = kernel.warmup(**arguments, **options, grid=grid)
        compiled._init_handles()
        return compiled

    if interpreting() or torch.version.hip:
        return {}
    first = built()
    if first.n_spills == 0:
        return {}
    for limit in REGISTER_LIMITS:
        if limit > first.n_regs and built(maxnreg=limit).n_spills == 0:
            break
    return {"maxnreg": limit}


class Launcher:
    """Launches the stages of one run; everything a kernel reads is an argument of it."""

    def __init__(self, layout: Layout, tables: Tables, coefs: tuple[Tensor, ...],
                 changes: tuple[Tensor, ...] = ()) -> None:  # fmt: skip
        self.layout, self.plan = layout, layout.plan
        self.coefs, self.changes = coefs, changes
        self.clock = torch.zeros(1, dtype=torch.int64, device=tables.tiles.device)
        self.limits: dict[Hashable, dict[str, int]] = {}
        self.tables = tables
        self.sizes = Sizes.of(layout, coefs[0].shape[0] > 1)
        choice = layout.choice
        self.grid = (tiles(layout) * choice.shots,)
        self.blocks = (*choice.interior, *choice.boundary)

    def _common(self, fields: list[Tensor], coefs: tuple[int, ...],
                memories: list[Memory]) -> dict[str, Any]:  # fmt: skip
        return {
            "table": self.tables.tiles,
            "factors": self.tables.factors,
            "profiles": self.tables.profiles,
            "clock": self.clock,
            "first_shot": 0,
            "shots": self.layout.choice.shots,
            "fields": tuple(fields),
            "coefs": tuple(self.coefs[i] for i in coefs),
            "read": tuple(m.read for m in memories),
            "write": tuple(m.write for m in memories),
            "sizes": self.sizes.sizes,
            "layers": self.sizes.layers,
            "box": self.sizes.box,
            "STENCIL": stencil(self.plan.order),
            "BLOCKS": self.blocks,
            "num_warps": self.layout.choice.warps,
            "enable_fp_fusion": False,
        }

    def _launch(self, kernel: Any, index: int, arguments: dict[str, Any]) -> None:
        own = kernel, index, arguments["SLOTS"]
        if own not in self.limits:
            device = self.tables.tiles.device
            key = (*own, len(arguments["hist"]), bool(self.changes), self.layout, device)
            if key not in _limits:
                _limits[key] = spill_free(kernel, self.grid, arguments)
            self.limits[own] = _limits[key]
        kernel[self.grid](**arguments, **self.limits[own])

    def forward(self, index: int, fields: list[Tensor], memories: list[Memory],
                hist: tuple[tuple[Tensor, ...], int], step: int,
                record: list[Points], inject: list[Points]) -> None:  # fmt: skip
        """Launch stage ``index`` of a step, or of a tangent one if there are ``changes``."""
        stage = self.plan.system.stages[index]
        arguments = {
            **self._common(fields, stage.coefficients, memories),
            "changes": tuple(self.changes[i] for i in stage.coefficients) if self.changes else (),
            "hist": hist[0],
            "recording": _recording(record),
            "injecting": _injecting(inject),
            "step": step,
            "UPDATE": jitted(stage.update),
            "HISTORY": jitted(stage.history),
            "PUSH": jitted(stage.push_coefficients) if self.changes else None,
            "COLUMNS": columns(self.plan, index, False),
            "SLOTS": slots(stage.reads, stage.targets, _slots(record), _slots(inject)),
        }
        self._launch(stage_forward_kernel, index, arguments)

    def adjoint(self, index: int, fields: list[Tensor], memories: list[Memory],
                hist: tuple[tuple[Tensor, ...], int], grads: tuple[Tensor, ...], step: int,
                record: list[Points], inject: list[Points]) -> None:  # fmt: skip
        """Launch the transpose of stage ``index`` of a step."""
        stage = self.plan.system.stages[index]
        arguments = {
            **self._common(fields, stage.coefficients + stage.adjoint_reads, memories),
            "hist": hist[0],
            "grads": grads,
            "recording": _recording(record),
            "injecting": _injecting(inject),
            "step": step,
            "PULL": jitted(stage.pull_derivatives),
            "FIELDS": jitted(stage.pull_fields),
            "GRADIENT": jitted(stage.pull_coefficients),
            "COLUMNS": columns(self.plan, index, True),
            "SLOTS": slots(stage.bars, stage.adjoint_targets, _slots(record), _slots(inject)),
            "SHIFTS": tuple(p.shift for p in inject),
        }
        self._launch(stage_adjoint_kernel, index, arguments)


def _slots(points: list[Points]) -> tuple[int, ...]:
    return tuple(p.slot for p in points)


def _recording(points: list[Points]) -> tuple[Tensor, ...]:
    return tuple(t for p in points for t in (p.places.offsets, p.places.cells, p.data))


def _injecting(points: list[Points]) -> tuple[Tensor, ...]:
    return tuple(
        t for p in points for t in (p.places.offsets, p.places.cells, p.places.runs, p.data)
    )
