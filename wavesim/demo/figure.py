"""The picture and the figures of an inversion. Imports matplotlib only when it draws."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from .inversion import Inversion, plain

PICTURE, NUMBERS, MODEL = "demo.png", "demo.json", "model.npy"


def numbers(inversion: Inversion, notes: dict[str, Any]) -> dict[str, Any]:
    """What the JSON holds: model error, losses, seconds, backend, report and settings."""
    progress, survey = inversion.progress, inversion.survey
    before, after = inversion.error(inversion.initial), inversion.error(progress.model)
    done = len(progress.losses)
    return {
        "iterations_done": done,
        "finished": done == survey.iterations,
        "initial_error_m_per_s": before,
        "final_error_m_per_s": after,
        "relative_model_error": after / before if before else None,
        "losses": progress.losses,
        "peak_hz": [survey.peaks[survey.stage(k)] for k in range(done)],
        "seconds": progress.seconds,
        "peak_device_bytes": progress.peak_bytes,
        "backend": inversion.report.get("backend", survey.backend),
        "report": inversion.report,
        "settings": plain(survey),
        **notes,
    }


def write(inversion: Inversion, folder: Path, notes: dict[str, Any]) -> dict[str, Any]:
    """Write the JSON, the recovered model (float32 [z, x], m/s) and the PNG; return the JSON."""
    found = numbers(inversion, notes)
    part = folder / (NUMBERS + ".part")
    part.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    os.replace(part, folder / NUMBERS)
    np.save(folder / MODEL, inversion.progress.model.cpu().numpy())
    draw(inversion, folder / PICTURE, found)
    return found


def draw(inversion: Inversion, path: Path, found: dict[str, Any]) -> None:
    """Three models on one scale, the first gradient, one shot's data and residuals, the loss."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    survey, progress = inversion.survey, inversion.progress
    figure = Figure(figsize=(15, 11), layout="constrained")
    FigureCanvasAgg(figure)
    bands: Any = figure.subfigures(3, 1)
    rows = [band.subplots(1, 3) for band in bands]
    models = [inversion.true, inversion.initial, progress.model]
    low, high = float(inversion.true.min()), float(inversion.true.max())
    ratio = found["relative_model_error"]
    percent = "" if ratio is None else f", error {100 * ratio:.0f} % of the initial"
    titles = ["True model", "Initial model", f"Recovered model{percent}"]
    for axes, model, title in zip(rows[0], models, titles, strict=True):
        image = section(axes, model.cpu().numpy(), survey.spacing, title, "cividis", low, high)
    bands[0].colorbar(image, ax=list(rows[0]), label="speed (m/s)", shrink=0.8, pad=0.01)
    gradient_and_change(bands[1], rows[1], inversion)
    loss_curve(rows[1][2], found)
    data(bands[2], rows[2], inversion)
    figure.savefig(path, dpi=110)


def section(axes, values, spacing: float, title: str, colours: str, low: float, high: float):
    """One section with axes in km."""
    nz, nx = values.shape
    extent = (0, nx * spacing / 1000, nz * spacing / 1000, 0)
    image = axes.imshow(values, extent=extent, cmap=colours, vmin=low, vmax=high, aspect="auto")
    axes.set(title=title, xlabel="x (km)", ylabel="depth (km)")
    return image


def gradient_and_change(figure, row, inversion: Inversion) -> None:
    """The first iteration's gradient, and what the inversion changed."""
    survey, progress = inversion.survey, inversion.progress
    gradient = np.zeros(survey.shape)
    if progress.gradient is not None:
        gradient = (progress.gradient * inversion.free).cpu().numpy()
    limit = float(np.quantile(np.abs(gradient), 0.99)) or 1.0
    title = "Gradient of the first iteration"
    image = section(row[0], gradient, survey.spacing, title, "PuOr", -limit, limit)
    figure.colorbar(image, ax=row[0], label="loss per m/s")
    change = (progress.model - inversion.initial).cpu().numpy()
    wanted = (inversion.true - inversion.initial).cpu().numpy()
    limit = float(np.quantile(np.abs(wanted), 0.99)) or 1.0
    title = "Recovered minus initial model"
    image = section(row[1], change, survey.spacing, title, "PuOr", -limit, limit)
    figure.colorbar(image, ax=row[1], label="m/s")


def loss_curve(axes, found: dict[str, Any]) -> None:
    """Loss of every mini-batch, the frequency stages marked."""
    losses, peaks = np.array(found["losses"]), np.array(found["peak_hz"])
    shades = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"]
    for k, peak in enumerate(sorted(set(peaks))):
        at = np.flatnonzero(peaks == peak)
        axes.semilogy(at + 1, losses[at], "o-", ms=4, c=shades[k % 6], label=f"{peak:.1f} Hz")
    axes.set(title="Loss of each mini-batch", xlabel="iteration", ylabel="residual / data energy")
    axes.grid(alpha=0.3)
    if len(losses):
        axes.legend(title="peak frequency", fontsize="small")


def data(figure, row, inversion: Inversion) -> None:
    """One shot in the middle: observed data, and what is left of it before and after."""
    survey = inversion.survey
    shot = survey.shots // 2
    if inversion.observed is None:
        return
    observed = inversion.observed[shot].cpu().numpy()
    panels = [(observed, f"Observed data, shot {shot + 1} of {survey.shots}")]
    for model, when in ((inversion.initial, "before"), (inversion.progress.model, "after")):
        rest = inversion.records(model, [shot])[0].cpu().numpy() - observed
        part = float(np.square(rest).sum() / np.square(observed).sum())
        panels.append((rest, f"Residual {when}: {100 * part:.2g} % of the energy"))
    # one scale for all three, clipped so that the residuals can be seen beside the direct wave
    limit = 1.5 * float(np.quantile(np.abs(panels[1][0]), 0.99)) or 1.0
    extent = (0, survey.shape[1] * survey.spacing / 1000, survey.nt * survey.dt, 0)
    for axes, (values, title) in zip(row, panels, strict=True):
        image = axes.imshow(
            values.T, extent=extent, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto"
        )
        axes.set(title=title, xlabel="receiver x (km)", ylabel="time (s)")
    figure.colorbar(image, ax=list(row), label="pressure (arbitrary)", shrink=0.8, pad=0.01)
