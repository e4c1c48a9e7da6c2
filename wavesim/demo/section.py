"""Velocity sections [z, x] in m/s: the synthetic one, the user's file, coarsening, smoothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..config import message, require

WATER = 1510.0
"""A top row at most this fast, m/s, is water."""
SMALLEST = 16
CPU_CELLS = 10_000
"""Largest model, cells, that is inverted on a CPU as it is."""


def faulted_section(seed: int, shape: tuple[int, int] = (60, 120)) -> np.ndarray:
    """Water, layers bent and cut by two faults, and a salt body: float32 [z, x], m/s.

    The same seed gives the same section; a number of cells changes only how finely it is drawn.

    >>> faulted_section(0).shape
    (60, 120)
    """
    rng = np.random.default_rng(seed)
    z = (np.arange(shape[0]) / shape[0])[:, None]
    x = (np.arange(shape[1]) / shape[1])[None, :]
    bend = 0.05 * np.sin(2 * np.pi * (x * rng.uniform(0.8, 1.4) + rng.uniform()))
    depth = z + bend + rng.uniform(-0.1, 0.1) * (x - 0.5)
    for place in (rng.uniform(0.15, 0.3), rng.uniform(0.7, 0.85)):
        dip, throw = rng.uniform(-0.2, 0.2), rng.choice([-1, 1]) * rng.uniform(0.05, 0.1)
        depth = depth + throw * (x > place + dip * z)
    tops = np.cumsum(rng.uniform(0.09, 0.17, 9))
    steps = np.resize([1, 0.2, 0.9, -0.35], 9) * rng.uniform(200, 320, 9)
    model = 1750.0 + sum(s * (depth > top) for s, top in zip(steps, tops, strict=True))
    centre = rng.uniform(0.42, 0.58)
    flank = np.abs(x - centre) / rng.uniform(0.15, 0.2)
    top = rng.uniform(0.3, 0.36) + 0.22 * flank**2 + 0.02 * np.sin(40 * x + rng.uniform(0, 6))
    base = rng.uniform(0.7, 0.78) - 0.12 * flank**2
    model = np.where((z > top) & (z < base), 3500.0, np.clip(model, 1600.0, 3200.0))
    return np.where(z < 0.08, 1500.0, model).astype(np.float32)


def load_section(path: str) -> np.ndarray:
    """The user's section, float32 [z, x], m/s; raises ValueError if it cannot be inverted."""
    form = "a .npy file holding a float array [z, x] of speeds in m/s"
    try:
        model = np.load(Path(path), allow_pickle=False)
    except FileNotFoundError:
        raise ValueError(message("--model", path, form, "No such file: check the path.")) from None
    except (OSError, ValueError, EOFError) as error:
        text = message("--model", path, form, f"Write it with numpy.save ({error}).")
        raise ValueError(text) from None
    require(isinstance(model, np.ndarray), "--model", type(model).__name__, form)
    floating = np.issubdtype(model.dtype, np.floating)
    remedy = "Convert it with .astype('float32')."
    require(floating, "--model", f"dtype {model.dtype}", form, remedy)
    check = model.ndim == 2 and min(model.shape) >= SMALLEST
    expected = f"two axes [z, x] of at least {SMALLEST} cells"
    require(check, "--model", f"shape {list(model.shape)}", expected, "Take a 2-D section.")
    bad = int(np.size(model) - np.isfinite(model).sum())
    require(bad == 0, "--model", f"{bad} non-finite values", "finite speeds", "Fill the gaps.")
    low, high = float(model.min()), float(model.max())
    ok = low >= 100 and high <= 20_000
    got = f"speeds from {low:g} to {high:g}"
    require(ok, "--model", got, "speeds of 100 to 20000 m/s", "Convert the units to m/s.")
    return np.ascontiguousarray(model, dtype=np.float32)


def coarsening(shape: tuple[int, int], limit: int = CPU_CELLS) -> int:
    """The smallest factor that leaves at most ``limit`` cells, and at least 16 along each axis.

    >>> coarsening((401, 1601))
    8
    """
    factor = 1
    while (shape[0] // factor) * (shape[1] // factor) > limit:
        factor += 1
    return max(1, min(factor, min(shape) // SMALLEST))


def coarsen(model: np.ndarray, factor: int) -> np.ndarray:
    """Mean slowness of blocks of factor x factor cells, as a speed; a partial block is dropped."""
    nz, nx = (n // factor for n in model.shape)
    blocks = model[: nz * factor, : nx * factor].reshape(nz, factor, nx, factor)
    slowness = (1 / blocks.astype(np.float64)).mean((1, 3))
    return (1 / slowness).astype(np.float32)


def water_mask(model: np.ndarray) -> np.ndarray:
    """Cells of the water layer: from the top down to the first faster cell of each column."""
    return np.logical_and.accumulate(model <= WATER, axis=0)


def gaussian(array: np.ndarray, sigma: float) -> np.ndarray:
    """Gaussian smoothing along both axes, edges repeated; sigma in cells."""
    reach = max(1, int(3 * sigma + 0.5))
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    taps /= taps.sum()
    out = array.astype(np.float64)
    for axis in (0, 1):
        wide = np.pad(out, [(reach, reach) if a == axis else (0, 0) for a in (0, 1)], mode="edge")
        out = np.apply_along_axis(np.convolve, axis, wide, taps, mode="valid")
    return out


def smoothed(model: np.ndarray, sigma: float) -> np.ndarray:
    """The initial model: slowness below the water smoothed by sigma cells; the water is kept."""
    water = water_mask(model)
    rows = np.maximum(np.arange(len(model))[:, None], water.sum(0)[None, :])
    rows = np.minimum(rows, len(model) - 1)
    filled = np.take_along_axis(model, rows, axis=0)  # the sea floor continued upwards
    smooth = 1 / gaussian(1 / filled, sigma)
    return np.where(water, model, smooth).astype(np.float32)
