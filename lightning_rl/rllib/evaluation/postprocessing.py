"""Advantages and returns of one trajectory, as RLlib's functions of postprocessing compute them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lightning_rl.losses.returns import discounted_returns, gae
from lightning_rl.rllib.sample_batch import SampleBatch
from lightning_rl.rllib.trajectories import fragment_of_trajectory
from lightning_rl.sample_batch import STEP_INPUTS

__all__ = ["Postprocessing", "compute_advantages", "compute_gae_for_sample_batch", "discount_cumsum"]


class Postprocessing:
    """Names of the columns that are computed here."""

    ADVANTAGES = "advantages"
    VALUE_TARGETS = "value_targets"


def discount_cumsum(x: np.ndarray, gamma: float) -> np.ndarray:
    """Gₜ = xₜ + γ Gₜ₊₁, of the same shape `[n]`."""
    never = torch.zeros(len(x), 1, dtype=torch.bool)
    column = torch.as_tensor(np.asarray(x)).unsqueeze(1)
    return discounted_returns(column, terminated=never, truncated=never, gamma=gamma).squeeze(1).numpy()


def compute_advantages(
    rollout: SampleBatch,
    last_r: float,
    gamma: float = 0.9,
    lambda_: float = 1.0,
    use_gae: bool = True,
    use_critic: bool = True,
) -> SampleBatch:
    """Add "advantages" and "value_targets" `[n]` to one trajectory.

    Schulman et al. 2016, arXiv:1506.02438, eq. 16.

    Args:
        rollout: rows of one episode, with "rewards", and with "vf_preds" if `use_critic`.
        last_r: V of the observation after the last row; 0 if the episode terminated there.
        gamma, lambda_: discount and λ of GAE, in [0, 1].
        use_gae: whether the advantages are those of GAE; False: the discounted returns, minus V if `use_critic`.
        use_critic: whether values are subtracted; False: the value targets are 0.

    Raises:
        KeyError: "vf_preds" is missing where it is needed.
    """
    rewards = np.asarray(rollout["rewards"], np.float32)
    if use_gae:
        values = np.append(rollout["vf_preds"], last_r).astype(np.float32)
        never = torch.zeros(len(rewards), 1, dtype=torch.bool)
        columns = (torch.from_numpy(column).unsqueeze(1) for column in (rewards, values))
        advantages = gae(*columns, terminated=never, truncated=never, gamma=gamma, lam=lambda_).squeeze(1).numpy()
        targets = advantages + values[:-1]
    else:
        returns = discount_cumsum(np.append(rewards, np.float32(last_r)), gamma)[:-1]
        advantages = returns - rollout["vf_preds"] if use_critic else returns
        targets = returns if use_critic else np.zeros_like(returns)
    rollout["advantages"], rollout["value_targets"] = advantages.astype(np.float32), targets.astype(np.float32)
    return rollout


def compute_gae_for_sample_batch(
    policy: Any, sample_batch: SampleBatch, other_agent_batches: Any = None, episode: Any = None
) -> SampleBatch:
    """`compute_advantages` with the policy's values and the keys "gamma", "lambda", "use_gae" and "use_critic".

    Args:
        policy: a policy whose model has values.
        sample_batch: one trajectory; without "vf_preds" the values are computed.
        other_agent_batches, episode: not read.
    """
    fragment = fragment_of_trajectory(sample_batch)
    inputs = fragment.select(*(name for name in STEP_INPUTS if name in fragment))
    known = "vf_preds" in sample_batch
    inputs = inputs.map(lambda column: column[-1 if known else 0 :].to(policy.device))
    values = policy.values(inputs.obs, inputs)[:, 0].numpy(force=True)
    if not known:
        sample_batch["vf_preds"] = values[:-1]
    config = policy.config
    return compute_advantages(
        sample_batch,
        0.0 if sample_batch["dones"][-1] else float(values[-1]),
        config["gamma"],
        config.get("lambda", 1.0),
        config.get("use_gae", True),
        config.get("use_critic", True),
    )
