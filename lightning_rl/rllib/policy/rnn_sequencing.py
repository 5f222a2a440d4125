"""RLlib's function of padded sequences."""

from __future__ import annotations

from torch import Tensor

__all__ = ["add_time_dimension"]


def add_time_dimension(
    padded_inputs: Tensor,
    *,
    max_seq_len: int | None = None,
    seq_lens: Tensor | None = None,
    framework: str = "torch",
    time_major: bool = False,
) -> Tensor:
    """Rows `[S · L, *]` of S padded sequences as `[S, L, *]`, or `[L, S, *]` if `time_major`.

    Args:
        padded_inputs: the rows, one sequence after the other.
        max_seq_len: L.
        seq_lens: lengths `[S]` of the sequences, in place of L.
        framework: not read.
        time_major: whether time is the first dimension.
    """
    sequences = -1 if seq_lens is None else len(seq_lens)
    steps = -1 if max_seq_len is None else max_seq_len
    outputs = padded_inputs.reshape(sequences, steps, *padded_inputs.shape[1:])
    return outputs.transpose(0, 1) if time_major else outputs
