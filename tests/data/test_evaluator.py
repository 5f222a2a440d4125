"""Evaluations: shared by ranks, in their own processes, and beside training, which they do not change."""

from __future__ import annotations

import re
import statistics
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import lightning_rl.data.evaluator as evaluator_module
from lightning_rl.config import check_config, compose_config
from lightning_rl.data.evaluator import Evaluator, evaluation_workers
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError, EnvError
from lightning_rl.policies import PPO, Policy
from lightning_rl.rollouts import WorkerSet
from lightning_rl.runs import run
from tests.callbacks.log_files import csv_rows
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.counting import Counter

SHORT = (
    "policy=ppo",
    "env=cartpole",
    "experiment=none",
    "model.fcnet_hiddens=[8]",
    "workers.fragment_length=16",
    "workers.envs_per_worker=4",
    "policy.minibatches=2",
    "evaluation.every_env_steps=128",
    "total_env_steps=512",
    "evaluation.episodes=5",
    "evaluation.max_share=null",
    "checkpoint.keep=20",
    "trainer.enable_progress_bar=false",
)
BESIDE = ("evaluation.num_workers=2", "evaluation.parallel=true")
OPTIONS = {"episodes": 5, "num_workers": 0, "parallel": False, "explore": False, "max_episode_steps": None}


def cartpole_policy() -> Policy:
    env = gym.make("CartPole-v1")
    return PPO(env.observation_space, env.action_space, model={"fcnet_hiddens": [8]})


def train(directory: Path, *overrides: str) -> dict[str, Any]:
    config = compose_config([*SHORT, f"run_dir={directory}", *overrides])
    check_config(config)
    return run.train(config)


def shares(ranks: int, **changes: Any) -> list[tuple[bool, int]]:
    """Whether each rank has workers, and how many episodes it plays."""
    env, policy = CARTPOLE, cartpole_policy()
    made = []
    for rank in range(ranks):
        workers, episodes = evaluation_workers(env, policy, {**OPTIONS, **changes}, {}, seed=0, rank=rank, ranks=ranks)
        made.append((workers is not None, episodes))
        if workers is not None:
            workers.stop()
    return made


def test_ranks_share_the_episodes() -> None:
    assert shares(1) == [(True, 5)]
    assert shares(2) == [(True, 3), (True, 2)]
    assert shares(2, episodes=1) == [(True, 1), (False, 0)]


def test_ranks_play_different_episodes() -> None:
    """Both would play the same ones if their environments had the same seeds."""
    env, policy = CARTPOLE, cartpole_policy()
    played = []
    for rank in range(2):
        workers, episodes = evaluation_workers(
            env, policy, {**OPTIONS, "episodes": 6, "explore": True}, {}, seed=0, rank=rank, ranks=2
        )
        played.append(workers.run_episodes(episodes))
        workers.stop()
    assert played[0] != played[1]


def test_parallel_evaluation_needs_processes() -> None:
    with pytest.raises(ConfigError, match=r"evaluation.parallel=true .* evaluation.num_workers=1"):
        shares(1, parallel=True)


def test_parallel_episodes_are_returned_once_for_the_policy_that_played_them() -> None:
    learner = cartpole_policy()
    workers = WorkerSet(CARTPOLE, learner.copy_for_acting(), [0], num_envs=2, stream="evaluation")
    evaluator = Evaluator(workers, 4, parallel=True)
    assert evaluator.finish() == []
    learner.env_steps = 100
    before = learner.get_weights()
    evaluator.begin(learner)
    learner.env_steps = 300
    torch.nn.init.ones_(next(learner.parameters()))
    after = learner.get_weights()
    evaluator.begin(learner)  # still playing: no result
    assert len(evaluator.finish()) == 4
    assert evaluator.finish() == []
    assert evaluator.reported is not None
    assert evaluator.reported.counters["env_steps"] == 100
    with evaluator.reported_policy(learner):
        assert learner.env_steps == 100
        assert all((learner.get_weights()[name] == before[name]).all() for name in before)
    assert learner.env_steps == 300
    assert all((learner.get_weights()[name] == after[name]).all() for name in after)
    workers.stop()


def test_sample_timeout_s_does_not_limit_evaluation_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(evaluator_module, "make_worker_set", lambda *_, **keywords: made.update(keywords))
    limits = {"sample_timeout_s": 10.0, "start_timeout_s": 70.0}
    options = {**OPTIONS, "num_workers": 2}
    evaluation_workers(CARTPOLE, cartpole_policy(), options, limits, seed=0, rank=0, ranks=1)
    assert made["sample_timeout_s"] is None and made["start_timeout_s"] == 70.0


@pytest.mark.ray
@pytest.mark.timeout(400)
def test_training_is_bit_equal_with_parallel_with_sequential_and_without_evaluation(tmp_path: Path) -> None:
    how = {"none": ("evaluation.every_env_steps=0",), "between": (), "beside": BESIDE}
    for name, overrides in how.items():
        assert train(tmp_path / name, *overrides)["state"] == "ok"
    none, *others = (torch.load(tmp_path / name / "checkpoints" / "last.ckpt") for name in how)
    for other in others:
        assert other["counters"] == none["counters"]
        for name, value in none["state_dict"].items():
            assert torch.equal(other["state_dict"][name], value), name


