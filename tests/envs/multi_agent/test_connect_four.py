"""The searcher of Connect Four, against the game of PettingZoo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lightning_rl.envs.multi_agent.connect_four import BITS, four_in_a_row, two_ply


def random_boards(count: int, seed: int = 0) -> list[np.ndarray]:
    """Any discs `[6, 7]`, with four in a row or without."""
    rng = np.random.default_rng(seed)
    return [(rng.random((6, 7)) < rng.uniform(0.2, 0.7)).astype(np.int8) for _ in range(count)]


def test_a_line_of_four_is_found_where_a_search_of_all_lines_finds_it() -> None:
    found = []
    for board in random_boards(400):
        lines = [
            all(
                0 <= row + step * down < 6
                and 0 <= column + step * right < 7
                and board[row + step * down, column + step * right]
                for step in range(4)
            )
            for row in range(6)
            for column in range(7)
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1))
        ]
        found.append(any(lines))
        assert four_in_a_row(int((BITS * board).sum())) == found[-1]
    assert 50 < sum(found) < 350


def board_of(own: str, theirs: str) -> dict[str, Any]:
    """An observation from two lists of "row column", row 5 is the lowest."""
    observation = np.zeros((6, 7, 2), np.int8)
    for side, places in enumerate((own, theirs)):
        for place in places.split():
            observation[int(place[0]), int(place[1]), side] = 1
    return {"observation": observation, "action_mask": (observation.sum(2)[0] == 0).astype(np.int8)}


@pytest.mark.parametrize(
    ("own", "theirs", "column"),
    [
        ("50 51 52", "40 41 42", 3),  # wins in the row
        ("56 46 36", "50 51 52", 6),  # wins in the column, rather than answer the row
        ("50 46", "51 52 53", 4),  # the only place that stops the row
    ],
)
def test_it_wins_at_once_or_else_stops_the_opponent(own: str, theirs: str, column: int) -> None:
    obs = board_of(own, theirs)
    assert two_ply(obs) == two_ply(obs, obs["action_mask"], np.random.default_rng(0)) == column


def test_it_makes_no_place_for_the_opponents_winning_disc() -> None:
    """The opponent has 41, 42 and 43 of the second row; a disc at 50 or 54 would let it complete the row above."""
    obs = board_of("51 52", "53 41 42 43")
    for seed in range(20):
        assert two_ply(obs, obs["action_mask"], np.random.default_rng(seed)) not in (0, 4)


def test_it_hardly_ever_loses_to_random_moves() -> None:
    connect_four = pytest.importorskip("pettingzoo.classic.connect_four_v3")
    rng, results = np.random.default_rng(0), []
    env = connect_four.env()
    for game in range(20):
        env.reset(seed=game)
        searcher = f"player_{game % 2}"
        while not any(env.terminations.values()):
            agent = env.agent_selection
            obs = env.observe(agent)
            mask = obs["action_mask"]
            allowed = np.flatnonzero(mask)
            env.step(two_ply(obs, mask, rng) if agent == searcher else int(rng.choice(allowed)))
        results.append(env.rewards[searcher])
    assert sum(results) >= 17
