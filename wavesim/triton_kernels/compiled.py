"""Kernels compiled with registers that fit, and started without Triton's own way to them."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
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
        found[(programs, 1, 1)](*(arguments[name] for name in kernel.arg_names))


def run_alike(kernel: Any, programs: int, numbers: dict[str, Any], **tensors: Any) -> None:
    """Run a kernel, compiled for all arguments of a kind; numbers and tensors may be in tuples."""
    kinds = [
        (t.dtype, t.data_ptr() % 16, t.device)
        for given in tensors.values()
        for t in ((given,) if isinstance(given, Tensor) else given)
    ]
    arguments = {**numbers, **tensors}
    found = compiled(kernel, (_kinds(tuple(numbers.items())), *kinds), arguments)
    execute(found, kernel, programs, arguments)


@lru_cache(maxsize=256)
def _kinds(numbers: tuple) -> tuple:
    """What Triton specialises a kernel on; constants have capital names."""
    return tuple(
        value if name.isupper() else (value == 1, value % 16 == 0, value.bit_length() > 31)
        for name, given in numbers
        for value in (given if isinstance(given, tuple) else (given,))
    )
