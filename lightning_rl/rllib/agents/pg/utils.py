"""RLlib's postprocessing of policy gradients."""

from __future__ import annotations

from typing import Any

from lightning_rl.rllib.evaluation.postprocessing import compute_advantages
from lightning_rl.rllib.sample_batch import SampleBatch

__all__ = ["post_process_advantages"]


def post_process_advantages(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """Discounted returns as the "advantages" of one trajectory, for a `postprocess_fn`."""
    return compute_advantages(sample_batch, 0.0, policy.config["gamma"], use_gae=False, use_critic=False)
