"""PopulationDataModule (ES and ARS): which worker evaluates which perturbation, and equal runs after a resume."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_rl.callbacks.metrics import latest_metrics
from lightning_rl.config import check_config, compose_config
from lightning_rl.data.population_datamodule import PopulationDataModule
from lightning_rl.errors import ConfigError
from lightning_rl.runs import run
from tests.families import each
from tests.run_comparison import assert_equal_weights

SMALL = [
    "env=cartpole",
    "experiment=none",
    "logger=none",
    "env.max_episode_steps=20",
    "evaluation.episodes=2",
    "evaluation.max_share=null",
    "workers.logical_workers=2",
    "data.directions=5",
    "evaluation.every_env_steps=200",
]
SLOWER = {"es": ["policy.lr=[[0,0.05],[2000,0.0]]"], "ars": ["policy.top_directions=3"]}


def config(run_dir: Path, policy: str = "es", *overrides: str) -> dict[str, Any]:
    composed = compose_config([f"policy={policy}", *SMALL, *SLOWER[policy], f"run_dir={run_dir}", *overrides])
    check_config(composed)
    return composed


def train(run_dir: Path, policy: str = "es", *overrides: str, resume: bool = False) -> Any:
    """The policy of a finished run, and the newest value of each metric."""
    learner, datamodule, trainer = run.build(config(run_dir, policy, *overrides))
    run.fit(learner, datamodule, trainer, run_dir / "checkpoints" / "last.ckpt" if resume else None)
    learner.reported = latest_metrics(trainer)
    return learner


def assert_equal_runs(first: Any, second: Any) -> None:
    assert first.env_steps == second.env_steps and first.gradient_steps == second.gradient_steps > 1
    assert_equal_weights(first, second)


@pytest.mark.parametrize("policy", each(["es", "ars"]))
def test_an_iteration_is_one_step_on_one_population(tmp_path: Path, policy: str) -> None:
    """Five directions both ways are ten episodes of 9 to 20 steps; evaluation and metrics are as everywhere."""
    learner = train(tmp_path, policy, "total_env_steps=600")
    metrics, iterations = learner.reported, learner.iterations
    assert learner.gradient_steps == iterations and 90 * iterations <= learner.env_steps <= 200 * iterations
    assert metrics["rollout/episodes"] == 10 * iterations and metrics["rollout/staleness"] == 0
    assert 8 <= metrics["rollout/ep_len_mean"] <= 20 and metrics["eval/ep_rew_mean"] >= 8
    assert metrics["train/return_max"] >= metrics["train/return_mean"] > 5 and metrics["train/grad_norm"] > 0
    assert int(learner.observation_filter.moments.count) == learner.env_steps


@pytest.mark.parametrize("policy", each(["es", "ars"]))
def test_a_resumed_run_is_the_run_without_a_stop(tmp_path: Path, policy: str) -> None:
    overrides = ["checkpoint.every_env_steps=300"]
    half = train(tmp_path / "parts", policy, "total_env_steps=300", *overrides)
    whole = train(tmp_path / "whole", policy, "total_env_steps=900", *overrides)
    parts = train(tmp_path / "parts", policy, "total_env_steps=900", *overrides, resume=True)
    assert half.gradient_steps < parts.gradient_steps
    assert_equal_runs(whole, parts)


def test_workers_share_the_directions_and_every_perturbation_has_its_own_seed() -> None:
    data = PopulationDataModule({"id": "CartPole-v1"}, {"logical_workers": 2}, directions=5, seed=3)
    data.trainer = SimpleNamespace(world_size=1)  # type: ignore[assignment]
    seeds = []
    for iteration in range(3):
        data._policy = lambda: SimpleNamespace(iterations=iteration)  # type: ignore[method-assign]  # noqa: B023
        shares = data.shares([0, 1])
        assert [len(mine) for mine, _ in shares.values()] == [3, 2] and all(not own for _, own in shares.values())
        assert shares == data.shares([0, 1])
        seeds += [seed for mine, _ in shares.values() for seed in mine]
    assert len(set(seeds)) == 15


def test_eval_prob_is_the_share_of_episodes_of_the_policy_itself(tmp_path: Path) -> None:
    data = PopulationDataModule({"id": "CartPole-v1"}, directions=1000, eval_prob=0.2)
    data.trainer = SimpleNamespace(world_size=1)  # type: ignore[assignment]
    data._policy = lambda: SimpleNamespace(iterations=0)  # type: ignore[method-assign]
    ((_, own),) = data.shares([0]).values()
    assert 150 < len(own) < 250
    learner = train(tmp_path, "es", "total_env_steps=100", "data.eval_prob=1.0")
    assert learner.reported["rollout/episodes"] == 20 * learner.iterations
    assert 5 < learner.reported["train/own_return"] <= 20


def test_fewer_directions_than_workers_are_refused(tmp_path: Path) -> None:
    learner, datamodule, trainer = run.build(config(tmp_path, "es", "workers.logical_workers=6"))
    with pytest.raises(ConfigError, match=r"data\.directions=5 for 6 workers"):
        run.fit(learner, datamodule, trainer)


@pytest.mark.ray
@pytest.mark.parametrize("policy", ["es", pytest.param("ars", marks=pytest.mark.slow)])
def test_processes_do_not_change_the_result(tmp_path: Path, policy: str) -> None:
    """Two logical workers in this process, in two others, and in one other: the same weights, bit for bit."""
    here, two, one = (
        train(tmp_path / str(count), policy, "total_env_steps=400", f"workers.num_workers={count}")
        for count in (0, 2, 1)
    )
    assert_equal_runs(here, two)
    assert_equal_runs(here, one)
    assert here.reported["rollout/ep_rew_mean"] == two.reported["rollout/ep_rew_mean"]
