"""Ape-X: the ratio of acting, storing and learning when all three go on at the same time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from lightning_rl.data.datamodule import RolloutDataModule
from lightning_rl.data.sharded_feed import ShardedReplayFeed, receive_and_replay
from lightning_rl.policies.apex import ApexDQN
from lightning_rl.rollouts.worker_results import SampleReference
from lightning_rl.runs import run
from tests.data.small_runs import APEX, EVENTS, assert_ratio, fit, small_config
from tests.data.virtual_workers import Virtual
from tests.envs.classic_control import CARTPOLE

EARLY = ["total_env_steps=30", "data.learning_starts=40"]  # nothing is learned


def train(run_dir: Path, *overrides: str, resume: bool = False) -> tuple[Any, Any]:
    """Policy and DataModule of a finished run."""
    return fit(run_dir, *APEX, *overrides, resume=resume)


def buffers_of(datamodule: Any) -> list[Any]:
    return [shard.object.buffer for shard in datamodule.source.buffer.shards]


def drawable_slots(buffer: Any) -> np.ndarray:
    return np.flatnonzero(buffer.ring.flags >= 128)


def assert_initial_priorities(policy: Any, buffer: Any) -> None:
    """The leaf of every row is (|δ| + ε)^α, by the policy's weights."""
    slots = drawable_slots(buffer)
    errors = policy.learner.initial_priorities(buffer.rows(buffer.ring.ids(slots))).numpy()
    assert errors.std() > 0
    np.testing.assert_allclose(buffer.tree.get(slots), (errors + 1e-6) ** 0.6, rtol=1e-4)


def test_the_warm_up_is_a_share_of_the_run(tmp_path: Path) -> None:
    """5% of 100,000 env steps, then 4 for the first of 0.25 gradient steps each."""
    assert run.build(small_config(tmp_path, "policy=apex"))[1].source.ratio.first_step == 5004  # type: ignore[attr-defined]
    assert ShardedReplayFeed().ratio.first_step == 5004


def test_workers_take_turns_and_fragments_go_to_shards_in_turn(tmp_path: Path) -> None:
    """Worker 0 fills shard 0, as there are two of each."""
    buffers = buffers_of(train(tmp_path, *EARLY)[1])
    assert [buffer.added for buffer in buffers] == pytest.approx([16, 16], abs=2)  # resets are no steps
    assert buffers[0].capacity == 100


def test_rows_begin_with_the_initial_priorities_of_their_worker(tmp_path: Path) -> None:
    """Before learning starts, by the first weights; a fragment in each shard."""
    policy, datamodule = train(tmp_path, *EARLY, "total_env_steps=16")
    assert_initial_priorities(policy, buffers_of(datamodule)[1])


@pytest.mark.parametrize("key", ["initial_priorities", "prioritized"])
def test_rewards_in_shards_are_clipped_and_new_rows_may_have_one_priority(tmp_path: Path, key: str) -> None:
    """CartPole pays 1; a wrapper that pays 5 is clipped to 1 again."""
    wrapped = ["policy.reward_filter=clip", f"env.wrappers=[{__name__}:PaysFive]"]
    buffer = buffers_of(train(tmp_path, *EARLY, *wrapped, f"data.{key}=false")[1])[0]
    assert set(buffer.ring.columns.array("rewards")[drawable_slots(buffer)]) == {1.0}
    assert key == "prioritized" or set(buffer.tree.get(drawable_slots(buffer))) == {1.0}


class PaysFive(gym.RewardWrapper):
    """Each step pays five times as much."""

    def reward(self, reward: Any) -> Any:
        """Five times as much."""
        return 5 * reward


def test_learning_changes_priorities(tmp_path: Path) -> None:
    _, datamodule = train(tmp_path, "total_env_steps=150", "data.update_to_data_ratio=1.0")
    assert all(count_updates(buffer.state_dict()) > 10 for buffer in buffers_of(datamodule))


def count_updates(state: dict[str, Any]) -> int:
    """Rows of a saved buffer whose priority is no longer the one that their worker gave."""
    ring = state["ring"]
    (given,) = (column["rows"] for column in ring["columns"] if column["path"] == ["priorities"])
    leaves = state["priorities"]["tree"]["leaves"][: len(given)]
    changed = (leaves - (given.double() + 1e-6) ** 0.6).abs() > 1e-6
    return int((changed & (ring["flags"] >= 128)).sum())


def test_metrics_report_late_priority_updates(tmp_path: Path) -> None:
    _, datamodule = train(tmp_path, "total_env_steps=60")
    datamodule.source.buffer.late_updates += 3
    empty = {"episode_returns": [], "episode_lengths": []}
    datamodule.workers = SimpleNamespace(get_metrics=lambda: empty, get_health=dict)
    assert datamodule.pop_iteration_metrics()["replay/late_updates"] == datamodule.source.buffer.late_updates


