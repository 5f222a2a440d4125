"""PQN for a group of agents: the joint value is the sum of the members' values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from torch import Tensor

from lightning_rl.losses.mixing import sum_mix
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.policies.pqn import PQN
from lightning_rl.policies.q_networks import group_q_model_and_action_dist
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.spaces.groups import GroupSpaces

__all__ = ["PQNVDN"]


class PQNVDN(PQN):
    """PQN with value decomposition: Q_tot is the sum of the members' values. Gallici et al. 2024, arXiv:2407.04811.

    The members share one network and one reward, as in `VDN`.

    Args:
        observation_space, action_space: the spaces of a group (`GroupSpaces`), which `env.group_agents=all` creates.
        agent_id: add the member's index (one-hot) to the input of the members' network.
        last_action: add the member's last action (one-hot) to the input.
        keywords: see `PQN`.

    Raises:
        UnsupportedSpaceError: the spaces are not those of a group, or its members have different ones.
        ConfigError: a number is out of range.
    """

    acts_for_group = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        agent_id: bool = True,
        last_action: bool = True,
        **keywords: Any,
    ) -> None:
        # First: the base class builds the model.
        self.group = GroupSpaces(observation_space, action_space, type(self).__name__)
        self.reads = {"agent_id": agent_id, "last_action": last_action}
        super().__init__(observation_space, action_space, **keywords)

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None) -> tuple[Any, DistFactory]:
        """The members' shared network, and a Categorical of each member's Q-values."""
        return group_q_model_and_action_dist(self, self.group, model, self.hiddens, **self.reads)

    def best_values(self, fragment: SampleBatch) -> Tensor:
        """The maximum of Q_tot over the allowed actions, `[T+1, B]`."""
        return self.sum_over_members(super().best_values(fragment), fragment.obs)

    def chosen_values(self, batch: SampleBatch) -> Tensor:
        """Q_tot(s, a) of the rows, `[N]`, with gradients."""
        actions = self.group.stack_actions(batch.actions)
        q_values = self.outputs_of(batch)[0].unflatten(1, (self.group.size, -1))
        return self.sum_over_members(q_values.gather(2, actions.unsqueeze(2)).squeeze(2), batch.obs)

    def sum_over_members(self, values: Tensor, obs: Any) -> Tensor:
        """Members' values `[…, n]` as `[…]`; a member that is not present has the value 0."""
        present = self.group.present(obs)
        return sum_mix(values if present is None else values.masked_fill(~present, 0.0))
