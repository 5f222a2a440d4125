"""How work is divided: logical workers over ranks, and numbers over workers.

Nothing heavy is imported here, so that impossible numbers are refused at once.
"""

from __future__ import annotations

from lightning_rl.errors import ConfigError

__all__ = ["logical_workers", "split_evenly"]


def logical_workers(configured: int | None, num_workers: int, ranks: int) -> int:
    """How many logical workers all ranks have together, the same number each.

    Args:
        configured: `workers.logical_workers`; `None` takes one for each process, and one for each rank at least.
        num_workers: processes that act.
        ranks: processes that learn.

    Raises:
        ConfigError: the number is not a multiple of the ranks, whose gradients would be means over unequal numbers of
            rows.
    """
    logical = -(-max(num_workers, ranks) // ranks) * ranks if configured is None else configured
    if logical % ranks:
        raise ConfigError(
            f"workers.logical_workers={logical} for {ranks} ranks: every rank needs as many as the others; give a "
            f"multiple of {ranks}, such as {-(-logical // ranks) * ranks}"
        )
    return logical


def split_evenly(count: int, parts: int) -> list[int]:
    """`count` in `parts` shares that differ by at most one; the first ones get the rest."""
    return [count // parts + (part < count % parts) for part in range(parts)]
