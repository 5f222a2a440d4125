"""DQN for models with memory, on replayed sequences."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.losses.value import value_rescale, value_rescale_inverse
from lightning_rl.models.q_model import QModel
from lightning_rl.policies.dqn import DQN
from lightning_rl.ranges import Positive, Probability
from lightning_rl.sample_batch import SampleBatch, to_sequences

__all__ = ["R2D2"]

ADAM = MappingProxyType({"eps": 1e-3})


class R2D2(DQN):
    """Recurrent DQN on sequences with stored states and burn-in.

    Kapturowski et al. 2019, openreview.net/forum?id=r1lyTjAqYX. The first `data.burn_in` rows of a sequence only
    compute the model's state: they are not in the loss, and no gradient flows into them. The target network runs over
    the next observations of the whole sequence, from the stored state.

    Args:
        observation_space, action_space: of one environment; the actions are Discrete.
        dueling: as `DQN`.
        rescale: learn h(Q) with h(x) = sign(x)(√(|x| + 1) − 1) + εx, so that large returns need no clipped rewards.
        rescale_epsilon: ε.
        priority_eta: η of a sequence's priority η max |δ| + (1 − η) mean |δ|, in [0, 1].
        optimizer_kwargs: as `Policy`; the paper's ε of Adam.
        keywords: as `DQN`; without distributions of returns.

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

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """The fragment as rows in sequences, each with the model's inputs of the next step."""
        if not self.is_recurrent:
            return super().postprocess_trajectory(batch)
        batch = batch.copy()
        for name in ("obs", "prev_actions", "prev_rewards"):
            if name in batch:
                column = batch[name]
                batch[f"next_{name}"] = column[1:]
        batch["next_state_in"] = batch.state_in.map(lambda part: part[1:])
        rows = to_sequences(batch, self.max_seq_len)
        starts = rows.seq_lens.cumsum(0) - rows.seq_lens
        rows["next_state_in"] = rows["next_state_in"][starts]
        rows["discounts"] = torch.full_like(rows.rewards, self.gamma)
        return rows

    def q_values(self, model: QModel, batch: SampleBatch) -> tuple[Tensor, Tensor]:
        """Q-values of all rows; the state after the burn-in rows carries no gradient."""
        if "burn_in" not in batch or not torch.is_grad_enabled() or not bool(batch["burn_in"].any()):
            return super().q_values(model, batch)
        warming, lens = batch["burn_in"], batch.seq_lens
        counts = torch.zeros_like(lens).index_add(0, _sequence_index(lens), warming.to(lens.dtype))
        training = model.training
        model.eval()  # batch norm's statistics are those of the trained rows
        values, state = self._run_burn_in(model, batch, counts)
        model.train(training)
        returns = values.clone()
        trained = _select_rows(batch, ~warming, state, lens - counts)
        values[~warming], returns[~warming] = super().q_values(model, trained)
        return values, returns

    @torch.no_grad()
    def _run_burn_in(self, model: QModel, batch: SampleBatch, counts: Tensor) -> tuple[Tensor, SampleBatch]:
        """Q-values `[N, A]` of the burn-in rows, of which each sequence has `counts [S]`; the state after them."""
        warming, sequence = batch["burn_in"], _sequence_index(batch.seq_lens)
        values = torch.zeros(len(warming), model.num_actions, device=warming.device)
        state = batch.state_in.map(torch.clone)
        # Sequences of equal length together: only without padding the final state is the state after the last row.
        for count in counts[counts > 0].unique():
            chosen = counts == count
            rows = warming & chosen[sequence]
            part = _select_rows(batch, rows, batch.state_in[chosen], counts[chosen])
            before = {name: part.get(name) for name in self.read_before()}
            inputs = self.input_dict(part.obs, is_training=model.training, **before)
            outputs, after = model(inputs, [part.state_in[name] for name in state], part.seq_lens)
            values[rows] = outputs.to(values.dtype)
            for name, new in zip(state, after, strict=True):
                state[name][chosen] = new.to(state[name].dtype)  # under autocast an LSTM gives another dtype
        return values, state

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

    def loss_and_priorities(self, errors: Tensor, td_errors: Tensor, batch: SampleBatch) -> tuple[Tensor, Tensor]:
        """The mean loss of the trained rows, weighted by sequence; priorities η max |δ| + (1 − η) mean |δ| `[S]`."""
        if "seq_lens" not in batch:
            return super().loss_and_priorities(errors, td_errors, batch)
        trained = ~batch["burn_in"] if "burn_in" in batch else torch.ones_like(errors, dtype=torch.bool)
        lens = batch.seq_lens
        sequence = _sequence_index(lens)[trained]
        weights = batch.get("weights")
        errors = errors[trained] if weights is None else errors[trained] * weights[sequence]
        size = td_errors[trained].abs()
        empty = size.new_zeros(len(lens))
        mean = empty.scatter_reduce(0, sequence, size, "mean", include_self=False)
        most = empty.scatter_reduce(0, sequence, size, "amax", include_self=False)
        return errors.mean(), self.priority_eta * most + (1.0 - self.priority_eta) * mean


def _sequence_index(lens: Tensor) -> Tensor:
    """The index of each row's sequence, int64 `[N]`."""
    return torch.arange(len(lens), device=lens.device).repeat_interleave(lens)


def _select_rows(batch: SampleBatch, chosen: Tensor, state: SampleBatch, lens: Tensor) -> SampleBatch:
    """The model's inputs of the chosen rows, in sequences of `lens` that begin in `state`."""
    names = ("obs", "prev_actions", "prev_rewards", "action_mask")
    return SampleBatch({name: batch[name][chosen] for name in names if name in batch}, state_in=state, seq_lens=lens)
