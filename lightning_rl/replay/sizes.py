"""Checks that the sizes of a replay buffer and of the samples from it work together."""

from __future__ import annotations

from lightning_rl.errors import ConfigError

__all__ = ["check_replay_sizes", "check_sequence_sizes"]


def check_replay_sizes(capacity: int, batch_size: int, learning_starts: int, n_step: int) -> None:
    """Raise an error for sizes that cannot work together.

    Raises:
        ConfigError: names both.
    """
    if n_step >= capacity:
        raise ConfigError(f"data.n_step={n_step} in a buffer of data.capacity={capacity} rows: raise the capacity")
    if 2 * batch_size > capacity:  # an end takes the room of a row, so episodes of one step fill half of it
        much = "more than" if batch_size > capacity else "more than half of"
        raise ConfigError(
            f"data.batch_size={batch_size} is {much} data.capacity={capacity} rows, and ends of episodes take room as "
            f"well: raise the capacity to {2 * batch_size}, or lower the batch size"
        )
    if learning_starts < batch_size:
        raise ConfigError(
            f"data.learning_starts={learning_starts} is below data.batch_size={batch_size}: the first batch needs as "
            "many rows as it has; raise learning_starts"
        )


def check_sequence_sizes(
    capacity: int, batch_size: int, *, length: int, stride: int | None = None, burn_in: int = 0
) -> None:
    """Raise an error for a buffer that is too small for a batch of sequences.

    Args:
        capacity: rows of one buffer.
        batch_size: number of sequences per sample.
        length, stride, burn_in: see `SequenceReplayBuffer`; burn-in rows belong to other sequences as well.

    Raises:
        ConfigError: names what to raise.
    """
    apart = length if stride is None else stride
    if batch_size * apart > capacity:
        raise ConfigError(
            f"a batch of {batch_size} sequences that start {apart} rows apart (data.batch_size, data.sequence_length="
            f"{length}, data.sequence_stride={stride}) needs a buffer of {batch_size * apart} rows; data.capacity "
            f"leaves {capacity}: raise it, or lower data.batch_size"
        )
