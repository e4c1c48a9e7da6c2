"""Which choice runs a task fastest: keys, the files that keep the answers, and the search.

Numbers and files only: what measures is handed in.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import platformdirs
from filelock import FileLock, Timeout
from tqdm import tqdm

from .choice import Choice
from .config import message
from .plan import Plan

FORMAT = 1
BUDGET = 30.0
"""Seconds after which a search measures no further candidate."""
CACHED = "cached"
PACKAGE = Path(__file__).parent


class TuningError(RuntimeError):
    """Nothing could be measured; the message says why and what to do."""


def direction(adjoint: bool, history: bool) -> str:
    """A direction's name."""
    return ("adjoint" if adjoint else "forward") + " with history" * history


@dataclass(frozen=True)
class Task:
    """One direction of a plan: with a history it is written (forward) or read (adjoint).

    ``batched``: one model per shot.
    """

    plan: Plan
    adjoint: bool
    history: bool
    batched: bool

    @property
    def direction(self) -> str:
        return direction(self.adjoint, self.history)


@dataclass(frozen=True)
class Machine:
    """What runs the kernels, and what compiles them."""

    gpu: str
    driver: str
    torch: str
    triton: str


@dataclass(frozen=True)
class Key:
    """Everything that decides which choice is fastest. The number of time steps is no part of it.

    ``kernels`` is a hash of the source; ``shape`` holds the model and its layers.
    """

    gpu: str
    driver: str
    torch: str
    triton: str
    kernels: str
    equation: str
    ndim: int
    order: int
    dtype: str
    shape: tuple[int, ...]
    widths: tuple[tuple[int, int], ...]
    shots: int
    batched: bool
    adjoint: bool
    history: bool
    compact: bool

    @staticmethod
    @lru_cache(maxsize=256)
    def of(task: Task, machine: Machine) -> Key:
        plan = task.plan
        files = {inspect.getsourcefile(inspect.unwrap(s.update)) for s in plan.system.stages}
        return Key(
            **asdict(machine),
            kernels=source_hash(tuple(sorted(f for f in files if f))),
            equation=plan.equation.name,
            ndim=plan.ndim,
            order=plan.order,
            dtype=plan.dtype,
            shape=plan.box,
            widths=plan.widths,
            shots=plan.shots,
            batched=task.batched,
            adjoint=task.adjoint,
            history=task.history,
            compact=plan.compact,
        )

    @property
    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def name(self) -> str:
        """The name of its file, without an ending."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]


@lru_cache(maxsize=32)
def source_hash(equation_files: tuple[str, ...]) -> str:
    """Of the kernels, the equations, a user's own equation included, and how work is dealt out."""
    rooms = (PACKAGE / "triton_kernels", PACKAGE / "equations")
    ours = {path for room in rooms for path in room.glob("*.py")}
    ours |= {PACKAGE / "choice.py", PACKAGE / "layout.py"}
    digest = hashlib.sha256()
    for path in sorted(ours | {Path(f) for f in equation_files}):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True)
class Measured:
    """A candidate with its seconds a time step, or with what went wrong."""

    choice: Choice
    seconds: float | None
    error: str | None = None


@dataclass(frozen=True)
class Tuned:
    """The fastest choice, and what it was chosen from."""

    choice: Choice
    measured: tuple[Measured, ...]
    date: str

    @property
    def seconds(self) -> float | None:
        """Of the fastest choice, a time step."""
        return next((m.seconds for m in self.measured if m.choice == self.choice), None)


class Bench(Protocol):
    """What a search measures with."""

    def compile(self, listed: Sequence[Choice], done: Callable[[], object]) -> None:
        """Compile candidates ahead of time, calling ``done()`` after each; may leave any out."""

    def time(self, choice: Choice) -> float:
        """Seconds a time step."""


def cache_folder(folder: str | Path | None = None) -> Path:
    """Where results lie: as told, below WAVESIM_CACHE_DIR, or in the platform's cache folder."""
    return _below(os.environ.get("WAVESIM_CACHE_DIR")) if folder is None else Path(folder)


@lru_cache(maxsize=8)
def _below(base: str | None) -> Path:
    """Asking the platform takes longer than the rest of a look-up."""
    return Path(base or platformdirs.user_cache_dir("wavesim", appauthor=False)) / "tuning"


def _choice(data: dict[str, Any]) -> Choice:
    """From JSON; raises where it is none."""
    plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    found = Choice(**plain)
    if len(found.interior) != 3 or len(found.boundary) != 3:
        raise ValueError("a block does not have three lengths")
    if any(i % b for i, b in zip(found.interior, found.boundary, strict=True)):
        raise ValueError("the boundary block does not divide the interior block")
    return found


