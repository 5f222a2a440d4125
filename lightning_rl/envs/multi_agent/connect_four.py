"""An opponent for Connect Four that looks two plies ahead.

A side's discs are the bits of an integer: column c, height h is bit 7 · c + h, so that the seventh bit of each column
is always 0 and no line of four runs over a board's edge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["four_in_a_row", "two_ply"]

ROWS, COLUMNS = 6, 7
DIRECTIONS = (1, ROWS + 1, ROWS, ROWS + 2)  # bits between neighbors: up, right, down and right, up and right
BITS = np.array([[1 << (column * (ROWS + 1) + ROWS - 1 - row) for column in range(COLUMNS)] for row in range(ROWS)])


def two_ply(obs: Any, action_mask: np.ndarray | None = None, rng: np.random.Generator | None = None) -> int:
    """A column of PettingZoo's `connect_four_v3`: one that wins, else one after which the opponent cannot win at once.

    Args:
        obs: the observation: "observation" `[6, 7, 2]`, the top row first, own discs and the opponent's; or that array.
        action_mask: allowed columns `[7]`; `None`: those that are not full.
        rng: draws one of equally good columns; `None`: the one nearest to the center.
    """
    board = np.asarray(obs["observation"] if isinstance(obs, dict) else obs)
    own, theirs = (int((BITS * (board[:, :, side] > 0)).sum()) for side in (0, 1))
    moves = _moves(own | theirs)
    if action_mask is not None:
        moves = {column: bit for column, bit in moves.items() if action_mask[column]}
    best = [column for column, bit in moves.items() if four_in_a_row(own | bit)]
    best = best or [column for column, bit in moves.items() if not _can_win(theirs, own | bit)] or [*moves] or [0]
    if rng is None:
        return min(best, key=lambda column: abs(column - COLUMNS // 2))
    return best[int(rng.integers(len(best)))]


def four_in_a_row(discs: int) -> bool:
    """Whether a side has four discs in a line."""
    for step in DIRECTIONS:
        pairs = discs & discs >> step
        if pairs & pairs >> 2 * step:
            return True
    return False


def _moves(discs: int) -> dict[int, int]:
    """Column → the bit of the lowest free place; without full columns."""
    found = {}
    for column in range(COLUMNS):
        height = (discs >> column * (ROWS + 1) & (1 << ROWS) - 1).bit_count()
        if height < ROWS:
            found[column] = 1 << column * (ROWS + 1) + height
    return found


def _can_win(mine: int, theirs: int) -> bool:
    """Whether the side with the discs `mine` wins with its next disc."""
    return any(four_in_a_row(mine | bit) for bit in _moves(mine | theirs).values())
