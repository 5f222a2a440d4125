"""The algorithms that learn from replay as small policies, and transitions for them to learn from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from lightning_rl.policies import DDPG, DQN, R2D2, SAC, TD3, TQC, Policy, SimpleQ
from lightning_rl.sample_batch import SampleBatch

OBS, TWO, BOX = spaces.Box(-1, 1, (3,)), spaces.Discrete(2), spaces.Box(-1, 1, (2,))
SMALL: dict[str, Any] = {"model": {"fcnet_hiddens": [16]}}
NORMED: dict[str, Any] = {"model": {"custom_model": "docs.examples.batch_norm:BatchNormNet"}}
Q_LEARNERS: dict[str, tuple[type[Policy], dict[str, Any]]] = {
    "dqn": (DQN, {}),
    "dqn, plain": (DQN, {"double": False}),
    "dqn, dueling": (DQN, {"dueling": True}),
    "dqn, quantiles": (DQN, {"num_quantiles": 5}),
    "dqn, quantiles, plain": (DQN, {"num_quantiles": 5, "double": False}),
    "c51": (DQN, {"num_atoms": 11}),
    "c51, plain": (DQN, {"num_atoms": 11, "double": False}),
    "r2d2": (R2D2, {}),
    "r2d2, plain": (R2D2, {"double": False}),
    "simple_q": (SimpleQ, {}),
}
CRITICS: dict[str, tuple[type[Policy], dict[str, Any]]] = {
    "sac": (SAC, {}),
    "sac, redq": (SAC, {"num_critics": 4, "target_critics": 2}),
    "tqc": (TQC, {}),
    "td3": (TD3, {}),
    "ddpg": (DDPG, {}),
}
ALL = {**Q_LEARNERS, **CRITICS, "sac, discrete": (SAC, {})}
each_algorithm = pytest.mark.parametrize("name", ALL)
each_with_critics = pytest.mark.parametrize("name", [*CRITICS, "sac, discrete"])


def small_policy(name: str, **changes: Any) -> Any:
    """The algorithm with a small network; the target network differs from the network that it follows."""
    policy_class, keywords = ALL[name]
    policy = policy_class(OBS, BOX if name in CRITICS else TWO, **{**SMALL, **keywords, **changes})
    for target in ("target_model", "target_critic"):
        for parameter in getattr(policy, target, nn.Module()).parameters():
            parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    return policy


def transitions(name: str = "dqn", count: int = 6, **columns: Any) -> SampleBatch:
    """Random transitions; `columns` replace theirs."""
    generator = torch.Generator().manual_seed(3)
    box = name in CRITICS
    batch = SampleBatch(
        obs=torch.randn(count, 3, generator=generator),
        next_obs=torch.randn(count, 3, generator=generator),
        actions=torch.rand(count, 2, generator=generator) - 0.5 if box else torch.arange(count) % 2,
        rewards=torch.randn(count, generator=generator),
        terminated=torch.zeros(count, dtype=torch.bool),
        discounts=torch.full((count,), 0.9),
    )
    for column, value in columns.items():
        batch[column] = value
    return batch


class Draws(list[Any]):
    """Draws from no buffer: priorities are dropped."""

    def update_priorities(self, batch: SampleBatch, td_errors: Tensor) -> None:
        """Do nothing."""


def td_errors(policy: Policy, batch: SampleBatch) -> Tensor:
    """TD errors of the rows under a fixed seed."""
    torch.manual_seed(0)
    return policy.loss(batch)[1]["td_errors"]


def set_constant_q(model: Any, *values: float) -> None:
    """Let the head give `values` (Q-values, atoms or quantiles) in every state."""
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    model.advantages.linear.bias.data = torch.tensor(values)


def set_constant_values(model: Any, value: float) -> None:
    """Let V(s) be this in every state, and an action distribution of several parameters the same everywhere."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.weight)
            nn.init.constant_(module.bias, value if module.out_features == 1 else 0.0)


def set_constant_critics(critic: Any, *values: Any) -> None:
    """Let each critic give its value, or its list of quantiles, for every state and action."""
    for parameter in critic.parameters():
        nn.init.zeros_(parameter)
    biases = critic.networks.biases[-1]
    biases.data = torch.tensor(values).view(len(values), 1, -1).expand_as(biases).clone()


def gradients(policy: Any, batch: SampleBatch) -> dict[str, Tensor]:
    """Gradients of one loss by parameter, at a step where TD3 trains its actor."""
    policy.gradient_steps = 1
    policy.zero_grad()
    torch.manual_seed(0)
    policy.loss(batch)[0].backward()
    return {key: torch.zeros_like(p) if p.grad is None else p.grad.clone() for key, p in policy.named_parameters()}
