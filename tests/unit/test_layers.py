"""The walls between the rooms: who imports whom, and what importing wavesim needs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import wavesim

PACKAGE = Path(wavesim.__file__).parent
NUMBERS = {"stencils", "cpml", "cfl", "resample"}
TRITON_SIDE = {"triton_kernels", "autograd", "stepping", "history", "buffers", "trials"}


def imports(path: Path) -> set[str]:
    """Absolute dotted names of the modules and names that a file imports, at any depth."""
    package = ["wavesim", *path.relative_to(PACKAGE).parts[:-1]]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *((node.module or "").split(".") if node.module else [])]
            found |= {".".join([*module, alias.name]) for alias in node.names}
    return found


def rooms(path: Path) -> set[str]:
    """First names below ``wavesim`` that a file imports."""
    parts = [name.split(".") for name in imports(path)]
    return {p[1] for p in parts if p[0] == "wavesim" and len(p) > 1}


def packages(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)}


def files(room: str) -> list[Path]:
    """The files of a room, which is a module or a package."""
    single = PACKAGE / f"{room}.py"
    return [single] if single.exists() else sorted((PACKAGE / room).rglob("*.py"))


def importing_modules(script: str) -> str:
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_walk_sees_imports():
    """A known relative and a known absolute import are found: the checks below are not blind."""
    assert {"config", "reference", "equations"} <= rooms(PACKAGE / "run.py")
    assert "torch" in packages(PACKAGE / "run.py")


def test_config_imports_nothing_of_ours():
    assert not rooms(PACKAGE / "config.py")


@pytest.mark.parametrize("path", files("equations"), ids=lambda p: p.stem)
def test_equations_import_only_the_spec(path):
    """An equation is pointwise: it sees ``_spec``, the private helpers, and no other room."""
    assert rooms(path) <= {"equations"}
    assert "triton" not in packages(path)
    if path.stem != "__init__":
        inner = {n for n in imports(path) if n.startswith("wavesim.equations.")}
        assert all(n.startswith("wavesim.equations._") for n in inner)


@pytest.mark.parametrize("path", files("reference"), ids=lambda p: p.stem)
def test_reference_is_independent_of_triton(path):
    """The reference checks the kernels, so it shares nothing with them."""
    assert not rooms(path) & TRITON_SIDE
    assert "triton" not in packages(path)


@pytest.mark.parametrize("path", files("triton_kernels"), ids=lambda p: p.stem)
def test_kernels_do_not_look_upwards(path):
    above = {"simulate", "run", "autograd", "reference", "modules", "check", "report"}
    assert not rooms(path) & above


@pytest.mark.parametrize("room", sorted(NUMBERS))
def test_numbers_import_only_numbers(room):
    assert rooms(PACKAGE / f"{room}.py") <= NUMBERS


def test_plan_holds_no_tensors():
    """A plan is facts; it imports neither torch nor anything that runs."""
    assert "torch" not in packages(PACKAGE / "plan.py")
    assert not rooms(PACKAGE / "plan.py") & (
        TRITON_SIDE | {"reference", "simulate", "run", "check"}
    )


def test_only_the_entry_knows_both_backends():
    """Outside their own rooms, only ``run`` imports the reference and the Triton side."""
    for path in sorted(PACKAGE.glob("*.py")):
        seen = rooms(path)
        if path.stem != "run":
            assert "reference" not in seen, path
        if path.stem not in {"run", *TRITON_SIDE}:
            assert not seen & {"triton_kernels", "autograd"}, path


def test_triton_is_imported_by_the_kernels_only():
    """So that a missing Triton fails the call that asks for it, and nothing else."""
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE).parts[0]
        if "triton" in packages(path):
            assert inside.removesuffix(".py") in TRITON_SIDE, path


BLOCKER = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        absent = name == "triton" or name.startswith("triton.")
        return None if absent else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(f) for f in sys.meta_path]
"""


def test_import_and_eager_work_without_triton():
    """With Triton absent, wavesim imports, and the eager backend runs."""
    script = BLOCKER + (
        "import torch, wavesim\n"
        "out = wavesim.scalar(torch.full((6, 6), 1500.0), spacing=[5.0, 5.0], dt=5e-4, nt=2,"
        " boundary=wavesim.PML(width=2, frequency=25.0))\n"
        "assert 'triton' not in sys.modules\n"
        "print(out.report.backend)\n"
    )
    assert importing_modules(script).strip() == "eager"


def test_asking_for_absent_triton_says_how_to_get_it():
    script = BLOCKER + (
        "import torch, wavesim\n"
        "try:\n"
        "    wavesim.scalar(torch.full((6, 6), 1500.0), spacing=[5.0, 5.0], dt=5e-4, nt=2,"
        " boundary=wavesim.PML(width=2, frequency=25.0), backend='triton')\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    text = importing_modules(script)
    assert "triton is not installed" in text
    assert "pip install triton" in text and "backend='eager'" in text


def test_import_loads_no_kernels():
    """Importing wavesim starts neither Triton nor CUDA."""
    script = (
        "import sys, torch, wavesim\n"
        "print([m for m in sys.modules if m.startswith('wavesim.triton_kernels')],"
        " torch.cuda.is_initialized())\n"
    )
    assert importing_modules(script).strip() == "[] False"
