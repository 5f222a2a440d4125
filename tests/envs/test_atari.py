"""Atari preprocessing: equal transitions both ways; a lost life ends the learner's episode, a game the statistics'."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from lightning_rl.config import check_config, compose_config
from lightning_rl.envs import EnvCreator, atari
from lightning_rl.envs.atari import LIFE_LOST, Atari, LifeEpisodes, LifeEpisodesVector
from lightning_rl.errors import ConfigError, EnvError
from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.refusals import not_refused
from tests.rollouts.counting import Alternating

pytest.importorskip("ale_py", reason='needs pip install -e ".[atari]"')
cv2 = pytest.importorskip("cv2", reason='needs pip install -e ".[atari]"')

SAME_START = {"noop_max": 0}  # the two ways draw the number of no-ops from different generators


class Pixels(Alternating):
    """Acts by what it sees, so that equal observations give equal actions."""

    def compute_actions(self, obs: Any, state: Any, **_: Any) -> tuple[torch.Tensor, list[Any], dict[str, Any]]:
        sums = np.asarray(obs, dtype=np.int64).reshape(len(obs), -1).sum(axis=1)
        return torch.from_numpy(sums // 7 % 4), [], {}


def worker(game: str, length: int, vectorization: str, envs: int = 1, steps: int | None = None, **more: Any) -> Any:
    kwargs = {**SAME_START, **more.pop("kwargs", {})}
    creator = EnvCreator(game, kwargs, max_episode_steps=steps)
    return RolloutWorker(creator, Pixels(), num_envs=envs, fragment_length=length, vectorization=vectorization, **more)


def transitions(fragment: SampleBatch, env: int = 0) -> list[tuple[Any, ...]]:
    """(obs, action, reward, terminated, truncated, next obs) of every valid row."""
    names = ("actions", "rewards", "terminated", "truncated")
    return [
        (fragment.obs[step, env], *(fragment[name][step, env].item() for name in names), fragment.obs[step + 1, env])
        for step in fragment.valid[:, env].nonzero().squeeze(1).tolist()
    ]


def equal(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    return torch.equal(first[0], second[0]) and first[1:-1] == second[1:-1] and bool(torch.equal(first[-1], second[-1]))


@pytest.mark.parametrize("game", ["ALE/Breakout-v5", "ALE/Qbert-v5"])  # Q*bert plays on for a while at 0 lives
def test_threads_and_wrappers_give_the_same_transitions_under_all_autoreset_modes(game: str) -> None:
    """Pixels, points, lost lives, ended games and what comes after them."""
    native = transitions(worker(game, 500, "native").sample())
    assert sum(row[3] for row in native) >= 6  # more than one game's lives
    for mode in AutoresetMode:
        wrapped = transitions(worker(game, 500, "sync", mode=mode).sample())
        assert all(equal(first, second) for first, second in zip(native, wrapped, strict=False)), mode
        assert min(len(native), len(wrapped)) > 450


def test_processes_give_the_same_transitions() -> None:
    native, processes = (transitions(worker("ALE/Pong-v5", 20, way).sample()) for way in ("native", "async"))
    assert all(equal(first, second) for first, second in zip(native, processes, strict=True))


@pytest.mark.parametrize("way", ["native", "sync"])
def test_lives_end_episodes_for_the_learner_and_games_for_the_statistics(way: str) -> None:
    """Breakout has five lives: five terminated rows a game, and one episode with the points of all."""
    source = worker("ALE/Breakout-v5", 600, way)
    fragment = source.sample()
    ends = fragment.terminated[:, 0].nonzero().squeeze(1).tolist()
    metrics = source.get_metrics()
    assert len(metrics["episode_returns"]) == len(ends) // 5 >= 2
    first_game = slice(0, ends[4] + 1)
    assert metrics["episode_returns"][0] == float(fragment.rewards[first_game, 0].sum())
    assert metrics["episode_lengths"][0] == int(fragment.valid[first_game, 0].sum())
    assert fragment.t[ends[0] + 2, 0] > 0 and fragment.t[ends[4] + 2, 0] == 0


@pytest.mark.parametrize("way", ["native", "sync"])
def test_evaluation_plays_whole_games(way: str) -> None:
    played = worker("ALE/Breakout-v5", 1, way, envs=2).run_episodes(2)
    watched = worker("ALE/Breakout-v5", 600, way)
    watched.sample()
    whole = watched.get_metrics()
    assert played[0] == played[1] == (whole["episode_returns"][0], whole["episode_lengths"][0])


def test_complete_episodes_are_whole_games() -> None:
    fragment = worker("ALE/Breakout-v5", 1, "native", batch_mode="complete_episodes").sample()
    assert int(fragment.terminated.sum()) == 5


def test_without_the_key_a_life_is_no_end() -> None:
    source = worker("ALE/Breakout-v5", 600, "native", kwargs={"terminal_on_life_loss": False})
    ends = int(source.sample().terminated.sum())
    assert ends == len(source.get_metrics()["episode_returns"]) >= 1


@pytest.mark.parametrize("way", ["native", "sync"])
def test_a_time_limit_truncates_a_game(way: str) -> None:
    source = worker("ALE/Pong-v5", 45, way, steps=20)
    fragment = source.sample()
    assert fragment.truncated[:, 0].nonzero().squeeze(1).tolist() == [19, 40]
    assert not fragment.terminated.any()
    assert source.get_metrics()["episode_lengths"] == [20, 20]
    assert not fragment.valid[20, 0]
    assert torch.equal(fragment.obs[20, 0, :3], fragment.obs[19, 0, 1:])  # the final observation, not the reset's
    assert not fragment.obs[21, 0, :3].any()  # a game starts with empty frames


def test_points_are_the_game_s_own_and_frames_are_bytes() -> None:
    fragment = worker("ALE/MsPacman-v5", 150, "native").sample()
    assert float(fragment.rewards.max()) >= 10
    assert fragment.obs.dtype == torch.uint8 and fragment.rewards.dtype == torch.float32


@pytest.mark.parametrize(
    ("kwargs", "shape"),
    [
        ({}, (4, 84, 84)),
        ({"dim": 42}, (4, 42, 42)),
        ({"framestack": True}, (4, 84, 84)),
        ({"framestack": False}, (1, 84, 84)),
        ({"framestack": 2, "grayscale": False}, (6, 84, 84)),
        ({"dim": 42, "grayscale": False, "zero_mean": True}, (12, 42, 42)),
        ({"framestack": 1, "zero_mean": True, "frame_skip": 1}, (1, 84, 84)),
    ],
)
def test_observations_have_the_configured_size_both_ways(kwargs: dict[str, Any], shape: tuple[int, ...]) -> None:
    creator = EnvCreator("ALE/Pong-v5", {**SAME_START, **kwargs})
    made = [creator.make(2, way) for way in ("native", "sync")]
    space = made[0].single_observation_space
    assert space == made[1].single_observation_space == creator.spaces()[0]
    assert space.shape == shape and space.dtype == (np.float32 if kwargs.get("zero_mean") else np.uint8)
    starts = [env.reset(seed=1 if env is made[0] else [1, 2])[0].copy() for env in made]
    steps = [[env.step(np.array([2, 3]))[0].copy() for _ in range(5)] for env in made]
    assert all(np.array_equal(first, second) for first, second in zip(*steps, strict=True))
    assert np.array_equal(*starts) and space.contains(steps[0][-1][0])


def test_zero_mean_centers_the_bytes() -> None:
    """(x − 128) / 128: 0 → −1, 255 → 0.992."""
    pictures = Atari("ALE/Pong-v5", zero_mean=True).pictures(np.array([[[0, 128, 255]]], np.uint8))
    assert pictures.tolist() == [[[-1.0, 0.0, 127 / 128]]]


def test_color_frames_keep_their_order_oldest_first() -> None:
    """Frame s, color c is channel 3 s + c."""
    frames = np.arange(2 * 5 * 5 * 3, dtype=np.uint8).reshape(2, 5, 5, 3)
    pictures = Atari("ALE/Pong-v5", grayscale=False).pictures(frames)
    assert pictures.shape == (6, 5, 5)
    assert all(np.array_equal(pictures[3 * s + c], frames[s, :, :, c]) for s in range(2) for c in range(3))


@pytest.mark.parametrize(("game", "height"), [("ALE/Pong-v5", 210), ("ALE/Pooyan-v5", 220), ("ALE/Klax-v5", 250)])
def test_the_whole_screen_is_resized_for_any_height(game: str, height: int) -> None:
    """RLlib's GenericPixelPreprocessor cuts 25 rows off the top and the bottom, which assumes 210 rows."""
    env = EnvCreator(game, {**SAME_START, "dim": 42}).make_single()
    obs, _ = env.reset(seed=0)
    screen = env.unwrapped.ale.getScreenGrayscale()  # type: ignore[attr-defined]
    assert screen.shape == (height, 160)
    assert np.array_equal(obs[-1], cv2.resize(screen, (42, 42), interpolation=cv2.INTER_AREA))