def load(path: Path) -> tuple[Key, Tuned] | None:
    """A file's key and result; None if there is no file, or, with a warning, no sense in it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}, this version reads {FORMAT}")
        known = {f.name: data["key"][f.name] for f in fields(Key)}
        known["shape"] = tuple(known["shape"])
        known["widths"] = tuple(tuple(w) for w in known["widths"])
        measured = tuple(
            Measured(_choice(m["choice"]), m["seconds"], m["error"]) for m in data["measured"]
        )
        return Key(**known), Tuned(_choice(data["choice"]), measured, data["date"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"ignoring {path}, which holds no result of tuning ({error}); "
        warnings.warn(text + "delete it, or tune again to replace it.", stacklevel=2)
        return None


def read(folder: Path, key: Key) -> Tuned | None:
    """The result kept under a key."""
    path = folder / f"{key.name}.json"
    found = load(path)
    if found is not None and found[0] != key:
        warnings.warn(f"ignoring {path}, which was renamed: its key is another.", stacklevel=2)
        return None
    return found[1] if found is not None else None


def write(folder: Path, key: Key, tuned: Tuned) -> None:
    """Keep a result: the file appears whole, or not at all."""
    data = {"format": FORMAT, "key": asdict(key), **asdict(tuned)}
    handle, part = tempfile.mkstemp(dir=folder, prefix=key.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(data, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, folder / f"{key.name}.json")
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


@lru_cache(maxsize=256)
def remembered(folder: Path, key: Key) -> Choice | None:
    """The choice kept under a key; a process asks the file once, and again after it has tuned."""
    found = read(folder, key)
    return None if found is None else found.choice


def kept(folder: Path) -> Iterator[tuple[Path, Key, Tuned]]:
    """Every readable result in a folder."""
    for path in sorted(folder.glob("*.json")):
        found = load(path)
        if found is not None:
            yield path, *found


def clear(folder: Path) -> int:
    """Delete all results in a folder; how many there were. Locks stay: one may be held."""
    paths = [*folder.glob("*.json"), *folder.glob("*.part")]
    for path in paths:
        path.unlink(missing_ok=True)
    remembered.cache_clear()
    return sum(path.suffix == ".json" for path in paths)


def tuned(
    key: Key,
    folder: Path,
    listed: Sequence[Choice],
    bench: Callable[[], Bench],
    *,
    label: str = "",
    progress: bool = True,
) -> Tuned:
    """The result kept under a key; if there is none, measured now and kept.

    Whoever wants the same key meanwhile waits and reads the answer.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{key.name}.lock")
        with _held(lock, label, progress):
            found = read(folder, key)
            if found is None:
                found = search(listed, bench(), label=label, progress=progress)
                write(folder, key, found)
    except OSError as error:
        remedy = "Set WAVESIM_CACHE_DIR to a folder that can be written, or use autotune=False."
        got = f"no way to write results to {folder} ({error})"
        raise TuningError(message("autotune", got, "a writable folder", remedy)) from error
    remembered.cache_clear()
    return found


def _held(lock: FileLock, label: str, progress: bool) -> FileLock:
    """A lock, acquired; says so if it is someone else's turn."""
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if progress:
            print(f"tuning {label}: waiting for the process that does it already", file=sys.stderr)
        lock.acquire()
    return lock


def search(
    listed: Sequence[Choice], bench: Bench, *, label: str = "", progress: bool = True
) -> Tuned:
    """Measure the candidates in their order and take the fastest, the earlier one of equals.

    One that fails is kept with its error and skipped.
    """
    started = time.monotonic()
    measured: list[Measured] = []
    with tqdm(
        total=2 * len(listed),
        desc=f"tuning {label}".strip(),
        file=sys.stderr,
        disable=not progress,
        bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed} {postfix}",
    ) as bar:
        bar.set_postfix_str("compiling")
        bench.compile(listed, bar.update)
        bar.n = len(listed)
        for number, choice in enumerate(listed, 1):
            bar.set_postfix_str(f"measuring {number} of {len(listed)}")
            late = time.monotonic() - started > BUDGET and any(m.seconds for m in measured)
            measured.append(_measure(bench, choice) if not late else _late(choice))
            bar.update()
    good = [m for m in measured if m.seconds is not None]
    if not good:
        got = "; ".join(f"{m.choice}: {m.error}" for m in measured)
        remedy = "Use autotune=False; if that fails as well, the errors say why."
        raise TuningError(message("autotune", got, "a candidate that runs", remedy))
    best = min(good, key=lambda m: m.seconds or 0.0)
    return Tuned(best.choice, tuple(measured), datetime.now(UTC).isoformat(timespec="seconds"))


def _measure(bench: Bench, choice: Choice) -> Measured:
    try:
        return Measured(choice, bench.time(choice))
    except TuningError:
        raise
    except Exception as error:  # of the compiler, the driver or the device: of many classes
        return Measured(choice, None, f"{type(error).__name__}: {error}".strip()[:500])


def _late(choice: Choice) -> Measured:
    return Measured(choice, None, f"not measured: {BUDGET:.0f} s were over")
