"""Learning of models with memory from sequences: their rows, the burn-in, and the loss of a sequence.

Kapturowski et al. 2019 (R2D2), openreview.net/forum?id=r1lyTjAqYX.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_rl.models.previous_step import PREVIOUS, previous_columns
from lightning_rl.sample_batch import SampleBatch, to_sequences

__all__ = [
    "run_burn_in",
    "select_rows",
    "sequence_index",
    "sequence_loss",
    "sequence_priorities",
    "sequences_of",
    "trained_rows",
    "trains_after_burn_in",
]


def sequences_of(fragment: SampleBatch, max_seq_len: int, gamma: float) -> SampleBatch:
    """A fragment `[T, B, …]` as rows in sequences, each with the model's inputs of the next step, as replay gives them.

    Args:
        fragment: a fragment with "state_in".
        max_seq_len: longest sequence.
        gamma: discount per environment step.
    """
    batch = fragment.copy()
    for name in ("obs", *PREVIOUS):
        if name in batch:
            column = batch[name]
            batch[f"next_{name}"] = column[1:]
    batch["next_state_in"] = batch.state_in.map(lambda part: part[1:])
    rows = to_sequences(batch, max_seq_len)
    starts = rows.seq_lens.cumsum(0) - rows.seq_lens
    rows["next_state_in"] = rows["next_state_in"][starts]
    rows["discounts"] = torch.full_like(rows.rewards, gamma)
    return rows


@torch.no_grad()
def run_burn_in(policy: Any, model: Any, batch: SampleBatch) -> tuple[Tensor, SampleBatch]:
    """The model's outputs `[N, K]` of the burn-in rows, 0 elsewhere; and the other rows, from the state after them.

    The model is in eval mode: batch norm's statistics are those of the trained rows.

    Args:
        policy: makes the model's inputs.
        model: the online or the target network.
        batch: sequences with "burn_in".
    """
    warming, sequence, training = batch["burn_in"], sequence_index(batch.seq_lens), model.training
    counts = torch.zeros_like(batch.seq_lens).index_add(0, sequence, warming.to(batch.seq_lens.dtype))
    values = torch.zeros(len(warming), model.num_outputs, device=warming.device)
    state = batch.state_in.map(torch.clone)
    model.eval()
    # Sequences of equal length together: only without padding the final state is the state after the last row.
    for count in counts[counts > 0].unique():
        chosen = counts == count
        rows = warming & chosen[sequence]
        part = select_rows(batch, rows, batch.state_in[chosen], counts[chosen])
        before = {name: part.get(name) for name in previous_columns(policy.model)}
        inputs = policy.input_dict(part.obs, is_training=model.training, **before)
        outputs, after = model(inputs, [part.state_in[name] for name in state], part.seq_lens)
        values[rows] = outputs.to(values.dtype)
        for name, new in zip(state, after, strict=True):
            state[name][chosen] = new.to(state[name].dtype)  # under autocast an LSTM gives another dtype
    model.train(training)
    return values, select_rows(batch, ~warming, state, batch.seq_lens - counts)


def trains_after_burn_in(batch: SampleBatch) -> bool:
    """Whether the batch has rows that get no gradient, and others do."""
    return "burn_in" in batch and torch.is_grad_enabled() and bool(batch["burn_in"].any())


def select_rows(batch: SampleBatch, chosen: Tensor, state: SampleBatch, lens: Tensor) -> SampleBatch:
    """The model's inputs of the chosen rows, in sequences of `lens` that begin in `state`."""
    names = ("obs", *PREVIOUS, "action_mask")
    return SampleBatch({name: batch[name][chosen] for name in names if name in batch}, state_in=state, seq_lens=lens)


def sequence_loss(errors: Tensor, td_errors: Tensor, batch: SampleBatch, eta: float) -> tuple[Tensor, Tensor]:
    """The mean loss of the trained rows, weighted by sequence; priorities η max |δ| + (1 − η) mean |δ| `[S]`.

    Args:
        errors: the loss of each row, `[N]`.
        td_errors: δ, `[N]`.
        batch: sequences, perhaps with "burn_in" and "weights".
        eta: η.
    """
    trained, sequence = trained_rows(batch)
    weights = batch.get("weights")
    errors = errors[trained] if weights is None else errors[trained] * weights[sequence]
    return errors.mean(), sequence_priorities(td_errors[trained], sequence, len(batch.seq_lens), eta)


def sequence_priorities(td_errors: Tensor, sequence: Tensor, count: int, eta: float) -> Tensor:
    """η max |δ| + (1 − η) mean |δ| of each of `count` sequences, `[S]`.

    Args:
        td_errors: δ of the trained rows, `[N]`.
        sequence: the sequence of each, int64 `[N]`.
        count: S.
        eta: η.
    """
    size = td_errors.abs()
    empty = size.new_zeros(count)
    mean = empty.scatter_reduce(0, sequence, size, "mean", include_self=False)
    most = empty.scatter_reduce(0, sequence, size, "amax")
    return eta * most + (1.0 - eta) * mean


def trained_rows(batch: SampleBatch) -> tuple[Tensor, Tensor]:
    """The indices of the rows that are not burn-in, and the sequence of each, int64 `[N]`."""
    sequence = sequence_index(batch.seq_lens)
    trained = (
        (~batch["burn_in"]).nonzero().squeeze(1)
        if "burn_in" in batch
        else torch.arange(len(sequence), device=sequence.device)
    )
    return trained, sequence[trained]


def sequence_index(lens: Tensor) -> Tensor:
    """The index of each row's sequence, int64 `[N]`."""
    return torch.arange(len(lens), device=lens.device).repeat_interleave(lens)
