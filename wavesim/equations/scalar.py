"""The scalar wave equation with constant density, ``u_tt = v^2 (laplace u - f)``.

Discretely ``u_{n+1} = 2 u_n - u_{n-1} + k (w - f_n)`` with ``k = v^2 dt^2``, ``w`` the Laplacian,
in the boundary the second-order CPML one of Pasalic and McGarry (2010).

The adjoint is kept as ``W = k lambda``: then ``W' = 2 W - W_prev + k L^T W``, the forward step
with the transposed Laplacian, and the gradient of k is the sum of ``W w / k``.
"""

from __future__ import annotations

from functools import cache

from ._spec import Derivative, Equation, Injection, Parameter, Stage, System


def update(old, read, g, coef):
    return (2 * read[0] - old[0] + coef[0] * g[0],)


def history(old, read, g):
    return (g[0],)


def pull_derivatives(bar, coef):
    return (bar[0],)


def pull_fields(out, bar, div, coef):
    return (2 * bar[0] - out[0] + coef[0] * div[0],)


def pull_coefficients(bar, hist):
    return (bar[0] * hist[0],)


def push_coefficients(hist, dcoef):
    return (dcoef[0] * hist[0],)


@cache
def build(ndim: int) -> System:
    stage = Stage(
        derivatives=tuple(Derivative(source=0, axis=a, side=0, group=0) for a in range(ndim)),
        groups=1,
        reads=(0,),
        targets=(1,),
        coefficients=(0,),
        update=update,
        history=history,
        histories=1,
        bars=(0,),
        adjoint_targets=(1,),
        pull_derivatives=pull_derivatives,
        pull_fields=pull_fields,
        pull_coefficients=pull_coefficients,
        push_coefficients=push_coefficients,
    )
    return System(
        fields=("u", "um1"),
        half=((0,) * ndim, (0,) * ndim),
        stages=(stage,),
        rotation=(1, 0),
        adjoint_scale=((1.0, 0), (-1.0, 0)),
        sources={"u": (Injection(field=0, stage=0, factor=-1.0, coefficient=0),)},
        receivers={"u": ((0, 1.0),)},
    )


def coefficients(parameters, dt: float, ndim: int):
    return ((parameters["v"] * dt).square(),)


def speed(bounds, pairs, spacing):
    return bounds["v"][1]


EQUATION = Equation(
    name="scalar",
    parameters=(Parameter("v", "m/s", above=0.0),),
    dimensions=(1, 2, 3),
    build=build,
    coefficients=coefficients,
    speed=speed,
    default_channel="u",
)
