"""Replay by RLlib's verbs: what goes in comes out, for each policy, from the row on at which learning starts."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lightning_rl.envs.multi_agent import make_multi_agent
from lightning_rl.errors import ConfigError, NonFiniteError
from lightning_rl.rllib.local_replay_buffer import LocalReplayBuffer
from lightning_rl.rllib.plan_verbs import concurrently, for_each
from lightning_rl.rllib.plans import LocalIterator, ParallelRollouts, Replay, StoreToReplayBuffer
from lightning_rl.rllib.row_fragments import fragment_of_rows
from lightning_rl.sample_batch import MultiAgentBatch, SampleBatch
from tests.refusals import not_refused
from tests.replay.streams import Stream
from tests.rllib.classic import trainer

NONE = {"learning_starts": 0, "replay_batch_size": 8}


def rows(count: int, start: int = 0, episode: int = 5) -> dict[str, np.ndarray]:
    """Steps `start` … in RLlib's columns: step i observes and earns i, every `episode`-th one ends an episode."""
    steps = np.arange(start, start + count)
    dones = steps % episode == episode - 1
    return {
        "obs": steps[:, None].astype(np.float32),
        "new_obs": np.where(dones, -1, steps + 1)[:, None].astype(np.float32),
        "actions": steps % 3,
        "rewards": steps.astype(np.float32),
        "dones": dones,
    }


def local_buffer(count: int = 50, **keywords: Any) -> LocalReplayBuffer:
    buffer = LocalReplayBuffer(**{**NONE, **keywords})
    buffer.add_batch(rows(count))
    return buffer


def two_policies(one: int, other: int, start: int = 0, **keywords: Any) -> MultiAgentBatch:
    """Rows of policy a from `start` on, and of b from `start` + 100 on."""
    batches = {"a": SampleBatch(rows(one, start)), "b": SampleBatch(rows(other, start + 100))}
    return MultiAgentBatch(batches, env_steps=max(one, other))


# -- flat rows --------------------------------------------------------------------------------------------------------
def test_rows_of_rllib_come_back_as_they_went_in() -> None:
    buffer, seen = local_buffer(), set()
    for _ in range(60):
        batch = buffer.replay()
        steps = batch.rewards.long()
        ended = steps % 5 == 4
        assert_close(batch.obs[:, 0], steps.float())
        assert_close(batch.next_obs[:, 0], torch.where(ended, -1, steps + 1).float())
        assert torch.equal(batch.terminated, ended) and torch.equal(batch.actions, steps % 3)
        seen |= set(steps.tolist())
    assert seen == set(range(50))


def test_rows_go_on_from_one_batch_to_the_next() -> None:
    """n_step = 3 sums over the seam: rows 3 and 4 came with one batch, row 5 with the next."""
    buffer = LocalReplayBuffer(**NONE, n_step=3, gamma=1.0)
    for start in (0, 5):
        buffer.add_batch(rows(5, start, episode=100))
    seen = {}
    for _ in range(40):
        batch = buffer.replay()
        seen |= dict(zip(batch.obs[:, 0].tolist(), batch.rewards.tolist(), strict=True))
    assert seen[3.0] == 3 + 4 + 5 and seen[4.0] == 4 + 5 + 6 and seen[9.0] == 9


def test_a_row_that_does_not_follow_keeps_its_next_observation() -> None:
    """Every second step only: no row's next observation is the next row's."""
    columns = {name: column[::2] for name, column in rows(20, episode=100).items()}
    buffer = LocalReplayBuffer(**NONE, n_step=3)
    buffer.add_batch(columns)
    for _ in range(20):
        batch = buffer.replay()
        assert_close(batch.next_obs, batch.obs + 1)
        assert_close(batch.rewards, batch.obs[:, 0])


def test_mixed_episodes_are_separated_by_their_ids() -> None:
    """Two environments in turn; with ids, an n-step sum stays in its own."""
    one, two = rows(10, episode=100), rows(10, start=50, episode=100)
    mixed = {name: np.stack([one[name], two[name]], 1).reshape(20, *one[name].shape[1:]) for name in one}
    fragment = fragment_of_rows(SampleBatch(mixed, eps_id=np.tile([7, 3], 10)))
    assert fragment.rewards[fragment.valid].tolist() == [*range(50, 60), *range(10)]
    assert len(fragment.valid) == 21


