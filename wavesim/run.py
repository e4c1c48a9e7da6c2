"""A call from its options to its result: check once, plan, propagate, wrap."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import Any, Required, TypedDict, TypeVar

import torch
from torch import Tensor

from . import cfl
from .check import Call, Geometry, check_shapes, needs_frequency
from .config import (
    PML,
    History,
    Receivers,
    Resampling,
    Sources,
    State,
    message,
    require,
)
from .cpml import Damping
from .device import choose_backend, interpreting
from .equations import Equation
from .media import Fold, folded, replicate
from .plan import Plan
from .points import at_cells, box_cells
from .reference import loop
from .report import Report, Result
from .resample import downsample, upsample
from .tuning import Task, Tuned
from .values import Facts, Find, check_values, extremes

KINDS = {"boundary": PML, "resampling": Resampling, "history": History, "initial": State}
RATIO_WARNING = 8
T = TypeVar("T")


class Options(TypedDict, total=False):
    """The keyword arguments of every equation, explained in `scalar`."""

    spacing: Required[float | Sequence[float]]
    dt: Required[float]
    sources: Sources | Mapping[str, Sources] | None
    receivers: Receivers | Mapping[str, Receivers] | None
    boundary: PML
    order: int
    nt: int | None
    initial: State | None
    max_velocity: float | None
    substeps: bool
    resampling: Resampling
    backend: str
    history: History
    validate: bool
    autotune: bool | str


DEFAULTS = {
    "sources": None,
    "receivers": None,
    "boundary": PML(),
    "order": 4,
    "nt": None,
    "initial": None,
    "max_velocity": None,
    "substeps": True,
    "resampling": Resampling(),
    "backend": "auto",
    "history": History(),
    "validate": True,
    "autotune": "cached",
}


def _by_channel(value: T | Mapping[str, T] | None, kind: type, name: str, channel: str):
    """Channel to object, and whether the user gave a mapping."""
    if value is None:
        return {}, False
    mapped = isinstance(value, Mapping)
    found = dict(value) if isinstance(value, Mapping) else {channel: value}
    for key, item in found.items():
        if not isinstance(item, kind):
            label = f"{name}[{key!r}]" if mapped else name
            raise TypeError(message(label, type(item).__name__, f"a wavesim.{kind.__name__}"))
    return found, mapped


def run(spec: Equation, parameters: Mapping[str, Tensor], options: Options) -> Result:
    """What every public function does: check the options' kinds, run, wrap."""
    call, mapped = _call(spec, parameters, options)
    records, final, report, offsets = _run(call)
    if not call.receivers:
        return Result(None, report, {}, final)
    found = records if mapped else next(iter(records.values()))
    return Result(found, report, offsets, final)


def _call(spec: Equation, parameters: Mapping[str, Tensor], options: Options) -> tuple[Call, bool]:
    """The call, its options' kinds checked, and whether receivers came as a mapping."""
    unknown = sorted(set(options) - set(Options.__annotations__))
    if unknown:
        raise TypeError(message("options", unknown, f"some of {sorted(Options.__annotations__)}"))
    for name in sorted(Options.__required_keys__):
        if name not in options:
            raise TypeError(message(name, "nothing", "a value", f"Give {name}=..."))
    settings: dict[str, Any] = {**DEFAULTS, **options}
    sources, receivers = settings.pop("sources"), settings.pop("receivers")
    by_channel, _ = _by_channel(sources, Sources, "sources", spec.default_channel)
    recording, mapped = _by_channel(receivers, Receivers, "receivers", spec.default_channel)
    for name, kind in KINDS.items():
        value = settings[name]
        if not isinstance(value, kind) and not (value is None and name == "initial"):
            raise TypeError(message(name, type(value).__name__, f"a wavesim.{kind.__name__}"))
    spacing, dt = settings.pop("spacing"), settings.pop("dt")
    single = isinstance(spacing, Real)
    call = Call(
        equation=spec,
        parameters=dict(parameters),
        spacing=tuple(float(h) for h in ((spacing,) if single else spacing)),
        spacing_per_axis=not single,
        dt=float(dt),
        sources=by_channel,
        receivers=recording,
        **settings,
    )
    return call, mapped


