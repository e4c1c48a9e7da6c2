"""The demo from end to end on a section of seconds, and what it says when it cannot start."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
import torch

from wavesim.__main__ import main
from wavesim.demo import cli, section, survey
from wavesim.demo.inversion import Inversion, load


@pytest.fixture
def small(tmp_path):
    """Options for a section of 16 x 24 cells."""
    path = tmp_path / "model.npy"
    np.save(path, section.faulted_section(1, (16, 24)))
    words = f"demo --model {path} --spacing 20 --device cpu --backend eager --shots 3"
    return [*words.split(), "--iterations", "2", "--output", str(tmp_path / "out")]


def job(*options: str) -> cli.Job:
    """The checked job of a command line."""
    import wavesim.__main__ as entry

    return cli.prepare(entry.parser().parse_args(["demo", *options]))


def inversion_of(found: cli.Job) -> Inversion:
    return Inversion(found.true, found.initial, found.survey, found.device)


def test_a_run_writes_picture_figures_and_model(small, tmp_path):
    pytest.importorskip("matplotlib")
    assert main(small) == 0
    out = tmp_path / "out"
    found = json.loads((out / "demo.json").read_text())
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert found["finished"] and found["iterations_done"] == len(found["losses"]) == 2
    assert found["relative_model_error"] > 0
    assert found["backend"] == found["report"]["backend"] == "eager"
    assert found["report"]["step_ratio"] == 1
    assert found["settings"]["seed"] == 0
    model = np.load(out / "model.npy")
    true = np.load(tmp_path / "model.npy")
    assert np.array_equal(model[section.water_mask(true)], true[section.water_mask(true)])


def test_resume_equals_uninterrupted(small, tmp_path):
    """Interrupted after one iteration and resumed: the same model and losses, to the bit."""
    found = job(*small[1:])
    whole = inversion_of(found)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert whole.run(tmp_path / "a")

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    first = inversion_of(found)
    assert not first.run(tmp_path / "b", after=interrupt)
    assert len(first.progress.losses) == 1
    second = inversion_of(found)
    second.restore(load(found.survey, tmp_path / "b", found.device))
    assert second.run(tmp_path / "b")
    assert second.progress.losses == whole.progress.losses
    assert torch.equal(second.progress.model, whole.progress.model)
    assert torch.equal(second.progress.gradient, whole.progress.gradient)


def test_an_interrupted_command_keeps_its_results(small, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    step = Inversion.advance

    def advance(self):
        if self.progress.losses:
            raise KeyboardInterrupt
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Inversion, "advance", advance)
        assert main(small) == 130
    assert "--resume" in capsys.readouterr().out
    assert json.loads((tmp_path / "out/demo.json").read_text())["iterations_done"] == 1
    assert main([*small, "--resume"]) == 0
    assert json.loads((tmp_path / "out/demo.json").read_text())["iterations_done"] == 2
    assert main([*small, "--resume", "--seed", "7"]) == 2
    error = capsys.readouterr().err
    assert "--resume" in error and "seed = 7" in error and "seed = 0" in error


def test_the_seed_decides_section_and_batches():
    assert np.array_equal(section.faulted_section(3), section.faulted_section(3))
    assert not np.array_equal(section.faulted_section(3), section.faulted_section(4))
    found = job("--device", "cpu").survey
    count = -(-found.shots // found.batch)
    shots = [s for k in range(count) for s in found.shots_of(k)]
    assert sorted(shots) == list(range(found.shots))
    assert shots == [s for k in range(count) for s in found.shots_of(k)]


def test_a_large_model_is_coarsened_on_a_cpu_and_the_demo_says_so(tmp_path, capsys):
    """Block means of slowness: a 240 x 201 section becomes 80 x 67 cells three times the size."""
    path = tmp_path / "large.npy"
    np.save(path, np.full((240, 201), 2000.0))
    found = job("--model", str(path), "--spacing", "5", "--device", "cpu")
    assert found.survey.shape == (80, 67) and found.survey.spacing == 15
    assert "Coarsened the model by 3, from 240 x 201 to 80 x 67 cells of 15 m" in (
        capsys.readouterr().out
    )
    mean = section.coarsen(np.array([[1000.0, 3000.0]] * 2), 2)
    assert mean == pytest.approx(1500.0)


def test_stages_rise_from_what_the_initial_model_lacks_to_what_the_grid_carries():
    """From the smoothing's wavelength to the grid's, or to a band's width; steps of at most 1.5."""
    model = np.full((50, 80), 2000.0)
    for spacing, smoothing, lowest in (
        (10.0, 200.0, 5 / 3),
        (40.0, 200.0, 5 / 3),
        (40.0, 50.0, 20 / 3),
    ):
        peaks = survey.stage_peaks(model, model, spacing, smoothing)
        grid = 2000.0 / (2 * survey.POINTS * spacing)
        assert peaks[0] == pytest.approx(min(lowest, grid / 2))
        assert peaks[-1] == pytest.approx(min(grid, survey.BAND * peaks[0]))
        ratios = np.divide(peaks[1:], peaks[:-1])
        assert np.all((ratios > 1) & (ratios <= 1.5 + 1e-9))


