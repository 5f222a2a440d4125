"""A critic that sees what the other agent saw and did, written by hand in `postprocess_trajectory`.

Two agents, a policy each, play the two-step game: 7 for safety, 8 if both dare. `postprocess_trajectory` gets the other
policy's fragment of the same environments: a column that the critic reads, not the actor. (The flag
`policy.central_critic` does so for observations.) After 26k env steps of PPO: `return` ≥ 7.9 of 8.
"""

import tempfile
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_rl import PPO, Algorithm, SampleBatch
from lightning_rl.losses.returns import gae
from lightning_rl.models import Model

SETTINGS: dict[str, Any] = {
    "policies": {"first": {}, "second": {}},
    "policy_mapping": {"agent_0": "first", "agent_1": "second"},
    "workers": {"envs_per_worker": 32, "fragment_length": 8, "batch_mode": "complete_episodes"},
    "policy": {"entropy_coef": 0.05, "gamma": 1.0, "reward_filter": "none"},
}


class ActorAndCentralCritic(Model):
    """An actor of the agent's observation; a critic of that and of the other agent's observation and action."""

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, **keywords: Any) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        width = obs_space.shape[0]
        self.actor = nn.Sequential(nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, num_outputs))
        self.critic = nn.Sequential(nn.Linear(2 * width + num_outputs, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[N, num_outputs]`, and no state."""
        return self.actor(input_dict["obs"]), []

    def central_value(self, obs: Tensor, other: Tensor) -> Tensor:
        """Values, of observations and of what the other agent saw and did."""
        return self.critic(torch.cat([obs, other], dim=-1)).squeeze(-1)


class CentralCriticPPO(PPO):
    """PPO whose values come from `central_value`."""

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """Add the other agent's column, and advantages by the central critic."""
        ((_, other),) = other_agent_batches.values()  # both act in every step: row t of one is row t of the other
        fragment = batch.copy()
        fragment["other"] = torch.cat([other.obs[:-1], F.one_hot(other.actions.long(), 2)], dim=-1)
        with torch.no_grad():
            values = self.model.central_value(fragment.obs[:-1], fragment["other"])
        ends = {"terminated": fragment.terminated, "truncated": fragment.truncated, "valid": fragment.valid}
        bounded = torch.cat([values, torch.zeros_like(values[:1])])  # the last is not read: a rule ends each episode
        fragment["advantages"] = gae(fragment.rewards, bounded, **ends, gamma=self.gamma, lam=self.gae_lambda)
        fragment["vf_preds"], fragment["value_targets"] = values, fragment.advantages + values
        return self.flatten_fragment(fragment)

    def distribution_and_values(self, batch: SampleBatch) -> tuple[Any, Tensor]:
        """The distribution of the actor, and the central values, with gradients."""
        return self.distribution_of(batch), self.model.central_value(batch.obs, batch["other"])


def main(iterations: int = 100, seed: int = 0) -> dict[str, float]:
    """Train both policies, and return what they reach together."""
    with tempfile.TemporaryDirectory() as folder:
        config = {**SETTINGS, "model": {"custom_model": ActorAndCentralCritic}, "seed": seed, "run_dir": folder}
        algorithm = Algorithm(CentralCriticPPO, env="two_step_game", config=config)
        for _ in range(iterations):
            algorithm.train()
        score = algorithm.evaluate()["eval/ep_rew_mean"]
        algorithm.stop()
    return {"return": score}


if __name__ == "__main__":
    print(main())
