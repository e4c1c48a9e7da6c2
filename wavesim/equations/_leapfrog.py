"""Pointwise functions of the common leapfrog stage ``target_i += coefficient_i g_i``, by length.

Plain tuples, so that they also compile inside the kernels; see `_spec.Stage` for their roles.
"""

from __future__ import annotations

from ._spec import Pointwise, Stage


def groups(old, read, g):
    return g


def update1(old, read, g, coef):
    return (old[0] + coef[0] * g[0],)


def update2(old, read, g, coef):
    return (old[0] + coef[0] * g[0], old[1] + coef[1] * g[1])


def update3(old, read, g, coef):
    return (old[0] + coef[0] * g[0], old[1] + coef[1] * g[1], old[2] + coef[2] * g[2])


def product1(a, b):
    return (a[0] * b[0],)


def product2(a, b):
    return (a[0] * b[0], a[1] * b[1])


def product3(a, b):
    return (a[0] * b[0], a[1] * b[1], a[2] * b[2])


def add1(out, bar, div, coef):
    return (out[0] + div[0],)


def add2(out, bar, div, coef):
    return (out[0] + div[0], out[1] + div[1])


def add3(out, bar, div, coef):
    return (out[0] + div[0], out[1] + div[1], out[2] + div[2])


def add6(out, bar, div, coef):
    return (
        out[0] + div[0],
        out[1] + div[1],
        out[2] + div[2],
        out[3] + div[3],
        out[4] + div[4],
        out[5] + div[5],
    )


UPDATE: dict[int, Pointwise] = {1: update1, 2: update2, 3: update3}
PRODUCT: dict[int, Pointwise] = {1: product1, 2: product2, 3: product3}
ADD: dict[int, Pointwise] = {1: add1, 2: add2, 3: add3, 6: add6}


def leapfrog(derivatives, targets, coefficients, **different) -> Stage:
    """The stage with one group and one coefficient to each target.

    different: fields of `Stage` that are not the common ones.
    """
    n = len(targets)
    sources = tuple(dict.fromkeys(d.source for d in derivatives))
    common = {
        "derivatives": derivatives,
        "groups": n,
        "reads": (),
        "targets": targets,
        "coefficients": coefficients,
        "update": UPDATE.get(n),
        "history": groups,
        "histories": n,
        "bars": targets,
        "adjoint_targets": sources,
        "pull_derivatives": PRODUCT.get(n),
        "pull_fields": ADD[len(sources)],
        "pull_coefficients": PRODUCT.get(n),
        "push_coefficients": PRODUCT.get(n),
    }
    return Stage(**{**common, **different})