@pytest.mark.parametrize("processes", [0, pytest.param(1, marks=pytest.mark.ray)])
def test_observation_filters_take_in_every_fragment(tmp_path: Path, processes: int) -> None:
    filtered = ["policy.observation_filter=mean_std", f"workers.num_workers={processes}"]
    policy, _ = train(tmp_path, "total_env_steps=100", *filtered)
    assert int(policy.observation_filter.moments.count) == policy.env_steps >= 100


def test_data_apex_feeds_every_algorithm_with_td_errors(tmp_path: Path) -> None:
    continuous = ["policy=sac", "env=pendulum", "data=apex", "workers=apex"]
    policy, datamodule = train(tmp_path, *continuous, "total_env_steps=60")
    assert policy.gradient_steps == 8 and len(datamodule.source.buffer) == 64


def test_recurrent_models_learn_without_initial_priorities(tmp_path: Path) -> None:
    sequences = ["policy=r2d2", "data=apex", "data.sequence_length=4", "data.batch_size=4"]
    policy, _ = train(tmp_path, *sequences, "data.initial_priorities=false", "total_env_steps=60")
    assert policy.gradient_steps == int((policy.env_steps - 32) * 0.25) > 0


# -- policy lag, with workers of given speed --------------------------------------------------------------------------
@pytest.mark.parametrize(("limit", "policy_lag"), [(3, 3), (5, 5), (400, 8)])
def test_learning_waits_for_workers_with_old_weights(limit: int, policy_lag: int) -> None:
    """A gradient step per env step: unbounded, the second of two fragments of 8 steps is 8 gradient steps behind."""
    policy = ApexDQN(*CARTPOLE.spaces(), model={"fcnet_hiddens": [4]})
    one: dict[str, Any] = {"num_shards": 1, "batch_size": 1, "learning_starts": 1, "update_to_data_ratio": 1.0}
    feed, workers = ShardedReplayFeed(capacity=100, max_policy_lag=limit, **one), Virtual(1.0)
    data = RolloutDataModule(CARTPOLE, None, None, feed)
    data.workers, data.trainer = workers, SimpleNamespace(lightning_module=policy, callbacks=())
    feed.ratio.learning_starts, feed.policy = 0, policy
    feed.buffer = SimpleNamespace(add=lambda fragments: None, sample=lambda env_steps: "batch")
    behind = []
    for item in receive_and_replay(workers, policy, feed):
        if isinstance(item, SampleReference):
            behind.append(policy.gradient_steps - item.gradient_steps)
        else:
            policy.gradient_steps += 1
        assert feed.due <= 16
        if policy.env_steps >= 200 and feed.due <= 0:
            break
    assert max(behind) == policy_lag and workers.most == 2
    assert policy.gradient_steps == policy.env_steps  # the ratio is kept all the same


# -- processes --------------------------------------------------------------------------------------------------------
@pytest.mark.ray(own_session=True)
def test_processes_act_and_replay_and_a_run_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    import ray

    overrides = [
        "workers.num_workers=2",
        "data.update_to_data_ratio=0.5",
        "data.capacity=2000",
        "data.max_policy_lag=10",
    ]
    overrides.append("data.plan=tests.data.small_runs:recorded_apex")
    policy, datamodule = train(tmp_path, "total_env_steps=400", *overrides)
    assert_ratio(400, 0.5)
    assert not ray.is_initialized() and datamodule.workers is None
    saved = saved_data(tmp_path)
    assert saved["ratio"]["taken"] == policy.gradient_steps
    shards = saved["replay"]["shards"]
    assert sum(shard["added"] for shard in shards) == policy.env_steps
    assert abs(shards[0]["added"] - shards[1]["added"]) < 100
    assert all(count_updates(shard) > 20 for shard in shards)

    again, _ = train(tmp_path, "total_env_steps=600", *overrides, resume=True)
    assert EVENTS[0][1] > policy.env_steps and EVENTS[0][2] >= policy.gradient_steps
    assert again.gradient_steps == int((again.env_steps - 32) * 0.5)
    assert sum(shard["added"] for shard in saved_data(tmp_path)["replay"]["shards"]) == again.env_steps


def saved_data(run_dir: Path) -> Any:
    return torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)["RolloutDataModule"]


@pytest.mark.ray
def test_fragments_of_processes_hold_initial_priorities_of_their_weights(tmp_path: Path) -> None:
    """Nothing was learned: the learner's weights are those of the workers. One process has two of the three."""
    overrides = ["data.learning_starts=300", "data.n_step=1"]
    three = ["workers.num_workers=2", "workers.logical_workers=3", "total_env_steps=200"]
    policy, _ = train(tmp_path / "run", *overrides, *three)
    _, datamodule = train(tmp_path / "here", *overrides, "total_env_steps=30")
    datamodule.source.buffer.load_state_dict(saved_data(tmp_path / "run")["replay"])
    for buffer in buffers_of(datamodule):
        assert_initial_priorities(policy, buffer)
