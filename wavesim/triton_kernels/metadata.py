"""What a profiler is told of a launch: its name, and the bytes that it has to move at least."""

from __future__ import annotations

from math import prod
from typing import Any

from .tile import members


def launch_metadata(grid: Any, metadata: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """For `triton.jit`: asked for only where a launch hook is set, as Proton does.

    Every array that a stage's interior cells read or write counts once; boundary memory, points
    and tables do not.
    """
    suffixes = [s for s in ("", "2") if arguments.get(f"SLOTS{s}") is not None]
    arrays = sum(_arrays(arguments, s) for s in suffixes)
    cells = prod(arguments["box"][:3]) * arguments["shots"] * arguments.get("steps", 1)
    moved = arrays * cells * arguments["factors"].element_size()
    return {"name": metadata.name, "bytes": moved}


def gradient_metadata(grid: Any, metadata: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """As `launch_metadata`, of the gradients with a compact history."""
    names = arguments["SLOTS"]
    bars, grads, more_bars, more = (members(names, g) for g in range(names[0]))
    arrays = len(bars + more_bars) + 2 * len(arguments["hist"]) + 2 * len(grads + more)
    cells = prod(arguments["box"][:3]) * arguments["shots"]
    moved = arrays * cells * arguments["factors"].element_size()
    return {"name": metadata.name, "bytes": moved}


def _arrays(arguments: dict[str, Any], suffix: str) -> int:
    """Arrays read and written by a stage; one that is read and written counts twice."""
    names = arguments[f"SLOTS{suffix}"]
    groups = [len(members(names, g)) for g in range(names[0])]
    read, targets, _, _, coefs, hist = groups[:6]
    if "grads" not in arguments:
        sources = arguments[f"COLUMNS{suffix}"][1::6]
        distinct = {*sources, *members(names, 0), *members(names, 1)}
        changed = coefs if arguments[f"PUSH{suffix}"] is not None else 0
        return len(distinct) + targets + coefs + changed + hist
    _, grads, stored, _, its_coefs, its_stored = groups[7:13]
    if not stored:
        distinct = {*members(names, 0), *members(names, 1)}
        return len(distinct) + targets + coefs + hist + 2 * grads
    bars = read if grads else 0
    return stored + bars + 2 * targets + its_coefs + its_stored + hist + 2 * grads