def test_games_start_differently_and_equal_seeds_equally() -> None:
    env = EnvCreator("ALE/Breakout-v5", {"noop_max": 30}).make(6)
    first, info = env.reset(seed=5)
    again, _ = env.reset(seed=5)
    assert np.array_equal(first, again)
    assert len(set(info["episode_frame_number"].tolist())) > 2


class Scripted(gym.Env[np.ndarray, int]):
    """Rows of (reward, lives, terminated); remembers the actions."""

    observation_space = gym.spaces.Box(0, 9, (1,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, rows: list[tuple[float, int, bool]]) -> None:
        self.rows, self.actions, self.resets = rows, [], 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.left, self.resets = list(self.rows), self.resets + 1
        return np.zeros(1, np.float32), {"lives": 3}

    def step(self, action: int) -> Any:
        self.actions.append(int(action))
        reward, lives, terminated = self.left.pop(0)
        return np.full(1, len(self.left), np.float32), reward, terminated, False, {"lives": lives}


class ScriptedVector(VectorEnv[Any, Any, Any]):
    """One `Scripted`, NEXT_STEP, as `ale_py`'s form."""

    num_envs = 1

    def __init__(self, env: Scripted) -> None:
        self.single, self.over = env, False
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        obs, info = self.single.reset(seed=seed)
        return obs[None], {"lives": np.array([info["lives"]])}

    def step(self, actions: Any) -> Any:
        result: Any = (*self.single.reset(), 0.0) if self.over else self.single.step(actions[0])
        obs, reward, terminated, info = (
            (result[0], 0.0, False, result[1]) if self.over else (*result[:3], result[4])  # a reset has no reward
        )
        self.over = terminated
        flags = np.array([terminated]), np.array([False])
        return obs[None], np.array([reward]), *flags, {"lives": np.array([info["lives"]])}


ROWS = [(1.0, 3, False), (2.0, 2, False), (4.0, 2, False), (8.0, 2, False), (0.0, 0, False), (16.0, 0, True)]


def test_a_reset_within_a_game_presses_fire_and_adds_its_points_to_the_next_reward() -> None:
    """A life is lost in row 1; row 2 serves (4 points), row 3 gives 8 + 4; at 0 lives the game ends."""
    env = LifeEpisodes(Scripted(ROWS), serve=1)
    env.reset(seed=0)
    seen = [env.step(2)[1:3] for _ in range(2)]
    env.reset()
    seen += [env.step(2)[1:3] for _ in range(3)]
    assert seen == [(1.0, False), (2.0, True), (12.0, False), (0.0, False), (16.0, True)]
    game: Any = env.env
    assert game.actions == [2, 2, 1, 2, 2, 2] and game.resets == 1
    env.reset()
    assert game.resets == 2


def test_the_vector_form_serves_in_the_row_after_a_life() -> None:
    game = Scripted(ROWS)
    env = LifeEpisodesVector(ScriptedVector(game), serve=1)
    env.reset(seed=0)
    rows = [env.step(np.array([2])) for _ in range(7)]
    assert [row[1].item() for row in rows] == [1.0, 2.0, 0.0, 12.0, 0.0, 16.0, 0.0]
    assert [row[2].item() for row in rows] == [False, True, False, False, False, True, False]
    assert [row[4][LIFE_LOST].item() for row in rows] == [False, True] + 5 * [False]
    assert game.actions == [2, 2, 1, 2, 2, 2] and game.resets == 2


def test_a_seeded_reset_starts_a_game_within_a_game() -> None:
    env = LifeEpisodes(Scripted(ROWS), serve=1)
    env.reset(seed=0)
    env.step(2)
    assert env.step(2)[2]
    env.reset(seed=0)
    assert env.env.resets == 2  # type: ignore[attr-defined]


def test_a_game_of_another_mode_or_in_wrappers_runs_by_gymnasium() -> None:
    for creator in (EnvCreator("ALE/Pong-v5", {"mode": 1}), EnvCreator("ALE/Pong-v5", wrappers=[gym.Wrapper])):
        assert hasattr(creator.make(1).unwrapped, "env_fns")
        with pytest.raises(EnvError, match="vector form"):
            creator.make(1, "native")


def test_the_error_for_a_missing_extra_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "find_spec", lambda name: None if name == "ale_py" else SimpleNamespace())
    with pytest.raises(EnvError, match=r'ale_py: pip install -e "\.\[atari\]"'):
        EnvCreator("ALE/Pong-v5").spaces()
    check_config(compose_config(["env=pong"]))  # composing and describing need no extra


