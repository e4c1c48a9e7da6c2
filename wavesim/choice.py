"""How a plan is run on a device. Every choice gives the same bits; they differ in speed."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


MOST_CANDIDATES = 12

# further (interior, boundary, warps) worth a try where the default is one of them
BLOCKS_TO_TRY: dict[int, tuple[tuple[Triple, Triple, int], ...]] = {
    1: (
        ((1, 1, 512), (1, 1, 64), 4),
        ((1, 1, 256), (1, 1, 64), 4),
        ((1, 1, 128), (1, 1, 64), 2),
    ),
    2: (
        ((1, 8, 128), (1, 8, 32), 8),
        ((1, 4, 128), (1, 4, 32), 4),
        ((1, 4, 128), (1, 4, 32), 2),
        ((1, 8, 64), (1, 8, 32), 4),
        ((1, 8, 64), (1, 8, 16), 2),
        ((1, 16, 64), (1, 8, 32), 8),
    ),
    3: (
        ((2, 4, 64), (2, 4, 32), 4),
        ((2, 4, 64), (2, 4, 32), 8),
        ((2, 4, 64), (2, 4, 16), 4),
        ((4, 4, 32), (4, 4, 16), 4),
        ((4, 4, 64), (2, 4, 32), 8),
        ((2, 4, 128), (2, 4, 32), 8),
        ((2, 8, 64), (2, 4, 32), 8),
    ),
}
BLOCKS_A_PROCESSOR = (1, 2, 3, 4, 6)


def working_set(plan: Plan, adjoint: bool) -> tuple[int, int]:
    """(bytes a shot, bytes shared by all shots) that a step touches; layers count as cells."""
    stages = plan.system.stages
    coefs = len({i for s in stages for i in s.coefficients + s.adjoint_reads * adjoint})
    grads = len({i for s in stages for i in s.coefficients}) * adjoint
    cells = plan.itemsize
    for n in plan.box:
        cells *= n
    return cells * (len(plan.system.fields) + grads), cells * coefs


def candidates(plan: Plan, card: Card, adjoint: bool) -> list[Choice]:
    """The choices worth measuring, the default first, at most `MOST_CANDIDATES`."""
    first = default_choice(plan)
    found = [first]
    for interior, boundary, warps in BLOCKS_TO_TRY[plan.ndim]:
        if not plan.system.collocated and plan.dtype == "float64":
            interior = *interior[:2], interior[2] // 2  # as the default, or kernels spill
        if all(i % b == 0 for i, b in zip(interior, boundary, strict=True)):
            found.append(Choice(GRAPH, interior, boundary, warps, plan.shots))
    shot, shared = working_set(plan, adjoint)
    group = min(plan.shots, (card.cache_bytes - shared) // shot)
    if group >= 1:  # a loop gains where what it touches stays in the cache
        for blocks in BLOCKS_A_PROCESSOR:
            programs = max(1, blocks * card.processors // group)
            found.append(replace(first, mode=LOOP, shots=group, programs=programs))
    return list(dict.fromkeys(found))[:MOST_CANDIDATES]
