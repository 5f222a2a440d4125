"""Actions of several parts, each sampled given the parts before it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import torch
from gymnasium import Space
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.models.distributions.base import ActionDistribution, DistFactory, require_sample, split_mask
from lightning_rl.models.distributions.chain import AutoregressiveHeads, Chain

if TYPE_CHECKING:
    from lightning_rl.models.model import Model

__all__ = ["AutoregressiveDistribution"]


class AutoregressiveDistribution(ActionDistribution):
    """P(a₁|s) P(a₂|a₁, s) … over the parts of a Dict, Tuple, MultiDiscrete or MultiBinary action.

    The model's outputs are a context, from which its `action_model` computes the parameters of every part:
    `model.action_model(context [N, K], chosen [N, E]) -> [N, sum of the parts' inputs]` (or a list with one tensor per
    part). `chosen` holds the encodings of the parts, zeros for those not chosen yet; the parameters of a part may
    depend only on the parts before it, which is tested once when training starts. A model without an `action_model`
    gets `AutoregressiveHeads`, so the distribution works with built-in models as well. For N parts, sampling takes N
    passes through `action_model`, scoring takes one.

    Logp is exact. `entropy` and `kl` are unbiased estimates, and so are their gradients: sums over the parts, where
    each term is exact given the parts before it, and those are sampled (again in every call; without a generator from
    torch's global one, which `Policy` seeds in each iteration). `deterministic_sample` takes the best value of each
    part given the best ones before it, which need not be the best action overall. `kl` compares contexts and action
    models; against a distribution rebuilt from a recorded context with current weights, it counts only the change of
    context.

    Args:
        inputs: `[N, K]`, contexts.
        model: model with an `action_model`.
        mask: see `ActionDistribution`, of the discrete parts in order. A mask that depends on the parts before belongs
            into the `action_model`: logits of −∞.
        chain: the chain of the action space.
    """

    maskable = True
    _last: list[Tensor] | None = None
    _last_logp: Tensor | None = None

    def __init__(self, inputs: Tensor, model: Any = None, mask: Tensor | None = None, *, chain: Chain) -> None:
        super().__init__(inputs, model, mask)
        self.chain = chain
        self._masks = split_mask(mask, inputs.shape[0], chain.masks)

    @staticmethod
    def required_model_output_shape(action_space: Space[Any], model_config: Mapping[str, Any] | None = None) -> int:
        """Width of the context: the last entry of `fcnet_hiddens`, or 64 if there is none."""
        hiddens = (model_config or {}).get("fcnet_hiddens") or [64]
        return int(hiddens[-1])

    @classmethod
    def for_space(cls, action_space: Space[Any]) -> DistFactory:
        """A factory with the parts of that space."""
        return partial(cls, chain=Chain(action_space))

    @classmethod
    def check_space(cls, action_space: Space[Any]) -> None:
        """Refuse spaces of a single part."""
        Chain(action_space)

    @classmethod
    def prepare_model(cls, model: Model) -> None:
        """Give the model an `action_model`, or test the one that it has.

        Raises:
            ConfigError: `action_model` returns another shape, or a part depends on itself or on a later part.
        """
        if not hasattr(model, "action_model"):
            model.action_model = AutoregressiveHeads(model.action_space, model.num_outputs)
        _try_action_model(model, Chain(model.action_space))

    # -- sampling -----------------------------------------------------------------------------------------------------
    def sample(self, generator: torch.Generator | None = None) -> Any:
        """Actions in the policy's space."""
        return self._choose(lambda child: child.sample(generator))

    def deterministic_sample(self) -> Any:
        """The likeliest value of each part, given the likeliest ones before it."""
        return self._choose(lambda child: child.deterministic_sample())

    @torch.no_grad()
    def _choose(self, choice: Any) -> Any:
        chain = self.chain
        chosen = self.inputs.new_zeros(self.inputs.shape[0], sum(chain.widths))
        slots = chosen.split(chain.widths, dim=1)
        self._last, logps = [], []
        for part, (slot, encoding) in enumerate(zip(slots, chain.encodings, strict=True)):
            child = self._child(part, chain.parameters(self.model, self.inputs, chosen)[part])
            actions = choice(child)
            slot.copy_(encoding(actions))
            self._last.append(actions)
            logps.append(child.sampled_action_logp())
        self._last_logp = reduce(add, logps)
        return chain.join(self._last)

    def _child(self, part: int, parameters: Tensor) -> ActionDistribution:
        return self.chain.parts[part].factory(parameters, self.model, self._masks[part])

    def _conditionals(self, actions: Sequence[Tensor]) -> list[ActionDistribution]:
        """The distribution of every part, given the parts before it in `actions`, in one pass."""
        encoded = [encoding(taken) for encoding, taken in zip(self.chain.encodings, actions, strict=True)]
        parameters = self.chain.parameters(self.model, self.inputs, torch.cat(encoded, dim=1))
        return [self._child(part, own) for part, own in enumerate(parameters)]

    # -- scoring ------------------------------------------------------------------------------------------------------
    def logp(self, actions: Any) -> Tensor:
        """Log π(a|s), `[N]`: the sum over the parts, in one pass."""
        parts = self.chain.split(actions)
        return reduce(add, [child.logp(taken) for child, taken in zip(self._conditionals(parts), parts, strict=True)])

    def sampled_action_logp(self) -> Tensor:
        """Log π of the last sample, `[N]`."""
        if torch.is_grad_enabled() and self._last is not None:
            return self.logp(self.chain.join(self._last))
        return require_sample(self._last_logp)

    def entropy(self, generator: torch.Generator | None = None) -> Tensor:
        """Σ H(aᵢ | a₁ … aᵢ₋₁) of sampled actions, `[N]`: unbiased."""
        parts = self._fresh(generator)
        children = self._conditionals(parts)
        return reduce(add, _score_function_terms(children, parts, [child.entropy() for child in children]))

    def kl(self, other: AutoregressiveDistribution, generator: torch.Generator | None = None) -> Tensor:
        """Σ KL(aᵢ | a₁ … aᵢ₋₁) of actions sampled from this one, `[N]`: unbiased."""
        parts = self._fresh(generator)
        children = self._conditionals(parts)
        kls = [child.kl(theirs) for child, theirs in zip(children, other._conditionals(parts), strict=True)]
        return reduce(add, _score_function_terms(children, parts, kls))

    def _fresh(self, generator: torch.Generator | None) -> list[Tensor]:
        return self.chain.split(copy.copy(self).sample(generator))  # of a copy, for the last sample stays the same


def _score_function_terms(
    children: Sequence[ActionDistribution], parts: Sequence[Tensor], terms: Sequence[Tensor]
) -> Iterator[Tensor]:
    """The terms, plus a zero with the gradient through the sampling of earlier parts (score function)."""
    yield terms[0]
    before = torch.zeros_like(terms[0])  # log P of the parts before, `[N]`
    for child, taken, term in zip(children[:-1], parts[:-1], terms[1:], strict=True):
        before = before + child.logp(taken)
        yield term + term.detach() * (before - before.detach())


@torch.no_grad()
def _try_action_model(model: Any, chain: Chain) -> None:
    """Change each part, and check that neither its own parameters nor those of earlier parts change."""
    training = model.training
    model.eval()
    context, chosen = torch.ones(2, model.num_outputs), torch.zeros(2, sum(chain.widths))
    first = chain.parameters(model, context, chosen)
    for part, slot in enumerate(chosen.split(chain.widths, dim=1)):
        slot.fill_(1.0)
        again = chain.parameters(model, context, chosen)
        for earlier in range(part + 1):
            if not torch.allclose(first[earlier], again[earlier]):
                raise ConfigError(
                    f"{type(model).__name__}.action_model: the parameters of part {earlier} depend on the action of "
                    f"part {part}; they may depend on the parts before part {earlier} only"
                )
        slot.zero_()
    model.train(training)
