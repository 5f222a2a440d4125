"""What Lightning is given instead of batches where experience is replayed: iterations that act and draw as they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch

from lightning_rl.data.datasets import timed
from lightning_rl.data.device_transfer import moved
from lightning_rl.data.epochs import Iterations
from lightning_rl.data.plans import concurrently, for_each, parallel_rollouts
from lightning_rl.sample_batch import SampleBatch, is_fragment

if TYPE_CHECKING:
    from lightning_rl.data.replay_datamodule import ReplayDataModule

__all__ = ["Draw", "ReplayDataset", "ReplayDraws", "store_and_replay"]


class Draw(NamedTuple):
    """Rows for one or more gradient steps.

    Attributes:
        rows: one batch behind the other, equally large.
        steps: how many.
    """

    rows: SampleBatch
    steps: int = 1


def store_and_replay(workers: Any, policy: Any, replay: ReplayDataModule) -> Iterator[SampleBatch | Draw]:
    """Act with the newest weights and store; then draw until no gradient step is due; and again."""
    fragments = timed(parallel_rollouts(workers, policy), replay.took)
    store = for_each(fragments, replay.store)
    return concurrently([store, replay.draws_due()], round_robin_weights=[1, "*"])


class ReplayDraws:
    """The gradient steps of one iteration: iterating acts in the environments and draws, as the plan says.

    Args:
        plan: gives stored fragments and draws in turn.
        replay: who knows what is due.
        fragments: of this iteration.
    """

    def __init__(self, plan: Iterator[SampleBatch | Draw], replay: ReplayDataModule, fragments: int) -> None:
        self.plan, self.replay, self.fragments = plan, replay, fragments
        self.device = torch.device("cpu")

    def to(self, device: torch.device | str, **keywords: Any) -> Self:
        """Let batches come on `device`; Lightning calls this."""
        self.device = torch.device(device)
        return self

    def __iter__(self) -> Iterator[Draw]:
        self.replay.begin_iteration()
        left, on_cpu = self.fragments, self.device.type == "cpu"
        for item in self.plan:
            draw = item if isinstance(item, Draw) else Draw(item)
            if not isinstance(draw.rows, SampleBatch) or is_fragment(draw.rows):  # stored, or only told of
                left -= 1
            else:
                yield draw if on_cpu else draw._replace(rows=moved(draw.rows, self.device))
            if left <= 0 and self.replay.due <= 0:
                return

    def update_priorities(self, batch: SampleBatch) -> None:
        """The TD errors of a batch that was drawn here are its rows' priorities from now on."""
        self.replay.update_priorities(batch)


class ReplayDataset(Iterations):
    """Items are `ReplayDraws`: one Lightning batch is the gradient steps of `fragments_per_iteration` fragments.

    Args:
        datamodule: holds workers and buffer.
        policy: whose weights act.
        plan: `plan(workers, policy, datamodule)`.
    """

    def __init__(self, datamodule: ReplayDataModule, policy: Any, plan: Any = store_and_replay) -> None:
        self.datamodule, self.policy, self.plan = datamodule, policy, plan

    def iterations(self) -> Iterator[ReplayDraws]:
        """Each goes on with the plan."""
        replay = self.datamodule
        plan = self.plan(replay.workers, self.policy, replay)
        while True:
            yield ReplayDraws(plan, replay, replay.fragments_per_iteration)
