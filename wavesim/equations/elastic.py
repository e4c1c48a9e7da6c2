"""Elastic waves in isotropic media on the grid of Virieux (1986) and Levander (1988).

Velocities and stresses, ``v_t = B (div s + f)``, ``s_t = lamb tr(e) I + 2 mu e`` with
``e = (grad v + grad v^T) / 2``: normal stresses at the nodes, v_i half a cell up axis i, s_ij half
a cell up both. ``B = 2 / (rho + rho')`` from the densities ``1 / buoyancy`` (buoyancy 0 means a
vacuum), mu at s_ij the harmonic mean of its four nodes, 0 if any of them is 0.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations

import numpy as np

from ._grid import harmonic_means, homogeneous_speed, inverse, mean
from ._leapfrog import leapfrog
from ._spec import Derivative, Equation, Injection, Parameter, Stage, System


def update2(old, read, g, coef):
    trace = coef[0] * (g[0] + g[1])
    return (
        old[0] + (trace + 2 * coef[1] * g[0]),
        old[1] + (trace + 2 * coef[1] * g[1]),
        old[2] + coef[2] * g[2],
    )


def hooke2(bar, coef):
    trace = coef[0] * (bar[0] + bar[1])
    return (trace + 2 * coef[1] * bar[0], trace + 2 * coef[1] * bar[1], coef[2] * bar[2])


def gradient2(bar, hist):
    return (
        (bar[0] + bar[1]) * (hist[0] + hist[1]),
        2 * (bar[0] * hist[0] + bar[1] * hist[1]),
        bar[2] * hist[2],
    )


def update3(old, read, g, coef):
    trace = coef[0] * (g[0] + g[1] + g[2])
    return (
        old[0] + (trace + 2 * coef[1] * g[0]),
        old[1] + (trace + 2 * coef[1] * g[1]),
        old[2] + (trace + 2 * coef[1] * g[2]),
        old[3] + coef[2] * g[3],
        old[4] + coef[3] * g[4],
        old[5] + coef[4] * g[5],
    )


def hooke3(bar, coef):
    trace = coef[0] * (bar[0] + bar[1] + bar[2])
    return (
        trace + 2 * coef[1] * bar[0],
        trace + 2 * coef[1] * bar[1],
        trace + 2 * coef[1] * bar[2],
        coef[2] * bar[3],
        coef[3] * bar[4],
        coef[4] * bar[5],
    )


def gradient3(bar, hist):
    return (
        (bar[0] + bar[1] + bar[2]) * (hist[0] + hist[1] + hist[2]),
        2 * (bar[0] * hist[0] + bar[1] * hist[1] + bar[2] * hist[2]),
        bar[3] * hist[3],
        bar[4] * hist[4],
        bar[5] * hist[5],
    )


def stress(ndim: int, slots: dict[tuple[int, int], int]) -> Stage:
    """``s_ii += lamb sum e_kk + 2 mu e_ii``, ``s_ij += mu (d_j v_i + d_i v_j)``, all times dt."""
    terms = []
    for group, (i, j) in enumerate(slots):
        if i == j:
            terms.append(Derivative(source=i, axis=i, side=-1, group=group))
        else:
            terms.append(Derivative(source=i, axis=j, side=1, group=group))
            terms.append(Derivative(source=j, axis=i, side=1, group=group))
    two, three = (update2, hooke2, gradient2), (update3, hooke3, gradient3)
    update, hooke, gradient = two if ndim == 2 else three
    targets, pairs = tuple(slots.values()), len(slots) - ndim
    return leapfrog(
        tuple(terms),
        targets,
        tuple(range(ndim, ndim + 2 + pairs)),
        update=update,
        pull_derivatives=hooke,
        pull_coefficients=gradient,
        push_coefficients=hooke,
    )


@cache
def build(ndim: int) -> System:
    names, count = "zyx"[3 - ndim :], range(ndim)
    pairs = [(i, i) for i in count] + list(combinations(count, 2))
    slots = {pair: ndim + k for k, pair in enumerate(pairs)}
    forces = tuple(
        Derivative(slots[min(i, j), max(i, j)], axis=j, side=1 if i == j else -1, group=i)
        for i in count
        for j in count
    )
    fields = [f"v{n}" for n in names] + [f"s{names[j]}{names[i]}" for i, j in pairs]
    half = [tuple(int(a == i) for a in count) for i in count]
    half += [tuple(int(i != j and a in (i, j)) for a in count) for i, j in pairs]
    normal = tuple(slots[i, i] for i in count)
    force = {f"v{n}": (Injection(i, stage=0, coefficient=i),) for i, n in enumerate(names)}
    stresses = {fields[s]: (Injection(s, stage=1),) for s in slots.values()}
    return System(
        fields=tuple(fields),
        half=tuple(half),
        stages=(leapfrog(forces, tuple(count), tuple(count)), stress(ndim, slots)),
        rotation=tuple(range(len(fields))),
        adjoint_scale=((1.0, None),) * len(fields),
        sources={
            "p": tuple(Injection(s, stage=1, factor=-1.0) for s in normal),
            **force,
            **stresses,
        },
        receivers={
            "p": tuple((s, -1 / ndim) for s in normal),
            **{name: ((k, 1.0),) for k, name in enumerate(fields)},
        },
        compact="buoyancy",
    )


def _buoyancy(parameters, ndim: int):
    """Half a cell up each axis, from the mean density."""
    rho = inverse(parameters["buoyancy"])
    return [inverse(mean(rho, a - ndim)) for a in range(ndim)]


def _shear(mu, ndim: int):
    """mu at s_ij, in the order of the pairs."""
    pairs = list(combinations(range(ndim), 2))
    means = harmonic_means(mu, [(i - ndim, j - ndim) for i, j in pairs])
    return dict(zip(pairs, means, strict=True))


def coefficients(parameters, dt: float, ndim: int):
    """dt times: buoyancy up each axis, lamb, mu, mu at each shear stress."""
    lamb, mu = parameters["lamb"], parameters["mu"]
    parts = (*_buoyancy(parameters, ndim), lamb, mu, *_shear(mu, ndim).values())
    return tuple(dt * p for p in parts)


def differences(parameters, ndim: int):
    """By axis ``sqrt(lamb) D_i sqrt(B_i)``, lamb at least 0; then by two axes those of mu."""
    mu, lamb = parameters["mu"], parameters["lamb"].clamp(min=0)
    buoyancy, shear = _buoyancy(parameters, ndim), _shear(mu, ndim)
    acoustic = [(lamb, buoyancy[i], i - ndim) for i in range(ndim)]
    each = [
        (mu, buoyancy[i], i - ndim)
        if i == j
        else (buoyancy[i], shear[min(i, j), max(i, j)], j - ndim)
        for i in range(ndim)
        for j in range(ndim)
    ]
    return acoustic + each


def speed(bounds, pairs, spacing):
    """Of a bound of the largest frequency: its square is at most that of the lamb part, as in an
    acoustic medium, plus that of the mu part, the largest eigenvalue of a small matrix of norms."""
    rates = np.array(pairs).reshape(-1, len(spacing)) / np.array(spacing)
    if not np.isfinite(rates).all():
        return math.inf
    acoustic, d = rates[0], rates[1:]
    shear = np.linalg.eigvalsh(d * d.T + np.diag((d * d).sum(1)))[-1]
    return homogeneous_speed((acoustic**2).sum() + shear, spacing)


EQUATION = Equation(
    name="elastic",
    parameters=(
        Parameter("lamb", "Pa"),
        Parameter("mu", "Pa", at_least=0.0),
        Parameter("buoyancy", "m^3/kg", at_least=0.0),
    ),
    dimensions=(2, 3),
    build=build,
    coefficients=coefficients,
    differences=differences,
    speed=speed,
    default_channel="p",
)
