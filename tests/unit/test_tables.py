"""Tables in the documents are printed from committed result rows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.__main__ import parse, printed
from benchmarks.tables import table

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"<!-- rows: (.*?) -->\n(.*?)<!-- end -->", re.S)
PAGES = [p for p in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")) if MARK.search(p.read_text())]


def test_some_page_has_a_table():
    assert {"README.md", "performance.md"} <= {p.name for p in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_tables_are_those_of_the_rows(page, monkeypatch):
    """What `python -m benchmarks table` prints with the words of the mark."""
    for words, text in MARK.findall(page.read_text()):
        monkeypatch.chdir(ROOT)
        assert text.strip() == printed(parse(["table", *words.split()])).strip(), words


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("benchmarks/results/*.jsonl")), ids=lambda p: p.name
)
def test_rows_say_where_they_come_from(path):
    """Every row names commit, command, GPU and versions."""
    for line in path.read_text().splitlines():
        row = json.loads(line)
        assert {"commit", "command", "gpu", "torch", "triton", "case", "seed"} <= set(row)


def rows(path: Path, *found: dict) -> Path:
    """A file of rows of a case "a" with its time a step, forward and with the gradient."""
    common = {"case": "a", "gcells_per_s": 5.0, "peak_allocated_gib": 1.0, "commit": "0123abcde"}
    both = [common | row | {"gradient": g} for row in found for g in (False, True)]
    path.write_text("\n".join(json.dumps(r) for r in both) + "\n")
    return path


def test_tables_show_the_speed_over_others(tmp_path):
    """By the step, forward / gradient; only packages of whom there are rows."""
    path = rows(
        tmp_path / "rows.jsonl",
        {"who": "wavesim", "us_per_step": 2.0},
        {"who": "eager", "us_per_step": 50.0},
        {"who": "tide", "us_per_step": 3.0, "case": "b"},
    )
    head, _, line = table(path).splitlines()
    assert head.endswith("| peak, GiB | commit | over eager | over tide |")
    assert line.endswith("| 1 | 0123abc | 25 / 25 | - |")


def test_of_several_rows_the_last_counts(tmp_path):
    """A case timed again replaces its row."""
    first, last = ({"who": "wavesim", "us_per_step": t} for t in (2.0, 3.0))
    assert "| 3 |" in table(rows(tmp_path / "rows.jsonl", first, last))


def test_a_table_can_be_short(tmp_path):
    """Cells a second only, and some of the cases."""
    path = rows(tmp_path / "rows.jsonl", {"who": "wavesim", "us_per_step": 2.0})
    assert table(path, short=True).splitlines()[-1] == "| a | 5 | 5 |"
    assert len(table(path, pattern="b").splitlines()) == 2
