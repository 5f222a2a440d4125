"""PopulationSource (ES and ARS): which worker evaluates which perturbation, and equal runs in processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_rl.data.datamodule import RolloutDataModule
from lightning_rl.data.population_source import PopulationSource
from tests.data.small_runs import fit
from tests.families import each
from tests.run_comparison import assert_equal_weights

SMALL = ["env.max_episode_steps=20", "workers.logical_workers=2", "data.directions=5"]
EVALUATED = ["evaluation.episodes=2", "evaluation.max_share=null", "evaluation.every_env_steps=200"]
SLOWER = {"es": ["policy.lr=[[0,0.05],[2000,0.0]]"], "ars": ["policy.top_directions=3"]}


def train(run_dir: Path, policy: str = "es", *overrides: str) -> Any:
    """The policy of a finished run."""
    return fit(run_dir, f"policy={policy}", "model.fcnet_hiddens=[]", *SMALL, *SLOWER[policy], *overrides)[0]


@pytest.mark.parametrize("policy", each(["es", "ars"]))
def test_an_iteration_is_one_step_on_one_population(tmp_path: Path, policy: str) -> None:
    """Five directions both ways are ten episodes of 9 to 20 steps; evaluation and metrics are as everywhere."""
    learner = train(tmp_path, policy, "total_env_steps=600", *EVALUATED)
    metrics, iterations = learner.reported, learner.iterations
    assert learner.gradient_steps == iterations and 90 * iterations <= learner.env_steps <= 200 * iterations
    assert metrics["rollout/episodes"] == 10 * iterations and metrics["rollout/policy_lag"] == 0
    assert 8 <= metrics["rollout/ep_len_mean"] <= 20 and metrics["eval/ep_rew_mean"] >= 8
    assert metrics["train/return_max"] >= metrics["train/return_mean"] > 5 and metrics["train/grad_norm"] > 0
    assert int(learner.observation_filter.moments.count) == learner.env_steps


def source_in_an_iteration(workers: Any = None, seed: int = 0, **keywords: Any) -> tuple[PopulationSource, Any]:
    """A source within an iteration, and its policy, of which it reads the number of iterations."""
    source = PopulationSource(**keywords)
    RolloutDataModule({"id": "CartPole-v1"}, workers, None, source, seed=seed)
    source.policy = SimpleNamespace(iterations=0)
    return source, source.policy


def test_workers_share_the_directions_and_every_perturbation_has_its_own_seed() -> None:
    source, policy = source_in_an_iteration({"logical_workers": 2}, directions=5, seed=3)
    seeds = []
    for policy.iterations in range(3):
        shares = source.shares([0, 1])
        assert [len(mine) for mine, _ in shares.values()] == [3, 2] and all(not own for _, own in shares.values())
        assert shares == source.shares([0, 1])
        seeds += [seed for mine, _ in shares.values() for seed in mine]
    assert len(set(seeds)) == 15


def test_eval_prob_is_the_share_of_episodes_of_the_policy_itself(tmp_path: Path) -> None:
    source, _ = source_in_an_iteration(directions=1000, eval_prob=0.2)
    ((_, own),) = source.shares([0]).values()
    assert 150 < len(own) < 250
    learner = train(tmp_path, "es", "total_env_steps=100", "data.eval_prob=1.0")
    assert learner.reported["rollout/episodes"] == 20 * learner.iterations
    assert 5 < learner.reported["train/own_return"] <= 20


@pytest.mark.ray
@pytest.mark.parametrize("policy", ["es", pytest.param("ars", marks=pytest.mark.slow)])
def test_processes_do_not_change_the_result(tmp_path: Path, policy: str) -> None:
    """Two logical workers in this process, in two others, and in one other: the same weights, bit for bit."""
    here, *others = (
        train(tmp_path / str(count), policy, "total_env_steps=400", f"workers.num_workers={count}")
        for count in (0, 2, 1)
    )
    for other in others:
        assert here.env_steps == other.env_steps and here.gradient_steps == other.gradient_steps > 1
        assert_equal_weights(here, other)
        assert here.reported["rollout/ep_rew_mean"] == other.reported["rollout/ep_rew_mean"]
