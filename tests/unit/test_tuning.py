"""Results of tuning without a GPU: keys, files, two processes at once, and the search."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from threading import Event, Thread

import pytest
from filelock import FileLock
from unit.tuned import KEY, LISTED, MACHINE, Bench, plan_of, task_of, tuned

from wavesim import tuning
from wavesim.choice import (
    CACHE_SHARE,
    FUSED,
    GRAPH,
    LOOP,
    MOST_CANDIDATES,
    STORED,
    Card,
    candidates,
    default_choice,
    working_set,
)
from wavesim.equations import REGISTRY
from wavesim.tuning import Key, TuningError

CASES = [(e, n, d) for e in sorted(REGISTRY) for n in REGISTRY[e].dimensions for d in (32, 64)]


@pytest.mark.parametrize("field", [f.name for f in fields(Key)])
def test_a_key_changes_with_each_field(field):
    """Another value of any field is another file."""
    value = getattr(KEY, field)
    other = {str: "other", int: 7, bool: not value, tuple: ((1, 2),)}[type(value)]
    assert replace(KEY, **{field: other}).name != KEY.name


def test_a_key_takes_what_decides_speed_and_nothing_else():
    """Steps, time step and spacing leave it alone; shape, layers, order and type do not."""
    for same in ({"steps": 7}, {"dt": 2e-4}, {"ratio": 2}, {"spacing": (1.0, 2.0)}):
        assert Key.of(task_of(**same), MACHINE) == KEY
    for other in (
        {"model": (300, 301)},
        {"widths": ((20, 20), (20, 19))},
        {"order": 8},
        {"dtype": "float64"},
        {"shots": 3},
        {"equation": "acoustic"},
    ):
        assert Key.of(task_of(**other), MACHINE) != KEY


def test_the_kernels_hash_follows_the_source(tmp_path, monkeypatch):
    """A changed line of a kernel or of an equation's own file is another hash."""
    own = tmp_path / "mine.py"
    own.write_text("a = 1\n")
    first = tuning.source_hash.__wrapped__((str(own),))
    own.write_text("a = 2\n")
    assert tuning.source_hash.__wrapped__((str(own),)) != first
    assert tuning.source_hash.__wrapped__(()) == tuning.source_hash.__wrapped__(())


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize(("equation", "ndim", "bits"), CASES)
def test_candidates_are_few_and_well_formed(equation, ndim, bits, adjoint):
    """At most a dozen, the default first, all different, boundary blocks within interior ones."""
    plan = plan_of(equation, ndim, 40, dtype=f"float{bits}")
    found = candidates(plan, Card(), adjoint=adjoint)
    assert found[0] == default_choice(plan, Card(), adjoint=adjoint)
    assert 2 <= len(found) == len(set(found)) <= MOST_CANDIDATES
    for choice in found:
        assert all(i % b == 0 for i, b in zip(choice.interior, choice.boundary, strict=True))
        assert choice.boundary[2] % 16 == 0
        assert 1 <= choice.shots <= plan.shots


def test_loops_take_groups_of_shots_that_fit_the_cache():
    """By default as many shots as the cache holds; no loop by default where not one fits, and none
    at all on a GPU whose programs cannot wait for each other."""
    card = Card(132, 8 * 2**20, cooperative=True)
    first = default_choice(plan_of(shots=32), card)
    assert first.mode == LOOP and 1 < first.shots < 32
    assert {c.mode for c in candidates(plan_of(shots=32), card)} == {LOOP, GRAPH}
    assert default_choice(plan_of(n=2000), card).mode == GRAPH
    assert {c.mode for c in candidates(plan_of(), Card())} == {GRAPH}


def test_the_fastest_candidate_is_kept(tmp_path):
    """Its file holds the key, the choice and every measurement; a second call measures nothing."""
    bench = Bench(3e-6, 1e-6, 2e-6)
    found = tuned(tmp_path, bench)
    assert found.choice == LISTED[1] and found.seconds == 1e-6
    assert bench.compiled == LISTED[:3] == bench.timed
    data = json.loads((tmp_path / f"{KEY.name}.json").read_text())
    assert data["key"]["gpu"] == "a card" and len(data["measured"]) == 3
    again = Bench()
    assert tuned(tmp_path, again) == found and not again.timed
    assert [(k, t) for _, k, t in tuning.kept(tmp_path)] == [(KEY, found)]


def test_a_failing_candidate_is_skipped(tmp_path):
    """It is kept with its error."""
    found = tuned(tmp_path, Bench(3e-6, RuntimeError("out of resources"), 2e-6))
    assert found.choice == LISTED[2]
    assert found.measured[1].seconds is None
    assert found.measured[1].error == "RuntimeError: out of resources"
    assert tuning.read(tmp_path, KEY) == found


