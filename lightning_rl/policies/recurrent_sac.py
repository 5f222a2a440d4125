"""SAC for models with memory, on replayed sequences."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from lightning_rl.learning.metrics import Metrics
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.models.model import InputDict
from lightning_rl.models.previous_step import previous_columns
from lightning_rl.policies.replayed_sequences import sequence_index, sequence_priorities, trained_rows
from lightning_rl.policies.sac import SAC
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Probability

__all__ = ["RecurrentSAC"]

ROW_COLUMNS = ("obs", "actions", "rewards", "terminated", "discounts", "action_mask")


class RecurrentSAC(SAC):
    """SAC with separate recurrent networks for actor and critics. Ni et al. 2022, arXiv:2110.05038.

    The actor's memory continues from the state that acted (R2D2, openreview.net/forum?id=r1lyTjAqYX), the critics'
    begins empty with each sequence. The first `data.burn_in` rows of a sequence are not in the losses.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be a bounded float Box or
            Discrete.
        priority_eta: η of a sequence's priority η max |δ| + (1 − η) mean |δ|, in [0, 1].
        keywords: see `SAC`.

    Raises:
        UnsupportedSpaceError: the actions are neither a bounded float Box nor Discrete.
        ConfigError: a number is out of range.
    """

    data = "sequences"
    supports_recurrent = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        priority_eta: Probability = 0.9,
        **keywords: Any,
    ) -> None:
        self.priority_eta = priority_eta
        super().__init__(observation_space, action_space, **keywords)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """SAC's losses of the trained rows, with what actor and critics remember at each."""
        if "seq_lens" not in batch:
            return super().loss(batch)
        rows, sequence = self.remembered(batch)
        loss, metrics = super().loss(rows)
        errors, count = metrics["td_errors"], len(batch.seq_lens)
        return loss, {**metrics, "td_errors": sequence_priorities(errors, sequence, count, self.priority_eta)}

    def remembered(self, batch: SampleBatch) -> tuple[SampleBatch, Tensor]:
        """The trained rows with the actor's outputs and the critics' features, then and next; each row's sequence."""
        lens, index = batch.seq_lens, sequence_index(batch.seq_lens)
        # One pass over each sequence and the observation behind it computes both.
        names, ends = ["obs", *previous_columns(self.model)], lens.cumsum(0) - 1
        parts = [SampleBatch({name: batch[name] for name in names})]
        parts.append(SampleBatch({name: batch[f"next_{name}"][ends] for name in names}))
        order = torch.cat([index, index[ends]]).argsort(stable=True)
        sequences = SampleBatch.concat_samples(parts)[order]
        sequences["seq_lens"], sequences["state_in"] = lens + 1, batch.state_in
        outputs = self.outputs_of(sequences)[0]
        initial = self.get_initial_state(len(lens))
        sequences["state_in"] = SampleBatch({str(number): part for number, part in enumerate(initial)})
        features = self.outputs_of(sequences, self.critic.encoder)[0]
        with torch.no_grad():
            next_features = self.outputs_of(sequences, self.target_critic.encoder)[0]

        trained, sequence = trained_rows(batch)
        last = batch["bootstrap_rows"][trained] if "bootstrap_rows" in batch else trained
        now, then = trained + sequence, last + sequence + 1
        rows = SampleBatch({name: batch[name][trained] for name in ROW_COLUMNS if name in batch})
        for name in ("next_obs", "next_action_mask"):
            if name in batch:
                rows[name] = batch[name][last]
        rows["outputs"], rows["next_outputs"] = outputs[now], outputs[then].detach()
        rows["features"], rows["next_features"] = features[now], next_features[then]
        if "weights" in batch:
            rows["weights"] = batch["weights"][sequence]
        return rows, sequence

    def inputs_of(self, rows: SampleBatch, *, following: bool = False, is_training: bool | None = None) -> InputDict:
        """The critics' inputs: what they remember at the rows, or (`following`) at the next ones."""
        if "features" not in rows:
            return super().inputs_of(rows, following=following, is_training=is_training)
        return InputDict(self.flat_observations, features=rows["next_features" if following else "features"])

    def inputs_and_distribution(
        self, rows: SampleBatch, following: bool = False
    ) -> tuple[InputDict, ActionDistribution]:
        """As `SAC`; no gradient of the actor's loss flows into the critics' memory."""
        if "features" not in rows:
            return super().inputs_and_distribution(rows, following)
        inputs = self.inputs_of(rows, following=following)
        inputs["features"] = inputs["features"].detach()
        mask = self.mask_of(rows, following=following) if self.discrete else None
        return inputs, self.distribution(rows["next_outputs" if following else "outputs"], mask)
