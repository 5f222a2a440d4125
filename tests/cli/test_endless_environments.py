"""Environments without a time limit: evaluations end all the same, it is said beforehand, and `evaluate` shows life."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest

from lightning_rl import Algorithm
from lightning_rl.data.evaluator import longest_evaluated
from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent.toy_games import TwoStepGame
from lightning_rl.rollouts.worker_options import LONGEST_EPISODE, LONGEST_UNLIMITED_EPISODE
from lightning_rl.runs import evaluation
from tests.rollouts.counting import Counter

SMALL = ("model.fcnet_hiddens=[4]", "evaluation.episodes=2")


class Endless(Counter):
    def __init__(self) -> None:
        super().__init__(length=10**9)


def limited() -> gym.Env:
    return gym.wrappers.RecordEpisodeStatistics(gym.wrappers.TimeLimit(Endless(), 7))


@pytest.mark.parametrize(
    ("creator", "limit"),
    [
        (EnvCreator(Endless), None),
        (EnvCreator(Endless, max_episode_steps=9), 9),
        (EnvCreator(limited), 7),
        (EnvCreator("CartPole-v1"), 500),
        (EnvCreator(TwoStepGame, max_episode_steps=3), 3),
        (EnvCreator(TwoStepGame), None),
        (EnvCreator("CartPole-v1", agents=2), None),
    ],
)
def test_the_limit_of_evaluations_follows_from_that_of_the_environment(creator: EnvCreator, limit: int | None) -> None:
    """Under wrappers, too; with copies of an environment each has its own, which ends its agent only."""
    assert creator.time_limit == limit
    assert longest_evaluated("auto", creator) == (LONGEST_UNLIMITED_EPISODE if limit is None else LONGEST_EPISODE)
    assert longest_evaluated(12, creator) == 12 and longest_evaluated(None, creator) is None


def test_an_evaluation_without_ends_is_cut_and_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = Algorithm("ppo", Endless, overrides=[f"run_dir={tmp_path}", "workers.fragment_length=8", *SMALL])
    # One iteration: 8 steps of each of PPO's environments.
    with pytest.warns(UserWarning, match=r"no time limit.*evaluation\.max_episode_steps"):
        algorithm.train()
        assert algorithm.evaluate()["eval/ep_len_mean"] == LONGEST_UNLIMITED_EPISODE
    saved = algorithm.save()
    algorithm.stop()
    monkeypatch.setattr(evaluation, "SECONDS_BETWEEN_LINES", 0.0)
    lines: list[str] = []
    assert evaluation.evaluate(saved, episodes=3, max_steps=20, say=lines.append)["lengths"] == [20] * 3
    assert lines[0] == "0 of 3 episodes, 3 steps" and lines[-1] == "0 of 3 episodes, 60 steps"


@pytest.mark.parametrize("creator", [lambda: TwoStepGame(), "CartPole-v1"])
def test_nothing_is_announced_where_episodes_end(
    creator: object, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    algorithm = Algorithm("ppo", creator, overrides=[f"run_dir={tmp_path}", "workers.fragment_length=32", *SMALL])
    algorithm.train()
    algorithm.evaluate()
    algorithm.stop()
    assert not [warning for warning in recwarn if "time limit" in str(warning.message)]
