"""The only place that talks to PyTorch's autograd machinery for the Triton backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import stepping, trials
from .choice import Choice
from .history import DeviceHistory
from .layout import Layout, field_bytes
from .plan import Plan
from .triton_kernels.launch import on_device
from .tuning import CACHED, Task

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Choices:
    """How both directions of a call are run, settled before the first of them starts."""

    forward: Choice
    adjoint: Choice
    source: str


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


def _cotangents(
    plan: Plan, choices: Choices, saved: tuple[Tensor, ...], keep: bool, bars: Tensors
) -> list:
    """Of (coefficients, amplitudes, fields, memory), by the adjoint run.

    saved: coefficients, source cells, receiver cells, and the history if it was kept.
    """
    system = plan.system
    coefs, source_cells, receiver_cells, kept = _split_saved(plan, saved, keep)
    split = len(system.recorded), len(system.recorded) + len(system.fields)
    groups = bars[: split[0]], bars[split[0] : split[1]], bars[split[1] :]
    with torch.no_grad(), on_device(coefs[0].device):
        layout = Layout.of(plan, choices.adjoint, adjoint=True)
        run = stepping.Run.start(layout, coefs, source_cells, receiver_cells)
        history = DeviceHistory(layout, coefs[0], kept) if keep else None
        out = stepping.adjoint(run, coefs, history, groups)
    return [*out.coefs, *out.amplitudes, *out.fields, *out.memory]


def _split_saved(plan: Plan, saved: tuple[Tensor, ...], keep: bool):
    """(coefficients, source cells, receiver cells, history by stage) of what was saved."""
    system, rest = plan.system, list(saved)
    counts = [s.histories for s in system.stages] if keep else []
    kept = [[rest.pop() for _ in range(n)][::-1] for n in reversed(counts)][::-1]
    receiver_cells = tuple(rest.pop() for _ in system.recorded)[::-1]
    source_cells = tuple(rest.pop() for _ in system.injections)[::-1]
    return tuple(rest), source_cells, receiver_cells, kept


class Propagate(torch.autograd.Function):
    """Flat tensors and one hashable plan in; records, final fields and final memory out."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, choices: Choices, keep: bool, costs: dict, *flat: Tensor
    ) -> Tensors:
        coefs, amplitudes, fields, memory, source_cells, receiver_cells = _split(plan, flat)
        with on_device(coefs[0].device):
            layout = Layout.of(plan, choices.forward)
            run = stepping.Run.start(layout, coefs, source_cells, receiver_cells)
            history = DeviceHistory(run.layout, coefs[0]) if keep else None
            records, out, last, spent = stepping.forward(run, amplitudes, fields, memory, history)
        costs |= spent
        costs["choice"], costs["choice_source"] = choices.forward, choices.source
        costs["field_bytes"] = field_bytes(run.layout)
        costs["history_bytes"] = history.nbytes if history else 0
        kept = history.flat if history else []
        ctx.plan, ctx.choices, ctx.keep = plan, choices, keep
        ctx.shapes = [t.shape for t in (*coefs, *amplitudes, *fields, *memory)]
        ctx.save_for_backward(*coefs, *source_cells, *receiver_cells, *kept)
        ctx.save_for_forward(*coefs, *source_cells, *receiver_cells, *kept)
        return (*records, *out, *last)

    @staticmethod
    def backward(ctx: Any, *bars: Tensor) -> tuple:
        saved = ctx.saved_tensors
        found = _cotangents(ctx.plan, ctx.choices, saved, ctx.keep, bars)
        if torch.is_grad_enabled():  # create_graph: a further derivative would miss the run
            coefs = _split_saved(ctx.plan, saved, ctx.keep)[0]
            found = [None if g is None else FirstDerivative.apply(g, *coefs, *bars) for g in found]
        system = ctx.plan.system
        none = [None] * (len(system.injections) + len(system.recorded))
        return (None, None, None, None, *found, *none)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple:
        plan, saved = ctx.plan, ctx.saved_tensors
        coefs = _split_saved(plan, saved, ctx.keep)[0]
        if torch.is_grad_enabled() and any(c.requires_grad for c in coefs):
            raise RuntimeError(
                "backend: got a Jacobian-vector product at a model that requires a gradient, "
                "expected one that does not, with Triton. Detach the model, or use backend='eager'."
            )
        count = len(ctx.shapes)
        moved = [
            coefs[0].new_zeros(shape) if t is None else t
            for t, shape in zip(tangents[4 : 4 + count], ctx.shapes, strict=True)
        ]
        return Tangent.apply(plan, ctx.choices, ctx.keep, len(saved), *saved, *moved)


