"""Ensembles of Q-functions, with which SAC, TD3 and related algorithms evaluate actions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from gymnasium import Space, spaces
from torch import Tensor, nn

from lightning_rl.errors import ConfigError
from lightning_rl.fast_torch import FastAttributes
from lightning_rl.models.batch_norm import BatchNorm, NormPlace
from lightning_rl.models.catalog import ModelCatalog, model_config
from lightning_rl.models.layers import ACTIVATIONS, activation_name, initialize
from lightning_rl.models.memory import memory_kind
from lightning_rl.models.model import Model
from lightning_rl.models.simba import ResidualMLP, ResidualMLPs
from lightning_rl.models.vision import images_in

__all__ = ["CriticEnsemble", "ParallelMLP", "form_of_actions"]


class ParallelMLP(FastAttributes):
    """`count` MLPs of the same shape, computed together: each layer is one batched matrix product.

    Args:
        count: number K of networks.
        size: width of the input.
        hiddens: widths of the hidden layers.
        outputs: width of the output.
        activation: activation of the hidden layers; one of `ACTIVATIONS`.
        initializer: see `initialize`; each network has different initial weights.
        layer_norm: normalize the output of each hidden layer, before its activation.
        batch_norm: see `MLP`; each network has separate statistics.
        dropout: probability of dropping a hidden unit in train mode.
    """

    def __init__(
        self,
        count: int,
        size: int,
        hiddens: Sequence[int],
        outputs: int,
        *,
        activation: str = "relu",
        initializer: str = "default",
        layer_norm: bool = False,
        batch_norm: NormPlace | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.count, self.dropout, self.scaled, self.batch_norm = count, dropout, layer_norm, batch_norm
        self.activation = ACTIVATIONS[activation_name(activation)]
        widths = [size, *hiddens, outputs]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        # Kept outside the ParameterLists too: looking up a parameter there costs as much as a small matrix product.
        self._layers: list[tuple[nn.Parameter, Any]] = []
        for before, after in pairwise(widths):
            layers = [nn.Linear(before, after) for _ in range(count)]
            for layer in layers:
                initialize(layer, initializer, None if len(self.weights) < len(hiddens) else 1.0)
            weight = nn.Parameter(torch.stack([layer.weight.detach().t() for layer in layers]))
            bias = None
            if batch_norm != "before" or len(self.weights) == len(hiddens):
                bias = nn.Parameter(torch.stack([layer.bias.detach().unsqueeze(0) for layer in layers]))
                self.biases.append(bias)
            self.weights.append(weight)
            self._layers.append((weight, bias))
        self.norms = nn.ParameterList()  # scale and shift of each hidden layer
        for width in hiddens if layer_norm else ():
            self.norms.append(nn.Parameter(torch.stack([torch.ones(count, 1, width), torch.zeros(count, 1, width)])))
        norms = [nn.ModuleList([BatchNorm(width) for width in widths[:-1]]) for _ in range(count if batch_norm else 0)]
        self.batch_norms: Any = nn.ModuleList(norms)  # of each network: of its input and its hidden layers

    def forward(self, x: Tensor, count: int | None = None) -> Tensor:
        """`[N, size]`, or `[K, N, size]` with an input for each network → `[K, N, outputs]`; only the first `count`."""
        layers: Any = self._layers
        norms: Any = self.norms
        if count is not None and count < self.count:
            layers = [(weight[:count], None if bias is None else bias[:count]) for weight, bias in layers]
            norms = [norm[:, :count] for norm in norms]
        x = x if x.dim() == 3 else x.expand(len(layers[0][0]), *x.shape)
        if self.batch_norm:
            return self._batch_normed(x, layers)
        *hidden, (last_weight, last_bias) = layers
        for number, (weight, bias) in enumerate(hidden):
            x = torch.baddbmm(bias, x, weight)
            if self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            if self.scaled:
                scale, shift = norms[number]
                x = F.layer_norm(x, x.shape[-1:]) * scale + shift
            x = self.activation(x)
        if last_weight.shape[-1] == 1:  # a batched product with one column takes four times as long on a CPU
            return (x * last_weight.transpose(1, 2)).sum(-1, keepdim=True) + last_bias
        return torch.baddbmm(last_bias, x, last_weight)

    def _batch_normed(self, inputs: Tensor, layers: list[tuple[Any, Any]]) -> Tensor:
        # One network after the other: wide ones gain nothing from batched products, which torch's kernel of batch
        # normalization would take apart and put together again, a seventh of a gradient step's time.
        parts = [(weights.unbind(), None if biases is None else biases.unbind()) for weights, biases in layers]
        outputs = []
        for index, (x, norms) in enumerate(zip(inputs.unbind(), self.batch_norms, strict=False)):
            x = norms[0](x)
            for number, (weights, biases) in enumerate(parts):
                x = x @ weights[index] if biases is None else torch.addmm(biases[index], x, weights[index])
                if number == len(parts) - 1:
                    break
                if self.dropout:
                    x = F.dropout(x, self.dropout, self.training)
                if self.scaled:
                    scale, shift = self.norms[number][:, index]
                    x = F.layer_norm(x, x.shape[-1:]) * scale + shift
                x = norms[number + 1](x) if self.batch_norm == "before" else x
                x = self.activation(x)
                x = norms[number + 1](x) if self.batch_norm == "after" else x
            outputs.append(x)
        return torch.stack(outputs)


def form_of_actions(space: Space[Any]) -> dict[str, int]:
    """The keywords `action_size` and `outputs` of a `CriticEnsemble` for actions of a Box, or Discrete ones."""
    if isinstance(space, spaces.Discrete):
        return {"action_size": 0, "outputs": int(space.n)}
    return {"action_size": math.prod(space.shape or ()), "outputs": 1}


class CriticEnsemble(FastAttributes):
    """K Q-functions of observations and actions.

    A flat observation goes straight into the MLPs; an image, a Dict with images, a custom model or a model with memory
    goes through one encoder that all of them share.

    Args:
        obs_space, action_space: the spaces of a single environment.
        config: model config, like the policy's; `fcnet_hiddens` are the MLPs' hidden layers.
        count: number K of critics.
        action_size: width A of the actions; 0: the critic returns the Q-values of all discrete actions.
        outputs: number of outputs per state and action.
        dropout: see `ParallelMLP`.
    """

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        config: Mapping[str, Any] | None,
        *,
        count: int = 2,
        action_size: int = 0,
        outputs: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        config = model_config(config)
        self.encoder: Model | None = None
        if config["custom_model"] is not None or memory_kind(config) or images_in(obs_space, config):
            # A custom model has its own layers; the MLPs behind it are normalized all the same.
            of_encoder = config if config["custom_model"] is None else {**config, "batch_norm": None}
            self.encoder = ModelCatalog.get_model(obs_space, action_space, 0, of_encoder)
            size = self.encoder.num_outputs
        else:
            size = ModelCatalog.get_preprocessor(obs_space, config).size
        self.outputs, self.action_size = outputs, action_size
        size, hiddens, activation = size + action_size, config["fcnet_hiddens"], config["fcnet_activation"]
        if config["fcnet_residual"]:
            if dropout:
                raise ConfigError(
                    f"policy.critic_dropout={dropout}; critics of model.fcnet_residual=true have none: set it to 0",
                    key="policy.critic_dropout",
                    value=dropout,
                )
            self.networks: Any = ResidualMLPs([ResidualMLP(size, hiddens, activation, outputs) for _ in range(count)])
            return
        self.networks = ParallelMLP(
            count,
            size,
            hiddens,
            outputs,
            activation=activation,
            initializer=config["fcnet_weights_initializer"],
            layer_norm=config["layer_norm"],
            batch_norm=config["batch_norm"],
            dropout=dropout,
        )

    def forward(self, input_dict: Mapping[str, Any], actions: Tensor | None = None, count: int | None = None) -> Tensor:
        """Q-values `[K, N]`, or `[K, N, outputs]` with several `outputs`.

        Args:
            input_dict: a model's input; with memory only "features" `[N, F]`, what the encoder returns for sequences.
            actions: `[N, A]`, in the policy's space; or `[K, N, A]`, those that each critic judges.
            count: number of critics to compute, the first ones; `None`: all K.
        """
        features = self.features(input_dict)
        if actions is not None:
            same = features if actions.dim() == 2 else features.expand(len(actions), *features.shape)
            features = torch.cat([same, actions], dim=-1)
        values = self.networks(features, count)
        return values if self.outputs > 1 else values.squeeze(-1)

    def features(self, input_dict: Mapping[str, Any]) -> Tensor:
        """What the networks read beside actions, `[N, F]`; `{"features": …}` of it computes nothing again."""
        if "features" in input_dict:
            return input_dict["features"]
        return input_dict["obs_flat"] if self.encoder is None else self.encoder(input_dict, (), None)[0]

    def action_values(self, input_dict: Mapping[str, Any], actions: Any) -> Tensor:
        """Q(s, a) of one action for each row, as `forward`: vectors `[N, *]`, or indices of discrete actions `[N]`."""
        if self.action_size:
            return self(input_dict, actions.reshape(len(actions), -1))
        every = self(input_dict)  # [K, N, A]
        return every.gather(2, actions.expand(len(every), -1).unsqueeze(2)).squeeze(2)

    @torch.no_grad()
    def state_values(self, input_dict: dict[str, Any], dist: Any, policy_space: Any) -> Tensor:
        """V(s) = E[minₖ Qₖ(s, a)], `[N]`: exact for a distribution over discrete actions, else for one sampled action.

        Args:
            input_dict: see `forward`; "is_training" becomes this network's mode.
            dist: the action distribution of each row.
            policy_space: the space of the actions; those of a Box are clipped to its bounds.
        """
        input_dict["is_training"] = self.training
        if not self.action_size:
            return (dist.log_probs().exp() * self(input_dict).amin(0)).sum(-1)
        low, high = (
            torch.as_tensor(bound, device=dist.inputs.device) for bound in (policy_space.low, policy_space.high)
        )
        return self.action_values(input_dict, dist.sample().clamp(low, high)).amin(0)
