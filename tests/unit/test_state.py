"""What a run means: state in and out, slots, shots, and geometries at the edge."""

from __future__ import annotations

import pytest
import torch
from conftest import rms_ratio

import wavesim
from wavesim import IGNORE, PML, Receivers, Sources, State, scalar

SHAPE = (9, 11)
NT = 16


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def model(*shape: int, seed: int = 7) -> torch.Tensor:
    """Heterogeneous, 1500 to 3000 m/s."""
    return 2250 + 750 * torch.tanh(random(*(shape or SHAPE), seed=seed))


def points(*shots: list[tuple[int, ...]]) -> torch.Tensor:
    return torch.tensor(shots)


def run(v=None, nt=NT, **changes) -> wavesim.Result:
    """One shot, two sources, three receivers, some of them at the edge."""
    settings = {
        "spacing": (5.0, 6.0),
        "dt": 6e-4,
        "boundary": PML(width=3, frequency=25.0),
        "max_velocity": 3000.0,
        "sources": Sources(random(1, 2, nt), points([(4, 5), (0, 10)])),
        "receivers": Receivers(points([(4, 5), (8, 0), (2, 7)])),
    } | changes
    return scalar(model() if v is None else v, **settings)


def largest(state: State) -> float:
    return max(f.abs().max().item() for f in state.fields.values())


@pytest.mark.parametrize("order", [2, 8])
@pytest.mark.parametrize("cut", [1, 7, NT - 1])
def test_two_runs_joined_by_their_state_are_one_run(cut, order):
    """run(a + b) = run(b, initial=run(a).state): records, fields and memories bit for bit."""
    f = random(1, 2, NT)
    at = points([(4, 5), (0, 10)])
    whole = run(order=order, sources=Sources(f, at))
    first = run(order=order, nt=cut, sources=Sources(f[..., :cut], at))
    second = run(order=order, sources=Sources(f[..., cut:], at), initial=first.state)
    assert torch.equal(torch.cat([first.receivers, second.receivers], -1), whole.receivers)
    assert (second.state.step, second.state.ratio) == (NT, 1)
    for name, field in whole.state.fields.items():
        assert torch.equal(second.state.fields[name], field)
    for got, memory in zip(second.state.memory, whole.state.memory, strict=True):
        assert torch.equal(got, memory)
    assert largest(whole.state) > 0


def test_runs_join_at_a_step_ratio_above_one():
    """Without a source in either, nothing is resampled in, so final fields agree bit for bit."""
    start = State({"u": random(1, *SHAPE), "um1": random(1, *SHAPE, seed=1)})
    settings = {"sources": None, "dt": 2e-3, "receivers": Receivers(points([(1, 1)]))}
    one = scalar_without_sources(6, start, **settings)
    half = scalar_without_sources(2, start, **settings)
    rest = scalar_without_sources(4, half.state, **settings)
    assert one.report.step_ratio > 1
    assert (rest.state.step, rest.state.ratio) == (6, one.report.step_ratio)
    assert torch.equal(rest.state.fields["u"], one.state.fields["u"])
    assert torch.equal(rest.state.fields["um1"], one.state.fields["um1"])


def scalar_without_sources(nt, initial=None, v=None, **changes) -> wavesim.Result:
    settings = {
        "spacing": (5.0, 6.0),
        "dt": 6e-4,
        "boundary": PML(width=3, frequency=25.0),
        "max_velocity": 3000.0,
    } | changes
    settings["sources"] = None
    return scalar(model() if v is None else v, nt=nt, initial=initial, **settings)


def test_gradients_flow_through_the_state():
    """d loss / d (v, f) is the same whether the run was cut in two or not: 1e-12 of its size."""
    at = points([(4, 5), (0, 10)])

    def gradients(cut: int | None):
        v, f = model().requires_grad_(), random(1, 2, NT).requires_grad_()
        if cut is None:
            out = run(v, sources=Sources(f, at))
            records = out.receivers
        else:
            first = run(v, nt=cut, sources=Sources(f[..., :cut], at))
            out = run(v, sources=Sources(f[..., cut:], at), initial=first.state)
            records = torch.cat([first.receivers, out.receivers], -1)
        loss = records.square().sum() + out.state.fields["u"].square().sum()
        return torch.autograd.grad(loss, (v, f))

    for got, want in zip(gradients(5), gradients(None), strict=True):
        assert want.abs().max() > 0
        assert rms_ratio(got, want) < 1e-12


