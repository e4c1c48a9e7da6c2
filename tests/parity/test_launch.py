"""The launcher's choice of a register limit, on a compiler that is made up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from wavesim.triton_kernels import compiled


class Compiler:
    """Spills at every limit below ``wanted``; by itself it takes ``used`` and spills if told to."""

    def __init__(self, used: int, spills: int, wanted: int) -> None:
        self.used, self.spills, self.wanted, self.tried = used, spills, wanted, []

    def warmup(self, *, grid, maxnreg=None, **arguments):
        self.tried.append(maxnreg)
        if maxnreg is None:
            found = SimpleNamespace(n_regs=self.used, n_spills=self.spills, limit=None)
        else:
            spills = 9 * (maxnreg < self.wanted)
            found = SimpleNamespace(n_regs=maxnreg, n_spills=spills, limit=maxnreg)
        found._init_handles = lambda: None
        return found


@pytest.mark.parametrize(
    ("used", "spills", "wanted", "limit", "tried"),
    [
        (64, 0, 0, None, [None]),
        (64, 4, 72, None, [None]),
        (72, 6, 75, 80, [None, 80]),
        (72, 6, 110, 128, [None, 80, 96, 128]),
        (128, 9, 140, 168, [None, 168]),
        (128, 9, 999, 255, [None, 168, 255]),
    ],
)
def test_the_lowest_limit_that_spills_little_is_taken(
    monkeypatch, used, spills, wanted, limit, tried
):
    """No limit where little spills, and none at or below what spilled already."""
    monkeypatch.setattr(torch.version, "hip", None)
    compiler = Compiler(used, spills, wanted)
    assert compiled.fitted(compiler, {}).limit == limit
    assert compiler.tried == tried


def test_a_limit_of_the_launchers_is_where_it_starts(monkeypatch):
    """And it goes up from there."""
    monkeypatch.setattr(torch.version, "hip", None)
    compiler = Compiler(80, 0, 150)
    assert compiled.fitted(compiler, {}, 128).limit == 168
    assert compiler.tried == [128, 168]
