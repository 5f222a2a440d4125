"""Learning from recorded data: what policies get, how the run counts, and that a resume changes nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from lightning_rl.data.offline.data_set import open_data
from lightning_rl.data.offline.shards import write_shard
from lightning_rl.data.offline.source import OfflineSource, returns_to_go
from lightning_rl.data.offline.steps import DataSpec, Steps, actions_for, close_episodes, episodes_for
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.policies import BC, DQN, PPO, SAC, Policy
from lightning_rl.policies.off_policy_estimation import whole_episodes
from lightning_rl.sample_batch import SampleBatch
from tests.data.offline.recorded import Place, record, source
from tests.data.small_runs import fit
from tests.envs.classic_control import CARTPOLE, PENDULUM
from tests.run_comparison import assert_equal, everything

OFFLINE = ["policy=dqn", "data=offline", "data.batch_size=16", "data.steps_per_iteration=10"]


class Imitator(PPO):
    """Learns log π(a|s) of recorded actions."""

    imitates = True

    def loss(self, batch: SampleBatch) -> tuple[torch.Tensor, dict[str, Any]]:
        dist, _ = self.distribution_and_values(batch)
        return -dist.logp(batch.actions).mean(), {}


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cartpole")
    record(directory, CARTPOLE, samples=4)
    return directory


def test_a_run_on_data_alone_counts_gradient_steps_by_the_intensity(tmp_path: Path, cartpole: Path) -> None:
    """0.25 gradient steps per env step: 10 in an iteration are 40 env steps."""
    keys = [*OFFLINE, f"data.input={cartpole}", "data.update_to_data_ratio=0.25", "total_env_steps=100"]
    policy, datamodule = fit(tmp_path, *keys)
    assert (policy.env_steps, policy.gradient_steps, policy.iterations) == (120, 30, 3)
    assert policy.reported["replay/updates"] == 30 and datamodule.source.steps == policy.reported["replay/rows"]


def test_the_first_evaluation_of_a_run_on_data_alone_does_not_wait_for_its_end(tmp_path: Path, cartpole: Path) -> None:
    keys = [*OFFLINE, f"data.input={cartpole}", "total_env_steps=100", "evaluation.max_share=0.2"]
    _, datamodule = fit(tmp_path, *keys, "evaluation.every_env_steps=50", "evaluation.episodes=1")
    assert datamodule.epochs.done == 2


@pytest.mark.parametrize(
    "kind",
    [[*OFFLINE, "policy.observation_filter=mean_std"], ["policy=tests.data.offline.test_offline_source:Imitator"]],
)
def test_n_steps_and_n_more_after_a_resume_equal_2n_steps(tmp_path: Path, cartpole: Path, kind: list[str]) -> None:
    keys = [*kind, "policy.lr=1e-3", "data=offline", f"data.input={cartpole}", "data.rows_per_iteration=50"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    policy, _ = fit(whole, "total_env_steps=300", "checkpoint.every_env_steps=150", *keys)
    fit(parts, "total_env_steps=150", *keys)
    fit(parts, "total_env_steps=300", *keys, resume=True)
    assert policy.gradient_steps > 5
    assert_equal(everything(whole), everything(parts))


@pytest.mark.parametrize("policy", ["bc", "marwil"])
def test_policies_that_imitate_need_nothing_but_the_data(tmp_path: Path, cartpole: Path, policy: str) -> None:
    keys = [f"policy={policy}", f"data.input={cartpole}", "total_env_steps=512"]  # two passes
    learned, datamodule = fit(tmp_path, *keys)
    assert isinstance(datamodule.source, OfflineSource) and learned.env_steps == 2 * datamodule.source.steps
    with pytest.raises(ConfigError, match=r"data\.input is missing"):
        fit(tmp_path, f"policy={policy}", "total_env_steps=512")


@pytest.mark.parametrize("policy", ["sac", "td3"])
def test_actors_and_critics_learn_from_data(tmp_path: Path, policy: str) -> None:
    """Their exploration begins with random actions until data.learning_starts, which data=offline does not have."""
    record(tmp_path / "data", PENDULUM, samples=1)
    keys = [f"policy={policy}", "env=pendulum", "data=offline", f"data.input={tmp_path / 'data'}"]
    learned, _ = fit(tmp_path / "run", *keys, "data.batch_size=16", "data.steps_per_iteration=5", "total_env_steps=10")
    assert learned.gradient_steps == 10


def test_a_resume_with_other_data_is_refused(tmp_path: Path, cartpole: Path) -> None:
    run = tmp_path / "run"
    fit(run, *OFFLINE, f"data.input={cartpole}", "total_env_steps=20")
    record(tmp_path / "other", CARTPOLE, samples=1)
    with pytest.raises(CheckpointError, match="resume with the same data"):
        fit(run, *OFFLINE, f"data.input={tmp_path / 'other'}", "total_env_steps=40", resume=True)


def test_a_pass_of_an_imitating_policy_has_every_episode_once(cartpole: Path) -> None:
    policy = Imitator(*CARTPOLE.spaces(), model={"fcnet_hiddens": [8]})
    data = source(policy, cartpole, rows_per_iteration=60)
    wanted = sorted(data._lengths.tolist())
    for _ in range(2):
        lengths: list[int] = []
        while len(lengths) < len(wanted):
            fragment = data.next_episodes()
            assert fragment.obs.shape[0] == len(fragment.valid) + 1
            lengths += fragment.valid.sum(0).tolist()
            ends = (fragment.terminated | fragment.truncated).sum(0)
            assert (ends == 1).all()
        assert sorted(lengths) == wanted


def test_fragments_hold_the_recorded_steps_and_the_observation_after_them(tmp_path: Path) -> None:
    """Each column of the fragment is an episode: the observations before its steps, and the one after the last."""
    record(tmp_path, CARTPOLE, samples=2)
    data = source(Imitator(*CARTPOLE.spaces(), model={"fcnet_hiddens": [8]}), tmp_path, rows_per_iteration=10_000)
    fragment = data.next_episodes()
    assert int(fragment.valid.sum()) == data.steps
    (steps,) = open_data(tmp_path).read()
    begins = np.insert(steps.closing_rows[:-1] + 1, 0, 0)
    episodes = {
        steps.columns[("obs",)][begin : end + 1].tobytes()
        for begin, end in zip(begins, steps.closing_rows, strict=True)
    }
    lengths = fragment.valid.sum(0).tolist()
    assert {fragment.obs[: length + 1, column].numpy().tobytes() for column, length in enumerate(lengths)} == episodes


def test_ranks_share_the_episodes(cartpole: Path) -> None:
    policy = DQN(*CARTPOLE.spaces(), model={"fcnet_hiddens": [8]})
    whole = source(policy, cartpole, batch_size=2)
    parts = [source(policy, cartpole, Place(rank, 2), batch_size=2) for rank in range(2)]
    assert sum(part.steps for part in parts) == whole.steps
    assert sorted(np.concatenate([part._lengths for part in parts])) == sorted(whole._lengths)


def anonymous_bytes() -> int:
    """Memory of this process that no file on a disk backs."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_mapped_data_need_the_memory_of_a_shard_not_of_all(tmp_path: Path) -> None:
    """40 links to a shard of 10 MB are 400 MB of data; less than 100 MB remain in memory, whatever is sampled."""
    spec, count = DataSpec(spaces.Box(-1, 1, (60,)), spaces.Box(-1, 1, (4,))), 40_000
    last = np.arange(999, count, 1000)
    columns = {
        ("obs",): np.random.default_rng(0).uniform(-1, 1, (count, 60)).astype(np.float32),
        ("actions",): np.zeros((count, 4), np.float32),
        ("rewards",): np.zeros(count, np.float32),
        ("terminated",): np.isin(np.arange(count), last),
        ("truncated",): np.zeros(count, bool),
    }
    shard = write_shard(tmp_path / "data", "a0", close_episodes(columns, last, None), spec)
    for number in range(1, 40):
        shard.with_name(shard.name.replace("a0", f"a{number}")).hardlink_to(shard)
    del columns
    policy, before = SAC(spec.observation_space, spec.action_space, model={"fcnet_hiddens": [8]}), anonymous_bytes()
    data = source(policy, tmp_path / "data", storage=str(tmp_path / "mapped"))
    for _ in range(50):
        data.buffer.sample(4096, np.random.default_rng(0))
    assert data.steps == 40 * count and data.buffer.nbytes > 400e6
    assert anonymous_bytes() - before < 100e6


