"""``python -m benchmarks``: ``run`` verifies and times whole calls, one JSON row each; ``compare``
does so in every other package that is there too; ``verify`` compares the kernels with eager and
times nothing; ``table`` prints rows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from .cases import CASES, Case, Experiment
from .compare import SMALL, others, present, wavesim_row
from .measure import environment
from .tables import table

PARITY = {"float32": 2e-5, "float64": 1e-11}
"""Largest RMS ratio of Triton to eager that is timed."""


def verify(case: Case, device: str = "cuda", shape: tuple[int, ...] = SMALL) -> float:
    """Parity of a small run of the case's kernels with eager; nothing is timed where it is off."""
    small = replace(case, shape=shape[-len(case.shape) :], shots=1, nt=20)
    error, bound = Experiment(small, True, device).error(), PARITY[case.dtype]
    if not error <= bound:
        raise SystemExit(f"{case.name}: got a parity error of {error:.1e}, expected {bound}.")
    return error


def chosen(pattern: str) -> list[Case]:
    """The cases whose name contains the pattern; exits without any, or without a GPU."""
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks: got no CUDA or ROCm device, expected one; nothing was timed.")
    found = [c for c in CASES if pattern in c.name]
    if not found:
        known = ", ".join(c.name for c in CASES)
        raise SystemExit(f"--only: got {pattern!r}, expected a part of one of: {known}.")
    return found


def rows(options: argparse.Namespace) -> Iterator[dict | None]:
    """The rows of `run` or `compare`, forward and with the gradient; None for one that failed."""
    cases = chosen(options.only)
    peers = present() if options.command == "compare" else []
    common = environment(options.commit)
    for case in cases:
        parity = verify(case)
        case = replace(case, nt=options.steps) if options.steps else case
        for gradient in (False, True):
            yield wavesim_row(case, gradient, options.repeats, parity, common)
            torch.cuda.empty_cache()
            if options.command == "compare":
                yield from others(case, gradient, options.repeats, common, peers)


def measure(options: argparse.Namespace) -> None:
    """Print rows and append them to the output; exits with 1 where one of them failed."""
    failed = 0
    for row in rows(options):
        failed += row is None
        if row is None:
            continue
        line = json.dumps(row, default=str)
        print(line, flush=True)
        if options.output:
            with options.output.open("a") as out:
                out.write(line + "\n")
    if failed:
        raise SystemExit(f"{options.command}: {failed} timings failed or were refused, see above.")


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("run", "time the cases on the current GPU"),
        ("compare", "time them in wavesim, eagerly, and in Deepwave, SWEEP and TIDE if importable"),
    ):
        runner = commands.add_parser(name, help=text)
        runner.add_argument("--output", type=Path, help="file that rows are appended to")
        runner.add_argument("--only", default="", help="part of the names of the cases to time")
        runner.add_argument("--repeats", type=int, default=3, help="timed calls after two warm-ups")
        runner.add_argument("--steps", type=int, help="another number of steps, for a quick look")
        runner.add_argument("--commit", help="of a copy without git; a + at its end: changed")
    checker = commands.add_parser("verify", help="compare the kernels of the cases with eager")
    checker.add_argument("--only", default="", help="part of the names of the cases")
    printer = commands.add_parser("table", help="print a file of rows as Markdown")
    printer.add_argument("rows", type=Path)
    printer.add_argument("--only", default="", help="part of the names of the cases")
    printer.add_argument("--short", action="store_true", help="cells a second only")
    return parser.parse_args(words)


def printed(options: argparse.Namespace) -> str:
    """What `table` prints; documents name its words in the mark above each table."""
    return table(options.rows, options.only, options.short)


def main() -> None:
    options = parse()
    if options.command == "table":
        print(printed(options))
    elif options.command == "verify":
        for case in chosen(options.only):
            print(f"{case.name}: {verify(case):.1e}", flush=True)
    else:
        measure(options)


if __name__ == "__main__":
    main()
