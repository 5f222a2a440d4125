"""Imitation of an expert mixed into PPO: the model's `custom_loss` reads offline data.

An expert (a rule of one line) plays ten episodes of MountainCar, which are written to a file; in each gradient step
the model reads one of them again and adds −log π(the expert's actions) to the loss. PPO alone never reaches the top,
so that it has nothing to learn from.

Mean return after 40k env steps of PPO (5 seconds each): `imitating` ≥ −150 and `alone` ≤ −200, which is never.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from torch import Tensor
from torch.nn import functional as F

from lightning_rl import Algorithm, SampleBatch
from lightning_rl.data.offline import JsonReader, JsonWriter
from lightning_rl.models import FullyConnectedNetwork


def write_experience(directory: str | Path, episodes: int = 10) -> None:
    """A line of JSON for each episode, with "obs" `[T, 2]` and "actions" `[T]`."""
    env, writer = gym.make("MountainCar-v0"), JsonWriter(directory)
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        seen, actions, ended = [], [], False
        while not ended:
            action = 2 if obs[1] >= 0 else 0  # on in the direction of its velocity
            seen.append(obs)
            actions.append(action)
            obs, _, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
        writer.write(SampleBatch(obs=np.stack(seen), actions=np.array(actions)))


class Imitating(FullyConnectedNetwork):
    """The default network, which also learns from files."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, *, files: str, weight: float, **keywords: Any
    ) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.reader, self.weight = JsonReader(files), weight

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor:
        """The algorithm's loss plus the cross-entropy to the expert's actions."""
        rows: Any = self.reader.next()
        logits, _ = self({"obs_flat": self.preprocessor.transform_batch(rows.obs)})
        self.imitation_loss = F.cross_entropy(logits, rows.actions)
        return policy_loss + self.weight * self.imitation_loss

    def metrics(self) -> dict[str, Tensor | float]:
        """A curve of its own."""
        return {"imitation_loss": self.imitation_loss}


def main(iterations: int = 20, seed: int = 0) -> dict[str, float]:
    """Train with and without the expert, and return the best actions' mean return."""
    scores = {}
    with tempfile.TemporaryDirectory() as directory:
        write_experience(directory)
        imitating = {"custom_model": Imitating, "custom_model_config": {"files": directory, "weight": 10.0}}
        for name, model in {"imitating": imitating, "alone": {}}.items():
            config = {"seed": seed, "model": model, "policy": {"lr": 3e-3}, "workers": {"envs_per_worker": 16}}
            algorithm = Algorithm("ppo", env="MountainCar-v0", overrides=["experiment=none"], config=config)
            for _ in range(iterations):
                algorithm.train()
            scores[name] = algorithm.evaluate()["eval/ep_rew_mean"]
            algorithm.stop()
    return scores


if __name__ == "__main__":
    print(main())
