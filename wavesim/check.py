"""Checks of a call, once, before any work: what the options and the tensors' shapes say."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .config import (
    FLOATS,
    PML,
    History,
    Receivers,
    Resampling,
    Sources,
    State,
    message,
    require,
)
from .equations import Equation
from .stencils import ORDERS


@dataclass(eq=False)
class Call:
    """A user's call as it was made: a lone spacing as a tuple, points by channel."""

    equation: Equation
    parameters: Mapping[str, Tensor]
    spacing: tuple[float, ...]
    spacing_per_axis: bool
    dt: float
    sources: Mapping[str, Sources]
    receivers: Mapping[str, Receivers]
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

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """All floating-point tensors by the name a user knows them by."""
        found = dict(self.parameters)
        for name, s in self.sources.items():
            found[f"sources[{name!r}].amplitudes"] = s.amplitudes
        if self.initial is not None:
            found |= {f"initial.fields[{k!r}]": v for k, v in self.initial.fields.items()}
            found |= {f"initial.memory[{i}]": m for i, m in enumerate(self.initial.memory)}
        return found

    @cached_property
    def locations(self) -> dict[str, Tensor]:
        """All locations, those of the sources first, by the name a user knows them by."""
        found = {f"sources[{name!r}].locations": s.locations for name, s in self.sources.items()}
        for name, r in self.receivers.items():
            found[f"receivers[{name!r}].locations"] = r.locations
        return found


@dataclass(frozen=True)
class Geometry:
    """What the shapes of a call say."""

    model: tuple[int, ...]
    widths: tuple[tuple[int, int], ...]
    spacing: tuple[float, ...]
    shots: int
    nt: int
    dtype: torch.dtype
    device: torch.device


def _one_dtype_and_device(call: Call) -> tuple[torch.dtype, torch.device]:
    tensors = call.tensors
    for name, value in tensors.items():
        if value.dtype not in FLOATS:
            remedy = "Convert it with `.float()` or `.double()`."
            raise TypeError(message(name, value.dtype, "dtype float32 or float64", remedy))
    first_name, first = next(iter(tensors.items()))
    for name, value in tensors.items():
        if value.dtype != first.dtype:
            remedy = "Convert one of them: nothing is cast silently."
            raise TypeError(message(name, value.dtype, f"{first.dtype} as {first_name}", remedy))
    for name, value in (tensors | call.locations).items():
        where = f"{first.device} as {first_name}"
        require(value.device == first.device, name, value.device, where, "Move it with `.to()`.")
    return first.dtype, first.device


def _dimensions(call: Call) -> int:
    axes = {name: loc.shape[-1] for name, loc in call.locations.items()}
    if axes:
        ndim = next(iter(axes.values()))
    elif call.spacing_per_axis:
        ndim = len(call.spacing)
    else:
        text = "nothing that tells the number of dimensions"
        expected = "locations, or a spacing per axis such as spacing=[5.0, 5.0]"
        raise ValueError(message("spacing", text, expected))
    for name, got in axes.items():
        require(got == ndim, name, f"{got} coordinates", f"{ndim}, as the other locations")
    allowed = call.equation.dimensions
    require(ndim in allowed, "locations", f"{ndim} dimensions", f"one of {allowed}")
    return ndim


def _shots(call: Call, ndim: int, batch: int | None) -> int:
    counts = {name: loc.shape[0] for name, loc in call.locations.items()}
    if call.initial is not None:
        counts |= {f"initial.fields[{k!r}]": v.shape[0] for k, v in call.initial.fields.items()}
        counts |= {f"initial.memory[{i}]": m.shape[0] for i, m in enumerate(call.initial.memory)}
    if batch is not None and batch != 1:
        counts |= {f"{next(iter(call.parameters))} (leading axis)": batch}
    if not counts:
        return 1
    first_name, first = next(iter(counts.items()))
    for name, count in counts.items():
        require(count == first, name, f"{count} shots", f"{first} as {first_name}")
    require(first > 0, first_name, "no shots", "at least one")
    return first


def _time_samples(call: Call) -> int:
    lengths = {name: s.amplitudes.shape[-1] for name, s in call.sources.items()}
    known = bool(lengths) or call.nt is not None
    require(known, "nt", None, "a number of steps", "Needed without sources.")
    nt = call.nt if call.nt is not None else next(iter(lengths.values()))
    whole = isinstance(nt, int) and not isinstance(nt, bool) and nt >= 1
    require(whole, "nt", nt, "a whole number of at least 1")
    for name, length in lengths.items():
        label = f"sources[{name!r}].amplitudes"
        require(length == nt, label, f"{length} time samples", f"{nt}")
    return nt