@pytest.mark.ray
@pytest.mark.timeout(400)
def test_parallel_evaluations_are_logged_at_the_steps_of_their_weights_which_best_files_hold(tmp_path: Path) -> None:
    """Each best file is played again with the seeds of its evaluation, which follow from its env steps."""
    status = train(tmp_path / "run", *BESIDE)
    rows = csv_rows(tmp_path / "run" / "metrics.csv")
    values = {int(row["env_steps"]): float(row["eval/ep_rew_mean"]) for row in rows if row["eval/ep_rew_mean"]}
    steps = list(values)
    assert steps[0] == 0  # the weights that training began with
    assert steps[-1] == status["env_steps"]  # and those that it ended with
    found = {}
    for file in (tmp_path / "run" / "checkpoints").glob("best_*.ckpt"):
        match = re.fullmatch(r"best_(\d+)_(-?\d+\.\d+)\.ckpt", file.name)
        assert match is not None
        policy = Policy.load(str(file))
        assert policy.env_steps == int(match[1])
        creator, played = CARTPOLE, []
        for index, episodes in enumerate((3, 2)):
            workers = WorkerSet(creator, policy, [index], num_envs=3, stream="evaluation", explore=False)
            workers.workers[0].fragment = policy.env_steps
            played += workers.run_episodes(episodes)
            workers.stop()
        found[int(match[1])] = statistics.fmean(ret for ret, _ in played)
    assert found == pytest.approx(values)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(400)
def test_early_stopping_uses_the_values_of_parallel_evaluations(tmp_path: Path) -> None:
    """CartPole pays 1 a step, so the first value passes the threshold at the first validation."""
    stopper = (
        "callbacks=[{callback: lightning.pytorch.callbacks.EarlyStopping, monitor: eval/ep_rew_mean, mode: max,"
        " stopping_threshold: 2.0}]"
    )
    status = train(tmp_path / "run", *BESIDE, stopper, "total_env_steps=100_000")
    assert status["state"] == "ok"
    assert status["env_steps"] < 1000


def test_an_evaluation_of_episodes_that_do_not_end_is_cut_and_says_so_once() -> None:
    """Each of two environments plays 50 steps: 1 + 2 + … + 50 = 1275."""
    env, options = EnvCreator(Counter, {"length": 1000}), {**OPTIONS, "episodes": 2, "max_episode_steps": 50}
    policy = PPO(*env.spaces(), model={"fcnet_hiddens": [8]})
    workers, episodes = evaluation_workers(env, policy, options, {}, seed=0, rank=0, ranks=1)
    evaluator = Evaluator(workers, episodes, max_episode_steps=50)
    with pytest.warns(UserWarning, match=r"2 of 2 episodes.*env.max_episode_steps=1000"):
        assert evaluator.evaluate(policy) == [(1275.0, 50)] * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluator.evaluate(policy)
    workers.stop()


class Lost(Counter):
    """Its third step has a reward or an observation that is no number, or its reset has such an observation."""

    def __init__(self, part: str) -> None:
        super().__init__(length=5)
        self.part = part

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(**keywords)
        return (obs * np.nan if self.part == "reset" else obs), info

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *ends, info = super().step(action)
        if self.count == 3:
            obs, reward = (obs * np.nan, reward) if self.part == "obs" else (obs, float("nan"))
        return obs, reward, *ends, info


@pytest.mark.parametrize(
    ("part", "words"), [("obs", r"observation.*NaN"), ("reset", r"observation.*NaN"), ("reward", "nan in 5 steps")]
)
def test_numbers_that_are_not_finite_end_an_evaluation_with_an_error(part: str, words: str) -> None:
    policy = PPO(*EnvCreator(Counter).spaces(), model={"fcnet_hiddens": [8]})
    workers = WorkerSet(EnvCreator(Lost, {"part": part}, check=False), policy, num_envs=2, max_env_restarts=0)
    with pytest.raises(EnvError, match=words):
        workers.run_episodes(2)
    workers.stop()


def test_episodes_of_an_evaluation_depend_on_its_env_steps_and_not_on_how_many_there_were() -> None:
    policy = PPO(*CARTPOLE.spaces(), model={"fcnet_hiddens": [8]})

    def evaluator() -> Evaluator:
        workers, episodes = evaluation_workers(CARTPOLE, policy, OPTIONS, {}, seed=0, rank=0, ranks=1)
        return Evaluator(workers, episodes)

    every, seldom = evaluator(), evaluator()
    found = []
    for policy.env_steps in (1000, 2000, 3000):
        found.append(every.evaluate(policy))
    assert seldom.evaluate(policy) == found[-1]  # the first two were put off
    assert found[0] != found[1] != found[2]
    assert every.evaluate(policy) != found[-1]  # once more, with other seeds
    every.workers.stop()
    seldom.workers.stop()


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), 0.2),
        (("stop.return=400",), 0.2),
        (("stop.metric=eval/ep_rew_mean",), 0.2),
        (("stop.metric=eval/ep_rew_mean", "stop.return=400"), None),
        (("callbacks=[{callback: lightning.pytorch.callbacks:EarlyStopping, monitor: eval/ep_rew_mean}]",), None),
    ],
)
def test_no_evaluation_is_put_off_where_evaluations_end_the_run(
    tmp_path: Path, overrides: tuple[str, ...], expected: float | None
) -> None:
    config = compose_config(["env=cartpole", "experiment=none", "logger=none", f"run_dir={tmp_path}", *overrides])
    check_config(config)
    _, datamodule, _ = run.build(config)
    assert datamodule.epochs.max_share == expected


def test_a_run_whose_policy_never_ends_an_episode_ends(tmp_path: Path) -> None:
    overrides = ["policy=ppo", "env.id=tests.rollouts.counting:Counter", "env.kwargs={length: 1000000}"]
    with pytest.warns(UserWarning, match="40 steps"):
        status = train(tmp_path, *overrides, "env=custom", "evaluation.max_episode_steps=40")
    assert (status["state"], status["evaluation"]) == ("ok", 40 * 41 / 2)
