"""Exploration by a network with learned noise on its weights (NoisyNet)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Generator, Tensor, nn

from lightning_rl.errors import ConfigError
from lightning_rl.exploration.exploration import Choice, Exploration
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.noisy import NoisyLinear, resample_noise, with_noise

__all__ = ["NoisyNetwork", "require_noisy_layers"]


class NoisyNetwork(Exploration):
    """The greedy action of a network with `NoisyLinear` layers, with new noise at each step.

    Fortunato et al. 2018, arXiv:1706.10295. The network learns the amount of noise, so there is no schedule.

    Args:
        action_space: any space that the network's distribution supports.
    """

    disturbs = True

    def model_outputs(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        state: Sequence[Tensor],
        *,
        timestep: int,
        explore: bool,
        generator: Generator | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Run the model with new noise; without noise if `explore` is False."""
        if not explore:
            return model(inputs, state, None)
        resample_noise(model, generator)
        with with_noise(model):
            return model(inputs, state, None)

    def choose(self, dist: ActionDistribution, timestep: int, generator: Generator | None, logp: bool) -> Choice:
        """The best action for the noisy outputs."""
        return dist.deterministic_sample(), dist.sampled_action_logp()


def require_noisy_layers(exploration: Exploration, model: nn.Module) -> None:
    """Raise an error if the network has no noisy layers: it would act greedily at every step.

    Raises:
        ConfigError: names what to set.
    """
    explores = any(isinstance(part, NoisyNetwork) for part in exploration.modules())
    if explores and not any(isinstance(layer, NoisyLinear) for layer in model.modules()):
        raise ConfigError(
            "exploration.type=noisy_network explores by noisy layers, and the model has none: set policy.noisy=true "
            "(policy=dqn, rainbow, apex, r2d2), use a custom model with NoisyLinear layers, or another exploration, "
            "such as epsilon_greedy or stochastic_sampling"
        )
