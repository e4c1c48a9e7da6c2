"""The worked examples of docs/examples run in a reduced form, and show what their page says."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "docs" / "examples"


def load(name: str):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def small_water(example):
    return replace(
        example.Setting(), shape=(70, 90), bottom=40, nt=440, snapshots=(330, 380, 430), width=10
    )


def small_pipe(example):
    return replace(
        example.Setting(), shape=(40, 80), pipe=(0.3, 0.8, 0.06), nt=440, every=16, frequency=600e6
    )


SMALL = {"water_over_solid": small_water, "buried_pipe": small_pipe}


@pytest.mark.parametrize("name", SMALL)
def test_example_writes_its_picture(name, tmp_path):
    """``main(output)`` makes the folder and a PNG that is not empty."""
    pytest.importorskip("matplotlib")
    example = load(name)
    output = tmp_path / "new" / f"{name}.png"
    example.main(output, SMALL[name](example))
    data = output.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 10_000


@pytest.mark.parametrize("name", SMALL)
def test_every_example_stands_on_its_page(name):
    page = (FOLDER.parent / "examples.md").read_text(encoding="utf-8")
    assert f"examples/{name}.py" in page and f"images/{name}.png" in page
    assert {p.stem for p in FOLDER.glob("*.py")} == set(SMALL)


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_shear_waves_stay_in_the_rock(double):
    """Rotation in the water, a stencil's reach above the bottom, is next to none of the rock's.

    Rounding errors until the layers at the sides, which do turn the water, are felt: 4e-14, 6e-12,
    1.4e-7 in the three snapshots.
    """
    example = load("water_over_solid")
    setting = small_water(example)
    pictures, _ = example.simulate(setting)
    for _, pressure, rotation in pictures:
        water = slice(setting.surface, setting.bottom - 3)
        assert pressure[water].abs().max() > 0
        assert rotation[water].abs().max() < 2e-7 * rotation[setting.bottom :].abs().max()


def test_the_pipe_echoes_when_straight_rays_say():
    """What the pipe adds is largest at most half a period or so after the rays (worst: .54)."""
    example = load("buried_pipe")
    setting = small_pipe(example)
    echo = example.survey(setting, True) - example.survey(setting, False)
    late = (echo.abs().argmax(1) * setting.dt - example.expected(setting)) * setting.frequency
    assert late.abs().max() < 0.6, late
