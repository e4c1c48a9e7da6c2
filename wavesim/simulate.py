"""The public functions: check once, plan, propagate, wrap the result."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TypeVar

import torch
from torch import Tensor

from . import cfl
from .check import Call, Facts, Geometry, check_shapes, check_values
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
from .device import choose_backend
from .equations import REGISTRY
from .plan import Plan
from .points import box_cells, take
from .reference import loop
from .report import Report, Result
from .resample import downsample, upsample

RATIO_WARNING = 8
T = TypeVar("T")


def scalar(
    v: Tensor,
    *,
    spacing: float | Sequence[float],
    dt: float,
    sources: Sources | Mapping[str, Sources] | None = None,
    receivers: Receivers | Mapping[str, Receivers] | None = None,
    boundary: PML = PML(),  # noqa: B008 (frozen)
    order: int = 4,
    nt: int | None = None,
    initial: State | None = None,
    max_velocity: float | None = None,
    substeps: bool = True,
    resampling: Resampling = Resampling(),  # noqa: B008 (frozen)
    backend: str = "auto",
    history: History = History(),  # noqa: B008 (frozen)
    validate: bool = True,
) -> Result:
    """Propagate scalar waves, ``u_tt = v^2 (laplace u - f)``, in 1, 2 or 3 dimensions.

    Exactly differentiable with respect to ``v``, the source amplitudes and the initial state,
    through the records and the final state, for the discrete system that is computed. Derived
    settings (largest speed, boundary profile, step ratio) are constants for every gradient.

    Args:
        v: wave speed, m/s, [z, y, x] (or [y, x], or [x]), or one model per shot with a leading
            shot axis. float32 or float64; everything else must have the same dtype and device.
        spacing: grid spacing, m, one number or one per axis.
        dt: time step of amplitudes and records, s. Where it is too large for stability, several
            internal steps are taken and the amplitudes are resampled.
        sources: amplitudes ``f`` and locations; channel "u" if given as a mapping.
        receivers: locations where u is recorded: sample k is the field at ``k dt``, before the
            update of step k, so the first one is the initial field.
        boundary: absorbing layers, added outside the model.
        order: order of accuracy in space: 2, 4, 6 or 8.
        nt: number of time samples; needed without sources.
        initial: state to start from, as returned in ``result.state``, or fields "u" and "um1".
        max_velocity: speed that decides step ratio and boundary profile, m/s; by default the
            model's largest. Give it to keep both fixed while the model changes.
        substeps: False refuses a dt that needs internal steps.
        resampling: taper and padding of the resampling.
        backend: "auto" (Triton for tensors on a GPU, else eager), "triton" or "eager".
        history: what the gradient keeps of the forward run.
        validate: False skips all checks of values, and with them the only synchronisation with
            the device; it needs ``max_velocity`` and the boundary's ``frequency``.

    Returns:
        A `Result`: ``receivers`` [shot, receiver, time], ``state`` and ``report``.

    Raises:
        TypeError, ValueError: naming argument, got, expected and what to do.
        RuntimeError: the backend asked for cannot be had.

    Example:
        >>> v = torch.full((30, 40), 2000.0, requires_grad=True)
        >>> wavelet = torch.randn(1, 1, 50)
        >>> out = scalar(v, spacing=5.0, dt=5e-4,
        ...              sources=Sources(wavelet, torch.tensor([[[2, 20]]])),
        ...              receivers=Receivers(torch.tensor([[[2, 5], [2, 35]]])))
        >>> out.receivers.shape
        torch.Size([1, 2, 50])
        >>> out.receivers.square().sum().backward()
    """
    return simulate(
        "scalar",
        {"v": v},
        spacing=spacing,
        dt=dt,
        sources=sources,
        receivers=receivers,
        boundary=boundary,
        order=order,
        nt=nt,
        initial=initial,
        max_velocity=max_velocity,
        substeps=substeps,
        resampling=resampling,
        backend=backend,
        history=history,
        validate=validate,
    )


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


def simulate(
    equation: str,
    parameters: Mapping[str, Tensor],
    *,
    spacing: float | Sequence[float],
    dt: float,
    sources: Sources | Mapping[str, Sources] | None = None,
    receivers: Receivers | Mapping[str, Receivers] | None = None,
    boundary: PML = PML(),  # noqa: B008 (frozen)
    **options,
) -> Result:
    """Run any registered equation; `scalar` documents every argument.

    equation: a name in `wavesim.equations.REGISTRY`. parameters: its model parameters by name.
    options: the remaining keyword arguments of `scalar`.

    >>> out = simulate("scalar", {"v": torch.full((9, 9), 1500.0)}, spacing=[1.0, 1.0], dt=1e-4,
    ...                boundary=PML(width=3, frequency=25.0), nt=4)
    >>> sorted(out.state.fields)
    ['u', 'um1']
    """
    require(equation in REGISTRY, "equation", repr(equation), f"one of {sorted(REGISTRY)}")
    spec = REGISTRY[equation]
    names = [p.name for p in spec.parameters]
    require(sorted(parameters) == sorted(names), "parameters", sorted(parameters), str(names))
    defaults = {
        "order": 4,
        "nt": None,
        "initial": None,
        "max_velocity": None,
        "substeps": True,
        "resampling": Resampling(),
        "backend": "auto",
        "history": History(),
        "validate": True,
    }
    unknown = sorted(set(options) - set(defaults))
    if unknown:
        raise TypeError(message("options", unknown, f"some of {sorted(defaults)}"))
    by_channel, _ = _by_channel(sources, Sources, "sources", spec.default_channel)
    recording, mapped = _by_channel(receivers, Receivers, "receivers", spec.default_channel)
    settings = defaults | options
    for name, value, kind in (
        ("boundary", boundary, PML),
        ("resampling", settings["resampling"], Resampling),
        ("history", settings["history"], History),
        ("initial", settings["initial"] or State(), State),
    ):
        if not isinstance(value, kind):
            raise TypeError(message(name, type(value).__name__, f"a wavesim.{kind.__name__}"))
    lengths = (spacing,) if isinstance(spacing, (float, Real)) else tuple(spacing)
    call = Call(
        equation=spec,
        parameters=dict(parameters),
        spacing=tuple(float(h) for h in lengths),
        spacing_per_axis=not isinstance(spacing, (float, Real)),
        dt=float(dt),
        sources=by_channel,
        receivers=recording,
        boundary=boundary,
        **settings,
    )
    records, state, report = _run(call)
    wanted = {name: records[name] for name in recording}
    if not recording:
        return Result(None, state, report)
    return Result(wanted if mapped else next(iter(wanted.values())), state, report)


def _plan(call: Call, geometry: Geometry, facts: Facts) -> Plan:
    ratio = cfl.step_ratio(call.dt, facts.max_velocity, geometry.spacing)
    largest = cfl.largest_stable_dt(facts.max_velocity, geometry.spacing)
    if ratio > 1 and not call.substeps:
        remedy = "Reduce dt, or allow substeps=True."
        expected = f"at most {largest:.6g} s without substeps"
        raise ValueError(message("dt", call.dt, expected, remedy))
    if ratio >= RATIO_WARNING:
        text = f"dt = {call.dt} s takes {ratio} internal steps each; "
        text += f"{largest:.3g} s would take one."
        warnings.warn(text, stacklevel=4)
    if call.initial is not None and call.initial.ratio not in (None, ratio):
        got, expected = f"a step ratio of {call.initial.ratio}", f"{ratio}, the ratio of this call"
        raise ValueError(message("initial", got, expected, "Give max_velocity to keep it fixed."))
    if facts.frequency is None and any(map(any, geometry.widths)):
        text = "PML.frequency cannot be inferred from the sources; the layers take 0 Hz, which "
        text += "absorbs low frequencies less well. Give PML(frequency=...)."
        warnings.warn(text, stacklevel=4)
    boundary = call.boundary
    return Plan(
        equation=call.equation,
        model=geometry.model,
        widths=geometry.widths,
        spacing=geometry.spacing,
        order=call.order,
        steps=geometry.nt * ratio,
        ratio=ratio,
        dt=call.dt / ratio,
        shots=geometry.shots,
        shared_model=not geometry.batched,
        dtype=str(geometry.dtype).removeprefix("torch."),
        damping=Damping(
            max_velocity=facts.max_velocity,
            frequency=facts.frequency or 0.0,
            reflection=boundary.reflection,
            power=boundary.power,
            kappa_max=boundary.kappa_max,
        ),
    )


def _replicate(model: Tensor, plan: Plan) -> Tensor:
    """The model continued into the boundary by its edge values: [1 or shot, box].

    Built from views, so that the gradient folds back in one fixed order of additions.
    """
    padded = model if model.ndim > plan.ndim else model[None]
    for dim, (low, high) in enumerate(plan.widths, 1):
        first, last = padded.narrow(dim, 0, 1), padded.narrow(dim, padded.shape[dim] - 1, 1)
        shape = list(padded.shape)
        parts = []
        for edge, width in ((first, low), (None, 0), (last, high)):
            shape[dim] = width
            parts.append(padded if edge is None else edge.expand(shape))
        padded = torch.cat(parts, dim) if low or high else padded
    return padded


def _initial_fields(call: Call, plan: Plan, like: Tensor) -> tuple[Tensor, ...]:
    given = call.initial.fields if call.initial is not None else {}
    names = plan.system.fields
    unknown = [k for k in given if k not in names]
    require(not unknown, "initial.fields", unknown, f"some of {list(names)}")
    box, model = (plan.shots, *plan.box), (plan.shots, *plan.model)
    out = []
    for name in names:
        value = given.get(name)
        if value is None:
            out.append(like.new_zeros(box))
            continue
        label, got = f"initial.fields[{name!r}]", f"shape {list(value.shape)}"
        shapes = f"{list(box)} (with the layers) or {list(model)} (the model)"
        require(tuple(value.shape) in (box, model), label, got, shapes)
        if tuple(value.shape) != box:
            pad = [n for pair in reversed(plan.widths) for n in pair]
            value = torch.nn.functional.pad(value, pad)
        out.append(value)
    return tuple(out)


def _initial_memory(call: Call, plan: Plan, like: Tensor) -> tuple[Tensor, ...]:
    shapes = [plan.memory_shape(axis) for axis, _ in plan.memories]
    given = call.initial.memory if call.initial is not None else ()
    if not given:
        return tuple(like.new_zeros(s) for s in shapes)
    got = [list(m.shape) for m in given]
    require(got == [list(s) for s in shapes], "initial.memory", f"shapes {got}", f"{shapes}")
    return tuple(given)


def _amplitudes(call: Call, plan: Plan, coefs: tuple[Tensor, ...], like: Tensor):
    """(cells, amplitudes as they enter a field) of every source channel of the equation."""
    cells, amplitudes = [], []
    for name, channel in plan.system.sources.items():
        given = call.sources.get(name)
        if given is None:
            cells.append(torch.zeros(plan.shots, 0, dtype=torch.int64, device=like.device))
            amplitudes.append(like.new_zeros(plan.shots, 0, plan.steps))
            continue
        at = box_cells(given.locations, plan.widths, plan.box)
        fine = upsample(
            given.amplitudes,
            plan.ratio,
            taper=call.resampling.taper,
            padding=call.resampling.padding,
        )
        cells.append(at)
        weight = channel.factor * take(coefs[channel.coefficient], at)
        amplitudes.append(weight[..., None] * fine)
    return tuple(cells), tuple(amplitudes)


def _receiver_cells(call: Call, plan: Plan, like: Tensor) -> tuple[Tensor, ...]:
    none = torch.zeros(plan.shots, 0, dtype=torch.int64, device=like.device)
    return tuple(
        box_cells(call.receivers[name].locations, plan.widths, plan.box)
        if name in call.receivers
        else none
        for name in plan.system.receivers
    )


def _run(call: Call) -> tuple[dict[str, Tensor], State, Report]:
    geometry = check_shapes(call)
    backend, reason = choose_backend(call.backend, geometry.device)
    if backend == "triton":
        given = call.history.segments
        remedy = "Leave it None, or use backend='eager'."
        require(given is None, "History.segments", given, "None with the Triton backend", remedy)
    plan = _plan(call, geometry, check_values(call, geometry))
    like = next(iter(call.parameters.values())).detach()
    parameters = {k: _replicate(v, plan) for k, v in call.parameters.items()}
    coefs = call.equation.coefficients(parameters, plan.dt, plan.ndim)
    source_cells, amplitudes = _amplitudes(call, plan, coefs, like)
    receiver_cells = _receiver_cells(call, plan, like)
    fields = _initial_fields(call, plan, like)
    memory = _initial_memory(call, plan, like)
    inputs = (plan, coefs, amplitudes, fields, memory, source_cells, receiver_cells)
    if backend == "triton":
        from . import autograd

        (records, fields, memory), costs = autograd.propagate(*inputs)
    else:
        records, fields, memory = loop.propagate(*inputs, segments=call.history.segments)
        costs = {"kernel_launches": 0, "history_bytes": 0}
        costs["field_bytes"] = sum(t.nbytes for t in (*fields, *memory))
    resampled = [
        downsample(r, plan.ratio, taper=call.resampling.taper, padding=call.resampling.padding)
        for r in records
    ]
    started = call.initial.step if call.initial is not None else 0
    state = State(
        fields=dict(zip(plan.system.fields, fields, strict=True)),
        memory=memory,
        step=started + geometry.nt,
        ratio=plan.ratio,
    )
    report = Report(
        backend=backend,
        reason=reason,
        internal_dt=plan.dt,
        step_ratio=plan.ratio,
        courant=cfl.courant_number(plan.dt, plan.damping.max_velocity, plan.spacing),
        padded_shape=plan.box,
        boundary_frequency=plan.damping.frequency,
        boundary_velocity=plan.damping.max_velocity,
        **costs,
    )
    return dict(zip(plan.system.receivers, resampled, strict=True)), state, report
