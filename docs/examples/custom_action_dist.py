"""An action distribution of your own: only full throttle, forwards or backwards.

"Is Bang-Bang Control All You Need?" (Seyde et al. 2021, arXiv:2111.02552) finds that policies which know nothing but
the ends of a Box action do about as well as Gaussian ones. One logit per entry: the sign is a coin flip.

After 100k env steps of PPO on Pendulum (30 seconds): `return` ≥ −300, where random actions get about −1200.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import Space
from torch import Tensor
from torch.nn import functional as F

from lightning_rl import ActionDistribution, Algorithm


class BangBang(ActionDistribution):
    """Each entry of the action is −1 or 1; the inputs `[N, A]` are the logits of 1.

    A policy acts in [−1, 1] and the environment gets the ends of its Box.
    """

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Any = None) -> int:
        """One logit per entry: what the model is asked to give."""
        return int(torch.Size(action_space.shape or ()).numel())

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions `[N, A]`."""
        chance = torch.rand(self.inputs.shape, generator=generator, device=self.inputs.device)
        self.last = 2.0 * (chance < self.inputs.sigmoid()) - 1.0
        return self.last

    def deterministic_sample(self) -> Tensor:
        """The likelier ends `[N, A]`."""
        self.last = 2.0 * (self.inputs > 0) - 1.0
        return self.last

    def logp(self, actions: Tensor) -> Tensor:
        """Log π(a|s), `[N]`: log σ(logit) of 1, log σ(−logit) of −1."""
        return F.logsigmoid(self.inputs * actions).sum(1)

    def sampled_action_logp(self) -> Tensor:
        """Log π of the last sample, `[N]`."""
        return self.logp(self.last)

    def entropy(self) -> Tensor:
        """H in nats, `[N]`."""
        return self.kl_terms(self).neg().sum(1)

    def kl(self, other: BangBang) -> Tensor:
        """KL(self‖other) in nats, `[N]`."""
        return (self.kl_terms(self) - self.kl_terms(other)).sum(1)

    def kl_terms(self, other: BangBang) -> Tensor:
        """Σ p log q over both ends, `[N, A]`, with the p of `self` and the q of `other`."""
        p = self.inputs.sigmoid()
        return p * F.logsigmoid(other.inputs) + (1 - p) * F.logsigmoid(-other.inputs)


def main(iterations: int = 25, seed: int = 0) -> dict[str, float]:
    """Train, and return the mean return of the best actions."""
    config = {"seed": seed, "model": {"custom_action_dist": BangBang, "free_log_std": False}}
    algorithm = Algorithm("ppo", env="pendulum", config=config)
    for _ in range(iterations):
        algorithm.train()
    score = algorithm.evaluate()["eval/ep_rew_mean"]
    algorithm.stop()
    return {"return": score}


if __name__ == "__main__":
    print(main())
