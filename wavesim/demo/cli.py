"""``python -m wavesim demo``: options, checks before any work, the run, and what it says."""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..config import require
from ..device import BACKENDS, choose_backend
from . import section
from .inversion import Inversion, load
from .survey import Survey, plan_survey

SPACING = 20.0
"""Spacing of the synthetic section, m."""
SYNTHETIC = {"iterations": 30, "shots": 8, "step": 0.05, "epsilon": 0.03}
OWN = {"iterations": 60, "shots": 16, "step": 0.04, "epsilon": 0.3}
"""Defaults for the synthetic section and for the user's model; ``step`` and ``epsilon`` as in
`Survey`. Salt far from its start is found sooner where cells with small gradients move as well;
models with more detail get worse that way before they get better."""
SMOOTHING = 0.18, 300.0
"""Standard deviation of the initial model's smoothing: a part of the depth, at most so many m."""


def add_parser(commands: Any) -> None:
    """Add ``demo`` to the subparsers of the command line."""
    add = commands.add_parser(
        "demo",
        help="full-waveform inversion of a 2-D section",
        description="Full-waveform inversion of a 2-D section; writes a PNG and a JSON file.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add.add_argument("--model", metavar="FILE.npy", help="speeds [z, x], m/s; synthetic if absent")
    add.add_argument("--spacing", type=float, metavar="M", help="grid spacing of --model, m")
    add.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add.add_argument("--backend", default="auto", choices=BACKENDS)
    usual = f"default {SYNTHETIC['iterations']}, or {OWN['iterations']} with --model"
    add.add_argument("--iterations", type=int, help=f"mini-batch updates ({usual})")
    usual = f"default {SYNTHETIC['shots']}, or {OWN['shots']} with --model"
    add.add_argument("--shots", type=int, help=f"shots along the surface ({usual})")
    add.add_argument("--output", default="demo-output", metavar="FOLDER", help="where to write")
    add.add_argument("--seed", type=int, default=0, help="synthetic section and order of batches")
    add.add_argument("--resume", action="store_true", help="go on from the checkpoint in --output")
    add.set_defaults(run=run)


@dataclass(frozen=True, eq=False)
class Job:
    """Everything checked: models [z, x] in m/s, settings, device, folder, and what to say."""

    true: np.ndarray
    initial: np.ndarray
    survey: Survey
    device: torch.device
    folder: Path
    notes: dict[str, Any]


def choose_device(name: str) -> torch.device:
    """The device asked for; auto takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    known = device is not None and device.type in ("cpu", "cuda")
    require(known, "--device", repr(name), "auto, cpu, cuda or cuda:N")
    assert device is not None
    if device.type == "cuda":
        count = torch.cuda.device_count()
        there = torch.cuda.is_available() and (device.index or 0) < count
        remedy = "Use --device cpu, or install a PyTorch build for your GPU."
        require(there, "--device", repr(name), f"a device of this machine ({count} GPUs)", remedy)
    return device


def prepare(options: argparse.Namespace) -> Job:
    """Check every option and choose the settings; raises before any work is done."""
    remedy = "Install it with `pip install 'wavesim-triton[plot]'`."
    drawable = importlib.util.find_spec("matplotlib") is not None
    require(drawable, "matplotlib", "no such package", "it, to draw the PNG", remedy)
    device = choose_device(options.device)
    backend, reason = choose_backend(options.backend, device)
    require(options.seed >= 0, "--seed", options.seed, "a whole number of at least 0")
    folder = Path(options.output)
    usable = folder.is_dir() or not folder.exists()
    require(usable, "--output", f"{folder}, a file", "a folder", "Give another path.")
    true, spacing, factor = choose_model(options, device)
    defaults = SYNTHETIC if options.model is None else OWN
    iterations = int(defaults["iterations"]) if options.iterations is None else options.iterations
    shots = options.shots
    if shots is None:
        shots = min(int(defaults["shots"]), true.shape[1])
    require(iterations >= 1, "--iterations", iterations, "a whole number of at least 1")
    part, most = SMOOTHING
    smoothing = min(part * len(true) * spacing, most)
    initial = section.smoothed(true, smoothing / spacing)
    survey = plan_survey(
        true,
        initial,
        spacing,
        smoothing,
        device=device,
        backend=backend,
        iterations=iterations,
        step=defaults["step"],
        epsilon=defaults["epsilon"],
        shots=shots,
        seed=options.seed,
    )
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    notes = {
        "model": options.model or f"synthetic section, seed {options.seed}",
        "coarsening_factor": factor,
        "device_name": name,
        "backend_reason": reason,
        "torch": torch.__version__,
    }
    return Job(true, initial, survey, device, folder, notes)


def choose_model(options: argparse.Namespace, device: torch.device) -> tuple:
    """(model float32 [z, x] in m/s, spacing in m, coarsening factor)."""
    spacing = options.spacing
    if options.model is None:
        remedy = "Leave it out, or give --model as well."
        require(spacing is None, "--spacing", spacing, "nothing without --model", remedy)
        return section.faulted_section(options.seed), SPACING, 1
    remedy = "Give the distance between grid points, for example --spacing 10."
    require(spacing is not None, "--spacing", "nothing", "a length in m with --model", remedy)
    positive = math.isfinite(spacing) and spacing > 0
    require(positive, "--spacing", spacing, "a positive length in m", remedy)
    model = section.load_section(options.model)
    factor = section.coarsening(model.shape) if device.type == "cpu" else 1
    if factor == 1:
        return model, spacing, 1
    coarse = section.coarsen(model, factor)
    old, new = ("{} x {}".format(*m.shape) for m in (model, coarse))
    print(
        f"Coarsened the model by {factor}, from {old} to {new} cells of {spacing * factor:g} m: "
        f"above {section.CPU_CELLS} cells an inversion on a CPU takes long. A GPU takes all."
    )
    return coarse, spacing * factor, factor


def describe(job: Job) -> None:
    """Say what is about to run."""
    survey = job.survey
    peaks = ", ".join(f"{p:.1f}" for p in survey.peaks)
    print(
        f"{job.notes['model']}: {survey.shape[0]} x {survey.shape[1]} cells of "
        f"{survey.spacing:g} m\n{survey.shots} shots in batches of {survey.batch}, {survey.nt} "
        f"steps of {1000 * survey.dt:.2f} ms, peak frequencies {peaks} Hz\n"
        f"{survey.iterations} iterations on {job.notes['device_name']}, backend {survey.backend} "
        f"({job.notes['backend_reason']})",
        flush=True,
    )


def run(options: argparse.Namespace) -> int:
    """Do the job; returns the exit status: 0, 2 for bad input, 130 if interrupted."""
    try:
        job = prepare(options)
        inversion = Inversion(job.true, job.initial, job.survey, job.device)
        if options.resume:
            inversion.restore(load(job.survey, job.folder, job.device))
        job.folder.mkdir(parents=True, exist_ok=True)
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    describe(job)
    threads = torch.get_num_threads()
    torch.set_flush_denormal(True)  # 1.3x on a CPU: fields decay into denormals ahead of the wave
    torch.set_num_threads(1)  # fields are so small that threads wait more than they save
    try:
        finished = inversion.run(job.folder)
        return conclude(job, inversion, finished)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


def conclude(job: Job, inversion: Inversion, finished: bool) -> int:
    """Write the results and say where they are."""
    from . import figure

    found = figure.write(inversion, job.folder, job.notes)
    done = found["iterations_done"]
    if not finished:
        print(f"\nInterrupted after {done} of {job.survey.iterations} iterations; what was done is")
        print("kept. Give the same options with --resume to go on.")
    if found["relative_model_error"] is not None:
        print(
            f"Model error {found['final_error_m_per_s']:.0f} m/s, "
            f"{100 * found['relative_model_error']:.0f} % of the initial one, "
            f"after {found['seconds']:.0f} s"
        )
    for name in (figure.PICTURE, figure.NUMBERS, figure.MODEL):
        print(f"Wrote {job.folder / name}")
    return 0 if finished else 130
