"""How a plan is run on a device. Every choice gives the same bits; they differ in speed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
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


Blocks = tuple[Triple, Triple, int]

# interior block, boundary block (z, y, x) and warps by number of dimensions, the best first: with
# second derivatives, and with first ones
BLOCKS: dict[bool, dict[int, tuple[Blocks, ...]]] = {
    True: {
        1: (((1, 1, 256), (1, 1, 64), 2), ((1, 1, 512), (1, 1, 64), 4)),
        2: (
            ((1, 8, 64), (1, 8, 32), 4),
            ((1, 4, 64), (1, 4, 32), 2),
            ((1, 8, 32), (1, 8, 32), 4),
            ((1, 8, 64), (1, 4, 32), 4),
            ((1, 8, 64), (1, 8, 32), 2),
        ),
        3: (
            ((2, 4, 32), (2, 4, 32), 4),
            ((2, 4, 32), (2, 4, 32), 2),
            ((1, 8, 32), (1, 8, 32), 4),
            ((4, 4, 32), (4, 4, 32), 4),
            ((4, 4, 64), (4, 4, 32), 8),
            ((1, 8, 64), (1, 8, 32), 4),
        ),
    },
    False: {
        1: (((1, 1, 256), (1, 1, 64), 2), ((1, 1, 512), (1, 1, 64), 4)),
        2: (
            ((1, 8, 64), (1, 8, 32), 4),
            ((1, 4, 64), (1, 4, 32), 2),
            ((1, 4, 64), (1, 4, 32), 4),
            ((1, 8, 32), (1, 8, 32), 4),
            ((1, 8, 64), (1, 4, 32), 4),
        ),
        3: (
            ((4, 4, 32), (4, 4, 32), 4),
            ((2, 4, 32), (2, 4, 32), 2),
            ((2, 4, 32), (2, 4, 32), 4),
            ((1, 8, 32), (1, 8, 32), 4),
            ((4, 4, 32), (4, 4, 32), 8),
        ),
    },
}
MOST_CANDIDATES = 12


def _launched(plan: Plan) -> list[Choice]:
    """A launch a stage, all shots together."""
    found = []
    for interior, boundary, warps in BLOCKS[plan.system.collocated][plan.ndim]:
        if not plan.system.collocated and plan.dtype == "float64":
            z, y, x = interior
            interior = z, y, max(x // 2, boundary[2])  # or elastic kernels of order 8 spill
        found.append(Choice(GRAPH, interior, boundary, warps, plan.shots))
    return found


def _fitting(plan: Plan, card: Card, adjoint: bool) -> int:
    """Shots of which what a step touches stays in the cache."""
    shot, shared = working_set(plan, adjoint)
    return max(0, min(plan.shots, (int(CACHE_SHARE * card.cache_bytes) - shared) // shot))


@lru_cache(maxsize=64)
def default_choice(plan: Plan, card: Card, *, adjoint: bool = False) -> Choice:
    """The untuned choice: the whole loop in one launch where what a step touches of a shot stays
    in the cache, with as many shots together as do; else a launch a stage."""
    first, group = _launched(plan)[0], _fitting(plan, card, adjoint)
    if card.cooperative and plan.ndim < 3 and group:
        return replace(first, mode=LOOP, shots=group)
    return first


def working_set(plan: Plan, adjoint: bool) -> tuple[int, int]:
    """(bytes a shot, bytes shared by all shots) that a step touches; layers count as cells."""
    stages = plan.system.stages
    coefs = len({i for s in stages for i in s.coefficients + s.adjoint_reads * adjoint})
    grads = len({i for s in stages for i in s.coefficients}) * adjoint
    cells = plan.itemsize * prod(plan.box)
    return cells * (len(plan.system.fields) + grads), cells * coefs


def candidates(plan: Plan, card: Card, *, adjoint: bool = False) -> list[Choice]:
    """The choices worth measuring, the default first, at most `MOST_CANDIDATES`."""
    launched, group = _launched(plan), max(1, _fitting(plan, card, adjoint))
    found = [default_choice(plan, card, adjoint=adjoint)]
    if card.cooperative and plan.ndim < 3:
        groups = sorted({group, max(1, group // 2), min(plan.shots, 2 * group), 1})
        found += [replace(launched[0], mode=LOOP, shots=n) for n in groups]
        found += [replace(c, mode=LOOP, shots=group) for c in launched[1:3]]
    return list(dict.fromkeys(found + launched))[:MOST_CANDIDATES]
