"""RLlib's own plans, written as there, train its algorithms; each operator does what its parameters say."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from lightning_rl.errors import ConfigError
from lightning_rl.rllib import DefaultCallbacks, LocalReplayBuffer
from lightning_rl.rllib.plan_operators import (
    ApplyGradients,
    AsyncGradients,
    AverageGradients,
    BroadcastUpdateLearnerWeights,
    ComputeGradients,
    Dequeue,
    Enqueue,
    LearnerThread,
    MixInReplay,
    OncePerTimestepsElapsed,
    UpdateKL,
    record_steps_trained,
)
from lightning_rl.rllib.plan_verbs import NOT_READY
from lightning_rl.rllib.plans import (
    ConcatBatches,
    Concurrently,
    LocalIterator,
    MultiGPUTrainOneStep,
    ParallelRollouts,
    Replay,
    SelectExperiences,
    StandardizeFields,
    StandardMetricsReporting,
    StoreToReplayBuffer,
    TrainOneStep,
    UpdateTargetNetwork,
)
from lightning_rl.sample_batch import MultiAgentBatch, SampleBatch
from tests.rllib.classic import trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*no counterpart.*")
SMALL: dict[str, Any] = {"num_envs_per_worker": 2, "rollout_fragment_length": 16, "model": {"fcnet_hiddens": [8]}}


# -- RLlib's plans ----------------------------------------------------------------------------------------------------
def train_step(workers: Any, config: Any, rows: int, sweeps: int = 1) -> Any:
    if config["simple_optimizer"]:
        return TrainOneStep(workers, num_sgd_iter=sweeps, sgd_minibatch_size=rows)
    return MultiGPUTrainOneStep(
        workers=workers,
        sgd_minibatch_size=rows,
        num_sgd_iter=sweeps,
        num_gpus=config["num_gpus"],
        shuffle_sequences=True,
        _fake_gpus=config["_fake_gpus"],
        framework=config.get("framework"),
    )


def plan_of_pg(workers: Any, config: Any, **kwargs: Any) -> Any:
    assert not kwargs
    rollouts = ParallelRollouts(workers, mode="bulk_sync")
    batches = rollouts.combine(
        ConcatBatches(config["train_batch_size"], count_steps_by=config["multiagent"]["count_steps_by"])
    )
    train = batches.for_each(train_step(workers, config, config["train_batch_size"]))
    return StandardMetricsReporting(train, workers, config)


def plan_of_a2c(workers: Any, config: Any, **kwargs: Any) -> Any:
    assert not kwargs
    rollouts = ParallelRollouts(workers, mode="bulk_sync")
    if not config["microbatch_size"]:
        return plan_of_pg(workers, config)
    count = math.ceil(config["train_batch_size"] / config["microbatch_size"])
    train = (
        rollouts.combine(ConcatBatches(min_batch_size=config["microbatch_size"]))
        .for_each(ComputeGradients(workers))
        .batch(count)
        .for_each(AverageGradients())
        .for_each(ApplyGradients(workers))
    )
    return StandardMetricsReporting(train, workers, config)


def plan_of_a3c(workers: Any, config: Any, **kwargs: Any) -> Any:
    assert not kwargs
    train = AsyncGradients(workers).for_each(ApplyGradients(workers, update_all=False))
    return StandardMetricsReporting(train, workers, config)


def plan_of_ppo(workers: Any, config: Any, **kwargs: Any) -> Any:
    assert not kwargs
    train = (
        ParallelRollouts(workers, mode="bulk_sync")
        .for_each(SelectExperiences(workers.trainable_policies()))
        .combine(ConcatBatches(config["train_batch_size"], count_steps_by=config["multiagent"]["count_steps_by"]))
        .for_each(StandardizeFields(["advantages"]))
        .for_each(train_step(workers, config, config["sgd_minibatch_size"], config["num_sgd_iter"]))
        .for_each(lambda item: item[1])
        .for_each(UpdateKL(workers))
    )
    return StandardMetricsReporting(train, workers, config)


def plan_of_dqn(workers: Any, config: Any, **kwargs: Any) -> Any:
    buffer = kwargs["local_replay_buffer"]
    store = ParallelRollouts(workers, mode="bulk_sync").for_each(StoreToReplayBuffer(local_buffer=buffer))

    def update_priorities(item: Any) -> Any:
        samples, info = item
        if config.get("prioritized_replay"):
            batches = samples.as_multi_agent().policy_batches
            buffer.update_priorities({name: (batches[name]["batch_indexes"], info[name]["td_error"]) for name in info})
        return samples, info

    post_fn = config.get("before_learn_on_batch") or (lambda batch, *_: batch)
    learn = (
        Replay(local_buffer=buffer)
        .for_each(lambda batch: post_fn(batch, workers, config))
        .for_each(train_step(workers, config, config["train_batch_size"]))
        .for_each(update_priorities)
        .for_each(UpdateTargetNetwork(workers, config["target_network_update_freq"]))
    )
    both = Concurrently([store, learn], mode="round_robin", output_indexes=[1], round_robin_weights=[1, 1])
    return StandardMetricsReporting(both, workers, config)


def plan_of_impala(workers: Any, config: Any, **kwargs: Any) -> Any:
    assert not kwargs
    batches = (
        ParallelRollouts(workers, mode="async", num_async=config["max_sample_requests_in_flight_per_worker"])
        .for_each(MixInReplay(config["replay_buffer_num_slots"], config["replay_proportion"]))
        .flatten()
        .combine(ConcatBatches(config["train_batch_size"], count_steps_by=config["multiagent"]["count_steps_by"]))
    )
    learner = LearnerThread(workers, num_sgd_iter=config["num_sgd_iter"], learner_queue_size=16)
    learner.start()
    enqueue = (
        batches.for_each(Enqueue(learner.inqueue))
        .zip_with_source_actor()
        .for_each(BroadcastUpdateLearnerWeights(learner, workers, broadcast_interval=config["broadcast_interval"]))
    )
    dequeue = Dequeue(learner.outqueue, check=learner.is_alive).for_each(record_steps_trained)
    merged = Concurrently([enqueue, dequeue], mode="async", output_indexes=[1])
    return StandardMetricsReporting(merged, workers, config).for_each(learner.add_learner_metrics)


REPLAYS = {"learning_starts": 40, "train_batch_size": 16, "timesteps_per_iteration": 80}
PLANS: dict[str, tuple[Any, dict[str, Any], int]] = {  # the plan, keys, and the most env steps of two results
    "PG": (plan_of_pg, {"train_batch_size": 60, **SMALL}, 140),
    "A2C": (plan_of_a2c, {"train_batch_size": 60, **SMALL}, 140),
    "A2C in parts": (plan_of_a2c, {"train_batch_size": 90, "microbatch_size": 30, **SMALL}, 240),
    "A3C": (plan_of_a3c, {"num_workers": 0, **SMALL}, 140),
    "PPO": (plan_of_ppo, {"train_batch_size": 60, "sgd_minibatch_size": 20, "num_sgd_iter": 3, **SMALL}, 140),
    "DQN": (plan_of_dqn, {**REPLAYS, "prioritized_replay": True, "rollout_fragment_length": 4}, 220),
    "SAC": (plan_of_dqn, {**REPLAYS, "target_network_update_freq": 0}, 220),
    "IMPALA": (plan_of_impala, {"train_batch_size": 60, "num_sgd_iter": 1, **SMALL}, 240),
}


@pytest.mark.parametrize("case", PLANS)
def test_rllib_s_plan_of_an_algorithm_trains_it(case: str) -> None:
    plan, keys, most = PLANS[case]
    made = trainer(case.split()[0], plan, **keys)
    before = {name: value.clone() for name, value in made.policy.state_dict().items() if value.is_floating_point()}
    results = [made.train() for _ in range(2)]
    moved = [name for name, value in before.items() if not torch.equal(value, made.policy.state_dict()[name])]
    made.stop()
    assert results[0]["timesteps_total"] < results[1]["timesteps_total"] <= most and moved
    assert results[1]["gradient_steps"] > results[0]["gradient_steps"] >= 1
    learned = results[1]["info"]["learner"]["default_policy"]["learner_stats"]
    assert learned and all(math.isfinite(value) for value in learned.values())


def test_ppo_s_plan_takes_the_sweeps_and_minibatches_of_the_operator() -> None:
    """3 sweeps over 60 to 62 rows in minibatches of 20 are 9 gradient steps, whatever the config says."""

    def plan(workers: Any, config: Any) -> Any:
        batches = ParallelRollouts(workers).combine(ConcatBatches(60))
        return batches.for_each(TrainOneStep(workers, num_sgd_iter=3, sgd_minibatch_size=20))

    made = trainer("PPO", plan, num_sgd_iter=1, **SMALL)
    result = made.train()
    made.stop()
    assert 60 <= result["timesteps_total"] <= 96 and result["gradient_steps"] in (9, 12, 15)


def test_an_operator_without_sweeps_takes_one_step_on_the_whole_batch() -> None:
    def plan(workers: Any, config: Any) -> Any:
        batches = ParallelRollouts(workers).combine(ConcatBatches(60))
        return StandardMetricsReporting(batches.for_each(TrainOneStep(workers)), workers, config)

    made = trainer("PPO", plan, num_sgd_iter=5, sgd_minibatch_size=20, **SMALL)
    counts = [made.train()["gradient_steps"] for _ in range(2)]
    made.stop()
    assert counts == [1, 2]


def test_the_gradients_of_parts_are_averaged_and_their_steps_added() -> None:
    made = trainer("PG", num_envs_per_worker=2, model={"fcnet_hiddens": [8]}, seed=1)
    workers = made.workers
    part = made.policy.learner.rows_of(workers.sample())[:40]
    parts = [ComputeGradients(workers)(half) for half in part.timeslices(20)]
    update, count = AverageGradients()(parts)
    made.stop()
    (first, _), (second, _) = parts
    assert count == update.env_steps == 40
    assert update.metrics["loss"] == pytest.approx((first.metrics["loss"] + second.metrics["loss"]) / 2)
    for mean, one, other in zip(update.gradients, first.gradients, second.gradients, strict=True):
        np.testing.assert_allclose(mean, (one + other) / 2, rtol=1e-6)


# -- operators --------------------------------------------------------------------------------------------------------
def rows(count: int, **columns: Any) -> SampleBatch:
    return SampleBatch(rewards=torch.ones(count), **columns)


def test_batches_are_concatenated_by_env_or_agent_steps() -> None:
    batch = MultiAgentBatch({"a": rows(4), "b": rows(4)}, 4)
    by_env, by_agent = ConcatBatches(8), ConcatBatches(8, count_steps_by="agent_steps")
    assert by_env(batch) == [] and len(by_env(batch)) == 1 and len(by_agent(batch)) == 1
    with pytest.raises(ConfigError, match="count_steps_by='steps'"):
        ConcatBatches(8, count_steps_by="steps")


def test_experiences_are_selected_and_fields_standardized() -> None:
    batch = MultiAgentBatch({"a": rows(4, advantages=torch.tensor([1.0, 2.0, 3.0, 4.0])), "b": rows(4)}, 4)
    assert set(SelectExperiences(["a"])(batch).policy_batches) == {"a"}
    assert SelectExperiences(["a"])(rows(3)).count == 3
    found = StandardizeFields(["advantages"])(batch)["a"].advantages
    assert float(found.mean()) == pytest.approx(0, abs=1e-6) and float(found.std()) == pytest.approx(1)


def test_raw_rollouts_are_those_of_each_worker() -> None:
    """Two environments that take 16 steps of experience each, or more while the other is reset."""
    made = trainer("A3C", num_workers=0, **SMALL)
    samples = ParallelRollouts(made.workers, mode="raw").take(2)
    made.stop()
    assert all(32 <= sample["rewards"].shape[0] == sample.count <= 34 for sample in samples)


def test_several_buffers_are_filled_and_drawn_from_in_turn() -> None:
    buffers = [LocalReplayBuffer(learning_starts=1, replay_batch_size=2) for _ in range(2)]
    store = StoreToReplayBuffer(actors=buffers)
    for value in range(4):
        columns = {name: np.full(3, value, np.float32) for name in ("obs", "next_obs", "actions", "rewards")}
        store(SampleBatch(**columns, terminated=np.ones(3, bool)))
    assert [len(buffer) for buffer in buffers] == [6, 6]
    drawn = Replay(actors=buffers).take(4)
    assert [{int(value) % 2 for value in batch["rewards"]} for batch in drawn] == [{0}, {1}, {0}, {1}]
    with pytest.raises(ConfigError, match="either local_buffer"):
        Replay(local_buffer=buffers[0], actors=buffers)


def test_old_batches_are_mixed_in() -> None:
    mix = MixInReplay(num_slots=2, replay_proportion=1.5)
    assert [len(mix(rows(1))) for _ in range(4)] == [1, 2, 3, 2]
    with pytest.raises(ConfigError, match="give num_slots"):
        MixInReplay(num_slots=0, replay_proportion=1.0)


def test_iterators_batch_flatten_and_pass_what_is_not_ready() -> None:
    items = LocalIterator([1, NOT_READY, 2, 3, 4]).batch(2)
    assert list(items) == [[1, 2], [3, 4]]
    assert LocalIterator([[1, 2], [3]]).flatten().take(3) == [1, 2, 3]
    assert LocalIterator([5]).zip_with_source_actor().take(1) == [(None, 5)]


def test_an_item_is_let_through_once_per_so_many_steps() -> None:
    made = trainer("PG", num_envs_per_worker=2)
    once = OncePerTimestepsElapsed(10, made.workers)
    made.policy.env_steps += 10
    assert [once(None), once(None)] == [True, False]
    made.stop()


# -- names in plans ---------------------------------------------------------------------------------------------------
class Watcher(DefaultCallbacks):
    """Keeps the samples that workers report."""

    seen: ClassVar[list[Any]] = []

    def on_sample_end(self, *, worker: Any, samples: Any, **keywords: Any) -> None:
        self.seen.append(samples)


def test_batches_of_plans_workers_and_callbacks_have_rllib_s_names() -> None:
    """Rows of an episode follow each other, and each leads to the next; they are arrays."""
    seen = Watcher.seen = []

    def plan(workers: Any, config: Any) -> Any:
        rollouts = ParallelRollouts(workers).for_each(lambda batch: seen.append(batch) or batch)
        return StandardMetricsReporting(rollouts.for_each(TrainOneStep(workers)), workers, config)

    made = trainer("PG", plan, callbacks=Watcher, **SMALL)
    made.train()
    samples = [*seen, made.workers.sample()]
    made.stop()
    assert len(samples) == 3
    for batch in samples:
        assert "dones" in batch and "new_obs" in batch and list(batch.keys()) == list(batch)
        assert batch.count == batch.env_steps() == len(batch) == len(batch["rewards"]) >= 32
        assert isinstance(batch["obs"], np.ndarray) and (batch["dones"] == batch["terminateds"]).all()
        parts = batch.split_by_episode()
        assert len(parts) >= 2 and sum(part.count for part in parts) == batch.count
        for part in parts:
            assert len(set(part["eps_id"])) == 1 and (np.diff(part["t"]) == 1).all()
            assert (part["new_obs"][:-1] == part["obs"][1:]).all()
    assert "advantages" in seen[1] and "advantages" not in seen[0]  # the callback's is not postprocessed yet


def test_samples_that_are_not_read_stay_fragments() -> None:
    held: list[Any] = []
    buffer = LocalReplayBuffer(learning_starts=0)

    def plan(workers: Any, config: Any) -> Any:
        rollouts = ParallelRollouts(workers).for_each(lambda batch: held.append(batch) or batch)
        joined = rollouts.combine(ConcatBatches(60))
        stored = joined.for_each(StoreToReplayBuffer(local_buffer=buffer)).for_each(TrainOneStep(workers))
        return stored.for_each(lambda item: held.append(item[0]) or item)

    made = trainer("A2C", plan, **SMALL)
    steps = made.train()["timesteps_total"]
    made.stop()
    assert [batch.fragment.valid.shape[1] for batch in held] == [2, 2, 4]
    assert steps == buffer.num_added == held[2].count == held[2].env_steps() >= 60
    assert held[2]["rewards"].shape == (steps,) and held[2].fragment is None
    assert held[0].fragment is not None  # of its own


def test_a_policy_learns_from_the_rows_that_a_function_has_changed() -> None:
    """The gradients of PG are 0 where its advantages are; and rows that a function leaves out are not learned from."""

    moved, scale = {}, 0.0

    def change(batch: Any) -> Any:
        batch["advantages"] *= scale
        return batch[:20]

    def plan(workers: Any, config: Any) -> Any:
        rollouts = ParallelRollouts(workers).for_each(change)
        return StandardMetricsReporting(rollouts.for_each(TrainOneStep(workers)), workers, config)

    for scale in (0.0, 1.0):
        made = trainer("PG", plan, **SMALL)
        before = [value.clone() for value in made.policy.parameters()]
        result = made.train()
        after = [*made.policy.parameters()]
        moved[scale] = any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
        made.stop()
        assert result["info"]["num_steps_trained"] == 20
    assert moved == {0.0: False, 1.0: True}


def test_fields_of_samples_are_standardized() -> None:
    seen: list[Any] = []

    def plan(workers: Any, config: Any) -> Any:
        rollouts = ParallelRollouts(workers).for_each(StandardizeFields(["advantages"]))
        rollouts = rollouts.for_each(lambda batch: seen.append(batch["advantages"].copy()) or batch)
        return StandardMetricsReporting(rollouts.for_each(TrainOneStep(workers)), workers, config)

    made = trainer("A2C", plan, **SMALL)
    made.train()
    made.stop()
    assert seen[0].mean() == pytest.approx(0, abs=1e-5) and seen[0].std() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("reads", [False, True])
def test_a_buffer_within_a_plan_sums_the_rewards_of_n_steps(reads: bool) -> None:
    """CartPole's rewards are 1, here doubled where the plan reads them; γ = 0.5: 1 + 0.5 + 0.25, less at the end."""
    drawn: list[Any] = []

    def plan(workers: Any, config: Any, **kwargs: Any) -> Any:
        def double(batch: Any) -> Any:
            batch["rewards"] *= 2
            return batch

        buffer = LocalReplayBuffer(learning_starts=40, replay_batch_size=32)
        rollouts = ParallelRollouts(workers)
        store = (rollouts.for_each(double) if reads else rollouts).for_each(StoreToReplayBuffer(local_buffer=buffer))
        learn = Replay(local_buffer=buffer).for_each(lambda batch: drawn.append(batch) or batch)
        learn = learn.for_each(TrainOneStep(workers)).for_each(UpdateTargetNetwork(workers, 50))
        return StandardMetricsReporting(Concurrently([store, learn], output_indexes=[1]), workers, config)

    made = trainer("DQN", plan, n_step=3, gamma=0.5, rollout_fragment_length=20)
    made.train()
    made.stop()
    sums = {1.75, 1.5, 1.0}
    found = set(drawn[0]["rewards"].tolist())
    assert max(sums) * (1 + reads) in found and found <= {each * (1 + reads) for each in sums}


