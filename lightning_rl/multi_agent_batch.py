"""What several policies learned from the same environment steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from lightning_rl.sample_batch import SampleBatch

__all__ = ["MultiAgentBatch"]


class MultiAgentBatch:
    """Batches of several policies that came from the same environment steps.

    Args:
        policy_batches: policy id → its rows.
        env_steps: how many environment steps they come from (agent steps are the sum of the rows).
    """

    __slots__ = ("env_steps", "policy_batches")

    def __init__(self, policy_batches: Mapping[str, SampleBatch], env_steps: int) -> None:
        self.policy_batches = dict(policy_batches)
        self.env_steps = env_steps

    @property
    def agent_steps(self) -> int:
        """Rows over all policies."""
        return sum(batch.count for batch in self.policy_batches.values())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> MultiAgentBatch:
        """Every tensor on `device`."""
        moved = {name: batch.to(device, non_blocking) for name, batch in self.policy_batches.items()}
        return MultiAgentBatch(moved, self.env_steps)
