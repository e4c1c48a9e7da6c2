"""Linearised (Born) modelling: the Jacobian of a run, for every equation and both backends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .config import State, require
from .report import Result
from .run import Options
from .simulate import simulate


def born(
    equation: str,
    parameters: Mapping[str, Tensor],
    changes: Mapping[str, Tensor],
    **options: Unpack[Options],
) -> tuple[Result, Result]:
    """A run and its derivative along a change of the model: (background, scattered).

    The scattered result is exactly ``J changes``, J being the Jacobian of the discrete run, with
    the time step, the boundary profiles and everything else derived from the model held fixed; its
    gradient with respect to the changes is the transpose of J. In the field's terms: single
    scattering (Born approximation) off the changes.

    Args:
        equation, parameters, options: as in `wavesim.simulate`.
        changes: of some or all of the parameters, by name, each of the parameter's shape.

    Raises:
        ValueError: an unknown or misshapen change.
        RuntimeError: with Triton, a parameter that requires a gradient: the Jacobian is not
            differentiated with respect to the background. Detach it, or use backend="eager".

    Example:
        >>> from wavesim import PML, Receivers, Sources
        >>> v, at = torch.full((20, 30), 2000.0), torch.tensor([[[2, 5]]])
        >>> dv = torch.zeros_like(v)
        >>> dv[12, 15] = 50.0
        >>> background, scattered = born(
        ...     "scalar", {"v": v}, {"v": dv}, spacing=5.0, dt=5e-4,
        ...     sources=Sources(torch.randn(1, 1, 60), at), receivers=Receivers(at))
        >>> scattered.receivers.shape
        torch.Size([1, 1, 60])
    """
    unknown = sorted(set(changes) - set(parameters))
    require(not unknown, "changes", unknown, f"some of {sorted(parameters)}")
    for name, change in changes.items():
        want = list(parameters[name].shape)
        require(list(change.shape) == want, f"changes[{name!r}]", list(change.shape), f"{want}")
    with forward_ad.dual_level():
        duals = {
            k: forward_ad.make_dual(v, changes[k]) if k in changes else v
            for k, v in parameters.items()
        }
        out = simulate(equation, duals, **options)
        return _part(out, 0), _part(out, 1)


def _part(result: Result, which: int) -> Result:
    """The primal (0) or tangent (1) numbers of a result."""

    def of(value: Tensor) -> Tensor:
        part = forward_ad.unpack_dual(value)[which]
        return torch.zeros_like(forward_ad.unpack_dual(value).primal) if part is None else part

    receivers = result.receivers
    if isinstance(receivers, Mapping):
        receivers = {k: of(v) for k, v in receivers.items()}
    elif receivers is not None:
        receivers = of(receivers)
    state = result.state
    fields = {k: of(v) for k, v in state.fields.items()}
    moved = State(fields, tuple(of(m) for m in state.memory), state.step, state.ratio)
    return Result(receivers, result.report, result.offsets, lambda: moved)
