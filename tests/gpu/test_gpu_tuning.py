"""Tuning on a GPU: what it finds changes no bit, and it measures once."""

from __future__ import annotations

import time

import pytest
import torch

import wavesim
from wavesim import trials, tuning
from wavesim.choice import candidates
from wavesim.device import card
from wavesim.tuning import TuningError


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Results of these tests stay apart from the user's."""
    monkeypatch.setenv("WAVESIM_CACHE_DIR", str(tmp_path))
    yield
    tuning.remembered.cache_clear()


def run(gpu: torch.device, autotune: bool | str) -> tuple[list[torch.Tensor], wavesim.Report]:
    """(records, state and gradients, report) of a call with layers, 100 steps."""
    rng = torch.Generator().manual_seed(3)
    v = (1500 + 1000 * torch.rand(150, 230, generator=rng)).to(gpu).requires_grad_()
    amplitudes = torch.randn(2, 1, 100, generator=rng).to(gpu).requires_grad_()
    at = torch.tensor([[[5, 20], [70, 100]], [[7, 200], [90, 31]]], device=gpu)
    out = wavesim.scalar(
        v,
        spacing=5.0,
        dt=5e-4,
        sources=wavesim.Sources(amplitudes, at[:, :1]),
        receivers=wavesim.Receivers(at),
        boundary=wavesim.PML(frequency=25.0),
        autotune=autotune,
    )
    loss = out.receivers.square().sum() + out.state.fields["u"].sum()
    gradients = torch.autograd.grad(loss, [v, amplitudes])
    return [out.receivers.detach(), out.state.fields["u"].detach(), *gradients], out.report


def test_a_tuned_call_gives_the_bits_of_an_untuned_one_and_tunes_once(gpu, monkeypatch):
    """Both directions are measured in the first call, and nothing in the second."""
    searches = []
    search = tuning.search

    def counted(*arguments, **settings):
        start = time.monotonic()
        found = search(*arguments, **settings)
        searches.append((time.monotonic() - start, found))
        return found

    monkeypatch.setattr(tuning, "search", counted)
    expected, plain = run(gpu, False)
    got, report = run(gpu, True)
    assert (plain.choice_source, report.choice_source) == ("default", "tuned")
    assert len(searches) == 2
    for seconds, found in searches:
        assert seconds < 30
        assert all(m.error is None for m in found.measured), found.measured
    again, second = run(gpu, True)
    cached, third = run(gpu, "cached")
    assert len(searches) == 2
    assert report.choice == second.choice == third.choice
    for a, b, c, d in zip(expected, got, again, cached, strict=True):
        assert torch.equal(a, b) and torch.equal(a, c) and torch.equal(a, d)


def test_every_candidate_gives_the_same_bits(gpu, monkeypatch):
    """Each one for both directions of a call with layers."""
    expected, _ = run(gpu, False)
    for number in range(12):

        def choose(task, device, autotune, number=number):
            listed = candidates(task.plan, card(device), adjoint=task.adjoint, history=task.history)
            return listed[number % len(listed)], "tuned"

        monkeypatch.setattr(trials, "choose", choose)
        got, report = run(gpu, False)
        for a, b in zip(expected, got, strict=True):
            assert torch.equal(a, b), report.choice


def test_tuning_leaves_the_callers_random_numbers_alone(gpu):
    state = torch.cuda.get_rng_state(gpu)
    run(gpu, True)
    assert torch.equal(state, torch.cuda.get_rng_state(gpu))


def test_a_capture_takes_what_was_tuned_and_measures_nothing(gpu):
    """Inside a capture True raises while nothing is kept, and works once something is."""
    v = torch.full((60, 80), 2000.0, device=gpu)
    settings = {"spacing": [5.0, 5.0], "dt": 5e-4, "max_velocity": 2000.0, "validate": False}
    settings |= {"boundary": wavesim.PML(frequency=25.0), "nt": 20, "autotune": True}
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        try:
            with pytest.raises(TuningError, match="inside the capture"):
                wavesim.scalar(v, **settings)
        finally:
            graph.capture_end()
    wavesim.scalar(v, **settings)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        wavesim.scalar(v, **settings)


def test_tune_ahead_of_a_call(gpu):
    """`wavesim.tune` finds for the same key what a call then takes from the cache."""
    v = torch.full((60, 80), 2000.0, device=gpu)
    settings = {"spacing": [5.0, 5.0], "dt": 5e-4, "boundary": wavesim.PML(frequency=25.0)}
    found = wavesim.tune("scalar", {"v": v}, gradient=True, progress=False, nt=1, **settings)
    assert list(found) == ["forward", "forward with history", "adjoint with history"]
    report = wavesim.scalar(v, nt=50, **settings).report
    assert report.choice_source == "tuned" and report.choice == found["forward"].choice
