"""Where the forward history goes until the adjoint asks for it, by stage."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from . import buffers
from .layout import Layout
from .plan import Plan


def histories(plan: Plan) -> list[int]:
    """By stage, how many values of a cell and step are kept."""
    stages = plan.system.stages
    if plan.compact:
        return [len(stages[0].targets)] + [0] * (len(stages) - 1)
    return [stage.histories for stage in stages]


class DeviceHistory:
    """Every step's values on the device: per stage and value [steps, shot, z, y, row].

    Rows are dense, rounded up to 4 cells. Memory is not initialised: each cell of the box is
    written before it is read. A compact history has one row more at its start, the initial fields.
    """

    def __init__(
        self, layout: Layout, like: Tensor, kept: list[list[Tensor]] | None = None
    ) -> None:
        """kept: of an earlier one, to be read again."""
        plan, self.layout = layout.plan, layout
        shape = (plan.steps + plan.compact, plan.shots, layout.history_shot)
        self.kept = kept or [
            [like.new_empty(shape) for _ in range(count)] for count in histories(plan)
        ]

    def begin(self, fields: Sequence[Tensor | None]) -> None:
        """Keep the fields before the first step, None for zeros, if that is needed."""
        plan = self.layout.plan
        if not plan.compact:
            return
        for target, values in zip(plan.system.stages[0].targets, self.kept[0], strict=True):
            values[0].zero_()
            given = fields[target]
            if given is not None:
                buffers.history_view(self.layout, values[0]).copy_(given)

    @property
    def tensors(self) -> list[list[Tensor]]:
        """By stage, what the kernels write and read by the number of a step."""
        first = int(self.layout.plan.compact)
        return [[values[first:] for values in stage] for stage in self.kept]

    @property
    def flat(self) -> list[Tensor]:
        return [t for stage in self.kept for t in stage]

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in self.flat)