def test_an_episode_ends_even_if_the_next_one_starts_where_it_stopped() -> None:
    """All observations are the same; episodes of 5 steps, so step 3 has two rewards to sum and not three."""
    columns = rows(50)
    columns["obs"][:], columns["new_obs"][:] = 0, 0
    buffer = LocalReplayBuffer(**{**NONE, "replay_batch_size": 50}, n_step=3, gamma=1.0)
    buffer.add_batch(columns)
    drawn = [buffer.replay() for _ in range(5)]
    sums = {total for batch in drawn for total in batch.rewards.tolist()}
    assert sums >= {3 + 4, 4} and 3 + 4 + 5 not in sums


def test_truncated_rows_end_their_episode_without_terminating() -> None:
    columns = rows(10)
    columns["truncateds"], columns["terminateds"] = columns.pop("dones"), np.zeros(10, bool)
    buffer = LocalReplayBuffer(**NONE, n_step=4, gamma=0.5)
    buffer.add_batch(columns)
    for _ in range(20):
        batch = buffer.replay()
        assert not batch.terminated.any()
        last = batch.obs[:, 0] % 5 == 4
        assert_close(batch.discounts[last], torch.full((int(last.sum()),), 0.5))


def test_nested_observations_come_back_nested() -> None:
    columns: dict[str, Any] = rows(10)
    for name in ("obs", "new_obs"):
        columns[name] = {"a": columns[name], "b": -columns[name]}
    buffer = LocalReplayBuffer(**NONE)
    buffer.add_batch(SampleBatch(columns))
    batch = buffer.replay()
    assert_close(batch.next_obs["b"], -batch.next_obs["a"])


# -- when learning starts ---------------------------------------------------------------------------------------------
def test_replay_gives_none_until_learning_starts_and_there_are_enough_rows() -> None:
    """It counts steps that were added, not those that a small buffer still holds."""
    buffer = LocalReplayBuffer(learning_starts=40, buffer_size=20, replay_batch_size=8)
    for start in range(0, 40, 10):
        assert buffer.replay() is None
        buffer.add_batch(rows(10, start))
    assert buffer.replay().count == 8
    assert local_buffer(7).replay() is None and local_buffer(8).replay().count == 8
    stream, whole = Stream(3), LocalReplayBuffer(**NONE)
    fragments = [stream.fragment(20) for _ in range(3)]
    for fragment in fragments:
        whole.add_batch(fragment)
    assert whole.num_added == len(whole) == sum(int(fragment.valid.sum()) for fragment in fragments)


def test_shards_share_the_rows_and_the_wait() -> None:
    buffer = LocalReplayBuffer(num_shards=4, learning_starts=40, buffer_size=80, replay_batch_size=8)
    buffer.add_batch(rows(9))
    assert buffer.replay() is None
    buffer.add_batch(rows(1, 9))
    assert buffer.replay().count == 8
    buffer.add_batch(rows(90, 10, episode=1000))
    assert len(buffer) <= 21


# -- policies ---------------------------------------------------------------------------------------------------------
def test_each_policy_has_its_own_rows() -> None:
    buffer = LocalReplayBuffer(**NONE)
    buffer.add_batch(two_policies(10, 20))
    assert buffer.num_added == 20
    assert buffer.replay("a").rewards.max() < 10 and buffer.replay("b").rewards.min() >= 100
    both = buffer.replay()
    assert isinstance(both, MultiAgentBatch) and set(both.policy_batches) == {"a", "b"}
    assert both.policy_batches["b"].rewards.min() >= 100


def test_lockstep_draws_the_same_steps_for_all() -> None:
    buffer = LocalReplayBuffer(**NONE, replay_mode="lockstep")
    for start in (0, 30):
        buffer.add_batch(two_policies(30, 30, start))
    for _ in range(10):
        both = buffer.replay().policy_batches
        assert_close(both["a"].rewards + 100, both["b"].rewards)


