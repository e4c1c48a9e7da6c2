"""Maxwell's equations on the grid of Yee (1966): 3-D, and 2-D TM (Ey, Hx, Hz on axes [z, x]).

``mu H_t = -curl E - M``, ``epsilon E_t = curl H - sigma E - J`` for right-handed x, y, z: H first,
then ``E = ca E + cb curl H`` with ``ca = (1 - s) / (1 + s)``, ``cb = (dt / epsilon) / (1 + s)`` and
``s = sigma dt / (2 epsilon)``. Parameters are taken at each field's own place, E_i half a cell up
axis i (Ey of TM at the nodes) and H_i half a cell up the other two, by the arithmetic mean.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial

from ._grid import close, inverse, mean, neighbours
from ._leapfrog import leapfrog
from ._lossy import DECAY, LOSSY
from ._spec import Derivative, Equation, Injection, Layer, Parameter, System

EPSILON_0 = 8.8541878128e-12
MU_0 = 1.2566370614359173e-06
CYCLE = {"x": ("y", "z"), "y": ("z", "x"), "z": ("x", "y")}


def curl(fields: list[str], targets: list[str], axes: str, side: int) -> tuple[Derivative, ...]:
    """``(curl F)_a = d_b F_c - d_c F_b``, a, b, c in cyclic order, of the fields that exist."""
    other = {"e": "h", "h": "e"}[targets[0][0]]
    terms = []
    for group, target in enumerate(targets):
        b, c = CYCLE[target[1]]
        for axis, component, sign in ((b, c, 1), (c, b, -1)):
            if axis in axes and other + component in fields:
                source = fields.index(other + component)
                terms.append(Derivative(source, axes.index(axis), side, group, sign))
    return tuple(terms)


@cache
def build(ndim: int) -> System:
    axes = "zyx" if ndim == 3 else "zx"
    electric = ["ez", "ey", "ex"] if ndim == 3 else ["ey"]
    magnetic = ["hz", "hy", "hx"] if ndim == 3 else ["hz", "hx"]
    fields, n, m = electric + magnetic, len(electric), len(magnetic)
    faraday = curl(fields, magnetic, axes, side=1)
    ampere = curl(fields, electric, axes, side=-1)
    sources = tuple(dict.fromkeys(d.source for d in faraday))
    half = [tuple(int(a == f[1]) for a in axes) for f in electric]
    half += [tuple(int(a != f[1]) for a in axes) for f in magnetic]
    place = {f: k for k, f in enumerate(fields)}
    currents = {
        f: (Injection(place[f], stage=1, factor=-1.0, coefficient=m + n + k, per_volume=True),)
        for k, f in enumerate(electric)
    }
    currents |= {
        f: (Injection(place[f], stage=0, coefficient=k, per_volume=True),)
        for k, f in enumerate(magnetic)
    }
    return System(
        fields=tuple(fields),
        half=tuple(half),
        stages=(
            leapfrog(
                faraday,
                tuple(range(n, n + m)),
                tuple(range(m)),
                pull_fields=DECAY[n],
                adjoint_reads=tuple(m + e for e in sources),
            ),
            leapfrog(
                ampere,
                tuple(range(n)),
                tuple(range(m, m + 2 * n)),
                **LOSSY[n],
            ),
        ),
        rotation=tuple(range(n + m)),
        adjoint_scale=((1.0, None),) * (n + m),
        sources=currents,
        receivers={f: ((k, 1.0),) for f, k in place.items()},
        record_after=True,
    )


def collocated(x, dims):
    """x of the cell itself, 0 at the last index of each axis: no half cell lies there."""
    for dim in dims:
        x = close(neighbours(x, dim)[0], dim)
    return x


def averaged(x, dims):
    """Mean over the nodes around half a cell up each axis."""
    for dim in dims:
        x = mean(x, dim)
    return x


def coefficients(parameters, dt: float, ndim: int, place=averaged):
    """``-dt / mu`` of each H, then ca of each E, then cb of each E."""
    system = build(ndim)
    count = len(system.fields)
    dims = [tuple(a - ndim for a in range(ndim) if system.half[f][a]) for f in range(count)]
    n = len(system.stages[1].targets)
    curls, decays, gains = [], [], []
    for f in range(count):
        if f >= n:
            mu = place(parameters["mu"], dims[f])
            curls.append(-dt / MU_0 * inverse(mu))
            continue
        epsilon = EPSILON_0 * place(parameters["epsilon"], dims[f])
        s = dt / 2 * place(parameters["sigma"], dims[f]) * inverse(epsilon)
        decays.append((1 - s) / (1 + s))
        gains.append(dt * inverse(epsilon) / (1 + s))
    return (*curls, *decays, *gains)


def speed(bounds, pairs, spacing):
    """``c`` of the smallest epsilon and mu, wherever they are: a bound for any averaging."""
    return (EPSILON_0 * MU_0 * bounds["epsilon"][0] * bounds["mu"][0]) ** -0.5


EQUATION = Equation(
    name="maxwell",
    parameters=(
        Parameter("epsilon", "relative", above=0.0),
        Parameter("sigma", "S/m", at_least=0.0),
        Parameter("mu", "relative", above=0.0),
    ),
    dimensions=(3,),
    build=build,
    coefficients=coefficients,
    speed=speed,
    default_channel="ey",
    layer=Layer(
        power=4.0,
        reflection=None,
        rate=1 / (150 * math.pi * EPSILON_0),  # Gedney (1996)
        kappa_max=5.0,
        alpha_max=0.0088 / EPSILON_0,
        alpha_min=0.0008 / EPSILON_0,
        guard=1e-9 / EPSILON_0,
        floor=1e-6 / EPSILON_0,
    ),
)
TRANSVERSE = replace(EQUATION, name="maxwell_tm", dimensions=(2,))


@cache
def without_averaging(equation: Equation) -> Equation:
    """The same with each field's parameters taken from its own cell, as TIDE does."""
    return replace(equation, coefficients=partial(coefficients, place=collocated))