def _plan(call: Call, geometry: Geometry, facts: Facts) -> Plan:
    ratio = cfl.step_ratio(call.dt, facts.max_velocity, geometry.spacing)
    if ratio > 1 and not call.substeps:
        remedy = "Reduce dt, or allow substeps=True."
        expected = f"at most {_largest(facts, geometry):.6g} s without substeps"
        raise ValueError(message("dt", call.dt, expected, remedy))
    if ratio >= RATIO_WARNING:
        text = f"dt = {call.dt} s takes {ratio} internal steps each; "
        text += f"{_largest(facts, geometry):.3g} s would take one."
        warnings.warn(text, stacklevel=5)
    if call.initial is not None and call.initial.ratio not in (None, ratio):
        got, expected = f"a step ratio of {call.initial.ratio}", f"{ratio}, the ratio of this call"
        raise ValueError(message("initial", got, expected, "Give max_velocity to keep it fixed."))
    if facts.frequency is None and needs_frequency(call, geometry):
        text = "PML.frequency cannot be inferred from the sources; the layers take 0 Hz, which "
        text += "absorbs low frequencies less well. Give PML(frequency=...)."
        warnings.warn(text, stacklevel=5)
    return _planned(
        call.equation, geometry, facts, call.boundary, call.order, ratio, call.dt / ratio
    )


def _largest(facts: Facts, geometry: Geometry) -> float:
    """The largest dt that takes one step, s."""
    return cfl.largest_stable_dt(facts.max_velocity, geometry.spacing)


@lru_cache(maxsize=64)
def _planned(
    equation: Equation,
    geometry: Geometry,
    facts: Facts,
    boundary: PML,
    order: int,
    ratio: int,
    dt: float,
) -> Plan:
    """The same object for calls that are alike: it knows its derived facts from the first one on.
    dt is the internal step."""
    return Plan(
        equation=equation,
        model=geometry.model,
        widths=geometry.widths,
        spacing=geometry.spacing,
        order=order,
        steps=geometry.nt * ratio,
        ratio=ratio,
        dt=dt,
        shots=geometry.shots,
        dtype=str(geometry.dtype).removeprefix("torch."),
        damping=_damping(equation, boundary, facts, len(geometry.model)),
    )


def _damping(equation: Equation, boundary: PML, facts: Facts, ndim: int):
    """Every face's layer: the user's settings, else the equation's."""
    layer = equation.layer
    alpha = layer.alpha_max
    if alpha is None or facts.frequency is not None:
        alpha = math.pi * (facts.frequency or 0.0)
    defaults = {
        "reflection": layer.reflection,
        "power": layer.power,
        "kappa_max": layer.kappa_max,
        "alpha_max": alpha,
    }
    by_face = {k: boundary.faces(k, ndim, default) for k, default in defaults.items()}
    return tuple(
        tuple(
            Damping(
                max_velocity=facts.max_velocity,
                alpha_min=min(layer.alpha_min, by_face["alpha_max"][axis][side]),
                rate=layer.rate,
                guard=layer.guard,
                floor=layer.floor,
                **{k: values[axis][side] for k, values in by_face.items()},
            )
            for side in (0, 1)
        )
        for axis in range(ndim)
    )


def _initial_fields(call: Call, plan: Plan) -> tuple[Tensor | None, ...]:
    """[shot, box] of every field, None where it is zero."""
    names = plan.system.fields
    if call.initial is None:
        return (None,) * len(names)
    given = call.initial.fields
    unknown = [k for k in given if k not in names]
    require(not unknown, "initial.fields", unknown, f"some of {list(names)}")
    box, model = (plan.shots, *plan.box), (plan.shots, *plan.model)
    out: list[Tensor | None] = []
    for name, half in zip(names, plan.system.half, strict=True):
        value = given.get(name)
        if value is None:
            out.append(None)
            continue
        label, got = f"initial.fields[{name!r}]", f"shape {list(value.shape)}"
        shapes = f"{list(box)} (with the layers) or {list(model)} (the model)"
        require(tuple(value.shape) in (box, model), label, got, shapes)
        if tuple(value.shape) != box:
            pad = [n for pair in reversed(plan.widths) for n in pair]
            value = torch.nn.functional.pad(value, pad)
        out.append(_without_last(value, half))
    return tuple(out)


def _without_last(value: Tensor, half: tuple[int, ...]) -> Tensor:
    """Zero at the last index of a field's half-cell axes: N nodes have N - 1 half cells."""
    for dim, offset in enumerate(half, 1):
        if offset:
            inner = value.narrow(dim, 0, value.shape[dim] - 1)
            value = torch.cat([inner, torch.zeros_like(value.narrow(dim, 0, 1))], dim)
    return value


