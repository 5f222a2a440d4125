"""RLlib's load_batch_into_buffer, learn_on_loaded_batch and learn_on_batch_from_replay_buffer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from lightning_rl import rllib
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError
from lightning_rl.learning.learner import Learner
from lightning_rl.rllib.local_replay_buffer import LocalReplayBuffer
from lightning_rl.rollouts import RolloutWorker
from tests.envs.classic_control import CARTPOLE
from tests.learning.recording import recording
from tests.models.parameters import parameter_vector
from tests.refusals import not_refused

A2C, DQN, PPO = rllib.A2CTorchPolicy, rllib.DQNTorchPolicy, rllib.PPOTorchPolicy
R2D2, SAC = rllib.R2D2TorchPolicy, rllib.SACTorchPolicy
Kind = type[rllib.TorchPolicy]
SMALL: dict[str, Any] = {"model": {"fcnet_hiddens": [8]}}


def policy_and_worker(policy: Kind, env: str = "CartPole-v1", **keywords: Any) -> tuple[Any, RolloutWorker]:
    creator = EnvCreator(env)
    one = policy(*creator.spaces(), **{**SMALL, **keywords})
    return one, RolloutWorker(creator, one, fragment_length=20, seed=1)


@pytest.mark.parametrize(
    ("policy", "env"), [(A2C, "CartPole-v1"), (DQN, "CartPole-v1"), (R2D2, "CartPole-v1"), (SAC, "Pendulum-v1")]
)
def test_learn_on_loaded_batch_equals_learn_on_batch(policy: Kind, env: str) -> None:
    keywords = {"model": {"use_lstm": True, "lstm_cell_size": 8}} if policy is R2D2 else {}
    (one, worker), (twin, _) = policy_and_worker(policy, env, **keywords), policy_and_worker(policy, env, **keywords)
    fragment = worker.sample()
    assert one.load_batch_into_buffer(fragment) == int(fragment.valid.sum())
    assert one.get_num_samples_loaded_into_buffer() == int(fragment.valid.sum())
    metrics = one.learn_on_loaded_batch()
    assert metrics["loss"] == pytest.approx(twin.learn_on_batch(fragment)["loss"], rel=1e-5)
    assert_close(parameter_vector(one), parameter_vector(twin))
    assert (one.env_steps, one.iterations, one.gradient_steps) == (twin.env_steps, twin.iterations, twin.gradient_steps)


@pytest.mark.parametrize(
    ("minibatches", "offset", "unread", "read"),
    [(4, 15, slice(0, 15), slice(15, 16)), (3, 0, slice(7, 20), slice(6, 7))],
)
def test_learn_on_loaded_batch_reads_the_rows_of_one_minibatch_only(
    minibatches: int, offset: int, unread: slice, read: slice
) -> None:
    """20 rows in 4 minibatches: offset 15 reads rows 15 to 19; in 3 minibatches: offset 0 reads rows 0 to 6."""
    ends = []
    for changed in (slice(0, 0), unread, read):
        policy, worker = policy_and_worker(PPO, minibatches=minibatches)
        policy.load_batch_into_buffer(worker.sample(), buffer_index=1)
        policy._loaded[1].obs[changed] = 0.0
        policy.learn_on_loaded_batch(offset=offset, buffer_index=1)
        ends.append(parameter_vector(policy))
    assert torch.equal(ends[0], ends[1]) and not torch.equal(ends[0], ends[2])


@pytest.mark.parametrize(("kind", "counted"), [(PPO, 20), (DQN, 0)], ids=["on policy", "replayed"])
def test_load_batch_into_buffer_counts_on_policy_rows_and_fragments(kind: Kind, counted: int) -> None:
    """The observation filter's statistics take in fragments only, as rows come from fragments already counted."""
    policy, worker = policy_and_worker(kind, observation_filter="mean_std")
    twin, _ = policy_and_worker(kind, observation_filter="mean_std")
    fragment = worker.sample()
    rows = twin.learner.rows_of(fragment)
    assert policy.load_batch_into_buffer(rows, 3) == rows.count == 20
    assert (policy.env_steps, policy.iterations, int(policy.observation_filter.moments.count)) == (counted, 1, 0)
    policy.load_batch_into_buffer(fragment)
    assert (policy.env_steps, policy.iterations) == (counted + 20, 2)
    assert int(policy.observation_filter.moments.count) == 20
    assert [policy.get_num_samples_loaded_into_buffer(index) for index in (0, 1, 3)] == [20, 0, 20]


def test_learn_on_loaded_batch_runs_in_train_mode_with_log_extra_at_the_current_rate() -> None:
    """The rate is 0 after the 20 loaded steps, and above 0 at step 10."""
    policy, worker = policy_and_worker(recording(PPO), lr=[[0, 1e-2], [20, 0.0]])
    policy.eval()
    policy.load_batch_into_buffer(worker.sample())
    policy.eval()
    policy.log_extra = False
    before = parameter_vector(policy)
    policy.learn_on_loaded_batch()
    assert policy.losses[0][:2] == (True, True) and torch.equal(parameter_vector(policy), before)
    policy.env_steps = 10
    policy.learn_on_loaded_batch()
    assert not torch.equal(parameter_vector(policy), before)


