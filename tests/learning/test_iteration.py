"""Iterations of runs with each kind of data: counters, modes, random numbers, priorities and hooks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_rl import Algorithm
from lightning_rl.callbacks import RLCallback
from lightning_rl.callbacks.hooks import LEARNER_HOOKS
from lightning_rl.config import check_config, compose_config
from lightning_rl.policies import A3C, DQN, ES, PPO, Policy, Rainbow
from lightning_rl.rollouts.rollout_worker import EPISODE_HOOKS
from lightning_rl.runs import run
from lightning_rl.sample_batch import SampleBatch, env_steps
from tests.families import each
from tests.learning.recording import recording

ITERATIONS = 3


class Hooks(RLCallback):
    """Records results and row counts of iterations; stops the run after `ITERATIONS`."""

    def __init__(self) -> None:
        self.learned: list[dict[str, float]] = []
        self.rows: list[tuple[int, int]] = []
        self.batches = 0

    def on_learn_on_batch(self, *, policy: Any, train_batch: SampleBatch, result: dict[str, float]) -> None:
        assert isinstance(train_batch, SampleBatch)
        self.learned.append(result)
        result["seen"] = 1.0

    def on_postprocess_trajectory(self, *, policy: Any, postprocessed_batch: Any, original_batch: Any) -> None:
        self.rows.append((env_steps(original_batch), postprocessed_batch.count))

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        self.batches += 1
        trainer.should_stop = self.batches == ITERATIONS


SMALL_REPLAY = ("data.learning_starts=32", "data.batch_size=16", "data.update_to_data_ratio=2", "exploration=random")
PIPELINES: dict[str, tuple[type[Policy], tuple[str, ...]]] = {
    "rollouts": (PPO, ("workers.fragment_length=16", "policy.passes=2", "policy.minibatches=2")),
    "replay": (DQN, SMALL_REPLAY),
    "prioritized replay": (Rainbow, SMALL_REPLAY),
    "gradients": (A3C, ("workers.fragment_length=16",)),
    "populations": (ES, ("data.directions=4",)),
}


def record_weights(base: type[Policy]) -> type[Policy]:
    """The algorithm, recording the least importance weight of each loss, too."""

    class Recorder(recording(base)):  # type: ignore[misc]
        weights: list[float]

        def loss(self, batch: SampleBatch) -> Any:
            self.weights.append(float(batch.get("weights", torch.ones(1)).min()))
            return super().loss(batch)

    return Recorder


def run_iterations(run_dir: Path, name: str, process_seed: int = 1) -> tuple[Any, Hooks]:
    """The policy after `ITERATIONS` of a run, and the callback that recorded them."""
    algorithm, overrides = PIPELINES[name]
    none = [f"{key}=none" for key in ("experiment", "logger", "evaluation")]
    fixed = [f"policy={algorithm.__name__.lower()}", f"run_dir={run_dir}", "trainer.enable_progress_bar=false"]
    config = compose_config([*none, *fixed, *overrides])
    check_config(config)
    hooks = Hooks()
    config["policy"]["_target_"], config["callbacks"] = record_weights(algorithm), [hooks]
    policy, data, trainer = run.build(config)
    policy.weights = []
    torch.manual_seed(process_seed)
    run.fit(policy, data, trainer)
    return policy, hooks


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Hooks]]:
    return {name: run_iterations(tmp_path_factory.mktemp(name), name) for name in PIPELINES}


@pytest.mark.parametrize("name", PIPELINES)
def test_each_pipeline_counts_iterations_and_calls_after_iteration_once_each(name: str, runs: Any) -> None:
    policy, hooks = runs[name]
    assert policy.iterations == len(policy.means) == hooks.batches == ITERATIONS
    assert len(hooks.learned) == sum("loss" in metrics for metrics in policy.means)  # replay warms up first
    assert all("lr" in metrics for metrics in policy.means)
    assert "loss" in policy.means[-1] and hooks.learned[-1] is policy.iteration_metrics
    assert policy.env_steps > 0 and policy.gradient_steps > 0 and all(note.training for note in policy.losses)


def test_on_postprocess_trajectory_gets_the_rollout_and_as_many_rows_as_it_has_valid_steps(runs: Any) -> None:
    rows = runs["rollouts"][1].rows
    assert len(rows) == ITERATIONS and all(experience == count > 0 for experience, count in rows)


@pytest.mark.parametrize(
    "name", each((name for name in PIPELINES if name != "populations"), default=("rollouts", "replay"))
)
def test_random_numbers_in_losses_follow_from_the_run_s_seed(name: str, runs: Any, tmp_path: Path) -> None:
    """And not from the state of the process's generator."""
    again, _ = run_iterations(tmp_path, name, process_seed=2)
    draws = [[note.drawn for note in policy.losses] for policy in (runs[name][0], again)]
    assert draws[0] == draws[1] and len(set(draws[0])) > ITERATIONS - 1


def test_td_errors_become_priorities_in_prioritized_replay_only(runs: Any) -> None:
    """So the importance weights of a draw differ after the first batch."""
    policy, _ = runs["prioritized replay"]
    assert policy.weights[0] == 1.0 and min(policy.weights[1:]) < 1.0
    assert set(runs["replay"][0].weights) == {1.0}


# -- hooks ------------------------------------------------------------------------------------------------------------
NAMES = (*EPISODE_HOOKS, *LEARNER_HOOKS)


def counting_hooks() -> tuple[RLCallback, Counter[str]]:
    """A callback with all hooks, the number of their calls, and that of calls with "rows"."""
    calls: Counter[str] = Counter()

    def counting(name: str) -> Any:
        def hook(self: Any, **arguments: Any) -> None:
            calls[name] += 1
            if name == "on_postprocess_trajectory":
                calls["rows"] += arguments["postprocessed_batch"].count > 0

        return hook

    return type("EveryHook", (RLCallback,), {name: counting(name) for name in NAMES})(), calls


ALL_PIPELINES = {
    "ppo": ["workers.fragment_length=64"],
    "dqn": list(SMALL_REPLAY[:2]),
    "rainbow": list(SMALL_REPLAY[:2]),
    "r2d2": ["data.learning_starts=64", "data.batch_size=2", "data.sequence_length=8", "data.burn_in=2"],
    "apex": ["data.learning_starts=64", "data.batch_size=16"],
    "impala": ["workers.fragment_length=32"],
    "a3c": ["workers.fragment_length=32"],
    "es": ["data.directions=4"],
}


@pytest.mark.parametrize("policy", each(ALL_PIPELINES))
def test_every_episode_and_learner_hook_is_called_in_every_pipeline(policy: str, tmp_path: Path) -> None:
    hooks, calls = counting_hooks()
    overrides = [f"run_dir={tmp_path}", *ALL_PIPELINES[policy]]
    algorithm = Algorithm(policy, "cartpole", overrides=overrides, config={"callbacks": [hooks]})
    while not set(NAMES) <= calls.keys() and algorithm.policy.iterations < 12:
        algorithm.train()
    algorithm.stop()
    assert not [name for name in NAMES if calls[name] == 0]
    assert calls["rows"] == calls["on_postprocess_trajectory"], "every call has rows"
