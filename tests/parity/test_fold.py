"""The kernel that adds a model's layers to its edges, against PyTorch."""

from __future__ import annotations

import pytest
import torch

from wavesim import media
from wavesim.device import interpreting
from wavesim.triton_kernels import fold

pytestmark = pytest.mark.skipif(not interpreting(), reason="runs the kernel in the interpreter")


@pytest.mark.parametrize(
    ("shape", "widths"),
    [
        ((1, 7), ((3, 1),)),
        ((3, 5, 6), ((2, 3), (0, 4))),
        ((2, 1, 1), ((2, 2), (1, 0))),
        ((1, 1, 9), ((5, 0), (0, 2))),
        ((2, 3, 4, 5), ((1, 0), (2, 3), (3, 3))),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layers_are_added_as_by_pytorch(shape, widths, dtype, monkeypatch):
    """Axes of one cell, faces without a layer, rows of several blocks, a transposed cotangent."""
    monkeypatch.setattr(fold, "BLOCK", 4)
    rng = torch.Generator().manual_seed(0)
    box = (shape[0], *(n + a + b for n, (a, b) in zip(shape[1:], widths, strict=True)))
    bar = torch.randn(box[::-1], generator=rng, dtype=dtype).permute(*range(len(box))[::-1])
    expected, found = media.folded(bar, widths), fold.fold(bar, widths)
    assert found.shape == shape
    limit = 1e-15 if dtype == torch.float64 else 1e-6  # worst seen 4e-16, 2e-7
    assert (found - expected).abs().max() <= limit * bar.abs().sum(0).max()


def test_a_gradient_takes_it_and_one_to_be_differentiated_pytorch():
    v = torch.rand(4, 5, dtype=torch.float64, requires_grad=True)
    widths, calls = ((1, 2), (0, 3)), []

    def counted(bar: torch.Tensor, given: media.Widths) -> torch.Tensor:
        calls.append(given)
        return fold.fold(bar, given)

    out = media.replicate(v, widths, counted).square()
    (first,) = torch.autograd.grad(out.sum(), v, retain_graph=True)
    (again,) = torch.autograd.grad(out.sum(), v, create_graph=True)
    assert calls == [widths]
    assert torch.allclose(first, again, rtol=1e-15)
    (second,) = torch.autograd.grad(again.sum(), v)
    assert torch.allclose(second * v, again, rtol=1e-15)
