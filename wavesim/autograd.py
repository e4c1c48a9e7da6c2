"""The only place that talks to PyTorch's autograd machinery for the Triton backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import buffers, stepping, trials
from .buffers import Final
from .choice import LOOP, Choice, default_choice
from .config import require
from .device import card
from .history import DeviceHistory, histories
from .layout import Layout, field_bytes
from .plan import Plan, compacted
from .triton_kernels.launch import on_device
from .tuning import CACHED, Task

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Choices:
    """How both directions of a call are run, settled before the first of them starts."""

    forward: Choice
    adjoint: Choice
    source: str

    @lru_cache(maxsize=32)  # noqa: B019 - frozen and few
    def layout(self, plan: Plan, adjoint: bool) -> Layout:
        return Layout.of(plan, self.adjoint if adjoint else self.forward, adjoint=adjoint)


@lru_cache(maxsize=32)
def _field_bytes(layout: Layout) -> int:
    return field_bytes(layout)


@dataclass(frozen=True)
class Setting:
    """What a call and its derivatives share. keep: a history; aligned: coefficients too large for a
    shared block, saved in the forward layout, so that there is one copy of each."""

    plan: Plan
    choices: Choices
    keep: bool
    aligned: bool = False

    def layout(self, adjoint: bool = False) -> Layout:
        return self.choices.layout(self.plan, adjoint)

    def saved(self, tensors: Sequence[Tensor]) -> Saved:
        """What the forward pass saved: coefficients, source cells, receiver cells, history."""
        system, rest = self.plan.system, list(tensors)
        counts = histories(self.plan) if self.keep else []
        kept = [[rest.pop() for _ in range(n)][::-1] for n in reversed(counts)][::-1]
        receiver_cells = tuple(rest.pop() for _ in system.recorded)[::-1]
        source_cells = tuple(rest.pop() for _ in system.injections)[::-1]
        coefs = ready = tuple(rest)
        if self.aligned:
            coefs = tuple(buffers.field_view(self.layout(), c) for c in ready)
        return Saved(coefs, ready if self.aligned else (), source_cells, receiver_cells, kept)


@dataclass(frozen=True)
class Saved:
    """What the forward pass saved. ready: the aligned arrays that the coefficients are views of, in
    the forward layout; or nothing."""

    coefs: Tensors
    ready: Tensors
    source_cells: Tensors
    receiver_cells: Tensors
    history: list[list[Tensor]]


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
    setting: Setting,
    tensors: tuple[Tensor, ...],
    bars: tuple[Tensor | None, ...],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """Of (coefficients, amplitudes, fields, memory), by the adjoint run, None where not needed;
    from the tensors saved."""
    plan, saved = setting.plan, setting.saved(tensors)
    system, coefs = plan.system, saved.coefs
    split = len(system.recorded), len(system.recorded) + len(system.fields)
    groups = bars[: split[0]], bars[split[0] : split[1]], bars[split[1] :]
    points = (False,) * (len(system.injections) + len(system.recorded))
    needs = stepping.Needs(*_split(plan, (*needed, *points))[:4])
    with torch.no_grad(), on_device(coefs[0].device):
        layout, forward = setting.layout(adjoint=True), setting.layout()
        ready = saved.ready if layout.strides == forward.strides else ()
        cells = saved.source_cells, saved.receiver_cells
        run = stepping.Run.start(layout, coefs, *cells, sources=needs.amplitudes, ready=ready)
        history = DeviceHistory(layout, coefs[0], saved.history) if setting.keep else None
        out = stepping.adjoint(run, coefs, history, groups, needs)
    return [*out.coefs, *out.amplitudes, *out.fields, *out.memory]


def _run(setting: Setting, costs: dict, flat: tuple) -> tuple[Tensors, Final, list[Tensor]]:
    """Records; final fields and memory; and what is to be saved."""
    coefs, amplitudes, fields, memory, *cells = _split(setting.plan, flat)
    with on_device(coefs[0].device):
        layout = setting.layout()
        ready = buffers.aligned(layout, coefs) if setting.aligned else ()
        run = stepping.Run.start(layout, coefs, *cells, ready=ready)
        history = DeviceHistory(layout, coefs[0]) if setting.keep else None
        if history is not None:
            history.begin(fields)
        records, final, spent = stepping.forward(run, amplitudes, fields, memory, history)
    costs |= spent
    costs["choice"], costs["choice_source"] = setting.choices.forward, setting.choices.source
    costs["field_bytes"] = _field_bytes(layout)
    costs["history_bytes"] = history.nbytes if history else 0
    kept = history.flat if history else []
    return records, final, [*(ready or coefs), *cells[0], *cells[1], *kept]


@dataclass(eq=False)
class Ran:
    """What a run leaves besides tensors of the graph: its costs, and what its last step wrote, if
    that is not copied ``at_once``."""

    at_once: bool
    costs: dict[str, Any] = field(default_factory=dict)
    final: Final | None = None


class Propagate(torch.autograd.Function):
    """Flat tensors and one hashable setting in; records, final fields and final memory out, or, if
    they are not copied at once, what stands for these until `Last` copies them.

    tie: what depends on all that the coefficients do, where they are not saved themselves.
    """

    @staticmethod
    def forward(ctx: Any, setting: Setting, ran: Ran, tie: Tensor | None, *flat: Tensor) -> Tensors:
        records, final, saved = _run(setting, ran.costs, flat)
        if ran.at_once:
            fields, memory = final.plain()
        else:
            ran.final, (fields, memory) = final, final.stand_ins()
        coefs, amplitudes, _, _, source_cells, receiver_cells = _split(setting.plan, flat)
        ctx.setting, ctx.tie = setting, tie
        ctx.shapes = [t.shape for t in (*coefs, *amplitudes)]
        ctx.count = len(flat) - len(source_cells) - len(receiver_cells)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)
        return (*records, *fields, *memory)

    @staticmethod
    def backward(ctx: Any, *bars: Tensor) -> tuple:
        setting, tensors = ctx.setting, ctx.saved_tensors
        found = _cotangents(setting, tensors, bars, ctx.needs_input_grad[3 : 3 + ctx.count])
        if torch.is_grad_enabled():  # create_graph: a further derivative would miss the run
            tied = setting.saved(tensors).coefs if ctx.tie is None else (ctx.tie,)
            found = [None if g is None else FirstDerivative.apply(g, *tied, *bars) for g in found]
        system = setting.plan.system
        none = [None] * (len(system.injections) + len(system.recorded))
        return (None, None, None, *found, *none)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple:
        setting, tensors = ctx.setting, ctx.saved_tensors
        coefs = setting.saved(tensors).coefs
        if torch.is_grad_enabled() and any(c.requires_grad for c in coefs):
            raise RuntimeError(
                "backend: got a Jacobian-vector product at a model that requires a gradient, "
                "expected one that does not, with Triton. Detach the model, or use backend='eager'."
            )
        moved = list(tangents[3 : 3 + ctx.count])
        for i, shape in enumerate(ctx.shapes):  # a field or memory without a tangent stays None
            moved[i] = coefs[0].new_zeros(shape) if moved[i] is None else moved[i]
        return Tangent.apply(setting, len(tensors), *tensors, *moved)


class Last(torch.autograd.Function):
    """Copies of the final fields and memory, in the graph where their stand-ins are."""

    @staticmethod
    def forward(ctx: Any, final: Final, *stand_ins: Tensor) -> Tensors:
        ctx.set_materialize_grads(False)
        fields, memory = final.plain()
        return (*fields, *memory)

    @staticmethod
    def backward(ctx: Any, *bars: Tensor) -> tuple:
        return (None, *bars)


class Tangent(torch.autograd.Function):
    """The Jacobian of `Propagate` at a kept run, linear in the changes of its inputs."""

    @staticmethod
    def forward(ctx: Any, setting: Setting, count: int, *flat: Any) -> Tensors:
        tensors, moved = flat[:count], flat[count:]
        saved, keep = setting.saved(tensors), setting.keep
        cells = saved.source_cells, saved.receiver_cells
        everything = (*moved, *cells[0], *cells[1])
        changes, amplitudes, fields, memory, _, _ = _split(setting.plan, everything)
        with torch.no_grad(), on_device(saved.coefs[0].device):
            layout = setting.layout()
            run = stepping.Run.start(layout, saved.coefs, *cells)
            history = DeviceHistory(layout, saved.coefs[0], saved.history) if keep else None
            records, final, _ = stepping.forward(
                run, amplitudes, fields, memory, history, changes if keep else ()
            )
            out, last = final.plain()
        ctx.setting, ctx.count = setting, count
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        return (*records, *out, *last)

    @staticmethod
    def backward(ctx: Any, *bars: Tensor) -> tuple:
        needed = ctx.needs_input_grad[2 + ctx.count :]
        found = _cotangents(ctx.setting, ctx.saved_tensors, bars, needed)
        return (None, None, *[None] * ctx.count, *found)


@dataclass(frozen=True)
class Compact:
    """Whether a compact history is ``wanted`` (None: where it pays), and whether the parameter
    that must not be 0 for it is ``nonzero`` (None: not known)."""

    wanted: bool | None = None
    nonzero: bool | None = None

    def of(
        self, plan: Plan, memory: tuple[Tensor | None, ...], cells: Tensors, tangents: bool,
        device: torch.device,
    ) -> Plan:  # fmt: skip
        """The plan of a call that keeps a history. It pays in runs so large that the adjoint has a
        launch a stage."""
        system = plan.system
        entries = zip(system.injections, cells, strict=True)
        obstacles = {
            "sources of what is kept": any(e.stage == 0 and c.shape[1] for e, c in entries),
            "boundary memory in `initial`": any(m is not None for m in memory),
            "dual tensors": tangents,
            f"zeros in {system.compact}": self.nonzero is False,
        }
        found = [name for name, there in obstacles.items() if there]
        if self.wanted:
            got = f"True with {', '.join(found)}"
            require(not found, "History.compact", got, "None or False", "Leave it None.")
            return compacted(plan)
        if self.wanted is False or found or self.nonzero is None:
            return plan
        choice = default_choice(plan, card(device), adjoint=True, history=True)
        return plan if choice.mode == LOOP else compacted(plan)


def _choose(
    plan: Plan, coefs: Tensors, *, keep: bool, backward: bool, autotune: bool | str
) -> Choices:
    """Of both directions: a backward run must not measure, least of all in autograd's threads."""
    device, batched = coefs[0].device, coefs[0].shape[0] > 1
    task = Task(plan, adjoint=False, history=keep, batched=batched)
    forward, source = trials.choose(task, device, autotune)
    if not backward and not keep:
        return Choices(forward, forward, source)
    task = Task(plan, adjoint=True, history=keep, batched=batched)
    adjoint, _ = trials.choose(task, device, autotune if backward else bool(autotune) and CACHED)
    return Choices(forward, adjoint, source)