def test_a_wrong_keyword_names_the_right_one() -> None:
    cases = [
        ({"framestak": 4}, r"env.kwargs.*'framestak'.*'framestack'"),
        ({"dim": 0}, "env.kwargs.dim=0; expected a whole number of at least 8"),
        ({"frame_skip": 0}, "env.kwargs.frame_skip=0"),
    ]
    assert not_refused(lambda kwargs: EnvCreator("ALE/Pong-v5", kwargs).spaces(), cases) == []


def test_the_presets_hold_the_defaults_and_any_game_can_be_named() -> None:
    for overrides in (["env=pong"], ["env=breakout"], ["env=atari", "env.id=ALE/Qbert-v5"]):
        config = compose_config(overrides)
        made = Atari.from_config(config["env"]["id"], config["env"]["kwargs"])
        assert made == Atari(config["env"]["id"])
        check_config(config)
    with pytest.raises(ConfigError, match="'ALE/Qbert-v5'"):
        check_config(compose_config(["env=atari", "env.id=ALE/Qbrt-v5"]))


def test_ppo_learns_from_frames() -> None:
    creator = EnvCreator("ALE/Pong-v5", {"dim": 42})
    policy = PPO(*creator.spaces(), passes=1, minibatches=2, reward_filter="sign", model={"vf_share_layers": True})
    source = RolloutWorker(creator, policy, num_envs=2, fragment_length=8)
    before = [p.detach().clone() for p in policy.parameters()]
    metrics = policy.learn_on_batch(source.sample())
    assert all(np.isfinite(value) for value in metrics.values())
    assert not any(torch.equal(old, new) for old, new in zip(before, policy.parameters(), strict=True))
