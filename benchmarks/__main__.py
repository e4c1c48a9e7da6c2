"""``python -m benchmarks``: ``run`` verifies and times whole calls, one JSON row each; ``verify``
compares the kernels with eager and times nothing; ``table`` prints rows."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, replace
from math import prod
from pathlib import Path

import torch

from .cases import CASES, Case, Experiment

ROOT = Path(__file__).resolve().parents[1]
PARITY = 2e-5
"""Largest RMS ratio of float32 Triton to eager that is timed."""


def commit() -> str:
    """The commit that is timed, with "+" if files differ from it; "unknown" without git."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else "unknown"

    head = git("rev-parse", "HEAD")
    return head + ("+" if git("status", "--porcelain") else "")


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
    return 2 * a.nbytes / statistics.median(times[2:])


def verify(case: Case, device: str = "cuda", shape: tuple[int, ...] = (23, 37, 41)) -> float:
    """Parity of a small run of the case's kernels with eager; nothing is timed where it is off."""
    small = replace(case, shape=shape[-len(case.shape) :], shots=1, nt=20)
    error = Experiment(small, True, device).error()
    if not error <= PARITY:
        raise SystemExit(f"{case.name}: got a parity error of {error:.1e}, expected {PARITY}.")
    return error


def measure(case: Case, gradient: bool, repeats: int) -> dict:
    """Quantiles of a whole call's seconds, synchronised, after two warm-ups."""
    import triton

    experiment = Experiment(case, gradient, "cuda")
    times = []
    for number in range(2 + repeats):
        if number == 2:
            torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        start = time.perf_counter()
        report = experiment.run().report
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    cold, warm = times[0], sorted(times[2:])
    seconds = statistics.median(warm)
    return {
        "case": case.name,
        **asdict(case),
        "gradient": gradient,
        "dtype": "float32",
        "boundary_width": 20,
        "backend": report.backend,
        "step_ratio": report.step_ratio,
        "kernel_launches": report.kernel_launches,
        "graph_steps": report.graph_steps,
        "history_bytes": report.history_bytes,
        "seconds": seconds,
        "seconds_20": warm[len(warm) // 5],
        "seconds_80": warm[-1 - len(warm) // 5],
        "seconds_cold": cold,
        "us_per_step": 1e6 * seconds / case.nt,
        "gcells_per_s": prod(case.shape) * case.shots * case.nt / seconds / 1e9,
        "peak_allocated_gib": torch.cuda.max_memory_allocated() / 2**30,
        "peak_reserved_gib": torch.cuda.max_memory_reserved() / 2**30,
        "gpu": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "seed": 0,
    }


def chosen(pattern: str) -> list[Case]:
    """The cases whose name contains the pattern; exits without any, or without a GPU."""
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks: got no CUDA or ROCm device, expected one; nothing was timed.")
    found = [c for c in CASES if pattern in c.name]
    if not found:
        known = ", ".join(c.name for c in CASES)
        raise SystemExit(f"--only: got {pattern!r}, expected a part of one of: {known}.")
    return found


def run(pattern: str, output: Path | None, repeats: int, steps: int | None) -> None:
    """Time the cases whose name contains the pattern, forward and with the gradient."""
    cases = chosen(pattern)
    common = {"commit": commit(), "command": " ".join(["python -m benchmarks", *sys.argv[1:]])}
    common["copy_bytes_per_s"] = copy_bandwidth()
    for case in cases:
        case = replace(case, nt=steps) if steps else case
        common["parity_error"] = verify(case)
        for gradient in (False, True):
            row = json.dumps(common | measure(case, gradient, repeats))
            torch.cuda.empty_cache()
            print(row, flush=True)
            if output:
                with output.open("a") as out:
                    out.write(row + "\n")


def table(path: Path) -> str:
    """Markdown of a file of rows: a line per case."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    cases = dict.fromkeys(r["case"] for r in rows)
    found = {(r["case"], r["gradient"]): r for r in rows}
    lines = ["| case | forward, Gcell/s | us a step | gradient, Gcell/s | us a step | peak, GiB |"]
    lines.append("|---|---|---|---|---|---|")
    for case in cases:
        cells = [case]
        for gradient in (False, True):
            row = found[case, gradient]
            cells += [f"{row['gcells_per_s']:.3g}", f"{row['us_per_step']:.3g}"]
        lines.append("| " + " | ".join([*cells, f"{row['peak_allocated_gib']:.3g}"]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run", help="time the cases on the current GPU")
    runner.add_argument("--output", type=Path, help="file that rows are appended to")
    runner.add_argument("--only", default="", help="part of the names of the cases to time")
    runner.add_argument("--repeats", type=int, default=3, help="timed calls after two warm-ups")
    runner.add_argument("--steps", type=int, help="another number of steps, for a quick look")
    checker = commands.add_parser("verify", help="compare the kernels of the cases with eager")
    checker.add_argument("--only", default="", help="part of the names of the cases")
    printer = commands.add_parser("table", help="print a file of rows as Markdown")
    printer.add_argument("rows", type=Path)
    options = parser.parse_args()
    if options.command == "table":
        print(table(options.rows))
    elif options.command == "verify":
        for case in chosen(options.only):
            print(f"{case.name}: {verify(case):.1e}", flush=True)
    else:
        run(options.only, options.output, options.repeats, options.steps)


if __name__ == "__main__":
    main()
