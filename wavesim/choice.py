"""How a plan is run on a device. Every choice gives the same bits; they differ in speed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from .plan import Plan

Triple = tuple[int, int, int]

LOOP, GRAPH, STEPS = "loop", "graph", "steps"
MODES = (LOOP, GRAPH, STEPS)
CACHE_SHARE = 0.8
"""Of the L2 cache that fields may fill: the rest is for boundary memory and tables."""


@dataclass(frozen=True)
class Card:
    """What of a GPU decides how to run: its processors, the bytes of its L2 cache, a processor's
    registers and threads, and whether programs of one launch can wait for each other."""

    processors: int = 108
    cache_bytes: int = 40 * 2**20
    registers: int = 65536
    threads: int = 2048
    cooperative: bool = False

    def blocks(self, registers: int, warps: int) -> int:
        """Programs of so many registers a thread that are on the card at once.

        A processor's registers are in four parts, and a warp's all in one of them.
        """
        warp = 32 * 8 * -(-max(registers, 16) // 8)
        by_registers = 4 * (self.registers // 4 // warp) // warps
        return self.processors * min(by_registers, self.threads // (32 * warps), 16)


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
    2: ((1, 8, 64), (1, 8, 32), 4),
    3: ((2, 4, 64), (2, 4, 32), 4),
}


def default_choice(plan: Plan, card: Card, *, adjoint: bool = False) -> Choice:
    """The untuned choice: the whole loop in one launch where what a step touches of a shot stays
    in the cache, with as many shots together as do; else a launch a stage."""
    interior, boundary, warps = BLOCKS[plan.ndim]
    if not plan.system.collocated and plan.dtype == "float64":
        z, y, x = interior
        interior = z, y, x // 2  # or elastic kernels of order 8 spill
    together = int(CACHE_SHARE * card.cache_bytes) // touched_bytes(plan, adjoint=adjoint)
    if card.cooperative and plan.ndim < 3 and together:
        return Choice(LOOP, interior, boundary, warps, min(together, plan.shots))
    return Choice(GRAPH, interior, boundary, warps, plan.shots)


def touched_bytes(plan: Plan, *, adjoint: bool) -> int:
    """Of a shot: fields, coefficients, and in an adjoint run their gradients."""
    system = plan.system
    coefficients = {i for s in system.stages for i in s.coefficients}
    arrays = len(system.fields) + len(coefficients) * (2 if adjoint else 1)
    return arrays * prod(plan.box) * plan.itemsize
