"""The bytes that a launch reports, against those that the benchmarks count from the equations."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from types import SimpleNamespace

import pytest
import torch
from adjoint.cases import LOWEST, case_id
from conftest import pick_device
from unit.tuned import plan_of

from benchmarks.traffic import bytes_per_cell
from wavesim import stepping, trials
from wavesim.choice import FUSED, STORED, Card, default_choice
from wavesim.triton_kernels.metadata import launch_metadata
from wavesim.tuning import Task

NUMBERS = {"step": 0, "first_shot": 0}


def reported(monkeypatch, task: Task, route: str, looped: bool = False) -> int:
    """Bytes of one step of a task, the sum over its launches."""
    found = []
    monkeypatch.setattr(stepping.Launcher, "run", lambda self, steps: found.append(self) or {})
    plan = task.plan
    choice = replace(default_choice(plan, Card()), route=route)
    with torch.no_grad():
        trials.Scratch.of(task, pick_device(), 1).run(choice)
    (launcher,) = found
    stages = range(len(plan.system.stages))
    launches = [launcher.step_arguments(i) for i in stages]
    if looped:
        launches = [launcher.loop_arguments() | {"steps": 1}]
    told = [
        launch_metadata((1,), SimpleNamespace(name="k"), a | NUMBERS | {"shots": plan.shots})
        for a in launches
    ]
    return sum(t["bytes"] for t in told)


@pytest.mark.parametrize("looped", [False, True], ids=["stages", "loop"])
@pytest.mark.parametrize("case", LOWEST, ids=case_id)
def test_launches_report_the_counted_bytes(case, looped, monkeypatch):
    """Forward, and a pair with history: exactly the minimum of `benchmarks.traffic`."""
    equation, ndim, order = case
    plan = plan_of(equation, ndim, 12, widths=((2, 2),) * ndim, order=order)
    cells = prod(plan.box) * plan.shots
    system, directions = plan.system, [(False, False), (False, True), (True, True)]
    forward, kept, adjoint = (
        reported(monkeypatch, Task(plan, *d, batched=False), FUSED, looped) for d in directions
    )
    assert forward == cells * bytes_per_cell(system, 4)
    assert kept + adjoint == cells * bytes_per_cell(system, 4, gradient=True)


def test_the_stored_route_moves_more_bytes(monkeypatch):
    """Of elastic waves: it spares loads from the cache, not from memory."""
    task = Task(plan_of("elastic", 2, 12, widths=((2, 2),) * 2), True, True, batched=False)
    assert reported(monkeypatch, task, STORED) > reported(monkeypatch, task, FUSED)