def test_a_detached_state_cuts_the_graph():
    v = model().requires_grad_()
    state = run(v).state
    assert state.fields["u"].requires_grad
    cut = state.detach()
    assert not any(t.requires_grad for t in (*cut.fields.values(), *cut.memory))
    assert (cut.step, cut.ratio) == (state.step, state.ratio)


def test_a_field_given_without_layers_is_continued_by_zeros():
    """A field of the model's shape equals the same field padded by zeros to the box."""
    u = random(1, *SHAPE)
    padded = torch.nn.functional.pad(u, (3, 3, 3, 3))
    small = scalar_without_sources(5, State({"u": u}))
    large = scalar_without_sources(5, State({"u": padded}))
    assert torch.equal(small.state.fields["u"], large.state.fields["u"])


def test_the_first_sample_is_the_initial_field():
    """Sample k is the field at k dt, before the update of step k."""
    u = random(1, *SHAPE)
    out = run(initial=State({"u": u}))
    assert torch.equal(out.receivers[0, :, 0], u[0, [4, 8, 2], [5, 0, 7]])


def test_the_source_enters_as_documented():
    """After one step from rest u = -v^2 dt^2 f at the source's cell, and zero elsewhere."""
    v = model()
    out = run(v, nt=1, sources=Sources(random(1, 1, 1), points([(4, 5)])))
    u = out.state.fields["u"][0, 3:-3, 3:-3]
    want = torch.zeros(SHAPE, dtype=torch.float64)
    want[4, 5] = -(v[4, 5] ** 2) * 6e-4**2 * random(1, 1, 1).item()
    torch.testing.assert_close(u, want, rtol=1e-14, atol=0)


def test_coincident_sources_are_summed():
    """f and g in one cell act as f + g there."""
    f = random(1, 2, NT)
    both = run(sources=Sources(f, points([(4, 5), (4, 5)]))).receivers
    one = run(sources=Sources(f.sum(1, keepdim=True), points([(4, 5)]))).receivers
    assert rms_ratio(both, one) < 1e-14


def test_coincident_receivers_record_one_trace_each():
    out = run(receivers=Receivers(points([(2, 7), (4, 5), (2, 7)]))).receivers
    assert torch.equal(out[:, 0], out[:, 2])
    assert not torch.equal(out[:, 0], out[:, 1])


def test_records_keep_the_order_of_the_locations():
    at = [(4, 5), (8, 0), (2, 7)]
    straight, reversed_ = (run(receivers=Receivers(points(p))).receivers for p in (at, at[::-1]))
    assert torch.equal(straight, reversed_.flip(1))


def test_ignored_slots_add_nothing_and_record_zeros():
    """IGNORE slots leave the others' bits alone, and their own gradient is zero."""
    unused = (IGNORE, IGNORE)
    f = random(1, 3, NT).requires_grad_()
    out = run(
        sources=Sources(f, points([(4, 5), unused, (0, 10)])),
        receivers=Receivers(points([unused, (4, 5), (8, 0), (2, 7)])),
    ).receivers
    want = run(sources=Sources(f[:, [0, 2]], points([(4, 5), (0, 10)]))).receivers
    assert torch.equal(out[:, 1:], want)
    assert not out[:, 0].any()
    (gradient,) = torch.autograd.grad(out.square().sum(), f)
    assert not gradient[:, 1].any()
    assert gradient[:, [0, 2]].abs().amax((0, 2)).min() > 0


def test_shots_are_independent():
    """Two shots together equal each of them alone, bit for bit."""
    f = random(2, 2, NT)
    at = points([(4, 5), (0, 10)], [(8, 8), (3, 0)])
    seen = points([(1, 1)], [(7, 3)])
    together = run(sources=Sources(f, at), receivers=Receivers(seen)).receivers
    for s in range(2):
        alone = run(
            sources=Sources(f[s : s + 1], at[s : s + 1]), receivers=Receivers(seen[s : s + 1])
        )
        assert torch.equal(together[s : s + 1], alone.receivers)


def test_one_model_per_shot_equals_separate_runs():
    """Records bit for bit; the gradient of each model sees its own shot only."""
    v = torch.stack([model(), model(seed=8)]).requires_grad_()
    f, at = random(2, 1, NT), points([(4, 5)], [(8, 8)])
    seen = points([(1, 1)], [(7, 3)])
    together = run(v, sources=Sources(f, at), receivers=Receivers(seen)).receivers
    (gradient,) = torch.autograd.grad(together.square().sum(), v)
    for s in range(2):
        own = v[s].detach().clone().requires_grad_()
        alone = run(
            own, sources=Sources(f[s : s + 1], at[s : s + 1]), receivers=Receivers(seen[s : s + 1])
        ).receivers
        assert torch.equal(together[s : s + 1], alone)
        (want,) = torch.autograd.grad(alone.square().sum(), own)
        assert rms_ratio(gradient[s], want) < 1e-13