@pytest.mark.parametrize(
    ("policy", "env", "message"),
    [
        (PPO, CARTPOLE, r"PPO learns from rollouts of its own policy"),
        (type("Mine", (Policy,), {"data": "replay"}), CARTPOLE, r"set the class attribute off_policy = True"),
        (DQN, EnvCreator("Acrobot-v1"), r"its observation_space is not that of the policy"),
    ],
)
def test_policies_that_the_data_do_not_fit_are_refused(
    cartpole: Path, policy: Any, env: EnvCreator, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        source(policy(*env.spaces()), cartpole)


def test_a_stop_rule_on_training_episodes_is_refused(tmp_path: Path, cartpole: Path) -> None:
    keys = [*OFFLINE, f"data.input={cartpole}", "stop.return=100"]
    with pytest.raises(ConfigError, match=r"no training episode is ever played; set stop\.metric=eval/ep_rew_mean"):
        fit(tmp_path, *keys)


def test_too_few_steps_for_a_batch_are_refused(cartpole: Path) -> None:
    with pytest.raises(ConfigError, match=r"data.batch_size=100000 needs 100000"):
        source(DQN(*CARTPOLE.spaces()), cartpole, batch_size=100_000)


def two_episodes(directory: Path) -> None:
    """Actions 1, 2, 3 until a termination, and 4, 5, 6 until a time limit; rewards are 1."""
    spec = DataSpec(*PENDULUM.spaces())
    columns = {
        ("obs",): np.zeros((6, 3), np.float32),
        ("actions",): np.array([[0.2], [0.4], [0.6], [0.8], [1.0], [1.2]], np.float32),
        ("rewards",): np.ones(6, np.float32),
        ("terminated",): np.array([False, False, True, False, False, False]),
        ("truncated",): np.array([False, False, False, False, False, True]),
    }
    final = {("obs",): np.zeros((2, 3), np.float32)}
    write_shard(directory, "a", close_episodes(columns, np.array([2, 5]), final), spec)


def test_next_actions_and_returns_to_go_come_on_request(tmp_path: Path) -> None:
    """γ = ½: returns 1.75, 1.5, 1. No row is drawn whose next action the time limit cut off."""

    class Reads(SAC):
        replay_columns = ("next_actions", "returns_to_go")

    two_episodes(tmp_path)
    policy = Reads(*PENDULUM.spaces(), gamma=0.5)
    rows = source(policy, tmp_path, batch_size=5).buffer.sample(5, np.random.default_rng(0))
    drawn = {
        (round(float(a), 1), round(float(n), 1), float(g))
        for _ in range(20)
        for a, n, g in zip(rows.actions, rows.next_actions, rows.returns_to_go, strict=True)
    }
    assert drawn <= {(0.1, 0.2, 1.75), (0.2, 0.3, 1.5), (0.3, 0.0, 1.0), (0.4, 0.5, 1.75), (0.5, 0.6, 1.5)}
    without = source(SAC(*PENDULUM.spaces()), tmp_path, batch_size=5).buffer.sample(6, np.random.default_rng(0))
    assert "next_actions" not in without and "returns_to_go" not in without


def five_parts() -> Steps:
    """Three steps each: episodes with rewards 1, 2 and 3; one that is cut, with 33; and the end of one, with 22."""
    columns = {
        ("obs",): np.arange(15, dtype=np.float32)[:, None].repeat(3, 1) / 100,
        ("actions",): np.zeros((15, 1), np.float32),
        ("rewards",): np.repeat(np.array([1, 2, 33, 22, 3], np.float32), 3),
        ("terminated",): np.zeros(15, bool),
        ("truncated",): np.isin(np.arange(15), [2, 5, 11, 14]),
        ("t",): np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 7, 8, 9, 0, 1, 2]),
    }
    return close_episodes(columns, np.array([2, 5, 8, 11, 14]), {("obs",): np.zeros((5, 3), np.float32)})


