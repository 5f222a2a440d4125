"""RLlib's losses as functions are the losses of the policies of the same names."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl import rllib
from lightning_rl.policies.policy import Policy
from lightning_rl.rllib.agents.a3c.a3c_torch_policy import A3CTorchPolicy, actor_critic_loss
from lightning_rl.rllib.agents.pg.pg_torch_policy import pg_torch_loss
from lightning_rl.rllib.agents.pg.utils import post_process_advantages
from lightning_rl.rllib.agents.ppo.ppo_torch_policy import (
    PPOTorchPolicy,
    ValueNetworkMixin,
    kl_and_loss_stats,
    ppo_surrogate_loss,
    vf_preds_fetches,
)
from lightning_rl.rllib.evaluation.postprocessing import compute_gae_for_sample_batch
from lightning_rl.rllib.models.torch.torch_action_dist import TorchCategorical
from lightning_rl.rllib.policy import build_torch_policy
from lightning_rl.rllib.policy.sample_batch import SampleBatch

SMALL: dict[str, Any] = {"train_batch_size": 64, "num_envs_per_worker": 2, "model": {"fcnet_hiddens": [8]}, "seed": 3}
PPO: dict[str, Any] = {**SMALL, "num_sgd_iter": 2, "sgd_minibatch_size": 32}
CASES = {
    "PPO": (PPOTorchPolicy, ppo_surrogate_loss, {**PPO, "vf_clip_param": 0.5, "entropy_coeff": 0.01}),
    "PPO with a KL penalty": (PPOTorchPolicy, ppo_surrogate_loss, {**PPO, "kl_coeff": 0.2}),
    "A3C": (A3CTorchPolicy, actor_critic_loss, {**SMALL, "entropy_coeff": 0.01}),
}


def trained(policy: type[Policy], name: str, keys: dict[str, Any]) -> tuple[torch.Tensor, dict[str, Any]]:
    """All weights after two results, and what the last result has of learning."""
    changed: Any = getattr(rllib, f"{name}Trainer").with_updates("Changed", default_policy=policy)
    made = changed(env="CartPole-v1", config=keys)
    made.train()
    info = made.train()["info"]["learner"]["default_policy"]
    weights = torch.cat([parameter.detach().flatten() for parameter in made.get_policy().model.parameters()])
    made.stop()
    return weights, info


@pytest.mark.parametrize("case", CASES)
def test_a_policy_learns_the_same_by_the_function(case: str) -> None:
    base, loss, keys = CASES[case]
    changed = base.with_updates("ByFunction", loss_fn=loss, stats_fn=kl_and_loss_stats)
    weights, info = trained(changed, case[:3], keys)
    expected, own = trained(base, case[:3], keys)
    torch.testing.assert_close(weights, expected)
    for metric in ("policy_loss", "value_loss"):
        assert info[metric] == pytest.approx(own[metric], rel=1e-4), metric
    assert info["vf_loss"] == info["value_loss"] > 0


def test_a_loss_reads_the_values_that_the_model_has_been_given() -> None:
    """As in RLlib's `centralized_critic`: V = 2 against targets of 0 is an error of 4."""

    def loss_with_other_values(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> torch.Tensor:
        own = model.value_function
        model.value_function = lambda: torch.full_like(train_batch["rewards"], 2.0)
        train_batch["value_targets"] = torch.zeros_like(train_batch["rewards"])
        loss = ppo_surrogate_loss(policy, model, dist_class, train_batch)
        model.value_function = own
        return loss

    changed = PPOTorchPolicy.with_updates("Central", loss_fn=loss_with_other_values)
    _, info = trained(changed, "PPO", {**PPO, "vf_clip_param": 100.0})
    assert info["value_loss"] == pytest.approx(4.0)


def test_policy_gradients_are_weighted_by_discounted_returns() -> None:
    """γ = ½: returns 1 + ½ · 2 = 2 and 2; two equal actions: −log π = ln 2, so the loss is 2 ln 2."""
    policy = SimpleNamespace(config={"gamma": 0.5})
    batch: Any = post_process_advantages(policy, SampleBatch({"rewards": np.array([1.0, 2.0], np.float32)}))
    assert batch["advantages"].tolist() == [2.0, 2.0]
    rows = {"advantages": torch.tensor(batch["advantages"]), "actions": torch.tensor([0, 1])}
    loss = pg_torch_loss(policy, lambda batch: (torch.zeros(2, 2), []), TorchCategorical, rows)
    assert loss.item() == pytest.approx(2 * math.log(2)) and policy.base_metrics == {"policy_loss": loss}


def test_a_policy_of_rllib_s_functions_trains() -> None:
    made = build_torch_policy(
        "Made",
        loss_fn=actor_critic_loss,
        postprocess_fn=compute_gae_for_sample_batch,
        extra_action_out_fn=vf_preds_fetches,
        get_default_config=lambda: {"vf_loss_coeff": 0.5, "entropy_coeff": 0.01, "lambda": 0.9, "use_gae": True},
        mixins=[ValueNetworkMixin],
        before_init=ValueNetworkMixin.__init__,
    )
    weights, info = trained(made, "PG", SMALL)
    assert weights.isfinite().all() and info["value_loss"] > 0
