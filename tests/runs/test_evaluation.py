"""What an evaluation says of its episodes."""

from __future__ import annotations

import pytest

from lightning_rl.config.descriptions import evaluation
from lightning_rl.errors import ConfigError
from lightning_rl.rollouts.episodes import Episode
from lightning_rl.runs.evaluation import episode_statistics, evaluate
from tests.trained_runs import TrainedRuns


def episode(*returns: float) -> Episode:
    by_agent = {f"player_{index}": ("shared", value) for index, value in enumerate(returns)}
    return Episode(sum(returns), 7, by_agent)


def test_a_zero_sum_game_is_reported_by_wins_draws_and_losses_of_each_side() -> None:
    """Their sum, and the mean return of a policy that plays both sides, are always 0."""
    found = episode_statistics([episode(1, -1), episode(1, -1), episode(-1, 1), episode(0, 0)])
    first, second = {"won": 2, "drawn": 1, "lost": 1}, {"won": 1, "drawn": 1, "lost": 2}
    assert found["sides"] == {"player_0": first, "player_1": second}
    assert "player_1 won 1, drew 1, lost 2" in evaluation({**found, "episodes": 4, "cut": 0})


def test_three_players_share_a_draw() -> None:
    found = episode_statistics([episode(1, 1, -2), episode(2, -1, -1)])
    assert found["sides"]["player_0"] == {"won": 1, "drawn": 1, "lost": 0}
    assert found["sides"]["player_2"] == {"won": 0, "drawn": 0, "lost": 2}


def test_other_games_have_no_sides() -> None:
    for episodes in ([episode(1, 1)], [episode(1, -1), episode(1, 0)], [episode(0, 0)], [episode(0)], [(0.0, 3)]):
        assert "sides" not in episode_statistics(episodes)


def test_each_agent_in_turn_plays_against_random_ones(trained_runs: TrainedRuns) -> None:
    """Rock, paper, scissors: by its best actions a policy always draws against itself, and seldom against chance."""
    run = trained_runs("several agents")
    alone, against = (evaluate(run, episodes=31, against=opponent) for opponent in (None, "random"))
    assert all(value == 0 for value in alone["returns"])
    assert against["episodes"] == 31 and {len(set(against["returns"]))} == {3}  # won, drawn and lost
    assert [sum(counts.values()) for counts in against["sides"].values()] == [15, 16]
    assert against["policies"].keys() == against["sides"].keys() == {"player_0", "player_1"}


def test_one_agent_has_no_opponents(trained_runs: TrainedRuns) -> None:
    with pytest.raises(ConfigError) as refused:
        evaluate(trained_runs("ppo"), episodes=2, against="random")
    assert refused.value.key == "against"
