"""The Jacobian: the adjoint's partner, equal on both backends, and Deepwave's Born runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from adjoint.cases import BACKENDS, BOXES, CASES, LOWEST, MEDIA, case_id, dot, make, normal
from conftest import rms_ratio
from torch.autograd import forward_ad

from wavesim import Receivers, Sources, State, born
from wavesim.device import interpreting

torch.set_num_threads(1)
backends = pytest.mark.parametrize("backend", BACKENDS)
SMALL = {1: BOXES[1], 2: ((3, 9), ((2, 2), (3, 5))), 3: ((2, 2, 5), ((1, 1), (0, 2), (2, 3)))}


def changes_of(e) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(11)
    scale = MEDIA[e.equation].ranges
    return {
        k: 0.1 * scale[k][0] * normal(v.shape, rng).to(v.device) for k, v in e.parameters.items()
    }


def scatter(e, changes: dict[str, torch.Tensor]) -> tuple[dict, dict]:
    """(background, scattered) outputs by name, as `Experiment.run` gives them."""
    inputs = e.inputs
    found = born(
        e.equation,
        e.parameters,
        changes,
        sources={k: Sources(inputs[f"source {k}"], at) for k, at in e.sources.items()},
        receivers={k: Receivers(at) for k, at in e.receivers.items()},
        initial=State(
            {k.split()[1]: v for k, v in inputs.items() if k.startswith("field")},
            tuple(v for k, v in inputs.items() if k.startswith("memory")),
        ),
        backend=e.backend,
        **e.options,
    )
    out = []
    for result in found:
        named = {f"record {k}": v for k, v in result.receivers.items()}
        named |= {f"field {k}": v for k, v in result.state.fields.items()}
        out.append(named | {f"memory {i}": m for i, m in enumerate(result.state.memory)})
    return out[0], out[1]


@backends
@pytest.mark.parametrize("ratio", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_jacobian_is_the_adjoints_partner(case, ratio, backend):
    """<J dm, y> = <dm, J' y> (worst, eager: 8.2e-15), and the background is the plain run."""
    e = make(*case, backend, ratio=ratio, nt=6)
    changes, weights = changes_of(e), e.weights()
    background, scattered = scatter(e, changes)
    with torch.no_grad():
        plain = e.run()
    assert all(torch.equal(background[k], plain[k]) for k in plain)
    left = dot(scattered, weights).item()
    gradients = e.gradients(lambda out: dot(out, weights))
    right = sum((changes[k] * gradients[k]).sum().item() for k in changes)
    assert left != 0
    assert abs(left - right) <= 1e-11 * max(abs(left), abs(right))


@backends
@pytest.mark.parametrize("case", LOWEST, ids=case_id)
def test_gradient_of_scattered_data_is_the_transpose(case, backend):
    """Backward through `born` to the changes gives the adjoint run's gradient."""
    e = make(*case, backend, nt=5)
    weights = e.weights()
    changes = {k: v.requires_grad_() for k, v in changes_of(e).items()}
    loss = dot(scatter(e, changes)[1], weights)
    got = dict(zip(changes, torch.autograd.grad(loss, list(changes.values())), strict=True))
    expected = e.gradients(lambda out: dot(out, weights))
    for name in changes:
        assert rms_ratio(got[name], expected[name]) < 1e-12, name


@pytest.mark.skipif(not interpreting(), reason="needs TRITON_INTERPRET=1")
@pytest.mark.parametrize("case", LOWEST, ids=case_id)
def test_triton_tangent_equals_eager(case):
    """Scattered records, fields and memory of the interpreted kernels, and the gradient."""
    equation, ndim, order = case
    e = make(equation, ndim, order, "eager", nt=4 if ndim < 3 else 2, box=SMALL[ndim])
    weights, found = e.weights(), []
    for backend in ("eager", "triton"):
        one = replace(e, backend=backend)
        changes = {k: v.requires_grad_() for k, v in changes_of(one).items()}
        _, scattered = scatter(one, changes)
        gradients = torch.autograd.grad(dot(scattered, weights), list(changes.values()))
        found.append({**scattered, **dict(zip(changes, gradients, strict=True))})
    expected, got = found
    for name in expected:
        assert rms_ratio(got[name], expected[name]) < 1e-13, name


@pytest.mark.skipif(not interpreting(), reason="needs TRITON_INTERPRET=1")
def test_triton_refuses_a_background_with_a_gradient():
    """The Jacobian is not differentiated with respect to the background: it says so."""
    e = make("scalar", 2, 4, "eager", nt=2, box=SMALL[2])
    e = replace(e, backend="triton", parameters={"v": e.parameters["v"].requires_grad_()})
    with pytest.raises(RuntimeError, match="Detach the model"):
        scatter(e, changes_of(e))


@pytest.mark.skipif(not interpreting(), reason="needs TRITON_INTERPRET=1")
@pytest.mark.parametrize("equation", ["scalar", "acoustic", "maxwell_tm"])
def test_dual_amplitudes_and_states_have_exact_tangents(equation):
    """Linear inputs: the tangent along a change is the run of the change, on both backends."""
    e = make(equation, 2, 4, "eager", nt=4, box=SMALL[2])
    rng = torch.Generator().manual_seed(12)
    moves = {k: normal(v.shape, rng) for k, v in e.inputs.items()}
    expected = e.run(inputs=moves)
    for backend in ("eager", "triton"):
        with forward_ad.dual_level():
            duals = {k: forward_ad.make_dual(v, moves[k]) for k, v in e.inputs.items()}
            out = replace(e, backend=backend).run(inputs=duals)
            for name, value in out.items():
                tangent = forward_ad.unpack_dual(value).tangent
                assert rms_ratio(tangent, expected[name]) < 1e-13, (backend, name)
