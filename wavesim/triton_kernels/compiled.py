"""Kernels compiled with registers that fit, and started without Triton's own way to them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from ..device import interpreting

REGISTER_LIMITS = (56, 64, 72, 80, 96, 128, 168, 255)
FEW_SPILLS = 4
"""Registers that a thread may spill: ptxas gives some up to fit one more block on a processor, and
that is worth more. On an H200 the adjoint loop of scalar 16 x 1000^2 took 201 us a step when its
text came to 72 registers, and 133 when it was changed a little and came to 64."""
_compiled: dict[Hashable, Any] = {}


def compiled(
    kernel: Any, key: Hashable, arguments: dict[str, Any], limit: int | None = None
) -> Any:
    """What runs a kernel: found once for all calls of a key, which must tell apart whatever the
    kernel is specialised on. The interpreter runs the kernel itself."""
    name = (kernel.__name__, key)  # the hash of a kernel is that of its source
    found = _compiled.get(name)
    if found is None:
        if interpreting():
            return kernel
        found = _compiled[name] = fitted(kernel, arguments, limit)
    return found


def fitted(kernel: Any, arguments: dict[str, Any], limit: int | None = None) -> Any:
    """The compiled kernel, loaded: with the limit if there is one, as it is if it spills little or
    its registers are given, else with the lowest limit that spills little, or the highest one."""

    def built(**options: int | None) -> Any:
        found = kernel.warmup(**{**arguments, **options}, grid=(1,))
        found._init_handles()
        return found

    hip = torch.version.hip
    first = found = built() if limit is None or hip else built(maxnreg=limit)
    if first.n_spills <= FEW_SPILLS or "maxnreg" in arguments or hip:
        return first
    for higher in REGISTER_LIMITS:
        if higher > first.n_regs:
            found = built(maxnreg=higher)
            if found.n_spills <= FEW_SPILLS:
                break
    return found


def execute(found: Any, kernel: Any, programs: int, arguments: dict[str, Any]) -> None:
    """Run a compiled kernel: Triton's own way to it costs the host several times as much."""
    if found is kernel:
        kernel[(programs,)](**arguments)
    else:
        found[(programs, 1, 1)](*_in_order(kernel.__name__, tuple(kernel.arg_names))(arguments))


@lru_cache(maxsize=64)
def _in_order(name: str, names: tuple[str, ...]) -> Callable[[dict[str, Any]], tuple]:
    return itemgetter(*names)


class Numbers:
    """Arguments of `run_alike` that are no tensors: a number or a tuple of some by name, constants
    have capital ones. To be kept for the next call that is alike.

    kinds: what Triton specialises a kernel on in them.
    """

    def __init__(self, **values: int | tuple[int, ...]) -> None:
        self.values = values
        self.kinds = tuple(
            tuple(
                n if name.isupper() else (n == 1, n % 16 == 0, n.bit_length() > 31)
                for n in (value if isinstance(value, tuple) else (value,))
            )
            for name, value in values.items()
        )


def run_alike(kernel: Any, programs: int, numbers: Numbers, **tensors: Any) -> None:
    """Run a kernel, compiled for all arguments of a kind; of tensors there may be tuples."""
    kinds: list[Hashable] = [numbers.kinds]
    for given in tensors.values():
        several = (given,) if isinstance(given, Tensor) else given
        kinds.append(len(several))
        for t in several:
            kinds += (t.dtype, t.data_ptr() & 15)
    kinds.append(t.device)
    arguments = numbers.values | tensors
    execute(compiled(kernel, tuple(kinds), arguments), kernel, programs, arguments)
