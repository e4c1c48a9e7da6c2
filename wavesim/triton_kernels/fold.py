"""The transpose of a model's continuation by its edge values, in one launch."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import triton
import triton.language as tl
from torch import Tensor

from ..media import Widths
from .compiled import Numbers, run_alike

BLOCK = 512


@triton.jit
def span_of(i, low, size, whole):
    """The cells of a continued axis, [start, stop), that are added to cell i of the model's."""
    start = tl.where(i == 0, 0, i + low)
    return start, tl.where(i == size - 1, whole, i + low + 1)


@triton.jit
def fold_kernel(bar, out, model, box, lows, BLOCK: tl.constexpr, EDGE: tl.constexpr):
    """A block of a row: of the cells that continue it and of those of all rows that do, a sum.

    model, box: shapes (z, y, x) without and with the layers; lows: layers below; EDGE: lanes for
    the widest layer of x.
    """
    parts = tl.cdiv(model[2], BLOCK)
    row = tl.program_id(0) // parts
    x = tl.program_id(0) % parts * BLOCK + tl.arange(0, BLOCK)
    y, z = row % model[1], row // model[1] % model[0]
    shot = (row // (model[0] * model[1])).to(tl.int64)
    lane, high = tl.arange(0, EDGE), lows[2] + model[2]
    total = tl.zeros((BLOCK,), bar.dtype.element_ty)
    first, stop = span_of(z, lows[0], model[0], box[0])
    start, end = span_of(y, lows[1], model[1], box[1])
    for k in range(first, stop):
        for j in range(start, end):
            at = bar + ((shot * box[0] + k) * box[1] + j) * box[2]
            total += tl.load(at + lows[2] + x, mask=x < model[2], other=0.0)
            below = tl.load(at + lane, mask=lane < lows[2], other=0.0)
            total += tl.where(x == 0, tl.sum(below), 0.0)
            above = tl.load(at + high + lane, mask=high + lane < box[2], other=0.0)
            total += tl.where(x == model[2] - 1, tl.sum(above), 0.0)
    to = ((shot * model[0] + z) * model[1] + y) * model[2]
    tl.store(out + to + x, total, mask=x < model[2])


@lru_cache(maxsize=64)
def _numbers(box: tuple[int, ...], widths: Widths) -> tuple[tuple[int, ...], int, Numbers]:
    """The model's shape, how many programs a shot has, and what they are told."""
    lead = (1,) * (3 - len(box))
    model = tuple(n - low - high for n, (low, high) in zip(box, widths, strict=True))
    lows = (0,) * len(lead) + tuple(low for low, _ in widths)
    programs = prod(model[:-1]) * triton.cdiv(model[-1], BLOCK)
    edge = triton.next_power_of_2(max(*widths[-1], 1))
    told = {"model": lead + model, "box": lead + box, "lows": lows}
    return model, programs, Numbers(**told, BLOCK=BLOCK, EDGE=edge)


def fold(bar: Tensor, widths: Widths) -> Tensor:
    """`wavesim.media` folds so with PyTorch: [1 or shot, box] to [1 or shot, model]."""
    model, programs, numbers = _numbers(tuple(bar.shape[1:]), widths)
    out = bar.new_empty(bar.shape[0], *model)
    run_alike(fold_kernel, bar.shape[0] * programs, numbers, bar=bar.contiguous(), out=out)
    return out
