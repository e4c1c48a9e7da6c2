"""One case in every package that solves it: checked against ours, then timed in the same run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from math import prod
from typing import Any

import torch

import wavesim

from .cases import WIDTH, Case, Experiment, deviation
from .measure import row, timed, version
from .peers import PEERS, Peer

SMALL = (23, 37, 41)
"""Shape of the grid of a check, its last axes in 2-D."""
CHECK_STEPS = 60
EAGER_STEPS = 16
"""Steps of a timed eager run: it is compared by the step."""


class NotTimed(Exception):
    """A timing that is left out, which is no failure."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def present() -> list[Peer]:
    """The peers that can be imported; the others are named on stderr."""
    for peer in PEERS:
        if not peer.importable:
            say(f"{peer.name}: not importable (`pip install {peer.distribution}`), not compared.")
    return [p for p in PEERS if p.importable]


def peer_error(peer: Peer, case: Case, device: str, shape: tuple[int, ...]) -> float:
    """Largest RMS ratio of a peer's records and gradients to those of our eager backend, on a
    small grid, in the most accurate type that the peer has."""
    small = replace(case, shape=shape[-len(case.shape) :], shots=2, dtype=peer.dtypes[-1])
    uniform, errors = case.equation in peer.uniform, []
    for nt, gradient in ((CHECK_STEPS, False), (peer.gradient_steps, True)):
        experiment = Experiment(replace(small, nt=nt), gradient, device, uniform)
        expected = experiment.run("eager", **peer.options)[0]
        wanted = experiment.gradients()
        call = peer.prepare(experiment)
        experiment.clear()
        got = call()
        experiment.differentiate(got)
        if not expected.abs().max() > 0:
            raise RuntimeError(f"{case.name}: got records of zeros, expected signal to compare.")
        errors.append(deviation(got.detach(), expected.detach()))
        for name, found in experiment.gradients().items():
            pair = (found, wanted[name])
            errors.append(deviation(*(g.double().sum() for g in pair) if uniform else pair))
    return max(errors)


@cache
def check(peer: Peer, case: Case, device: str = "cuda", shape: tuple[int, ...] = SMALL) -> float:
    """The peer's error; raises where it is above its tolerance, so that nothing is timed."""
    error = peer_error(peer, case, device, shape)
    if not error <= peer.tolerance:
        raise RuntimeError(
            f"{peer.name}, {case.name}: got a deviation of {error:.1e} from the eager backend, "
            f"expected at most {peer.tolerance:.0e}. It solves another problem; not timed."
        )
    return error


def eager_need(case: Case, gradient: bool) -> float:
    """Bytes that an eager run takes: those of a smaller one, in proportion to the cells."""
    small = replace(case, shape=tuple(max(n // 4, 16) for n in case.shape), nt=EAGER_STEPS)
    cells = [prod(n + 2 * WIDTH for n in c.shape) for c in (case, small)]
    experiment = Experiment(small, gradient, "cuda")
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_allocated()
    experiment.run("eager")
    return (torch.cuda.max_memory_allocated() - start) * cells[0] / cells[1]


def eager_row(case: Case, gradient: bool, repeats: int, common: dict) -> dict[str, Any]:
    """The eager backend on the same GPU, a few steps of it; raises where memory is short."""
    short = replace(case, nt=min(EAGER_STEPS, case.nt))
    need = eager_need(short, gradient)
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    if need > 0.9 * free:
        raise NotTimed(
            f"eager, {case.name}: needs about {need / 2**30:.0f} GiB, {free / 2**30:.0f} are free; "
            "not timed."
        )
    report, times = timed(lambda: ours(short, gradient, "eager"), repeats)
    found = row("eager", short, gradient, times, None, common, report)
    return found | {"version": wavesim.__version__}


def wavesim_row(
    case: Case, gradient: bool, repeats: int, parity: float, common: dict
) -> dict[str, Any]:
    """Our kernels, once they have been verified."""
    report, times = timed(lambda: ours(case, gradient, "triton"), repeats)
    found = row("wavesim", case, gradient, times, parity, common, report)
    return found | {"version": wavesim.__version__}


def ours(case: Case, gradient: bool, backend: str) -> Callable[[], wavesim.Report]:
    """A call of ours as a training loop makes it: unchecked, the fastest speed given. It returns
    nothing large, so that nothing is held during the next one."""
    experiment = Experiment(case, gradient, "cuda")
    return lambda: experiment.run(backend, validate=False)[1]


def peer_row(peer: Peer, case: Case, gradient: bool, repeats: int, common: dict) -> dict[str, Any]:
    """A peer, once it has been checked, with the same inputs."""
    error = check(peer, case)

    def prepare() -> Callable[[], list[str]]:
        experiment = Experiment(case, gradient, "cuda")
        call = peer.prepare(experiment)

        def whole() -> list[str]:
            experiment.clear()
            experiment.differentiate(call())
            return sorted(experiment.gradients())

        return whole

    gradients, times = timed(prepare, repeats)
    found = row(peer.name, case, gradient, times, error, common)
    return found | {"version": version(peer.distribution), "gradients": gradients}


def others(
    case: Case, gradient: bool, repeats: int, common: dict, peers: list[Peer]
) -> Iterator[dict[str, Any] | None]:
    """Rows of the eager backend and the peers; None, and a line on stderr, for one that failed."""
    calls = [partial(eager_row, case, gradient, repeats, common)]
    for peer in peers:
        if peer.solves(case):
            calls.append(partial(peer_row, peer, case, gradient, repeats, common))
        else:
            say(f"{peer.name}: does not solve {case.name}.")
    for call in calls:
        try:
            found = call()
        except NotTimed as reason:
            say(str(reason))
            continue
        except Exception as error:  # another package's, of any kind: said, and the rest goes on
            say(f"{type(error).__name__}: {error}")
            found = None
        torch.cuda.empty_cache()
        yield found
