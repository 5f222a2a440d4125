"""Distributions over integers: all are categoricals over the last dimension of their logits, so one mask serves all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor

from lightning_rl.models.distributions.base import ActionDistribution, DistFactory, sampled
from lightning_rl.spaces import choices_of

__all__ = ["Bernoulli", "Categorical", "MultiCategorical"]


class Categorical(ActionDistribution):
    """One of n actions, by logits.

    Masked logits become the smallest finite number: such actions have probability exactly 0 and add exactly 0 to
        entropy and KL, without
    the NaN that −∞ brings into 0 · log 0.
    """

    maskable = True

    def __init__(self, inputs: Tensor, model: Any = None, mask: Tensor | None = None) -> None:
        super().__init__(inputs, model, mask)
        logits = self._arranged(inputs, None)
        self.logits = (
            logits if mask is None else logits.masked_fill(~self._arranged(mask, False), torch.finfo(logits.dtype).min)
        )
        self._log_probs: Tensor | None = None
        self._last: Tensor | None = None

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Mapping[str, Any] | None = None) -> int:
        """The number of actions (of all components together)."""
        return int(choices_of(action_space).sum())

    def _arranged(self, values: Tensor, missing: Any) -> Tensor:
        """Logits or mask `[N, K]` with the alternatives of a choice in the last dimension."""
        return values

    def log_probs(self) -> Tensor:
        """Log π of every action, `[N, n]`; computed once."""
        if self._log_probs is None:
            self._log_probs = self.logits.log_softmax(-1)
        return self._log_probs

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions `[N]`, int64."""
        # Exponential race: with E ~ Exp(1), p / E is largest at action a with probability p(a). Half the time of
        # torch.multinomial.
        probs = self.log_probs().detach().exp()
        self._last = probs.div_(torch.empty_like(probs).exponential_(generator=generator)).argmax(-1)
        return self._last

    def deterministic_sample(self) -> Tensor:
        """The likeliest actions `[N]`, int64."""
        self._last = self.logits.argmax(-1)
        return self._last

    def logp(self, actions: Tensor) -> Tensor:
        """Log π(a|s), `[N]`, of integers `[N]`."""
        return self.log_probs().gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def sampled_action_logp(self) -> Tensor:
        """Log π of the last sample, `[N]`."""
        return self.logp(sampled(self._last))

    def entropy(self) -> Tensor:
        """−Σ p log p, `[N]`."""
        log_probs = self.log_probs()
        return -(log_probs.exp() * log_probs).sum(-1)

    def kl(self, other: Categorical) -> Tensor:
        """Σ p (log p − log q), `[N]`; huge where `other` masks what `self` allows."""
        log_probs = self.log_probs()
        return (log_probs.exp() * (log_probs - other.log_probs())).sum(-1)


class MultiCategorical(Categorical):
    """Independent categoricals, one per entry of a MultiDiscrete or an integer Box, computed together as `[N, A, n]`.

    Args:
        inputs, model, mask: as `ActionDistribution`.
        choices: number of values of each entry.
        shape: of one action.
    """

    def __init__(
        self,
        inputs: Tensor,
        model: Any = None,
        mask: Tensor | None = None,
        *,
        choices: Sequence[int],
        shape: Sequence[int] | None = None,
    ) -> None:
        self.choices = tuple(choices)
        self.shape = (len(self.choices),) if shape is None else tuple(shape)
        super().__init__(inputs, model, mask)

    @classmethod
    def for_space(cls, action_space: Space[Any]) -> DistFactory:
        """With the numbers of choices of that space."""
        return partial(cls, choices=tuple(choices_of(action_space).tolist()), shape=action_space.shape)

    def _arranged(self, values: Tensor, missing: Any) -> Tensor:
        rows, entries, width = len(values), len(self.choices), max(self.choices)
        if min(self.choices) != width:
            # A choice that an entry does not have is a masked one.
            fill = torch.finfo(values.dtype).min if missing is None else missing
            columns = _columns(self.choices, values.device)
            values = values.new_full((rows, entries * width), fill).index_copy(1, columns, values)
        return values.view(rows, entries, width)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions `[N, *shape]`, counted from 0."""
        actions = super().sample(generator)
        return actions.view(len(actions), *self.shape)

    def deterministic_sample(self) -> Tensor:
        """The likeliest actions `[N, *shape]`."""
        actions = super().deterministic_sample()
        return actions.view(len(actions), *self.shape)

    def logp(self, actions: Tensor) -> Tensor:
        """Log π(a|s), `[N]`, of integers `[N, *shape]`."""
        return super().logp(actions.reshape(len(actions), len(self.choices))).sum(1)

    def entropy(self) -> Tensor:
        """Sum over the entries, `[N]`."""
        return super().entropy().sum(1)

    def kl(self, other: Categorical) -> Tensor:
        """Sum over the entries, `[N]`."""
        return super().kl(other).sum(1)


class Bernoulli(MultiCategorical):
    """Independent bits of a MultiBinary, one logit of "1" each; a mask allows 0 and 1 for each bit, `[N, 2·A]`."""

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Mapping[str, Any] | None = None) -> int:
        """One number per bit."""
        return len(choices_of(action_space))

    def _arranged(self, values: Tensor, missing: Any) -> Tensor:
        if missing is None:
            return torch.nn.functional.pad(values.unsqueeze(-1), (1, 0))  # the logit of "0" is 0
        return values.view(len(values), len(self.choices), 2)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Bits `[N, *shape]`, int8."""
        return super().sample(generator).to(torch.int8)

    def deterministic_sample(self) -> Tensor:
        """The likelier bits `[N, *shape]`, int8."""
        return super().deterministic_sample().to(torch.int8)


@lru_cache(maxsize=64)
def _columns(choices: tuple[int, ...], device: torch.device) -> Tensor:
    """Where each of the concatenated logits goes when every entry gets `max(choices)` columns."""
    width = max(choices)
    with torch.inference_mode(False):  # made during evaluation, it could not be used in training
        return torch.tensor(
            [entry * width + choice for entry, count in enumerate(choices) for choice in range(count)], device=device
        )
