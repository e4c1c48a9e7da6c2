"""Other packages that solve a case: the same model, points, layers, order and steps.

An adapter turns an experiment into a call without arguments that returns the records in our
convention, [shot, receiver, time], still attached to the experiment's parameters.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import wavesim

from .cases import WIDTH, Case, Experiment

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Peer:
    """A package, by the name it is imported by, and how far it is the same as ours.

    dtypes: what it computes in; the check takes the last one. tolerance: largest RMS ratio of its
    records and gradients to ours in that type. options: arguments of ours that make the two equal.
    uniform: equations that are checked in a uniform medium, and whose gradients are compared by
    their sums. gradient_steps: after how many steps gradients are compared.
    """

    name: str
    distribution: str
    equations: tuple[str, ...]
    prepare: Callable[[Experiment], Call] = field(repr=False)
    tolerance: float
    dtypes: tuple[str, ...] = ("float32", "float64")
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    uniform: tuple[str, ...] = ()
    gradient_steps: int = 60

    @property
    def importable(self) -> bool:
        return importlib.util.find_spec(self.name) is not None

    def solves(self, case: Case) -> bool:
        return case.equation in self.equations and case.dtype in self.dtypes


def deepwave(experiment: Experiment) -> Call:
    """Deepwave 0.1: its equations and ours are the same."""
    package, case, medium = importlib.import_module("deepwave"), experiment.case, experiment.medium
    source = {"scalar": "", "acoustic": "_volume_rate", "elastic": "_pressure_rate"}[case.equation]
    receiver = "" if case.equation == "scalar" else "_p"
    solve = getattr(package, case.equation)
    options = {
        f"source_amplitudes{source}": experiment.amplitudes,
        f"source_locations{source}": experiment.source_cells,
        f"receiver_locations{receiver}": experiment.receiver_cells,
        "accuracy": case.order,
        "pml_width": WIDTH,
        "pml_freq": medium.frequency,
        "max_vel": medium.fastest,
        "backend": "compiled",
    }

    def call() -> Tensor:
        out = solve(*experiment.parameters.values(), medium.spacing, medium.dt, **options)
        return getattr(out, f"receiver_amplitudes{receiver}")

    return call


def tide(experiment: Experiment) -> Call:
    """TIDE 0.1: takes parameters from each field's own cell; has no native gradient of mu, so that
    its backward pass leaves it out."""
    package, case, medium = importlib.import_module("tide"), experiment.case, experiment.medium
    operator = package.MaxwellTM if case.equation == "maxwell_tm" else package.Maxwell3D
    solve = operator(
        package.Discretization(
            spacing=medium.spacing,
            dt=medium.dt,
            stencil=case.order,
            boundary=package.CPML(WIDTH),
            max_velocity=medium.fastest,
        ),
        package.Experiment(
            acquisition=package.Acquisition(experiment.source_cells, experiment.receiver_cells),
            source_amplitude=experiment.amplitudes,
        ),
        execution=package.ExecutionOptions(backend=package.BackendPreference.NATIVE),
    )

    def call() -> Tensor:
        epsilon, sigma, mu = experiment.parameters.values()
        return solve(package.EMModel(epsilon, sigma, mu.detach())).receiver_data.movedim(0, -1)

    return call


def sweep(experiment: Experiment) -> Call:
    """SWEEP 0.3, every step kept for the gradient; compiled on a GPU, eager on a CPU.

    It adds amplitudes to the field as they are, records after the step, orders axes [x, y, z], and
    takes elastic parameters from each field's own cell. Its layers differ a little from ours for
    scalar waves (another derivative of the profile), and its gradient omits what the layers would
    add to the cells at the model's edge.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # it imports jax if it is there
    case, medium, device = experiment.case, experiment.medium, torch.device(experiment.device)
    compiled, elastic = device.type == "cuda", case.equation == "elastic"
    kind = ("Elastic" if elastic else "Acoustic") + ("3D" if len(case.shape) == 3 else "")
    equation = getattr(importlib.import_module("sweep.equations"), kind)
    options = importlib.import_module("sweep.propagator.options")
    normal = ["sxx", "syy", "szz"] if len(case.shape) == 3 else ["sxx", "szz"]
    extra: dict[str, Any] = {"source_type": normal, "receiver_type": normal} if elastic else {}
    if not compiled:
        extra["eager_options"] = options.EagerOptions(use_compile=False)
    solve = importlib.import_module("sweep.propagator.torch").PropTorch(
        equation(spatial_order=case.order, device=experiment.device, backend="torch"),
        shape=case.shape,
        dh=medium.spacing,
        dt=medium.dt,
        device=torch.device("cuda", 0) if compiled else device,
        abcn=WIDTH,
        free_surface=False,
        impl="c" if compiled else "eager",
        memory=options.Full(),
        **extra,
    )
    got, expected = (solve.impl, solve.memory_strategy), ("c" if compiled else "eager", "full")
    if got != expected:
        raise RuntimeError(f"sweep: got {got} as its implementation, expected {expected}.")
    source, cell = experiment.amplitudes[:, 0], tuple(experiment.source_cells[0, 0].tolist())
    at = experiment.source_cells[:, 0].flip(-1).cpu().numpy()
    points = experiment.receiver_cells.flip(-1).cpu().numpy()
    limits = {"max_vel": medium.fastest, "pml_freq": medium.frequency}

    def call() -> Tensor:
        models = tuple(experiment.parameters.values())
        if elastic:
            models, amplitudes = wavesim.speeds(*models), -medium.dt * source
        else:
            amplitudes = -((medium.dt * models[0][cell]) ** 2) * source
        out = solve(amplitudes, at, points, models=list(models), **limits).movedim(1, -1)
        records = -out.mean(2) if elastic else out[:, :, 0]
        return torch.cat([torch.zeros_like(records[..., :1]), records[..., :-1]], -1)

    return call


PEERS = (
    Peer("deepwave", "deepwave", ("scalar", "acoustic", "elastic"), deepwave, 1e-12),
    Peer(
        "tide",
        "tide-gpr",
        ("maxwell_tm", "maxwell"),
        tide,
        1e-12,
        options={"averaging": "collocated"},
    ),
    Peer(
        "sweep",
        "sweep-solver",
        ("scalar", "elastic"),
        sweep,
        1e-3,
        dtypes=("float32",),
        uniform=("elastic",),
        gradient_steps=10,
    ),
)
