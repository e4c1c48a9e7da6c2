"""The equation that docs/adding-an-equation.md writes has the transpose it claims."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from conftest import rms_ratio

import wavesim
from wavesim.device import interpreting
from wavesim.equations import REGISTRY

pytestmark = pytest.mark.skipif(not interpreting(), reason="needs TRITON_INTERPRET=1")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-an-equation.md"


def run(backend: str) -> tuple[torch.Tensor, tuple]:
    rng = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    model = [1500 + 300 * normal(5, 9).tanh(), 200 + 100 * normal(5, 9)]
    leaves = [*model, normal(2, 1, 6), normal(2, 11, 16), normal(2, 11, 16)]
    v, b, amplitudes, u, um1 = (x.requires_grad_() for x in leaves)
    places = torch.tensor([[[1, 2]], [[0, 8]]])
    out = wavesim.simulate(
        "klein_gordon",
        {"v": v, "b": b},
        spacing=[5.0, 6.0],
        dt=4e-4,
        sources=wavesim.Sources(amplitudes, places),
        receivers=wavesim.Receivers(places),
        boundary=wavesim.PML(width=[(3, 3), (3, 4)], frequency=25.0),
        max_velocity=1900.0,
        initial=wavesim.State({"u": u, "um1": um1}),
        backend=backend,
    )
    loss = out.receivers.square().sum() + sum(f.square().sum() for f in out.state.fields.values())
    return out.receivers, torch.autograd.grad(loss, [v, b, amplitudes, u, um1])


def test_the_pages_equation_agrees_with_eager(monkeypatch):
    """Records and every gradient, RMS ratio: worst seen 6e-16."""
    page: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S):
        exec(block, page)
        if "EQUATION" in page:
            break
    monkeypatch.setitem(REGISTRY, "klein_gordon", page["EQUATION"])
    expected, got = run("eager"), run("triton")
    assert rms_ratio(got[0], expected[0]) < 1e-14
    for ours, theirs in zip(got[1], expected[1], strict=True):
        assert rms_ratio(ours, theirs) < 1e-14
