"""Evaluations: shared by ranks, in their own processes, and beside training, which they do not change."""

from __future__ import annotations

import re
import statistics
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from tests.data.small_runs import small_config
from tests.envs.classic_control import CARTPOLE
from tests.refusals import not_refused
from tests.rollouts.counting import Breaks, Counter
from tests.run_comparison import assert_equal

SHORT = (
    *("policy=ppo", "env=cartpole", "experiment=none", "model.fcnet_hiddens=[8]", "policy.minibatches=2"),
    *("workers.fragment_length=16", "workers.envs_per_worker=4", "checkpoint.keep=20", "total_env_steps=512"),
    *("evaluation.every_env_steps=128", "evaluation.episodes=5", "evaluation.max_share=null"),
)
STOPPER = "callback: lightning.pytorch.callbacks.EarlyStopping, monitor: eval/ep_rew_mean"
BESIDE = ("evaluation.num_workers=2", "evaluation.parallel=true")
OPTIONS = {"episodes": 5, "num_workers": 0, "parallel": False, "explore": False, "max_episode_steps": None}


def small_policy(env: EnvCreator = CARTPOLE) -> PPO:
    return PPO(*env.spaces(), model={"fcnet_hiddens": [8]})


def train(directory: Path, *overrides: str) -> dict[str, Any]:
    config = compose_config([*SHORT, f"run_dir={directory}", *overrides])
    check_config(config)
    return run.train(config)


@pytest.fixture
def workers_of() -> Iterator[Any]:
    """Makes the workers of a rank, and how many episodes it plays; stops them afterwards."""
    made: list[Any] = []

    def make(policy: Policy, rank: int = 0, ranks: int = 1, env: EnvCreator = CARTPOLE, **changes: Any) -> Any:
        made.append(evaluation_workers(env, policy, {**OPTIONS, **changes}, {}, seed=0, rank=rank, ranks=ranks))
        return made[-1]

    yield make
    for workers, _ in made:
        if workers is not None:
            workers.stop()


def test_ranks_share_the_episodes_and_play_different_ones(workers_of: Any) -> None:
    """Both would play the same ones if their environments had the same seeds."""
    policy = small_policy()
    for episodes, shares in ((5, [5]), (5, [3, 2]), (1, [1, 0])):
        found = [workers_of(policy, rank, len(shares), episodes=episodes) for rank in range(len(shares))]
        assert [(workers is not None, share) for workers, share in found] == [(share > 0, share) for share in shares]
    one, two = (workers_of(policy, rank, 2, episodes=6, explore=True) for rank in range(2))
    assert one[0].run_episodes(one[1]) != two[0].run_episodes(two[1])
    with pytest.raises(ConfigError, match=r"evaluation.parallel=true .* evaluation.num_workers=1"):
        workers_of(policy, parallel=True)


def test_parallel_episodes_are_returned_once_for_the_policy_that_played_them() -> None:
    learner = small_policy()
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
        np.testing.assert_equal(learner.get_weights(), before)
    assert learner.env_steps == 300
    np.testing.assert_equal(learner.get_weights(), after)
    workers.stop()


def test_sample_timeout_s_does_not_limit_evaluation_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    monkeypatch.setattr(evaluator_module, "make_worker_set", lambda *_, **keywords: made.update(keywords))
    limits = {"sample_timeout_s": 10.0, "start_timeout_s": 70.0}
    options = {**OPTIONS, "num_workers": 2}
    evaluation_workers(CARTPOLE, small_policy(), options, limits, seed=0, rank=0, ranks=1)
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
        assert_equal(other["state_dict"], none["state_dict"])


