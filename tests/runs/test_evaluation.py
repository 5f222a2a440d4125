"""What an evaluation says of its episodes."""

from __future__ import annotations

from lightning_rl.config.descriptions import evaluation
from lightning_rl.rollouts.episodes import MultiAgentEpisode
from lightning_rl.runs.evaluation import episode_statistics


def episode(*returns: float) -> MultiAgentEpisode:
    by_agent = {f"player_{index}": ("shared", value) for index, value in enumerate(returns)}
    return MultiAgentEpisode(sum(returns), 7, by_agent)


def test_a_zero_sum_game_is_reported_by_wins_draws_and_losses_of_each_side() -> None:
    """Their sum, and the mean return of a policy that plays both sides, are always 0."""
    found = episode_statistics([episode(1, -1), episode(1, -1), episode(-1, 1), episode(0, 0)])
    assert found["sides"] == {
        "player_0": {"won": 2, "drawn": 1, "lost": 1},
        "player_1": {"won": 1, "drawn": 1, "lost": 2},
    }
    assert "player_1 won 1, drew 1, lost 2" in evaluation({**found, "episodes": 4, "cut": 0})


def test_three_players_share_a_draw() -> None:
    found = episode_statistics([episode(1, 1, -2), episode(2, -1, -1)])
    assert found["sides"]["player_0"] == {"won": 1, "drawn": 1, "lost": 0}
    assert found["sides"]["player_2"] == {"won": 0, "drawn": 0, "lost": 2}


def test_other_games_have_no_sides() -> None:
    for episodes in ([episode(1, 1)], [episode(1, -1), episode(1, 0)], [episode(0, 0)], [episode(0)], [(0.0, 3)]):
        assert "sides" not in episode_statistics(episodes)
