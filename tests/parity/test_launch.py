"""The launcher's choice of a register limit, on a compiler that is made up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from wavesim.triton_kernels import launch


class Compiler:
    """Spills at every limit below ``wanted``; by itself it takes ``used`` and spills if told to."""

    def __init__(self, used: int, spills: int, wanted: int) -> None:
        self.used, self.spills, self.wanted, self.tried = used, spills, wanted, []

    def warmup(self, *, grid, maxnreg=None, **arguments):
        self.tried.append(maxnreg)
        if maxnreg is None:
            found = SimpleNamespace(n_regs=self.used, n_spills=self.spills, limit=None)
        else:
            spills = 2 * (maxnreg < self.wanted)
            found = SimpleNamespace(n_regs=maxnreg, n_spills=spills, limit=maxnreg)
        found._init_handles = lambda: None
        return found


@pytest.mark.parametrize(
    ("used", "spills", "wanted", "limit", "tried"),
    [
        (64, 0, 0, None, [None]),
        (72, 2, 75, 80, [None, 80]),
        (72, 2, 110, 128, [None, 80, 96, 128]),
        (128, 4, 140, 168, [None, 168]),
        (128, 4, 999, 255, [None, 168, 255]),
    ],
)
def test_the_lowest_limit_without_spills_is_taken(monkeypatch, used, spills, wanted, limit, tried):
    """No limit where nothing spills, and none at or below what spilled already."""
    monkeypatch.setattr(torch.version, "hip", None)
    compiler = Compiler(used, spills, wanted)
    assert launch.spill_free(compiler, {}).limit == limit
    assert compiler.tried == tried
