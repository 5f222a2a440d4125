"""Which logical workers belong to which rank: needed before anything heavy is imported, to refuse what cannot be."""

from __future__ import annotations

from lightning_rl.errors import ConfigError

__all__ = ["logical_workers"]


def logical_workers(asked: int | None, num_workers: int, ranks: int) -> int:
    """How many logical workers all ranks have together, the same number each.

    Args:
        asked: the config's number; `None` takes one for each process, and for each rank at least.
        num_workers, ranks: processes that act, and that learn.

    Raises:
        ConfigError: they cannot be shared out equally, so gradients of ranks would be means over unequal numbers of
            rows.
    """
    logical = -(-max(num_workers, ranks) // ranks) * ranks if asked is None else asked
    if logical % ranks:
        raise ConfigError(
            f"workers.logical_workers={logical} for {ranks} ranks: every rank needs as many as the others; give a "
            f"multiple of {ranks}, such as {-(-logical // ranks) * ranks}"
        )
    return logical