def test_learn_on_loaded_batch_refuses_empty_buffers_and_offsets_beyond_the_rows_or_into_sequences() -> None:
    (policy, worker), lstm = policy_and_worker(DQN), {"use_lstm": True, "lstm_cell_size": 4}
    (recurrent, source), before = policy_and_worker(PPO, model=lstm, minibatches=2), set(policy.state_dict())
    assert policy.get_num_samples_loaded_into_buffer() == 0
    with pytest.raises(ConfigError, match=r"buffer_index=0.*load_batch_into_buffer"):
        policy.learn_on_loaded_batch()
    count, other = policy.load_batch_into_buffer(worker.sample()), recurrent.load_batch_into_buffer(source.sample())
    assert set(policy.state_dict()) == before  # loaded rows are not saved
    cases = [(recurrent, offset, rf"offset={offset}.*{other}") for offset in (1, -1)]
    cases.append((policy, count, rf"offset={count}.*{count}.*{count - 1}"))
    assert not_refused(lambda each, offset: each.learn_on_loaded_batch(offset=offset), cases) == []
    assert recurrent.learn_on_loaded_batch()["loss"] != 0 and recurrent.gradient_steps == 1


class RowCounter(rllib.Policy):
    """A policy without a model that counts rows."""

    rows = 0

    def compute_actions(self, obs: Any, state: Any = (), **_: Any) -> Any:
        return [self.action_space.sample() for _ in obs], [], {}

    def learn_on_batch(self, batch: Any) -> dict[str, float]:
        self.rows += batch.count
        return {"rows": float(batch.count)}


def test_a_scratch_policy_s_learn_on_batch_is_called_and_loading_begins_an_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[type[Any]] = []
    monkeypatch.setattr(Learner, "enter_training", lambda self: begun.append(type(self.policy)))
    for policy in (PPO(*CARTPOLE.spaces()), RowCounter(*CARTPOLE.spaces(), {})):
        count = policy.load_batch_into_buffer(RolloutWorker(CARTPOLE, policy, fragment_length=20).sample())
    assert begun == [PPO, RowCounter]
    assert policy.learn_on_loaded_batch() == {"rows": count} and policy.rows == count


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_learn_on_batch_from_replay_buffer_learns_and_updates_priorities(alpha: float) -> None:
    policy, worker = policy_and_worker(DQN)
    buffer = LocalReplayBuffer(learning_starts=30, replay_batch_size=16, prioritized_replay_alpha=alpha)
    assert policy.learn_on_batch_from_replay_buffer(buffer) == {}
    for _ in range(2):
        buffer.add_batch(policy.learner.take_experience(worker.sample()))
    before = parameter_vector(policy)
    assert policy.learn_on_batch_from_replay_buffer(buffer, "default_policy")["loss"] > 0
    assert not torch.equal(before, parameter_vector(policy)) and policy.gradient_steps == 1
    if alpha:
        tree = buffer.buffers["default_policy"].tree  # type: ignore[attr-defined]
        assert len({round(priority, 9) for priority in tree.get(range(tree.size)) if priority > 0}) > 4
    with pytest.raises(ConfigError, match="'other'"):
        policy.learn_on_batch_from_replay_buffer(buffer, "other")


@pytest.mark.parametrize(
    ("kind", "weighted", "updated"), [(DQN, True, True), (DQN, False, False), (PPO, True, False)], ids=str
)
def test_learn_on_batch_from_replay_buffer_returns_td_errors_of_weighted_rows_only(
    kind: Kind, weighted: bool, updated: bool
) -> None:
    policy, worker = policy_and_worker(kind)
    rows = policy.learner.rows_of(worker.sample())
    rows["batch_indexes"], reported = torch.arange(100, 100 + rows.count), list[Any]()
    if weighted:
        rows["weights"] = torch.ones(rows.count)
    buffer = SimpleNamespace(replay=lambda policy_id: rows, update_priorities=reported.append)
    assert "loss" in policy.learn_on_batch_from_replay_buffer(buffer, "mine")
    assert [[*errors] for errors in reported] == [["mine"]] * updated
    for indexes, errors in (found["mine"] for found in reported):
        assert indexes.tolist() == list(range(100, 100 + rows.count)) and errors.shape == (rows.count,)


@pytest.mark.ray
def test_learn_on_batch_from_replay_buffer_accepts_a_ray_actor() -> None:
    import ray

    policy, worker = policy_and_worker(DQN)
    actor = LocalReplayBuffer.as_remote(num_cpus=0).remote(learning_starts=10, replay_batch_size=8)
    assert policy.learn_on_batch_from_replay_buffer(actor, "default_policy") == {}
    ray.get(actor.add_batch.remote(policy.learner.take_experience(worker.sample())))
    assert policy.learn_on_batch_from_replay_buffer(actor, "default_policy")["loss"] > 0
    assert len(ray.get(actor.stats.remote())) == 2
