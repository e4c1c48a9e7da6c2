"""Every registered equation: wrong input says why, states join, shots are apart, modules agree."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import pytest
import torch
from adjoint.cases import LOWEST, Experiment, case_id, make
from unit.test_input import check

import wavesim
from wavesim import PML, Receivers, Sources
from wavesim.equations import REGISTRY

torch.set_num_threads(1)
every_dimension = pytest.mark.parametrize("case", LOWEST, ids=case_id)
every_equation = pytest.mark.parametrize("equation", sorted(REGISTRY))
BOUNDED = [
    (name, p.name, p.above if p.above is not None else p.at_least - 1)
    for name, e in sorted(REGISTRY.items())
    for p in e.parameters
    if p.above is not None or p.at_least is not None
]
HALVES = [
    (name, kind, channel)
    for name, e in sorted(REGISTRY.items())
    for kind, channels in (
        ("sources", e.build(e.dimensions[-1]).sources),
        ("receivers", e.build(e.dimensions[-1]).receivers),
    )
    for channel in channels
]


def small(equation: str, ndim: int | None = None) -> Experiment:
    return make(equation, ndim or REGISTRY[equation].dimensions[-1], 4, "eager", nt=4)


def checked(e: Experiment) -> Experiment:
    """With the checks of values, and the speed taken from the model."""
    options = {k: v for k, v in e.options.items() if k != "max_velocity"}
    return replace(e, options=options)


@pytest.mark.parametrize(("equation", "name", "value"), BOUNDED)
def test_a_parameter_out_of_bounds_is_named(equation, name, value):
    """One cell at the open bound, or below the closed one."""
    e = checked(small(equation))
    wrong = e.parameters[name].clone()
    wrong.view(-1)[3] = value
    with pytest.raises(ValueError) as error:
        e.run({name: wrong})
    check(error, name, str(value), "everywhere")


@every_equation
def test_parameters_must_fit_each_other(equation):
    e = small(equation)
    names = list(e.parameters)
    first = e.parameters[names[0]]
    with pytest.raises(ValueError) as error:
        wavesim.simulate(equation, {"density": first}, **e.options)
    check(error, "parameters", "density", names[0])
    for name in names:
        wrong = torch.full_like(first, float("nan"))
        with pytest.raises(ValueError) as error:
            e.run({name: wrong})
        check(error, name, "not finite")
    if len(names) > 1:
        with pytest.raises(ValueError) as error:
            e.run({names[1]: e.parameters[names[1]][:-1]})
        check(error, names[1], f"as {names[0]}")


@pytest.mark.parametrize(("equation", "kind", "channel"), HALVES)
def test_a_channel_ends_where_its_half_cells_do(equation, kind, channel):
    """The last half cell of an axis lies below the last node; the point beyond it raises."""
    e = small(equation)
    model = next(iter(e.parameters.values())).shape
    system = REGISTRY[equation].build(len(model))
    if kind == "sources":
        fields = tuple(i.field for i in system.sources[channel])
    else:
        fields = tuple(f for f, _ in system.receivers[channel])
    last = [n - 1 - h for n, h in zip(model, system.offset(fields), strict=True)]

    def run(at: list[int]) -> None:
        points = torch.tensor([[at]])
        if kind == "sources":
            amplitudes = torch.ones(1, 1, 4, dtype=torch.float64)
            found = {"sources": {channel: Sources(amplitudes, points)}}
        else:
            found = {"receivers": {channel: Receivers(points)}}
        wavesim.simulate(equation, e.parameters, **found, **e.options)

    run(last)
    for axis in range(len(model)):
        beyond = list(last)
        beyond[axis] += 1
        with pytest.raises(ValueError) as error:
            run(beyond)
        check(error, f"{kind}[{channel!r}].locations", f"axis {axis}", f"0..{last[axis]}")


@every_equation
def test_an_unknown_channel_is_refused_by_name(equation):
    e = small(equation)
    points = torch.zeros(1, 1, len(e.options["spacing"]), dtype=torch.int64)
    with pytest.raises(ValueError) as error:
        wavesim.simulate(equation, e.parameters, receivers={"q": Receivers(points)}, **e.options)
    check(
        error,
        "receivers",
        "channel 'q'",
        str(list(REGISTRY[equation].build(points.shape[-1]).receivers)),
    )


@every_dimension
def test_two_runs_joined_by_their_state_are_one_run(case):
    """Fields and memory, bit for bit, at a step ratio of 1 (sources aside)."""
    e = make(*case, "eager", nt=6)
    start = {k: v for k, v in e.inputs.items() if not k.startswith("source")}
    alone = replace(e, inputs=start, sources={})
    whole = alone.run()
    half = replace(alone, options={**e.options, "nt": 3}).run()
    middle = {k: half[k] for k in start}
    rest = replace(alone, inputs=middle, options={**e.options, "nt": 3}).run()
    for name in start:
        assert torch.equal(rest[name], whole[name]), name
    for name in whole:
        if name.startswith("record"):
            joined = torch.cat([half[name], rest[name]], -1)
            assert torch.equal(joined, whole[name]), name


@every_dimension
def test_one_model_per_shot_equals_separate_runs(case):
    """And shots do not see each other."""
    e = make(*case, "eager", nt=4, per_shot=True)
    together = e.run()
    for shot in (0, 1):
        one = replace(
            e,
            parameters={k: v[shot] for k, v in e.parameters.items()},
            inputs={k: v[shot : shot + 1] for k, v in e.inputs.items()},
            sources={k: v[shot : shot + 1] for k, v in e.sources.items()},
            receivers={k: v[shot : shot + 1] for k, v in e.receivers.items()},
        )
        for name, value in one.run().items():
            torch.testing.assert_close(value[0], together[name][shot], rtol=1e-12, atol=1e-300)


MODULES = {
    "scalar": wavesim.Scalar,
    "acoustic": wavesim.Acoustic,
    "elastic": wavesim.Elastic,
    "maxwell_tm": wavesim.MaxwellTM,
    "maxwell": wavesim.Maxwell,
}


@every_equation
def test_the_module_is_the_function(equation):
    """The same numbers, parameters under their names, and gradients to them."""
    e = small(equation)
    channel = REGISTRY[equation].default_channel
    settings = {**e.options, "receivers": Receivers(e.receivers[channel])}
    settings["sources"] = Sources(e.inputs[f"source {channel}"], e.sources[channel])
    layer = MODULES[equation](*(v.clone() for v in e.parameters.values()), **settings)
    expected = getattr(wavesim, equation)(*e.parameters.values(), **settings).receivers
    got = layer().receivers
    assert torch.equal(got, expected)
    assert [k for k, _ in layer.named_parameters()] == list(e.parameters)
    got.square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in layer.parameters())
    with pytest.raises(TypeError) as error:
        MODULES[equation](*e.parameters.values(), spacings=5.0)
    check(error, "settings", "spacings")


@every_equation
def test_float32_comes_back(equation):
    e = small(equation)
    e = replace(
        e,
        parameters={k: v.float() for k, v in e.parameters.items()},
        inputs={k: v.float() for k, v in e.inputs.items()},
    )
    assert {v.dtype for v in e.run().values()} == {torch.float32}


@every_equation
def test_results_say_where_a_channel_lies(equation):
    """Half a cell up the axes that the field's place says, in cells."""
    e = small(equation)
    receivers = {k: Receivers(at) for k, at in e.receivers.items()}
    out = wavesim.simulate(equation, e.parameters, receivers=receivers, **e.options)
    system = REGISTRY[equation].build(len(e.options["spacing"]))
    for name, terms in system.receivers.items():
        half = system.half[terms[0][0]]
        assert out.offsets[name] == tuple(h / 2 for h in half)


