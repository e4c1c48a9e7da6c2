"""Checks of a call's values: all that is looked at on the device comes back in one transfer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from .check import Call, Geometry, needs_frequency
from .config import message, require
from .equations import Equation
from .equations._grid import Pair, largest_products, pair_speeds
from .media import replicate
from .points import negative, raise_outside
from .stencils import STAGGERED


@dataclass(frozen=True)
class Facts:
    """What the values of a call say: the largest speed, m/s, the sources' frequency, Hz, and which
    parameters are known to be above 0 everywhere."""

    max_velocity: float
    frequency: float | None
    positive: frozenset[str] = frozenset()


@lru_cache(maxsize=64)
def _extent(equation: Equation, model: tuple[int, ...], kind: str, channel: str) -> tuple[int, ...]:
    """The number of cells per axis that the locations of a channel may lie in."""
    system = equation.build(len(model))
    fields = [i.field for i in system.sources[channel]] if kind == "sources" else []
    fields = fields or [f for f, _ in system.receivers[channel]]
    return tuple(n - h for n, h in zip(model, system.offset(tuple(fields)), strict=True))


def _pairs(call: Call, geometry: Geometry) -> list[Pair]:
    """Between what the differences lie that bound the time step, if the speed is not known from the
    parameters' bounds."""
    if call.equation.differences is None:
        return []
    reach, ndim = call.order // 2, len(geometry.model)
    parameters = {
        k: replicate(v.detach(), ((reach, reach),) * ndim) for k, v in call.parameters.items()
    }
    return call.equation.differences(parameters, ndim)


def _spectra(call: Call) -> Tensor | None:
    """Of every trace of all sources, [trace, frequency] complex; None without sources."""
    rows = [s.amplitudes.detach().flatten(0, 1) for s in call.sources.values()]
    rows = [r for r in rows if r.shape[0]]
    if not rows:
        return None
    return torch.fft.rfft(torch.cat(rows) if len(rows) > 1 else rows[0])


@dataclass(eq=False)
class Looked:
    """At what the checks look: tensors and locations that are not empty, pairs and the reach of
    their taps, and complex spectra [trace, frequency]."""

    tensors: Sequence[Tensor]
    locations: Sequence[Tensor]
    pairs: Sequence[Pair] = ()
    reach: int = 0
    spectra: Tensor | None = None

    @property
    def count(self) -> int:
        """Extremes that are found."""
        axes = sum(at.shape[-1] for at in self.locations)
        return 2 * len(self.tensors) + axes + 1 + 2 * len(self.pairs) * self.reach


Find = Callable[[Looked], tuple[Tensor, int]]


def extremes(at: Looked) -> tuple[Tensor, int]:
    """(numbers, parts), float64: every tensor's -min and max, which are not finite if it is not; of
    locations the largest on each axis; whether one is negative and not `IGNORE`; and
    `largest_products` of the pairs. Each is the largest of so many numbers, here one. Then the sums
    of the spectra's magnitudes."""
    found: list[Tensor] = []
    for t in at.tensors:
        low, high = torch.aminmax(t)
        found += [-low, high]
    parts = [torch.stack(found)] + [x.amax((0, 1)) for x in at.locations]
    parts.append(negative(at.locations).reshape(1) if at.locations else found[0].new_zeros(1))
    if at.pairs:
        parts.append(torch.stack(largest_products(at.pairs, at.reach)))
    if at.spectra is not None:
        parts.append(at.spectra.abs().sum(0))
    return torch.cat([p.double() for p in parts]), 1


