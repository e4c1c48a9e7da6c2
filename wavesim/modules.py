"""`torch.nn.Module` twins of the public functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from .config import message
from .report import Result
from .run import Options
from .simulate import acoustic, elastic, maxwell, maxwell_tm, scalar


class _Propagator(torch.nn.Module):
    """An equation as a module that owns its model.

    The parameters are kept under their names, trained unless ``requires_grad`` is False, and share
    their storage with the tensors given. settings: keyword arguments for every call, kept in
    ``settings`` (a dict, read at each call) and overridden by those given to ``forward``.
    """

    function: ClassVar[Callable[..., Result]]
    own_settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, model: dict[str, Tensor], requires_grad: bool, settings: dict) -> None:
        super().__init__()
        self.names = tuple(model)
        for name, value in model.items():
            setattr(self, name, torch.nn.Parameter(value, requires_grad=requires_grad))
        allowed = sorted((*Options.__annotations__, *self.own_settings))
        unknown = sorted(set(settings) - set(allowed))
        if unknown:
            raise TypeError(message("settings", unknown, f"some of {allowed}"))
        self.settings = settings

    def forward(self, **settings: Any) -> Result:
        """Run with the module's settings and these: sources, receivers, initial, ..."""
        model = (getattr(self, name) for name in self.names)
        return type(self).function(*model, **{**self.settings, **settings})


class Scalar(_Propagator):
    """`wavesim.scalar` as a module that owns ``v``, m/s.

    >>> from wavesim import PML
    >>> layer = Scalar(torch.full((20, 20), 1500.0), spacing=[5.0, 5.0], dt=5e-4, nt=8)
    >>> layer(boundary=PML(width=5, frequency=20.0)).state.step
    8
    """

    function = staticmethod(scalar)

    def __init__(self, v: Tensor, *, requires_grad: bool = True, **settings: Any) -> None:
        super().__init__({"v": v}, requires_grad, settings)


class Acoustic(_Propagator):
    """`wavesim.acoustic` as a module that owns ``v``, m/s, and ``rho``, kg/m^3."""

    function = staticmethod(acoustic)

    def __init__(
        self, v: Tensor, rho: Tensor, *, requires_grad: bool = True, **settings: Any
    ) -> None:
        super().__init__({"v": v, "rho": rho}, requires_grad, settings)


class Elastic(_Propagator):
    """`wavesim.elastic` as a module that owns ``lamb`` and ``mu``, Pa, and ``buoyancy``, m^3/kg."""

    function = staticmethod(elastic)

    def __init__(
        self,
        lamb: Tensor,
        mu: Tensor,
        buoyancy: Tensor,
        *,
        requires_grad: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__({"lamb": lamb, "mu": mu, "buoyancy": buoyancy}, requires_grad, settings)


class MaxwellTM(_Propagator):
    """`wavesim.maxwell_tm` as a module that owns ``epsilon``, ``sigma`` and ``mu``."""

    function = staticmethod(maxwell_tm)
    own_settings = ("averaging",)

    def __init__(
        self,
        epsilon: Tensor,
        sigma: Tensor,
        mu: Tensor,
        *,
        requires_grad: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__({"epsilon": epsilon, "sigma": sigma, "mu": mu}, requires_grad, settings)


class Maxwell(MaxwellTM):
    """`wavesim.maxwell` as a module that owns ``epsilon``, ``sigma`` and ``mu``."""

    function = staticmethod(maxwell)
