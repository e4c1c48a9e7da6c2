"""What is simulated: steps, wavelet, sources, receivers, frequency stages and mini-batches."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .. import cfl
from ..config import PML, Receivers, Sources, message, require
from ..report import Result
from ..simulate import scalar

POINTS = 5
"""Cells per shortest wavelength: the slowest speed at twice the highest peak frequency."""
SMOOTH_WAVE = 6
"""Wavelength of the lowest peak frequency, in standard deviations of the initial smoothing."""
ROW = 1
WIDTH = 12
BATCH = 4
MEMORY_SHARE = 0.4
BAND = 5


@dataclass(frozen=True)
class Survey:
    """Settings of a run; all derived from the model and the options, all plain numbers.

    spacing, m; dt, s; nt samples; bounds of the speed, m/s; peaks of the Ricker wavelet of every
    stage, Hz, rising; step of the first iteration as a part of the range between the bounds;
    epsilon of Adam, for gradients whose largest entry is 1: cells with smaller ones move less;
    every ``receiver_step``-th cell of the surface holds a receiver.
    """

    shape: tuple[int, int]
    spacing: float
    dt: float
    nt: int
    bounds: tuple[float, float]
    peaks: tuple[float, ...]
    shots: int
    batch: int
    iterations: int
    step: float
    epsilon: float
    receiver_step: int
    seed: int
    device: str
    backend: str
    model_hash: str

    @property
    def delay(self) -> float:
        """Time of the wavelet's peak, s."""
        return 1 / self.peaks[-1]

    @property
    def columns(self) -> list[int]:
        """Cell of every source along x."""
        n, width = self.shots, self.shape[1]
        return [int((k + 0.5) * width / n) for k in range(n)]

    def stage(self, iteration: int) -> int:
        return iteration * len(self.peaks) // self.iterations

    def shots_of(self, iteration: int) -> list[int]:
        """Shots of a mini-batch: spread over the line, in an order drawn from the seed."""
        batches = math.ceil(self.shots / self.batch)
        epoch, place = divmod(iteration, batches)
        order = np.random.default_rng([self.seed, epoch]).permutation(batches)
        return list(range(int(order[place]), self.shots, batches))


def history_bytes(nt: int, shape: tuple[int, int]) -> int:
    """One float for each step and cell of the padded model, for one shot."""
    return 4 * nt * (shape[0] + 2 * WIDTH) * (shape[1] + 2 * WIDTH)


def batch_size(shots: int, each: int, device: torch.device) -> int:
    """Shots a gradient can take: at most 4, within 40 % of a GPU's memory at ``each`` bytes."""
    if device.type != "cuda":
        return min(BATCH, shots)
    total = torch.cuda.get_device_properties(device).total_memory
    fits = int(MEMORY_SHARE * total) // each
    if fits < 1:
        got, expected = f"{each / 2**30:.1f} GiB a shot", f"{MEMORY_SHARE * total / 2**30:.1f} GiB"
        text = message("--model", got, f"at most {expected}", "Coarsen or shorten the model.")
        raise ValueError(text)
    return min(BATCH, shots, fits)


def stage_peaks(
    model: np.ndarray, initial: np.ndarray, spacing: float, smoothing: float
) -> tuple[float, ...]:
    """Peak frequencies, Hz, at most a factor of 1.5 apart.

    The highest leaves ``POINTS`` cells in the shortest wavelength. The lowest has a wavelength of
    ``SMOOTH_WAVE`` times ``smoothing``, the standard deviation of the initial model's smoothing,
    m: the initial model is right at longer ones. It is at most half of the highest, and that at
    most ``BAND`` times the lowest: finer detail takes more iterations.
    """
    grid = float(model.min()) / (2 * POINTS * spacing)
    mean = 1 / float(np.mean(1 / initial))
    lowest = min(0.5 * grid, mean / (SMOOTH_WAVE * smoothing))
    highest = min(grid, BAND * lowest)
    count = 1 + math.ceil(math.log(highest / lowest) / math.log(1.5))
    return tuple(lowest * (highest / lowest) ** (k / (count - 1)) for k in range(count))


def plan_survey(
    model: np.ndarray,
    initial: np.ndarray,
    spacing: float,
    smoothing: float,
    *,
    device: torch.device,
    backend: str,
    iterations: int,
    step: float,
    epsilon: float,
    shots: int,
    seed: int,
) -> Survey:
    """Choose everything that the model decides.

    model, initial: [z, x], m/s; spacing, m; smoothing: standard deviation by which the initial
    model is smoothed, m.
    """
    most = model.shape[1]
    require(1 <= shots <= most, "--shots", shots, f"1 to {most}, one a column of the model")
    peaks = stage_peaks(model, initial, spacing, smoothing)
    bounds = 0.95 * float(model.min()), 1.03 * float(model.max())
    dt = 0.99 * cfl.largest_stable_dt(bounds[1], [spacing] * 2)
    mean = 1 / float(np.mean(1 / initial))
    seconds = 1 / peaks[-1] + 2.5 * model.shape[0] * spacing / mean
    nt = math.ceil(seconds / dt)
    digest = hashlib.sha256(model.tobytes() + initial.tobytes()).hexdigest()
    return Survey(
        shape=(model.shape[0], model.shape[1]),
        spacing=spacing,
        dt=dt,
        nt=nt,
        bounds=bounds,
        peaks=peaks,
        shots=shots,
        batch=batch_size(shots, history_bytes(nt, model.shape), device),
        iterations=iterations,
        step=step,
        epsilon=epsilon,
        receiver_step=2,
        seed=seed,
        device=device.type,
        backend=backend,
        model_hash=digest,
    )


def ricker(survey: Survey) -> Tensor:
    """Ricker wavelet of the highest stage, float32 [time]."""
    time = torch.arange(survey.nt, dtype=torch.float64) * survey.dt - survey.delay
    square = (math.pi * survey.peaks[-1] * time) ** 2
    return ((1 - 2 * square) * torch.exp(-square)).float()


def to_stage(records: Tensor, survey: Survey, stage: int) -> Tensor:
    """Records [shot, receiver, time] as if shot with the stage's wavelet.

    A Ricker wavelet of peak F has the spectrum ``f^2 exp(-(f/F)^2)``, so the Gaussian
    ``exp(-f^2 (1/F^2 - 1/H^2))`` turns one of peak H into one of peak F, up to a factor.
    """
    low, high = survey.peaks[stage], survey.peaks[-1]
    if low == high:
        return records
    n = 2 * survey.nt
    f = torch.fft.rfftfreq(n, survey.dt, device=records.device, dtype=records.dtype)
    weight = torch.exp(-(f**2) * (low**-2 - high**-2))
    return torch.fft.irfft(torch.fft.rfft(records, n) * weight, n)[..., : survey.nt]


def shoot(model: Tensor, survey: Survey, shots: list[int]) -> Result:
    """Simulate some shots: records [shot, receiver, time] of pressure along the surface."""
    device = model.device
    columns = survey.columns
    at = torch.tensor([[[ROW, columns[s]]] for s in shots], device=device)
    across = torch.arange(0, survey.shape[1], survey.receiver_step, device=device)
    points = torch.stack([torch.full_like(across, ROW), across], -1)
    wavelet = ricker(survey).to(device)
    return scalar(
        model,
        spacing=survey.spacing,
        dt=survey.dt,
        sources=Sources(wavelet.expand(len(shots), 1, -1), at),
        receivers=Receivers(points.expand(len(shots), -1, -1)),
        boundary=PML(width=WIDTH, frequency=survey.peaks[-1]),
        max_velocity=survey.bounds[1],
        backend=survey.backend,
    )
