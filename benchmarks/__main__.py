"""``python -m benchmarks run``: time whole calls and append one JSON row a case."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

import torch
import triton

import wavesim


@dataclass(frozen=True)
class Case:
    """A scalar run: one source a shot, a row of receivers, layers of 20 cells on every face."""

    shape: tuple[int, ...]
    shots: int
    nt: int
    order: int = 4


CASES = [
    Case((300, 300), 1, 1000),
    Case((300, 300), 32, 1000),
    Case((1000, 1000), 1, 500),
    Case((1000, 1000), 16, 500),
    Case((2000, 2000), 8, 200),
    Case((256, 256, 256), 1, 200),
    Case((256, 256, 256), 1, 200, order=8),
]


def measure(case: Case, gradient: bool, device: str, repeats: int = 3) -> dict:
    """Median seconds of a whole call, synchronised, after two warm-ups."""
    rng = torch.Generator().manual_seed(0)
    v = (1500 + 1000 * torch.rand(case.shape, generator=rng)).to(device)
    middle = [n // 2 for n in case.shape]
    sources = torch.tensor([[[2, *middle[1:]]]]).repeat(case.shots, 1, 1)
    row = torch.arange(case.shape[-1])
    receivers = torch.stack([torch.full_like(row, 2)] * len(case.shape), -1)
    receivers[:, 1:] = torch.tensor(middle[1:])
    receivers[:, -1] = row
    receivers = receivers.repeat(case.shots, 1, 1)
    amplitudes = torch.randn(case.shots, 1, case.nt, generator=rng).to(device)
    v.requires_grad_(gradient)

    def call():
        v.grad = None
        out = wavesim.scalar(
            v,
            spacing=10.0,
            dt=1e-3,
            sources=wavesim.Sources(amplitudes, sources.to(device)),
            receivers=wavesim.Receivers(receivers.to(device)),
            boundary=wavesim.PML(width=20, frequency=25.0),
            order=case.order,
            max_velocity=2500.0,
        )
        if gradient:
            out.receivers.square().sum().backward()
        torch.cuda.synchronize()
        return out.report

    for _ in range(2):
        report = call()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        report = call()
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    return {
        **asdict(case),
        "equation": "scalar",
        "gradient": gradient,
        "backend": report.backend,
        "step_ratio": report.step_ratio,
        "seconds": seconds,
        "us_per_step": 1e6 * seconds / case.nt,
        "gcells_per_s": prod(case.shape) * case.shots * case.nt / seconds / 1e9,
        "peak_allocated_gib": torch.cuda.max_memory_allocated() / 2**30,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run", help="time the cases on the current GPU")
    runner.add_argument("--output", type=Path, help="file that rows are appended to")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks: got no CUDA or ROCm device, expected one; nothing was timed.")
    for case in CASES:
        for gradient in (False, True):
            row = json.dumps(measure(case, gradient, "cuda"))
            print(row, flush=True)
            if options.output:
                with options.output.open("a") as out:
                    out.write(row + "\n")


if __name__ == "__main__":
    main()
