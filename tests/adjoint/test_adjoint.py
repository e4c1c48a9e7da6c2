"""The gradient is the exact one of the computed discrete system: identities, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from adjoint.cases import (
    BACKENDS,
    CASES,
    LOWEST,
    MEDIA,
    ODD_BOXES,
    case_id,
    dot,
    live_part,
    make,
    normal,
)

from wavesim.equations import REGISTRY

torch.set_num_threads(1)

backends = pytest.mark.parametrize("backend", BACKENDS)
every_case = pytest.mark.parametrize("case", CASES, ids=case_id)
every_dimension = pytest.mark.parametrize("case", LOWEST, ids=case_id)
every_equation = pytest.mark.parametrize("equation", sorted(REGISTRY))
ratios = pytest.mark.parametrize("ratio", [1, 3])


def transpose_errors(e) -> dict[str, float]:
    """Of each linear input x alone: |<F x, y> - <x, F' y>| over the larger of the two."""
    weights = e.weights()
    gradients = e.gradients(lambda out: dot(out, weights))
    zeros = {k: torch.zeros_like(v) for k, v in e.inputs.items()}
    found = {}
    for name, x in e.inputs.items():
        with torch.no_grad():
            left = dot(e.run(inputs={**zeros, name: x}), weights).item()
        right = (x * gradients[name]).sum().item()
        assert left != 0
        found[name] = abs(left - right) / max(abs(left), abs(right))
    return found


@backends
@ratios
@every_case
def test_adjoint_is_transpose(case, ratio, backend):
    """<F x, y> = <x, F' y> for amplitudes, initial fields and memory (worst, eager: 7.7e-13)."""
    errors = transpose_errors(make(*case, backend, ratio=ratio))
    assert max(errors.values()) <= 1e-11, errors


@backends
@pytest.mark.parametrize("order", [2, 8])
@pytest.mark.parametrize("box", ODD_BOXES, ids=str)
@every_equation
def test_adjoint_is_transpose_on_odd_boxes(equation, box, order, backend):
    """The same where model or layers are thinner than the stencil (worst, eager: 3.1e-13)."""
    ndim = len(box[0])
    if ndim not in REGISTRY[equation].dimensions:
        pytest.skip(f"{equation} has no {ndim}-D form")
    errors = transpose_errors(make(equation, ndim, order, backend, box=box))
    assert max(errors.values()) <= 1e-11, errors


@backends
@every_dimension
def test_every_source_channel_meets_every_receiver_channel(case, backend):
    """<F_s x, y_r> = <x, F_s' y_r> for each pair of channels; source cells are among the receivers.

    Pairs that cannot meet in so few steps are zero on both sides (worst, eager: 5.7e-15 of the
    largest pair of a receiver channel).
    """
    e = make(*case, backend, nt=8)
    zeros = {k: torch.zeros_like(v) for k, v in e.inputs.items()}
    weights = {k: v for k, v in e.weights().items() if k.startswith("record")}
    names = [k for k in e.inputs if k.startswith("source")]
    with torch.no_grad():
        seen = {s: e.run(inputs={**zeros, s: e.inputs[s]}) for s in names}
    for record, y in weights.items():
        gradients = e.gradients(lambda out, r=record, w=y: (out[r] * w).sum())
        left = {s: (seen[s][record] * y).sum().item() for s in names}
        right = {s: (e.inputs[s] * gradients[s]).sum().item() for s in names}
        scale = max(abs(v) for v in left.values())
        assert scale > 0
        for s in names:
            assert abs(left[s] - right[s]) <= 1e-11 * scale, (s, record, left[s], right[s])
        own = "source" + record.removeprefix("record")
        assert left[own] != 0 and right[own] != 0


def taylor_slopes(e) -> tuple[float, float]:
    """Slopes of |J(m + h d) - J(m)| and |J(m + h d) - J(m) - h <J', d>| in h."""
    weights = e.weights()
    rng = torch.Generator().manual_seed(3)
    direction = {
        k: 0.02 * MEDIA[e.equation].ranges[k][0] * normal(v.shape, rng).to(v.device)
        for k, v in e.parameters.items()
    }
    gradients = e.gradients(lambda out: dot(out, weights))
    slope = dot({k: gradients[k] for k in direction}, direction).item()

    def loss(h: float) -> float:
        moved = {k: v + h * direction[k] for k, v in e.parameters.items()}
        with torch.no_grad():
            return dot(e.run(moved), weights).item()

    steps, start = (0.004, 0.001), loss(0.0)
    zeroth = [abs(loss(h) - start) for h in steps]
    first = [abs(loss(h) - start - h * slope) for h in steps]
    ratio = math.log(steps[0] / steps[1])
    return math.log(zeroth[0] / zeroth[1]) / ratio, math.log(first[0] / first[1]) / ratio


