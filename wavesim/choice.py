"""How a plan is run on a device. Every choice gives the same bits; they differ in speed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from .equations import System
from .plan import Plan

Triple = tuple[int, int, int]

LOOP, GRAPH, STEPS = "loop", "graph", "steps"
FUSED, STORED = "fused", "stored"
SHOT, TILE = "shot", "tile"
CACHE_SHARE = 0.6
"""Of the L2 cache that a group of shots may fill. On an H200 two of 16 shots of 1000^2 scalar waves
are faster together than one, three or four: its cache is in two halves."""
PAIR_SHARE = 0.75
"""Of it that two shots in a loop may fill. Acoustic 16 x 1000^2 fills 0.7; forward it does
100 * 10^9 cells a second in a loop, 75 with a launch a stage."""


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
    shots: run together, group after group. programs: of a shot in a loop. route: how an adjoint
    stage gets the cotangents of derivatives at neighbours, "fused", worked out again at each, or
    "stored", by the stage before it (for equations of two stages). fastest: what neighbouring
    programs of a launch differ in, the "shot", which reads a shared model once, or the "tile".
    registers: most that a thread gets on an NVIDIA GPU, spilling the rest; 0: as many as it takes.
    """

    mode: str
    interior: Triple
    boundary: Triple
    warps: int
    shots: int
    programs: int = 0
    route: str = FUSED
    fastest: str = SHOT
    registers: int = 0


Blocks = tuple[Triple, Triple, int]

