"""Locations to indices: shared by every equation and both backends."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .config import IGNORE, message


def unused(locations: Tensor) -> Tensor:
    """[shot, point], True where a slot is marked `IGNORE`."""
    return (locations == IGNORE).all(-1)


def outside(locations: Tensor, extent: Tensor) -> Tensor:
    """[shot, point], True where a used slot lies outside [0, extent)."""
    wrong = (locations < 0) | (locations >= extent)
    return wrong.any(-1) & ~unused(locations)


def raise_outside(argument: str, locations: Tensor, extent: Sequence[int]) -> None:
    """Name the first location outside the model; called once one is known to exist."""
    wrong = outside(locations, torch.tensor(extent, device=locations.device))
    shot, point = wrong.nonzero()[0].tolist()
    for axis, value in enumerate(locations[shot, point].tolist()):
        if not 0 <= value < extent[axis]:
            where = f"{argument}[shot {shot}, point {point}, axis {axis}]"
            remedy = "Locations are cell indices of the model, not metres, and its boundary "
            remedy += "layers do not count. Use wavesim.IGNORE on every axis of an unused slot."
            raise ValueError(message(where, value, f"a cell in 0..{extent[axis] - 1}", remedy))


def box_cells(locations: Tensor, widths: Sequence[tuple[int, int]], box: Sequence[int]) -> Tensor:
    """Flat index in the padded box of each location, [shot, point] int64; -1 for unused slots."""
    flat = torch.zeros(locations.shape[:2], dtype=torch.int64, device=locations.device)
    for axis, (low, _) in enumerate(widths):
        flat = flat * box[axis] + locations[..., axis].long() + low
    return torch.where(unused(locations), -1, flat)


def take(field: Tensor, cells: Tensor) -> Tensor:
    """Values of field [1 or shot, box] at cells [shot, point]; zero at unused slots."""
    flat = field.reshape(field.shape[0], -1)
    row = torch.arange(cells.shape[0], device=cells.device)[:, None] * int(flat.shape[0] > 1)
    return torch.where(cells < 0, 0, flat[row, cells.clamp(min=0)])


def add(field: Tensor, cells: Tensor, values: Tensor) -> Tensor:
    """Field [shot, box] plus values at cells, coincident ones summed: the transpose of `take`."""
    flat = field.reshape(field.shape[0], -1)
    values = torch.where(cells < 0, 0, values)
    row = torch.arange(cells.shape[0], device=cells.device)[:, None].expand_as(cells)
    return flat.index_put((row, cells.clamp(min=0)), values, accumulate=True).view_as(field)
