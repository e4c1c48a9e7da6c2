"""Every kernel builds ahead of time for three targets on a machine without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest

from wavesim.equations import REGISTRY
from wavesim.stencils import ORDERS
from wavesim.triton_kernels.compiled import FEW_SPILLS

BUILD = Path(__file__).parent / "build.py"
ROOT = BUILD.parents[2]
EVERYTHING = os.environ.get("WAVESIM_COMPILE") == "all"
TARGETS = ("sm_80", "sm_90", "gfx942")
FIRST = "scalar"


def combinations() -> list[tuple[str, str, int, int, str]]:
    """(target, dtype, order, ndim, equation): all; or of the first equation all of sm_90 float32
    and order 4 of the rest, of the others order 4 in float32."""
    found = []
    for name, equation in REGISTRY.items():
        for c in product(TARGETS, ("float32", "float64"), ORDERS, equation.dimensions):
            target, dtype, order, _ = c
            if name == FIRST:
                wanted = order == 4 or (target == "sm_90" and dtype == "float32")
            else:
                wanted = order == 4 and dtype == "float32"
            if wanted or EVERYTHING:
                found.append((*c, name))
    return found


def build(combination: tuple[str, str, int, int, str]) -> list[dict]:
    """Rows of one build in a process of its own: interpreted functions do not compile."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(BUILD), *map(str, combination)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, (combination, done.stderr[-3000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_kernels_compile_and_spill_little():
    """Forward, tangent and adjoint of every stage by every route, and the loops over them; at the
    register limit that is launched with."""
    wanted = combinations()
    with ThreadPoolExecutor(2) as pool:
        built = list(pool.map(build, wanted))
    for combination, rows in zip(wanted, built, strict=True):
        kinds = {r["kernel"].rpartition("-")[0] for r in rows}
        stages = len(REGISTRY[combination[-1]].build(combination[3]).stages)
        routes = ["adjoint-fused", "adjoint-stored"][:stages]
        others = {"before"} if combination[-1] == FIRST else set()
        others |= {"gradient"} if combination[-1] == "elastic" else set()
        assert kinds == {"forward", "tangent", *routes, *others}, combination
        for loop in ("forward-loop", "forward-once"):
            assert any(r["kernel"] == loop for r in rows) == (combination[3] < 3)
        if combination[0] != "gfx942":
            kept = [r for r in rows if not r["kernel"].endswith("once")]  # not run if they spill
            assert all(r["spilled_bytes"] <= 4 * FEW_SPILLS for r in kept), rows


@pytest.mark.skipif(EVERYTHING, reason="the whole set is being built")
def test_the_short_list_has_every_target_and_order():
    """What is left out are combinations, never a target, dtype, order or dimension."""
    lists = (TARGETS, ("float32", "float64"), ORDERS, (1, 2, 3), REGISTRY)
    for position, values in enumerate(lists):
        assert {c[position] for c in combinations()} == set(values)
