"""What a row of the benchmarks says."""

from __future__ import annotations

import re

import pytest

from benchmarks import measure
from benchmarks.cases import WIDTH, Case, Experiment

CASE = Case("acoustic", (5, 6), 2, 12)
FIELDS = {
    *("who", "commit", "dirty", "kernel_hash", "choice", "gpu", "driver", "cuda", "torch"),
    *("triton", "equation", "shape", "padded_shape", "nt", "step_ratio", "order", "dtype", "shots"),
    *("sources", "receivers", "history", "gradient", "seconds_cold", "seconds", "seconds_20"),
    *("seconds_80", "event_seconds", "event_seconds_20", "event_seconds_80", "gcells_per_s"),
    *("bytes_per_step", "copy_percent", "copy_bytes_per_s", "kernel_launches"),
    *("peak_allocated_gib", "peak_reserved_gib", "card_gib", "planned_gib", "parity_error"),
    *("command", "seed"),
}


@pytest.fixture(scope="module")
def row():
    def prepare():
        experiment = Experiment(CASE, True, "cpu")
        return lambda: experiment.run("eager")[1]

    report, times = measure.timed(prepare, 3, "cpu")
    common = measure.environment("abc+") | {"copy_bytes_per_s": 1e12}
    return measure.row("wavesim", CASE, True, times, 0.0, common, report)


def test_a_row_says_everything(row):
    assert set(row) >= FIELDS


def test_a_row_agrees_with_its_run(row):
    """Rates from the median, memory from the report, the padded grid from the layers."""
    assert row["padded_shape"] == (5 + 2 * WIDTH, 6 + 2 * WIDTH)
    assert row["seconds_20"] <= row["seconds"] <= row["seconds_80"]
    assert row["gcells_per_s"] == pytest.approx(5 * 6 * 2 * 12 / row["seconds"] / 1e9)
    moved = row["bytes_per_step"] * 12 / row["seconds"]
    assert row["copy_percent"] == pytest.approx(100 * moved / 1e12)
    assert row["planned_gib"] > 0 and row["history"] is not None


def test_a_given_commit_stands_for_a_copy_without_git():
    """A plus at its end says that files differ from it."""
    assert measure.commit("abc+") == {"commit": "abc", "dirty": True}
    assert measure.commit("abc") == {"commit": "abc", "dirty": False}
    assert set(measure.commit()) == {"commit", "dirty"}


def test_the_kernel_hash_is_of_the_sources(monkeypatch, tmp_path):
    """Equal for equal sources; another for a changed one."""
    first = measure.kernel_hash()
    assert re.fullmatch("[0-9a-f]{16}", first) and first == measure.kernel_hash()
    (tmp_path / "wavesim" / "equations").mkdir(parents=True)
    (tmp_path / "wavesim" / "equations" / "scalar.py").write_text("changed")
    monkeypatch.setattr(measure, "ROOT", tmp_path)
    assert measure.kernel_hash() != first
