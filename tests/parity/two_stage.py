"""A two-stage equation on a staggered grid, pressure and velocities in 2-D, for the tests only.

``v_i -= B_i dt Df_i p``, then ``p -= K dt sum_i Db_i v_i``: shared code sees two stages, first
derivatives to both sides, several groups and sources into either stage.
"""

from __future__ import annotations

import torch

from wavesim.equations import Derivative, Equation, Parameter, SourceChannel, Stage, System


def update_v(old, read, g, coef):
    return (old[0] - coef[0] * g[0], old[1] - coef[1] * g[1])


def history_v(old, read, g):
    return (g[0], g[1])


def pull_v(bar, coef):
    return (-coef[0] * bar[0], -coef[1] * bar[1])


def fields_v(out, bar, div, coef):
    return (out[0] + div[0],)


def gradient_v(bar, hist):
    return (-bar[0] * hist[0], -bar[1] * hist[1])


def update_p(old, read, g, coef):
    return (old[0] - coef[0] * g[0],)


def history_p(old, read, g):
    return (g[0],)


def pull_p(bar, coef):
    return (-coef[0] * bar[0],)


def fields_p(out, bar, div, coef):
    return (out[0] + div[0], out[1] + div[1])


def gradient_p(bar, hist):
    return (-bar[0] * hist[0],)


def build(ndim: int) -> System:
    velocity = Stage(
        derivatives=tuple(Derivative(source=0, axis=a, side=1, group=a) for a in range(2)),
        groups=2,
        reads=(),
        targets=(1, 2),
        coefficients=(0, 1),
        update=update_v,
        history=history_v,
        histories=2,
        bars=(1, 2),
        adjoint_targets=(0,),
        pull_derivatives=pull_v,
        pull_fields=fields_v,
        pull_coefficients=gradient_v,
    )
    pressure = Stage(
        derivatives=tuple(Derivative(source=1 + a, axis=a, side=-1, group=0) for a in range(2)),
        groups=1,
        reads=(),
        targets=(0,),
        coefficients=(2,),
        update=update_p,
        history=history_p,
        histories=1,
        bars=(0,),
        adjoint_targets=(1, 2),
        pull_derivatives=pull_p,
        pull_fields=fields_p,
        pull_coefficients=gradient_p,
    )
    return System(
        fields=("p", "vy", "vx"),
        half=((0, 0), (1, 0), (0, 1)),
        stages=(velocity, pressure),
        rotation=(0, 1, 2),
        adjoint_scale=((1.0, None),) * 3,
        sources={"p": SourceChannel(0, 1, 1.0, 2), "vy": SourceChannel(1, 0, 1.0, 0)},
        receivers={"p": 0, "vy": 1, "vx": 2},
    )


def coefficients(parameters, dt: float, ndim: int):
    """``dt B`` half a cell up each axis, zero past the last node, and ``dt K``."""
    v, rho = parameters["v"], parameters["rho"]
    out = []
    for dim in (1, 2):
        n = rho.shape[dim]
        edge = 2 * dt / (rho.narrow(dim, 0, n - 1) + rho.narrow(dim, 1, n - 1))
        out.append(torch.cat([edge, torch.zeros_like(rho.narrow(dim, 0, 1))], dim))
    return (*out, dt * rho * v.square())


EQUATION = Equation(
    name="two_stage",
    parameters=(Parameter("v", "m/s"), Parameter("rho", "kg/m^3")),
    dimensions=(2,),
    build=build,
    coefficients=coefficients,
    speed=lambda parameters: parameters["v"],
    default_channel="p",
)
