"""A critic that sees all agents: values of a central observation, for an actor that sees only its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.models.catalog import ModelOptions, model_config
from lightning_rl.models.filters import MeanStdFilter, NoFilter
from lightning_rl.models.fully_connected import hidden_layers
from lightning_rl.models.layers import ValueHead
from lightning_rl.models.model import Model
from lightning_rl.models.model_wrapper import ModelWrapper

__all__ = ["CentralCritic", "actor_options", "used_central_obs_size"]


def used_central_obs_size(algorithm: str, central_critic: bool, central_obs_size: int) -> int:
    """The width S of the central observations that a policy's critic reads; 0 without a central critic.

    Args:
        algorithm: name of the policy's class.
        central_critic: whether the policy has one.
        central_obs_size: that the environment gives; 0: none.

    Raises:
        ConfigError: there is a central critic, and nothing for it to read.
    """
    if central_critic and not central_obs_size:
        raise ConfigError(
            f"policy.central_critic=true: {algorithm} has no central observation to read (central_obs_size=0), which "
            "needs an environment with several agents: choose one (env=pettingzoo), or set central_critic=false"
        )
    return central_obs_size if central_critic else 0


def actor_options(model: ModelOptions | None) -> dict[str, Any]:
    """The model config of an actor without its own value network.

    Raises:
        ConfigError: the config asks for values from the actor's layers.
    """
    if model_config(model)["vf_share_layers"]:
        raise ConfigError(
            "policy.central_critic=true has a value network of its own, which the actor cannot share: set "
            "model.vf_share_layers=false"
        )
    return {**(model or {}), "vf_share_layers": True}  # then built-in models have one linear layer for values, no more


class CentralCritic(ModelWrapper):
    """An actor of any kind, with values from an MLP over the central observation joined with the actor's "obs_flat".

    Yu et al. 2022, arXiv:2103.01955, section 3 (MAPPO): centralized training, decentralised execution. The own
    observation says which agent's value is meant (their "agent-specific global state").

    The value network has the actor's `fcnet_hiddens`, and no memory: the central observation is taken to be the state.

    Args:
        wrapped: the actor; its own values, if any, are not used.
        central_obs_size: width S of the column `central_obs`.
        model: config of the actor, from which the value network takes its layers, activation, and initialization.
        normalize: whether to normalize central observations by running statistics, like "obs_flat".
    """

    def __init__(
        self, wrapped: Model, central_obs_size: int, model: ModelOptions | None = None, normalize: bool = False
    ) -> None:
        super().__init__(wrapped, wrapped.num_outputs)
        config = model_config(model)
        if config["custom_model"] is None:
            wrapped.value_head = None  # no loss would give it a gradient, and DDP would wait for one
        self.central_obs_size = central_obs_size
        self.forbids_actions, self.log_std_clip = wrapped.forbids_actions, wrapped.log_std_clip
        self.filter = MeanStdFilter(central_obs_size) if normalize else NoFilter()
        settings = {key: config[key] for key in ("layer_norm", "batch_norm")}
        settings["initializer"] = config["fcnet_weights_initializer"]
        layers = central_obs_size + self.preprocessor.size, config["fcnet_hiddens"], config["fcnet_activation"]
        self.value_trunk = hidden_layers(config["fcnet_residual"], *layers, **settings)
        self.value_head = ValueHead(self.value_trunk.size, settings["initializer"])

    def forward(
        self, input_dict: Any, state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """The actor's outputs and state; it does not get "central_obs", which only `value_function` reads."""
        central = input_dict.get("central_obs")
        own = input_dict if central is None else input_dict.without("central_obs")
        self._last.features = (own, central)
        return self.wrapped(own, state, seq_lens)

    def value_function(self) -> Tensor:
        """Values `[N]` of the last forward.

        Raises:
            ConfigError: its inputs had no "central_obs", as in acting.
        """
        own, central = self._last.get()
        if central is None:
            raise ConfigError(
                f"a central critic reads the column central_obs [N, {self.central_obs_size}], and these rows have "
                "none: rollouts of environments with several agents record it"
            )
        joined = torch.cat([self.filter(central.to(torch.float32)), own["obs_flat"]], dim=1)
        return self.value_head(self.value_trunk(joined))

    def update_filter(self, central_obs: Tensor) -> None:
        """Update the running statistics, if there are any, with rows `[N, S]`."""
        if isinstance(self.filter, MeanStdFilter):
            self.filter.update(central_obs.to(torch.float32))