def test_whole_episodes_alone_are_estimated() -> None:
    fragment = episodes_for(SAC(*PENDULUM.spaces()), [five_parts()], "data")
    (group,) = whole_episodes(fragment)
    assert group.rewards.sum(0).tolist() == [3.0, 6.0, 9.0]


@pytest.mark.parametrize("kind", [BC, SAC])
def test_the_top_fraction_of_episodes_is_learned_from(tmp_path: Path, kind: Any) -> None:
    """Returns 3, 6, 9, and 99 and 66 of the first and the second part of episodes that recording cut.

    These are left out: the better half of three is two.
    """
    write_shard(tmp_path, "a", five_parts(), DataSpec(*PENDULUM.spaces()))
    data = source(kind(*PENDULUM.spaces()), tmp_path, batch_size=6, rows_per_iteration=6, top_fraction=0.5)
    rows = data.next_episodes() if kind is BC else data.buffer.sample(6, np.random.default_rng(0))
    assert data.steps == len(data.buffer) == 6
    assert set(rows.rewards.flatten().tolist()) == {2.0, 3.0}


def test_observations_are_normalized_by_the_statistics_of_the_data_from_the_start(cartpole: Path) -> None:
    policy = BC(*CARTPOLE.spaces(), observation_filter="mean_std")
    source(policy, cartpole)
    obs = np.concatenate([steps.columns[("obs",)][steps.columns[("valid",)]] for steps in open_data(cartpole).read()])
    assert np.allclose(policy.observation_filter.shift, obs.mean(0, dtype=np.float64), atol=1e-6)


