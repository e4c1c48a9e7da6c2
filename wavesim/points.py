"""Locations to indices: shared by every equation and both backends."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .config import IGNORE, message


def unused(locations: Tensor) -> Tensor:
    """[shot, point], True where a slot is marked `IGNORE`."""
    return (locations.long() == IGNORE).all(-1)  # a shorter integer would wrap it to 0


def negative(locations: Sequence[Tensor]) -> Tensor:
    """Whether an entry of several [shot, point, axis] is negative in a slot that is used."""
    slots = [loc.flatten(0, 1) for loc in locations]
    low, high = torch.aminmax(torch.cat(slots) if len(slots) > 1 else slots[0], dim=-1)
    return (low < 0).logical_and_((low != IGNORE).logical_or_(high != IGNORE)).any()


def raise_outside(argument: str, locations: Tensor, extent: Sequence[int]) -> None:
    """Name the first location outside the model, if there is one."""
    wrong = (locations < 0) | (locations >= locations.new_tensor(extent, dtype=torch.int64))
    found = (wrong.any(-1) & ~unused(locations)).nonzero().tolist()
    if not found:
        return
    shot, point = found[0]
    for axis, value in enumerate(locations[shot, point].tolist()):
        if not 0 <= value < extent[axis]:
            where = f"{argument}[shot {shot}, point {point}, axis {axis}]"
            remedy = "Locations are cell indices of the model, not metres, and its boundary "
            remedy += "layers do not count. Use wavesim.IGNORE on every axis of an unused slot."
            raise ValueError(message(where, value, f"a cell in 0..{extent[axis] - 1}", remedy))


def box_cells(locations: Tensor, widths: Sequence[tuple[int, int]], box: Sequence[int]) -> Tensor:
    """Flat index in the padded box of each location, [shot, point] int64; -1 for unused slots.

    A location is in the model or `IGNORE` on every axis, so only unused slots come out negative.
    """
    axes, start = locations.long().unbind(-1), widths[0][0]
    flat = axes[0]
    for axis, cells, (low, _) in zip(axes[1:], box[1:], widths[1:], strict=True):
        flat, start = torch.add(axis, flat, alpha=cells), start * cells + low
    return (flat + start).clamp_(min=-1)


def take(field: Tensor, cells: Tensor) -> Tensor:
    """Values of field [1 or shot, box] at cells [shot, point]; zero at unused slots."""
    return at_cells(field, cells).masked_fill(cells < 0, 0)


def at_cells(field: Tensor, cells: Tensor) -> Tensor:
    """As `take`, but any value of the field, its last one, at unused slots."""
    if field.shape[0] == 1:
        if not field.requires_grad:
            return torch.take(field, cells)  # its derivative is not added up in a fixed order
        return field.reshape(-1)[cells]
    return field.reshape(field.shape[0], -1)[_rows(cells), cells]


def add(field: Tensor, cells: Tensor, values: Tensor) -> Tensor:
    """Field [shot, box] plus values at cells, coincident ones summed: the transpose of `take`.

    What ``index_put`` does, less its check of the indices, for which some versions of PyTorch wait
    for the device.
    """
    out, at = field.reshape(field.shape[0], -1).clone(), (_rows(cells), cells)
    values = values.masked_fill(cells < 0, 0)
    return torch._index_put_impl_(out, at, values, accumulate=True, unsafe=True).view_as(field)


def _rows(cells: Tensor) -> Tensor:
    """The shot of each cell, [shot, 1]."""
    return torch.arange(cells.shape[0], device=cells.device)[:, None]
