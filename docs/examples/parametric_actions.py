"""Sets of legal actions that change at each step: by a mask, by embeddings of the actions, and by both.

CartPole with 10 action slots, of which 2 are legal; an illegal one ends the episode.
- `mask`: slots have fixed meanings. "action_mask" in a Dict observation is all it takes: every discrete distribution
  honors it, with any model.
- `embeddings`: what a slot does changes too, and the observation holds an embedding of it (zeros for an illegal slot).
  The model turns CartPole's state into what it wants to do, and each slot's logit is how well it fits.
- `both`: that model with a mask, and 2 to 10 legal slots, a new number at each step.

Mean return after 100k env steps of PPO (15 seconds each): `mask` ≥ 300, `embeddings` ≥ 300, `both` ≥ 300.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_rl import Algorithm
from lightning_rl.models import FullyConnectedNetwork, Model


class Fitting(Model):
    """Logits of N slots as inner products of their embeddings `[N, slots, 2]` with what the state asks for `[N, 2]`."""

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, **keywords: Any) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        embedding = obs_space["avail_actions"].shape[1]
        self.wanted = FullyConnectedNetwork(obs_space["cart"], action_space, embedding)

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        """Logits `[N, slots]`, and no state."""
        obs = input_dict["obs"]
        wanted, _ = self.wanted({"obs_flat": obs["cart"]})
        return torch.einsum("nse,ne->ns", obs["avail_actions"], wanted), []

    def value_function(self) -> Tensor:
        """Values `[N]` of the last forward."""
        return self.wanted.value_function()


VARIANTS: dict[str, dict[str, Any]] = {
    "mask": {},
    "embeddings": {"env": {"kwargs": {"embeddings": True, "mask": False}}, "model": {"custom_model": Fitting}},
    "both": {"env": {"kwargs": {"embeddings": True, "varying": True}}, "model": {"custom_model": Fitting}},
}


def main(iterations: int = 100, seed: int = 0) -> dict[str, float]:
    """Train each variant, and return its best actions' mean return."""
    scores = {}
    for name, config in VARIANTS.items():
        algorithm = Algorithm("ppo", env="parametric_cartpole", config={"seed": seed, **config})
        for _ in range(iterations):
            algorithm.train()
        scores[name] = algorithm.evaluate()["eval/ep_rew_mean"]
        algorithm.stop()
    return scores


if __name__ == "__main__":
    print(main())
