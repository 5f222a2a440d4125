"""Small games of several agents: payoffs, ends, and what agents see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent import ALL
from lightning_rl.envs.multi_agent.toy_games import (
    ClimbingGame,
    MatrixGame,
    MultiAgentCartPole,
    PenaltyGame,
    RockPaperScissors,
    TwoStepGame,
)
from tests.envs.scripted_turns import ScriptedTurns

GAMES = [TwoStepGame, ClimbingGame, PenaltyGame, RockPaperScissors, ScriptedTurns, MultiAgentCartPole]


@pytest.mark.parametrize("game", GAMES)
def test_each_game_keeps_the_api(game: Any) -> None:
    EnvCreator(game).spaces()


@pytest.mark.parametrize(
    ("choice", "joint", "payoff"), [(0, (1, 0), 7), (1, (0, 0), 0), (1, (0, 1), 1), (1, (1, 1), 8)]
)
def test_the_two_step_game_pays_what_the_paper_says(choice: int, joint: tuple[int, int], payoff: float) -> None:
    env = TwoStepGame()
    env.reset()
    _, rewards, terminated, _, _ = env.step({"agent_0": choice, "agent_1": 1 - choice})
    assert sum(rewards.values()) == 0 and not terminated[ALL]
    assert env.state().argmax() == 1 + choice
    _, rewards, terminated, _, _ = env.step(dict(zip(("agent_0", "agent_1"), joint, strict=True)))
    assert sum(rewards.values()) == payoff and terminated[ALL]


@pytest.mark.parametrize(
    ("game", "best", "worst"),
    [(ClimbingGame(), (0, 0, 11), (0, 1, -30)), (PenaltyGame(k=-50), (0, 2, 10), (2, 2, -50))],
)
def test_the_common_payoff_is_shared(game: MatrixGame, best: tuple[int, ...], worst: tuple[int, ...]) -> None:
    game.reset()
    for first, second, payoff in (best, worst):
        _, rewards, *_ = game.step({"agent_0": first, "agent_1": second})
        assert rewards == {"agent_0": payoff / 2, "agent_1": payoff / 2}


def test_a_matrix_game_is_repeated_and_may_have_two_payoffs() -> None:
    game = MatrixGame([[[1, 2, 3]], [[4, 5, 6]]], repetitions=2)
    assert [int(space.n) for space in game.action_spaces.values()] == [1, 3]  # type: ignore[attr-defined]
    game.reset()
    _, rewards, terminated, _, _ = game.step({"agent_0": 0, "agent_1": 2})
    assert rewards == {"agent_0": 3.0, "agent_1": 6.0} and not terminated[ALL]
    assert game.step({"agent_0": 0, "agent_1": 0})[2][ALL]


def test_rock_paper_scissors_is_zero_sum_and_shows_the_last_choices() -> None:
    """Paper beats rock, scissors beat paper, rock beats scissors."""
    env = RockPaperScissors(repetitions=9)
    env.reset()
    won = np.zeros((3, 3))
    for first in range(3):
        for second in range(3):
            obs, rewards, terminated, _, _ = env.step({"player_0": first, "player_1": second})
            assert rewards["player_0"] + rewards["player_1"] == 0
            assert obs["player_1"].reshape(2, 3).argmax(1).tolist() == [second, first]
            won[first, second] = rewards["player_0"]
    assert won.tolist() == [[0, -1, 1], [1, 0, -1], [-1, 1, 0]] and terminated[ALL]


def test_scripted_turns_show_time_and_slot_and_pay_everyone_in_the_episode() -> None:
    env = ScriptedTurns(turns=[["a"], ["b"], ["b"]], ends={"a": 1})
    obs, _ = env.reset()
    assert [*obs] == ["a"] and obs["a"].tolist() == [0, 0]
    obs, rewards, *_ = env.step({"a": 1})
    assert obs["b"].tolist() == [1, 1] and rewards == {"a": 1.0}
    obs, rewards, terminated, _, _ = env.step({"b": 0})
    assert obs["a"].tolist() == [2, 0] and rewards == {"a": 2.0, "b": 102.0} and terminated == {"a": True, ALL: False}
    obs, rewards, terminated, _, _ = env.step({"b": 0})
    assert [*obs] == ["b"] and rewards == {"b": 103.0} and terminated == {ALL: True}
    assert env.actions == [{"a": 1}, {"b": 0}, {"b": 0}]
