"""Where the forward history goes until the adjoint asks for it, by stage."""

from __future__ import annotations

from torch import Tensor

from .layout import Layout


class DeviceHistory:
    """Every step's values on the device: per stage and value [steps, shot, z, y, row].

    Rows are dense, rounded up to 4 cells. Memory is not initialised: each cell of the box is
    written before it is read.
    """

    def __init__(
        self, layout: Layout, like: Tensor, kept: list[list[Tensor]] | None = None
    ) -> None:
        shape = (layout.plan.steps, layout.plan.shots, layout.history_shot)
        self.tensors = kept or [
            [like.new_empty(shape) for _ in range(stage.histories)]
            for stage in layout.plan.system.stages
        ]

    @property
    def flat(self) -> list[Tensor]:
        return [t for stage in self.tensors for t in stage]

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in self.flat)
