"""What workers record is what they sampled, in whole episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.data.offline.data_set import open_data
from lightning_rl.data.offline.steps import Steps, episodes_for, join
from lightning_rl.policies import PPO, SAC, RandomPolicy
from lightning_rl.policies.off_policy_estimation import estimate_value
from lightning_rl.replay.buffer import ReplayBuffer
from lightning_rl.sample_batch import SampleBatch
from tests.data.offline.recorded import record
from tests.data.small_runs import fit
from tests.envs.classic_control import CARTPOLE, PENDULUM


def transitions(buffer: ReplayBuffer) -> set[bytes]:
    """All drawable rows of a buffer, as bytes."""
    ring = buffer.ring
    assert ring is not None
    rows = buffer._transitions(np.flatnonzero(ring.flags[: ring.limit] >= 128)).without("batch_indexes")
    parts = [column.reshape(len(column), -1).to(torch.float64).numpy() for _, column in sorted(rows.items())]
    return {row.tobytes() for row in np.concatenate(parts, axis=1)}


def replayed(fragments: list[SampleBatch]) -> ReplayBuffer:
    buffer = ReplayBuffer(100_000, columns=("action_logp",))
    for fragment in fragments:
        buffer.add(fragment)
    return buffer


def read(directory: Path) -> Steps:
    return join(list(open_data(directory).read()))


@pytest.mark.parametrize(
    "worker",
    [
        {"num_envs": 3, "fragment_length": 50},
        {"num_envs": 1, "fragment_length": 1},
        {"num_envs": 2, "fragment_length": 30, "batch_mode": "complete_episodes"},
    ],
)
def test_recorded_steps_are_those_that_replay_would_hold(tmp_path: Path, worker: dict) -> None:
    """Only the last step of an episode that was cut is missing: its next observation closes the episode."""
    fragments = record(tmp_path, CARTPOLE, samples=200 // worker["fragment_length"], **worker)
    steps = read(tmp_path)
    online, offline = transitions(replayed(fragments)), transitions(replayed([steps.fragment()]))
    assert offline <= online and len(online) - len(offline) <= worker["num_envs"]
    ended = steps.columns[("terminated",)] | steps.columns[("truncated",)]
    assert ended.sum() == sum(int((f.terminated | f.truncated).sum()) for f in fragments) > 2
    begun = np.insert(steps.closing_rows[:-1] + 1, 0, 0)
    assert (steps.columns[("t",)][begun] == 0).all()


def test_small_shards_hold_the_same_steps_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "one", CARTPOLE, samples=20)
    monkeypatch.setattr("lightning_rl.data.offline.recorder.ROWS_AT_ONCE", 100)
    monkeypatch.setattr("lightning_rl.data.offline.recorder.SHARD_BYTES", 4000)
    record(tmp_path / "many", CARTPOLE, samples=20)
    assert len([*(tmp_path / "one").iterdir()]) == 1 < len([*(tmp_path / "many").iterdir()])
    one, many = (transitions(replayed([read(tmp_path / name).fragment()])) for name in ("one", "many"))
    assert one == many


def test_metadata_say_where_the_data_are_from(tmp_path: Path) -> None:
    record(tmp_path, CARTPOLE, seed=5)
    spec = open_data(tmp_path).spec
    assert (spec.observation_space, spec.action_space) == CARTPOLE.spaces()
    about = spec.about
    assert about is not None and about["env"] == "CartPole-v1" and about["seed"] == 5 and about["policy"] == "PPO"
    assert len(about["policy_digest"]) == 16 and "lightning_rl" in about["versions"]


def test_a_run_records_everything_it_samples_with_log_probabilities(tmp_path: Path) -> None:
    """SAC's losses read no action_logp. Two workers: the run's end cuts two episodes, whose last steps close them."""
    small = ["policy=sac", "env=pendulum", "data.batch_size=16", "data.learning_starts=32", "total_env_steps=300"]
    output = f"data.output={tmp_path / 'data'}"
    policy, _ = fit(tmp_path / "run", *small, "workers.logical_workers=2", output)
    steps = read(tmp_path / "data")
    assert steps.columns[("valid",)].sum() == policy.env_steps - 2
    assert {file.name[:9] for file in (tmp_path / "data").iterdir()} == {"worker000", "worker001"}
    assert steps.columns[("action_logp",)].std() > 0


@pytest.mark.ray
@pytest.mark.parametrize("data", ["on_policy", "async"])
def test_workers_in_processes_record_what_they_hold_when_the_run_ends(tmp_path: Path, data: str) -> None:
    """With data=async fragments are recorded that were still in flight at the end."""
    workers = ["workers.num_workers=2", "workers.envs_per_worker=2", "workers.fragment_length=32"]
    policy = ["policy=ppo"] if data == "on_policy" else ["policy=impala"]
    learned, _ = fit(tmp_path / "run", *policy, *workers, "total_env_steps=300", f"data.output={tmp_path / 'data'}")
    recorded = int(read(tmp_path / "data").columns[("valid",)].sum())
    assert recorded >= learned.env_steps - 4
    assert data == "async" or recorded <= learned.env_steps
    assert {file.name[:9] for file in (tmp_path / "data").iterdir()} == {"worker000", "worker001"}


def test_each_policy_of_several_agents_has_a_data_set_of_its_own(tmp_path: Path) -> None:
    """Two agents with a CartPole each: the run's end cuts an episode of each in each of 4 environments."""
    two = ["env=multi_agent_cartpole", "env.agents=2", "policies={left: {}, right: {}}"]
    keys = ["policy=ppo", *two, "policy_mapping={agent_0: left, agent_1: right}", "workers.envs_per_worker=4"]
    size = ["workers.fragment_length=64", "total_env_steps=300"]
    policy, _ = fit(tmp_path / "run", *keys, *size, f"data.output={tmp_path / 'data'}")
    for name in ("left", "right"):
        steps = read(tmp_path / "data" / name)
        assert policy.env_steps >= steps.columns[("valid",)].sum() > 100