def test_all_failing_raises(tmp_path):
    """The error holds each candidate's own, and no file is left."""
    with pytest.raises(TuningError, match=r"(?s)autotune: got .*first.*second.*autotune=False"):
        tuned(tmp_path, Bench(RuntimeError("first"), ValueError("second")), count=2)
    assert not list(tmp_path.glob("*.json"))


def test_no_memory_ends_the_search(tmp_path):
    """What holds for all candidates is not tried with each."""
    bench = Bench(TuningError("no room"), 1.0)
    with pytest.raises(TuningError, match="no room"):
        tuned(tmp_path, bench, count=2)
    assert len(bench.timed) == 1


def test_the_budget_ends_the_search(tmp_path, monkeypatch):
    """Once time is over and something was measured, the rest is left out and said so."""
    monkeypatch.setattr(tuning, "BUDGET", -1.0)
    bench = Bench(RuntimeError("no"), 2e-6, 1e-6)
    found = tuned(tmp_path, bench)
    assert found.choice == LISTED[1] and len(bench.timed) == 2
    assert "not measured" in found.measured[2].error


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"format": 0}', '{"format": 1, "key": {}}'],
)
def test_a_broken_file_is_ignored_with_a_warning(tmp_path, content):
    """The warning names the file; tuning replaces it."""
    path = tmp_path / f"{KEY.name}.json"
    path.write_text(content)
    with pytest.warns(UserWarning, match=KEY.name):
        assert tuning.read(tmp_path, KEY) is None
    with pytest.warns(UserWarning, match=KEY.name):
        found = tuned(tmp_path, Bench(1e-6, 2e-6), count=2)
    assert tuning.read(tmp_path, KEY) == found


def test_a_wrong_choice_or_key_in_a_file_is_ignored(tmp_path):
    """A block that does not fit would change what is computed; a renamed file is not its key's."""
    tuned(tmp_path, Bench(1e-6, 2e-6), count=2)
    path = tmp_path / f"{KEY.name}.json"
    other = replace(KEY, shots=9)
    (tmp_path / f"{other.name}.json").write_text(path.read_text())
    with pytest.warns(UserWarning, match="renamed"):
        assert tuning.read(tmp_path, other) is None
    data = json.loads(path.read_text())
    data["choice"]["boundary"] = [1, 3, 32]
    path.write_text(json.dumps(data))
    with pytest.warns(UserWarning, match="does not divide"):
        assert tuning.read(tmp_path, KEY) is None


def test_a_folder_that_cannot_be_written_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TuningError, match="WAVESIM_CACHE_DIR"):
        tuned(tmp_path / "file" / "below", Bench(1e-6))


def test_results_are_remembered_until_tuned_again(tmp_path):
    """A process asks a file once, found or not; its own tuning makes it ask again."""
    assert tuning.remembered(tmp_path, KEY) is None
    found = tuned(tmp_path, Bench(2e-6, 1e-6), count=2)
    assert tuning.remembered(tmp_path, KEY) == found.choice
    (tmp_path / f"{KEY.name}.json").unlink()
    assert tuning.remembered(tmp_path, KEY) == found.choice
    tuning.clear(tmp_path)
    assert tuning.remembered(tmp_path, KEY) is None


def test_the_folder_is_the_users_to_choose(tmp_path, monkeypatch):
    monkeypatch.delenv("WAVESIM_CACHE_DIR", raising=False)
    assert tuning.cache_folder().name == "tuning"
    assert "wavesim" in tuning.cache_folder().parts
    monkeypatch.setenv("WAVESIM_CACHE_DIR", str(tmp_path))
    assert tuning.cache_folder() == tmp_path / "tuning"
    assert tuning.cache_folder("here") == Path("here")


SCRIPT = """
import os, sys, time
from pathlib import Path
from unit import tuned as t
from wavesim import tuning

folder, log, gate = map(Path, sys.argv[1:4])

class Slow:
    def compile(self, listed, done):
        pass
    def time(self, choice):
        with log.open("a") as out:
            out.write(f"{os.getpid()}\\n")
        time.sleep(0.2)
        return 1e-6 * (1 + t.LISTED.index(choice))

(gate / str(os.getpid())).touch()
while len(list(gate.iterdir())) < int(sys.argv[4]):
    time.sleep(0.01)
found = tuning.tuned(t.KEY, folder, t.LISTED[:4], Slow, progress=False)
print(found.choice == t.LISTED[0])
"""


