"""The base class of policies: all of its methods, defined in a policy of one's own, are what runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_rl.rllib.agents.trainer_template import build_trainer
from lightning_rl.rllib.policy.policy import Policy
from lightning_rl.rllib.policy.sample_batch import SampleBatch


class Preferences(Policy):
    """Probabilities of two actions that do not depend on the observation, by REINFORCE."""

    def __init__(self, observation_space, action_space, config):
        super().__init__(observation_space, action_space, config)
        # config is that of the trainer: model, optimizer, RL and so on are defined here
        self.lr, self.preference, self.random = config["lr"], 0.0, np.random.default_rng(0)

    def compute_actions(
        self,
        obs_batch,
        state_batches=None,
        prev_action_batch=None,
        prev_reward_batch=None,
        info_batch=None,
        episodes=None,
        explore=None,
        timestep=None,
        **kwargs,
    ):
        right = 1 / (1 + np.exp(-self.preference))
        drawn = self.random.random(len(obs_batch)) if explore else np.full(len(obs_batch), 0.5)
        return (drawn < right).astype(np.int64), [], {"right": np.full(len(obs_batch), right)}

    def compute_log_likelihoods(self, actions, obs_batch, state_batches=None, **kwargs):
        right = 1 / (1 + np.exp(-self.preference))
        return np.log(np.where(np.asarray(actions) == 1, right, 1 - right))

    def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
        assert isinstance(sample_batch[SampleBatch.REWARDS], np.ndarray)
        sample_batch["returns"] = np.cumsum(sample_batch[SampleBatch.REWARDS][::-1])[::-1].astype(np.float32)
        return sample_batch

    def compute_gradients(self, postprocessed_batch):
        score = postprocessed_batch[SampleBatch.ACTIONS].float() - postprocessed_batch["right"]
        weights = postprocessed_batch["returns"] - postprocessed_batch["returns"].mean()
        return [float((score * weights).mean())], {"rows": postprocessed_batch.count}

    def apply_gradients(self, gradients):
        self.preference += self.lr * gradients[0]

    # with the two above, this is all of learning
    def learn_on_batch(self, samples):
        gradients, info = self.compute_gradients(samples)
        self.apply_gradients(gradients)
        return info

    def get_weights(self):
        return {"preference": self.preference}

    def set_weights(self, weights):
        self.preference = float(weights["preference"])


def test_a_policy_of_one_s_own_acts_learns_and_keeps_its_state() -> None:
    config = {"lr": 0.05, "train_batch_size": 200}
    trainer: Any = build_trainer("Own", default_policy=Preferences)(env="CartPole-v1", config=config)
    result = trainer.train()
    policy = trainer.policy
    assert policy.lr == 0.05 and policy.preference != 0.0
    assert result["train/rows"] == result["timesteps_total"]
    action, state, info = policy.compute_single_action(np.zeros(4, np.float32), explore=False)
    assert action in (0, 1) and state == [] and 0 < info["right"] < 1
    again = Preferences(policy.observation_space, policy.action_space, config)
    again.set_state(policy.get_state())
    assert again.preference == policy.preference
    trainer.stop()