@pytest.mark.ray
@pytest.mark.timeout(400)
def test_parallel_evaluations_are_logged_at_the_steps_of_their_weights_which_best_files_hold(tmp_path: Path) -> None:
    """Each best file is played again with the seeds of its evaluation, which follow from its env steps."""
    status = train(tmp_path / "run", *BESIDE)
    rows = csv_rows(tmp_path / "run" / "metrics.csv")
    values = {int(row["env_steps"]): float(row["eval/ep_rew_mean"]) for row in rows if row["eval/ep_rew_mean"]}
    assert [*values][:: len(values) - 1] == [0, status["env_steps"]]  # the first and the last weights of training
    found = {}
    for file in (tmp_path / "run" / "checkpoints").glob("best_*.ckpt"):
        match = re.fullmatch(r"best_(\d+)_(-?\d+\.\d+)\.ckpt", file.name)
        assert match is not None
        policy = Policy.load(str(file))
        assert policy.env_steps == int(match[1])
        played = []
        for index, episodes in enumerate((3, 2)):
            workers = WorkerSet(CARTPOLE, policy, [index], num_envs=3, stream="evaluation", explore=False)
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
    stopper = f"callbacks=[{{{STOPPER}, mode: max, stopping_threshold: 2.0}}]"
    status = train(tmp_path / "run", *BESIDE, stopper, "total_env_steps=100_000")
    assert status["state"] == "ok" and status["env_steps"] < 1000


def test_an_evaluation_of_episodes_that_do_not_end_is_cut_and_says_so_once(workers_of: Any) -> None:
    """Each of two environments plays 50 steps: 1 + 2 + … + 50 = 1275."""
    env = EnvCreator(Counter, {"length": 1000})
    policy = small_policy(env)
    made = workers_of(policy, env=env, episodes=2, max_episode_steps=50)
    evaluator = Evaluator(*made, max_episode_steps=50)
    with pytest.warns(UserWarning, match=r"2 of 2 episodes.*env.max_episode_steps=1000"):
        assert evaluator.evaluate(policy) == [(1275.0, 50)] * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluator.evaluate(policy)


def test_numbers_that_are_not_finite_end_an_evaluation_with_an_error() -> None:
    cases = [("obs", r"observation.*NaN"), ("reset", r"observation.*NaN"), ("reward", "nan in 5 steps")]
    policy = small_policy(EnvCreator(Counter))

    def play(part: str) -> None:
        env = EnvCreator(Breaks, {"part": part}, check=False)
        WorkerSet(env, policy, num_envs=2, max_env_restarts=0).run_episodes(2)

    assert not_refused(play, cases, EnvError) == []


def test_episodes_of_an_evaluation_depend_on_its_env_steps_and_not_on_how_many_there_were(workers_of: Any) -> None:
    policy = small_policy()
    every, seldom = (Evaluator(*workers_of(policy)) for _ in range(2))
    found = []
    for policy.env_steps in (1000, 2000, 3000):
        found.append(every.evaluate(policy))
    assert seldom.evaluate(policy) == found[-1]  # the first two were postponed
    assert found[0] != found[1] != found[2]
    assert every.evaluate(policy) != found[-1]  # once more, with other seeds


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), 0.2),
        (("stop.return=400",), 0.2),
        (("stop.metric=eval/ep_rew_mean",), 0.2),
        (("stop.metric=eval/ep_rew_mean", "stop.return=400"), None),
        ((f"callbacks=[{{{STOPPER}}}]",), None),
    ],
)
def test_no_evaluation_is_postponed_where_evaluations_end_the_run(
    tmp_path: Path, overrides: tuple[str, ...], expected: float | None
) -> None:
    assert (
        run.build(small_config(tmp_path, "evaluation.every_env_steps=5%", *overrides))[1].epochs.max_share == expected
    )


def test_a_run_whose_policy_never_ends_an_episode_ends(tmp_path: Path) -> None:
    overrides = ["policy=ppo", "env.id=tests.rollouts.counting:Counter", "env.kwargs={length: 1000000}"]
    with pytest.warns(UserWarning, match="40 steps"):
        status = train(tmp_path, *overrides, "env=custom", "evaluation.max_episode_steps=40")
    assert (status["state"], status["evaluation"]) == ("ok", 40 * 41 / 2)
