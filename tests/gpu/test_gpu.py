"""The compiled kernels on a GPU: parity with the eager reference, repeatability, streams."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import rms_ratio
from parity.cases import Case, poison, run

import wavesim
from benchmarks import host
from benchmarks.cases import Case as Benchmark
from benchmarks.cases import Experiment
from wavesim import buffers, trials
from wavesim.choice import default_choice
from wavesim.triton_kernels import graph, launch

W2, W3 = ((20, 20), (20, 20)), ((8, 9), (7, 8), (10, 6))
CASES = [
    Case((37,), 4, ((4, 5),), nt=100),
    Case((1000,), 8, ((20, 0),), nt=60),
    *(Case((37, 53), p, ((5, 0), (8, 11)), nt=100) for p in (2, 4, 6, 8)),
    Case((211, 307), 4, W2, shots=3, nt=100),
    Case((211, 307), 8, W2, shots=3, nt=100, batched=True),
    Case((400, 700), 4, W2, shots=2, nt=60),
    Case((1, 300), 4, ((3, 0), (20, 20)), nt=60),
    *(Case((19, 23, 29), p, W3, nt=60) for p in (2, 4, 6, 8)),
    Case((61, 47, 131), 4, W3, nt=40),
    Case((61, 47, 131), 8, W3, nt=40, batched=True),
]
BOUND = {torch.float64: 3e-14, torch.float32: 2e-5}
"""Worst seen on an H200: 1.1e-14 (gradient of psi) and 6.1e-6 (gradient of v)."""


def log(row: dict) -> None:
    """Keep the measured errors where WAVESIM_PARITY_LOG names a file."""
    path = os.environ.get("WAVESIM_PARITY_LOG")
    if path:
        with Path(path).open("a") as out:
            out.write(json.dumps(row) + "\n")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_triton_equals_eager_on_the_gpu(case, dtype, gpu):
    """RMS ratio of outputs and every gradient against the float64 eager reference."""
    expected = run(case, "eager", torch.float64, gpu)
    got = run(case, "triton", dtype, gpu)
    worst = {}
    for ours, theirs in zip(got, expected, strict=True):
        worst |= {name: rms_ratio(ours[name], theirs[name]) for name in theirs}
    log({"case": case.id, "dtype": str(dtype), "errors": worst})
    assert max(worst.values()) < BOUND[dtype], worst


@pytest.mark.parametrize("case", [CASES[6], CASES[-2]], ids=lambda c: c.id)
def test_ten_runs_give_the_same_bits(case, gpu):
    """No order of additions is left to chance."""
    first = run(case, "triton", torch.float32, gpu)
    for _ in range(9):
        again = run(case, "triton", torch.float32, gpu)
        for ours, theirs in zip(again, first, strict=True):
            assert all(torch.equal(ours[k], theirs[k]) for k in theirs)


def test_two_streams_give_the_bits_of_two_serial_calls(gpu):
    """Nothing is shared between calls, on whichever stream they run."""
    a, b = CASES[6], CASES[8]
    serial = [run(c, "triton", torch.float32, gpu) for c in (a, b)]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    found = []
    for stream, case in zip(streams, (a, b), strict=True):
        with torch.cuda.stream(stream):
            found.append(run(case, "triton", torch.float32, gpu))
    torch.cuda.synchronize()
    for ours, theirs in zip(found, serial, strict=True):
        for x, y in zip(ours, theirs, strict=True):
            assert all(torch.equal(x[k], y[k]) for k in y)


def test_auto_takes_triton_on_a_gpu(gpu):
    """The report says which backend ran and how many kernels it launched."""
    v = torch.full((30, 40), 2000.0, device=gpu)
    out = wavesim.scalar(v, spacing=[5.0, 5.0], dt=5e-4, nt=7, boundary=wavesim.PML(frequency=25.0))
    assert out.report.backend == "triton"
    assert out.report.kernel_launches == 1


def test_poisoned_allocations_change_nothing(gpu, monkeypatch):
    """Every cell that is read was written: NaN-filled allocations give the same bits."""
    expected = run(CASES[6], "triton", torch.float32, gpu)
    poison(monkeypatch)
    got = run(CASES[6], "triton", torch.float32, gpu)
    for ours, theirs in zip(got, expected, strict=True):
        assert all(torch.equal(ours[k], theirs[k]) for k in theirs)


def force(monkeypatch, **changes) -> None:
    """Run the default choice with some of it changed."""

    def chosen(plan, card, **direction):
        found = replace(default_choice(plan, card, **direction), **changes)
        return replace(found, shots=min(found.shots, plan.shots))

    monkeypatch.setattr(trials, "default_choice", chosen)


FORCED = [
    {"mode": "steps"},
    {"mode": "graph"},
    {"mode": "loop", "shots": 9},
    {"mode": "loop", "shots": 2},
    {"mode": "loop", "shots": 1},  # a tile for every program
    {"mode": "loop", "programs": 1},
    {"mode": "loop", "programs": 7, "warps": 2},
    {"mode": "loop", "interior": (1, 16, 64), "boundary": (1, 4, 32)},
    {"mode": "graph", "fastest": "tile"},
    {"mode": "graph", "registers": 40},
    {"mode": "graph", "shots": 1, "interior": (1, 4, 128), "boundary": (1, 4, 64), "warps": 8},
]


@pytest.mark.parametrize("changes", FORCED, ids=str)
def test_no_choice_changes_a_bit(changes, gpu, monkeypatch):
    """Every launch mode, block shape and grouping of shots gives the bits of the untuned choice."""
    case = CASES[6]
    expected = run(case, "triton", torch.float32, gpu)
    force(monkeypatch, **changes)
    found = run(case, "triton", torch.float32, gpu)
    for ours, theirs in zip(found, expected, strict=True):
        assert all(torch.equal(ours[k], theirs[k]) for k in theirs)


@pytest.mark.parametrize("equation", ["scalar", "elastic"])
def test_coefficients_saved_once_change_no_bit(equation, gpu, monkeypatch):
    """As large runs save them, see `tests/parity/test_saved.py`."""
    experiment = Experiment(Benchmark(equation, (13, 23, 39), 1, 30), True, gpu)
    expected = [experiment.run()[0], *(g.clone() for g in experiment.gradients().values())]
    monkeypatch.setattr(buffers, "PACKED", 0)
    found = [experiment.run()[0], *experiment.gradients().values()]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("mode", ["loop", "graph", "steps"])
def test_the_host_stays_close_to_the_device(mode, gpu, monkeypatch):
    """It waits for the last part but two; that changes no bit."""
    force(monkeypatch, mode=mode)
    experiment = Experiment(Benchmark("scalar", (60, 70), 2, 100), True, "cuda")
    expected = [experiment.run()[0], *experiment.gradients().values()]
    expected = [t.clone() for t in expected]
    waited, wait = [], torch.cuda.Event.synchronize
    monkeypatch.setattr(torch.cuda.Event, "synchronize", lambda e: (waited.append(e), wait(e)))
    for module in (graph, launch):
        monkeypatch.setattr(module, "PART_CELLS", 1)
    found = [experiment.run()[0], *experiment.gradients().values()]
    parts = {"loop": 50, "graph": 25, "steps": 100}[mode]
    assert len(waited) == 2 * (parts - graph.AHEAD)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("mode", "nt", "launches", "steps"),
    [("graph", 100, 100, 80), ("graph", 33, 33, 0), ("steps", 9, 9, 0), ("loop", 100, 1, 0)],
)
def test_the_report_tells_the_launches(mode, nt, launches, steps, gpu, monkeypatch):
    force(monkeypatch, mode=mode)
    v = torch.full((30, 40), 2000.0, device=gpu)
    settings = {"spacing": [5.0, 5.0], "dt": 5e-4, "boundary": wavesim.PML(frequency=25.0)}
    report = wavesim.scalar(v, nt=nt, **settings).report
    assert (report.kernel_launches, report.graph_steps) == (launches, steps)


@pytest.mark.parametrize("equation", ["scalar", "acoustic", "elastic", "maxwell_tm"])
def test_a_call_without_checks_never_waits_for_the_device(equation, gpu):
    """Forward and backward of a second call with validate=False, in PyTorch's own count."""
    once = host.call(Experiment(Benchmark(equation, (60, 70), 2, 60), True, "cuda"), False)
    once()
    assert host.synchronisations(once) == 0


