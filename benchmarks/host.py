"""What a call costs besides its time loop: milliseconds (median, 10 and 90 % quantiles), torch
operations and synchronisations.

On a GPU calls of one step are timed; elsewhere (or with ``--dry``) the whole path to the Triton
backend is walked without a launch, so that operations and Python can be counted on any machine.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import wavesim
from benchmarks.cases import MEDIA, Case, Experiment
from wavesim.triton_kernels import extremes as kernels
from wavesim.values import Find, Looked, extremes

READBACKS = {
    *("tolist", "item", "cpu", "numpy", "nonzero", "masked_select", "unique"),
    *("__bool__", "__int__", "__float__", "__index__"),
    "tensor",  # from host to device, which also waits
}
"""What waits for the device."""


class Operations(TorchDispatchMode):
    """Names of the operations that PyTorch was asked for; what returns a view starts no kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()
        self.views: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        returned = func._schema.returns[0].alias_info if func._schema.returns else None
        view = (returned is not None and not returned.is_write) or "empty" in name
        (self.views if view else self.kernels)[name] += 1
        return func(*args, **(kwargs or {}))


class Readbacks(TorchFunctionMode):
    """Names of the methods called that wait for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in READBACKS:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


KINDS = {
    "checked": (True, False),
    "checked, settings known": (True, True),
    "validate=False": (False, True),
}
"""What is timed, by arguments of `call`."""
TURN = 10
"""Calls of a kind that are timed one after another."""
NOTHING = {"kernel_launches": 0, "graph_steps": 0}


@contextlib.contextmanager
def dry() -> Iterator[None]:
    """The Triton backend takes tensors of any device, and its time loops do nothing.

    Of the kernels before them one operation is left each, which writes what nothing after it
    refuses: indices of 0, and what PyTorch found of the first call's values.
    """
    known: dict[int, torch.Tensor] = {}

    def finder(backend: str) -> Find:
        def find(at: Looked) -> tuple[torch.Tensor, int]:
            length = at.count + (at.spectra.shape[1] if at.spectra is not None else 0)
            if length not in known:
                known[length] = extremes(at)[0]
            return kernels.extremes(at)

        return find

    def pretend(found: Any, kernel: Any, programs: int, arguments: dict[str, Any]) -> None:
        if "lists" in arguments:
            arguments["lists"].zero_()
        for indices in arguments.get("cells", ()):
            indices.zero_()
        if "bar" in arguments:
            arguments["out"].zero_()
        elif "out" in arguments:
            arguments["out"].copy_(known[arguments["out"].numel()])

    with (
        mock.patch("wavesim.device.triton_obstacle", lambda device: None),
        mock.patch("wavesim.trials.interpreting", lambda: True),
        mock.patch("wavesim.stepping.Launcher.run", lambda self, steps: NOTHING),
        mock.patch("wavesim.run._finder", finder),
        mock.patch("wavesim.triton_kernels.extremes.MOST_PROGRAMS", 1),
        mock.patch("wavesim.triton_kernels.compiled.compiled", lambda *a: None),
        mock.patch("wavesim.triton_kernels.compiled.execute", pretend),
    ):
        kernels._numbers.cache_clear()
        yield
    kernels._numbers.cache_clear()


def call(experiment: Experiment, validate: bool, known: bool = False) -> Callable[[], None]:
    """A call of an experiment; known: the fastest speed and the layers' frequency are given, as
    they have to be unchecked."""
    medium = experiment.medium
    frequency, fastest = (25.0, medium.fastest) if known or not validate else (None, None)
    boundary = wavesim.PML(width=20, frequency=frequency)
    settings = {"boundary": boundary, "max_velocity": fastest, "validate": validate}

    def once() -> None:
        experiment.clear()
        records = experiment.records(experiment.forward("triton", **settings))
        if experiment.gradient:
            records.backward(torch.ones_like(records))

    return once


def control(device: str) -> Callable[[], None]:
    """A fixed piece of Python and of small operations, none of it ours: how fast the host is while
    it is measured."""
    small = torch.ones(1, device=device)

    def once() -> None:
        total = 0
        for n in range(5000):
            total += n
        for _ in range(20):
            small.add_(1)

    return once


def milliseconds(
    calls: Mapping[str, Callable[[], None]], device: str, repeats: int
) -> dict[str, list[float]]:
    """By label the sorted times until a call returned and the device was done. A few of each are
    timed in turn, so that a host that is slow for a while is so for all of them."""
    found: dict[str, list[float]] = {label: [] for label in calls}
    for _ in range(0, repeats, TURN):
        for label, once in calls.items():
            for _ in range(TURN):
                if device == "cuda":
                    torch.cuda.synchronize()
                start = time.perf_counter()
                once()
                if device == "cuda":
                    torch.cuda.synchronize()
                found[label].append(1e3 * (time.perf_counter() - start))
    return {label: sorted(times) for label, times in found.items()}


def synchronisations(once: Callable[[], None]) -> int:
    """As PyTorch counts them on a GPU."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            once()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(w.message) for w in caught)


def operations(once: Callable[[], None]) -> tuple[Operations, list[str]]:
    """What a call asks of PyTorch, and by which methods it waits for the device."""
    with Readbacks() as waits, Operations() as counted:
        once()
    return counted, waits.found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host", description=__doc__)
    parser.add_argument("--equation", choices=sorted(MEDIA), default="scalar")
    parser.add_argument("--shape", type=int, nargs="+", default=[300, 300])
    parser.add_argument("--shots", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--dry", action="store_true", help="launch nothing, even on a GPU")
    parser.add_argument("--list", action="store_true", help="the operations by name")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    skipping = dry() if options.dry or device == "cpu" else contextlib.nullcontext()
    case = Case(options.equation, tuple(options.shape), options.shots, 1)
    warnings.simplefilter("ignore")  # one step has no spectrum to take a frequency from
    print(f"{case.name}, one step, {device}")
    columns = f"{'ms':>8}{'10 %':>8}{'90 %':>8}{'kernels':>9}{'views':>7}{'readbacks':>11}"
    print(f"{'':46}{columns}{'syncs':>7}")
    with skipping:
        calls = {"control": control(device)}
        for gradient in (False, True):
            experiment = Experiment(case, gradient, device)
            for kind, choice in KINDS.items():
                label = f"{'forward and gradient' if gradient else 'forward'}, {kind}"
                calls[label] = call(experiment, *choice)
                calls[label]()  # compiles, and makes the tables
        for label, times in milliseconds(calls, device, options.repeats).items():
            counted, waits = operations(calls[label])
            syncs = synchronisations(calls[label]) if device == "cuda" else "-"
            row = "".join(f"{times[len(times) * q // 10]:8.3f}" for q in (5, 1, 9))
            row += f"{counted.kernels.total():9}{counted.views.total():7}{len(waits):11}{syncs:>7}"
            print(f"{label:46}{row}")
            if options.list:
                for names in (counted.kernels, counted.views):
                    print("   ", ", ".join(f"{n} {k}" for n, k in names.most_common()))


if __name__ == "__main__":
    main()
