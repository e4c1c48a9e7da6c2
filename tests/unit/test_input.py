"""Wrong input raises at the call: the message names argument, got, expected and remedy."""

from __future__ import annotations

import gc
import math
import re
import warnings
import weakref

import pytest
import torch

import wavesim
from wavesim import IGNORE, PML, History, Receivers, Resampling, Sources, State, scalar, simulate
from wavesim.cfl import largest_stable_dt

NT = 6
BOUNDARY = PML(width=2, frequency=25.0)


def ints(*points: tuple[int, ...]) -> torch.Tensor:
    """Locations [1, point, axis]."""
    return torch.tensor([points])


def sources(**changes) -> Sources:
    settings = {"amplitudes": torch.ones(1, 1, NT), "locations": ints((2, 3))} | changes
    return Sources(**settings)


def call(**changes) -> wavesim.Result:
    """A small valid call, but for the changes."""
    settings = {
        "v": torch.full((7, 9), 1500.0),
        "spacing": 5.0,
        "dt": 5e-4,
        "sources": sources(),
        "receivers": Receivers(ints((1, 1))),
        "boundary": BOUNDARY,
    } | changes
    return scalar(settings.pop("v"), **settings)


def check(error: pytest.ExceptionInfo, *parts: str) -> None:
    """The message has the form of every error, ``argument: got .., expected ..``, and the parts."""
    text = str(error.value)
    assert re.match(r"\S.*?: got .+, expected .+\.", text), text
    for part in parts:
        assert part in text, f"{part!r} not in {text!r}"


def with_value(tensor: torch.Tensor, value: float) -> torch.Tensor:
    out = tensor.clone()
    out.flatten()[-1] = value
    return out


def test_the_valid_call_is_valid():
    """So that every test below fails for the one thing it changes."""
    assert call().receivers.shape == (1, 1, NT)