def start(tmp_path: Path, together: int) -> subprocess.Popen:
    """A process that tunes once ``together`` of them are ready."""
    (tmp_path / "gate").mkdir(exist_ok=True)
    names = [str(tmp_path / n) for n in ("cache", "log", "gate")]
    path = f"import sys; sys.path[:] = {sys.path!r}\n"
    command = [sys.executable, "-c", path + SCRIPT, *names, str(together)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_tuning_one_key_measure_once(tmp_path):
    """Both get the answer; one measured, the other waited; one whole file is left."""
    both = [start(tmp_path, 2) for _ in range(2)]
    for process in both:
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0 and out.strip() == "True", error
    measured = (tmp_path / "log").read_text().split()
    assert len(measured) == 4 and len(set(measured)) == 1
    assert [k for _, k, _ in tuning.kept(tmp_path / "cache")] == [KEY]
    assert not list((tmp_path / "cache").glob("*.part"))


def test_who_waits_for_another_process_is_told(tmp_path, capsys):
    """A call that stands still says why, on the error stream."""
    held = Event()

    def hold() -> None:
        with FileLock(tmp_path / f"{KEY.name}.lock"):
            held.set()
            time.sleep(0.3)

    holder = Thread(target=hold)
    holder.start()
    held.wait()
    tuning.tuned(KEY, tmp_path, LISTED[:1], lambda: Bench(1e-6), label="it", progress=True)
    holder.join()
    assert "tuning it: waiting for the process" in capsys.readouterr().err


def test_a_killed_process_leaves_its_key_free(tmp_path):
    """No half result, and the lock is not held by the dead."""
    process = start(tmp_path, 1)
    until = time.monotonic() + 120
    while not (tmp_path / "log").exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert not list((tmp_path / "cache").glob("*.json"))
    found = tuned(tmp_path / "cache", Bench(2e-6, 1e-6), count=2)
    assert tuning.read(tmp_path / "cache", KEY) == found


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    """A result that cannot be put in place leaves neither a part nor a broken file."""
    found = tuning.search(LISTED[:1], Bench(1e-6), progress=False)

    def fails(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(tuning.os, "replace", fails)
    with pytest.raises(OSError, match="disk full"):
        tuning.write(tmp_path, KEY, found)
    assert not list(tmp_path.iterdir())


def test_shots_are_grouped_evenly():
    """Of 32 shots of which 20 fit the cache there are two halves, not 20 and a rest."""
    card = Card(132, 60 * 2**20, cooperative=True)
    shot, shared = working_set(plan_of(n=300, shots=32), False)
    assert 17 <= (CACHE_SHARE * card.cache_bytes - shared) / shot < 32
    assert default_choice(plan_of(n=300, shots=32), card).shots == 16


def test_cotangents_are_stored_where_hookes_law_couples_them():
    """By default of elastic waves in 3-D only; the tuner tries the other route of every one."""
    for equation, ndim, route in (
        ("elastic", 3, STORED),
        ("elastic", 2, FUSED),
        ("acoustic", 3, FUSED),
    ):
        plan = plan_of(equation, ndim, 40)
        assert default_choice(plan, Card(), adjoint=True).route == route
        assert default_choice(plan, Card()).route == FUSED
        assert {c.route for c in candidates(plan, Card(), adjoint=True)} == {FUSED, STORED}
    assert {c.route for c in candidates(plan_of(), Card(), adjoint=True)} == {FUSED}


def test_registers_are_limited_where_a_launch_a_stage_was_faster_so():
    """By direction and order, in float32; a loop of one tile a program needs what it can get."""
    for equation, ndim, order, settings, expected in (
        ("scalar", 3, 4, {}, 0),
        ("scalar", 3, 4, {"history": True}, 32),
        ("scalar", 3, 8, {"adjoint": True, "history": True}, 48),
        ("elastic", 3, 4, {"adjoint": True, "history": True}, 128),
        ("maxwell", 3, 4, {"adjoint": True, "history": True}, 0),
        ("elastic", 2, 4, {"history": True}, 48),
    ):
        plan = plan_of(equation, ndim, 40, order=order)
        assert default_choice(plan, Card(), **settings).registers == expected
        plan = replace(plan, dtype="float64")
        assert default_choice(plan, Card(), **settings).registers == 0
    card = Card(132, 60 * 2**20, cooperative=True)
    for adjoint in (False, True):
        small = default_choice(plan_of(n=300, shots=1), card, adjoint=adjoint)
        assert small.mode == LOOP and small.registers == 0
