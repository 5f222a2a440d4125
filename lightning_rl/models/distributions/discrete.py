"""Distributions over integers; all are categoricals over the last dimension of logits and handle masks in one way."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from gymnasium import Space, spaces
from torch import Tensor

from lightning_rl.models.distributions.base import ActionDistribution, DistFactory, fitting_mask, require_sample
from lightning_rl.spaces import choices_of

__all__ = ["Bernoulli", "Categorical", "GumbelSoftmax", "MultiCategorical"]

IMPOSSIBLE = -1e30  # a lower logit means probability 0: −∞, or a sum with the smallest number


class Categorical(ActionDistribution):
    """A choice among n actions, with probabilities softmax(logits).

    Masked logits become the smallest finite number: such actions have probability exactly 0, and logp, entropy, KL and
    gradients equal those of a distribution without them. Logits of −∞ from a model have the same effect.

    Args:
        inputs, model, mask: see `ActionDistribution`.
        temperature: divisor > 0 of the logits: above 1 closer to uniform, below 1 closer to greedy.

    Raises:
        ValueError: the mask does not have one bool for each alternative.
    """

    maskable = True
    _log_probs: Tensor | None = None
    _last: Tensor | None = None  # what was sampled last, in the form of the logits

    def __init__(
        self, inputs: Tensor, model: Any = None, mask: Tensor | None = None, *, temperature: float = 1.0
    ) -> None:
        super().__init__(inputs, model, mask)
        logits = self._arrange(inputs if temperature == 1.0 else inputs / temperature)
        if mask is not None:
            allowed = self._arrange(fitting_mask(mask, inputs.shape[0], inputs.shape[1]))
            allowed = allowed | ~allowed.any(-1, keepdim=True)  # a mask that allows nothing is ignored
            logits = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
        self.logits = logits

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Mapping[str, Any] | None = None) -> int:
        """The number of actions (of all components together)."""
        return int(choices_of(action_space).sum())

    @classmethod
    def serves(cls, leaf: Space[Any]) -> bool:
        """True for Discrete spaces."""
        return isinstance(leaf, spaces.Discrete)

    def _arrange(self, values: Tensor) -> Tensor:
        """Reshape logits or mask `[N, K]` so that the alternatives of a choice are the last dimension."""
        return values

    def _actions(self, chosen: Tensor) -> Tensor:
        """The indices of chosen alternatives, `[N]` or `[N, A]`, as actions."""
        return chosen

    def log_probs(self) -> Tensor:
        """Log π of every action, `[N, n]`; computed once."""
        if self._log_probs is None:
            self._log_probs = self.logits.log_softmax(-1)
        return self._log_probs

    @property
    def restricted(self) -> bool:
        """Whether a mask or the model forbids some of the actions."""
        return self.mask is not None or self.logits.min().item() < IMPOSSIBLE

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Actions `[N, *shape]`, integers from 0."""
        # Exponential race: with E ~ Exp(1), p / E is largest at action a with probability p(a). Half the time of
        # torch.multinomial.
        probs = self.log_probs().detach().exp()
        self._last = probs.div_(torch.empty_like(probs).exponential_(generator=generator)).argmax(-1)
        return self._actions(self._last)

    def uniform_sample(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor] | None:
        """Uniform over the actions that neither a mask nor the model forbids; `None` if all are allowed."""
        if not self.restricted:
            return None
        possible = self.logits > IMPOSSIBLE
        uniform = copy.copy(self)
        uniform.logits = torch.zeros_like(self.logits).masked_fill(~possible, torch.finfo(self.logits.dtype).min)
        uniform._log_probs = None
        return uniform.sample(generator), uniform.sampled_action_logp()

    def deterministic_sample(self) -> Tensor:
        """The likeliest actions `[N, *shape]`."""
        self._last = self.logits.argmax(-1)
        return self._actions(self._last)

    def logp(self, actions: Tensor) -> Tensor:
        """Log π(a|s), `[N]`, of integers `[N]`."""
        return self.log_probs().gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def sampled_action_logp(self) -> Tensor:
        """Log π of the last sample, `[N]`."""
        return self.logp(require_sample(self._last))

    def entropy(self) -> Tensor:
        """−Σ p log p, `[N]`."""
        log_probs = self._finite_log_probs()
        return -(log_probs.exp() * log_probs).sum(-1)

    def kl(self, other: Categorical) -> Tensor:
        """Σ p (log p − log q), `[N]`; very large if `other` masks an action that `self` allows."""
        log_probs = self._finite_log_probs()
        return (log_probs.exp() * (log_probs - other._finite_log_probs())).sum(-1)

    def _finite_log_probs(self) -> Tensor:
        """`log_probs` with 0 · log 0 = 0 instead of NaN where a logit is −∞."""
        return self.log_probs().clamp_min(torch.finfo(self.logits.dtype).min)


