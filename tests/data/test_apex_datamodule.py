"""Ape-X: the ratio of acting, storing and learning when all three go on at the same time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from lightning_rl.config import check_config, compose_config
from lightning_rl.data.apex_datamodule import ApexDataModule, receive_and_replay
from lightning_rl.data.plans import NOT_READY
from lightning_rl.errors import ConfigError
from lightning_rl.policies.apex import ApexDQN
from lightning_rl.rollouts.worker_results import SampleReference
from lightning_rl.runs import run
from tests.envs.classic_control import CARTPOLE
from tests.families import each
from tests.rollouts.ray.programs import PROGRAM, descendants

SMALL = [
    "env=cartpole",
    "experiment=none",
    "logger=none",
    "evaluation.every_env_steps=0",
    "workers.logical_workers=2",
    "workers.fragment_length=8",
    "data.num_shards=2",
    "data.batch_size=16",
    "data.learning_starts=32",
    "data.capacity=200",
    "data.training_intensity=0.25",
    "data.fragments_per_iteration=1",
    "model.fcnet_hiddens=[8]",
]


def config(run_dir: Path, *overrides: str) -> dict[str, Any]:
    composed = compose_config(["policy=apex", *SMALL, f"run_dir={run_dir}", *overrides])
    check_config(composed)
    return composed


def train(run_dir: Path, *overrides: str, resume: bool = False) -> tuple[Any, Any]:
    """Policy and DataModule of a finished run whose processes, if any, are gone."""
    policy, datamodule, trainer = run.build(config(run_dir, *overrides))
    last = run_dir / "checkpoints" / "last.ckpt"
    run.fit(policy, datamodule, trainer, ckpt_path=last if resume else None)
    return policy, datamodule


def test_the_warm_up_is_a_share_of_the_run() -> None:
    """5% of 100,000 env steps, then 4 for the first of 0.25 gradient steps each."""
    whole = compose_config(["policy=apex", "env=cartpole", "experiment=none", "logger=none"])
    check_config(whole)
    assert run.build(whole)[1].ratio.first_step == 5004  # type: ignore[attr-defined]
    assert ApexDataModule(CARTPOLE).ratio.first_step == 5004


class Diary:
    """The default plan, with a note of what it gave."""

    events: list[tuple[str, int, int]]  # what, environment steps, gradient steps

    def __call__(self, workers: Any, policy: Any, replay: Any) -> Iterator[Any]:
        for item in receive_and_replay(workers, policy, replay):
            kind = "stored" if isinstance(item, SampleReference) else "drawn"
            type(self).events.append((kind, policy.env_steps, policy.gradient_steps))
            yield item


def recording_plan(workers: Any, policy: Any, replay: Any) -> Iterator[Any]:
    return Diary()(workers, policy, replay)


def assert_ratio(total: int, intensity: float) -> None:
    """What `Diary` saw: never a gradient step too many, and none missing in the end."""
    assert Diary.events[-1][1] >= total
    for kind, env_steps, gradient_steps in Diary.events:
        # A draw is taken before its gradient step is counted.
        assert gradient_steps + (kind == "drawn") <= int(max(0, env_steps - 32) * intensity)
    drawn = sum(kind == "drawn" for kind, _, _ in Diary.events)
    assert drawn == int((Diary.events[-1][1] - 32) * intensity)


@pytest.mark.parametrize("intensity", [0.25, 2.0])
def test_gradient_steps_come_as_soon_as_they_are_due(tmp_path: Path, intensity: float) -> None:
    Diary.events = []
    train(
        tmp_path / "run",
        "total_env_steps=100",
        f"data.training_intensity={intensity}",
        f"data.plan={__name__}:recording_plan",
    )
    assert_ratio(100, intensity)


def test_workers_take_turns_and_fragments_go_to_shards_in_turn(tmp_path: Path) -> None:
    """Worker 0 fills shard 0, as there are two of each."""
    _, datamodule = train(tmp_path / "run", "total_env_steps=30", "data.learning_starts=40")
    buffers = [shard.object.buffer for shard in datamodule.replay.shards]
    assert [buffer.added for buffer in buffers] == pytest.approx([16, 16], abs=2)  # resets are no steps
    assert datamodule.replay.shards[0].object.buffer.capacity == 100


def test_rows_begin_with_the_initial_priorities_of_their_worker(tmp_path: Path) -> None:
    """Before learning starts, the leaf of every row is (|δ| + ε)^α, by the first weights; a fragment in each shard."""
    policy, datamodule = train(tmp_path / "run", "total_env_steps=16", "data.learning_starts=40")
    buffer = datamodule.replay.shards[1].object.buffer
    ring = buffer.ring
    slots = np.flatnonzero(ring.flags >= 128)
    rows = buffer.rows(ring.ids(slots))
    errors = policy.learner.initial_priorities(rows).numpy()
    assert errors.std() > 0
    np.testing.assert_allclose(buffer.tree.get(slots), (errors + 1e-6) ** 0.6, rtol=1e-4)


def test_without_initial_priorities_all_new_rows_have_the_same_priority(tmp_path: Path) -> None:
    overrides = ["total_env_steps=30", "data.learning_starts=40", "data.initial_priorities=false"]
    _, datamodule = train(tmp_path / "run", *overrides)
    buffer = datamodule.replay.shards[0].object.buffer
    assert set(buffer.tree.get(np.flatnonzero(buffer.ring.flags >= 128))) == {1.0}


@pytest.mark.parametrize("key", ["initial_priorities", "prioritized"])
def test_rewards_in_shards_are_clipped_with_and_without_initial_priorities(tmp_path: Path, key: str) -> None:
    """CartPole pays 1; a wrapper that pays 5 is clipped to 1 again."""
    overrides = ["total_env_steps=30", "data.learning_starts=40", f"data.{key}=false", "policy.reward_filter=clip"]
    _, datamodule = train(tmp_path / "run", *overrides, f"env.wrappers=[{__name__}:PaysFive]")
    buffer = datamodule.replay.shards[0].object.buffer
    assert set(buffer.ring.columns.array("rewards")[buffer.ring.flags >= 128]) == {1.0}


class PaysFive(gym.RewardWrapper):
    """Each step pays five times as much."""

    def reward(self, reward: Any) -> Any:
        """Five times as much."""
        return 5 * reward


def test_learning_changes_priorities(tmp_path: Path) -> None:
    _, datamodule = train(tmp_path / "run", "total_env_steps=150", "data.training_intensity=1.0")
    for shard in datamodule.replay.shards:
        assert count_updates(shard.object.buffer.state_dict()) > 10


def count_updates(state: dict[str, Any]) -> int:
    """Rows of a saved buffer whose priority is no longer the one that their worker gave."""
    ring = state["ring"]
    (given,) = (column["rows"] for column in ring["columns"] if column["path"] == ["priorities"])
    leaves = state["priorities"]["tree"]["leaves"]
    drawable = ring["flags"] >= 128
    changed = (leaves[: len(given)] - (given.double() + 1e-6) ** 0.6).abs() > 1e-6
    return int((changed & drawable).sum())


def test_metrics_report_late_priority_updates(tmp_path: Path) -> None:
    policy, datamodule = train(tmp_path / "run", "total_env_steps=60")
    datamodule.replay.late_updates += 3
    metrics = datamodule_metrics(policy, datamodule)
    assert metrics["replay/late_updates"] == datamodule.replay.late_updates


def datamodule_metrics(policy: Any, datamodule: Any) -> dict[str, float]:
    empty = {"episode_returns": [], "episode_lengths": []}
    idle = {"get_metrics": lambda self: empty, "get_health": lambda self: {}}
    datamodule.workers = type("Workers", (), idle)()
    return datamodule.pop_iteration_metrics()


def test_observation_filters_take_in_every_fragment(tmp_path: Path) -> None:
    policy, _ = train(tmp_path / "run", "total_env_steps=60", "policy.observation_filter=mean_std")
    assert int(policy.observation_filter.moments.count) == policy.env_steps >= 60


def test_data_apex_feeds_every_algorithm_with_td_errors(tmp_path: Path) -> None:
    overrides = ["policy=sac", "env=pendulum", "data=apex", "workers=apex"]
    policy, datamodule = train(tmp_path / "run", *SMALL[1:], *overrides, "total_env_steps=60")
    assert policy.gradient_steps == 8 and len(datamodule.replay) == 64


def test_recurrent_models_need_initial_priorities_false(tmp_path: Path) -> None:
    sequences = ["policy=r2d2", "data=apex", *SMALL[1:], "data.sequence_length=4", "data.batch_size=4"]
    with pytest.raises(ConfigError, match=r"sequences.* set data\.initial_priorities=false"):
        train(tmp_path / "refused", *sequences, "total_env_steps=60")
    policy, _ = train(tmp_path / "run", *sequences, "data.initial_priorities=false", "total_env_steps=60")
    assert policy.gradient_steps == int((policy.env_steps - 32) * 0.25) > 0


def test_an_on_policy_algorithm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="data=on_policy"):
        train(tmp_path / "run", "policy=ppo", "data=apex", *SMALL[1:], "policy.minibatches=1")


def test_several_ranks_are_refused() -> None:
    env = CARTPOLE
    datamodule = ApexDataModule(env)
    datamodule.trainer = type("TwoRanks", (), {"world_size": 2})()  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"trainer\.devices=1"):
        datamodule.check_fits(ApexDQN(*env.spaces()))


@pytest.mark.parametrize("half", each([64, 72], default=[72]))
def test_in_one_process_a_resumed_run_is_the_run_without_a_stop(tmp_path: Path, half: int) -> None:
    overrides = ["data.requests_per_shard=3", f"checkpoint.every_env_steps={half}", "data.training_intensity=0.3"]
    whole, its_data = train(tmp_path / "whole", "total_env_steps=128", *overrides)
    train(tmp_path / "parts", f"total_env_steps={half}", *overrides)
    parts, their_data = train(tmp_path / "parts", "total_env_steps=128", *overrides, resume=True)
    assert whole.gradient_steps == parts.gradient_steps > 20
    for name, weights in whole.get_weights().items():
        assert np.array_equal(weights, parts.get_weights()[name]), name
    for one, other in zip(its_data.replay.shards, their_data.replay.shards, strict=True):
        leaves = [shard.object.buffer.state_dict()["priorities"]["tree"]["leaves"] for shard in (one, other)]
        assert torch.equal(*leaves)


# -- staleness, with workers of given speed ---------------------------------------------------------------------------
class Lagging:
    """Two requests are always in flight; they are done in order, each with 8 steps."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.weights = 0
        self.most = 0

    @property
    def oldest_gradient_steps(self) -> int | None:
        return min(self.waiting, default=None)

    def sync_weights(self, policy: Any) -> None:
        self.weights = policy.gradient_steps

    def submit_samples(
        self, per_process: int, env_steps: int, max_inflight: int | None = None, in_order: bool = False
    ) -> None:
        self.waiting += [self.weights] * (per_process - len(self.waiting))
        self.most = max(self.most, len(self.waiting))

    def next_sample(self, in_order: bool = False) -> SampleReference:
        return SampleReference([], 8, self.waiting.pop(0))