def propagate(
    plan: Plan,
    coefs: Tensors,
    amplitudes: Tensors,
    fields: tuple[Tensor | None, ...],
    memory: tuple[Tensor | None, ...],
    source_cells: Tensors,
    receiver_cells: Tensors,
    *,
    compact: Compact = Compact(),
    autotune: bool | str = CACHED,
) -> tuple[Tensors, Callable[[], tuple[Tensors, Tensors]], dict[str, Any]]:
    """Run a plan on the Triton backend: (records, what gives the final fields and memory, costs);
    None stands for zeros.

    They are copied from the run's buffers when asked for, which must be once; at once with dual
    tensors, and in the capture of a CUDA graph, so that a replay copies them. The history is kept
    only if a coefficient needs a gradient or has a tangent. A second derivative raises.
    """
    flat = (*coefs, *amplitudes, *fields, *memory, *source_cells, *receiver_cells)
    given = [t for t in (*coefs, *amplitudes, *fields, *memory) if t is not None]
    tangents = {id(t): d for t in given if (d := forward_ad.unpack_dual(t).tangent) is not None}
    recording = torch.is_grad_enabled()
    moved = any(id(c) in tangents for c in coefs)
    keep = moved or (recording and any(c.requires_grad for c in coefs))
    backward = recording and any(t.requires_grad for t in (*given, *tangents.values()))
    if keep:
        plan = compact.of(plan, memory, source_cells, bool(tangents), coefs[0].device)
    choices = _choose(plan, coefs, keep=keep, backward=backward, autotune=autotune)
    setting = Setting(plan, choices, keep)
    if tangents or backward:
        tie = None
        if not tangents and sum(c.nbytes for c in coefs) > buffers.PACKED:
            setting = replace(setting, aligned=True)
            tie = torch.cat([c.narrow(0, 0, 0).flatten() for c in coefs])
        ran = Ran(at_once=bool(tangents))
        out = Propagate.apply(setting, ran, tie, *flat)
        records, rest = out[: len(receiver_cells)], out[len(receiver_cells) :]
        costs, final = ran.costs, ran.final

        def last() -> tuple[Tensors, Tensors]:
            with torch.enable_grad():  # wherever it is asked for
                found = rest if final is None else Last.apply(final, *rest)
            return found[: len(fields)], found[len(fields) :]

    else:
        costs = {}
        records, final, _ = _run(setting, costs, flat)
        last = final.plain
    if coefs[0].is_cuda and torch.cuda.is_current_stream_capturing():
        copied = last()
        return records, lambda: copied, costs
    return records, last, costs
