"""What the kernels of a direction are compiled for, kept for the next call that is alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
import triton

from ..choice import SHOT
from ..device import interpreting
from ..layout import Layout, Sizes
from ..plan import Plan
from ..stencils import CENTRAL, SECOND, STAGGERED


class Wiring(NamedTuple):
    """A direction, and what is asked of it, by stage: how many values are kept; which fields are
    recorded, and injected, and how late; how many cotangents are stored, if any are."""

    adjoint: bool
    tangent: bool
    batched: bool
    kept: tuple[int, ...]
    recorded: tuple[tuple[int, ...], ...]
    injected: tuple[tuple[int, ...], ...]
    shifts: tuple[tuple[int, ...], ...]
    gradients: bool
    pulled: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Constants:
    """Arguments that are no tensors, nor change with the step: of all kernels and of each stage's;
    of a loop's over one stage or two; and whether its fields take turns."""

    common: dict[str, Any]
    stages: tuple[dict[str, Any], ...]
    loop: dict[str, Any]
    turns: bool


@lru_cache(maxsize=64)
def constants(layout: Layout, wiring: Wiring) -> Constants:
    """Of a layout and what is asked."""
    plan, choice, numbers = layout.plan, layout.choice, Sizes.of(layout, wiring.batched)
    common: dict[str, Any] = {
        "sizes": numbers.sizes,
        "layers": numbers.layers,
        "box": numbers.box,
        "STENCIL": stencil(plan.order),
        "BLOCKS": (*choice.interior, *choice.boundary),
        "num_warps": choice.warps,
        "enable_fp_fusion": False,
    }
    if choice.registers and not torch.version.hip:
        common["maxnreg"] = choice.registers
    own = _adjoint if wiring.adjoint else _forward
    stages = tuple(own(plan, wiring, index) for index in range(len(plan.system.stages)))
    second = stages[1] if len(stages) > 1 else dict.fromkeys(stages[0])
    rotation = plan.system.rotation
    return Constants(
        common=common,
        stages=stages,
        loop={
            **common,
            **stages[0],
            **{f"{k}2": v for k, v in second.items()},
            "launch_cooperative_grid": not interpreting(),
        },
        turns=rotation != tuple(range(len(rotation))),
    )


def _points(wiring: Wiring, index: int) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Of a stage: fields recorded, fields injected, and numbers of the values kept; and where the
    lists of its points begin among all stages'."""
    start = sum(wiring.kept[:index])
    history = tuple(range(start, start + wiring.kept[index]))
    firsts = (
        3 * sum(map(len, wiring.recorded[:index])),
        4 * sum(map(len, wiring.injected[:index])),
    )
    return (wiring.recorded[index], wiring.injected[index], history), firsts


def _forward(plan: Plan, wiring: Wiring, index: int) -> dict[str, Any]:
    stage = plan.system.stages[index]
    (*points, history), firsts = _points(wiring, index)
    arrays = stage.reads, stage.targets, *points, stage.coefficients, history
    return {
        "UPDATE": jitted(stage.update),
        "HISTORY": None if plan.compact else jitted(stage.history),
        "PUSH": jitted(stage.push_coefficients) if wiring.tangent else None,
        "SLOTS": slots(*arrays, firsts, wiring.shifts[index]),
        "COLUMNS": columns(plan, index, False),
    }


def _adjoint(plan: Plan, wiring: Wiring, index: int) -> dict[str, Any]:
    stage = plan.system.stages[index]
    (*points, history), firsts = _points(wiring, index)
    coefs = stage.coefficients + stage.adjoint_reads
    own = stage.coefficients if wiring.gradients and not plan.compact else ()
    arrays = stage.bars, stage.adjoint_targets, *points, coefs, history
    following, told = _following(plan, wiring, index)
    return {
        "PULL": jitted(stage.pull_derivatives),
        "FIELDS": jitted(stage.pull_fields),
        "GRADIENT": jitted(stage.pull_coefficients),
        "NEXT": following,
        "SLOTS": slots(*arrays, firsts, wiring.shifts[index], own, *told),
        "COLUMNS": columns(plan, index, True),
    }


def _following(
    plan: Plan, wiring: Wiring, index: int
) -> tuple[Callable | None, tuple[tuple[int, ...], ...]]:
    """With stored cotangents: the pointwise function of the stage that runs after this one, and
    SLOTS from what this stage reads of them on, see ``adjoint_stage``."""
    stages, pulled = plan.system.stages, wiring.pulled
    if not pulled:
        return None, ((), (), (), ())
    after = (index - 1) % len(stages)
    starts = [sum(pulled[:i]) for i in range(len(stages))]
    own, its = (tuple(range(starts[i], starts[i] + pulled[i])) for i in (index, after))
    bars = tuple(stages[index].adjoint_targets.index(b) for b in stages[after].bars)
    coefs = stages[after].coefficients + stages[after].adjoint_reads
    return jitted(stages[after].pull_derivatives), (own, bars, coefs, its)


@lru_cache(maxsize=64)
def gradient_constants(layout: Layout, wiring: Wiring) -> dict[str, Any]:
    """Of the kernel that runs between two adjoint stages."""
    plan, (first, second) = layout.plan, layout.plan.system.stages
    common = constants(layout, wiring).common
    names = ("sizes", "layers", "box", "STENCIL", "BLOCKS", "enable_fp_fusion")
    return {
        **{name: common[name] for name in names},
        "FIRST": jitted(first.pull_coefficients),
        "SECOND": jitted(second.pull_coefficients),
        "COLUMNS": columns(plan, 1, False),
        "SLOTS": slots(*((s.bars, s.coefficients)[i] for s in (first, second) for i in (0, 1))),
        "PAIRS": tuple(number for pair in traced(plan) for number in pair),
        "SHOT_FASTEST": layout.choice.fastest == SHOT,
        "num_warps": layout.choice.warps * (2 if plan.ndim == 3 else 1),
    }


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
