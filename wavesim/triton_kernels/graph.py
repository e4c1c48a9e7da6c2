"""Time loops without Python in them: a chunk of steps is captured in a CUDA graph and replayed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

from ..device import interpreting

FIRST, CHUNK = 16, 16
"""Steps before a graph and of it, even numbers: buffers that change places every step are back.
Large first steps keep the device busy while the host captures the graph: after two of 256^3, traced
on an H200, it stood still for 1.5 ms."""
PART_CELLS = 10**10
"""Cell updates of a part of a run; an interrupt comes between two. On an H200, a twentieth of a
second of scalar waves in two dimensions, and up to one and a half of elastic ones in three."""
AHEAD = 2


class Lead:
    """Keeps the host no more than `AHEAD` parts before the device: so an interrupt is heard while a
    long run is on the device, and what is queued already ends soon."""

    def __init__(self, device: torch.device) -> None:
        self.waits = device.type == "cuda" and not torch.cuda.is_current_stream_capturing()
        self.parts: deque[torch.cuda.Event] = deque()
        self.cells = 0

    def launched(self, cells: int) -> None:
        """Updates of so many cells more were."""
        self.cells += cells
        if self.waits and self.cells >= PART_CELLS:
            self.cells = 0
            self.parts.append(torch.cuda.Event(blocking=True))
            self.parts[-1].record()
            if len(self.parts) > AHEAD:
                self.parts.popleft().synchronize()


def run_steps(
    advance: Callable[[int], None],
    steps: range,
    clock: Tensor,
    lead: Lead,
    cells: int,
    *,
    capture: bool,
) -> int:
    """Advance by every step of a range; the number of them that graphs replayed.

    ``advance(n)`` launches the kernels of step ``clock + n``. The first steps are launched one by
    one, which compiles what is new and gives the device work; the next chunk is captured, with an
    advance of the clock at its end, and replayed as often as it fits; what is left is launched
    again, as everything is without ``capture`` or where nothing can be captured. A graph runs on
    the caller's stream and belongs to this call: its addresses are those of the call's tensors.
    cells: that a step updates, of which the lead is told.
    """

    def singly(some: range) -> None:
        for n in some:
            advance(n)
            lead.launched(cells)

    replays = (len(steps) - FIRST) // CHUNK
    if not capture or replays < 2 or not _can_capture(clock):
        singly(steps)
        return 0
    singly(steps[:FIRST])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream(clock.device)):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for n in steps[FIRST : FIRST + CHUNK]:
                advance(n)
            clock.add_(steps.step * CHUNK)
        finally:
            graph.capture_end()
    for _ in range(replays):
        graph.replay()
        lead.launched(cells * CHUNK)
    clock.zero_()
    singly(steps[FIRST + CHUNK * replays :])
    return CHUNK * replays


def _can_capture(clock: Tensor) -> bool:
    """On a CUDA device, compiled, and not inside the caller's own capture."""
    if interpreting() or torch.version.hip or clock.device.type != "cuda":
        return False
    return not torch.cuda.is_current_stream_capturing()
