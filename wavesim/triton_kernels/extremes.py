"""What the checks of a call need to know of its tensors' values, in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..config import IGNORE
from .compiled import Numbers, run_alike

BLOCK, BINS = 2048, 128
LEAST_BLOCKS = 4
"""A program looks at so many blocks or more, if there are."""
MOST_PROGRAMS = 1024
FEW_PARTS = 16
"""Programs up to which the host finds the largest of theirs: that takes it less than a launch."""
UNUSED = tl.constexpr(IGNORE)


@triton.jit
def extremes_kernel(
    tensors, lengths, locations, counts, spectra, traces, bins, out,
    ALONG: tl.constexpr, BLOCK: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    """By program ``out[row]``, rows as in `wavesim.check.extremes`, of the blocks it looked at;
    after them the spectra's sum, of [trace, bin, (real, imaginary)]."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    out += program
    infinite = tl.full((BLOCK,), float("inf"), tl.float64)
    for k in tl.static_range(len(tensors)):
        low, high = infinite, -infinite
        for start in range(program * BLOCK, lengths[k], programs * BLOCK):
            i = tl.cast(start, tl.int64) + tl.arange(0, BLOCK)
            x = tl.load(tensors[k] + i, mask=i < lengths[k], other=0.0).to(tl.float64)
            number = x == x
            low = tl.where(i < lengths[k], tl.minimum(low, tl.where(number, x, -infinite)), low)
            high = tl.where(i < lengths[k], tl.maximum(high, tl.where(number, x, infinite)), high)
        tl.store(out + 2 * k * programs, -tl.min(low))
        tl.store(out + (2 * k + 1) * programs, tl.max(high))
    out += 2 * len(tensors) * programs
    wrong = tl.zeros((BLOCK,), tl.int32)
    for k in tl.static_range(len(locations)):
        for axis in tl.static_range(ALONG):
            largest = tl.full((BLOCK,), UNUSED, tl.int64)
            for start in range(program * BLOCK, counts[k], programs * BLOCK):
                i = tl.cast(start, tl.int64) + tl.arange(0, BLOCK)
                at = tl.load(locations[k] + i * ALONG + axis, mask=i < counts[k], other=0)
                largest = tl.maximum(largest, at.to(tl.int64))
            tl.store(out, tl.max(largest).to(tl.float64))
            out += programs
        for start in range(program * BLOCK, counts[k], programs * BLOCK):
            i = tl.cast(start, tl.int64) + tl.arange(0, BLOCK)
            negative, unused = i < 0, i >= 0
            for axis in tl.static_range(ALONG):
                at = tl.load(locations[k] + i * ALONG + axis, mask=i < counts[k], other=0)
                negative, unused = negative | (at < 0), unused & (at.to(tl.int64) == UNUSED)
            wrong = tl.where(negative & ~unused, 1, wrong)
    tl.store(out, tl.max(wrong).to(tl.float64))
    if len(spectra) > 0:
        out += programs - program
        for start in range(program * BINS, bins, programs * BINS):
            i = start + tl.arange(0, BINS)
            total = tl.zeros((BINS,), tl.float64)
            for trace in range(traces):
                at = spectra[0] + 2 * (tl.cast(trace, tl.int64) * bins + i)
                real = tl.load(at, mask=i < bins, other=0.0).to(tl.float64)
                imaginary = tl.load(at + 1, mask=i < bins, other=0.0).to(tl.float64)
                total += tl.sqrt(real * real + imaginary * imaginary)
            tl.store(out + i, total, mask=i < bins)


@lru_cache(maxsize=256)
def _numbers(
    lengths: tuple[int, ...], counts: tuple[int, ...], ndim: int, traces: int, bins: int
) -> tuple[int, Numbers]:
    """How many programs, and what they are told of the tensors' sizes."""
    programs = min(MOST_PROGRAMS, triton.cdiv(max(lengths + counts), LEAST_BLOCKS * BLOCK))
    sizes = {"lengths": lengths, "counts": counts, "traces": traces, "bins": bins}
    return programs, Numbers(**sizes, ALONG=ndim, BLOCK=BLOCK, BINS=BINS)


def extremes(
    tensors: Sequence[Tensor], locations: Sequence[Tensor], spectra: Tensor | None
) -> tuple[Tensor, int]:
    """`wavesim.check.extremes` of tensors and locations that are not empty."""
    ndim = locations[0].shape[-1] if locations else 0
    traces, bins = (0, 0) if spectra is None else spectra.shape
    lengths = tuple([t.numel() for t in tensors])
    counts = tuple([at.numel() // ndim for at in locations])
    programs, numbers = _numbers(lengths, counts, ndim, traces, bins)
    rows = 2 * len(tensors) + ndim * len(locations) + 1
    out = tensors[0].new_empty(rows * programs + bins, dtype=torch.float64)
    run_alike(
        extremes_kernel,
        programs,
        numbers,
        tensors=tuple([t.contiguous() for t in tensors]),
        locations=tuple([at.contiguous() for at in locations]),
        spectra=() if spectra is None else (torch.view_as_real(spectra),),
        out=out,
    )
    if programs <= FEW_PARTS:
        return out, programs
    largest = out[: rows * programs].view(rows, programs).amax(1)
    return torch.cat([largest, out[rows * programs :]]), 1
