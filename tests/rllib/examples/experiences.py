"""A simulator of one's own that writes episodes in RLlib's files."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np

from lightning_rl.rllib.evaluation.sample_batch_builder import SampleBatchBuilder
from lightning_rl.rllib.models.preprocessors import get_preprocessor
from lightning_rl.rllib.offline.json_writer import JsonWriter

__all__ = ["save_experiences"]


def save_experiences(directory: Path, episodes: int) -> None:
    """Play the rule "push the cart to the side to which the pole falls", half of the time, else at random."""
    batch_builder = SampleBatchBuilder()
    writer = JsonWriter(directory)
    env = gym.make("CartPole-v1")
    # RLlib's preprocessors: observations of other spaces become vectors here.
    prep = get_preprocessor(env.observation_space)(env.observation_space)
    generator = np.random.default_rng(0)
    for eps_id in range(episodes):
        obs, _ = env.reset(seed=eps_id)
        prev_action, prev_reward, t = 0, 0.0, 0
        terminated = truncated = False
        while not (terminated or truncated):
            best = int(obs[2] + 0.5 * obs[3] > 0)
            action = best if generator.random() < 0.5 else int(generator.integers(2))
            new_obs, reward, terminated, truncated, info = env.step(action)
            batch_builder.add_values(
                t=t,
                eps_id=eps_id,
                agent_index=0,
                obs=prep.transform(obs),
                actions=action,
                action_prob=0.75 if action == best else 0.25,
                action_logp=float(np.log(0.75 if action == best else 0.25)),
                rewards=reward,
                prev_actions=prev_action,
                prev_rewards=prev_reward,
                dones=terminated,
                truncateds=truncated,
                infos=info,
                new_obs=prep.transform(new_obs),
            )
            obs, prev_action, prev_reward, t = new_obs, action, reward, t + 1
        writer.write(batch_builder.build_and_reset())
