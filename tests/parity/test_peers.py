"""Other packages solve what we solve, as the benchmarks call them; those that are installed."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import __main__ as benchmarks
from benchmarks import compare
from benchmarks.cases import Case
from benchmarks.peers import PEERS, Peer

KINDS = {
    "scalar": [(9, 12), (5, 6, 7)],
    "acoustic": [(9, 12), (5, 6, 7)],
    "elastic": [(9, 12), (5, 6, 7)],
    "maxwell_tm": [(9, 12)],
    "maxwell": [(5, 6, 7)],
}
CASES = [
    pytest.param(peer, equation, shape, id=f"{peer.name}-{equation}-{len(shape)}d")
    for peer in PEERS
    for equation in peer.equations
    for shape in KINDS[equation]
]
torch.set_num_threads(1)


@pytest.mark.parametrize("peer, equation, shape", CASES)
@pytest.mark.parametrize("order", [2, 4, 8])
def test_a_peer_solves_the_same_problem(peer, equation, shape, order):
    """Records and gradients, by the tolerance of the peer (worst observed on a CPU:
    Deepwave 4.9e-15, TIDE 6.9e-15, SWEEP 1.2e-4, of its layers)."""
    pytest.importorskip(peer.name)
    case = Case(equation, shape, 1, 1, order)
    assert peer.solves(case)
    assert compare.check(peer, case, "cpu", shape=shape) <= peer.tolerance


def ours(factor: float) -> Peer:
    """The eager backend as a peer, wrong by a factor."""

    def prepare(experiment):
        def call():
            experiment.gradient = False
            records, _ = experiment.run("eager")
            experiment.gradient = records.requires_grad
            return factor * records

        return call

    return Peer("torch", "torch", ("scalar",), prepare, 1e-10, ("float32",))


def test_a_peer_that_differs_is_refused():
    case = Case("scalar", (5, 6), 1, 1)
    assert compare.check(ours(1.0), case, "cpu", shape=(5, 6)) == 0
    with pytest.raises(RuntimeError, match=r"torch, .*: got a deviation of .*e-06 .*not timed"):
        compare.check(ours(1 + 1e-6), case, "cpu", shape=(5, 6))


def test_absent_peers_are_named(monkeypatch, capsys):
    """On stderr, with what would install them."""
    absent = Peer("no_such_package", "no-such", (), ours, 0.0)
    monkeypatch.setattr(compare, "PEERS", (absent, ours(1.0)))
    assert [p.name for p in compare.present()] == ["torch"]
    assert "pip install no-such" in capsys.readouterr().err


def test_a_failure_is_said_and_the_others_are_timed(monkeypatch, capsys, tmp_path):
    """The program writes what it has and ends with an error."""

    def broken(*rest):
        raise RuntimeError("broken kernel")

    monkeypatch.setattr(compare, "eager_row", lambda *rest: {"who": "eager"})
    monkeypatch.setattr(compare, "peer_row", broken)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(benchmarks, "chosen", lambda pattern: [Case("scalar", (5, 6), 1, 1)])
    monkeypatch.setattr(benchmarks, "present", lambda: [ours(1.0)])
    monkeypatch.setattr(benchmarks, "environment", lambda given: {"commit": given})
    monkeypatch.setattr(benchmarks, "verify", lambda case: 0.0)
    monkeypatch.setattr(benchmarks, "wavesim_row", lambda *rest: {"who": "wavesim"})
    output = tmp_path / "rows.jsonl"
    words = ["compare", "--output", str(output), "--commit", "abc"]
    with pytest.raises(SystemExit, match="2 timings failed"):
        benchmarks.measure(benchmarks.parse(words))
    assert "broken kernel" in capsys.readouterr().err
    rows = [json.loads(line)["who"] for line in output.read_text().splitlines()]
    assert rows == ["wavesim", "eager"] * 2


def test_eager_is_left_out_where_memory_is_short(monkeypatch, capsys):
    """Said, and no failure."""
    monkeypatch.setattr(compare, "eager_need", lambda *rest: 2**31)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 2**40))
    case = Case("scalar", (5, 6), 1, 1)
    assert list(compare.others(case, False, 1, {}, [])) == []
    assert "needs about 2 GiB, 1 are free; not timed" in capsys.readouterr().err
