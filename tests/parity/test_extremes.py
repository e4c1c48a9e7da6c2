"""What the checks read back, found by one kernel, against the same found by PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

from wavesim import values
from wavesim.config import IGNORE
from wavesim.device import interpreting
from wavesim.triton_kernels import extremes
from wavesim.values import Looked

pytestmark = pytest.mark.skipif(not interpreting(), reason="runs the kernels in the interpreter")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("few", [2, 3])
def test_extremes_are_those_that_pytorch_finds(dtype, few, monkeypatch):
    """Of one value and many, of several blocks a program and of transposed tensors."""
    monkeypatch.setattr(extremes, "BLOCK", 64)
    monkeypatch.setattr(extremes, "FEW_PARTS", few)
    monkeypatch.setattr(extremes, "MOST_PROGRAMS", 3)
    rng = torch.Generator().manual_seed(0)
    tensors = [torch.randn(s, dtype=dtype, generator=rng) for s in ((1,), (30, 50), (2, 3, 65))]
    tensors.append(tensors[1].t())
    locations = [torch.randint(0, 99, (3, n, 2), generator=rng) for n in (1, 200)]
    locations += [locations[1].int(), locations[1][:, ::3].to(torch.int8)]
    spectra = torch.fft.rfft(torch.randn(3, 600, dtype=dtype, generator=rng))
    x, y = torch.rand(2, 2, 2, 20, 5, dtype=dtype, generator=rng)
    z = torch.rand(2, 2, 5, 20, dtype=dtype, generator=rng).mT
    pairs = [(x, y, -1), (y, x, -2), (x, x, -3), (z, y, -2)]
    everything = Looked(tensors, locations, pairs, 2, spectra)
    for looked in (everything, Looked(tensors, [])):
        expected, _ = values.extremes(looked)
        found, parts = extremes.extremes(looked)
        assert parts == (1 if few < 3 else 3)
        rows = looked.count
        largest = found[: rows * parts].view(rows, parts).amax(1)
        assert torch.equal(largest, expected[:rows])
        assert torch.allclose(found[rows * parts :], expected[rows:], rtol=1e-6, atol=0)


def test_of_frequencies_as_strong_as_each_other_the_lowest_is_taken():
    """However the magnitudes were rounded; none of a constant."""
    assert values._peak([0.0, 1.0, 1.0 + 1e-7, 0.5], 2.0) == 0.5
    assert values._peak([1.0 - 1e-7, 1.0], 2.0) is None
    assert values._peak([0.0, 0.0], 2.0) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("find", [values.extremes, extremes.extremes])
def test_one_value_that_is_not_finite_is_seen(find, value):
    x = torch.ones(3000)
    x[2500] = value
    low, high, _ = find(Looked([x], []))[0].tolist()
    assert not (math.isfinite(low) and math.isfinite(high))


@pytest.mark.parametrize("find", [values.extremes, extremes.extremes])
def test_a_negative_location_is_wrong_unless_all_its_entries_are_unused(find):
    at = torch.tensor([[[3, 4], [IGNORE, IGNORE]], [[5, 0], [0, 9]]])
    assert find(Looked([torch.ones(1)], [at]))[0].tolist()[2:] == [5, 9, 0]
    for wrong in ([-1, 3], [IGNORE, 3], [3, IGNORE]):
        at[0, 1] = torch.tensor(wrong)
        assert find(Looked([torch.ones(1)], [at]))[0].tolist()[-1] == 1