def check_values(call: Call, geometry: Geometry, find: Find = extremes) -> Facts:
    """The one packed readback: extremes, finiteness, location bounds and the spectrum.

    find: the same as `extremes`, by other means.
    """
    if not call.validate:
        assert call.max_velocity is not None
        return Facts(call.max_velocity, call.boundary.frequency)
    tensors = {k: t.detach() for k, t in call.tensors.items() if t.numel()}
    locations = {k: at for k, at in call.locations.items() if at.numel()}
    wanted = call.boundary.frequency is None and needs_frequency(call, geometry)
    looked = Looked(
        list(tensors.values()),
        list(locations.values()),
        _pairs(call, geometry),
        call.order // 2,
        _spectra(call) if wanted else None,
    )
    packed, parts = find(looked)
    values, count = packed.tolist(), looked.count
    bins = values[count * parts :]
    if parts > 1:
        values = [max(values[n * parts : (n + 1) * parts]) for n in range(count)]
    bounds = {name: (-values[2 * i], values[2 * i + 1]) for i, name in enumerate(tensors)}
    _check_extremes(call, bounds)
    start, products = 2 * len(tensors), count - 2 * len(looked.pairs) * looked.reach
    wrong = values[products - 1] > 0
    _check_locations(call, geometry, locations, values[start : products - 1], wrong=wrong)
    return Facts(
        max_velocity=_fastest(call, geometry, bounds, values[products:count]),
        frequency=_peak(bins, geometry.nt * call.dt) if bins else call.boundary.frequency,
        positive=frozenset(name for name in call.parameters if bounds[name][0] > 0),
    )


def _fastest(
    call: Call,
    geometry: Geometry,
    bounds: Mapping[str, tuple[float, float]],
    products: Sequence[float],
) -> float:
    """The largest speed, m/s: what the call says, if the model allows it, else the model's."""
    pairs = pair_speeds(products, tuple(map(abs, STAGGERED[call.order]))) if products else []
    fastest = float(call.equation.speed(bounds, pairs, geometry.spacing))
    if not math.isfinite(fastest):
        got, names = f"{fastest} as the largest speed", [p.name for p in call.equation.parameters]
        remedy = "Check their units and where they are zero together."
        raise ValueError(message(", ".join(names), got, "a finite speed", remedy))
    if call.max_velocity is None:
        return fastest
    if call.max_velocity < fastest * (1 - 1e-6):
        expected = f"at least the model's largest speed, {fastest}"
        raise ValueError(message("max_velocity", call.max_velocity, expected))
    return call.max_velocity


def _peak(bins: list[float], duration: float) -> float | None:
    """The frequency, Hz, at which a spectrum is largest, the lowest of those that are so but for
    rounding; None of a constant and of zeros."""
    near = max(bins) * (1 - 1e-6)
    if near <= 0 or bins[0] >= near:
        return None
    return next(i for i, value in enumerate(bins) if value >= near) / duration


def _check_locations(
    call: Call,
    geometry: Geometry,
    locations: Mapping[str, Tensor],
    largest: list[float],
    *,
    wrong: bool,
) -> None:
    """That every location is in the model; wrong: one is negative, and not `IGNORE`."""
    kinds = [("sources", name) for name in call.sources]
    kinds += [("receivers", name) for name in call.receivers]
    ndim, start = len(geometry.model), 0
    for kind, channel in kinds:
        name = f"{kind}[{channel!r}].locations"
        if name not in locations:
            continue
        extent = _extent(call.equation, geometry.model, kind, channel)
        if wrong or any(c >= n for c, n in zip(largest[start:], extent, strict=False)):
            raise_outside(name, locations[name], extent)
        start += ndim


def _check_extremes(call: Call, extremes: Mapping[str, tuple[float, float]]) -> None:
    """Of every tensor: finite (an extreme of values that are not is not), parameters in bounds."""
    for name, (low, high) in extremes.items():
        finite = math.isfinite(low) and math.isfinite(high)
        require(finite, name, "values that are not finite", "finite numbers everywhere")
    for p in call.equation.parameters:
        low = extremes[p.name][0]
        if p.above is not None and low <= p.above:
            expected = f"values above {p.above} {p.unit} everywhere"
        elif p.at_least is not None and low < p.at_least:
            expected = f"values of at least {p.at_least} {p.unit} everywhere"
        else:
            continue
        raise ValueError(message(p.name, f"a smallest value of {low}", expected))
