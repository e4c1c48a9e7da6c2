"""Candidates run on a device, on tensors of their own: compiled in worker processes, then timed."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
import triton
from torch import Tensor

from . import stepping, tuning
from .choice import Card, Choice, candidates, default_choice
from .config import message
from .device import card, driver_version, interpreting
from .history import DeviceHistory, histories
from .layout import Layout, field_bytes
from .triton_kernels.launch import on_device
from .tuning import Key, Machine, Task, Tuned, TuningError

Tensors = tuple[Tensor, ...]

SECONDS = 0.02
"""How long a timed run should take, at least half of it."""
REPEATS = 5
MOST_STEPS = 20_000
HISTORY_BYTES = 4 * 2**30
"""Most that a trial's history may take, and at most a quarter of what is free."""
WORKERS = 8
WORKER_BYTES = 2**29
"""Of a process' CUDA context."""
COMPILING = 20.0
"""Seconds after which worker processes are stopped; what is left compiles when it is measured."""
FEW = 2


@lru_cache(maxsize=16)
def machine(device: torch.device) -> Machine:
    properties = torch.cuda.get_device_properties(device)
    gpu = f"{properties.name}, {properties.multi_processor_count} processors"
    return Machine(gpu, driver_version(), torch.__version__, triton.__version__)


def choose(task: Task, device: torch.device, autotune: bool | str) -> tuple[Choice, str]:
    """The choice for a task, and whether it is the "default" or was "tuned".

    True measures where no result is kept; "cached" takes one that is, and never measures.
    """
    if autotune and not interpreting():
        key = Key.of(task, machine(device))
        found = tuning.remembered(tuning.cache_folder(), key)
        if found is None and autotune is True:
            found = tune(task, device).choice
        if found is not None:
            return found, "tuned"
    return default_choice(
        task.plan, card(device), adjoint=task.adjoint, history=task.history
    ), "default"


def tune(
    task: Task, device: torch.device, *, folder: Path | None = None, progress: bool = True
) -> Tuned:
    """The result kept for a task; if there is none, measured now on scratch tensors and kept."""
    key, where = Key.of(task, machine(device)), tuning.cache_folder(folder)
    found = tuning.read(where, key)
    if found is not None:
        return found
    if torch.cuda.is_current_stream_capturing():
        remedy = "Tune before the capture (`wavesim.tune`, or one call outside it), or use "
        got = "True inside the capture of a CUDA graph"
        expected = f'a result in {where}, or "cached"'
        raise TuningError(message("autotune", got, expected, remedy + 'autotune="cached".'))
    label = f"{task.plan.equation.name} {'x'.join(map(str, task.plan.model))} {task.direction}"
    listed = candidates(task.plan, card(device), adjoint=task.adjoint, history=task.history)
    with torch.no_grad(), on_device(device):
        return tuning.tuned(
            key, where, listed, lambda: Trial(task, device), label=label, progress=progress
        )


@dataclass(frozen=True, eq=False)
class Scratch:
    """Random inputs of a task, nothing of the user's: small coefficients keep fields finite."""

    task: Task
    coefs: Tensors
    amplitudes: Tensors
    fields: Tensors
    memory: Tensors
    records: Tensors
    source_cells: Tensors
    receiver_cells: Tensors
    kept: list[list[Tensor]] | None

    @staticmethod
    def of(task: Task, device: torch.device, steps: int) -> Scratch:
        plan = replace(task.plan, steps=steps)
        task, system = replace(task, plan=plan), plan.system
        rng = torch.Generator(device).manual_seed(1)  # the user's random numbers stay theirs

        def random(*shape: int) -> Tensor:
            dtype = getattr(torch, plan.dtype)
            return torch.randn(*shape, generator=rng, dtype=dtype, device=device)

        def cells(kinds: Sequence, count: int) -> Tensors:
            """Points of the first channel along the middle, none of the others."""
            middle = math.prod(plan.box) // 2
            at = middle + torch.arange(count, device=device) - count // 2
            counts = [count] + [0] * (len(kinds) - 1)
            return tuple(at[:n].repeat(plan.shots, 1) for n in counts)

        number = 1 + max(i for s in system.stages for i in s.coefficients + s.adjoint_reads)
        models = plan.shots if task.batched else 1
        source_cells = cells(system.injections, 1)
        receiver_cells = cells(system.recorded, min(64, math.prod(plan.box)))
        layout = Layout.of(plan, default_choice(plan, Card()))
        history = None
        if task.history:
            history = DeviceHistory(layout, random(1))
            for values in history.flat if task.adjoint else []:
                values.normal_(generator=rng)
        return Scratch(
            task=task,
            coefs=tuple(1e-6 * (1 + random(models, *plan.box) ** 2) for _ in range(number)),
            amplitudes=tuple(random(plan.shots, c.shape[1], steps) for c in source_cells),
            fields=tuple(random(plan.shots, *plan.box) for _ in system.fields),
            memory=tuple(random(*plan.memory_shape(axis)) for axis, _ in plan.memories),
            records=tuple(random(plan.shots, c.shape[1], steps) for c in receiver_cells),
            source_cells=source_cells,
            receiver_cells=receiver_cells,
            kept=history.kept if history is not None else None,
        )

    def run(self, choice: Choice) -> None:
        layout = Layout.of(self.task.plan, choice, adjoint=self.task.adjoint)
        run = stepping.Run.start(layout, self.coefs, self.source_cells, self.receiver_cells)
        like = self.coefs[0]
        history = DeviceHistory(layout, like, self.kept) if self.kept is not None else None
        if self.task.adjoint:
            bars = self.records, self.fields, self.memory
            needs = stepping.Needs(
                coefs=(history is not None,) * len(self.coefs),
                amplitudes=(False,) * len(self.source_cells),
                fields=(False,) * len(self.fields),
                memory=(False,) * len(self.memory),
            )
            stepping.adjoint(run, self.coefs, history, bars, needs)
        else:
            stepping.forward(run, self.amplitudes, self.fields, self.memory, history)


