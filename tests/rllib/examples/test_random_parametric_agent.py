"""random_parametric_agent: a trainer whose policy takes random legal actions, and that learns nothing."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from lightning_rl.rllib import register_env
from lightning_rl.rllib.agents.trainer_template import build_trainer
from lightning_rl.rllib.policy.policy import Policy


class ParametricActionsCartPole(gym.Env):
    """CartPole among `max_avail_actions` actions, of which two, other ones each step, are legal."""

    def __init__(self, max_avail_actions):
        self.rng = np.random.default_rng(0)
        self.action_space = Discrete(max_avail_actions)
        self.wrapped = gym.make("CartPole-v1")
        self.observation_space = Dict(
            {"action_mask": Box(0, 1, shape=(max_avail_actions,)), "cart": self.wrapped.observation_space}
        )

    def reset(self):
        return self._with_actions(self.wrapped.reset()[0])

    def step(self, action):
        assert action in self.legal, f"action {action} is not legal"
        obs, reward, terminated, truncated, info = self.wrapped.step(self.legal.index(action))
        return self._with_actions(obs), reward, terminated or truncated, info

    def _with_actions(self, obs):
        self.legal = self.rng.choice(int(self.action_space.n), 2, replace=False).tolist()
        mask = np.zeros(self.action_space.n, np.float32)
        mask[self.legal] = 1
        return {"action_mask": mask, "cart": obs}


class RandomParametricPolicy(Policy):
    """Pick a random legal action, by the entry 'action_mask' of the observation."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.exploration = self._create_exploration()

    def compute_actions(
        self,
        obs_batch,
        state_batches=None,
        prev_action_batch=None,
        prev_reward_batch=None,
        info_batch=None,
        episodes=None,
        **kwargs,
    ):
        def pick_legal_action(legal_action):
            return np.random.choice(len(legal_action), 1, p=legal_action / legal_action.sum())[0]

        return [pick_legal_action(x) for x in obs_batch["action_mask"]], [], {}

    def learn_on_batch(self, samples):
        pass

    def get_weights(self):
        pass

    def set_weights(self, weights):
        pass


RandomParametricTrainer = build_trainer(name="RandomParametric", default_policy=RandomParametricPolicy)


def test_random_legal_actions_last_longer_than_ten_steps() -> None:
    register_env("pa_cartpole", lambda _: ParametricActionsCartPole(10))
    trainer = RandomParametricTrainer(env="pa_cartpole")
    result = trainer.train()
    trainer.stop()
    assert 10 < result["episode_reward_mean"] < 40