Seen = tuple[torch.Size, torch.dtype, torch.device]
"""Of a tensor what is known without reading a value."""
_geometries: dict[Hashable, Geometry] = {}
KNOWN = 64
"""Calls whose shapes need not be checked again."""


def check_shapes(call: Call) -> Geometry:
    """Everything that can be said without reading a value from the device. It is the same for calls
    that differ in values alone: the first of them is checked, and its answer kept."""
    key = _likeness(call)
    try:
        found = _geometries.get(key)
    except TypeError:  # a setting that cannot be hashed, which is refused by its name
        return _check_shapes(call)
    if found is None:
        found = _check_shapes(call)
        if len(_geometries) >= KNOWN:
            _geometries.clear()
        _geometries[key] = found
    return found


def _likeness(call: Call) -> Hashable:
    """All that `_check_shapes` looks at; no tensor, which it would keep."""

    def seen(name: str, value: Tensor) -> Seen:
        if not isinstance(value, Tensor):
            raise TypeError(message(name, type(value).__name__, "a torch.Tensor"))
        return value.shape, value.dtype, value.device

    return (
        (call.equation, call.order, call.boundary, call.validate),
        (call.spacing, call.spacing_per_axis, call.dt),
        (type(call.nt), call.nt, type(call.autotune), call.autotune, call.max_velocity),
        *((name, seen(name, value)) for name, value in call.tensors.items()),
        *((name, seen(name, value)) for name, value in call.locations.items()),
    )


def _check_shapes(call: Call) -> Geometry:
    require(call.order in ORDERS, "order", call.order, f"one of {ORDERS}")
    known = call.autotune is True or call.autotune is False or call.autotune == "cached"
    require(known, "autotune", repr(call.autotune), 'True, False or "cached"')
    positive = math.isfinite(call.dt) and call.dt > 0
    require(positive, "dt", call.dt, "a positive number of seconds")
    dtype, device = _one_dtype_and_device(call)
    ndim = _dimensions(call)
    system = call.equation.build(ndim)
    for kind in ("sources", "receivers"):
        allowed = list(getattr(system, kind))
        for name in getattr(call, kind):
            require(name in allowed, kind, f"channel {name!r}", f"one of {allowed}")
    count = f"one number or {ndim}, one per axis"
    require(len(call.spacing) in (1, ndim), "spacing", call.spacing, count)
    spacing = call.spacing * ndim if len(call.spacing) == 1 else call.spacing
    for h in spacing:
        require(math.isfinite(h) and h > 0, "spacing", call.spacing, "positive lengths in metres")
    first_name, first = next(iter(call.parameters.items()))
    for name, value in call.parameters.items():
        axes = f"{ndim} axes, or {ndim + 1} with one model per shot first"
        remedy = "The last axis of the locations, or the spacing, gives the number of dimensions."
        require(value.ndim in (ndim, ndim + 1), name, f"shape {list(value.shape)}", axes, remedy)
        require(value.numel() > 0, name, f"shape {list(value.shape)}", "at least one cell")
        same = f"{list(first.shape)} as {first_name}"
        require(value.shape == first.shape, name, f"shape {list(value.shape)}", same)
    batched = first.ndim == ndim + 1
    shots = _shots(call, ndim, first.shape[0] if batched else None)
    geometry = Geometry(
        model=tuple(first.shape[-ndim:]),
        widths=call.boundary.faces("width", ndim),
        spacing=spacing,
        shots=shots,
        nt=_time_samples(call),
        dtype=dtype,
        device=device,
    )
    if system.collocated:
        remedy = f"The boundary of {call.equation.name} has no stretching."
        kappa = call.boundary.faces("kappa_max", ndim, 1.0)
        plain = all(k == 1 for face in kappa for k in face)
        require(plain, "PML.kappa_max", call.boundary.kappa_max, "1", remedy)
    if not call.validate:
        remedy = "validate=False reads nothing back from the device, so it must be given."
        require(call.max_velocity is not None, "max_velocity", None, "a speed in m/s", remedy)
        given = call.boundary.frequency is not None or not needs_frequency(call, geometry)
        require(given, "PML.frequency", None, "a frequency in Hz", remedy)
    if call.max_velocity is not None:
        ok = math.isfinite(call.max_velocity) and call.max_velocity > 0
        require(ok, "max_velocity", call.max_velocity, "a positive speed in m/s")
    return geometry


def needs_frequency(call: Call, geometry: Geometry) -> bool:
    """Whether alpha depends on it: there are layers, and neither call nor equation gives alpha."""
    given = call.boundary.alpha_max is not None or call.equation.layer.alpha_max is not None
    return any(map(any, geometry.widths)) and not given
