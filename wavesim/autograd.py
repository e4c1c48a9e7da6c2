"""The only place that talks to PyTorch's autograd machinery for the Triton backend."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import stepping
from .history import DeviceHistory
from .layout import Layout, field_bytes
from .plan import Plan
from .triton_kernels.launch import on_device

Tensors = tuple[Tensor, ...]


def _split(plan: Plan, flat: tuple) -> list[tuple]:
    """Coefficients, amplitudes, fields, memory, source cells, receiver cells."""
    s = plan.system
    entries, recorded = len(s.injections), len(s.recorded)
    sizes = [entries, len(s.fields), len(plan.memories), entries, recorded]
    first = len(flat) - sum(sizes)
    out, at = [flat[:first]], first
    for size in sizes:
        out.append(flat[at : at + size])
        at += size
    return out


class FirstDerivative(torch.autograd.Function):
    """A gradient as it is, tied to what it depends on: differentiating it again raises.

    PyTorch's ``once_differentiable`` looks at the incoming cotangents only, and misses the model.
    """

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *dependencies: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *bars: Tensor) -> tuple:
        raise RuntimeError(
            "backend: got a second derivative through the Triton backend, expected first ones. "
            "Use backend='eager', which is differentiable any number of times."
        )


class Propagate(torch.autograd.Function):
    """Flat tensors and one hashable plan in; records, final fields and final memory out."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, keep: bool, costs: dict, *flat: Tensor) -> Tensors:
        coefs, amplitudes, fields, memory, source_cells, receiver_cells = _split(plan, flat)
        with on_device(coefs[0].device):
            layout = Layout.default(plan)
            run = stepping.Run.start(layout, coefs, source_cells, receiver_cells)
            history = DeviceHistory(run.layout, coefs[0]) if keep else None
            records, out, last, launches = stepping.forward(
                run, amplitudes, fields, memory, history
            )
        costs["kernel_launches"] = launches
        costs["field_bytes"] = field_bytes(run.layout)
        costs["history_bytes"] = history.nbytes if history else 0
        kept = history.flat if history else []
        ctx.plan, ctx.keep = plan, keep
        ctx.save_for_backward(*coefs, *source_cells, *receiver_cells, *kept)
        return (*records, *out, *last)

    @staticmethod
    def backward(ctx: Any, *bars: Tensor) -> tuple:
        plan: Plan = ctx.plan
        system, saved = plan.system, list(ctx.saved_tensors)
        kept = sum(s.histories for s in system.stages) if ctx.keep else 0
        values = [saved.pop() for _ in range(kept)][::-1]
        receiver_cells = tuple(saved.pop() for _ in system.recorded)[::-1]
        source_cells = tuple(saved.pop() for _ in system.injections)[::-1]
        coefs = tuple(saved)
        split = len(system.recorded), len(system.recorded) + len(system.fields)
        groups = bars[: split[0]], bars[split[0] : split[1]], bars[split[1] :]
        with torch.no_grad(), on_device(coefs[0].device):
            layout = Layout.default(plan, adjoint=True)
            run = stepping.Run.start(layout, coefs, source_cells, receiver_cells)
            history = None
            if ctx.keep:
                staged, at = [], 0
                for stage in system.stages:
                    staged.append(values[at : at + stage.histories])
                    at += stage.histories
                history = DeviceHistory(run.layout, coefs[0], staged)
            out = stepping.adjoint(run, coefs, history, groups)
        found = [*out.coefs, *out.amplitudes, *out.fields, *out.memory]
        if torch.is_grad_enabled():  # create_graph: a further derivative would miss the run
            found = [None if g is None else FirstDerivative.apply(g, *coefs, *bars) for g in found]
        none = [None] * (len(source_cells) + len(receiver_cells))
        return (None, None, None, *found, *none)


def propagate(
    plan: Plan,
    coefs: Tensors,
    amplitudes: Tensors,
    fields: Tensors,
    memory: Tensors,
    source_cells: Tensors,
    receiver_cells: Tensors,
) -> tuple[tuple[Tensors, Tensors, Tensors], dict[str, int]]:
    """Run a plan on the Triton backend: ((records, fields, memory), costs).

    The history is kept only if a coefficient needs a gradient. A second derivative raises.
    """
    costs: dict[str, int] = {}
    keep = torch.is_grad_enabled() and any(c.requires_grad for c in coefs)
    flat = (*coefs, *amplitudes, *fields, *memory, *source_cells, *receiver_cells)
    out = Propagate.apply(plan, keep, costs, *flat)
    a, b = len(receiver_cells), len(receiver_cells) + len(fields)
    return (out[:a], out[a:b], out[b:]), costs
