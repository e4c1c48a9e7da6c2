"""What is timed: every equation on the grids that users run, layers of 20 cells on every face."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import wavesim

SEED = 0
WIDTH = 20
"""Cells of absorbing layer on every face."""


@dataclass(frozen=True)
class Case:
    """One source a shot, a row of receivers; random models, amplitudes that are not zero. compact:
    what a gradient keeps, which an unchecked call does not choose by itself."""

    equation: str
    shape: tuple[int, ...]
    shots: int
    nt: int
    order: int = 4
    dtype: str = "float32"
    compact: bool = False

    @property
    def name(self) -> str:
        size = "x".join(map(str, self.shape))
        suffix = "" if self.dtype == "float32" else f"-{self.dtype}"
        return f"{self.equation}-{size}-{self.shots}shots-order{self.order}{suffix}"


CASES = [
    Case("scalar", (300, 300), 1, 1000),
    Case("scalar", (300, 300), 32, 1000),
    Case("scalar", (1000, 1000), 1, 500),
    Case("scalar", (1000, 1000), 16, 500),
    Case("scalar", (1000, 1000), 16, 500, order=2),
    Case("scalar", (1000, 1000), 16, 500, order=6),
    Case("scalar", (1000, 1000), 16, 500, order=8),
    Case("scalar", (1000, 1000), 16, 500, dtype="float64"),
    Case("scalar", (2000, 2000), 8, 200),
    Case("scalar", (256, 256, 256), 1, 200),
    Case("scalar", (256, 256, 256), 1, 200, order=8),
    Case("scalar", (256, 256, 256), 1, 200, dtype="float64"),
    Case("scalar", (512, 512, 512), 1, 50),
    Case("acoustic", (300, 300), 1, 1000),
    Case("acoustic", (1000, 1000), 16, 300),
    Case("acoustic", (256, 256, 256), 1, 100),
    Case("elastic", (300, 300), 1, 1000),
    Case("elastic", (1000, 1000), 16, 200, compact=True),
    Case("elastic", (1000, 1000), 16, 200, order=2, compact=True),
    Case("elastic", (1000, 1000), 16, 200, order=8, compact=True),
    Case("elastic", (256, 256, 256), 1, 50, compact=True),
    Case("maxwell_tm", (1000, 1000), 16, 200),
    Case("maxwell", (256, 256, 256), 1, 50),
]


@dataclass(frozen=True)
class Medium:
    """Parameter ranges, spacing (m), dt (s), the fastest speed or more (m/s), and the channel of
    the points. ``frequency`` (Hz) tunes the layers; None leaves them as the equation has them."""

    ranges: dict[str, tuple[float, float]]
    spacing: float
    dt: float
    fastest: float
    channel: str
    frequency: float | None = 25.0


MEDIA = {
    "scalar": Medium({"v": (1500.0, 2500.0)}, 10.0, 1e-3, 2500.0, "u"),
    "acoustic": Medium({"v": (1500.0, 2500.0), "rho": (1000.0, 1500.0)}, 10.0, 1e-3, 3100.0, "p"),
    "elastic": Medium(
        {"lamb": (2e9, 4e9), "mu": (1e9, 2e9), "buoyancy": (6e-4, 1e-3)}, 10.0, 1e-3, 3100.0, "p"
    ),
    "maxwell_tm": Medium(
        {"epsilon": (4.0, 9.0), "sigma": (1e-3, 1e-2), "mu": (1.0, 1.5)},
        0.02,
        4e-11,
        1.5e8,
        "ey",
        frequency=None,
    ),
}
MEDIA["maxwell"] = MEDIA["maxwell_tm"]


def history(case: Case, backend: str) -> wavesim.History:
    """What a gradient of a case keeps."""
    return wavesim.History(compact=True if case.compact and backend == "triton" else None)


class Experiment:
    """The inputs of a case on a device; ``run`` is what is timed.

    uniform: every parameter has the lower bound of its range everywhere.
    """

    def __init__(self, case: Case, gradient: bool, device: str, uniform: bool = False) -> None:
        rng = torch.Generator().manual_seed(SEED)
        self.medium = medium = MEDIA[case.equation]
        self.case, self.gradient, self.device = case, gradient, device
        dtype = getattr(torch, case.dtype)

        def draw(low: float, high: float) -> Tensor:
            unit = torch.rand(case.shape, generator=rng, dtype=dtype)
            return (low + (0.0 if uniform else high - low) * unit).to(device)

        self.parameters = {name: draw(*pair) for name, pair in medium.ranges.items()}
        for value in self.parameters.values():
            value.requires_grad_(gradient)
        middle = [n // 2 for n in case.shape]
        at = torch.tensor([[[2, *middle[1:]]]]).repeat(case.shots, 1, 1)
        row = torch.arange(case.shape[-1])
        points = torch.tensor([2, *middle[1:]]).repeat(len(row), 1)
        points[:, -1] = row
        amplitudes = torch.randn(case.shots, 1, case.nt, generator=rng, dtype=dtype)
        self.amplitudes, self.source_cells = amplitudes.to(device), at.to(device)
        self.receiver_cells = points.repeat(case.shots, 1, 1).to(device)
        channel = medium.channel
        self.settings: dict[str, Any] = {
            "spacing": medium.spacing,
            "dt": medium.dt,
            "sources": {channel: wavesim.Sources(self.amplitudes, self.source_cells)},
            "receivers": {channel: wavesim.Receivers(self.receiver_cells)},
            "boundary": wavesim.PML(width=WIDTH, frequency=medium.frequency),
            "order": case.order,
            "max_velocity": medium.fastest,
        }

    def run(self, backend: str = "auto", **options: Any) -> tuple[Tensor, wavesim.Report]:
        """A whole call, and its backward pass if a gradient is wanted: records and report. The
        final state is let go in between, as it is by who needs the records alone."""
        self.clear()
        out = self.forward(backend, **options)
        records, report = self.records(out), out.report
        del out
        self.differentiate(records)
        return records, report

    def forward(self, backend: str = "auto", **options: Any) -> wavesim.Result:
        """A call alone; options go before those of the case."""
        own = {"backend": backend, "history": history(self.case, backend)}
        settings = {**self.settings, **own, **options}
        return getattr(wavesim, self.case.equation)(**self.parameters, **settings)

    def records(self, result: wavesim.Result) -> Tensor:
        """[shot, receiver, time] of the one channel that is recorded."""
        assert isinstance(result.receivers, Mapping)
        return result.receivers[self.medium.channel]

    def clear(self) -> None:
        """Forget the gradients of an earlier call."""
        for value in self.parameters.values():
            value.grad = None

    def differentiate(self, records: Tensor) -> None:
        """The backward pass of the records' energy, if a gradient is wanted."""
        if self.gradient:
            records.square().sum().backward()

    def gradients(self) -> dict[str, Tensor]:
        """Of the last call, by parameter; those it did not compute are left out."""
        return {k: v.grad for k, v in self.parameters.items() if v.grad is not None}

    def error(self) -> float:
        """Largest RMS ratio of Triton to eager, over records and gradients."""
        found = []
        for backend in ("eager", "triton"):
            records, _ = self.run(backend)
            found.append([records.detach(), *self.gradients().values()])
        return max(deviation(b, a) for a, b in zip(*found, strict=True))


def deviation(got: Tensor, expected: Tensor) -> float:
    """RMS of the difference over RMS of what is expected; infinite where it is not a number."""
    got, expected = got.double(), expected.double()
    ratio = ((got - expected).square().mean() / expected.square().mean()).sqrt().item()
    return math.inf if math.isnan(ratio) else ratio