def test_a_call_can_be_captured_by_the_user(gpu):
    """Inside a capture of the caller's own, a call of known settings only launches kernels."""
    v = torch.full((30, 40), 2000.0, device=gpu)
    u = torch.randn(1, 30, 40, device=gpu)
    at = torch.tensor([[[3, 4]]], device=gpu)

    def call() -> wavesim.Result:
        return wavesim.scalar(
            v,
            spacing=[5.0, 5.0],
            dt=5e-4,
            nt=100,
            receivers=wavesim.Receivers(at),
            initial=wavesim.State({"u": u}),
            boundary=wavesim.PML(width=5, frequency=25.0),
            max_velocity=2000.0,
            validate=False,
        )

    expected = call()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = call()
    u.mul_(2)
    captured.replay()
    assert torch.allclose(out.receivers, 2 * expected.receivers, rtol=1e-6)
    ours, theirs = out.state.fields["u"], 2 * expected.state.fields["u"]
    assert torch.allclose(ours, theirs, rtol=1e-6, atol=1e-6 * theirs.abs().max().item())


@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
def test_a_state_can_be_read_late_on_another_stream(gpu, gradient):
    """It waits in the run's buffers, which no later call gets; read, it is the one read at once."""
    u = torch.randn(1, 70, 80, device=gpu)

    def call(scale: float) -> wavesim.Result:
        v = torch.full((70, 80), 2000.0, device=gpu, requires_grad=gradient)
        initial, layer = wavesim.State({"u": scale * u}), wavesim.PML(width=5, frequency=25.0)
        return wavesim.scalar(v, spacing=[5.0] * 2, dt=5e-4, nt=51, initial=initial, boundary=layer)

    at_once = call(1.0).state
    late, side = call(1.0), torch.cuda.Stream()
    others = [call(float(n)) for n in range(2, 5)]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        state = late.state
    del late
    others += [call(float(n)) for n in range(2, 5)]
    torch.cuda.synchronize()
    assert all(torch.equal(state.fields[k], at_once.fields[k]) for k in at_once.fields)
    assert all(torch.equal(a, b) for a, b in zip(state.memory, at_once.memory, strict=True))
    assert torch.equal(others[0].state.fields["u"], others[3].state.fields["u"])