def _initial_memory(call: Call, plan: Plan) -> tuple[Tensor | None, ...]:
    """Of every boundary memory, None where it is zero."""
    given = call.initial.memory if call.initial is not None else ()
    if not given:
        return (None,) * len(plan.memories)
    shapes = [plan.memory_shape(axis) for axis, _ in plan.memories]
    got = [list(m.shape) for m in given]
    require(got == [list(s) for s in shapes], "initial.memory", f"shapes {got}", f"{shapes}")
    return tuple(given)


def _cells(call: Call, plan: Plan, backend: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """By channel the flat box indices [shot, point] of the sources and of the receivers."""
    locations = [s.locations for s in call.sources.values()]
    locations += [r.locations for r in call.receivers.values()]
    if backend == "triton":
        from .triton_kernels.lists import flat_cells

        found = flat_cells(plan, locations)
    else:
        found = [box_cells(at, plan.widths, plan.box) for at in locations]
    split = len(call.sources)
    return (
        dict(zip(call.sources, found[:split], strict=True)),
        dict(zip(call.receivers, found[split:], strict=True)),
    )


def _amplitudes(
    call: Call, plan: Plan, coefs: tuple[Tensor, ...], at: dict[str, Tensor], nowhere: Tensor
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(cells, amplitudes as they enter a field) of every injection of the equation; nowhere: cells
    of no points."""
    cells, amplitudes = [], []
    for name, channel in plan.system.sources.items():
        given = call.sources.get(name)
        if given is None:
            cells += [nowhere] * len(channel)
            amplitudes += [coefs[0].new_empty(plan.shots, 0, plan.steps)] * len(channel)
            continue
        fine = upsample(
            given.amplitudes,
            plan.ratio,
            taper=call.resampling.taper,
            padding=call.resampling.padding,
        )
        for entry in channel:
            factor = entry.factor / (math.prod(plan.spacing) if entry.per_volume else 1.0)
            if entry.coefficient is None:
                weighted = factor * plan.dt * fine
            else:  # neither backend reads the amplitudes of unused slots
                weighted = (factor * at_cells(coefs[entry.coefficient], at[name]))[..., None] * fine
            cells.append(at[name])
            amplitudes.append(weighted)
    return tuple(cells), tuple(amplitudes)


def _records(call: Call, plan: Plan, recorded: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """The channels asked for, [shot, receiver, time] at the user's step."""
    out, terms = {}, iter(recorded)
    for name, channel in plan.system.receivers.items():
        parts = [next(terms) if weight == 1 else weight * next(terms) for _, weight in channel]
        if name in call.receivers:
            settings = call.resampling
            out[name] = downsample(
                sum(parts[1:], parts[0]),
                plan.ratio,
                taper=settings.taper,
                padding=settings.padding,
            )
    return {name: out[name] for name in call.receivers}


def _require_tunable(backend: str, reason: str) -> None:
    """Only compiled kernels can be tuned: neither the eager backend nor the interpreter has any."""
    got = f"the eager backend ({reason})"
    if backend == "triton":
        got = "Triton's interpreter (TRITON_INTERPRET)"
    ok = backend == "triton" and not interpreting()
    remedy = 'Use tensors on a GPU, or autotune="cached" or False.'
    require(ok, "autotune", f"True with {got}", "the Triton backend on a GPU", remedy)


def tune(
    spec: Equation,
    parameters: Mapping[str, Tensor],
    options: Options,
    *,
    gradient: bool,
    progress: bool,
    folder: Path | None,
) -> dict[str, Tuned]:
    """Every direction's result, by its name; measured where none is kept."""
    call, _ = _call(spec, parameters, options)
    geometry = check_shapes(call)
    _require_tunable(*choose_backend(call.backend, geometry.device))
    plan = _plan(call, geometry, check_values(call, geometry))
    first = next(iter(call.parameters.values()))
    batched = first.ndim > plan.ndim and first.shape[0] > 1
    wanted = [(False, False)] + [(False, True), (True, True)] * gradient
    from . import trials

    tasks = [Task(plan, adjoint, history, batched) for adjoint, history in wanted]
    return {
        t.direction: trials.tune(t, geometry.device, folder=folder, progress=progress)
        for t in tasks
    }


def _eager(plan: Plan, inputs: tuple, like: Tensor, segments: int | None):
    """The eager loop, which takes no None for zeros."""
    coefs, amplitudes, fields, memory, *cells = inputs
    box, shapes = (plan.shots, *plan.box), [plan.memory_shape(a) for a, _ in plan.memories]
    fields = tuple(like.new_zeros(box) if f is None else f for f in fields)
    memory = tuple(
        like.new_zeros(s) if m is None else m for m, s in zip(memory, shapes, strict=True)
    )
    out = loop.propagate(plan, coefs, amplitudes, fields, memory, *cells, segments=segments)
    costs: dict[str, Any] = {"kernel_launches": 0, "graph_steps": 0, "history_bytes": 0}
    costs |= {"choice": None, "choice_source": None}
    records, *last = out
    costs["field_bytes"] = sum(t.nbytes for part in last for t in part)
    return records, lambda: last, costs


def _require_history(history: History, backend: str, equation: Equation, ndim: int) -> None:
    """What is asked for is there, whether or not a gradient comes to need it."""
    remedy = "Leave it None, or use backend='eager'."
    expected, got = f"None with the {backend} backend", history.segments
    require(backend == "eager" or got is None, "History.segments", got, expected, remedy)
    remedy = "The eager backend keeps states and runs again between them."
    got = history.compact
    require(backend == "triton" or not got, "History.compact", got, expected, remedy)
    known = equation.build(ndim).compact is not None
    where = f"True with {equation.name} waves"
    require(known or not got, "History.compact", where, "None or False", "Leave it None.")


def _finder(backend: str) -> Find:
    """What finds the extremes that are checked."""
    if backend == "eager":
        return extremes
    from .triton_kernels import extremes as kernels

    return kernels.extremes


def _fold(backend: str) -> Fold:
    """What adds the gradient of a model's layers to its edges."""
    if backend == "eager":
        return folded
    from .triton_kernels import fold

    return fold.fold


def _run(
    call: Call,
) -> tuple[dict[str, Tensor], Callable[[], State], Report, dict[str, tuple[float, ...]]]:
    geometry = check_shapes(call)
    backend, reason = choose_backend(call.backend, geometry.device)
    _require_history(call.history, backend, call.equation, len(geometry.model))
    if call.autotune is True:
        _require_tunable(backend, reason)
    facts = check_values(call, geometry, _finder(backend))
    plan = _plan(call, geometry, facts)
    like = next(iter(call.parameters.values())).detach()
    fold = _fold(backend)
    parameters = {k: replicate(v, plan.widths, fold) for k, v in call.parameters.items()}
    coefs = call.equation.coefficients(parameters, plan.dt, plan.ndim)
    source_at, receiver_at = _cells(call, plan, backend)
    nowhere = like.new_empty(plan.shots, 0, dtype=torch.int64)
    source_cells, amplitudes = _amplitudes(call, plan, coefs, source_at, nowhere)
    receiver_cells = tuple(
        receiver_at.get(name, nowhere)
        for name, terms in plan.system.receivers.items()
        for _ in terms
    )
    fields, memory = _initial_fields(call, plan), _initial_memory(call, plan)
    inputs = (coefs, amplitudes, fields, memory, source_cells, receiver_cells)
    if backend == "triton":
        from . import autograd

        records, last, costs = autograd.propagate(
            plan,
            *inputs,
            compact=autograd.Compact(
                call.history.compact,
                plan.system.compact in facts.positive if call.validate else None,
            ),
            autotune=call.autotune,
        )
    else:
        records, last, costs = _eager(plan, inputs, like, call.history.segments)
    done = geometry.nt + (call.initial.step if call.initial is not None else 0)

    def final() -> State:
        fields, memory = last()
        return State(dict(zip(plan.system.fields, fields, strict=True)), memory, done, plan.ratio)

    report = Report(
        backend=backend,
        reason=reason,
        internal_dt=plan.dt,
        step_ratio=plan.ratio,
        courant=cfl.courant_number(plan.dt, facts.max_velocity, plan.spacing),
        padded_shape=plan.box,
        boundary_frequency=facts.frequency,
        boundary_velocity=facts.max_velocity,
        **costs,
    )
    offsets = {name: _offset(plan.equation, plan.ndim, name) for name in call.receivers}
    return _records(call, plan, records), final, report, offsets


@lru_cache(maxsize=64)
def _offset(equation: Equation, ndim: int, channel: str) -> tuple[float, ...]:
    """Cells by which a receiver channel lies above its cell, per axis."""
    system = equation.build(ndim)
    fields = tuple(f for f, _ in system.receivers[channel])
    return tuple(h / 2 for h in system.offset(fields))