def test_statistics_of_the_data_stay_while_an_imitator_learns(cartpole: Path) -> None:
    policy = BC(*CARTPOLE.spaces(), observation_filter="mean_std")
    data = source(policy, cartpole)
    shift = policy.observation_filter.shift.clone()
    policy.learn_on_batch(data.next_episodes())
    assert torch.equal(policy.observation_filter.shift, shift)


def test_returns_to_go_start_again_with_each_episode() -> None:
    fragment = SampleBatch(
        rewards=torch.tensor([[1.0], [2.0], [0.0], [3.0], [0.0]]),
        valid=torch.tensor([[True], [True], [False], [True], [False]]),
    )
    assert returns_to_go(fragment, 0.5).flatten().tolist() == [2.0, 2.0, 0.0, 3.0, 0.0]


def test_actions_of_the_environment_are_converted_to_the_policy_s() -> None:
    """Pendulum's torque is in [−2, 2]; out-of-bounds actions of an unclipped Gaussian end up at the bounds."""
    steps = Steps({("actions",): np.array([[-2.0], [1.0], [2.0]], np.float32), ("valid",): np.ones(3, bool)})
    transform = SAC(*PENDULUM.spaces()).action_transform
    converted = actions_for(transform, steps)
    assert converted.columns[("actions",)].flatten().tolist() == [-1.0, 0.5, 1.0]
    columns = {("actions",): np.array([[-1.5], [0.5]], np.float32), ("valid",): np.ones(2, bool)}
    beyond = Steps(columns, transform.options)
    kept = actions_for(transform, beyond)
    assert kept.columns[("actions",)].flatten().tolist() == [-1.0, 0.5]


def test_actions_in_other_units_are_clipped_with_a_warning_that_says_how_many(caplog: Any) -> None:
    """±180 degrees for Pendulum's ±2; the closing row is not counted. Samples beyond the bounds are no surprise."""
    columns = {
        ("actions",): np.array([[180.0], [2.0], [0.5], [-180.0], [0.0]], np.float32),
        ("valid",): np.array([True, True, True, True, False]),
    }
    transform = SAC(*PENDULUM.spaces()).action_transform
    actions_for(transform, Steps(columns, transform.options))
    assert not caplog.messages
    actions_for(transform, Steps(columns))
    assert [re.search(r"50% of the actions .* such as \[180\.\]", each) is not None for each in caplog.messages] == [
        True
    ]


def test_the_last_fragment_of_a_pass_is_not_a_few_rows(tmp_path: Path) -> None:
    """21 episodes of 10 steps; the single one that two fragments of 100 would leave goes into the second."""
    columns = {"obs": np.zeros(210), "actions": np.arange(210) % 2, "rewards": np.ones(210)}
    np.savez(tmp_path / "a.npz", **columns, episode=np.arange(210) // 10)
    policy = BC(spaces.Box(-1, 1, (1,)), spaces.Discrete(2), model={"fcnet_hiddens": [8]})
    data = source(policy, tmp_path / "a.npz", rows_per_iteration=100)
    assert [int(data.next_episodes().valid.sum()) for _ in range(4)] == [100, 110, 100, 110]
