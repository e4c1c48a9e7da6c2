"""Ground-penetrating radar over a buried pipe: a section of traces, one shot a position.

``python docs/examples/buried_pipe.py`` writes a picture: the model, the section, and the section
without what all traces share, beside the arrival times that the geometry predicts.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

import wavesim
from wavesim import PML, Receivers, Sources

LIGHT = 299792458.0  # m/s


@dataclass(frozen=True)
class Setting:
    """The section, its grid, the pipe and the survey; lengths in m."""

    shape: tuple[int, int] = (75, 150)  # cells [z, x]
    spacing: float = 0.02
    surface: int = 15  # first row of soil
    pipe: tuple[float, float, float] = (0.9, 1.5, 0.12)  # depth below the surface, x, radius
    soil: tuple[float, float] = (6.0, 0.002)  # relative permittivity, conductivity in S/m
    dt: float = 3.5e-11  # s
    nt: int = 720
    frequency: float = 300e6  # Hz
    every: int = 4  # cells between shots
    apart: int = 4  # cells between the two antennas

    @property
    def positions(self) -> list[int]:
        """Columns of the transmitters."""
        return list(range(6, self.shape[1] - self.apart - 6, self.every))


def model(s: Setting, pipe: bool) -> tuple[torch.Tensor, ...]:
    """epsilon, sigma, mu [z, x]: air, soil, and in it an empty plastic pipe."""
    nz, nx = s.shape
    epsilon, sigma = torch.ones(nz, nx), torch.zeros(nz, nx)
    epsilon[s.surface :], sigma[s.surface :] = s.soil
    if pipe:
        depth, across, radius = s.pipe
        z = (torch.arange(nz)[:, None] - s.surface) * s.spacing - depth
        x = torch.arange(nx)[None, :] * s.spacing - across
        distance = (z.square() + x.square()).sqrt()
        wall = (distance < radius) & (distance >= radius - 1.5 * s.spacing)
        epsilon[distance < radius], sigma[distance < radius] = 1.0, 0.0
        epsilon[wall] = 3.0
    return epsilon, sigma, torch.ones(nz, nx)


def survey(s: Setting, pipe: bool) -> torch.Tensor:
    """Traces [shot, time], V/m, of a receiver ``apart`` cells beside each line source."""
    a = (torch.pi * s.frequency * (torch.arange(s.nt) * s.dt - 1.2 / s.frequency)) ** 2
    wavelet = (1 - 2 * a) * torch.exp(-a)
    row = s.surface - 1  # on the ground
    sources = torch.tensor([[[row, x]] for x in s.positions])
    receivers = torch.tensor([[[row, x + s.apart]] for x in s.positions])
    out = wavesim.maxwell_tm(
        *model(s, pipe),
        spacing=s.spacing,
        dt=s.dt,
        sources=Sources(wavelet.expand(len(s.positions), 1, s.nt), sources),
        receivers=Receivers(receivers),
        boundary=PML(width=10),
    )
    return out.receivers[:, 0]


def expected(s: Setting) -> torch.Tensor:
    """Time of the wave from the top of the pipe, s, by position: straight rays in the soil."""
    depth, across, radius = s.pipe
    transmitter = torch.tensor(s.positions) * s.spacing - across
    receiver = transmitter + s.apart * s.spacing
    path = sum(torch.hypot(x, torch.tensor(depth)) - radius for x in (transmitter, receiver))
    return path * s.soil[0] ** 0.5 / LIGHT + 1.2 / s.frequency


def draw(s: Setting, section: torch.Tensor, raw: torch.Tensor, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.3, 1, 1))
    epsilon, nz, nx = model(s, True)[0], *s.shape
    top = s.surface * s.spacing
    extent = (0, nx * s.spacing, nz * s.spacing - top, -top)
    image = left.imshow(epsilon.numpy(), cmap="cividis", extent=extent)
    figure.colorbar(image, ax=left, label="relative permittivity", location="bottom")
    left.set(title="Model", xlabel="x (m)", ylabel="depth (m)")
    centres = (torch.tensor(s.positions) + s.apart / 2) * s.spacing
    end = (float(centres[0]), float(centres[-1]), 1e9 * s.nt * s.dt, 0)
    for ax, data, title in (
        (middle, raw, "Section, clipped"),
        (right, section, "Minus the median trace"),
    ):
        limit = float(section.abs().max()) or 1.0
        style = {"cmap": "PuOr", "aspect": "auto", "extent": end}
        ax.imshow(data.T.numpy(), vmin=-limit, vmax=limit, **style)
        ax.set(title=title, xlabel="position (m)", ylabel="time (ns)")
    right.plot(centres, 1e9 * expected(s), "k--", lw=1, label="straight rays")
    right.set(ylim=end[2:])
    right.legend(loc="upper right", fontsize="small")
    figure.savefig(path, dpi=70)


def main(output: Path, setting: Setting | None = None) -> None:
    """Simulate and write the picture to ``output``."""
    setting = Setting() if setting is None else setting
    output.parent.mkdir(parents=True, exist_ok=True)
    raw = survey(setting, pipe=True)
    draw(setting, raw - raw.median(0).values, raw, output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("buried_pipe.png"))
    main(parser.parse_args().output)
