"""The frozen objects a user builds. Each checks itself; nothing of ours is imported here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

IGNORE = -(2**31)
"""A location entry that marks an unused source or receiver slot; every axis must hold it."""

FLOATS = (torch.float32, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def require(condition: bool, argument: str, got: object, expected: str, remedy: str = "") -> None:
    """Raise ValueError naming argument, got, expected and remedy unless condition holds."""
    if not condition:
        raise ValueError(message(argument, got, expected, remedy))


def message(argument: str, got: object, expected: str, remedy: str = "") -> str:
    """The form of every error: what was wrong with which argument, and what to do."""
    return f"{argument}: got {got}, expected {expected}." + (f" {remedy}" if remedy else "")


def require_tensor(value: object, argument: str, dtypes: Sequence[torch.dtype], ndim: int) -> None:
    """Raise TypeError or ValueError unless value is a tensor of one of dtypes with ndim axes."""
    if not isinstance(value, Tensor):
        raise TypeError(message(argument, type(value).__name__, "a torch.Tensor"))
    if value.dtype not in dtypes:
        names = ", ".join(str(d).removeprefix("torch.") for d in dtypes)
        remedy = f"Convert it with `.to(torch.{names.split(', ')[0]})`."
        if argument.endswith("locations") and value.dtype.is_floating_point:
            remedy = "Positions between cells are not supported yet: round to cell indices."
        raise TypeError(message(argument, value.dtype, f"dtype {names}", remedy))
    require(value.ndim == ndim, argument, f"shape {list(value.shape)}", f"{ndim} axes")


def _check_locations(locations: object, argument: str) -> None:
    require_tensor(locations, argument, INTEGERS, 3)
    axes = locations.shape[-1]  # type: ignore[attr-defined]
    require(1 <= axes <= 3, argument, f"{axes} coordinates", "[shot, point, axis] with 1 to 3 axes")


@dataclass(frozen=True, eq=False)
class Sources:
    """Point sources.

    amplitudes: [shot, source, time] at the user's time step, float32 or float64.
    locations: [shot, source, axis] cell indices (not metres) in the model, integer. Sources in one
        cell are added; a slot whose entries are all `IGNORE` is unused.

    >>> Sources(torch.zeros(1, 1, 10), torch.tensor([[[3, 4]]])).amplitudes.shape
    torch.Size([1, 1, 10])
    """

    amplitudes: Tensor
    locations: Tensor

    def __post_init__(self) -> None:
        require_tensor(self.amplitudes, "Sources.amplitudes", FLOATS, 3)
        _check_locations(self.locations, "Sources.locations")
        want, got = self.locations.shape[:2], self.amplitudes.shape[:2]
        require(
            want == got,
            "Sources.amplitudes",
            f"shape {list(self.amplitudes.shape)}",
            f"[{want[0]}, {want[1]}, time], one row for each location",
        )


@dataclass(frozen=True, eq=False)
class Receivers:
    """Point receivers.

    locations: [shot, receiver, axis] cell indices (not metres) in the model, integer; a slot of
        `IGNORE` is unused and records zeros.
    """

    locations: Tensor

    def __post_init__(self) -> None:
        _check_locations(self.locations, "Receivers.locations")


Width = int | Sequence[int | Sequence[int]]
Face = float | None | Sequence[float | Sequence[float]]
"""A value for every face: one number, one per axis, or a (low, high) pair per axis."""


@dataclass(frozen=True)
class PML:
    """Convolutional perfectly matched layers around the model.

    Every setting but the frequency is one number, one per axis, or a (low, high) pair per axis in
    the order [z, y, x]; None takes the equation's default (`wavesim.equations.Layer`).

    width: cells. 0 leaves a face to the zeros outside: it reflects.
    frequency: the dominant frequency that alpha is tuned for, Hz; by default the peak of the
        sources' spectrum. Not together with alpha_max.
    reflection: theoretical reflection coefficient at normal incidence, in (0, 1).
    power: exponent of the damping profile.
    kappa_max: largest coordinate stretching; 1 means none, and the scalar equation takes only 1.
    alpha_max: frequency shift at the model's edge, 1/s; by default ``pi frequency``, or where the
        equation has its own (Maxwell's have) and no frequency is given, that one.

    Komatitsch and Martin (2007), Geophysics 72; Pasalic and McGarry (2010), SEG Expanded Abstracts;
    Gedney (1996), IEEE Trans. Antennas Propag. 44.
    """

    width: Width = 20
    frequency: float | None = None
    reflection: Face = None
    power: Face = None
    kappa_max: Face = None
    alpha_max: Face = None

    def __post_init__(self) -> None:
        for name in ("width", "reflection", "power", "kappa_max", "alpha_max"):
            value = getattr(self, name)
            if isinstance(value, list | tuple):  # the caller's list may change
                object.__setattr__(self, name, _frozen(value))
        if self.frequency is not None:
            ok = math.isfinite(self.frequency) and self.frequency >= 0
            require(ok, "PML.frequency", self.frequency, "a number of Hz, at least 0, or None")
            remedy = "The frequency only sets alpha_max = pi frequency: give one of them."
            require(self.alpha_max is None, "PML.alpha_max", self.alpha_max, "None", remedy)
        for name, holds, expected in (
            ("reflection", lambda r: 0 < r < 1, "numbers in (0, 1)"),
            ("power", lambda n: n > 0, "positive numbers"),
            ("kappa_max", lambda k: k >= 1, "numbers of at least 1"),
            ("alpha_max", lambda a: a >= 0, "numbers of at least 0"),
        ):
            value = getattr(self, name)
            numbers = [] if value is None else _flat(value)
            ok = all(isinstance(n, (int, float)) and math.isfinite(n) for n in numbers)
            require(ok and all(map(holds, numbers)), f"PML.{name}", value, expected)
        for number in _flat(self.width):
            whole = isinstance(number, int) and not isinstance(number, bool) and number >= 0
            require(whole, "PML.width", self.width, "whole numbers of cells, at least 0")

    def faces(self, name: str, ndim: int, default: Any = None) -> tuple[tuple[Any, Any], ...]:
        """(low, high) of each axis of a setting.

        >>> PML(width=[4, (0, 7)]).faces("width", 2)
        ((4, 4), (0, 7))
        """
        value = getattr(self, name)
        if value is None or isinstance(value, (int, float)):
            one = default if value is None else value
            return ((one, one),) * ndim
        expected = f"one number, or {ndim} numbers or (low, high) pairs, one per axis"
        require(len(value) == ndim, f"PML.{name}", value, expected)
        pairs = [tuple(v) if isinstance(v, Sequence) else (v, v) for v in value]
        require(all(len(p) == 2 for p in pairs), f"PML.{name}", value, expected)
        return tuple((p[0], p[1]) for p in pairs)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _flat(value: Any) -> list:
    """The numbers of a setting that may differ by face."""
    if not isinstance(value, tuple):
        return [value]
    return [n for part in value for n in _flat(part)]


@dataclass(frozen=True)
class Resampling:
    """How amplitudes and records pass between the user's step and a finer internal one.

    At a step ratio of 1 nothing is resampled, and neither setting has an effect.

    taper: fraction of the frequency band brought to zero by a cosine, in [0, 1).
    padding: zero samples appended before the Fourier transform, against wrap-around.
    """

    taper: float = 0.0
    padding: int = 0

    def __post_init__(self) -> None:
        require(0 <= self.taper < 1, "Resampling.taper", self.taper, "a fraction in [0, 1)")
        whole = isinstance(self.padding, int) and self.padding >= 0
        require(whole, "Resampling.padding", self.padding, "a whole number of samples, at least 0")


@dataclass(frozen=True)
class History:
    """What a gradient keeps of the forward run.

    segments: the eager backend keeps the state at this many points in time and recomputes between
        them; None takes about sqrt(steps), 1 keeps everything. The Triton backend keeps what the
        gradient needs of every cell and step on the device, and refuses a number here.
    compact: whether the Triton backend keeps the velocities of elastic waves alone, 2 values of a
        cell and step instead of 5 in two dimensions, 3 instead of 9 in three, for a gradient that
        takes some per cent longer. That needs a buoyancy above 0 everywhere (unchecked, that is
        taken on trust), no force sources, no boundary memory in the initial state, and no dual
        tensors. None does so in large runs where the checks of values show that it can be; True
        insists on it, or raises.
    """

    segments: int | None = None
    compact: bool | None = None

    def __post_init__(self) -> None:
        known = self.compact is None or isinstance(self.compact, bool)
        require(known, "History.compact", self.compact, "True, False or None")
        ok = self.segments is None or (isinstance(self.segments, int) and self.segments >= 1)
        require(ok, "History.segments", self.segments, "a whole number of at least 1, or None")


@dataclass(frozen=True, eq=False)
class State:
    """Everything a run needs to go on: returned by every run, accepted as ``initial``.

    fields: by name, [shot, box], the box being the model and its boundary layers; a field given
        with the model's own shape is continued by zeros. A field left out is zero.
    memory: the boundary layers' variables in the order of the equation's derivatives, or empty for
        zeros; each has the box's shape but for its own axis, which holds the lower layer's cells,
        then the upper one's. For the scalar equation these are ``c psi`` and ``zeta`` per axis.
    step: user's steps done so far. ratio: internal steps per user step (None: not yet known);
        with a ratio above 1, `um1` is one internal step older than `u`.
    """

    fields: Mapping[str, Tensor] = field(default_factory=dict)
    memory: tuple[Tensor, ...] = ()
    step: int = 0
    ratio: int | None = None

    def detach(self) -> State:
        """The same state, cut off from the graph that computed it."""
        fields = {k: v.detach() for k, v in self.fields.items()}
        return State(fields, tuple(m.detach() for m in self.memory), self.step, self.ratio)
