"""`torch.nn.Module` twins of the public functions."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from .report import Result
from .simulate import scalar


class Scalar(torch.nn.Module):
    """`wavesim.scalar` as a module that owns its model.

    v: wave speed, m/s; kept as the parameter ``v``, trained unless ``requires_grad`` is False.
    settings: keyword arguments of `wavesim.scalar` for every call, kept in ``settings`` (a dict,
        read at each call) and overridden by those given to ``forward``.

    >>> from wavesim import PML
    >>> layer = Scalar(torch.full((20, 20), 1500.0), spacing=[5.0, 5.0], dt=5e-4, nt=8)
    >>> layer(boundary=PML(width=5, frequency=20.0)).state.step
    8
    """

    def __init__(self, v: Tensor, *, requires_grad: bool = True, **settings: Any) -> None:
        super().__init__()
        self.v = torch.nn.Parameter(v, requires_grad=requires_grad)
        self._check(settings)
        self.settings = settings

    @staticmethod
    def _check(settings: dict[str, Any]) -> None:
        inspect.signature(scalar).bind_partial(None, **settings)

    def forward(self, **settings: Any) -> Result:
        """Run with the module's settings and these: sources, receivers, initial, ..."""
        return scalar(self.v, **{**self.settings, **settings})