class Endless:
    """Shards that always have a batch."""

    def add(self, fragments: Any) -> None:
        """Nowhere."""

    def sample(self, env_steps: int) -> Any:
        return "batch"


@pytest.mark.parametrize(("limit", "staleness"), [(3, 3), (5, 5), (400, 8)])
def test_learning_waits_for_workers_with_old_weights(limit: int, staleness: int) -> None:
    """A gradient step per env step: unbounded, the second of two fragments of 8 steps is 8 gradient steps behind."""
    env = CARTPOLE
    policy = ApexDQN(*env.spaces(), model={"fcnet_hiddens": [4]})
    datamodule = ApexDataModule(
        env, num_shards=1, capacity=100, batch_size=1, learning_starts=1, training_intensity=1.0, max_staleness=limit
    )
    datamodule.ratio.learning_starts = 0
    datamodule._policy = lambda: policy
    workers = datamodule.workers = Lagging()
    datamodule.replay = Endless()
    behind = []
    for item in receive_and_replay(workers, policy, datamodule):
        if isinstance(item, SampleReference):
            behind.append(policy.gradient_steps - item.gradient_steps)
        else:
            assert item is not NOT_READY
            policy.gradient_steps += 1
        assert datamodule.due <= 16
        if policy.env_steps >= 200 and datamodule.due <= 0:
            break
    assert max(behind) == staleness and workers.most == 2
    assert policy.gradient_steps == policy.env_steps  # the ratio is kept all the same


