"""What stays bounded: at the limit of the time step, over many steps, and with fluids and vacuum.

Runs start from random velocities with the same kinetic energy in every cell, stresses zero. The
leapfrog scheme keeps its energy, so at a fraction c of the stable step kinetic energy stays below
(1 + c) / (1 - c) times its first value: 199 at 0.99.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from physics.runs import noise, staggered, uniform
from torch import Tensor

from wavesim import PML, State, cfl, simulate
from wavesim.equations import REGISTRY
from wavesim.media import moduli, replicate
from wavesim.stencils import ORDERS, STAGGERED

SPEED, SPACING = 1500.0, (5.0, 6.5, 5.5)
CONTRAST = 1000.0


def stable_dt(equation: str, parameters: dict, spacing, order: int) -> float:
    """The largest by the equation's own speed, that of its density-weighted bound."""
    reach = order // 2
    wide = {k: replicate(x, ((reach, reach),) * len(spacing)) for k, x in parameters.items()}
    weights = tuple(abs(c) for c in STAGGERED[order])
    speed = REGISTRY[equation].speed(wide, spacing, weights).item()
    critical = cfl.critical_courant(order, collocated=False)
    return critical / cfl.courant_number(1.0, speed, spacing)


def density_above(rho: Tensor, axis: int) -> Tensor:
    """[.., model] half a cell up an axis, infinite where there is no half cell or no mass."""
    n = rho.shape[axis]
    mean = (rho.narrow(axis, 0, n - 1) + rho.narrow(axis, 1, n - 1)) / 2
    full = torch.cat([mean, torch.zeros_like(rho.narrow(axis, 0, 1))], axis)
    return torch.where(full == 0, torch.inf, full)


def kinetic(equation: str, parameters: dict, options: dict, counts: list[int]) -> Tensor:
    """Kinetic energy over its first value, [time, shot], after each count of further steps."""
    rho = parameters["rho"] if "rho" in parameters else 1 / parameters["buoyancy"]
    rho = torch.where(rho.isinf(), 0.0, rho)
    ndim = len(options["spacing"])
    box, batched = rho.shape[-ndim:], rho.ndim > ndim
    shots = rho.shape[0] if batched else 1
    names = [f"v{n}" for n in "zyx"[3 - ndim :]]
    mass = torch.stack([density_above(rho, a - ndim) for a in range(ndim)])
    state = State(
        {
            k: noise(shots, *box, seed=a) / m.sqrt()
            for a, (k, m) in enumerate(zip(names, mass, strict=True))
        }
    )
    weight = torch.where(mass.isinf(), 0.0, mass)
    low, found = options["width"], []

    def energy(fields) -> Tensor:
        inside = (slice(None), *(slice(low, low + n) for n in box))
        v = torch.stack([fields[k][inside] if low else fields[k] for k in names])
        return (weight * v.square().reshape(ndim, shots, *box)).sum((0, *range(2, 2 + ndim)))

    first = energy({k: torch.nn.functional.pad(x, [low] * 2 * ndim) for k, x in state.fields.items()})
    for n in counts:
        state = staggered(equation, parameters, nt=n, shots=shots, initial=state, **options).state
        found.append(energy(state.fields) / first)
        if not found[-1].max() < 1e30:
            break
    return torch.stack(found)


def one_step(equation: str, parameters: dict, spacing, order: int, dt: float, steps: int) -> float:
    """Largest kinetic energy of a run that takes exactly dt at a time, whatever its size."""
    options = {"spacing": spacing, "dt": dt, "order": order, "width": 0}
    options |= {"max_velocity": 1e-3, "validate": False}
    return kinetic(equation, parameters, options, [steps // 20] * 20).max().item()
