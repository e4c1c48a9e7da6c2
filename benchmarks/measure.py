"""A whole call timed, and the row that says everything about it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

import wavesim

from .cases import SEED, WIDTH, Case, history
from .traffic import bytes_per_step

ROOT = Path(__file__).resolve().parents[1]
GIB = 2**30


def _output(*words: str) -> str | None:
    """What a program prints; None if it is not there or fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit(given: str | None = None) -> dict[str, Any]:
    """The commit that is timed, and whether files differ from it. A given one stands for a copy
    without git and takes precedence; a "+" at its end marks files that differ."""
    if given:
        return {"commit": given.removesuffix("+"), "dirty": given.endswith("+")}
    head = _output("git", "-C", str(ROOT), "rev-parse", "HEAD")
    changed = _output("git", "-C", str(ROOT), "status", "--porcelain")
    return {"commit": head or "unknown", "dirty": None if changed is None else bool(changed)}


def kernel_hash() -> str:
    """Of the sources that the kernels are compiled from: names and texts, in order."""
    digest = hashlib.sha256()
    for folder in ("triton_kernels", "equations"):
        for path in sorted((ROOT / "wavesim" / folder).glob("*.py")):
            digest.update(f"{folder}/{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def version(distribution: str) -> str | None:
    """Of an installed package; None without."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def environment(given: str | None = None) -> dict[str, Any]:
    """Where the numbers of a run come from; the same in all its rows."""
    gpu = torch.cuda.is_available()
    query = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    drivers = (_output(*query) or "").splitlines()
    return {
        **commit(given),
        "kernel_hash": kernel_hash(),
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        "seed": SEED,
        "gpu": torch.cuda.get_device_name() if gpu else None,
        "driver": drivers[0] if drivers else None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": version("triton"),
        "copy_bytes_per_s": copy_bandwidth() if gpu else None,
    }


def copy_bandwidth() -> float:
    """Bytes a second that a large device copy reads and writes."""
    a = torch.empty(2**28, device="cuda")
    b = torch.randn_like(a)
    times = []
    for _ in range(12):
        torch.cuda.synchronize()
        start = time.perf_counter()
        a.copy_(b)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 2 * a.nbytes / float(np.median(times[2:]))


def timed(
    prepare: Callable[[], Callable[[], Any]], repeats: int, device: str = "cuda"
) -> tuple[Any, dict[str, Any]]:
    """What the last call of a prepared function returns, and what the calls took.

    Seconds by the wall clock, synchronised, and between two events around the call: of the first
    one (cold), then, after another, quantiles of the repeats. Memory beyond what was held before
    the inputs: at its peak in PyTorch's allocator, and of the card, which sees every allocator.
    """
    gpu = device != "cpu"
    if gpu:
        torch.cuda.empty_cache()
        before = torch.cuda.mem_get_info()[0]
        held = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    call, wall, events = prepare(), [], []
    for number in range(2 + repeats):
        if gpu and number == 2:
            torch.cuda.reset_peak_memory_stats()
        if gpu:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
        start = time.perf_counter()
        if gpu:
            first.record()
        value = call()
        if gpu:
            last.record()
            torch.cuda.synchronize()
        wall.append(time.perf_counter() - start)
        if gpu:
            events.append(first.elapsed_time(last) / 1e3)
    found = {"seconds_cold": wall[0], **quantiles("seconds", wall[2:])}
    found |= quantiles("event_seconds", events[2:])
    allocated = reserved = card = None
    if gpu:
        allocated = (torch.cuda.max_memory_allocated() - held[0]) / GIB
        reserved = (torch.cuda.max_memory_reserved() - held[1]) / GIB
        card = (before - torch.cuda.mem_get_info()[0]) / GIB
    found |= {"peak_allocated_gib": allocated, "peak_reserved_gib": reserved, "card_gib": card}
    return value, found


def quantiles(name: str, values: list[float]) -> dict[str, float | None]:
    """The median and the 20 and 80 % quantiles, None without values."""
    levels = {name: 0.5, f"{name}_20": 0.2, f"{name}_80": 0.8}
    return {k: float(np.quantile(values, q)) if values else None for k, q in levels.items()}


def row(
    who: str,
    case: Case,
    gradient: bool,
    times: dict[str, Any],
    parity: float | None,
    common: dict[str, Any],
    report: wavesim.Report | None = None,
) -> dict[str, Any]:
    """One result. Bytes are the least that the problem needs (`benchmarks.traffic`), the same for
    everyone; what only our report knows is None for the others."""
    padded = tuple(n + 2 * WIDTH for n in case.shape)
    moved = bytes_per_step(case.equation, padded, case.shots, case.dtype, gradient)
    seconds, copy = times["seconds"], common["copy_bytes_per_s"]
    kept = history(case, "triton" if who == "wavesim" else who)
    return {
        "who": who,
        "case": case.name,
        **asdict(case),
        "padded_shape": padded,
        "boundary_width": WIDTH,
        "sources": 1,
        "receivers": case.shape[-1],
        "gradient": gradient,
        "history": asdict(kept) if gradient and report else None,
        **reported(report),
        **times,
        "us_per_step": 1e6 * seconds / case.nt,
        "gcells_per_s": prod(case.shape) * case.shots * case.nt / seconds / 1e9,
        "bytes_per_step": moved,
        "copy_percent": 100 * moved * case.nt / seconds / copy if copy else None,
        "parity_error": parity,
        **common,
    }


def reported(report: wavesim.Report | None) -> dict[str, Any]:
    """What our report says: backend, tuned choice, ratio, launches, the planner's memory."""
    choice: Any = getattr(report, "choice", None)
    known = ("backend", "step_ratio", "kernel_launches", "graph_steps", "history_bytes")
    found = {name: getattr(report, name, None) for name in known}
    plain = is_dataclass(choice) and not isinstance(choice, type)
    found["choice"] = asdict(choice) if plain else choice
    estimate = report.field_bytes + report.history_bytes if report else None
    return found | {"planned_gib": None if estimate is None else estimate / GIB}
