"""Shared by all tests: the device to use, the comparison, and what happens without a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from wavesim.device import interpreting

GPU_TESTS = Path(__file__).parent / "gpu"


def pick_device() -> torch.device:
    """The GPU if there is one and Triton is not interpreting, else the CPU."""
    usable = torch.cuda.is_available() and not interpreting()
    return torch.device("cuda" if usable else "cpu")


def rms_ratio(got: torch.Tensor, expected: torch.Tensor) -> float:
    """RMS of the difference over the RMS of what was expected; infinite where it is not finite.

    0 for two zero tensors, infinite for a tensor that should be zero and is not.
    """
    assert got.shape == expected.shape, (got.shape, expected.shape)
    a, b = got.detach().double().cpu(), expected.detach().double().cpu()
    if not (a.isfinite().all() and b.isfinite().all()):
        return float("inf")
    error, size = (a - b).square().mean().sqrt().item(), b.square().mean().sqrt().item()
    if size == 0:
        return 0.0 if error == 0 else float("inf")
    return error / size


@pytest.fixture(autouse=True, scope="session")
def empty_tuning_cache(tmp_path_factory) -> None:
    """Tests run untuned, whatever this machine's user has tuned."""
    os.environ["WAVESIM_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def device() -> torch.device:
    return pick_device()


@pytest.fixture
def gpu() -> torch.device:
    """A GPU; without one the test is skipped, or fails under WAVESIM_REQUIRE_GPU=1."""
    need_gpu()
    return torch.device("cuda", torch.cuda.current_device())


def need_gpu() -> None:
    if torch.cuda.is_available():
        return
    if os.environ.get("WAVESIM_REQUIRE_GPU") == "1":
        pytest.fail("WAVESIM_REQUIRE_GPU=1, but torch.cuda.is_available() is False", pytrace=False)
    pytest.skip("no GPU")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in tests/gpu carries the mark, before ``-m`` selects."""
    for item in items:
        if GPU_TESTS in item.path.parents:
            item.add_marker("gpu")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        need_gpu()