def test_a_user_model_has_more_shots_and_iterations_than_the_synthetic_one(tmp_path):
    path = tmp_path / "model.npy"
    np.save(path, section.faulted_section(1, (30, 40)))
    own = job("--model", str(path), "--spacing", "20", "--device", "cpu").survey
    synthetic = job("--device", "cpu").survey
    assert own.shots > synthetic.shots and own.iterations > synthetic.iterations


def test_a_run_leaves_the_number_of_threads_as_it_was(small):
    pytest.importorskip("matplotlib")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert main([*small, "--iterations", "1"]) == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_shifted_stage_is_the_stage_wavelet():
    """The Gaussian filter turns the highest Ricker wavelet into the lowest one, up to a factor."""
    found = job("--device", "cpu").survey
    time = torch.arange(found.nt, dtype=torch.float64) * found.dt - found.delay
    square = (torch.pi * found.peaks[0] * time) ** 2
    expected = (1 - 2 * square) * torch.exp(-square)
    got = survey.to_stage(survey.ricker(found).double(), found, 0)
    got = got * expected.abs().max() / got.abs().max()
    inside = time.abs() < 0.7 * found.delay  # the record's start cuts the wavelet's tail
    assert (got - expected)[inside].abs().max() < 0.05


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--model absent.npy --spacing 5", "--model: got absent.npy, expected a .npy file"),
        ("--model {good}", "--spacing: got nothing, expected a length in m"),
        ("--spacing 5", "--spacing: got 5.0, expected nothing without --model"),
        ("--model {good} --spacing -1", "--spacing: got -1.0, expected a positive length"),
        ("--model {flat} --spacing 5", "--model: got shape [30], expected two axes [z, x]"),
        ("--model {holes} --spacing 5", "--model: got 1 non-finite values, expected finite"),
        ("--model {km} --spacing 5", "Convert the units to m/s."),
        ("--model {text} --spacing 5", "Write it with numpy.save"),
        ("--iterations 0", "--iterations: got 0"),
        ("--shots 500", "--shots: got 500, expected 1 to 120"),
        ("--device tpu7", "--device: got 'tpu7', expected auto, cpu, cuda"),
        ("--resume", "--resume: got no "),
        ("--output {text}", "a file, expected a folder"),
    ],
)
def test_bad_input_is_refused_before_any_work(options, words, tmp_path, capsys):
    good = np.full((20, 20), 2000.0, dtype=np.float32)
    holes = good.copy()
    holes[3, 4] = np.nan
    arrays = {"good": good, "flat": good.ravel()[:30], "holes": holes, "km": good / 1000}
    names = {k: tmp_path / f"{k}.npy" for k in (*arrays, "text")}
    for key, array in arrays.items():
        np.save(names[key], array)
    names["text"].write_text("not an array")
    given = options.format(**names).split()
    if "--output" not in given:
        given += ["--output", str(tmp_path / "none")]
    assert main(["demo", "--device", "cpu", *given]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_absent_matplotlib_is_said_before_the_work(monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n == "matplotlib" else find(n, *a)
    )
    assert main(["demo"]) == 2
    assert "pip install 'wavesim-triton[plot]'" in capsys.readouterr().err


def test_no_command_prints_the_help(capsys):
    assert main([]) == 0
    assert "demo" in capsys.readouterr().out
