"""Tables in the documents are printed from committed result rows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.__main__ import table

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"<!-- rows: (.*?) -->\n(.*?)<!-- end -->", re.S)
PAGES = [p for p in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")) if MARK.search(p.read_text())]


def test_some_page_has_a_table():
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_tables_are_those_of_the_rows(page):
    """What `python -m benchmarks table ROWS` prints."""
    for rows, text in MARK.findall(page.read_text()):
        assert text.strip() == table(ROOT / rows).strip(), rows


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("benchmarks/results/*.jsonl")), ids=lambda p: p.name
)
def test_rows_say_where_they_come_from(path):
    """Every row names commit, command, GPU and versions."""
    for line in path.read_text().splitlines():
        row = json.loads(line)
        assert {"commit", "command", "gpu", "torch", "triton", "case", "seed"} <= set(row)
