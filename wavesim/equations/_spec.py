"""What an equation is: data about fields and derivatives, and pointwise functions.

Everything with a neighbour in it (stencils, boundary memory, their transposes) is shared code that
reads these objects by number. The pointwise functions are plain Python over tuples, written once
and run both by PyTorch and, compiled by Triton, inside the kernels: arithmetic only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

Pointwise = Callable[..., tuple]


@dataclass(frozen=True)
class Parameter:
    """A model parameter: its name, unit, and the bound its values must exceed or not fall below."""

    name: str
    unit: str
    above: float | None = None
    at_least: float | None = None


@dataclass(frozen=True)
class Derivative:
    """One term ``sign * d field / d axis`` of a group sum ``g[group]``.

    ``side`` says where the result lies: +1 half a cell above the field's place (``Df``), -1 half a
    cell below (``Db``), both first derivatives on a staggered grid; 0 is the collocated second one.
    """

    source: int
    axis: int
    side: int
    group: int
    sign: int = 1


@dataclass(frozen=True)
class Stage:
    """``targets <- update(old targets, reads, g, coefficients)`` and its transpose.

    ``history`` gives the values that the gradient of the coefficients needs later.
    ``pull_derivatives(bar, coef)`` is the cotangent of ``g``, evaluated also at neighbours;
    ``pull_fields(out, bar, div, coef)`` the new adjoint of the fields the stage differentiated,
    ``div`` being the transposed derivatives; ``pull_coefficients(bar, history)`` what a step adds
    to the gradient of each coefficient. ``bars`` and ``adjoint_targets`` are the adjoint slots that
    are read at neighbours and overwritten, the latter in the order of the distinct sources.
    ``push_coefficients(history, d coef)`` is what a change of the coefficients adds to the targets,
    the partner of ``pull_coefficients``. ``adjoint_reads`` are coefficients of other stages that
    ``pull_fields`` gets after this stage's own: the factor of an old target (a lossy field) is
    applied where its adjoint is overwritten, not where neighbours still read it.
    """

    derivatives: tuple[Derivative, ...]
    groups: int
    reads: tuple[int, ...]
    targets: tuple[int, ...]
    coefficients: tuple[int, ...]
    update: Pointwise
    history: Pointwise
    histories: int
    bars: tuple[int, ...]
    adjoint_targets: tuple[int, ...]
    pull_derivatives: Pointwise
    pull_fields: Pointwise
    pull_coefficients: Pointwise
    push_coefficients: Pointwise
    adjoint_reads: tuple[int, ...] = ()

    @cached_property
    def sources(self) -> tuple[int, ...]:
        """The distinct differentiated fields, in order of first use."""
        return tuple(dict.fromkeys(d.source for d in self.derivatives))


@dataclass(frozen=True)
class Injection:
    """Amplitudes enter ``field`` after ``stage`` as ``factor * coefficient[cell] * amplitude``.

    Without a coefficient the time step takes its place; ``per_volume`` divides by a cell's volume.
    """

    field: int
    stage: int
    factor: float = 1.0
    coefficient: int | None = None
    per_volume: bool = False


@dataclass(frozen=True)
class Layer:
    """An equation's absorbing layers where the user leaves `wavesim.PML` open.

    Damping rises to ``sigma = -(power + 1) v ln(reflection) / (2 width h)``, or without a
    reflection to ``(power + 1) rate / h`` (rate in m/s); alpha falls from ``alpha_max`` (None:
    ``pi frequency``) to ``alpha_min``, all 1/s. ``guard`` and ``floor`` are TIDE's: what it adds to
    the denominator of a, and the damping up to which it does nothing.
    """

    power: float = 2.0
    reflection: float | None = 1e-3
    rate: float = 0.0
    kappa_max: float = 1.0
    alpha_max: float | None = None
    alpha_min: float = 0.0
    guard: float = 0.0
    floor: float = 0.0


@dataclass(frozen=True)
class System:
    """An equation in a number of dimensions.

    ``rotation[i]`` is the slot whose buffer becomes slot i after a step. ``half[i]`` gives the
    half-cell offset of field i per axis. ``adjoint_scale[i] = (factor, coefficient | None)``: the
    adjoint of field i is kept multiplied by it, so that the adjoint step can be the forward one.
    A source channel enters one or more fields; a receiver channel is a weighted sum of fields,
    recorded before a step, or after it with its sources (``record_after``).

    ``compact`` names a parameter of an equation whose history may be the first of two stages'
    targets alone: this stage adds to each a coefficient times its group, which is zero nowhere if
    the parameter is; the second differentiates these fields only, once, and its history are its
    groups.
    """

    fields: tuple[str, ...]
    half: tuple[tuple[int, ...], ...]
    stages: tuple[Stage, ...]
    rotation: tuple[int, ...]
    adjoint_scale: tuple[tuple[float, int | None], ...]
    sources: Mapping[str, tuple[Injection, ...]] = field(hash=False)
    receivers: Mapping[str, tuple[tuple[int, float], ...]] = field(hash=False)
    record_after: bool = False
    compact: str | None = None

    @cached_property
    def injections(self) -> tuple[Injection, ...]:
        """Of all source channels, in their order."""
        return tuple(i for channel in self.sources.values() for i in channel)

    @cached_property
    def recorded(self) -> tuple[int, ...]:
        """The field of every term of every receiver channel, in their order."""
        return tuple(f for channel in self.receivers.values() for f, _ in channel)

    def offset(self, fields: tuple[int, ...]) -> tuple[int, ...]:
        """Half cells by which a channel of these fields lies above its cell, per axis."""
        return tuple(max(self.half[f][a] for f in fields) for a in range(len(self.half[0])))

    @cached_property
    def collocated(self) -> bool:
        """Whether the derivatives are second derivatives at the nodes."""
        return all(d.side == 0 for s in self.stages for d in s.derivatives)

    @cached_property
    def derivatives(self) -> tuple[Derivative, ...]:
        """All derivatives, stage after stage: the order of the boundary memories."""
        return tuple(d for s in self.stages for d in s.derivatives)


@dataclass(frozen=True)
class Equation:
    """A registered equation.

    ``build(ndim)`` gives its system; ``coefficients(parameters, dt, ndim)`` turns edge-replicated
    parameters [1 or shot, box] into the arrays the stages multiply with, in differentiable PyTorch;
    ``speed(bounds, pairs, spacing)``, bounds being each parameter's smallest and largest value,
    gives the wave speed that bounds the time step, m/s, that of the homogeneous medium with the
    same bound. What else it needs to know is in pairs, see `_grid.pair_speeds`, of the staggered
    ``differences(parameters, ndim)``, the parameters continued by the stencil's reach.
    ``default_channel`` is the one meant when sources or receivers come without a mapping.
    """

    name: str
    parameters: tuple[Parameter, ...]
    dimensions: tuple[int, ...]
    build: Callable[[int], System] = field(repr=False)
    coefficients: Callable = field(repr=False)
    speed: Callable = field(repr=False)
    default_channel: str
    differences: Callable | None = field(default=None, repr=False)
    layer: Layer = Layer()