class Tangent(torch.autograd.Function):
    """The Jacobian of `Propagate` at a kept run, linear in the changes of its inputs."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, choices: Choices, keep: bool, count: int, *flat: Any
    ) -> Tensors:
        saved, moved = flat[:count], flat[count:]
        coefs, source_cells, receiver_cells, kept = _split_saved(plan, saved, keep)
        everything = (*moved, *source_cells, *receiver_cells)
        changes, amplitudes, fields, memory, _, _ = _split(plan, everything)
        with torch.no_grad(), on_device(coefs[0].device):
            layout = Layout.of(plan, choices.forward)
            run = stepping.Run.start(layout, coefs, source_cells, receiver_cells)
            history = DeviceHistory(layout, coefs[0], kept) if keep else None
            records, out, last, _ = stepping.forward(
                run, amplitudes, fields, memory, history, changes if keep else ()
            )
        ctx.plan, ctx.choices, ctx.keep, ctx.count = plan, choices, keep, count
        ctx.save_for_backward(*saved)
        return (*records, *out, *last)

    @staticmethod
    def backward(ctx: Any, *bars: Tensor) -> tuple:
        found = _cotangents(ctx.plan, ctx.choices, ctx.saved_tensors, ctx.keep, bars)
        return (None, None, None, None, *[None] * ctx.count, *found)


def _choose(
    plan: Plan,
    device: torch.device,
    keep: bool,
    batched: bool,
    backward: bool,
    autotune: bool | str,
) -> Choices:
    """Of both directions: a backward run must not measure, least of all in autograd's threads."""
    task = Task(plan, adjoint=False, history=keep, batched=batched)
    forward, source = trials.choose(task, device, autotune)
    task = Task(plan, adjoint=True, history=keep, batched=batched)
    adjoint, _ = trials.choose(task, device, autotune if backward else bool(autotune) and CACHED)
    return Choices(forward, adjoint, source)


def propagate(
    plan: Plan,
    coefs: Tensors,
    amplitudes: Tensors,
    fields: Tensors,
    memory: Tensors,
    source_cells: Tensors,
    receiver_cells: Tensors,
    *,
    autotune: bool | str = CACHED,
) -> tuple[tuple[Tensors, Tensors, Tensors], dict[str, Any]]:
    """Run a plan on the Triton backend: ((records, fields, memory), costs).

    The history is kept only if a coefficient needs a gradient or has a tangent. A second derivative
    raises.
    """
    costs: dict[str, Any] = {}
    changes = [t for c in coefs if (t := forward_ad.unpack_dual(c).tangent) is not None]
    keep = bool(changes) or (torch.is_grad_enabled() and any(c.requires_grad for c in coefs))
    inputs = (*coefs, *changes, *amplitudes, *fields, *memory)
    backward = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
    batched = coefs[0].shape[0] > 1
    choices = _choose(plan, coefs[0].device, keep, batched, backward, autotune)
    flat = (*coefs, *amplitudes, *fields, *memory, *source_cells, *receiver_cells)
    out = Propagate.apply(plan, choices, keep, costs, *flat)
    a, b = len(receiver_cells), len(receiver_cells) + len(fields)
    return (out[:a], out[a:b], out[b:]), costs
