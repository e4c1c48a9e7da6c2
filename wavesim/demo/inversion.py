"""The inversion: Adam on the speed of every cell, one mini-batch of shots an iteration."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ..config import message
from .section import water_mask
from .survey import Survey, shoot, to_stage

CHECKPOINT = "checkpoint.pt"
EVERY = 5
"""Iterations between checkpoints."""
SMOOTHING = 1 / 40
"""Standard deviation of the gradient's smoothing, in wavelengths of the stage."""


@dataclass
class Progress:
    """What an inversion has done so far: enough to draw it, and to go on."""

    model: Tensor
    optimiser: dict[str, Any]
    losses: list[float] = field(default_factory=list)
    gradient: Tensor | None = None
    seconds: float = 0.0
    peak_bytes: int = 0


def save(progress: Progress, survey: Survey, folder: Path) -> None:
    """Write the checkpoint; a crash leaves the old one or the new one, never a part."""
    target, part = folder / CHECKPOINT, folder / (CHECKPOINT + ".part")
    torch.save({"settings": plain(survey), "progress": vars(progress)}, part)
    os.replace(part, target)


def plain(survey: Survey) -> dict[str, Any]:
    """Settings as JSON holds them: lists for tuples."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(survey).items()}


def load(survey: Survey, folder: Path, device: torch.device) -> Progress:
    """Read a checkpoint; ValueError if there is none or it was made with other settings."""
    path = folder / CHECKPOINT
    if not path.exists():
        remedy = "Give the --output of an earlier run, or leave --resume out."
        raise ValueError(message("--resume", f"no {path}", "a checkpoint", remedy))
    stored = torch.load(path, map_location=device, weights_only=True)
    old, new = stored["settings"], plain(survey)
    different = [k for k in new if old.get(k) != new[k]]
    if different:
        got = ", ".join(f"{k} = {new[k]}" for k in different)
        expected = ", ".join(f"{k} = {old.get(k)}" for k in different) + ", as in the checkpoint"
        remedy = "Give the same options and model, or leave --resume out to start anew."
        raise ValueError(message("--resume", got, expected, remedy))
    return Progress(**stored["progress"])


def smooth(values: Tensor, sigma: float) -> Tensor:
    """Gaussian smoothing of [z, x] along both axes, edges repeated; sigma in cells."""
    reach = max(1, min(int(3 * sigma + 0.5), min(values.shape) - 1))
    taps = torch.arange(-reach, reach + 1, device=values.device, dtype=values.dtype)
    taps = torch.exp(-0.5 * (taps / sigma) ** 2)
    taps = taps / taps.sum()
    out = values[None, None]
    for shape, pad in (((-1, 1), (0, 0, reach, reach)), ((1, -1), (reach, reach, 0, 0))):
        out = torch.nn.functional.pad(out, pad, mode="replicate")
        out = torch.nn.functional.conv2d(out, taps.reshape(1, 1, *shape))
    return out[0, 0]


class Inversion:
    """Full-waveform inversion of a section; `advance` does one iteration.

    true, initial: speeds [z, x], float32, m/s. The true model is used only to make the data.
    """

    def __init__(self, true: np.ndarray, initial: np.ndarray, survey: Survey, device) -> None:
        self.survey, self.device = survey, torch.device(device)
        self.true = torch.from_numpy(true).to(self.device)
        self.initial = torch.from_numpy(initial).to(self.device)
        self.free = ~torch.from_numpy(water_mask(true)).to(self.device)
        self.weight = self.free.to(self.true.dtype)
        if bool(self.free[0].any()):  # no water: keep the sources' own cells from dominating
            ramp = torch.arange(len(true), device=self.device) / 4
            self.weight *= ramp.clamp(0, 1)[:, None]
        depth = torch.linspace(0, 1, len(true), device=self.device)[:, None]
        self.weight = self.weight * (0.05 + depth)  # spreading
        self.model = self.initial.clone().requires_grad_()
        eps = survey.epsilon
        self.optimiser = torch.optim.Adam([self.model], lr=1.0, betas=(0.8, 0.95), eps=eps)
        self.observed: Tensor | None = None
        self.progress = Progress(detached(self.initial), self.optimiser.state_dict())
        self.report: dict[str, Any] = {}

    def restore(self, progress: Progress) -> None:
        """Go on from where ``progress`` ends."""
        self.progress = progress
        with torch.no_grad():
            self.model.copy_(progress.model)
        self.optimiser.load_state_dict(copy.deepcopy(progress.optimiser))

    def records(self, model: Tensor, shots: list[int]) -> Tensor:
        """Records of the highest stage without a gradient."""
        with torch.no_grad():
            return shoot(model, self.survey, shots).receivers  # type: ignore[return-value]

    def observe(self) -> None:
        """Make the data: every shot over the true model, [shot, receiver, time]."""
        count, size = self.survey.shots, self.survey.batch
        parts = [list(range(k, min(k + size, count))) for k in range(0, count, size)]
        self.observed = torch.cat([self.records(self.true, p) for p in parts])

    def loss(self, model: Tensor, shots: list[int], stage: int) -> Tensor:
        """Misfit energy of some shots over their data's energy, dimensionless.

        Both are weighted by time: reflections come late and are weak beside the direct wave.
        """
        assert self.observed is not None
        result = shoot(model, self.survey, shots)
        self.report = asdict(result.report)
        gain = torch.linspace(0, 1, self.survey.nt, device=self.device)
        data = to_stage(self.observed[shots], self.survey, stage)
        misfit = to_stage(result.receivers, self.survey, stage) - data  # type: ignore[arg-type]
        return (gain * misfit).square().sum() / (gain * data).square().sum()

    def advance(self) -> float:
        """One iteration: gradient of a mini-batch, preconditioned; Adam; bounds. The loss."""
        survey, begin = self.survey, time.perf_counter()
        number = len(self.progress.losses)
        stage = survey.stage(number)
        loss = self.loss(self.model, survey.shots_of(number), stage)
        (gradient,) = torch.autograd.grad(loss, self.model)
        first = gradient.clone() if number == 0 else self.progress.gradient
        wavelength = float(self.initial.mean()) / survey.peaks[stage] / survey.spacing
        gradient = smooth(gradient * self.weight, wavelength * SMOOTHING) * self.free
        self.model.grad = gradient / gradient.abs().max().clamp_min(1e-30)
        reach = survey.bounds[1] - survey.bounds[0]
        decay = 0.5 * (1 + math.cos(math.pi * number / survey.iterations))
        self.optimiser.param_groups[0]["lr"] = survey.step * reach * (0.3 + 0.7 * decay)
        self.optimiser.step()
        with torch.no_grad():
            self.model.clamp_(*survey.bounds)
            self.model.copy_(torch.where(self.free, self.model, self.initial))
        value = float(loss.detach())  # waits for the device, so that the seconds are true
        old = self.progress
        memory = 0
        if self.device.type == "cuda":
            memory = torch.cuda.max_memory_allocated(self.device)
        self.progress = Progress(  # whole or not at all: an interrupt leaves the previous one
            detached(self.model),
            copy.deepcopy(self.optimiser.state_dict()),
            [*old.losses, value],
            first,
            old.seconds + time.perf_counter() - begin,
            max(old.peak_bytes, memory),
        )
        return value

    def run(self, folder: Path, *, after: Callable[[int], None] | None = None) -> bool:
        """Iterate to the end, with a progress bar and checkpoints; False if interrupted.

        after: called with the number of iterations done, after each of them.
        """
        survey, done = self.survey, len(self.progress.losses)
        try:
            if self.observed is None:
                self.observe()
            with tqdm(total=survey.iterations, initial=done, unit="iteration") as bar:
                for number in range(done, survey.iterations):
                    bar.set_description(f"{survey.peaks[survey.stage(number)]:.1f} Hz")
                    bar.set_postfix(loss=f"{self.advance():.4f}")
                    bar.update()
                    if (number + 1) % EVERY == 0 or number + 1 == survey.iterations:
                        save(self.progress, survey, folder)
                    if after is not None:
                        after(number + 1)
        except KeyboardInterrupt:
            save(self.progress, survey, folder)
            return False
        return True

    def error(self, model: Tensor) -> float:
        """RMS of model - true outside the water, m/s."""
        return float((model - self.true)[self.free].double().square().mean().sqrt())


def detached(model: Tensor) -> Tensor:
    return model.detach().clone()
