"""Sequences for models with state: cut out of fragments, shuffled whole, and padded only while the model runs.

A batch of sequences holds flat rows `[N, …]`, one sequence after the other, and columns with an entry a sequence:
`seq_lens [S]` and, with models with state, `state_in [S, …]`. Losses read rows, so padding never reaches one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from lightning_rl.sample_batch import SampleBatch

__all__ = ["PER_SEQUENCE", "Padding", "in_sequences", "pad_time", "padding", "sequence_minibatches"]

PER_SEQUENCE = ("seq_lens", "state_in")


def in_sequences(fragment: SampleBatch, max_seq_len: int) -> SampleBatch:
    """The experience of a fragment `[T, B, …]` as sequences, environment by environment.

    A sequence ends with its episode, with the fragment, or after `max_seq_len` rows; it starts from the state that was
    recorded there.

    Args:
        fragment: with models with state `state_in [T+1, B, …]`, the state before each row.
        max_seq_len: ≥ 1, how far back a gradient reaches.
    """
    valid, ended = fragment.valid.t(), (fragment.terminated | fragment.truncated).t()  # [B, T]
    steps = valid.shape[1]
    time = torch.arange(steps, device=valid.device)
    fresh = torch.ones_like(valid)
    fresh[:, 1:] = ended[:, :-1] | ~valid[:, :-1]
    since = time - torch.where(fresh, time, 0).cummax(1).values  # rows since the episode (or the fragment) began
    kept = valid.flatten().nonzero().squeeze(1)
    first = (since % max_seq_len == 0).flatten()[kept]

    def rows(column: Tensor) -> Tensor:
        return column[:steps].transpose(0, 1).flatten(0, 1)[kept]

    sequences = fragment.without("valid", "state_in").map(rows)
    if "state_in" in fragment:
        sequences["state_in"] = fragment.state_in.map(lambda column: rows(column)[first])
    sequences["seq_lens"] = torch.bincount(first.cumsum(0) - 1)
    return sequences


def sequence_minibatches(batch: SampleBatch, count: int, generator: torch.Generator | None) -> list[SampleBatch]:
    """Shuffle the sequences, and deal them in `count` parts of nearly equally many; each row stays in its sequence.

    Raises:
        ValueError: there are fewer sequences than parts.
    """
    lengths: Tensor = batch.seq_lens
    if len(lengths) < count:
        raise ValueError(
            f"batch has {len(lengths)} sequences; minibatches={count} needs at least {count}: collect more, lower it, "
            "or lower model.max_seq_len"
        )
    order = torch.randperm(len(lengths), generator=generator).to(lengths.device)
    starts = lengths.cumsum(0) - lengths
    parts = []
    for chosen in order.tensor_split(count):
        lens = lengths[chosen]
        within = torch.arange(int(lens.sum()), device=lens.device) - (lens.cumsum(0) - lens).repeat_interleave(lens)
        index = starts[chosen].repeat_interleave(lens) + within
        part = batch.without(*PER_SEQUENCE)[index]
        for name in PER_SEQUENCE:
            if name in batch:
                column = batch[name]
                part[name] = column[chosen]
        parts.append(part)
    return parts


@dataclass(frozen=True, slots=True)
class Padding:
    """How the rows of `S` sequences become `S · L` rows for a model, `L` the longest, and back.

    Attributes:
        rows: int64 `[S · L]`, the row at each place; places behind a sequence's end repeat its first row.
        kept: int64 `[N]`, the places that are rows.
    """

    rows: Tensor
    kept: Tensor


def padding(seq_lens: Tensor) -> Padding | None:
    """The padding that sequences of these lengths need; `None` when all are equally long."""
    longest = int(seq_lens.max())
    inside = torch.arange(longest, device=seq_lens.device) < seq_lens.unsqueeze(1)  # [S, L]
    if bool(inside.all()):
        return None
    starts = (seq_lens.cumsum(0) - seq_lens).unsqueeze(1)
    rows = torch.where(inside, starts + torch.arange(longest, device=seq_lens.device), starts)
    return Padding(rows.flatten(), inside.flatten().nonzero().squeeze(1))


def pad_time(fragment: SampleBatch, length: int) -> SampleBatch:
    """The fragment with `valid=False` rows appended up to `length` steps, to fit beside others.

    What a policy reads before a step, of which there is one row more, repeats its last row: real values for networks.
    """
    steps = len(fragment.valid)

    def padded(column: Tensor) -> Tensor:
        last = column[-1:] if len(column) > steps else torch.zeros_like(column[-1:])
        return torch.cat([column, last.expand(length - steps, *column.shape[1:])])

    return fragment if steps == length else fragment.map(padded)
