"""Load once, learn on parts: the classic verbs, on every kind of policy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from lightning_rl.data.local_replay_buffer import LocalReplayBuffer
from lightning_rl.errors import ConfigError
from lightning_rl.policies import A2C, DQN, PPO, R2D2, SAC, Policy
from lightning_rl.rollouts import EnvCreator, RolloutWorker

SMALL: dict[str, Any] = {"model": {"fcnet_hiddens": [8]}}


def made(policy: type[Policy], env: str = "CartPole-v1", **keywords: Any) -> tuple[Any, RolloutWorker]:
    creator = EnvCreator(env)
    one = policy(*creator.spaces(), **{**SMALL, **keywords})
    return one, RolloutWorker(creator, one, fragment_length=20, seed=1)


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


@pytest.mark.parametrize(
    ("policy", "env"), [(A2C, "CartPole-v1"), (DQN, "CartPole-v1"), (R2D2, "CartPole-v1"), (SAC, "Pendulum-v1")]
)
def test_learning_on_a_loaded_batch_is_learning_on_the_batch(policy: type[Policy], env: str) -> None:
    keywords = {"model": {"use_lstm": True, "lstm_cell_size": 8}} if policy is R2D2 else {}
    (one, worker), (twin, _) = made(policy, env, **keywords), made(policy, env, **keywords)
    fragment = worker.sample()
    assert one.load_batch_into_buffer(fragment) == int(fragment.valid.sum())
    assert one.get_num_samples_loaded_into_buffer() == int(fragment.valid.sum())
    metrics = one.learn_on_loaded_batch()
    assert metrics["loss"] == pytest.approx(twin.learn_on_batch(fragment)["loss"], rel=1e-5)
    assert_close(weights(one), weights(twin))
    assert (one.env_steps, one.iterations, one.gradient_steps) == (twin.env_steps, twin.iterations, twin.gradient_steps)


def test_a_part_of_the_rows_is_learned_from_at_an_offset() -> None:
    """20 rows in 4 parts: from row 15 on that is rows 15 to 19, whichever other rows are there."""
    ends = []
    for change in (False, True):
        policy, worker = made(PPO, minibatches=4)
        fragment = worker.sample()
        policy.load_batch_into_buffer(fragment, buffer_index=1)
        if change:
            policy._loaded[1].obs[:15] = 0.0
        policy.learn_on_loaded_batch(offset=15, buffer_index=1)
        ends.append(weights(policy))
    assert torch.equal(*ends)


def test_what_is_not_loaded_cannot_be_learned_from() -> None:
    policy, worker = made(DQN)
    assert policy.get_num_samples_loaded_into_buffer() == 0
    with pytest.raises(ConfigError, match="buffer_index=0 holds no rows: call load_batch_into_buffer first"):
        policy.learn_on_loaded_batch()
    count = policy.load_batch_into_buffer(worker.sample())
    with pytest.raises(ConfigError, match=rf"offset={count} in {count} loaded rows; expected ≤ {count - 1}"):
        policy.learn_on_loaded_batch(offset=count)


def test_loaded_rows_are_no_part_of_a_policy_s_state() -> None:
    policy, worker = made(DQN)
    before = set(policy.state_dict())
    policy.load_batch_into_buffer(worker.sample())
    assert set(policy.state_dict()) == before


class Counts(Policy):
    """Written from scratch."""

    rows = 0

    def compute_actions(self, obs: Any, state: Any = (), **_: Any) -> Any:
        return [self.action_space.sample() for _ in obs], [], {}

    def learn_on_batch(self, batch: Any) -> dict[str, float]:
        self.rows += batch.count
        return {"rows": float(batch.count)}


def test_a_policy_from_scratch_learns_on_loaded_rows_by_its_own_method() -> None:
    creator = EnvCreator("CartPole-v1")
    policy = Counts(*creator.spaces())
    worker = RolloutWorker(creator, policy, fragment_length=20)
    count = policy.load_batch_into_buffer(worker.sample())
    assert policy.learn_on_loaded_batch() == {"rows": count} and policy.rows == count


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_rows_of_a_replay_buffer_are_learned_from_and_get_their_priorities(alpha: float) -> None:
    policy, worker = made(DQN)
    buffer = LocalReplayBuffer(learning_starts=30, replay_batch_size=16, prioritized_replay_alpha=alpha)
    assert policy.learn_on_batch_from_replay_buffer(buffer) == {}
    for _ in range(2):
        buffer.add_batch(policy.take_experience(worker.sample()))
    before = weights(policy)
    assert policy.learn_on_batch_from_replay_buffer(buffer, "default_policy")["loss"] > 0
    assert not torch.equal(before, weights(policy)) and policy.gradient_steps == 1
    if alpha:
        tree = buffer.buffers["default_policy"].tree  # type: ignore[attr-defined]
        assert len({round(priority, 9) for priority in tree.get(range(tree.size)) if priority > 0}) > 4
    with pytest.raises(ConfigError, match="no rows of policy 'other'"):
        policy.learn_on_batch_from_replay_buffer(buffer, "other")


@pytest.mark.ray
def test_the_buffer_may_be_a_ray_actor() -> None:
    import ray

    from lightning_rl.rollouts.ray_workers import start_ray

    start_ray(2)
    try:
        policy, worker = made(DQN)
        actor = LocalReplayBuffer.as_remote(num_cpus=0).remote(learning_starts=10, replay_batch_size=8)
        assert policy.learn_on_batch_from_replay_buffer(actor, "default_policy") == {}
        ray.get(actor.add_batch.remote(policy.take_experience(worker.sample())))
        assert policy.learn_on_batch_from_replay_buffer(actor, "default_policy")["loss"] > 0
        assert len(ray.get(actor.stats.remote())) == 2
    finally:
        ray.shutdown()