def test_maxwell_needs_no_frequency():
    """Its layers do not depend on one: no warning, no value in the report, none asked for."""
    e = small("maxwell_tm")
    options = {**e.options, "boundary": PML(width=4)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for validate in (True, False):
            out = wavesim.simulate("maxwell_tm", e.parameters, validate=validate, **options)
            assert out.report.boundary_frequency is None


def test_a_frequency_given_for_maxwell_counts():
    """It sets alpha_max = pi frequency there too: the same records as by that number."""
    e = small("maxwell_tm")
    found = []
    start = {k: v for k, v in e.inputs.items() if k.startswith("field")}
    for alpha in ({"frequency": 1e8}, {"alpha_max": math.pi * 1e8}, {}):
        boundary = PML(width=e.options["boundary"].width, **alpha)
        one = replace(e, inputs=start, sources={}, options={**e.options, "boundary": boundary})
        found.append(one.run()["field ey"])
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


@pytest.mark.parametrize("function", [wavesim.maxwell, wavesim.maxwell_tm])
def test_an_unknown_averaging_is_refused(function):
    with pytest.raises(ValueError) as error:
        function(*(torch.ones(4, 4) for _ in range(3)), averaging="geometric", spacing=1.0, dt=1e-9)
    check(error, "averaging", "geometric", "collocated")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"reflection": 1.0}, "reflection"),
        ({"reflection": [0.5, (0.1, 2.0)]}, "reflection"),
        ({"power": 0}, "power"),
        ({"kappa_max": [1.0, 0.5]}, "kappa_max"),
        ({"alpha_max": -1.0}, "alpha_max"),
        ({"alpha_max": [(1.0, float("nan"))]}, "alpha_max"),
        ({"alpha_max": 80.0, "frequency": 25.0}, "alpha_max"),
    ],
)
def test_a_layer_out_of_bounds_is_refused(settings, name):
    with pytest.raises(ValueError) as error:
        PML(width=4, **settings)
    check(error, f"PML.{name}")


def test_settings_by_face_must_fit_the_dimensions():
    e = small("acoustic", 2)
    with pytest.raises(ValueError) as error:
        e.options["boundary"] = PML(width=4, frequency=25.0, power=[2.0, 2.0, 3.0])
        e.run()
    check(error, "PML.power", "2 numbers")