@backends
@ratios
@every_case
def test_taylor_remainders_have_slopes_one_and_two(case, ratio, backend):
    """J(m + h d) - J(m) = O(h), less h <J', d> = O(h^2) (worst, eager: .0013, .0024)."""
    zeroth, first = taylor_slopes(make(*case, backend, ratio=ratio))
    assert abs(zeroth - 1) < 0.01, zeroth
    assert abs(first - 2) < 0.01, first


def difference_errors(e) -> dict[str, float]:
    """Gradient against central differences, over the largest gradient, by parameter and cell."""
    weights = e.weights()
    gradients = e.gradients(lambda out: dot(out, weights))
    found = {}
    for name, value in e.parameters.items():
        n = value.shape
        cells = {
            "low corner and source": tuple(0 for _ in n),
            "high corner and source": tuple(k - 1 for k in n),
            "mixed corner": tuple((k - 1) * (i % 2) for i, k in enumerate(n)),
            "edge": (0, *(k // 2 for k in n[1:])),
            "source": tuple((k - 1) // 2 for k in n),
            "interior": tuple(k // 2 + 1 for k in n),
        }
        step = 2e-4 * MEDIA[e.equation].ranges[name][0]
        for label, cell in cells.items():
            values = []
            for sign in (1, -1):
                moved = value.clone()
                moved[cell] += sign * step
                with torch.no_grad():
                    values.append(dot(e.run({name: moved}), weights).item())
            numeric = (values[0] - values[1]) / (2 * step)
            error = abs(numeric - gradients[name][cell].item())
            found[f"{name} {label}"] = error / gradients[name].abs().max().item()
    return found


@backends
@every_case
def test_gradient_equals_central_differences(case, backend):
    """At corners, edge, source and inner cells, with a ratio of 3 (worst, eager: 3.7e-7)."""
    errors = difference_errors(make(*case, backend, ratio=3, nt=5))
    assert max(errors.values()) <= 1e-6, errors


def equal_errors(got, expected) -> dict[str, float]:
    """Largest deviation over the largest value of each gradient."""
    return {k: ((got[k] - v).abs().max() / v.abs().max()).item() for k, v in expected.items()}


def ones_at(value, index):
    out = torch.zeros_like(value)
    out[index] = 1
    return out


def ramp(value):
    """1, 2, ... in the order of the transposed axes."""
    shape = value.transpose(0, -1).shape
    return torch.arange(1, value.numel() + 1).to(value).reshape(shape)


EVERY = (slice(None), slice(None, None, 2), slice(None, None, 3))
STRIDED = {  # a loss, and the weights that make it a plain weighted sum
    "sum": (lambda r: r.sum(), torch.ones_like),
    "slice": (lambda r: r[..., 2:7].sum(), lambda r: ones_at(r, (..., slice(2, 7)))),
    "every other": (lambda r: r[EVERY].sum(), lambda r: ones_at(r, EVERY)),
    "one shot": (lambda r: r[1].sum(), lambda r: ones_at(r, 1)),
    "cat": (
        lambda r: torch.cat([r, r[:, :1]], 1).sum(),
        lambda r: 1 + ones_at(r, (slice(None), slice(0, 1))),
    ),
    "transpose": (
        lambda r: (r.transpose(0, -1) * ramp(r)).sum(),
        lambda r: ramp(r).transpose(0, -1),
    ),
    "expanded mean": (lambda r: r.mean(-1, keepdim=True).expand_as(r).sum(), torch.ones_like),
}


@backends
@pytest.mark.parametrize("kind", STRIDED)
@every_dimension
def test_strided_cotangents_count_as_contiguous_ones(case, kind, backend):
    """A loss on a slice, a cat, an expanded sum: the gradient of its contiguous weighting.

    On records, fields and memory at once (worst, eager: 0).
    """
    e = make(*case, backend)
    loss, weighting = STRIDED[kind]

    def chosen(out):
        return {k: v for k, v in out.items() if v.ndim == 3 or kind not in ("every other",)}

    got = e.gradients(lambda out: sum(loss(v) for v in chosen(out).values()))
    expected = e.gradients(
        lambda out: sum((v * weighting(v).contiguous()).sum() for v in chosen(out).values())
    )
    errors = equal_errors(got, expected)
    assert max(errors.values()) <= 1e-13, errors


@backends
@every_dimension
def test_expanded_grad_outputs_count_as_contiguous_ones(case, backend):
    """autograd.grad with a stride-0 cotangent = with its contiguous copy (worst, eager: 0)."""
    e = make(*case, backend)
    found = []
    for copy in (False, True):
        parameters, inputs = e.leaves()
        out = list(e.run(parameters, inputs).values())
        bars = [torch.full((), 0.7).to(v).expand_as(v) for v in out]
        bars = [b.contiguous() for b in bars] if copy else bars
        leaves = {**parameters, **inputs}
        gradients = torch.autograd.grad(out, list(leaves.values()), bars)
        found.append(dict(zip(leaves, gradients, strict=True)))
    assert equal_errors(*found) == dict.fromkeys(found[0], 0.0)


@ratios
@every_dimension
def test_recomputed_segments_change_nothing(case, ratio):
    """Gradients with 1, 3 and about sqrt(steps) segments are equal (worst: 0)."""
    e = make(*case, "eager", ratio=ratio)
    weights = e.weights()
    stored, *others = (e.gradients(lambda out: dot(out, weights), segments=s) for s in (1, 3, None))
    for other in others:
        errors = equal_errors(other, stored)
        assert max(errors.values()) <= 1e-13, errors


@backends
@every_case
def test_gradient_is_nowhere_zero_by_mistake(case, backend):
    """Every cell, sample and memory that an output depends on has a gradient, each shot too."""
    e = make(*case, backend, per_shot=True)
    weights = e.weights()
    through_all = e.gradients(lambda out: dot(out, weights))
    for name, value in through_all.items():
        assert value.isfinite().all(), name
        live = live_part(e, case[1], name, value)
        assert live.count_nonzero() == live.numel(), name
    finals = [k for k in weights if k.startswith("field")]
    through_finals = e.gradients(lambda out: dot(out, {k: weights[k] for k in finals}))
    for name, value in through_finals.items():
        assert value.isfinite().all() and value.abs().amax() > 0, name
        if name in e.parameters:
            assert value.count_nonzero() == value.numel(), name


@backends
@every_dimension
def test_amplitudes_after_the_record_have_no_gradient(case, backend):
    """Where a step is recorded before it, exactly zero for the last sample, and only for it."""
    e = make(*case, backend)
    weights = {k: v for k, v in e.weights().items() if k.startswith("record")}
    gradients = e.gradients(lambda out: dot(out, weights))
    seen = e.options["nt"] - (not REGISTRY[case[0]].build(case[1]).record_after)
    for name in e.sources:
        gradient = gradients[f"source {name}"]
        assert gradient[..., seen:].abs().sum() == 0
        assert (gradient[..., :seen] != 0).all()


@backends
@every_dimension
def test_shared_model_gradient_is_the_sum_over_shots(case, backend):
    """One model for all shots: the sum of the gradients of a copy each (worst, eager: 3e-16)."""
    e = make(*case, backend)
    weights = e.weights()
    shared = e.gradients(lambda out: dot(out, weights))
    leaves = {k: v.expand(2, *v.shape).clone().requires_grad_() for k, v in e.parameters.items()}
    each = torch.autograd.grad(dot(e.run(leaves), weights), list(leaves.values()))
    errors = equal_errors(
        {k: g.sum(0) for k, g in zip(leaves, each, strict=True)}, {k: shared[k] for k in leaves}
    )
    assert max(errors.values()) <= 1e-13, errors


def tiny(equation: str, backend: str):
    """A few cells, as gradcheck differentiates them one by one."""
    ndim = 2 if 2 in REGISTRY[equation].dimensions else REGISTRY[equation].dimensions[0]
    box = ((2, 2, 2)[:ndim], ((1, 1), (0, 1), (1, 0))[:ndim])
    e = make(equation, ndim, 4, backend, box=box, nt=3)
    scale = {k: MEDIA[equation].ranges[k][1] for k in e.parameters}
    leaves = {k: (v / scale[k]).requires_grad_() for k, v in e.parameters.items()}
    leaves |= {k: v.clone().requires_grad_() for k, v in e.inputs.items()}

    def function(*values):
        given = dict(zip(leaves, values, strict=True))
        parameters = {k: given[k] * scale[k] for k in e.parameters}
        return tuple(e.run(parameters, {k: given[k] for k in e.inputs}).values())

    return function, tuple(leaves.values())


@backends
@every_equation
def test_gradcheck_passes(equation, backend):
    """PyTorch's own comparison: of the whole Jacobian, of the 3-D one by random projections."""
    function, values = tiny(equation, backend)
    fast = 2 not in REGISTRY[equation].dimensions
    options = {"eps": 1e-6, "atol": 1e-6, "rtol": 1e-6, "fast_mode": fast}
    assert torch.autograd.gradcheck(function, values, **options)


@backends
@every_equation
def test_second_derivative_is_right_or_raises(equation, backend):
    """The derivative of |J'|^2 / 2 along d: central differences of it, or an error."""
    function, values = tiny(equation, backend)
    model = values[0]
    rng = torch.Generator().manual_seed(5)
    direction = normal(model.shape, rng).to(model.device)

    def slope(at):
        loss = sum(v.square().sum() for v in function(at, *values[1:]))
        return torch.autograd.grad(loss, at, create_graph=True)[0].square().sum() / 2

    try:
        got = (torch.autograd.grad(slope(model), model)[0] * direction).sum().item()
    except RuntimeError as error:
        assert backend == "triton", error
        assert "got a second derivative" in str(error)
        return
    step = 1e-5
    up, down = (
        slope((model + s * step * direction).detach().requires_grad_()).item() for s in (1, -1)
    )
    assert got == pytest.approx((up - down) / (2 * step), rel=1e-6)
