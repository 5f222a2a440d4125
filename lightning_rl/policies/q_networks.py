"""The Q-networks of algorithms that compare Discrete actions, of one agent or of a group of agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.models.catalog import ModelCatalog, model_config
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.group_q_model import GroupQModel
from lightning_rl.models.q_model import QModel
from lightning_rl.policies.policy import Policy
from lightning_rl.spaces.groups import GroupSpaces

__all__ = ["group_q_model_and_action_dist", "q_model_and_action_dist"]


def q_model_and_action_dist(
    policy: Policy, model: Mapping[str, Any] | None, hiddens: Sequence[int], **head: Any
) -> tuple[QModel, DistFactory]:
    """A Q-network on the model's features; greedy actions are the mode of the Categorical of its Q-values.

    Args:
        policy: the policy whose spaces the network fits.
        model: keys of `MODEL_DEFAULTS`.
        hiddens: widths of hidden layers between the model's features and the Q-values. With none, and without `head`, a
            custom model outputs the Q-values itself.
        head: further keywords of `QModel`.

    Raises:
        UnsupportedSpaceError: the actions are not Discrete.
        ConfigError: `custom_action_dist` reads something else than a number for each action.
    """
    name, action_space = type(policy).__name__, policy.action_space
    if not isinstance(action_space, spaces.Discrete):
        raise UnsupportedSpaceError(
            f"{name} compares all actions of a Discrete space; the action space is {action_space}: "
            "use sac, td3 or ddpg for continuous actions, ppo, a2c or pg for any"
        )
    dist_class, size = ModelCatalog.get_action_dist(action_space, model, policy.action_transform.policy_space)
    if size != action_space.n:
        raise ConfigError(
            f"model.custom_action_dist reads {size} outputs; those of {name} are the Q-values of "
            f"{action_space.n} actions: leave it out"
        )
    network = q_model(policy.observation_space, action_space, model_config(model), hiddens, **head)
    return network, dist_class


def q_model(
    obs_space: gym.Space[Any],
    action_space: spaces.Discrete,
    config: Mapping[str, Any],
    hiddens: Sequence[int],
    **head: Any,
) -> QModel:
    """The model of a model config with a head for Q-values; arguments as `q_model_and_action_dist`."""
    num_actions = int(action_space.n)
    direct = config["custom_model"] is not None and not hiddens and not head
    features = ModelCatalog.get_model(obs_space, action_space, num_actions if direct else 0, config)
    initializer = config["fcnet_weights_initializer"]
    return QModel(features, num_actions, hiddens=None if direct else hiddens, initializer=initializer, **head)


def group_q_model_and_action_dist(
    policy: Policy, group: GroupSpaces, model: Mapping[str, Any] | None, hiddens: Sequence[int], **reads: bool
) -> tuple[GroupQModel, DistFactory]:
    """The network that a group's members share, and a Categorical of each member's Q-values.

    Args:
        policy, model, hiddens: see `q_model_and_action_dist`.
        group: the parts of the policy's spaces.
        reads: "agent_id" and "last_action" of `GroupQModel`.

    Raises:
        UnsupportedSpaceError: `custom_action_dist` reads something else than a number for each member's action.
    """
    config, policy_space = model_config(model), policy.action_transform.policy_space
    dist_class, size = ModelCatalog.get_action_dist(policy.action_space, model, policy_space)
    if size != group.size * group.num_actions:
        raise UnsupportedSpaceError(
            f"model.custom_action_dist reads {size} outputs; those of {type(policy).__name__} are the Q-values of "
            f"{group.size} members with {group.num_actions} actions: leave it out"
        )

    def member_network(space: gym.Space[Any]) -> QModel:
        own = {**config, "custom_preprocessor": None}  # the space is that of its output
        return q_model(space, spaces.Discrete(group.num_actions), own, hiddens)

    network = GroupQModel(policy.observation_space, policy.action_space, group, member_network, config, **reads)
    return network, dist_class
