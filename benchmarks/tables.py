"""Markdown from committed rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

Key = tuple[str, str, bool]
HEAD = (
    "| case | forward, Gcell/s | us a step | gradient, Gcell/s | us a step | peak, GiB | commit |"
)
OTHERS = ("eager", "deepwave", "tide", "sweep")


def read(path: Path) -> dict[Key, dict]:
    """Rows by (who, case, gradient); of several the last."""
    rows = (json.loads(line) for line in path.read_text().splitlines())
    return {(r.get("who", "wavesim"), r["case"], r["gradient"]): r for r in rows}


def cases(rows: Iterable[Key], pattern: str = "") -> list[str]:
    """Cases that were timed forward and with the gradient, in the order of the file."""
    found = list(rows)
    ours = dict.fromkeys(case for who, case, _ in found if who == "wavesim" and pattern in case)
    return [c for c in ours if all(("wavesim", c, g) in found for g in (False, True))]


def ratio(rows: dict[Key, dict], who: str, case: str, gradient: bool) -> str:
    """How many times faster we are by the step; a dash where the other was not timed."""
    other = rows.get((who, case, gradient))
    if other is None:
        return "-"
    return f"{other['us_per_step'] / rows['wavesim', case, gradient]['us_per_step']:.3g}"


def table(path: Path, pattern: str = "", short: bool = False) -> str:
    """A line per case; with the speed over each of the others, forward / gradient, of whom there
    are rows. short: case and Gcell/s only. pattern: part of the names of the cases."""
    rows = read(path)
    who = [w for w in OTHERS if any(w == key[0] for key in rows)]
    head = HEAD if not short else "| case | forward, Gcell/s | gradient, Gcell/s |"
    head += "".join(f" over {w} |" for w in who)
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    for case in cases(rows, pattern):
        cells = [case]
        for gradient in (False, True):
            row = rows["wavesim", case, gradient]
            cells.append(f"{row['gcells_per_s']:.3g}")
            cells += [] if short else [f"{row['us_per_step']:.3g}"]
        cells += [] if short else [f"{row['peak_allocated_gib']:.3g}", row["commit"][:7]]
        for w in who:
            pair = [ratio(rows, w, case, g) for g in (False, True)]
            cells.append("-" if pair == ["-", "-"] else " / ".join(pair))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
