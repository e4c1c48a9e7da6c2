"""Small heterogeneous experiments on every registered equation, shared by the adjoint tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from wavesim import PML, History, Receivers, Sources, State, simulate
from wavesim.cfl import largest_stable_dt
from wavesim.equations import REGISTRY
from wavesim.stencils import ORDERS

BACKENDS = ["eager"] + (["triton"] if torch.cuda.is_available() else [])
DEVICE = {"eager": "cpu", "triton": "cuda"}
FREQUENCY = 25.0
SPACING = (5.0, 6.5, 5.5)


@dataclass(frozen=True)
class Medium:
    """Lowest and highest value of each parameter, a speed that stays above the model's bound, and
    the length that `SPACING` is in, m."""

    ranges: Mapping[str, tuple[float, float]]
    max_velocity: float
    unit: float = 1.0


ELECTRIC = Medium(
    {"epsilon": (400.0, 1800.0), "sigma": (1.0, 20.0), "mu": (0.004, 0.01)},
    max_velocity=2.4e8,
    unit=4e-3,
)
MEDIA = {  # of impedances near 1, so that no field drowns another in rounding errors
    "scalar": Medium({"v": (1000.0, 2500.0)}, max_velocity=2800.0),
    "acoustic": Medium({"v": (1000.0, 2500.0), "rho": (1e-3, 2.5e-3)}, max_velocity=4200.0),
    "elastic": Medium(
        {"lamb": (2e3, 9e3), "mu": (1e3, 4e3), "buoyancy": (400.0, 1000.0)}, max_velocity=4800.0
    ),
    "maxwell_tm": ELECTRIC,
    "maxwell": ELECTRIC,
}

Widths = tuple[tuple[int, int], ...]
BOXES: dict[int, tuple[tuple[int, ...], Widths]] = {
    1: ((17,), ((5, 4),)),
    2: ((7, 9), ((4, 3), (3, 5))),
    3: ((4, 5, 6), ((2, 3), (3, 2), (4, 2))),
}
ODD_BOXES: tuple[tuple[tuple[int, ...], Widths], ...] = (
    ((1,), ((2, 3),)),
    ((3,), ((0, 1),)),
    ((1, 7), ((1, 0), (0, 3))),
    ((13, 2), ((0, 0), (1, 1))),
    ((2, 1, 5), ((1, 1), (0, 2), (2, 0))),
)
"""One cell thick, smaller than the stencil, layers narrower than the stencil or of width 0."""

CASES = [(e, n, p) for e in sorted(REGISTRY) for n in REGISTRY[e].dimensions for p in ORDERS]
LOWEST = [(e, n, 4) for e in sorted(REGISTRY) for n in REGISTRY[e].dimensions]


def case_id(case: tuple[str, int, int]) -> str:
    return f"{case[0]}-{case[1]}d-order{case[2]}"


def uniform(shape, low: float, high: float, rng: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(tuple(shape), generator=rng, dtype=torch.float64)


def normal(shape, rng: torch.Generator) -> Tensor:
    return torch.randn(tuple(shape), generator=rng, dtype=torch.float64)


def source_cells(model: tuple[int, ...], half: tuple[int, ...]) -> Tensor:
    """[2 shots, 3, axis]: both outermost corners and the middle; two in one cell in shot 1."""
    low = [0] * len(model)
    high = [max(0, n - 1 - h) for n, h in zip(model, half, strict=True)]
    mid = [n // 2 for n in high]
    return torch.tensor([[low, mid, high], [mid, high, mid]])


def receiver_cells(model: tuple[int, ...], half: tuple[int, ...]) -> Tensor:
    """[2 shots, 4, axis]: the source cells, and one cell beside the upper edge."""
    cells = source_cells(model, half)
    beside = torch.tensor([[max(0, n - 2 - h) for n, h in zip(model, half, strict=True)]])
    return torch.cat([cells, beside.expand(2, 1, len(model))], 1)


@dataclass(frozen=True)
class Experiment:
    """Inputs and settings of a run; ``inputs`` are its linear ones by name."""

    equation: str
    backend: str
    parameters: dict[str, Tensor]
    inputs: dict[str, Tensor]
    sources: dict[str, Tensor]
    receivers: dict[str, Tensor]
    options: dict = field(default_factory=dict)

    def run(self, parameters=None, inputs=None, segments: int | None = None) -> dict[str, Tensor]:
        """Everything a run returns: records, final fields and boundary memory by name."""
        inputs = {**self.inputs, **(inputs or {})}
        memory = [v for k, v in inputs.items() if k.startswith("memory")]
        out = simulate(
            self.equation,
            {**self.parameters, **(parameters or {})},
            sources={k: Sources(inputs[f"source {k}"], at) for k, at in self.sources.items()},
            receivers={k: Receivers(at) for k, at in self.receivers.items()},
            initial=State(
                {k.split()[1]: v for k, v in inputs.items() if k.startswith("field")},
                tuple(memory),
            ),
            backend=self.backend,
            history=History(segments),
            **self.options,
        )
        found = {f"record {k}": v for k, v in out.receivers.items()}
        found |= {f"field {k}": v for k, v in out.state.fields.items()}
        return found | {f"memory {i}": m for i, m in enumerate(out.state.memory)}

    def leaves(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """(parameters, inputs) as leaves that require gradients."""
        return tuple(  # type: ignore[return-value]
            {k: v.clone().requires_grad_() for k, v in d.items()}
            for d in (self.parameters, self.inputs)
        )

    def weights(self, seed: int = 7) -> dict[str, Tensor]:
        """A random cotangent of every output."""
        rng = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            return {k: normal(v.shape, rng).to(v.device) for k, v in self.run().items()}

    def gradients(self, loss_of, **how) -> dict[str, Tensor]:
        """Gradient of ``loss_of(outputs)`` with respect to every parameter and input by name."""
        parameters, inputs = self.leaves()
        loss = loss_of(self.run(parameters, inputs, **how))
        leaves = {**parameters, **inputs}
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        zeros = [torch.zeros_like(v) for v in leaves.values()]
        return {k: z if g is None else g for k, g, z in zip(leaves, found, zeros, strict=True)}


def without_last(value: Tensor, half: tuple[int, ...]) -> Tensor:
    """A field or memory [shot, box] without the last index of its half-cell axes."""
    for dim, offset in enumerate(half, 1):
        value = value.narrow(dim, 0, value.shape[dim] - offset)
    return value


def live_part(e: Experiment, ndim: int, name: str, value: Tensor) -> Tensor:
    """What of an input can matter: N nodes have N - 1 half cells."""
    system = REGISTRY[e.equation].build(ndim)
    kind, _, rest = name.partition(" ")
    if kind == "field":
        return without_last(value, system.half[system.fields.index(rest)])
    if kind == "memory" and not system.collocated:
        targets = [s.targets[d.group] for s in system.stages for d in s.derivatives]
        axes = [d.axis for d in system.derivatives]
        half, axis = system.half[targets[int(rest)]], axes[int(rest)]
        return without_last(value, tuple(h * (a != axis) for a, h in enumerate(half)))
    return value


def dot(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([(a[k] * b[k]).sum() for k in b]).sum()


def make(
    equation: str,
    ndim: int,
    order: int,
    backend: str,
    *,
    ratio: int = 1,
    nt: int = 10,
    box: tuple[tuple[int, ...], Widths] | None = None,
    per_shot: bool = False,
) -> Experiment:
    """Two shots on a random model of contrast > 2 that ends on its edges, all inputs random."""
    model, widths = box or BOXES[ndim]
    medium, device, rng = MEDIA[equation], DEVICE[backend], torch.Generator().manual_seed(order)
    spacing = tuple(h * medium.unit for h in SPACING[:ndim])
    parameters = {}
    for name, (low, high) in medium.ranges.items():
        value = uniform((2, *model) if per_shot else model, low, high, rng)
        value.view(-1)[0], value.view(-1)[-1] = high, low
        parameters[name] = value.to(device)
    system = REGISTRY[equation].build(ndim)
    sources, receivers = {}, {}
    for name, entries in system.sources.items():
        half = system.offset(tuple(e.field for e in entries))
        if all(n > h for n, h in zip(model, half, strict=True)):
            sources[name] = source_cells(model, half)
    for name, terms in system.receivers.items():
        half = system.offset(tuple(f for f, _ in terms))
        if all(n > h for n, h in zip(model, half, strict=True)):
            receivers[name] = receiver_cells(model, half)
    options = {
        "spacing": spacing,
        "dt": (ratio - 0.2) * largest_stable_dt(medium.max_velocity, spacing),
        "boundary": PML(width=widths, frequency=FREQUENCY),
        "order": order,
        "max_velocity": medium.max_velocity,
        "nt": nt,
    }
    seen = {k: Receivers(at.to(device)) for k, at in receivers.items()}
    once = simulate(equation, parameters, receivers=seen, backend=backend, **{**options, "nt": 1})
    assert once.report.step_ratio == ratio
    shape = tuple(n + low + high for n, (low, high) in zip(model, widths, strict=True))
    inputs = {f"source {k}": normal((*at.shape[:2], nt), rng) for k, at in sources.items()}
    inputs |= {f"field {k}": normal((2, *shape), rng) for k in system.fields}
    for i, m in enumerate(once.state.memory):
        inputs[f"memory {i}"] = normal((2, *m.shape[1:]), rng)
    return Experiment(
        equation,
        backend,
        parameters,
        {k: v.to(device) for k, v in inputs.items()},
        {k: v.to(device) for k, v in sources.items()},
        {k: v.to(device) for k, v in receivers.items()},
        options,
    )