LINES: tuple[Blocks, ...] = (((1, 1, 256), (1, 1, 64), 2), ((1, 1, 512), (1, 1, 64), 4))
WIDE, TALL, DEEP, NARROW = (
    ((1, 8, 64), (1, 8, 32), 4),
    ((1, 16, 64), (1, 16, 32), 8),
    ((1, 16, 64), (1, 16, 32), 4),
    ((1, 8, 64), (1, 8, 16), 4),
)
PLANES: tuple[Blocks, ...] = (
    WIDE,
    TALL,
    ((1, 4, 64), (1, 4, 32), 2),
    ((1, 8, 32), (1, 8, 32), 4),
    DEEP,
    NARROW,
)
# interior block, boundary block (z, y, x) and warps by number of dimensions, the best first: with
# second derivatives, and with first ones
BLOCKS: dict[bool, dict[int, tuple[Blocks, ...]]] = {
    True: {
        1: LINES,
        2: PLANES,
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
        1: LINES,
        2: PLANES,
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
LARGE = 2**19
"""Cells of a shot from which a forward loop has TALL blocks, in two dimensions: larger tiles read
less beside themselves, but on smaller grids a shot's programs share them out unevenly. On an H200,
10^9 cells a second with WIDE blocks and with these: scalar 16 x 1000^2 183 and 199, one of 1000^2
125 and 152, acoustic 16 x 1000^2 88 and 100, but scalar 32 x 300^2 134 and 116. Registers: scalar
16 x 1000^2 with history 97 us a step, 92 with 64; adjoint of one 1000^2 10.5, 9.6 with 80."""
SEVERAL = 2**18
"""Cells of a group from which a program has several tiles, and with fewer registers there are more
programs; where each has one tile it takes what it needs."""
SMALL = 2**17
"""Cells of one shot below which its adjoint loop has NARROW blocks: 300^2 3.2 us a step, 2.9."""


def _route(system: System) -> str:
    """Stored cotangents where one derivative's depends on three fields (Hooke's law in 3-D): there,
    a neighbour costs as many loads as fields and coefficients, but only one if it was stored.

    Adjoint step of elastic 256^3 on an H200: 4.1 ms fused, 3.4 ms stored, 3.1 ms stored with 128
    registers. Acoustic 256^3, 0.96 fused, 1.13 stored; elastic 16 x 1000^2, 0.81 and 0.87.
    """
    most = 0
    for stage in system.stages:
        ones = (1.0,) * len(stage.coefficients + stage.adjoint_reads)
        units = [[float(i == j) for j in range(len(stage.bars))] for i in range(len(stage.bars))]
        by_bar = [stage.pull_derivatives(tuple(u), ones) for u in units]
        most = max(most, *(sum(g != 0 for g in group) for group in zip(*by_bar, strict=True)))
    return STORED if most > 2 and len(system.stages) == 2 else FUSED


SECOND, SINGLE, MANY, KEPT = "second derivatives", "single", "many", "stored cotangents"
FORWARD, HISTORY, ADJOINT = "forward", "forward with history", "adjoint"
REGISTERS: dict[tuple[str, int, str], tuple[int, int]] = {
    (SECOND, 2, FORWARD): (32, 0),
    (SECOND, 2, HISTORY): (32, 0),
    (SECOND, 2, ADJOINT): (64, 0),
    (SECOND, 3, FORWARD): (0, 40),
    (SECOND, 3, HISTORY): (32, 40),
    (SECOND, 3, ADJOINT): (40, 48),
    (SINGLE, 2, FORWARD): (40, 0),
    (SINGLE, 2, HISTORY): (40, 0),
    (SINGLE, 2, ADJOINT): (64, 0),
    (SINGLE, 3, FORWARD): (40, 0),
    (SINGLE, 3, ADJOINT): (56, 0),
    (MANY, 2, FORWARD): (48, 0),
    (MANY, 2, HISTORY): (48, 0),
    (MANY, 2, ADJOINT): (56, 0),
    (KEPT, 3, HISTORY): (128, 0),
    (KEPT, 3, ADJOINT): (128, 0),
}
"""Most registers of a thread where there is a launch a stage, in float32, for orders up to 4 and
above; 0: as many as it takes. Fewer of them keep more programs on a processor, which hides the
memory's latency, until too many spill. By what kind of derivatives the stages have (SINGLE: one of
first order an axis and stage) and by direction. On an H200, microseconds a step without a limit and
with it: scalar 8 x 2000^2 163 and 138, adjoint 267 and 240 (DEEP blocks), 256^3 of order 8 with
history 375 and 320, its adjoint 545 and 500; acoustic 256^3 adjoint 971 and 917; elastic
16 x 1000^2 353 and 335, adjoint 786 and 663."""


def _kind(plan: Plan) -> str:
    """Of derivatives, as in `REGISTERS`."""
    if plan.system.collocated:
        return SECOND
    if _route(plan.system) == STORED:
        return KEPT
    most = max(len(stage.derivatives) for stage in plan.system.stages)
    return SINGLE if most <= plan.ndim else MANY


def _blocks(plan: Plan) -> list[Blocks]:
    blocks = BLOCKS[plan.system.collocated][plan.ndim]
    if plan.system.collocated or plan.dtype != "float64":
        return list(blocks)
    # whole blocks of elastic kernels of order 8 spill
    return [((z, y, max(x // 2, b[2])), b, warps) for (z, y, x), b, warps in blocks]


def _launched(plan: Plan, adjoint: bool, history: bool) -> list[Choice]:
    """A launch a stage, all shots together."""
    route = _route(plan.system) if adjoint else FUSED
    kind = _kind(plan)
    direction = ADJOINT if adjoint else (HISTORY if history else FORWARD)
    limits = REGISTERS.get((kind, plan.ndim, direction), (0, 0))
    registers = limits[plan.order > 4] if plan.dtype == "float32" else 0
    blocks = _blocks(plan)
    if registers and adjoint and plan.ndim == 2 and kind != MANY:
        blocks.sort(key=lambda b: b != DEEP)
    return [Choice(GRAPH, *b, plan.shots, route=route, registers=registers) for b in blocks]


def _looped(plan: Plan, adjoint: bool, group: int) -> Choice:
    """The whole loop in one launch, so many shots together: see `LARGE`."""
    route = _route(plan.system) if adjoint else FUSED
    blocks, registers, cells = _blocks(plan)[0], 0, prod(plan.box)
    second = plan.system.collocated
    several = second and cells * group >= SEVERAL
    if not _light(plan):
        pass
    elif not adjoint:
        blocks, registers = (TALL if cells >= LARGE else blocks), (64 if several else 0)
    elif second and plan.shots == 1:
        blocks, registers = (NARROW if cells < SMALL else blocks), (80 if several else 0)
    return Choice(LOOP, *blocks, group, route=route, registers=registers)


def _fitting(plan: Plan, card: Card, adjoint: bool) -> int:
    """Shots of which what a step touches stays in the cache."""
    shot, shared = working_set(plan, adjoint)
    most = (int(CACHE_SHARE * card.cache_bytes) - shared) // shot
    if most < 2 <= (int(PAIR_SHARE * card.cache_bytes) - shared) // shot:
        most = 2
    return -(-plan.shots // -(-plan.shots // most)) if most > 0 else 0  # groups of a size


def _loops(plan: Plan, card: Card, adjoint: bool) -> bool:
    """Whether a loop can be had and is worth a trial; its kernels take one stage or two, and none
    between them."""
    between = adjoint and plan.compact
    return card.cooperative and plan.ndim < 3 and len(plan.system.stages) <= 2 and not between


def _light(plan: Plan) -> bool:
    """Whether a cell takes few registers, and large blocks of them are no burden."""
    derivatives = sum(len(stage.derivatives) for stage in plan.system.stages)
    return plan.ndim == 2 and plan.dtype == "float32" and plan.order <= 4 and derivatives <= 4


@lru_cache(maxsize=64)
def default_choice(
    plan: Plan, card: Card, *, adjoint: bool = False, history: bool = False
) -> Choice:
    """The untuned choice: the whole loop in one launch where what a step touches stays in the
    cache, with as many shots together as do; else a launch a stage. One of several shots alone
    gives too few programs work for that. history: whether a forward run keeps it."""
    group = _fitting(plan, card, adjoint)
    if _loops(plan, card, adjoint) and group >= min(2, plan.shots):
        return _looped(plan, adjoint, group)
    return _launched(plan, adjoint, history)[0]


def working_set(plan: Plan, adjoint: bool) -> tuple[int, int]:
    """(bytes a shot, bytes shared by all shots) that a step touches; of boundary memory both
    buffers, and twice its cells, because tiles reach beyond the layers."""
    stages = plan.system.stages
    coefs = len({i for s in stages for i in s.coefficients + s.adjoint_reads * adjoint})
    own = len({i for s in stages for i in s.coefficients}) * adjoint  # gradients
    if adjoint and _route(plan.system) == STORED:
        own += sum(s.groups for s in stages)
    cells = plan.itemsize * prod(plan.box)
    memory = 4 * plan.itemsize * sum(prod(plan.memory_shape(a)[1:]) for a, _ in plan.memories)
    return cells * (len(plan.system.fields) + own) + memory, cells * coefs


def candidates(
    plan: Plan, card: Card, *, adjoint: bool = False, history: bool = False
) -> list[Choice]:
    """The choices worth measuring, the default first, at most `MOST_CANDIDATES`."""
    launched, group = _launched(plan, adjoint, history), max(1, _fitting(plan, card, adjoint))
    found = [default_choice(plan, card, adjoint=adjoint, history=history)]
    if adjoint and len(plan.system.stages) == 2:
        other = FUSED if found[0].route == STORED else STORED
        found.append(replace(found[0], route=other, registers=0))
    if _loops(plan, card, adjoint):
        looped = _looped(plan, adjoint, group)
        groups = sorted({group, max(1, group // 2), min(plan.shots, 2 * group), 1})
        found += [replace(looped, shots=n) for n in groups]
        found += [Choice(LOOP, *b, group, route=looped.route) for b in _blocks(plan)[:3]]
    found += launched[:2]
    if card.cooperative:
        heavy = plan.ndim == 3 and not plan.system.collocated
        limits = (0, 96, 128) if heavy else (0, 40, 64)
        found += [replace(launched[0], registers=n) for n in limits]
    if plan.shots > 1:
        found.append(replace(launched[0], fastest=TILE))
    return list(dict.fromkeys(found + launched))[:MOST_CANDIDATES]