# -- priorities -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("by_policy", [False, True])
def test_updated_rows_are_drawn_more_often(by_policy: bool) -> None:
    buffer = local_buffer(prioritized_replay_alpha=1.0, replay_batch_size=50)
    for _ in range(20):
        batch = buffer.replay()
        errors = torch.where(batch.rewards == 7, 1000.0, 1e-3)
        if by_policy:
            buffer.update_priorities({"default_policy": (batch.batch_indexes, errors)})
        else:
            buffer.update_priorities(batch.batch_indexes, errors)
    assert float((buffer.replay().rewards == 7).float().mean()) > 0.9


def test_rllibs_dummy_weights_are_no_priorities() -> None:
    """Its buffer took a column of ones for the priority of new rows, so that data after the first errors starved."""
    buffer = local_buffer(prioritized_replay_alpha=1.0)
    batch = buffer.replay()
    buffer.update_priorities(batch.batch_indexes, torch.full((8,), 500.0))
    buffer.add_batch({**rows(1, 50), "weights": np.ones(1, np.float32)})
    ring: Any = buffer.buffers["default_policy"]
    assert (ring.tree.leaves > 499).sum() == len(batch.batch_indexes.unique()) + 1


@pytest.mark.parametrize("keywords", [{"prioritized_replay_alpha": 0.0}, {"replay_mode": "lockstep"}])
def test_without_priorities_an_update_has_no_effect(keywords: dict[str, Any]) -> None:
    buffer = local_buffer(**keywords)
    batch = buffer.replay()
    assert "weights" not in batch
    buffer.update_priorities(batch.batch_indexes, torch.ones(8))


# -- sequences --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_sequences_are_stretches_of_one_episode(alpha: float) -> None:
    """Episodes of 10 steps in sequences of 5; 16 rows make 3 sequences."""
    stream = {**rows(100, episode=10), "t": np.arange(100) % 10}
    buffer = LocalReplayBuffer(
        learning_starts=0, replay_batch_size=16, replay_sequence_length=5, prioritized_replay_alpha=alpha
    )
    buffer.add_batch(stream)
    batch = buffer.replay()
    assert batch.seq_lens.tolist() == [5, 5, 5]
    steps = batch.rewards.view(3, 5)
    assert_close(steps - steps[:, :1], torch.arange(5.0).expand(3, 5))
    assert (steps[:, 0] % 5 == 0).all()
    buffer.update_priorities(batch.batch_indexes, torch.ones(3))


# -- bookkeeping ------------------------------------------------------------------------------------------------------
def test_a_restored_buffer_replays_the_same() -> None:
    one = local_buffer()
    other = LocalReplayBuffer(**NONE).set_state(one.get_state())
    for _ in range(3):
        first, second = one.replay(), other.replay()
        assert torch.equal(first.batch_indexes, second.batch_indexes) and torch.equal(first.obs, second.obs)
    assert one.stats() == other.stats() and other.stats()["num_added"] == 50


def test_wrong_numbers_words_and_batches_are_refused() -> None:
    cases = [
        ({"num_shards": 0}, "num_shards=0"),
        ({"buffer_size": 0}, "buffer_size=0"),
        ({"replay_batch_size": 0}, "replay_batch_size=0"),
        ({"replay_mode": "lock_step"}, "'lockstep'"),
        ({"replay_mode": "lockstep", "replay_sequence_length": 4}, "replay_sequence_length=4; expected 1"),
    ]
    assert not_refused(lambda keywords: LocalReplayBuffer(**keywords), cases) == []
    columns, several, one = rows(5), LocalReplayBuffer(**NONE), local_buffer()
    several.add_batch(two_policies(10, 10))
    lockstep, drawn = LocalReplayBuffer(replay_mode="lockstep"), one.replay().batch_indexes
    lacking = {name: SampleBatch(columns).without(name) for name in columns}
    house = {name: {"new_obs": "next_obs", "dones": "terminated"}.get(name, name) for name in columns}
    calls: list[tuple[Any, Any, str]] = [
        *((one.add_batch, [lacking[name]], f"lack {house[name]};") for name in columns),
        (one.add_batch, [{**columns, "actions": np.zeros(4)}], "'actions' has 4 rows and 'rewards' 5"),
        (lockstep.add_batch, [two_policies(10, 11)], r"lockstep.*same steps.*'a': 10, 'b': 11"),
        (one.replay, ["defalt_policy"], r"'defalt_policy'.*'default_policy'"),
        (one.update_priorities, [drawn, torch.full((8,), float("nan"))], "TD error 0 of 8"),
        (several.update_priorities, [several.replay("a").batch_indexes, torch.ones(8)], r"\['a', 'b'\]"),
    ]
    assert not_refused(lambda call, given: call(*given), calls, (ConfigError, NonFiniteError)) == []