# -- processes --------------------------------------------------------------------------------------------------------
def test_running_intrinsic_returns_of_several_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"RND .* of 2 workers .*set exploration\.normalize=false"):
        train(tmp_path / "run", "total_env_steps=64", "exploration=rnd", "workers.logical_workers=2")


@pytest.mark.ray(own_session=True)
def test_processes_act_and_replay_and_a_run_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    import ray

    Diary.events = []
    overrides = ["workers.num_workers=2", "data.training_intensity=0.5", f"data.plan={__name__}:recording_plan"]
    overrides += ["data.capacity=2000", "data.max_staleness=10"]
    policy, datamodule = train(tmp_path / "run", "total_env_steps=400", *overrides)
    assert_ratio(400, 0.5)
    assert not ray.is_initialized() and datamodule.workers is None
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)["ApexDataModule"]
    assert saved["ratio"]["taken"] == policy.gradient_steps
    shards = saved["replay"]["shards"]
    assert sum(shard["added"] for shard in shards) == policy.env_steps
    assert abs(shards[0]["added"] - shards[1]["added"]) < 100
    assert all(count_updates(shard) > 20 for shard in shards)

    Diary.events = []
    again, _ = train(tmp_path / "run", "total_env_steps=600", *overrides, resume=True)
    assert Diary.events[0][1] > policy.env_steps and Diary.events[0][2] >= policy.gradient_steps
    assert again.gradient_steps == int((again.env_steps - 32) * 0.5)
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)["ApexDataModule"]
    assert sum(shard["added"] for shard in saved["replay"]["shards"]) == again.env_steps