@pytest.mark.parametrize(
    ("changes", "error", "parts"),
    [
        # model
        ({"v": 1500.0}, TypeError, ("v: got float", "a torch.Tensor")),
        ({"v": torch.full((7,), 1500.0)}, ValueError, ("v:", "shape [7]", "2 axes", "locations")),
        ({"v": torch.full((1, 1, 7, 9), 1500.0)}, ValueError, ("v:", "[1, 1, 7, 9]", "3 with")),
        ({"v": torch.empty(0, 9)}, ValueError, ("v:", "[0, 9]", "at least one cell")),
        ({"v": torch.full((3, 7, 9), 1500.0)}, ValueError, ("v (leading axis)", "3 shots", "1 as")),
        ({"v": torch.full((7, 9), 1500)}, TypeError, ("v:", "torch.int64", "float32", ".float()")),
        ({"v": torch.full((7, 9), 1500.0).half()}, TypeError, ("v:", "float16", ".float()")),
        ({"v": torch.full((7, 9), 1500.0).bfloat16()}, TypeError, ("v:", "bfloat16", "float64")),
        ({"v": torch.full((7, 9), math.nan)}, ValueError, ("v:", "not finite", "finite numbers")),
        ({"v": torch.full((7, 9), math.inf)}, ValueError, ("v:", "not finite")),
        (
            {"v": with_value(torch.full((7, 9), 1500.0), 0.0)},
            ValueError,
            ("v:", "smallest value of 0.0", "above 0.0 m/s"),
        ),
        (
            {"v": with_value(torch.full((7, 9), 1500.0), -3.0)},
            ValueError,
            ("v:", "smallest value of -3.0", "above 0.0 m/s"),
        ),
        # one dtype, one device
        (
            {"v": torch.full((7, 9), 1500.0, dtype=torch.float64)},
            TypeError,
            ("sources['u'].amplitudes", "float32", "float64 as v", "nothing is cast silently"),
        ),
        (
            {"v": torch.full((7, 9), 1500.0, device="meta")},
            ValueError,
            ("sources['u'].amplitudes", "cpu", "meta as v", ".to()"),
        ),
        (
            {"receivers": Receivers(ints((1, 1)).to("meta"))},
            ValueError,
            ("receivers['u'].locations", "meta", "cpu as v", ".to()"),
        ),
        # grid and time
        ({"spacing": (5.0, 5.0, 5.0)}, ValueError, ("spacing", "one number or 2", "per axis")),
        ({"spacing": 0.0}, ValueError, ("spacing", "positive lengths in metres")),
        ({"spacing": (5.0, -5.0)}, ValueError, ("spacing", "-5.0", "positive lengths")),
        ({"spacing": math.nan}, ValueError, ("spacing", "nan", "positive lengths")),
        ({"dt": 0.0}, ValueError, ("dt", "0.0", "a positive number of seconds")),
        ({"dt": -1e-3}, ValueError, ("dt", "-0.001", "a positive number of seconds")),
        ({"dt": math.nan}, ValueError, ("dt", "nan", "a positive number of seconds")),
        ({"order": 5}, ValueError, ("order", "5", "(2, 4, 6, 8)")),
        ({"nt": NT + 1}, ValueError, ("sources['u'].amplitudes", f"{NT} time samples", "7")),
        ({"nt": 0, "sources": None}, ValueError, ("nt", "0", "at least 1")),
        ({"nt": 2.5, "sources": None}, ValueError, ("nt", "2.5", "a whole number")),
        ({"nt": True, "sources": None}, ValueError, ("nt", "True", "a whole number")),
        ({"sources": None}, ValueError, ("nt", "None", "a number of steps", "without sources")),
        (
            {"sources": None, "receivers": None, "nt": 3},
            ValueError,
            ("spacing", "number of dimensions", "spacing=[5.0, 5.0]"),
        ),
        ({"max_velocity": 1000.0}, ValueError, ("max_velocity", "1000.0", "1500.0")),
        ({"max_velocity": -1.0}, ValueError, ("max_velocity", "-1.0", "positive speed in m/s")),
        ({"max_velocity": math.nan}, ValueError, ("max_velocity", "nan", "positive speed")),
        # sources and receivers
        (
            {"sources": sources(amplitudes=torch.full((1, 1, NT), math.nan))},
            ValueError,
            ("sources['u'].amplitudes", "not finite", "finite numbers everywhere"),
        ),
        ({"sources": torch.ones(3)}, TypeError, ("sources", "Tensor", "a wavesim.Sources")),
        ({"receivers": ints((1, 1))}, TypeError, ("receivers", "Tensor", "a wavesim.Receivers")),
        ({"sources": {"p": sources()}}, ValueError, ("sources", "channel 'p'", "['u']")),
        (
            {"receivers": {"vx": Receivers(ints((1, 1)))}},
            ValueError,
            ("receivers", "channel 'vx'", "['u']"),
        ),
        ({"receivers": {"u": None}}, TypeError, ("receivers['u']", "NoneType", "Receivers")),
        (
            {"receivers": Receivers(ints((1, 1, 1)))},
            ValueError,
            ("receivers['u'].locations", "3 coordinates", "2, as the other locations"),
        ),
        (
            {"receivers": Receivers(torch.zeros(2, 1, 2, dtype=torch.int64))},
            ValueError,
            ("receivers['u'].locations", "2 shots", "1 as sources['u'].locations"),
        ),
        (
            {"receivers": Receivers(ints((1, 9)))},
            ValueError,
            ("receivers['u'].locations[shot 0, point 0, axis 1]", "got 9", "0..8", "not metres"),
        ),
        # options
        ({"boundary": 20}, TypeError, ("boundary", "int", "a wavesim.PML")),
        (
            {"boundary": PML(width=2, frequency=25.0, kappa_max=2.0)},
            ValueError,
            ("PML.kappa_max", "2.0", "1", "no stretching"),
        ),
        (
            {"boundary": PML(width=[1, 2, 3], frequency=25.0)},
            ValueError,
            ("PML.width", "(1, 2, 3)", "2 numbers or (low, high) pairs"),
        ),
        ({"resampling": 3}, TypeError, ("resampling", "int", "a wavesim.Resampling")),
        ({"history": "device"}, TypeError, ("history", "str", "a wavesim.History")),
        ({"initial": {"u": 1}}, TypeError, ("initial", "dict", "a wavesim.State")),
        ({"backend": "cuda"}, ValueError, ("backend", "'cuda'", "('auto', 'triton', 'eager')")),
        # initial state
        (
            {"initial": State({"u": torch.zeros(1, 7, 8)})},
            ValueError,
            ("initial.fields['u']", "[1, 7, 8]", "[1, 11, 13] (with the layers)", "[1, 7, 9]"),
        ),
        (
            {"initial": State({"p": torch.zeros(1, 7, 9)})},
            ValueError,
            ("initial.fields", "['p']", "['u', 'um1']"),
        ),
        (
            {"initial": State({"u": torch.zeros(1, 7, 9, dtype=torch.float64)})},
            TypeError,
            ("initial.fields['u']", "float64", "float32 as v"),
        ),
        (
            {"initial": State({"u": torch.full((1, 7, 9), math.nan)})},
            ValueError,
            ("initial.fields['u']", "not finite"),
        ),
        (
            {"initial": State({"u": torch.zeros(2, 7, 9)})},
            ValueError,
            ("initial.fields['u']", "2 shots", "1 as sources"),
        ),
        (
            {"initial": State(memory=(torch.zeros(1, 4, 13),))},
            ValueError,
            ("initial.memory", "[1, 4, 13]", "(1, 11, 4)"),
        ),
        (
            {"initial": State(ratio=3)},
            ValueError,
            ("initial", "a step ratio of 3", "1, the ratio of this call", "max_velocity"),
        ),
        # what validate=False cannot read back
        ({"validate": False}, ValueError, ("max_velocity", "None", "m/s", "validate=False")),
        (
            {"validate": False, "max_velocity": 1500.0, "boundary": PML(width=2)},
            ValueError,
            ("PML.frequency", "None", "a frequency in Hz", "validate=False"),
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_a_wrong_call_raises_and_says_why(changes, error, parts):
    """Argument, got, expected and remedy stand in the message."""
    with pytest.raises(error) as caught:
        call(**changes)
    check(caught, *parts)


@pytest.mark.parametrize(
    ("build", "error", "parts"),
    [
        (
            lambda: sources(locations=torch.tensor([[[2.0, 3.5]]])),
            TypeError,
            ("Sources.locations", "float32", "not supported yet", "round to cell indices"),
        ),
        (
            lambda: Receivers(torch.rand(1, 1, 2)),
            TypeError,
            ("Receivers.locations", "float32", "not supported yet"),
        ),
        (
            lambda: Receivers([[[1, 2]]]),
            TypeError,
            ("Receivers.locations", "list", "a torch.Tensor"),
        ),
        (
            lambda: Receivers(torch.zeros(4, 2, dtype=torch.int64)),
            ValueError,
            ("Receivers.locations", "shape [4, 2]", "3 axes"),
        ),
        (
            lambda: Receivers(torch.zeros(1, 1, 4, dtype=torch.int64)),
            ValueError,
            ("Receivers.locations", "4 coordinates", "1 to 3 axes"),
        ),
        (
            lambda: Receivers(torch.zeros(1, 1, 2, dtype=torch.bool)),
            TypeError,
            ("Receivers.locations", "torch.bool", "int64"),
        ),
        (
            lambda: sources(amplitudes=torch.ones(1, 1, NT).half()),
            TypeError,
            ("Sources.amplitudes", "torch.float16", "dtype float32, float64", ".to(torch.float32)"),
        ),
        (
            lambda: sources(amplitudes=torch.ones(1, NT)),
            ValueError,
            ("Sources.amplitudes", f"shape [1, {NT}]", "3 axes"),
        ),
        (
            lambda: sources(amplitudes=torch.ones(1, 2, NT)),
            ValueError,
            ("Sources.amplitudes", f"shape [1, 2, {NT}]", "[1, 1, time]", "each location"),
        ),
        (lambda: PML(width=-1), ValueError, ("PML.width", "-1", "at least 0")),
        (lambda: PML(width=2.5), ValueError, ("PML.width", "2.5", "whole numbers")),
        (lambda: PML(width=True), ValueError, ("PML.width", "True", "whole numbers")),
        (lambda: PML(frequency=-1.0), ValueError, ("PML.frequency", "-1.0", "at least 0")),
        (lambda: PML(frequency=math.nan), ValueError, ("PML.frequency", "nan", "a number of Hz")),
        (lambda: PML(reflection=0.0), ValueError, ("PML.reflection", "0.0", "(0, 1)")),
        (lambda: PML(reflection=1.0), ValueError, ("PML.reflection", "1.0", "(0, 1)")),
        (lambda: PML(power=0.0), ValueError, ("PML.power", "0.0", "positive")),
        (lambda: PML(kappa_max=0.5), ValueError, ("PML.kappa_max", "0.5", "at least 1")),
        (lambda: Resampling(taper=1.0), ValueError, ("Resampling.taper", "1.0", "[0, 1)")),
        (lambda: Resampling(padding=-1), ValueError, ("Resampling.padding", "-1", "at least 0")),
        (lambda: History(segments=0), ValueError, ("History.segments", "0", "at least 1")),
        (
            lambda: simulate("light", {}, spacing=[1.0], dt=1.0),
            ValueError,
            ("equation", "'light'", "'scalar'"),
        ),
        (
            lambda: simulate("scalar", {"c": torch.ones(3)}, spacing=[1.0], dt=1.0),
            ValueError,
            ("parameters", "['c']", "['v']"),
        ),
        (
            lambda: simulate("scalar", {"v": torch.ones(3)}, spacing=[1.0], dt=1.0, ordre=2),
            TypeError,
            ("options", "['ordre']", "'order'"),
        ),
    ],
)
def test_a_wrong_object_raises_when_it_is_built(build, error, parts):
    with pytest.raises(error) as caught:
        build()
    check(caught, *parts)


@pytest.mark.parametrize("value", [-1, 7, IGNORE])
@pytest.mark.parametrize("kind", ["sources", "receivers"])
def test_an_outside_point_is_named_by_shot_point_axis_and_value(kind, value):
    """The second point of the second shot leaves the grid along axis 0.

    An entry of IGNORE beside an ordinary one is an outside point too, not a half-used slot.
    """
    locations = torch.ones(2, 3, 2, dtype=torch.int64)
    locations[1, 1, 0] = value
    good = torch.ones(2, 3, 2, dtype=torch.int64)
    where = {"sources": good, "receivers": good} | {kind: locations}
    with pytest.raises(ValueError) as caught:
        call(
            sources=Sources(torch.ones(2, 3, NT), where["sources"]),
            receivers=Receivers(where["receivers"]),
        )
    check(
        caught,
        f"{kind}['u'].locations[shot 1, point 1, axis 0]",
        f"got {value}",
        "a cell in 0..6",
        "not metres",
        "IGNORE",
    )


def test_a_step_too_large_is_refused_by_its_limit():
    """With substeps=False the message names the largest dt, and that dt is accepted."""
    with pytest.raises(ValueError) as caught:
        call(dt=3e-3, substeps=False)
    largest = largest_stable_dt(1500.0, (5.0, 5.0))
    check(caught, "dt", "got 0.003", f"{largest:.6g} s", "Reduce dt", "substeps=True")
    named = float(re.search(r"at most (\S+) s", str(caught.value))[1])
    assert call(dt=named * (1 - 1e-5), substeps=False).report.step_ratio == 1


def test_many_internal_steps_warn_and_name_the_alternative():
    with pytest.warns(UserWarning, match="internal steps each; .* s would take one"):
        call(dt=2e-2)


def test_a_frequency_that_cannot_be_inferred_warns():
    """Without sources and without PML.frequency the layers say that they guess."""
    with pytest.warns(UserWarning, match=r"PML.frequency cannot be inferred"):
        call(sources=None, nt=2, boundary=PML(width=2))


def test_a_valid_call_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call()


@pytest.mark.parametrize("name", ["pml_width", "accuracy", "ordre"])
def test_an_unknown_option_is_refused_by_python_itself(name):
    with pytest.raises(TypeError, match=name):
        call(**{name: 4})


def test_a_module_refuses_unknown_settings_when_it_is_built():
    """Not at its first forward call, which may come an hour later."""
    with pytest.raises(TypeError, match="ordre"):
        wavesim.Scalar(torch.ones(3, 3), ordre=4)


def test_triton_on_the_cpu_without_the_interpreter_says_what_to_do(monkeypatch):
    """An explicit backend that cannot be had raises with the reason; nothing falls back."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(RuntimeError) as caught:
        call(backend="triton")
    text = str(caught.value)
    assert text.startswith("backend: got 'triton', but")
    assert "'auto'" in text and "backend='eager'" in text


def test_auto_on_the_cpu_is_eager_and_says_why():
    report = call().report
    assert (report.backend, report.reason) == ("eager", "auto: the tensors are on the CPU")


def test_options_of_frozen_objects_cannot_be_changed_later():
    """A setting that reads back and does nothing is worse than an error."""
    with pytest.raises(AttributeError):
        BOUNDARY.width = 5


def test_autocast_does_not_reach_the_run():
    """Half precision comes in by the tensors only: under autocast the numbers are the same."""
    want = call().receivers
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = call().receivers
    assert got.dtype == torch.float32
    assert torch.equal(got, want)


def test_validate_false_runs_when_all_is_given():
    """The same bits as with validation, once speed and frequency are named."""
    fixed = {"max_velocity": 1500.0}
    assert torch.equal(call(validate=False, **fixed).receivers, call(**fixed).receivers)


ONE = Sources(torch.ones(1, 1, 1), ints((2, 3)))


@pytest.mark.parametrize(
    ("first", "second", "part"),
    [
        ({}, {"v": torch.ones(7, 9).double()}, "float64"),
        ({}, {"v": torch.ones(1, 1, 7, 9)}, "shape"),
        ({"sources": ONE, "nt": 1}, {"sources": ONE, "nt": True}, "nt"),
        ({"sources": ONE, "nt": 1}, {"sources": ONE, "nt": [1]}, "nt"),
        ({}, {"order": [4]}, "order"),
        ({"autotune": False}, {"autotune": 0}, "autotune"),
        ({}, {"receivers": Receivers(ints((1, 1, 1)))}, "coordinates"),
        ({}, {"sources": {"w": sources()}}, "channel"),
        ({"max_velocity": 1e4}, {"max_velocity": -1e4}, "max_velocity"),
    ],
    ids=str,
)
def test_a_call_is_checked_anew_unless_it_is_like_one_before(first, second, part):
    call(**first)
    with pytest.raises((TypeError, ValueError)) as error:
        call(**second)
    check(error, part)


def test_the_likeness_of_calls_keeps_no_tensor():
    v = torch.full((7, 9), 1500.0)
    call(v=v)
    kept = weakref.ref(v)
    del v
    gc.collect()
    assert kept() is None
