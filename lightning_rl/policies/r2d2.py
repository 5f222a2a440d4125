"""DQN for models with memory, on replayed sequences."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import gymnasium as gym
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.losses.value import huber, value_rescale, value_rescale_inverse
from lightning_rl.models.q_model import QModel
from lightning_rl.policies.dqn import DQN
from lightning_rl.policies.replayed_sequences import run_burn_in, sequence_loss, trains_after_burn_in
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Positive, Probability

__all__ = ["R2D2"]

ADAM = MappingProxyType({"eps": 1e-3})


class R2D2(DQN):
    """Recurrent DQN on sequences with stored states and burn-in.

    Kapturowski et al. 2019, openreview.net/forum?id=r1lyTjAqYX. The first `data.burn_in` rows of a sequence only
    compute the model's state: they are not in the loss, and no gradient flows into them. The target network runs over
    the next observations of the whole sequence, from the stored state.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be Discrete.
        dueling: see `DQN`.
        rescale: learn h(Q) with h(x) = sign(x)(√(|x| + 1) − 1) + εx, so that large returns do not require clipped
            rewards.
        rescale_epsilon: ε of h.
        priority_eta: η of a sequence's priority η max |δ| + (1 − η) mean |δ|, in [0, 1].
        optimizer_kwargs: see `Policy`; the default is the paper's ε of Adam.
        keywords: see `DQN`; without distributions of returns.

    Raises:
        UnsupportedSpaceError: the actions are not Discrete.
        ConfigError: a number is out of range, or `num_atoms` or `num_quantiles` is above 1.
    """

    data = "sequences"
    supports_recurrent = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        dueling: bool = True,
        rescale: bool = True,
        rescale_epsilon: Positive = 1e-3,
        priority_eta: Probability = 0.9,
        optimizer_kwargs: Mapping[str, Any] | None = ADAM,
        **keywords: Any,
    ) -> None:
        self.rescale, self.rescale_epsilon, self.priority_eta = rescale, rescale_epsilon, priority_eta
        super().__init__(
            observation_space, action_space, dueling=dueling, optimizer_kwargs=optimizer_kwargs, **keywords
        )
        if self.distributional:
            raise ConfigError(
                f"policy.num_atoms={self.num_atoms}, policy.num_quantiles={self.num_quantiles}: R2D2 learns means; set "
                "both to 1, or use dqn"
            )

    def q_values(self, model: QModel, batch: SampleBatch) -> tuple[Tensor, Tensor]:
        """Q-values of all rows; the state after the burn-in rows carries no gradient."""
        if not trains_after_burn_in(batch):
            return super().q_values(model, batch)
        (values, trained), kept = run_burn_in(self, model, batch), ~batch["burn_in"]
        returns = values.clone()
        values[kept], returns[kept] = super().q_values(model, trained)
        return values, returns

    def bootstrap_values(self, batch: SampleBatch) -> Tensor:
        """h⁻¹ of the target network's value after the last reward that each row sums, `[N]`."""
        following = super().bootstrap_values(batch)
        if "bootstrap_rows" in batch:
            following = following[batch["bootstrap_rows"]]
        return value_rescale_inverse(following, self.rescale_epsilon) if self.rescale else following

    def targets(self, batch: SampleBatch) -> Tensor:
        """The rescaled target h(y), `[N]`."""
        targets = super().targets(batch)
        return value_rescale(targets, self.rescale_epsilon) if self.rescale else targets

    def td_loss(self, td_errors: Tensor, batch: SampleBatch) -> tuple[Tensor, Tensor]:
        """The mean loss of the trained rows, weighted by sequence; priorities η max |δ| + (1 − η) mean |δ| `[S]`."""
        if "seq_lens" not in batch:
            return super().td_loss(td_errors, batch)
        errors = huber(td_errors, self.huber_delta)
        return sequence_loss(errors, td_errors.detach(), batch, self.priority_eta)