def test_actions_are_recorded_in_the_policy_s_space(tmp_path: Path) -> None:
    record(tmp_path, PENDULUM, policy=SAC(*PENDULUM.spaces(), model={"fcnet_hiddens": [8]}))
    steps = read(tmp_path)
    assert np.abs(steps.columns[("actions",)]).max() <= 1 and steps.acted_with == {"normalize": True, "clip": False}


def test_best_actions_are_recorded_with_probability_1_so_that_estimates_of_them_are_what_was_played(
    tmp_path: Path,
) -> None:
    """All ratios against the acting policy, which is the greedy one (ε = 0), are 1. Random play ignores `explore`."""
    policy = PPO(*CARTPOLE.spaces(), model={"fcnet_hiddens": [8]})
    record(tmp_path / "best", CARTPOLE, policy=policy, explore=False)
    episodes = episodes_for(policy, open_data(tmp_path / "best").read(), "")
    found: Any = estimate_value(policy, episodes, estimators=["is", "pdis", "wis"], epsilon=0.0)
    for name in ("is", "pdis", "wis"):
        assert found[name].value == pytest.approx(found["behavior"].value)
    record(tmp_path / "random", CARTPOLE, policy=RandomPolicy(*CARTPOLE.spaces()), explore=False)
    steps = read(tmp_path / "random").columns
    assert np.allclose(steps[("action_logp",)][steps[("valid",)]], np.log(0.5))


def test_continuous_best_actions_are_recorded_without_a_density(tmp_path: Path) -> None:
    record(tmp_path, PENDULUM, policy=SAC(*PENDULUM.spaces(), model={"fcnet_hiddens": [8]}), explore=False)
    assert ("action_logp",) not in read(tmp_path).columns