class MultiCategorical(Categorical):
    """Independent categoricals, one per entry of a MultiDiscrete or an integer Box, computed together as `[N, A, n]`.

    Args:
        inputs, model, mask: see `ActionDistribution`.
        choices: number of values of each entry.
        shape: shape of an action.
        temperature: see `Categorical`.
    """

    def __init__(
        self,
        inputs: Tensor,
        model: Any = None,
        mask: Tensor | None = None,
        *,
        choices: Sequence[int],
        shape: Sequence[int] | None = None,
        temperature: float = 1.0,
    ) -> None:
        self.choices = tuple(choices)
        self.shape = (len(self.choices),) if shape is None else tuple(shape)
        super().__init__(inputs, model, mask, temperature=temperature)

    @classmethod
    def for_space(cls, action_space: Space[Any]) -> DistFactory:
        """A factory with the numbers of choices of that space."""
        return partial(cls, choices=tuple(choices_of(action_space).tolist()), shape=action_space.shape)

    @classmethod
    def serves(cls, leaf: Space[Any]) -> bool:
        """True for MultiDiscrete and integer Boxes."""
        return isinstance(leaf, spaces.MultiDiscrete) or (isinstance(leaf, spaces.Box) and leaf.dtype.kind != "f")

    def _arrange(self, values: Tensor) -> Tensor:
        rows, entries, width = values.shape[0], len(self.choices), max(self.choices)
        if min(self.choices) != width:
            # Padded choices are masked.
            fill = False if values.dtype == torch.bool else torch.finfo(values.dtype).min
            columns = _columns(self.choices, values.device)
            values = values.new_full((rows, entries * width), fill).index_copy(1, columns, values)
        return values.view(rows, entries, width)

    def _actions(self, chosen: Tensor) -> Tensor:
        return chosen.view(chosen.shape[0], *self.shape)

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

    def __init__(self, inputs: Tensor, model: Any = None, mask: Tensor | None = None, **form: Any) -> None:
        of_both = F.pad(inputs.unsqueeze(-1), (1, 0)).flatten(1)  # the logit of "0" is 0
        super().__init__(of_both, model, mask, **form)
        self.inputs = inputs

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Mapping[str, Any] | None = None) -> int:
        """One number per bit."""
        return len(choices_of(action_space))

    @classmethod
    def serves(cls, leaf: Space[Any]) -> bool:
        """True for MultiBinary spaces."""
        return isinstance(leaf, spaces.MultiBinary)

    def _actions(self, chosen: Tensor) -> Tensor:
        return super()._actions(chosen).to(torch.int8)


class GumbelSoftmax(Categorical):
    """A categorical distribution with differentiable samples.

    Jang et al. 2017, arXiv:1611.01144; Maddison et al. 2017, arXiv:1611.00712.

    `sample` returns integers with the probabilities, entropy and KL of `Categorical`, so every algorithm can act with
    it; `rsample` returns one-hot vectors with the gradient of the relaxed sample softmax((log π + g) / τ), g ~ Gumbel.

    Attributes:
        relaxation: τ > 0: small values are closer to one-hot, large ones have less gradient noise.
        straight_through: whether the vectors are exactly one-hot (else relaxed, entries in (0, 1)).
    """

    relaxation: float = 1.0
    straight_through: ClassVar[bool] = True

    def rsample(self, generator: torch.Generator | None = None) -> Tensor:
        """One-hot (or relaxed) vectors `[N, n]`; masked actions are exactly 0."""
        log_probs = self.log_probs()
        gumbel = torch.empty_like(log_probs).exponential_(generator=generator).log_().neg_()
        relaxed = ((log_probs + gumbel) / self.relaxation).softmax(-1)
        self._last = relaxed.argmax(-1)
        if not self.straight_through:
            return relaxed
        one_hot = F.one_hot(self._last, relaxed.shape[-1])
        return one_hot + (relaxed - relaxed.detach())


@lru_cache(maxsize=64)
def _columns(choices: tuple[int, ...], device: torch.device) -> Tensor:
    """Column of each concatenated logit if every entry gets `max(choices)` columns."""
    width = max(choices)
    with torch.inference_mode(False):  # an inference tensor, created during evaluation, could not be used in training
        return torch.tensor(
            [entry * width + choice for entry, count in enumerate(choices) for choice in range(count)], device=device
        )
