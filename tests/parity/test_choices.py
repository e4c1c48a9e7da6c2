"""Every choice gives the same bits, interpreted or on a GPU; and trials run every direction."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from adjoint.cases import LOWEST, case_id, dot, make
from conftest import pick_device
from unit.tuned import plan_of

import wavesim
from wavesim import trials
from wavesim.choice import Card, Choice, default_choice
from wavesim.device import interpreting
from wavesim.equations import REGISTRY
from wavesim.plan import Plan
from wavesim.tuning import Task

pytestmark = pytest.mark.skipif(
    not (interpreting() or torch.cuda.is_available()), reason="needs TRITON_INTERPRET=1 or a GPU"
)
BOX = (12, 60), ((3, 0), (5, 6))
CHOICES = (
    Choice("graph", (1, 4, 16), (1, 4, 16), 8, 2),
    Choice("graph", (1, 4, 16), (1, 2, 16), 1, 2),
    Choice("graph", (1, 8, 128), (1, 8, 32), 4, 2),  # boundary tiles only
    Choice("loop", (1, 8, 32), (1, 8, 32), 4, 1),
    Choice("loop", (1, 16, 128), (1, 16, 128), 8, 2),  # a tile for every program
)


def line(n: int) -> Plan:
    """A small plan in one dimension."""
    return plan_of("scalar", 1, n, widths=((2, 2),), shots=1)


@pytest.mark.parametrize("equation", ["scalar", "elastic"])
def test_every_choice_gives_the_same_bits(equation, monkeypatch):
    """Records, final state and every gradient, both directions run with the choice."""
    dtype = torch.float32
    experiment = make(equation, 2, 4, "triton" if torch.cuda.is_available() else "eager",
                      nt=2, box=BOX)  # fmt: skip
    experiment = replace(
        experiment,
        backend="triton",
        parameters={k: v.to(dtype) for k, v in experiment.parameters.items()},
        inputs={k: v.to(dtype) for k, v in experiment.inputs.items()},
    )
    weights = {k: v.to(dtype) for k, v in experiment.weights().items()}
    runs, asked = [], []
    for choice in CHOICES:

        def choose(task, device, autotune, choice=choice):
            asked.append((choice, task.adjoint))
            return choice, "tuned"

        monkeypatch.setattr(trials, "choose", choose)
        found = {}

        def loss(outputs, found=found):
            found |= {k: v.detach() for k, v in outputs.items()}
            return dot(outputs, weights)

        gradients = experiment.gradients(loss)
        runs.append(found | {f"gradient {k}": g for k, g in gradients.items()})
    assert len(set(asked)) == 2 * len(CHOICES)
    for other in runs[1:]:
        assert other.keys() == runs[0].keys()
        for name, value in runs[0].items():
            assert torch.equal(other[name], value), name


@pytest.mark.parametrize(("equation", "channels"), [("scalar", ["u"]), ("acoustic", ["p", "vy"])])
def test_many_points_in_a_tile(equation, channels, monkeypatch):
    """More than are recorded at once, some in one cell, of two channels: a loop of one tile a
    program gives the bits of a launch a stage."""
    device, rng = pick_device(), torch.Generator().manual_seed(1)
    names = [p.name for p in REGISTRY[equation].parameters]
    model = [1500 + 500 * torch.rand(12, 50, generator=rng).to(device) for _ in names]

    def places(count: int, y: int, x: int) -> torch.Tensor:
        at = [torch.randint(0, n, (2, count), generator=rng) for n in (y, x)]
        return torch.stack(at, -1).to(device)

    amplitudes = [torch.randn(2, 40, 3, generator=rng).to(device) for _ in channels]
    cells, receivers = [[places(n, 10, x) for _ in channels] for n, x in ((40, 9), (75, 40))]

    def everything(choice: Choice) -> list[torch.Tensor]:
        monkeypatch.setattr(trials, "choose", lambda *_: (choice, "tuned"))
        inputs = [x.clone().requires_grad_() for x in (*model, *amplitudes)]
        sources = zip(channels, inputs[len(model) :], cells, strict=True)
        out = getattr(wavesim, equation)(
            **dict(zip(names, inputs, strict=False)),
            spacing=10.0,
            dt=1e-3,
            sources={c: wavesim.Sources(a, at) for c, a, at in sources},
            receivers={c: wavesim.Receivers(at) for c, at in zip(channels, receivers, strict=True)},
            boundary=wavesim.PML(width=3, frequency=25.0),
            max_velocity=3000.0,
            backend="triton",
        )
        records = [out.receivers[c] for c in channels]
        loss = torch.stack([r.square().sum() for r in records]).sum()
        return [*records, *torch.autograd.grad(loss, inputs)]

    expected = everything(CHOICES[0])
    found = everything(Choice("loop", (1, 32, 64), (1, 32, 64), 4, 2))
    assert all(x.abs().max() > 0 for x in expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("case", LOWEST, ids=case_id)
def test_a_trial_runs_every_direction(case):
    """Scratch tensors have the shapes that both time loops want, with and without a history."""
    equation, ndim, order = case
    plan = plan_of(equation, ndim, 1, widths=((1, 1),) * ndim, order=order)
    for adjoint in (False, True):
        for history in (False, True):
            task = Task(plan, adjoint, history, batched=ndim == 2)
            scratch = trials.Scratch.of(task, pick_device(), 1)
            before = [x.clone() for x in scratch.fields]
            with torch.no_grad():
                scratch.run(default_choice(plan, Card()))
            assert all(torch.equal(a, b) for a, b in zip(before, scratch.fields, strict=True))


def test_a_trial_leaves_the_users_random_numbers_alone():
    """Tuning must not change what a seeded program draws next."""
    before = torch.get_rng_state()
    trials.Scratch.of(Task(line(9), True, True, False), pick_device(), 2)
    assert torch.equal(before, torch.get_rng_state())


def test_workers_compile_every_candidate(monkeypatch):
    """Processes of their own run each candidate once, and none of them fails."""
    task = Task(line(40), True, True, False)
    trial, done = trials.Trial(task, pick_device()), []
    monkeypatch.setattr(trial, "_workers", lambda number: 2)
    listed = [default_choice(task.plan, Card()), Choice("graph", (1, 1, 32), (1, 1, 16), 1, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trial.compile([*listed, listed[0]], lambda: done.append(1))
    assert len(done) == 3


def test_failing_workers_are_told_of_and_cost_nothing_else(monkeypatch):
    """Where no worker can run, candidates compile when they are measured."""
    trial = trials.Trial(Task(line(40), False, False, False), torch.device("meta:7"))
    monkeypatch.setattr(trial, "_workers", lambda number: 2)
    listed = [default_choice(trial.task.plan, Card())] * 2
    with pytest.warns(UserWarning, match=r"compiling ahead in 2 processes failed in 2 of them"):
        trial.compile(listed, lambda: None)
