"""An autoregressive action distribution: P(first) · P(second | first), where independent parts cannot succeed.

HiddenCoin (`lightning_rl/envs/toy_tasks.py`): hide a coin in one of two hands and point to a hand; an opponent guesses
the hand that held the coin more often. A step pays [pointed to the coin] − [he guessed it] + ½. Pointing right without
seeing the first part takes a predictable hand, which he guesses: independent parts get ½, and can get no more than
0.527 whatever they learn. A second part that sees the first gets 1.

Mean pay of a step after 50k env steps of PPO (5 seconds each): `autoregressive` ≥ 0.95 and `independent` ≤ 0.55.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lightning_rl import Algorithm
from lightning_rl.models import FullyConnectedNetwork
from lightning_rl.models.distributions import AutoregressiveDistribution


class HandThenPoint(FullyConnectedNetwork):
    """The network's outputs are a context, and `action_model` makes logits of it for each part of the action.

    Without an `action_model` of your own the distribution gives the model a general one.
    """

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, **keywords: Any) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.hide = nn.Linear(num_outputs, 2)
        self.point = nn.Sequential(nn.Linear(num_outputs + 2, 16), nn.Tanh(), nn.Linear(16, 2))

    def action_model(self, context: Tensor, chosen: Tensor) -> list[Tensor]:
        """Logits of both parts.

        Args:
            context: the outputs of `forward`, `[N, num_outputs]`.
            chosen: one-hot, `[N, 2 + 2]`: zeros where a part is not chosen yet. A part may read those before it.
        """
        return [self.hide(context), self.point(torch.cat([context, chosen[:, :2]], dim=1))]


MODELS: dict[str, dict[str, Any]] = {
    "autoregressive": {"custom_model": HandThenPoint, "custom_action_dist": AutoregressiveDistribution},
    "independent": {"custom_action_dist": None},
}


def main(iterations: int = 32, seed: int = 0) -> dict[str, float]:
    """Train both, and return their mean pay; actions are sampled, as hiding takes chance."""
    scores = {}
    for name, model in MODELS.items():
        config = {"seed": seed, "model": model, "evaluation": {"explore": True, "episodes": 100}}
        algorithm = Algorithm("ppo", env="hidden_coin", config=config)
        for _ in range(iterations):
            algorithm.train()
        scores[name] = algorithm.evaluate()["eval/ep_rew_mean"]
        algorithm.stop()
    return scores


if __name__ == "__main__":
    print(main())
