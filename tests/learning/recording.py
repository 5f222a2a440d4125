"""Algorithms that record what their losses and steps find."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from lightning_rl.sample_batch import SampleBatch


class Note(NamedTuple):
    """What a loss or a step finds: modes, a number of the global generator, a denormal number times 1, and the rows."""

    training: bool
    log_extra: bool
    drawn: float
    smallest: float
    rows: int


def recording(base: type[Any]) -> type[Any]:
    """The algorithm with a `Note` of each loss and step, and the metrics of each iteration."""

    class Recording(base):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            self.losses: list[Note] = []
            self.steps: list[Note] = []
            self.means: list[dict[str, float]] = []

        def take_note(self, rows: int) -> Note:
            return Note(self.training, self.log_extra, float(torch.rand(())), float(torch.tensor(1e-40) * 1.0), rows)

        def loss(self, batch: SampleBatch) -> Any:
            self.losses.append(self.take_note(batch.count))
            return super().loss(batch)

        def after_step(self) -> None:
            self.steps.append(self.take_note(0))
            super().after_step()

        def after_iteration(self, metrics: dict[str, float]) -> None:
            self.means.append(dict(metrics))
            super().after_iteration(metrics)

    return Recording
