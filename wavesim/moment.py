"""Seismic moment tensors as stress-rate sources of `wavesim.elastic`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from torch import Tensor

from .config import FLOATS, INTEGERS, Sources, message, require, require_tensor
from .points import unused


def moment_tensor(
    moment_rate: Tensor, locations: Tensor, spacing: float | Sequence[float]
) -> dict[str, Sources]:
    """Sources of `wavesim.elastic` for point moment tensors, by channel.

    The stress obeys ``s_t = C e_t - M_t delta(x - x_0)`` with the moment rate M_t, so a channel's
    amplitude is ``-M_t / (cell area or volume)``. Normal components enter at the node. A shear
    stress lies half a cell up two axes: its component enters the four cells around the node,
    (i, i - 1) x (j, j - 1), a quarter each, and is so centred on the node. Aki and Richards (2002),
    Quantitative Seismology, section 3.3.

    Args:
        moment_rate: [shot, source, component, time], N m/s (in 2-D per metre along the missing
            axis). Components: yy, xx, xy in 2-D; zz, yy, xx, yz, xz, xy in 3-D. float32 or float64.
        locations: [shot, source, axis], cells, integer; an `IGNORE` slot stays unused.
        spacing: m, one number or one per axis: that of the run.

    Returns:
        Channel to `Sources`: a normal stress with the given locations, a shear stress with four
        slots for each of them. Differentiable with respect to ``moment_rate``.

    Raises:
        TypeError, ValueError: a shape or type that does not fit, or a location on the first or
            last index of an axis, where the four cells do not exist. (That a location lies in the
            model is checked by the run.)

    Example:
        >>> import torch
        >>> rate = torch.zeros(1, 1, 3, 9)
        >>> rate[:, :, 2] = 1e9  # a double couple in the plane of y and x
        >>> sources = moment_tensor(rate, torch.tensor([[[10, 12]]]), spacing=5.0)
        >>> sources["sxy"].locations.tolist()
        [[[10, 12], [10, 11], [9, 12], [9, 11]]]
        >>> sources["sxy"].amplitudes[0, :, 0].tolist()
        [-10000000.0, -10000000.0, -10000000.0, -10000000.0]
    """
    require_tensor(locations, "locations", INTEGERS, 3)
    require_tensor(moment_rate, "moment_rate", FLOATS, 4)
    ndim = locations.shape[-1]
    require(ndim in (2, 3), "locations", f"{ndim} coordinates", "2 or 3")
    pairs = [(i, i) for i in range(ndim)] + list(combinations(range(ndim), 2))
    want, got = [*locations.shape[:2], len(pairs)], list(moment_rate.shape[:3])
    shape = f"[{want[0]}, {want[1]}, {want[2]}, time]"
    require(got == want, "moment_rate", f"shape {list(moment_rate.shape)}", shape)
    lengths = [spacing] * ndim if isinstance(spacing, (int, float)) else list(spacing)
    count = f"one number or {ndim}, one per axis"
    require(len(lengths) == ndim, "spacing", spacing, count)
    positive = all(math.isfinite(h) and h > 0 for h in lengths)
    require(positive, "spacing", spacing, "positive lengths in metres")
    _refuse_first_index(locations)
    names = "zyx"[3 - ndim :]
    amplitudes = -moment_rate / math.prod(lengths)
    return {
        f"s{names[j]}{names[i]}": (
            Sources(amplitudes[:, :, k], locations)
            if i == j
            else _spread(amplitudes[:, :, k], locations, (i, j))
        )
        for k, (i, j) in enumerate(pairs)
    }


def _refuse_first_index(locations: Tensor) -> None:
    """Every axis is one of a shear stress's two, which need the cell below."""
    wrong: Tensor = locations.lt(1) & ~unused(locations)[..., None]
    if wrong.any():
        shot, source, axis = wrong.nonzero()[0].tolist()
        where = f"locations[shot {shot}, source {source}, axis {axis}]"
        value = int(locations[shot, source, axis])
        remedy = "Shear components enter the cells on both sides of the node."
        raise ValueError(message(where, value, "1 to the last cell but one of the model", remedy))


def _spread(amplitudes: Tensor, locations: Tensor, axes: tuple[int, int]) -> Sources:
    """A quarter to each of the four half cells around the node, four slots to a source."""
    shifts = locations.new_zeros(4, locations.shape[-1])
    for row, (a, b) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        shifts[row, axes[0]], shifts[row, axes[1]] = a, b
    keep = ~unused(locations)[..., None, None]
    cells = locations[:, :, None] - keep * shifts  # [shot, source, 4, axis]
    quarters = (amplitudes / 4)[:, :, None].expand(-1, -1, 4, -1)
    return Sources(quarters.flatten(1, 2), cells.flatten(1, 2))
