"""Every Python block of README.md and docs/ runs on a CPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    """The page's blocks, each moved to its own line numbers for the traceback."""
    text = page.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, m.start(1)) + m[1] for m in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_blocks_run(page, monkeypatch, tmp_path):
    """The blocks of one page run in order, in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    namespace: dict = {"__name__": "__main__"}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), namespace)


def test_pages_have_code():
    """The example pages hold code, so that the test above cannot pass by finding none."""
    with_code = {p.name for p in PAGES if blocks(p)}
    assert {"README.md", "usage.md", "adding-an-equation.md"} <= with_code
    assert {f"maths-{e}.md" for e in ("scalar", "acoustic", "elastic", "maxwell")} <= with_code


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    """Every relative link of a page names a file of the repository."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [t for t in targets if not (page.parent / t).exists()]
    assert not missing