def test_functions_after_the_report_change_the_trainer_s_results() -> None:
    def plan(workers: Any, config: Any) -> Any:
        def add(result: dict[str, Any]) -> dict[str, Any]:
            result["info"].update({"twice": 2 * result["timesteps_total"]})
            return {**result, "mine": result["episode_reward_mean"]}

        train = ParallelRollouts(workers).for_each(TrainOneStep(workers))
        return StandardMetricsReporting(train, workers, config).for_each(add)

    made = trainer("PG", plan, **SMALL)
    result = made.train()
    made.stop()
    assert result["info"]["twice"] == 2 * result["timesteps_total"] > 0
    assert result["mine"] == pytest.approx(result["episode_reward_mean"], nan_ok=True)


def test_draws_are_batches_of_their_one_policy_too() -> None:
    """Some programs go through `policy_batches`."""
    buffer = LocalReplayBuffer(learning_starts=0, replay_batch_size=4, capacity=100, replay_zero_init_states=False)
    columns = {"obs": torch.arange(8.0), "new_obs": torch.arange(8.0) + 1, "actions": torch.zeros(8).long()}
    buffer.add_batch({**columns, "rewards": torch.ones(8), "dones": torch.zeros(8).bool()})
    (batch,) = Replay(local_buffer=buffer).take(1)
    assert batch.policy_batches["default_policy"] is batch and torch.equal(batch["new_obs"], batch["obs"] + 1)


