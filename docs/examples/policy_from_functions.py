"""Policies made of functions: `build_policy` makes a class of them, or changes an algorithm's.

A function is a method whose `self` is called `policy`. The classes are ordinary ones: they run under the Trainer and
under `train.py policy=my_pkg:ActorCritic`, and in Ray workers.

Mean return on CartPole after 100k env steps (10 seconds each): `actor_critic` ≥ 150, `clip_higher` ≥ 400.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_rl import PPO, Algorithm, SampleBatch, build_policy
from lightning_rl.losses import gae, policy_gradient, standardize


def add_advantages(policy: Any, fragment: SampleBatch) -> SampleBatch:
    """Columns `[T, B]` that the loss reads: `postprocess_fn` gets what a worker sampled, and a copy of it."""
    values = policy.values(fragment.obs)  # [T+1, B]
    ends = {"terminated": fragment.terminated, "truncated": fragment.truncated, "valid": fragment.valid}
    fragment["advantages"] = gae(fragment.rewards, values, **ends, gamma=policy.gamma, lam=policy.config["lam"])
    fragment["value_targets"] = fragment.advantages + values[:-1]
    return fragment


def actor_critic_loss(policy: Any, model: Any, dist_class: Any, rows: SampleBatch) -> tuple[Tensor, dict[str, Any]]:
    """Policy gradient and value error; called with the rows `[N]` of a gradient step."""
    outputs, _ = model(rows)
    dist = dist_class(outputs, model)
    policy_loss = policy_gradient(dist.logp(rows.actions), standardize(rows.advantages))
    value_loss = F.mse_loss(model.value_function(), rows.value_targets)
    return policy_loss + 0.5 * value_loss, {"policy_loss": policy_loss, "value_loss": value_loss}


def clip_higher_loss(policy: Any, model: Any, dist_class: Any, rows: SampleBatch) -> tuple[Tensor, dict[str, Any]]:
    """PPO's objective with more room above ratio 1 than below (Yu et al. 2025, arXiv:2503.14476)."""
    outputs, _ = model(rows)
    ratio = (dist_class(outputs, model).logp(rows.actions) - rows.action_logp).exp()
    advantages = standardize(rows.advantages)
    policy_loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages).mean()
    return policy_loss + 0.5 * F.mse_loss(model.value_function(), rows.value_targets), {"policy_loss": policy_loss}


ActorCritic = build_policy(
    "ActorCritic",
    get_default_config=lambda: {"lam": 0.95, "lr": [[0, 2e-3], [100_000, 0.0]], "max_grad_norm": 0.5},
    postprocess_fn=add_advantages,
    loss_fn=actor_critic_loss,
    stats_fn=lambda policy, rows: {"mean_reward": rows.rewards.mean()},
)
ClipHigher = build_policy(
    "ClipHigher",
    base=PPO,
    loss_fn=clip_higher_loss,
    optimizer_fn=lambda policy, config: torch.optim.AdamW(policy.parameters(), lr=1e-3),
)
RUNS = {
    "actor_critic": (ActorCritic, {"envs_per_worker": 8, "fragment_length": 16}),
    "clip_higher": (ClipHigher, {"envs_per_worker": 32, "fragment_length": 32}),
}


def main(total_env_steps: int = 100_000, seed: int = 0) -> dict[str, float]:
    """Train both, and return their best actions' mean return."""
    scores = {}
    for name, (policy_class, workers) in RUNS.items():
        algorithm = Algorithm(policy_class, env="CartPole-v1", config={"seed": seed, "workers": workers})
        while algorithm.policy.env_steps < total_env_steps:
            algorithm.train()
        scores[name] = algorithm.evaluate()["eval/ep_rew_mean"]
        algorithm.stop()
    return scores


if __name__ == "__main__":
    print(main())
