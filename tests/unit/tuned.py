"""A plan, its key and its candidates, and a bench with a fake clock, for tests without a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from wavesim import tuning
from wavesim.choice import Card, candidates
from wavesim.cpml import Damping
from wavesim.equations import REGISTRY
from wavesim.plan import Plan
from wavesim.tuning import Key, Machine, Task

MACHINE = Machine("a card", "1.2", "2.13", "3.7")


def plan_of(equation: str = "scalar", ndim: int = 2, n: int = 300, **changes) -> Plan:
    plan = Plan(
        equation=REGISTRY[equation],
        model=(n,) * ndim,
        widths=((20, 20),) * ndim,
        spacing=(5.0,) * ndim,
        order=4,
        steps=100,
        ratio=1,
        dt=1e-4,
        shots=2,
        dtype="float32",
        damping=((Damping(2000.0, alpha_max=80.0),) * 2,) * ndim,
    )
    return replace(plan, **changes)


def task_of(**changes) -> Task:
    return Task(plan_of(**changes), adjoint=False, history=False, batched=False)


KEY = Key.of(task_of(), MACHINE)
LISTED = candidates(plan_of(), Card())


class Bench:
    """A fake clock: seconds by candidate number, or an exception."""

    def __init__(self, *answers: float | Exception) -> None:
        self.answers, self.compiled, self.timed = answers, [], []

    def compile(self, listed, done):
        self.compiled += listed

    def time(self, choice):
        self.timed.append(choice)
        answer = self.answers[LISTED.index(choice)]
        if isinstance(answer, Exception):
            raise answer
        return answer


def tuned(folder: Path, bench: Bench, count: int = 3, key: Key = KEY) -> tuning.Tuned:
    return tuning.tuned(key, folder, LISTED[:count], lambda: bench, progress=False)