def test_a_plan_of_rllib_updates_the_priorities_of_its_own_buffer() -> None:
    """The lengths and rates are the config's: without a memory, rows are drawn one by one."""
    drawn: list[int] = []

    def plan(workers: Any, config: Any) -> Any:
        buffer = LocalReplayBuffer(
            num_shards=1,
            learning_starts=config["learning_starts"],
            capacity=config["buffer_size"],
            replay_batch_size=config["train_batch_size"],
            replay_mode=config["multiagent"]["replay_mode"],
            replay_sequence_length=config.get("replay_sequence_length", 1),
            replay_burn_in=config.get("burn_in", 0),
            replay_zero_init_states=config.get("zero_init_states", True),
        )

        def update_priorities(item: Any) -> Any:
            samples, infos = item
            for name, info in infos.items():
                batch = samples.policy_batches[name]
                batch.set_get_interceptor(None)
                buffer.update_priorities({name: (batch.get("batch_indexes"), info["td_error"])})
                drawn.append(batch.count)
            return infos

        store = ParallelRollouts(workers).for_each(StoreToReplayBuffer(local_buffer=buffer))
        learn = Replay(local_buffer=buffer).for_each(TrainOneStep(workers)).for_each(update_priorities)
        return StandardMetricsReporting(Concurrently([store, learn], output_indexes=[1]), workers, config)

    keys = {"learning_starts": 40, "train_batch_size": 32, "rollout_fragment_length": 4}
    made = trainer("DQN", plan, model={"fcnet_hiddens": [8]}, **keys)
    made.train()
    made.stop()
    assert drawn and set(drawn) == {32}
