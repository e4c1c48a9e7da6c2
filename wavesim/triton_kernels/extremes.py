"""What the checks of a call need to know of its tensors' values, in one launch or two."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..config import IGNORE
from ..values import Looked
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
    tensors, lengths, locations, counts, spectra, traces, bins, more, out,
    ALONG: tl.constexpr, BLOCK: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    """By program ``out[row]``, rows as in `wavesim.values.extremes`, of the blocks it looked at.

    After so many rows more: the sums of spectra [trace, bin, (real, imaginary)].
    """
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
        out += (1 + more) * programs - program
        for start in range(program * BINS, bins, programs * BINS):
            i = start + tl.arange(0, BINS)
            total = tl.zeros((BINS,), tl.float64)
            for trace in range(traces):
                at = spectra[0] + 2 * (tl.cast(trace, tl.int64) * bins + i)
                real = tl.load(at, mask=i < bins, other=0.0).to(tl.float64)
                imaginary = tl.load(at + 1, mask=i < bins, other=0.0).to(tl.float64)
                total += tl.sqrt(real * real + imaginary * imaginary)
            tl.store(out + i, total, mask=i < bins)


@triton.jit
def products_kernel(
    nodes, halves, count, steps, sizes, parts, first, out, REACH: tl.constexpr, BLOCK: tl.constexpr
):
    """`wavesim.equations._grid.largest_products` of a pair and a tap, by part, from a row on.

    count: of cells; steps: from one to the next along a pair's axis; sizes: how many that has.
    """
    program = tl.program_id(0) // parts
    part, pair, k = tl.program_id(0) % parts, program // REACH, program % REACH + 1
    node, half, step, size = nodes[0], halves[0], steps[0], sizes[0]
    for p in tl.static_range(len(nodes)):
        its = pair == p
        node, half = tl.where(its, nodes[p], node), tl.where(its, halves[p], half)
        step, size = tl.where(its, steps[p], step), tl.where(its, sizes[p], size)
    above = tl.zeros((BLOCK,), tl.float64)
    below, infinite = above, above + float("inf")
    for start in range(part * BLOCK, count, parts * BLOCK):
        i = tl.cast(start, tl.int64) + tl.arange(0, BLOCK)
        on = (i < count) & (i // step % size < size - k)
        high = tl.load(node + i + k * step, mask=on, other=0.0)
        x = (high * tl.load(half + i, mask=on, other=0.0)).to(tl.float64)
        above = tl.maximum(above, tl.where(x == x, x, infinite))
        low = tl.load(node + i, mask=on, other=0.0)
        x = (low * tl.load(half + i + (k - 1) * step, mask=on, other=0.0)).to(tl.float64)
        below = tl.maximum(below, tl.where(x == x, x, infinite))
    out += (first + 2 * program) * parts + part
    tl.store(out, tl.max(above))
    tl.store(out + parts, tl.max(below))


@lru_cache(maxsize=256)
def _numbers(
    lengths: tuple[int, ...],
    counts: tuple[int, ...],
    ndim: int,
    spectra: tuple[int, ...],
    more: int,
) -> tuple[int, Numbers]:
    """How many programs, and what they are told of the tensors' sizes."""
    programs = min(MOST_PROGRAMS, triton.cdiv(max(lengths + counts), LEAST_BLOCKS * BLOCK))
    sizes = {"lengths": lengths, "counts": counts, "traces": spectra[0], "bins": spectra[1]}
    return programs, Numbers(**sizes, more=more, ALONG=ndim, BLOCK=BLOCK, BINS=BINS)


@lru_cache(maxsize=64)
def _numbers_of_products(
    shape: tuple[int, ...], dims: tuple[int, ...], parts: int, first: int, reach: int
) -> Numbers:
    sizes = tuple(shape[dim] for dim in dims)
    steps = tuple(math.prod(shape[dim:]) // shape[dim] for dim in dims)
    told = {"count": math.prod(shape), "steps": steps, "sizes": sizes, "parts": parts}
    return Numbers(**told, first=first, REACH=reach, BLOCK=BLOCK)


def extremes(at: Looked) -> tuple[Tensor, int]:
    """`wavesim.values.extremes` in one launch, or two if there are pairs."""
    tensors, locations, spectra, pairs = at.tensors, at.locations, at.spectra, at.pairs
    ndim = locations[0].shape[-1] if locations else 0
    lengths = tuple([t.numel() for t in tensors])
    counts = tuple([x.numel() // ndim for x in locations])
    shape, more = (0, 0) if spectra is None else tuple(spectra.shape), 2 * len(pairs) * at.reach
    parts, numbers = _numbers(lengths, counts, ndim, shape, more)
    rows = at.count * parts
    out = tensors[0].new_empty(rows + shape[1], dtype=torch.float64)
    run_alike(
        extremes_kernel,
        parts,
        numbers,
        tensors=tuple([t.contiguous() for t in tensors]),
        locations=tuple([x.contiguous() for x in locations]),
        spectra=() if spectra is None else (torch.view_as_real(spectra),),
        out=out,
    )
    if pairs:
        dims = tuple([dim for _, _, dim in pairs])
        run_alike(
            products_kernel,
            len(pairs) * at.reach * parts,
            _numbers_of_products(pairs[0][0].shape, dims, parts, at.count - more, at.reach),
            nodes=tuple([node.contiguous() for node, _, _ in pairs]),
            halves=tuple([half.contiguous() for _, half, _ in pairs]),
            out=out,
        )
    if parts <= FEW_PARTS:
        return out, parts
    return torch.cat([out[:rows].view(at.count, parts).amax(1), out[rows:]]), 1
