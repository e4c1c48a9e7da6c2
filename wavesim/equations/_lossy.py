"""Pointwise functions of a stage whose targets decay, ``target_i = a_i target_i + b_i g_i``.

Coefficients are all a, then all b. The factor a belongs to the adjoint of the target, which other
stages overwrite: theirs is ``decayN``, which takes the a after its own N coefficients (for N = 1,
after its two). See `_spec.Stage` for the roles.
"""

from __future__ import annotations

from typing import Any

from ._spec import Pointwise


def lossy1(old, read, g, coef):
    return (coef[0] * old[0] + coef[1] * g[0],)


def history1(old, read, g):
    return (old[0], g[0])


def pull1(bar, coef):
    return (coef[1] * bar[0],)


def gradient1(bar, hist):
    return (bar[0] * hist[0], bar[0] * hist[1])


def push1(hist, dcoef):
    return (dcoef[0] * hist[0] + dcoef[1] * hist[1],)


def decay1(out, bar, div, coef):
    return (coef[2] * out[0] + div[0],)


def lossy3(old, read, g, coef):
    return (
        coef[0] * old[0] + coef[3] * g[0],
        coef[1] * old[1] + coef[4] * g[1],
        coef[2] * old[2] + coef[5] * g[2],
    )


def history3(old, read, g):
    return (old[0], old[1], old[2], g[0], g[1], g[2])


def pull3(bar, coef):
    return (coef[3] * bar[0], coef[4] * bar[1], coef[5] * bar[2])


def gradient3(bar, hist):
    return (
        bar[0] * hist[0],
        bar[1] * hist[1],
        bar[2] * hist[2],
        bar[0] * hist[3],
        bar[1] * hist[4],
        bar[2] * hist[5],
    )


def push3(hist, dcoef):
    return (
        dcoef[0] * hist[0] + dcoef[3] * hist[3],
        dcoef[1] * hist[1] + dcoef[4] * hist[4],
        dcoef[2] * hist[2] + dcoef[5] * hist[5],
    )


def decay3(out, bar, div, coef):
    return (
        coef[3] * out[0] + div[0],
        coef[4] * out[1] + div[1],
        coef[5] * out[2] + div[2],
    )


DECAY: dict[int, Pointwise] = {1: decay1, 3: decay3}
LOSSY: dict[int, dict[str, Any]] = {
    n: {
        "update": update,
        "history": history,
        "histories": 2 * n,
        "pull_derivatives": pull,
        "pull_coefficients": gradient,
        "push_coefficients": push,
    }
    for n, update, history, pull, gradient, push in (
        (1, lossy1, history1, pull1, gradient1, push1),
        (3, lossy3, history3, pull3, gradient3, push3),
    )
}