def test_a_leading_axis_of_one_is_shared_by_all_shots():
    f, at = random(2, 1, NT), points([(4, 5)], [(8, 8)])
    settings = {"sources": Sources(f, at), "receivers": Receivers(points([(1, 1)], [(7, 3)]))}
    one, none = run(model()[None], **settings), run(model(), **settings)
    assert torch.equal(one.receivers, none.receivers)


def test_a_run_needs_no_sources():
    """nt alone decides the length; a field at rest stays at rest."""
    out = scalar_without_sources(4, receivers=Receivers(points([(1, 1)])))
    assert out.receivers.shape == (1, 1, 4)
    assert largest(out.state) == 0


def test_a_run_needs_no_receivers():
    out = run(receivers=None)
    assert out.receivers is None
    assert largest(out.state) > 0


def test_mappings_give_mappings():
    plain = run()
    mapped = run(
        sources={"u": Sources(random(1, 2, NT), points([(4, 5), (0, 10)]))},
        receivers={"u": Receivers(points([(4, 5), (8, 0), (2, 7)]))},
    )
    assert torch.equal(mapped.receivers["u"], plain.receivers)


@pytest.mark.parametrize("order", [2, 4, 8])
@pytest.mark.parametrize(
    "width", [0, 1, [(0, 2), (3, 0)], [2, 5]], ids=["none", "one", "faces", "axes"]
)
def test_layers_of_any_width_run_stably(width, order):
    """Width 0 and layers narrower than the stencil: finite, not zero, gradient too."""
    v = model().requires_grad_()
    out = run(
        v,
        nt=60,
        order=order,
        boundary=PML(width=width, frequency=25.0),
        sources=Sources(random(1, 2, 60), points([(4, 5), (0, 10)])),
    )
    (gradient,) = torch.autograd.grad(out.receivers.square().sum(), v)
    assert 0 < out.receivers.abs().max() < 1e3
    assert gradient.isfinite().all() and gradient.abs().max() > 0
    (low_y, high_y), (low_x, high_x) = PML(width=width).faces("width", 2)
    assert out.report.padded_shape == (9 + low_y + high_y, 11 + low_x + high_x)


def test_a_face_of_width_zero_reflects_and_a_layer_absorbs():
    """Energy that is left long after a pulse at rest passed: 100 times less with layers."""
    y, x = torch.meshgrid(torch.arange(9) - 4.0, torch.arange(11) - 5.0, indexing="ij")
    bump = (1 - (y**2 + x**2) / 3).mul(torch.exp(-(y**2 + x**2) / 3)).double()[None]
    v, left = torch.full(SHAPE, 2000.0, dtype=torch.float64), []
    for width in (0, 20):
        settings = {"boundary": PML(width=width, frequency=25.0)}
        state = scalar_without_sources(150, State({"u": bump, "um1": bump}), v=v, **settings).state
        inner = state.fields["u"][0, width : width + 9, width : width + 11]
        left.append(inner.square().sum())
    assert left[1] * 100 < left[0]


