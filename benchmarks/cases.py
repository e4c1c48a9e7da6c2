"""What is timed: every equation on the grids that users run, layers of 20 cells on every face."""

from __future__ import annotations

from dataclasses import dataclass

import torch

import wavesim


@dataclass(frozen=True)
class Case:
    """One source a shot, a row of receivers; random models, amplitudes that are not zero."""

    equation: str
    shape: tuple[int, ...]
    shots: int
    nt: int
    order: int = 4

    @property
    def name(self) -> str:
        size = "x".join(map(str, self.shape))
        return f"{self.equation}-{size}-{self.shots}shots-order{self.order}"


CASES = [
    Case("scalar", (300, 300), 1, 1000),
    Case("scalar", (300, 300), 32, 1000),
    Case("scalar", (1000, 1000), 1, 500),
    Case("scalar", (1000, 1000), 16, 500),
    Case("scalar", (2000, 2000), 8, 200),
    Case("scalar", (256, 256, 256), 1, 200),
    Case("scalar", (256, 256, 256), 1, 200, order=8),
    Case("scalar", (512, 512, 512), 1, 50),
    Case("acoustic", (300, 300), 1, 1000),
    Case("acoustic", (1000, 1000), 16, 300),
    Case("acoustic", (256, 256, 256), 1, 100),
    Case("elastic", (300, 300), 1, 1000),
    Case("elastic", (1000, 1000), 16, 200),
    Case("elastic", (256, 256, 256), 1, 50),
    Case("maxwell_tm", (1000, 1000), 16, 200),
    Case("maxwell", (256, 256, 256), 1, 50),
]

# parameter ranges, spacing (m), dt (s), the fastest speed or more (m/s), channel of the points
MEDIA = {
    "scalar": ({"v": (1500.0, 2500.0)}, 10.0, 1e-3, 2500.0, "u"),
    "acoustic": ({"v": (1500.0, 2500.0), "rho": (1000.0, 1500.0)}, 10.0, 1e-3, 3100.0, "p"),
    "elastic": (
        {"lamb": (2e9, 4e9), "mu": (1e9, 2e9), "buoyancy": (6e-4, 1e-3)},
        10.0,
        1e-3,
        3000.0,
        "p",
    ),
    "maxwell_tm": (
        {"epsilon": (4.0, 9.0), "sigma": (1e-3, 1e-2), "mu": (1.0, 1.5)},
        0.02,
        4e-11,
        1.5e8,
        "ey",
    ),
}
MEDIA["maxwell"] = MEDIA["maxwell_tm"]


class Experiment:
    """The inputs of a case on a device; ``run`` is what is timed."""

    def __init__(self, case: Case, gradient: bool, device: str) -> None:
        rng = torch.Generator().manual_seed(0)
        ranges, self.spacing, self.dt, self.fastest, channel = MEDIA[case.equation]
        self.case, self.gradient = case, gradient
        self.parameters = {
            k: (low + (high - low) * torch.rand(case.shape, generator=rng)).to(device)
            for k, (low, high) in ranges.items()
        }
        for value in self.parameters.values():
            value.requires_grad_(gradient)
        middle = [n // 2 for n in case.shape]
        at = torch.tensor([[[2, *middle[1:]]]]).repeat(case.shots, 1, 1)
        row = torch.arange(case.shape[-1])
        points = torch.tensor([2, *middle[1:]]).repeat(len(row), 1)
        points[:, -1] = row
        amplitudes = torch.randn(case.shots, 1, case.nt, generator=rng).to(device)
        self.sources = {channel: wavesim.Sources(amplitudes, at.to(device))}
        points = points.repeat(case.shots, 1, 1).to(device)
        self.receivers = {channel: wavesim.Receivers(points)}

    def run(self, backend: str = "auto") -> wavesim.Result:
        """A whole call, and its backward pass if a gradient is wanted."""
        for value in self.parameters.values():
            value.grad = None
        out = wavesim.simulate(
            self.case.equation,
            self.parameters,
            spacing=self.spacing,
            dt=self.dt,
            sources=self.sources,
            receivers=self.receivers,
            boundary=wavesim.PML(width=20, frequency=25.0),
            order=self.case.order,
            max_velocity=self.fastest,
            backend=backend,
        )
        if self.gradient:
            sum(r.square().sum() for r in out.receivers.values()).backward()
        return out

    def error(self) -> float:
        """Largest RMS ratio of Triton to eager, over records and gradients."""
        found = []
        for backend in ("eager", "triton"):
            out = self.run(backend)
            values = [r.detach() for r in out.receivers.values()]
            found.append(values + [p.grad for p in self.parameters.values() if self.gradient])
        ratios = [
            ((b - a).double().square().mean() / a.double().square().mean()).sqrt().item()
            for a, b in zip(*found, strict=True)
        ]
        return max(ratios)
