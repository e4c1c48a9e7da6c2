"""The public functions: check once, plan, propagate, wrap the result."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Required, TypedDict, TypeVar, Unpack

import torch
from torch import Tensor

from . import cfl
from .check import Call, Facts, Geometry, check_shapes, check_values, needs_frequency
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
from .equations import REGISTRY, Equation
from .equations.maxwell import without_averaging
from .media import replicate
from .plan import Plan
from .points import box_cells, take
from .reference import loop
from .report import Report, Result
from .resample import downsample, upsample

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
}


def scalar(v: Tensor, **options: Unpack[Options]) -> Result:
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
    return _call(REGISTRY["scalar"], {"v": v}, options)


def acoustic(v: Tensor, rho: Tensor, **options: Unpack[Options]) -> Result:
    """Propagate acoustic waves with variable density in 1, 2 or 3 dimensions.

    ``rho v_t = -grad p + f``, ``p_t = -K (div v - s)``, ``K = rho v^2``, on a staggered grid:
    velocity component i lies half a cell up axis i. Sample k of p is p at ``k dt``, of a velocity
    component half an internal step (``report.internal_dt``) earlier.

    Args:
        v: speed, m/s, at least 0, [z, y, x], [y, x] or [x], with a shot axis first if per shot.
        rho: density, kg/m^3, at least 0; where it is 0 (a vacuum) the pressure stays 0.
        options: as in `scalar`. Source channels: "p" (volume injection rate s, 1/s), "vz", "vy",
            "vx" (force density f, N/m^3). Receiver channels: "p" (Pa), "vz", "vy", "vx" (m/s).
            Without a mapping "p" is meant. A point of a velocity channel names the half cell above
            its cell, so it ends one cell before the model does.

    Returns, raises: as `scalar`.

    Example:
        >>> v, rho = torch.full((20, 30), 1500.0), torch.full((20, 30), 1000.0)
        >>> at = torch.tensor([[[3, 4]]])
        >>> out = acoustic(v, rho, spacing=5.0, dt=5e-4, sources=Sources(torch.randn(1, 1, 9), at),
        ...                receivers={"p": Receivers(at), "vx": Receivers(at)})
        >>> out.receivers["vx"].shape, out.offsets["vx"]
        (torch.Size([1, 1, 9]), (0.0, 0.5))
    """
    return _call(REGISTRY["acoustic"], {"v": v, "rho": rho}, options)


def elastic(lamb: Tensor, mu: Tensor, buoyancy: Tensor, **options: Unpack[Options]) -> Result:
    """Propagate elastic waves in an isotropic medium, in 2 or 3 dimensions.

    ``v_t = B (div s + f)``, ``s_t = lamb tr(e) I + 2 mu e`` with the strain rate e, on the grid of
    Virieux (1986) and Levander (1988): normal stresses at the nodes, v_i half a cell up axis i,
    s_ij half a cell up both. `wavesim.moduli` makes the parameters from vp, vs and density.

    Args:
        lamb, mu: Lame's parameters, Pa; mu is 0 in a fluid.
        buoyancy: 1 / density, m^3/kg; 0 means a vacuum, where lamb and mu should be 0 too.
        options: as in `scalar`. Source channels: "p" (pressure rate, Pa/s, subtracted from every
            normal stress), "vz", "vy", "vx" (force density, N/m^3), and every stress by its name,
            "szz", "syy", "sxx", "syz", "sxz", "sxy" (stress rate, Pa/s; `wavesim.moment_tensor`).
            Receiver channels: the same; "p" is minus the mean of the normal stresses. Without a
            mapping "p" is meant.

    Returns, raises: as `scalar`. Sample k of a stress is at ``k dt``, of a velocity half an
    internal step earlier.

    Example:
        >>> from wavesim import moduli
        >>> vp, vs, rho = (torch.full((20, 30), x) for x in (2000.0, 1000.0, 2200.0))
        >>> at = torch.tensor([[[3, 4]]])
        >>> out = elastic(*moduli(vp, vs, rho), spacing=5.0, dt=5e-4,
        ...               sources={"vy": Sources(torch.randn(1, 1, 9), at)},
        ...               receivers={"p": Receivers(at), "vx": Receivers(at)})
        >>> out.receivers["p"].shape
        torch.Size([1, 1, 9])
    """
    return _call(REGISTRY["elastic"], {"lamb": lamb, "mu": mu, "buoyancy": buoyancy}, options)


def maxwell_tm(
    epsilon: Tensor,
    sigma: Tensor,
    mu: Tensor,
    *,
    averaging: str = "arithmetic",
    **options: Unpack[Options],
) -> Result:
    """Propagate electromagnetic waves in 2-D, transverse magnetic: Ey, Hx, Hz on axes [z, x].

    ``mu H_t = -curl E - M``, ``epsilon E_t = curl H - sigma E - J`` for right-handed x, y, z, on
    the grid of Yee (1966): Ey at the nodes, Hx half a cell up z, Hz half a cell up x.

    Args:
        epsilon, mu: relative permittivity and permeability, above 0, [z, x].
        sigma: conductivity, S/m, at least 0.
        averaging: "arithmetic" takes parameters at each field's own place as the mean of the
            nodes around it; "collocated" takes its cell's, as TIDE does.
        options: as in `scalar`. Source channels: "ey" (current, A, spread over the cell's area),
            "hz", "hx" (magnetic current, V). Receiver channels: "ey" (V/m), "hz", "hx" (A/m);
            without a mapping "ey" is meant. Sample k is E at ``k dt`` plus an internal step
            (``report.internal_dt``; so at ``(k + 1) dt`` where the step ratio is 1), after the
            source of step k, and H at half an internal step before that.

    Returns, raises: as `scalar`. The layers do not depend on the frequency.

    Example:
        >>> epsilon, sigma, mu = torch.full((20, 30), 4.0), torch.zeros(20, 30), torch.ones(20, 30)
        >>> at = torch.tensor([[[3, 4]]])
        >>> out = maxwell_tm(epsilon, sigma, mu, spacing=0.02, dt=4e-11,
        ...                  sources=Sources(torch.randn(1, 1, 9), at), receivers=Receivers(at))
        >>> out.receivers.shape
        torch.Size([1, 1, 9])
    """
    parameters = {"epsilon": epsilon, "sigma": sigma, "mu": mu}
    return _call(_averaged("maxwell_tm", averaging), parameters, options)


def maxwell(
    epsilon: Tensor,
    sigma: Tensor,
    mu: Tensor,
    *,
    averaging: str = "arithmetic",
    **options: Unpack[Options],
) -> Result:
    """Propagate electromagnetic waves in 3-D; equations and arguments as in `maxwell_tm`.

    E_i lies half a cell up axis i, H_i half a cell up the other two; channels "ex", "ey", "ez"
    (currents, A m, spread over the cell's volume) and "hx", "hy", "hz"; parameters [z, y, x].

    Example:
        >>> epsilon, mu = torch.full((9, 8, 7), 4.0), torch.ones(9, 8, 7)
        >>> at = torch.tensor([[[3, 4, 2]]])
        >>> out = maxwell(epsilon, 0 * mu, mu, spacing=0.02, dt=3e-11, boundary=PML(width=4),
        ...               sources={"ex": Sources(torch.randn(1, 1, 9), at)},
        ...               receivers={"hy": Receivers(at)})
        >>> out.offsets["hy"]
        (0.5, 0.0, 0.5)
    """
    parameters = {"epsilon": epsilon, "sigma": sigma, "mu": mu}
    return _call(_averaged("maxwell", averaging), parameters, options)


def _averaged(name: str, averaging: str) -> Equation:
    known = ("arithmetic", "collocated")
    require(averaging in known, "averaging", repr(averaging), f"one of {known}")
    equation = REGISTRY[name]
    return equation if averaging == "arithmetic" else without_averaging(equation)


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


def simulate(equation: str, parameters: Mapping[str, Tensor], **options: Unpack[Options]) -> Result:
    """Run any registered equation; `scalar` documents every option.

    equation: a name in `wavesim.equations.REGISTRY`. parameters: its model parameters by name.

    >>> out = simulate("scalar", {"v": torch.full((9, 9), 1500.0)}, spacing=[1.0, 1.0], dt=1e-4,
    ...                boundary=PML(width=3, frequency=25.0), nt=4)
    >>> sorted(out.state.fields)
    ['u', 'um1']
    """
    require(equation in REGISTRY, "equation", repr(equation), f"one of {sorted(REGISTRY)}")
    spec = REGISTRY[equation]
    names = [p.name for p in spec.parameters]
    require(sorted(parameters) == sorted(names), "parameters", sorted(parameters), str(names))
    return _call(spec, parameters, options)


def _call(spec: Equation, parameters: Mapping[str, Tensor], options: Options) -> Result:
    """What every public function does: check the options' kinds, run, wrap."""
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
    initial = State() if settings["initial"] is None else settings["initial"]
    for name, value, kind in (
        ("boundary", settings["boundary"], PML),
        ("resampling", settings["resampling"], Resampling),
        ("history", settings["history"], History),
        ("initial", initial, State),
    ):
        if not isinstance(value, kind):
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
    records, state, report, offsets = _run(call)
    if not recording:
        return Result(None, state, report, {})
    found = records if mapped else next(iter(records.values()))
    return Result(found, state, report, offsets)


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
        warnings.warn(text, stacklevel=5)
    if call.initial is not None and call.initial.ratio not in (None, ratio):
        got, expected = f"a step ratio of {call.initial.ratio}", f"{ratio}, the ratio of this call"
        raise ValueError(message("initial", got, expected, "Give max_velocity to keep it fixed."))
    if facts.frequency is None and needs_frequency(call, geometry):
        text = "PML.frequency cannot be inferred from the sources; the layers take 0 Hz, which "
        text += "absorbs low frequencies less well. Give PML(frequency=...)."
        warnings.warn(text, stacklevel=5)
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
        damping=_damping(call, geometry, facts),
    )


def _damping(call: Call, geometry: Geometry, facts: Facts):
    """Every face's layer: the user's settings, else the equation's."""
    ndim, layer = len(geometry.model), call.equation.layer
    alpha = layer.alpha_max if layer.alpha_max is not None else math.pi * (facts.frequency or 0.0)
    defaults = {
        "reflection": layer.reflection,
        "power": layer.power,
        "kappa_max": layer.kappa_max,
        "alpha_max": alpha,
    }
    by_face = {k: call.boundary.faces(k, ndim, default) for k, default in defaults.items()}
    return tuple(
        tuple(
            Damping(
                max_velocity=facts.max_velocity,
                alpha_min=min(layer.alpha_min, by_face["alpha_max"][axis][side]),
                guard=layer.guard,
                floor=layer.floor,
                **{k: values[axis][side] for k, values in by_face.items()},
            )
            for side in (0, 1)
        )
        for axis in range(ndim)
    )


def _initial_fields(call: Call, plan: Plan, like: Tensor) -> tuple[Tensor, ...]:
    given = call.initial.fields if call.initial is not None else {}
    names = plan.system.fields
    unknown = [k for k in given if k not in names]
    require(not unknown, "initial.fields", unknown, f"some of {list(names)}")
    box, model = (plan.shots, *plan.box), (plan.shots, *plan.model)
    out = []
    for name, half in zip(names, plan.system.half, strict=True):
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
        out.append(_without_last(value, half))
    return tuple(out)


def _without_last(value: Tensor, half: tuple[int, ...]) -> Tensor:
    """Zero at the last index of a field's half-cell axes: N nodes have N - 1 half cells."""
    for dim, offset in enumerate(half, 1):
        if offset:
            inner = value.narrow(dim, 0, value.shape[dim] - 1)
            value = torch.cat([inner, torch.zeros_like(value.narrow(dim, 0, 1))], dim)
    return value


def _initial_memory(call: Call, plan: Plan, like: Tensor) -> tuple[Tensor, ...]:
    shapes = [plan.memory_shape(axis) for axis, _ in plan.memories]
    given = call.initial.memory if call.initial is not None else ()
    if not given:
        return tuple(like.new_zeros(s) for s in shapes)
    got = [list(m.shape) for m in given]
    require(got == [list(s) for s in shapes], "initial.memory", f"shapes {got}", f"{shapes}")
    return tuple(given)


def _amplitudes(call: Call, plan: Plan, coefs: tuple[Tensor, ...], like: Tensor):
    """(cells, amplitudes as they enter a field) of every injection of the equation."""
    cells, amplitudes = [], []
    for name, channel in plan.system.sources.items():
        given = call.sources.get(name)
        if given is None:
            none = torch.zeros(plan.shots, 0, dtype=torch.int64, device=like.device)
            cells += [none] * len(channel)
            amplitudes += [like.new_zeros(plan.shots, 0, plan.steps)] * len(channel)
            continue
        at = box_cells(given.locations, plan.widths, plan.box)
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
            else:
                weighted = (factor * take(coefs[entry.coefficient], at))[..., None] * fine
            cells.append(at)
            amplitudes.append(weighted)
    return tuple(cells), tuple(amplitudes)


def _receiver_cells(call: Call, plan: Plan, like: Tensor) -> tuple[Tensor, ...]:
    """Of every term of every receiver channel."""
    none = torch.zeros(plan.shots, 0, dtype=torch.int64, device=like.device)
    return tuple(
        box_cells(call.receivers[name].locations, plan.widths, plan.box)
        if name in call.receivers
        else none
        for name, terms in plan.system.receivers.items()
        for _ in terms
    )


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


def _run(call: Call) -> tuple[dict[str, Tensor], State, Report, dict[str, tuple[float, ...]]]:
    geometry = check_shapes(call)
    backend, reason = choose_backend(call.backend, geometry.device)
    if backend == "triton":
        given = call.history.segments
        remedy = "Leave it None, or use backend='eager'."
        require(given is None, "History.segments", given, "None with the Triton backend", remedy)
    facts = check_values(call, geometry)
    plan = _plan(call, geometry, facts)
    like = next(iter(call.parameters.values())).detach()
    parameters = {k: replicate(v, plan.widths) for k, v in call.parameters.items()}
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
        costs = {"kernel_launches": 0, "graph_steps": 0, "history_bytes": 0}
        costs["field_bytes"] = sum(t.nbytes for t in (*fields, *memory))
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
        courant=cfl.courant_number(plan.dt, facts.max_velocity, plan.spacing),
        padded_shape=plan.box,
        boundary_frequency=facts.frequency,
        boundary_velocity=facts.max_velocity,
        **costs,
    )
    system = plan.system
    offsets = {
        name: tuple(h / 2 for h in system.offset(tuple(f for f, _ in system.receivers[name])))
        for name in call.receivers
    }
    return _records(call, plan, records), state, report, offsets