@pytest.mark.parametrize(
    "shape", [(1,), (3,), (1, 9), (9, 1), (1, 1), (1, 5, 4), (4, 1, 5), (5, 4, 1)], ids=str
)
@pytest.mark.parametrize("order", [2, 8])
def test_models_thinner_than_the_stencil_run(shape, order):
    """One cell thick along any axis: finite, not zero, and the gradient too."""
    n = len(shape)
    v = model(*shape).requires_grad_()
    middle = [tuple(k // 2 for k in shape)]
    out = run(
        v,
        order=order,
        spacing=(5.0,) * n,
        boundary=PML(width=2, frequency=25.0),
        sources=Sources(random(1, 1, NT), points(middle)),
        receivers=Receivers(points(middle)),
    )
    (gradient,) = torch.autograd.grad(out.receivers.square().sum(), v)
    assert out.receivers.isfinite().all() and out.receivers.abs().max() > 0
    assert gradient.isfinite().all() and gradient.abs().max() > 0


def test_layers_along_a_constant_axis_are_reached():
    """A one-cell model differs from the same line in one dimension less: its layers take energy."""
    v = model(1, 9)
    flat = run(
        v,
        spacing=5.0,
        sources=Sources(random(1, 1, NT), points([(0, 4)])),
        receivers=Receivers(points([(0, 2)])),
    ).receivers
    line = run(
        v[0],
        spacing=5.0,
        sources=Sources(random(1, 1, NT), points([(4,)])),
        receivers=Receivers(points([(2,)])),
    ).receivers
    assert not torch.equal(flat, line)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_comes_back(dtype):
    """What goes in comes out: records, fields, memories and gradient have the model's dtype."""
    v = model().to(dtype).requires_grad_()
    out = run(v, sources=Sources(random(1, 2, NT).to(dtype), points([(4, 5), (0, 10)])))
    tensors = (out.receivers, *out.state.fields.values(), *out.state.memory)
    assert {t.dtype for t in tensors} == {dtype}
    out.receivers.sum().backward()
    assert v.grad.dtype == dtype


def test_the_inputs_are_left_as_they_were():
    """No buffer of the user's is written to: model, amplitudes, locations, initial state."""
    v, f, at = model(), random(1, 2, NT), points([(4, 5), (0, 10)])
    state = run().state
    kept = [t.clone() for t in (v, f, at, *state.fields.values(), *state.memory)]
    run(v, sources=Sources(f, at), initial=state)
    for tensor, copy in zip((v, f, at, *state.fields.values(), *state.memory), kept, strict=True):
        assert torch.equal(tensor, copy)


def test_segments_do_not_change_a_number():
    """The recomputed gradient has the bits of the one that keeps everything."""
    found = []
    for segments in (1, 3, None, NT):
        v = model().requires_grad_()
        out = run(v, history=wavesim.History(segments=segments), backend="eager").receivers
        found.append((out.detach(), *torch.autograd.grad(out.square().sum(), v)))
    for other in found[1:]:
        assert torch.equal(other[0], found[0][0])
        assert rms_ratio(other[1], found[0][1]) < 1e-13


def test_the_module_is_the_function():
    """Records and gradient of `Scalar` are those of `scalar`, and call settings win."""
    settings = {
        "spacing": (5.0, 6.0),
        "dt": 6e-4,
        "boundary": PML(width=3, frequency=25.0),
        "receivers": Receivers(points([(4, 5), (8, 0)])),
        "order": 2,
    }
    sources = Sources(random(1, 2, NT), points([(4, 5), (0, 10)]))
    v = model().requires_grad_()
    module = wavesim.Scalar(model(), **settings)
    want = scalar(v, sources=sources, **{**settings, "order": 4}).receivers
    got = module(sources=sources, order=4).receivers
    assert torch.equal(got, want)
    want.square().sum().backward()
    got.square().sum().backward()
    assert torch.equal(module.v.grad, v.grad)
    assert list(module.state_dict()) == ["v"]


def test_a_frozen_module_has_nothing_to_train():
    assert not wavesim.Scalar(model(), requires_grad=False).v.requires_grad


def test_the_report_tells_how_the_run_was_done():
    """Step, shape and boundary settings are those asked for, and printing names each."""
    report = run(dt=2e-3).report
    assert report.step_ratio * report.internal_dt == pytest.approx(2e-3)
    assert report.courant <= 0.6
    assert (report.boundary_frequency, report.boundary_velocity) == (25.0, 3000.0)
    assert report.field_bytes > 0
    for name in ("backend", "reason", "padded_shape", "step_ratio", "history_bytes"):
        assert name in str(report)


def test_the_frequency_is_the_peak_of_the_sources():
    """A sine of 50 Hz over a whole number of periods is found exactly."""
    t = torch.arange(40, dtype=torch.float64) * 5e-4
    f = torch.sin(2 * torch.pi * 50 * t).reshape(1, 1, -1)
    out = run(nt=40, dt=5e-4, boundary=PML(width=3), sources=Sources(f, points([(4, 5)])))
    assert out.report.boundary_frequency == pytest.approx(50.0, rel=1e-9)


def test_a_spacing_per_axis_says_how_many_dimensions_there_are():
    """Without locations ``spacing=[h]`` is one dimension, so [1, n] is one model a shot."""
    boundary = PML(width=2, frequency=25.0)
    for spacing, box in (([5.0], (13,)), ([5.0, 5.0], (5, 13))):
        v = torch.full((1, 9), 1500.0)
        out = wavesim.scalar(v, spacing=spacing, dt=5e-4, nt=2, boundary=boundary)
        assert out.report.padded_shape == box
