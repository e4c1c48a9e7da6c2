"""What `autotune` does with calls, how trials are timed, and the command line; without a GPU."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from unit.tuned import LISTED, MACHINE, Bench, plan_of, task_of, tuned

import wavesim
from wavesim import run, trials, tuning
from wavesim.__main__ import main
from wavesim.choice import Card, candidates, default_choice
from wavesim.device import interpreting
from wavesim.tuning import TuningError


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """As on a machine with a GPU: not interpreted, a made-up card, trials that count."""
    monkeypatch.setenv("WAVESIM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(trials, "interpreting", lambda: False)
    monkeypatch.setattr(trials, "machine", lambda device: MACHINE)
    monkeypatch.setattr(trials, "card", lambda device: Card())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    benches = []

    def trial(task, device):
        benches.append(Bench(*range(len(LISTED), 0, -1)))
        return benches[-1]

    monkeypatch.setattr(trials, "Trial", trial)
    yield SimpleNamespace(benches=benches, device=torch.device("cpu"))
    tuning.remembered.cache_clear()


def test_autotune_measures_only_when_told_and_once(compiled):
    """False takes the default, "cached" what is kept, and True measures where nothing is."""
    task, device = task_of(), compiled.device
    default = (default_choice(task.plan, Card()), "default")
    assert trials.choose(task, device, False) == default
    assert trials.choose(task, device, "cached") == default
    assert not compiled.benches
    found = trials.choose(task, device, True)
    assert found == (LISTED[-1], "tuned") and found[0] != default[0]
    assert trials.choose(task, device, "cached") == found
    assert trials.choose(replace(task, plan=plan_of(steps=9)), device, True) == found
    assert trials.choose(task, device, False) == default
    assert len(compiled.benches) == 1


def test_tuning_inside_a_capture_raises(compiled, monkeypatch):
    """With nothing kept there would be something to measure; a kept result is taken."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(TuningError, match=r'autotune: got True inside the capture.*"cached"'):
        trials.choose(task_of(), compiled.device, True)
    assert not compiled.benches
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    found = trials.choose(task_of(), compiled.device, True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert trials.choose(task_of(), compiled.device, True) == found


@pytest.mark.skipif(not interpreting(), reason="needs TRITON_INTERPRET=1")
def test_a_call_tunes_both_directions_before_it_runs(compiled, monkeypatch):
    """Backward measures nothing of its own; without a gradient only forward is tuned."""
    monkeypatch.setattr(run, "interpreting", lambda: False)
    monkeypatch.setattr(tuning, "search", search := Mock(side_effect=second_is_best))
    v = torch.full((12, 9), 1500.0)
    settings = {**SETTINGS, "boundary": wavesim.PML(width=2, frequency=25.0), "backend": "triton"}
    report = wavesim.scalar(v, autotune=True, **settings).report
    assert report.choice_source == "tuned" and search.call_count == 1
    assert report.choice == candidates(plan_of(shots=1), Card())[1]
    assert wavesim.scalar(v, autotune=False, **settings).report.choice_source == "default"
    out = wavesim.scalar(v.requires_grad_(), autotune=True, **settings)
    assert search.call_count == 3
    out.state.fields["u"].sum().backward()
    found = wavesim.tune("scalar", {"v": v}, progress=False, **settings)
    assert search.call_count == 3, "tune and a call have the same keys"
    assert list(found) == ["forward", "forward with history", "adjoint with history"]
    directions = {tuning.direction(k.adjoint, k.history) for _, k, _ in
                  tuning.kept(tuning.cache_folder())}  # fmt: skip
    assert directions == set(found)


def second_is_best(listed, bench, **settings) -> tuning.Tuned:
    return tuning.Tuned(listed[1], (tuning.Measured(listed[1], 1e-6),), "today")


@pytest.fixture
def clocked(monkeypatch):
    """A trial whose every step takes 10 us on a made-up clock."""
    made = []

    def of(task, device, steps):
        made.append(steps)
        plan = replace(task.plan, steps=steps)
        return SimpleNamespace(task=replace(task, plan=plan), run=lambda choice: None)

    monkeypatch.setattr(trials.Scratch, "of", of)
    monkeypatch.setattr(
        trials.Trial, "_seconds", lambda self, scratch, choice: 1e-5 * scratch.task.plan.steps
    )
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**34, 2**37))
    return made


def test_trials_take_as_many_steps_as_a_clock_needs(clocked):
    """A run of about `SECONDS`, the same for every candidate; fewer where a history is kept."""
    trial = trials.Trial(task_of(), torch.device("cpu"))
    assert trial.time(LISTED[0]) == pytest.approx(1e-5)
    assert trials.SECONDS / 2 <= 1e-5 * clocked[-1] <= trials.SECONDS
    assert trial.time(LISTED[1]) == pytest.approx(1e-5) and len(clocked) <= 5
    keeping = replace(task_of(n=3000), history=True)
    row = 4 * 2 * 3040**2
    trials.Trial(keeping, torch.device("cpu")).time(LISTED[0])
    assert clocked[-1] == trials.HISTORY_BYTES // row


def test_no_device_memory_is_told_with_what_to_do(clocked, monkeypatch):
    def of(task, device, steps):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trials.Scratch, "of", of)
    with pytest.raises(TuningError, match=r"no room for scratch tensors.*before the model is"):
        trials.Trial(task_of(), torch.device("cpu")).time(LISTED[0])


SETTINGS = {"spacing": [5.0, 5.0], "dt": 5e-4, "nt": 3, "boundary": wavesim.PML(frequency=25.0)}


@pytest.mark.parametrize("value", [None, 1, "always", "True"])
def test_autotune_is_true_false_or_cached(value):
    with pytest.raises(ValueError, match=r"autotune: got .*, expected True, False or"):
        wavesim.scalar(torch.full((9, 9), 1500.0), autotune=value, **SETTINGS)


def test_there_is_nothing_to_tune_on_the_eager_backend():
    """True raises and says what to do; the others are how every backend runs."""
    v = torch.full((9, 9), 1500.0)
    with pytest.raises(
        ValueError, match=r"autotune: got True with the eager backend .*Use tensors"
    ):
        wavesim.scalar(v, autotune=True, **SETTINGS)
    with pytest.raises(ValueError, match="autotune"):
        wavesim.tune("scalar", {"v": v}, **SETTINGS)
    for value in (False, "cached"):
        report = wavesim.scalar(v, autotune=value, **SETTINGS).report
        assert report.choice is None and report.choice_source is None


def test_the_command_line_lists_and_clears(tmp_path, capsys):
    tuned(tmp_path, Bench(2e-6, 1e-6), count=2)
    assert main(["tune", "--list", "--folder", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "scalar 340x340 2 shots order 4 float32 forward: 1 us a step, best of 2" in text
    assert main(["tune", "--clear", "--folder", str(tmp_path)]) == 0
    assert "1 results deleted" in capsys.readouterr().out
    assert not list(tuning.kept(tmp_path))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_the_command_line_says_that_there_is_no_gpu(capsys):
    assert main(["tune", "--shape", "30", "30"]) == 1
    assert "there is no GPU" in capsys.readouterr().err


def test_the_command_line_wants_a_shape(capsys):
    assert main(["tune"]) == 1
    assert "--shape: got nothing" in capsys.readouterr().err