def test_a_plan_stores_and_replays_in_turn() -> None:
    """Learning starts at 20 rows, so behind the first batch of 10 there is nothing to replay."""
    buffer = LocalReplayBuffer(learning_starts=20, replay_batch_size=8)
    batches = (rows(10, start) for start in range(0, 40, 10))
    store_op = for_each(batches, StoreToReplayBuffer(local_buffer=buffer))
    replay_op = for_each(Replay(local_buffer=buffer), lambda batch: (buffer.num_added, batch.count))
    train_op = concurrently([store_op, replay_op], mode="async", output_indexes=[1])
    assert list(islice(LocalIterator(train_op), 3)) == [(20, 8), (30, 8), (40, 8)]


REPLAY = {"learning_starts": 40, "train_batch_size": 16, "rollout_fragment_length": 4, "timesteps_per_iteration": 80}


@pytest.mark.parametrize("prioritized", [False, True])
def test_the_buffer_of_a_trainer_is_what_its_policy_learns_from(prioritized: bool) -> None:
    """And drawing from it changes no training."""
    made, other = (trainer("DQN", prioritized_replay=prioritized, **REPLAY) for _ in range(2))
    assert made.local_replay_buffer.replay() is None and len(made.local_replay_buffer) == 0
    made.train(), other.train()
    buffer = made.local_replay_buffer
    assert len(buffer) == buffer.num_added == buffer.stats()["policy_default_policy"]["num_entries"] == 80
    batch = buffer.replay()
    assert batch["obs"].shape == (16, 4) and batch.policy_batches["default_policy"] is batch
    assert ("weights" in batch) == prioritized
    assert buffer.replay_buffers["default_policy"] is made.datamodule.source.buffer
    made.train(), other.train()
    weights = (each.get_weights()["default_policy"] for each in (made, other))
    for own, others in zip(*(each.values() for each in weights), strict=True):
        assert_close(torch.as_tensor(own), torch.as_tensor(others), rtol=0, atol=0)
    assert buffer.num_added == 160
    other.local_replay_buffer.set_state(buffer.get_state())
    made.stop(), other.stop()


def test_trainers_without_replay_have_no_buffer_and_each_of_several_policies_has_one() -> None:
    alone = trainer(train_batch_size=64)
    assert alone.local_replay_buffer is None
    alone.stop()
    section = {"policies": ["a", "b"], "policy_mapping_fn": lambda agent, *_, **__: "ab"[int(agent[-1])]}
    made = trainer(
        "DQN", env=make_multi_agent("CartPole-v1"), env_config={"num_agents": 2}, multiagent=section, **REPLAY
    )
    made.train()
    both = made.local_replay_buffer.replay()
    assert {name: rows.count for name, rows in both.policy_batches.items()} == {"a": 16, "b": 16}
    made.stop()


def test_the_buffer_of_a_plan_is_the_one_that_it_fills() -> None:
    seen = []

    def plan(workers: Any, config: Any, local_replay_buffer: Any) -> Any:
        seen.append(local_replay_buffer)
        return ParallelRollouts(workers).for_each(StoreToReplayBuffer(local_buffer=local_replay_buffer))

    made = trainer("DQN", plan, **REPLAY)
    made.train()
    assert made.local_replay_buffer is seen[0] and seen[0].num_added > 0
    made.stop()


@pytest.mark.ray
def test_a_replay_actor_has_the_same_verbs() -> None:
    import ray

    actor = LocalReplayBuffer.as_remote(num_cpus=1).remote(num_shards=2, learning_starts=20, replay_batch_size=4)
    ray.get(actor.add_batch.remote(rows(9)))
    assert ray.get(actor.replay.remote()) is None
    ray.get(actor.add_batch.remote(rows(9, 9)))
    batch = ray.get(actor.replay.remote())
    assert_close(batch.obs[:, 0], batch.rewards)
    ray.get(actor.update_priorities.remote(batch.batch_indexes, torch.ones(4)))
    assert ray.get(actor.stats.remote())["num_added"] == 18