@pytest.mark.ray
def test_fragments_of_processes_hold_initial_priorities_of_their_weights(tmp_path: Path) -> None:
    """Nothing was learned: the learner's weights are those of the workers. One process has two of the three."""
    overrides = ["workers.num_workers=2", "workers.logical_workers=3", "data.learning_starts=300", "data.n_step=1"]
    policy, _ = train(tmp_path / "run", "total_env_steps=200", *overrides)
    saved = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)["ApexDataModule"]
    _, datamodule = train(tmp_path / "here", "total_env_steps=30", "data.learning_starts=300", "data.n_step=1")
    datamodule.replay.load_state_dict(saved["replay"])
    for shard in datamodule.replay.shards:
        buffer = shard.object.buffer
        slots = np.flatnonzero(buffer.ring.flags >= 128)
        errors = policy.learner.initial_priorities(buffer.rows(buffer.ring.ids(slots))).numpy()
        np.testing.assert_allclose(buffer.tree.get(slots), (errors + 1e-6) ** 0.6, rtol=1e-4)


@pytest.mark.ray
def test_observation_statistics_work_with_processes(tmp_path: Path) -> None:
    overrides = ["workers.num_workers=1", "policy.observation_filter=mean_std"]
    policy, _ = train(tmp_path / "run", "total_env_steps=100", *overrides)
    assert int(policy.observation_filter.moments.count) == policy.env_steps >= 100


@pytest.mark.ray
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize("ending", [pytest.param("success", marks=pytest.mark.slow), "ctrl-c"])
def test_no_process_is_left_behind(ending: str, tmp_path: Path) -> None:
    group = time.monotonic_ns()
    steps = "300" if ending == "success" else "1000000000"
    overrides = [*SMALL, f"total_env_steps={steps}", f"run_dir={tmp_path / 'run'}", "workers.num_workers=2"]
    overrides.append("report_every_env_steps=1")
    overrides.remove("logger=none")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("policy=ppo", "policy=apex"), *overrides],
        env={**os.environ, "LIGHTNING_RL_TEST_GROUP": str(group), "PYTHONPATH": os.getcwd()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if ending == "ctrl-c":
            assert wait_for(lambda: sum("ReplayShard" in command for command in descendants(group)) == 2, 60)
            assert wait_for((tmp_path / "run" / "metrics.csv").exists, 60)
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == {"success": 0, "ctrl-c": 130}[ending], errors
        assert wait_for(lambda: descendants(group) == [], 15)
    finally:
        process.kill()


def wait_for(state: Callable[[], bool], seconds: float) -> bool:
    """Wait until `state()` is true, at most `seconds`; gives the last state."""
    deadline = time.monotonic() + seconds
    while not state() and time.monotonic() < deadline:
        time.sleep(0.2)
    return state()
