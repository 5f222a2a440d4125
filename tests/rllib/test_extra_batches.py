"""Callbacks add experience to a worker's samples: `episode.add_extra_batch`, `new_batch_builder`, `batch_builder`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.errors import ConfigError
from lightning_rl.rllib import DefaultCallbacks, make_multi_agent
from lightning_rl.rllib.agents.dqn import DQNTrainer
from lightning_rl.rllib.agents.pg import PGTrainer
from lightning_rl.rllib.agents.ppo import PPOTrainer

REWARD = 7.0


def add_three_steps(builder: Any, **more: Any) -> None:
    """An episode that ends at its third step; observation k is all k."""
    for step in range(3):
        obs, new_obs = (np.full(4, step + after, np.float32) for after in (0, 1))
        row = {"obs": obs, "new_obs": new_obs, "actions": 1, "rewards": REWARD, "dones": step == 2, "infos": {}}
        builder.add_values("agent0", "default_policy", **row, **more)


class Adds(DefaultCallbacks):
    """Adds an episode for each that ends."""

    def on_episode_end(self, *, episode: Any, **keywords: Any) -> None:
        builder = episode.new_batch_builder()
        add_three_steps(builder, action_logp=-0.7)
        assert builder.total() == 3
        episode.add_extra_batch(builder.build_and_reset(episode))
        assert not builder.has_pending_agent_data()


class AddsWithoutLogp(DefaultCallbacks):
    def on_episode_end(self, *, episode: Any, **keywords: Any) -> None:
        add_three_steps(episode.batch_builder)


KEYS = {"num_envs_per_worker": 2, "rollout_fragment_length": 60, "model": {"fcnet_hiddens": [8]}}


def test_an_on_policy_algorithm_learns_from_added_rows() -> None:
    """γ = 1: the returns of an added episode are 21, 14 and 7, and those of CartPole's count its steps backward."""
    made: Any = PGTrainer(env="CartPole-v1", config={**KEYS, "callbacks": Adds, "gamma": 1.0})
    rows = made.workers.local_worker().sample()
    added = rows["rewards"] == REWARD
    episodes = int((rows["dones"] & ~added).sum())
    assert episodes > 2 and rows["advantages"][added].tolist() == [21.0, 14.0, 7.0] * episodes
    assert rows["t"][added].tolist() == [0, 1, 2] * episodes and rows["obs"][added][:3, 0].tolist() == [0, 1, 2]
    whole = [part["advantages"] for part in rows[~added].split_by_episode() if part["dones"][-1]]
    assert all(part.tolist() == [*range(len(part), 0, -1)] for part in whole)
    before = made.policy.env_steps
    result = made.train()
    made.stop()
    assert result["timesteps_this_iter"] == made.policy.env_steps - before > 120


def test_a_replay_buffer_has_added_rows_and_the_episodes_around_them() -> None:
    """Next observations of the added rows are one more; those of others continue over the ends of fragments."""
    keys = {**KEYS, "callbacks": Adds, "learning_starts": 50, "train_batch_size": 16, "n_step": 1}
    made: Any = DQNTrainer(env="CartPole-v1", config=keys)
    for _ in range(3):
        made.train()
    made.stop()
    buffer = made.datamodule.source.buffer
    rows = buffer.sample(len(buffer))
    added = rows["rewards"] == REWARD
    assert added.any() and torch.equal(rows["next_obs"][added], rows["obs"][added] + 1)
    assert torch.equal(rows["terminated"][added], rows["obs"][added][:, 0] == 2)
    positions = rows["next_obs"][~added][:, 0] - rows["obs"][~added][:, 0]
    assert torch.allclose(positions, 0.02 * rows["obs"][~added][:, 1], atol=1e-6)  # CartPole's Euler step


def test_added_rows_have_all_columns_of_the_policy() -> None:
    made: Any = PPOTrainer(env="CartPole-v1", config={**KEYS, "callbacks": AddsWithoutLogp})
    with pytest.raises(ConfigError, match="lacks action_logp"):
        made.train()
    made.stop()
    section = {"policies": {"a"}, "policy_mapping_fn": lambda *_, **keywords: "a"}
    several: Any = PPOTrainer(
        env=make_multi_agent("CartPole-v1"), config={**KEYS, "callbacks": Adds, "multiagent": section}
    )
    with pytest.raises(ConfigError, match="several agents"):
        several.train()
    several.stop()
