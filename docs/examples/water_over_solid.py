"""Elastic waves in water over a solid, from an explosion in the water below a free surface.

``python docs/examples/water_over_solid.py`` writes a picture: snapshots of pressure and of
rotation, and the records of hydrophones in the water and of geophones on the bottom.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import wavesim
from wavesim import PML, Receivers, Sources

VACUUM = (0.0, 0.0, 0.0)  # vp, vs, m/s; density, kg/m^3
WATER = (1500.0, 0.0, 1000.0)
ROCK = (3000.0, 1700.0, 2300.0)


@dataclass(frozen=True)
class Setting:
    """The section, its grid, and the times of the snapshots."""

    shape: tuple[int, int] = (140, 280)  # cells [y, x], y down
    surface: int = 4  # first row of water, below a vacuum
    bottom: int = 69  # first row of rock
    spacing: float = 4.0  # m
    dt: float = 4e-4  # s
    nt: int = 1200
    frequency: float = 25.0  # Hz
    snapshots: tuple[int, ...] = (350, 550, 750)  # steps
    width: int = 20  # of the layers, cells

    @property
    def source(self) -> tuple[int, int]:
        return self.bottom - 30, self.shape[1] // 4

    @property
    def columns(self) -> list[int]:
        return list(range(self.source[1], self.shape[1] - 5, 6))


def model(s: Setting) -> tuple[torch.Tensor, ...]:
    """lamb, mu, buoyancy [y, x]; mu is exactly 0 in the water."""
    parts = []
    for vacuum, water, rock in zip(VACUUM, WATER, ROCK, strict=True):
        value = torch.full(s.shape, vacuum)
        value[s.surface :], value[s.bottom :] = water, rock
        parts.append(value)
    return wavesim.moduli(*parts)


def ricker(s: Setting, steps: int) -> torch.Tensor:
    a = (torch.pi * s.frequency * (torch.arange(steps) * s.dt - 1.2 / s.frequency)) ** 2
    return (1 - 2 * a) * torch.exp(-a)


def upwards(f: torch.Tensor, dim: int) -> torch.Tensor:
    """Difference to the half cell above, order 4 like the run's: all but one and the last two."""
    f0, f1, f2, f3 = (f.narrow(dim, k, f.shape[dim] - 3) for k in range(4))
    return 9 / 8 * (f2 - f1) - (f3 - f0) / 24


def rotation(s: Setting, state: wavesim.State) -> torch.Tensor:
    """``dv_x/dy - dv_y/dx``, 1/s, at the corners of cells: shear only, so none in the water."""
    vy, vx = state.fields["vy"][0], state.fields["vx"][0]
    turning = upwards(vx, 0)[:, 1:-2] - upwards(vy, 1)[1:-2]
    turning = torch.nn.functional.pad(turning / s.spacing, (1, 2, 1, 2))
    turning[: s.surface + 1] = 0  # the water slides along the vacuum, whose cells do not move
    return inside(s, turning)


def inside(s: Setting, field: torch.Tensor) -> torch.Tensor:
    """The field without the boundary layers; there is none on top."""
    ny, nx = s.shape
    return field[:ny, s.width : s.width + nx]


def simulate(s: Setting):
    """Snapshots (time, pressure, rotation), and records [receiver, time] by name."""
    wavelet = 1e6 * ricker(s, s.nt)  # Pa/s
    source = torch.tensor([[list(s.source)]])
    receivers = {
        "p": Receivers(torch.tensor([[[s.bottom - 30, x] for x in s.columns]])),
        "vy": Receivers(torch.tensor([[[s.bottom, x] for x in s.columns]])),
    }
    boundary = PML(width=[(0, s.width), (s.width, s.width)], frequency=s.frequency)
    state, pictures, records, done = None, [], [], 0
    for stop in (*s.snapshots, s.nt):  # a run in pieces is the run in one
        out = wavesim.elastic(
            *model(s),
            spacing=s.spacing,
            dt=s.dt,
            sources={"p": Sources(wavelet[None, None, done:stop], source)},
            receivers=receivers,
            boundary=boundary,
            initial=state,
            substeps=False,
        )
        state, done = out.state, stop
        records.append(out.receivers)
        if stop in s.snapshots:
            pressure = -(state.fields["syy"][0] + state.fields["sxx"][0]) / 2
            pictures.append((stop * s.dt, inside(s, pressure), rotation(s, state)))
    joined = {name: torch.cat([r[name][0] for r in records], -1) for name in receivers}
    return pictures, joined


def clipped(field: torch.Tensor, share: float = 0.995) -> float:
    return float(field.abs().flatten().quantile(share)) or 1.0


def draw(s: Setting, pictures, records, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(11, 8), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(3, 3)
    ny, nx = s.shape
    top = s.surface * s.spacing
    extent = (0, nx * s.spacing, ny * s.spacing - top, -top)
    style = {"cmap": "PuOr", "aspect": "auto", "extent": extent}
    for column, (time, *fields) in enumerate(pictures):
        for row, (field, name) in enumerate(zip(fields, ("Pressure", "Rotation"), strict=True)):
            limit = clipped(field)
            ax = axes[row, column]
            ax.imshow(field.numpy(), vmin=-limit, vmax=limit, **style)
            for row_number in (s.surface, s.bottom):
                ax.axhline(row_number * s.spacing - top, color="k", lw=0.8)
            ax.plot(s.source[1] * s.spacing, s.source[0] * s.spacing - top, "k*", ms=6)
            ax.set(title=f"{name} at {1000 * time:.0f} ms", xlabel="x (m)", ylabel="depth (m)")
    titles = ("Pressure in the water", "Vertical velocity, bottom")
    offsets = [(x - s.source[1]) * s.spacing for x in s.columns]
    for ax, record, title in zip(axes[2], records.values(), titles, strict=False):
        nt, limit = record.shape[1], clipped(record, 0.99)
        end = (offsets[0], offsets[-1], nt * s.dt, 0)
        style = {"cmap": "PuOr", "aspect": "auto", "extent": end}
        ax.imshow(record.T.numpy(), vmin=-limit, vmax=limit, **style)
        ax.set(title=title, xlabel="offset (m)", ylabel="time (s)")
    near, times = len(offsets) // 4, torch.arange(nt) * s.dt
    for shift, (name, label) in enumerate((("p", "pressure"), ("vy", "velocity"))):
        trace = records[name][near]
        axes[2, 2].plot(times, trace / trace.abs().max() - 2 * shift, label=label, lw=1)
    title = f"Traces at {offsets[near]:.0f} m, scaled"
    axes[2, 2].set(title=title, xlabel="time (s)", yticks=[])
    axes[2, 2].legend(fontsize="small", loc="upper left")
    figure.set_dpi(65)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    image.quantize(128).save(path, optimize=True)


def main(output: Path, setting: Setting | None = None) -> None:
    """Simulate and write the picture to ``output``."""
    setting = Setting() if setting is None else setting
    output.parent.mkdir(parents=True, exist_ok=True)
    draw(setting, *simulate(setting), output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("water_over_solid.png"))
    main(parser.parse_args().output)
