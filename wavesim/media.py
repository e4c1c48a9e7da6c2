"""Models as tensors: continued past their edges, and converted between parametrisations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .config import message
from .equations._grid import inverse
from .equations.maxwell import EPSILON_0

Widths = tuple[tuple[int, int], ...]
Fold = Callable[[Tensor, Widths], Tensor]


def replicate(model: Tensor, widths: Sequence[tuple[int, int]], fold: Fold | None = None) -> Tensor:
    """The model continued by its edge values: [1 or shot, box].

    The gradient folds back in one fixed order of additions; that of PyTorch's own padding does not.
    fold: what does so where it is not differentiated itself, None for PyTorch.
    """
    padded = model if model.ndim > len(widths) else model[None]
    if not any(map(any, widths)):
        return padded
    if torch.is_grad_enabled() and padded.requires_grad:
        return _Replicate.apply(padded, tuple(widths), fold or folded)
    return _continued(padded, tuple(widths))


PADDED = 2**31
"""Cells from which on PyTorch's own padding has too short an index."""


def _continued(padded: Tensor, widths: Widths) -> Tensor:
    box = (n + low + high for n, (low, high) in zip(padded.shape[1:], widths, strict=True))
    if math.prod(box) * padded.shape[0] < PADDED:
        pad = [n for pair in reversed(widths) for n in pair]
        return torch.nn.functional.pad(padded, pad, mode="replicate")
    for dim, (low, high) in enumerate(widths, 1):
        shape, parts = list(padded.shape), [padded]
        if low:
            shape[dim] = low
            parts.insert(0, padded.narrow(dim, 0, 1).expand(shape))
        if high:
            shape[dim] = high
            parts.append(padded.narrow(dim, padded.shape[dim] - 1, 1).expand(shape))
        padded = torch.cat(parts, dim) if low or high else padded
    return padded


def folded(bar: Tensor, widths: Widths) -> Tensor:
    """The transpose: the layers' cells summed up and added to the edge cell they continue."""
    owned = False  # the cotangent itself may be shared
    for dim, (low, high) in reversed(list(enumerate(widths, 1))):
        n = bar.shape[dim] - low - high
        inner = bar.narrow(dim, low, n)
        if (high or low) and not owned:
            inner, owned = inner.clone(), True
        if high:
            inner.narrow(dim, n - 1, 1).add_(bar.narrow(dim, low + n, high).sum(dim, True))
        if low:
            inner.narrow(dim, 0, 1).add_(bar.narrow(dim, 0, low).sum(dim, True))
        bar = inner
    return bar


class _Replicate(torch.autograd.Function):
    """`_continued` with its transpose, in half the operations that autograd finds for it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(padded: Tensor, widths: Widths, fold: Fold) -> Tensor:
        return _continued(padded, widths)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.widths, ctx.fold = inputs[1:]

    @staticmethod
    def backward(ctx: Any, *bars: Tensor) -> tuple:
        fold = _Fold.apply if torch.is_grad_enabled() else ctx.fold
        return fold(bars[0], ctx.widths), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return _Replicate.apply(tangents[0], ctx.widths, ctx.fold)


class _Fold(torch.autograd.Function):
    """`folded` with its transpose."""

    generate_vmap_rule = True

    @staticmethod
    def forward(bar: Tensor, widths: Widths) -> Tensor:
        return folded(bar, widths)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.widths = inputs[1]

    @staticmethod
    def backward(ctx: Any, *bars: Tensor) -> tuple:
        return _Replicate.apply(bars[0], ctx.widths, folded), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return _Fold.apply(tangents[0], ctx.widths)


def _same_shape(**values: Tensor) -> None:
    shapes = {name: list(v.shape) for name, v in values.items()}
    first = next(iter(shapes.values()))
    if any(s != first for s in shapes.values()):
        raise ValueError(message(", ".join(shapes), f"shapes {shapes}", "one shape for all"))


def moduli(vp: Tensor, vs: Tensor, rho: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Elastic parameters (lamb, Pa; mu, Pa; buoyancy, m^3/kg) of speeds, m/s, and density, kg/m^3.

    A fluid has vs = 0. A vacuum has rho = 0; its buoyancy is given as 0, which `wavesim.elastic`
    reads as "no mass". Gradients stay finite there; that of the buoyancy is 0.

    >>> moduli(*torch.tensor([[2000.0], [0.0], [1000.0]]).unbind())
    (tensor([4.0000e+09]), tensor([0.]), tensor([0.0010]))
    """
    _same_shape(vp=vp, vs=vs, rho=rho)
    mu = rho * vs.square()
    return rho * vp.square() - 2 * mu, mu, inverse(rho)


def speeds(lamb: Tensor, mu: Tensor, buoyancy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The inverse of `moduli`: (vp, vs, rho); all zero in a vacuum (buoyancy 0).

    >>> speeds(*torch.tensor([[2e9], [1e9], [2.0**-10]]).unbind())[2]
    tensor([1024.])
    """
    _same_shape(lamb=lamb, mu=mu, buoyancy=buoyancy)
    return _root(buoyancy * (lamb + 2 * mu)), _root(buoyancy * mu), inverse(buoyancy)


def _root(x: Tensor) -> Tensor:
    """sqrt(x), with a gradient of 0 where x is 0."""
    empty = x == 0
    return torch.where(empty, 0.0, torch.where(empty, 1.0, x).sqrt())


def bulk_modulus(v: Tensor, rho: Tensor) -> Tensor:
    """``K = rho v^2``, Pa, of an acoustic medium.

    >>> bulk_modulus(torch.tensor([1500.0]), torch.tensor([1000.0]))
    tensor([2.2500e+09])
    """
    _same_shape(v=v, rho=rho)
    return rho * v.square()


def absolute_permittivity(epsilon: Tensor) -> Tensor:
    """F/m, of a relative permittivity.

    >>> absolute_permittivity(torch.tensor([4.0]))
    tensor([3.5417e-11])
    """
    return epsilon * EPSILON_0


def relative_permittivity(epsilon: Tensor) -> Tensor:
    """Of an absolute permittivity, F/m.

    >>> relative_permittivity(torch.tensor([3.5416751e-11]))
    tensor([4.0000])
    """
    return epsilon / EPSILON_0
