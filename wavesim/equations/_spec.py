"""What an equation is: data about fields and derivatives, and pointwise functions.

Everything with a neighbour in it (stencils, boundary memory, their transposes) is shared code that
reads these objects by number. The pointwise functions are plain Python over tuples, written once
and run both by PyTorch and, compiled by Triton, inside the kernels: arithmetic only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Pointwise = Callable[..., tuple]


@dataclass(frozen=True)
class Parameter:
    """A model parameter: its name, unit, and the open lower bound its values must exceed."""

    name: str
    unit: str
    above: float | None = 0.0


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

    @property
    def sources(self) -> tuple[int, ...]:
        """The distinct differentiated fields, in order of first use."""
        return tuple(dict.fromkeys(d.source for d in self.derivatives))


@dataclass(frozen=True)
class SourceChannel:
    """Amplitudes enter ``field`` after ``stage`` as ``factor * coefficient[cell] * amplitude``."""

    field: int
    stage: int
    factor: float
    coefficient: int


@dataclass(frozen=True)
class System:
    """An equation in a number of dimensions.

    ``rotation[i]`` is the slot whose buffer becomes slot i after a step. ``half[i]`` gives the
    half-cell offset of field i per axis. ``adjoint_scale[i] = (factor, coefficient | None)``: the
    adjoint of field i is kept multiplied by it, so that the adjoint step can be the forward one.
    """

    fields: tuple[str, ...]
    half: tuple[tuple[int, ...], ...]
    stages: tuple[Stage, ...]
    rotation: tuple[int, ...]
    adjoint_scale: tuple[tuple[float, int | None], ...]
    sources: Mapping[str, SourceChannel] = field(hash=False)
    receivers: Mapping[str, int] = field(hash=False)

    @property
    def collocated(self) -> bool:
        """Whether the derivatives are second derivatives at the nodes."""
        return all(d.side == 0 for s in self.stages for d in s.derivatives)

    @property
    def derivatives(self) -> tuple[Derivative, ...]:
        """All derivatives, stage after stage: the order of the boundary memories."""
        return tuple(d for s in self.stages for d in s.derivatives)


@dataclass(frozen=True)
class Equation:
    """A registered equation.

    ``build(ndim)`` gives its system; ``coefficients(parameters, dt, ndim)`` turns edge-replicated
    parameters into the arrays the stages multiply with, in differentiable PyTorch;
    ``speed(parameters)`` the wave speed that bounds the time step. ``default_channel`` is the one
    meant when sources or receivers come without a mapping.
    """

    name: str
    parameters: tuple[Parameter, ...]
    dimensions: tuple[int, ...]
    build: Callable[[int], System] = field(repr=False)
    coefficients: Callable = field(repr=False)
    speed: Callable = field(repr=False)
    default_channel: str = "u"