class Trial:
    """A `tuning.Bench`: one task on one device."""

    def __init__(self, task: Task, device: torch.device) -> None:
        self.task, self.device = task, device
        self.scratch: Scratch | None = None

    def time(self, choice: Choice) -> float:
        """Median seconds a step of whole runs; all candidates run the same number of steps."""
        try:
            if self.scratch is None:
                self.scratch = self._sized(choice)
            self.scratch.run(choice)
            times = [self._seconds(self.scratch, choice) for _ in range(REPEATS)]
        except torch.cuda.OutOfMemoryError as error:
            got = f"no room for scratch tensors on {self.device} ({error})"
            remedy = "Tune before the model is loaded (`python -m wavesim tune`), with fewer "
            remedy += 'shots, or use autotune="cached".'
            raise TuningError(message("autotune", got, "free memory for one run", remedy)) from None
        return statistics.median(times) / self.scratch.task.plan.steps

    def _seconds(self, scratch: Scratch, choice: Choice) -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        scratch.run(choice)
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e-3

    def _sized(self, choice: Choice) -> Scratch:
        """Inputs of so many steps that a run takes about `SECONDS`, or as many as memory has."""
        steps, most = FEW, self._most_steps()
        while True:
            scratch = Scratch.of(self.task, self.device, steps)
            scratch.run(choice)
            seconds = self._seconds(scratch, choice)
            if steps >= most or seconds >= SECONDS / 2:
                return scratch
            steps = min(most, int(steps * min(32.0, max(2.0, SECONDS / seconds))))
            del scratch  # before the next, larger one

    def _most_steps(self) -> int:
        plan = self.task.plan
        if not self.task.history:
            return MOST_STEPS
        layout = Layout.of(plan, default_choice(plan, Card()))
        values = layout.history_shot * plan.shots * sum(histories(plan))
        room = min(HISTORY_BYTES, torch.cuda.mem_get_info(self.device)[0] // 4)
        return max(FEW, min(MOST_STEPS, room // max(1, values * plan.itemsize)))

    def compile(self, listed: Sequence[Choice], done: Callable[[], object]) -> None:
        """Fill Triton's cache on disk from several processes.

        Threads would not do: all but the assembler, 7 % of the work, holds Python's lock. The
        workers are plain processes because those of `multiprocessing` run the user's script again.
        """
        count = self._workers(len(listed))
        if count < 2:
            return
        shares = [listed[i::count] for i in range(count)]
        try:
            with ThreadPoolExecutor(count) as pool:
                sent = (pickle.dumps((self.task, self.device, share)) for share in shares)
                errors = [e for e in pool.map(lambda s: _compile_elsewhere(s, done), sent) if e]
        except (OSError, pickle.PicklingError, AttributeError, TypeError) as error:
            errors = [str(error)]
        if errors:
            text = f"compiling ahead in {count} processes failed in {len(errors)} of them; the "
            warnings.warn(text + f"rest is compiled one by one. {errors[0]}", stacklevel=2)

    def _workers(self, number: int) -> int:
        """How many processes memory, processors and work allow."""
        plan = self.task.plan
        layout = Layout.of(plan, default_choice(plan, Card()), adjoint=self.task.adjoint)
        need = WORKER_BYTES + 4 * field_bytes(layout)  # inputs, their copies, results, gradients
        room = torch.cuda.mem_get_info(self.device)[0] // need
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        return min(WORKERS, number, room, max(1, cores - 1))


BOOT = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from wavesim.trials import worker; worker()"
)
DONE = b"wavesim: compiled one"


def _compile_elsewhere(sent: bytes, done: Callable[[], object]) -> str:
    """Run a worker to its end or `COMPILING`: the last line of its errors if it failed."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        late = threading.Timer(COMPILING, process.kill)
        late.start()
        with process:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(pickle.dumps(sys.path) + sent)
                process.stdin.close()
            for line in process.stdout:
                if line.strip() == DONE:
                    done()
        timely = late.is_alive()
        late.cancel()
        if process.returncode == 0 or not timely:
            return ""
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {process.returncode}"


def worker() -> None:
    """What a worker process does: run each candidate for a few steps, which compiles it."""
    task, device, listed = pickle.load(sys.stdin.buffer)
    with torch.no_grad(), on_device(device):
        scratch = Scratch.of(task, device, FEW)
        for choice in listed:
            with contextlib.suppress(Exception):  # whoever measures it meets the same error
                scratch.run(choice)
            print(DONE.decode(), flush=True)
