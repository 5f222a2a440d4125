"""Models with memory: the interface for custom ones, and an LSTM or GRU behind any other model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn

from lightning_rl.models.action_encoding import ActionEncoding
from lightning_rl.models.layers import ActionHead, ValueHead
from lightning_rl.models.model import Model
from lightning_rl.models.model_wrapper import ModelWrapper
from lightning_rl.spaces import leaf_spaces, leaf_values

__all__ = ["PreviousSteps", "RecurrentModel", "RecurrentNetwork", "Wrapper"]


class RecurrentModel(Model):
    """A model that reads sequences: a subclass defines `forward_rnn`, `get_initial_state` and `value_function`.

    Attributes:
        time_major: whether `forward_rnn` gets `[L, S, F]` instead of `[S, L, F]` (config key `_time_major`).
    """

    time_major: bool = False

    def forward_rnn(
        self, inputs: Tensor, state: Sequence[Tensor], seq_lens: Tensor | None
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Outputs `[S, L, num_outputs]` and the state after the last step, `[S, …]` each.

        Args:
            inputs: `[S, L, F]`, S sequences of L steps; as `features` computes them from the observations.
            state: before the first step, `[S, …]` each.
            seq_lens: int64 `[S]`, true lengths: steps behind them are zeros, whose outputs are ignored. `None`: one
                step of acting, L is 1.
        """
        raise NotImplementedError  # abstract

    def features(self, input_dict: Mapping[str, Any]) -> Tensor:
        """Inputs of `forward_rnn` for each row, `[N, F]`: the flat observation, unless a subclass overrides this."""
        return input_dict["obs_flat"]

    def forward(
        self, input_dict: Mapping[str, Any], state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[S · L, num_outputs]`, one sequence after the other, and the state after the last step."""
        rows = self.features(input_dict)
        inputs = rows.unflatten(0, (rows.shape[0] if seq_lens is None else len(seq_lens), -1))
        if seq_lens is not None:
            behind = torch.arange(inputs.shape[1], device=rows.device) >= seq_lens.unsqueeze(1)
            inputs = inputs.masked_fill(behind.unsqueeze(2), 0.0)
        outputs, state = self.forward_rnn(inputs.transpose(0, 1) if self.time_major else inputs, state, seq_lens)
        return (outputs.transpose(0, 1) if self.time_major else outputs).flatten(0, 1), list(state)


class PreviousSteps(nn.Module):
    """Previous actions and rewards as one vector per row: `[N, size]`.

    Actions are encoded by `ActionEncoding`.

    Args:
        action_space: space of the environment's actions; a policy's actions count from 0.
        actions, rewards: number of previous actions and rewards.
    """

    def __init__(self, action_space: Space[Any], actions: int, rewards: int) -> None:
        super().__init__()
        self.action_space, self.actions, self.rewards = action_space, actions, rewards
        self.encodings = [ActionEncoding(leaf) for _, leaf in leaf_spaces(action_space)]
        self.size = actions * sum(encoding.size for encoding in self.encodings) + rewards
        """Width of the output."""

    def forward(self, input_dict: Mapping[str, Any]) -> list[Tensor]:
        """The parts, each `[N, …]`, to concatenate with the features."""
        parts: list[Tensor] = []
        if self.actions:
            leaves = leaf_values(self.action_space, input_dict["prev_actions"])
            parts += [encoding(leaf, self.actions) for leaf, encoding in zip(leaves, self.encodings, strict=True)]
        if self.rewards:
            rewards = input_dict["prev_rewards"]
            parts.append(rewards.reshape(rewards.shape[0], self.rewards).to(torch.float32))
        return parts


class Wrapper(ModelWrapper, RecurrentModel):
    """Base of models with memory behind another model: its outputs are the features, heads follow the memory.

    Args:
        wrapped: the inner model, of any kind; its custom loss, metrics, and attributes count as this model's.
        num_outputs: width of the outputs for the action distribution; 0 makes a feature extractor that returns the
            output of `forward_rnn`.
        size: width of the output of `forward_rnn`.
        previous: previous actions and rewards to read in addition to the features.
        initializer: initializer of the heads, see `initialize`.
        free_columns, free_init: see `ActionHead`.
    """

    values_are_cheap = True

    def __init__(
        self,
        wrapped: Model,
        num_outputs: int,
        size: int,
        previous: PreviousSteps,
        initializer: str = "orthogonal",
        free_columns: Sequence[int] = (),
        free_init: float = 0.0,
    ) -> None:
        super().__init__(wrapped, num_outputs)
        self.previous = previous
        self.prev_actions, self.prev_rewards = previous.actions, previous.rewards
        self.head = ActionHead(size, num_outputs, initializer, free_columns, free_init) if num_outputs else None
        self.value_head = ValueHead(size, initializer) if num_outputs else None
        self.num_outputs = num_outputs or size

    def features(self, input_dict: Mapping[str, Any]) -> Tensor:
        """The wrapped model's outputs, concatenated with previous actions and rewards."""
        outputs, _ = self.wrapped(input_dict, (), None)
        return torch.cat([outputs, *self.previous(input_dict)], dim=1) if self.previous.size else outputs

    def forward(
        self, input_dict: Mapping[str, Any], state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[S · L, num_outputs]`, and the state after the last step."""
        self._last.features, state = super().forward(input_dict, state, seq_lens)
        return (self._last.features if self.head is None else self.head(self._last.features)), state

    def value_function(self) -> Tensor:
        """Values `[S · L]` of the last forward."""
        if self.value_head is None:
            return super().value_function()  # an error: a feature extractor has no values
        return self.value_head(self._last.get())


class RecurrentNetwork(Wrapper):
    """An LSTM (Hochreiter & Schmidhuber 1997) or GRU (Cho et al. 2014) behind another model.

    Args:
        wrapped, num_outputs, previous: see `Wrapper`.
        cell: "lstm" or "gru".
        cell_size: width of the cell's state.
        time_major: run it on `[L, S, F]`.
        initializer: initializer of the heads; "orthogonal" also makes the recurrent weights orthogonal and their biases
            zero.
        free: free_columns and free_init of `Wrapper`.
    """

    def __init__(
        self,
        wrapped: Model,
        num_outputs: int,
        previous: PreviousSteps,
        *,
        cell: str = "lstm",
        cell_size: int = 256,
        time_major: bool = False,
        initializer: str = "orthogonal",
        **free: Any,
    ) -> None:
        super().__init__(wrapped, num_outputs, cell_size, previous, initializer, **free)
        self.time_major = time_major
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.rnn = kind(wrapped.num_outputs + previous.size, cell_size, batch_first=not time_major)
        self.parts = 2 if cell == "lstm" else 1
        if initializer == "orthogonal":
            for name, parameter in self.rnn.named_parameters():
                nn.init.zeros_(parameter) if "bias" in name else nn.init.orthogonal_(parameter)

    def get_initial_state(self) -> list[Tensor]:
        """Zeros `[cell_size]`: hidden and cell state of an LSTM, hidden state of a GRU."""
        return [torch.zeros(self.rnn.hidden_size) for _ in range(self.parts)]

    def forward_rnn(
        self, inputs: Tensor, state: Sequence[Tensor], seq_lens: Tensor | None
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Hidden states of all steps, and the state after the last."""
        before = [part.unsqueeze(0).contiguous() for part in state]
        hidden, after = self.rnn(inputs, tuple(before) if self.parts == 2 else before[0])
        return hidden, [part.squeeze(0) for part in (after if self.parts == 2 else (after,))]
