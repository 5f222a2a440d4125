"""Q-networks for discrete actions: plain, dueling, distributional and noisy, as the DQN family uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from lightning_rl.fast_torch import lean_linear
from lightning_rl.losses.value import dueling_q_values
from lightning_rl.models.layers import ACTIVATIONS, MLP, initialize
from lightning_rl.models.model import Model
from lightning_rl.models.model_wrapper import ModelWrapper
from lightning_rl.models.noisy import NoisyLinear

__all__ = ["QModel", "QStream"]


class QStream(nn.Module):
    """Hidden layers and a linear layer: `[N, size]` → `[N, outputs]`.

    Args:
        size: width of the features.
        hiddens: widths of the hidden layers with ReLU.
        outputs: width of the output.
        sigma: σ₀ of noisy layers; `None`: layers without noise.
        initializer: see `initialize`.
    """

    def __init__(self, size: int, hiddens: Sequence[int], outputs: int, sigma: float | None, initializer: str) -> None:
        super().__init__()
        self.noisy = None
        if sigma is None:
            self.hidden = MLP(size, hiddens, "relu", initializer) if hiddens else None
            self.linear = nn.Linear(hiddens[-1] if hiddens else size, outputs)
            initialize(self.linear, initializer, 0.1)
        else:
            widths = [size, *hiddens, outputs]
            self.noisy = nn.ModuleList([NoisyLinear(*ends, sigma=sigma) for ends in pairwise(widths)])

    def forward(self, features: Tensor) -> Tensor:
        """`[N, size]` → `[N, outputs]`."""
        if self.noisy is None:
            return lean_linear(self.linear, features if self.hidden is None else self.hidden(features))
        *hidden, last = self.noisy
        for layer in hidden:
            features = ACTIVATIONS["relu"](layer(features))
        return last(features)


class QModel(ModelWrapper):
    """Q-values `[N, A]` from the features of another model; its custom loss, metrics and state are used.

    Args:
        wrapped: computes features; without a head (`hiddens=None`) its outputs are the Q-values.
        num_actions: number A of actions.
        hiddens: widths of the head's hidden layers; `None`: no head.
        dueling: use two heads, for the value V(s) and the advantage of each action (Wang et al. 2016,
            arXiv:1511.06581).
        atoms: number Z of outputs per action: logits over `support`, or quantiles without it; 1: the Q-value itself.
        support: `[Z]`, the return of each atom (C51).
        sigma: σ₀ of noisy heads; `None`: heads without noise.
        initializer: see `initialize`.
    """

    support: Tensor | None
    values_are_cheap = True

    def __init__(
        self,
        wrapped: Model,
        num_actions: int,
        *,
        hiddens: Sequence[int] | None = (),
        dueling: bool = False,
        atoms: int = 1,
        support: Tensor | None = None,
        sigma: float | None = None,
        initializer: str = "orthogonal",
    ) -> None:
        super().__init__(wrapped, num_actions)
        self.num_actions, self.atoms = num_actions, atoms
        self.advantages = self.state_value = None
        if hiddens is not None:
            size = wrapped.num_outputs
            self.advantages = QStream(size, hiddens, num_actions * atoms, sigma, initializer)
            self.state_value = QStream(size, hiddens, atoms, sigma, initializer) if dueling else None
        self.register_buffer("support", support, persistent=False)

    def forward(
        self, input_dict: Mapping[str, Any], state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Q-values `[N, A]`: the means, for distributions of returns."""
        values, state = self.wrapped(input_dict, state, seq_lens)
        if self.advantages is not None:
            values = self.advantages(values) if self.state_value is None else self._combine_streams(values)
        if self.atoms > 1:
            values = values.unflatten(1, (self.num_actions, self.atoms))
        self._last.features = values = values.float()  # float32 in any precision of the layers
        return self.expected_q_values(values), list(state)

    def _combine_streams(self, features: Tensor) -> Tensor:
        assert self.advantages is not None and self.state_value is not None
        better = self.advantages(features).unflatten(1, (self.num_actions, self.atoms))
        return dueling_q_values(self.state_value(features), better).flatten(1)

    def expected_q_values(self, values: Tensor) -> Tensor:
        """The Q-values `[N, A]` for values in the form of `head_outputs`."""
        if self.atoms == 1:
            return values
        return values.mean(-1) if self.support is None else values.softmax(-1) @ self.support

    @property
    def forbids_actions(self) -> bool:  # type: ignore[override]
        """Whether the wrapped model's outputs may forbid actions."""
        return self.wrapped.forbids_actions

    def head_outputs(self) -> Tensor:
        """Outputs of the last forward: logits or quantiles `[N, A, Z]`, or Q-values `[N, A]`."""
        return self._last.get()

    def value_function(self) -> Tensor:
        """maxₐ Q(s, a) `[N]` of the last forward."""
        return self.expected_q_values(self.head_outputs()).amax(1)
