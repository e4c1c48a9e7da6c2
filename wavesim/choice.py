"""How a plan is run on a device. Every choice gives the same bits; they differ in speed."""

from __future__ import annotations

from dataclasses import dataclass

from .plan import Plan

Triple = tuple[int, int, int]

LOOP, GRAPH, STEPS = "loop", "graph", "steps"
MODES = (LOOP, GRAPH, STEPS)


@dataclass(frozen=True)
class Card:
    """What of a GPU decides how to run: its processors, and the bytes that its L2 cache holds."""

    processors: int = 108
    cache_bytes: int = 40 * 2**20


@dataclass(frozen=True)
class Choice:
    """How one direction of a plan is run.

    mode: "loop", the whole time loop in one cooperative launch; "graph", a launch a stage, replayed
    from CUDA graphs; "steps", a launch a stage. interior and boundary: blocks (z, y, x) of tiles
    without and with boundary work; the latter divides the former along every axis. warps a program.
    shots: run together, group after group. programs: of a shot in a loop.
    """

    mode: str
    interior: Triple
    boundary: Triple
    warps: int
    shots: int
    programs: int = 0


# interior block, boundary block (z, y, x) and warps by number of dimensions
BLOCKS: dict[int, tuple[Triple, Triple, int]] = {
    1: ((1, 1, 256), (1, 1, 64), 2),
    2: ((1, 8, 128), (1, 8, 32), 4),
    3: ((2, 4, 64), (2, 4, 32), 8),
}


def default_choice(plan: Plan) -> Choice:
    """The untuned choice."""
    interior, boundary, warps = BLOCKS[plan.ndim]
    if plan.system.collocated and plan.ndim == 3:
        warps = 4  # measured faster; the staggered equations would run out of registers
    elif not plan.system.collocated and plan.dtype == "float64":
        z, y, x = interior
        interior = z, y, x // 2  # or elastic kernels of order 8 spill
    return Choice(GRAPH, interior, boundary, warps, plan.shots)
