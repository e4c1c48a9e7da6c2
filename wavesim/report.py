"""What a run returns besides numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property

from torch import Tensor

from .choice import Choice
from .config import State


@dataclass(frozen=True)
class Report:
    """How a call was computed.

    backend and reason; internal_dt, s, and step_ratio; courant number reached; padded_shape, the
    model and its layers; boundary_frequency, Hz (None: not known), and boundary_velocity, m/s,
    that the layers are tuned for; kernel_launches of the forward run, and the graph_steps of it
    that a CUDA graph replayed; field_bytes and history_bytes on the device (history 0 when no
    gradient of the model was asked for, or when it is recomputed). choice, how the kernels of the
    forward run were laid out, and choice_source, "default" or "tuned" (both None if eager).
    """

    backend: str
    reason: str
    internal_dt: float
    step_ratio: int
    courant: float
    padded_shape: tuple[int, ...]
    boundary_frequency: float | None
    boundary_velocity: float
    kernel_launches: int
    graph_steps: int
    field_bytes: int
    history_bytes: int
    choice: Choice | None
    choice_source: str | None

    def __str__(self) -> str:
        width = max(len(f.name) for f in fields(self))
        return "\n".join(f"{f.name:<{width}}  {getattr(self, f.name)}" for f in fields(self))


@dataclass(frozen=True, eq=False)
class Result:
    """Records, final state, and report.

    receivers: [shot, receiver, time], by channel if asked by channel. offsets: by channel, how far
    above its cell the recorded field lies, in cells per axis: 0.5 is half a cell.
    """

    receivers: Tensor | Mapping[str, Tensor] | None
    report: Report
    offsets: Mapping[str, tuple[float, ...]]
    _final: Callable[[], State] = field(repr=False)

    @cached_property
    def state(self) -> State:
        """The state after the last step. It lies in the run's own buffers until it is asked for;
        the copy is made on the stream that is current then, which must have waited for the run's.
        """
        return self._final()
