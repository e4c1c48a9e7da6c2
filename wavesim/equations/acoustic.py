"""Acoustic waves with variable density, ``rho v_t = -grad p + f``, ``p_t = -K (div v - s)``.

``K = rho v^2`` at the nodes, velocity component i half a cell up axis i with the buoyancy
``B = 2 / (rho + rho')`` there; the velocities are advanced first, then, with them, the pressure.
Where rho is 0 (a vacuum) the pressure stays 0.
"""

from __future__ import annotations

from functools import cache

from ._grid import homogeneous_speed, inverse, mean
from ._leapfrog import leapfrog
from ._spec import Derivative, Equation, Injection, Parameter, System


@cache
def build(ndim: int) -> System:
    axes, velocities = range(ndim), tuple(range(1, ndim + 1))
    names = [f"v{n}" for n in "zyx"[3 - ndim :]]
    up = tuple(Derivative(source=0, axis=a, side=1, group=a) for a in axes)
    down = tuple(Derivative(source=1 + a, axis=a, side=-1, group=0) for a in axes)
    force = {
        n: (Injection(1 + a, stage=0, factor=-1.0, coefficient=a),) for a, n in enumerate(names)
    }
    half = tuple(tuple(int(i == a) for i in axes) for a in axes)
    return System(
        fields=("p", *names),
        half=((0,) * ndim, *half),
        stages=(
            leapfrog(up, velocities, tuple(axes)),
            leapfrog(down, (0,), (ndim,)),
        ),
        rotation=tuple(range(ndim + 1)),
        adjoint_scale=((1.0, None),) * (ndim + 1),
        sources={"p": (Injection(0, stage=1, factor=-1.0, coefficient=ndim),), **force},
        receivers={"p": ((0, 1.0),), **{n: ((1 + a, 1.0),) for a, n in enumerate(names)}},
    )


def coefficients(parameters, dt: float, ndim: int):
    """``-dt B`` half a cell up each axis, then ``-dt K``."""
    v, rho = parameters["v"], parameters["rho"]
    buoyancy = [-dt * inverse(mean(rho, a - ndim)) for a in range(ndim)]
    return (*buoyancy, -dt * rho * v.square())


def differences(parameters, ndim: int):
    """``sqrt(K) D sqrt(B)`` along each axis."""
    v, rho = parameters["v"], parameters["rho"]
    modulus = rho * v.square()
    return [(modulus, inverse(mean(rho, a)), a) for a in range(-ndim, 0)]


def speed(bounds, pairs, spacing):
    """Of the bound that follows from the norms along each axis."""
    squares = sum((c / h) ** 2 for c, h in zip(pairs, spacing, strict=True))
    return homogeneous_speed(squares, spacing)


EQUATION = Equation(
    name="acoustic",
    parameters=(Parameter("v", "m/s", at_least=0.0), Parameter("rho", "kg/m^3", at_least=0.0)),
    dimensions=(1, 2, 3),
    build=build,
    coefficients=coefficients,
    differences=differences,
    speed=speed,
    default_channel="p",
)
