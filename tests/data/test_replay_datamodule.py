"""Acting, storing and learning in turn: what a run with replay does, seen from its plan and its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lightning_rl.config import check_config, compose_config
from lightning_rl.data.plans import Draw
from lightning_rl.data.replay_datamodule import ReplayDataModule, store_and_replay
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.models import Model
from lightning_rl.policies import DQN, R2D2, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs import run
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE

SMALL = [
    "experiment=none",
    "logger=none",
    "evaluation.every_env_steps=0",
    "data.batch_size=16",
    "data.learning_starts=32",
    "data.capacity=200",
    "model.fcnet_hiddens=[8]",
]


def config(run_dir: Path, *overrides: str) -> dict[str, Any]:
    composed = compose_config([*SMALL, f"run_dir={run_dir}", *overrides])
    check_config(composed)
    return composed


class OneStep(Policy):
    """Its loss knows nothing of `discounts`."""

    data, off_policy = "replay", True

    def loss(self, batch: SampleBatch) -> tuple[Tensor, dict[str, Tensor]]:
        values = self.outputs_of(batch)[0].mean(1)
        return (values - batch.rewards - self.gamma).square().mean(), {}


class Diary:
    """The default plan, with a note of what it gave."""

    events: list[tuple[int, int, int]]  # gradient steps that rows are for, environment steps, gradient steps taken

    def __call__(self, workers: Any, policy: Any, replay: ReplayDataModule) -> Iterator[SampleBatch]:
        for item in store_and_replay(workers, policy, replay):
            steps = item.steps if isinstance(item, Draw) else 0
            type(self).events.append((steps, policy.env_steps, policy.gradient_steps))
            yield item


def recording_plan(workers: Any, policy: Any, replay: ReplayDataModule) -> Iterator[SampleBatch]:
    return Diary()(workers, policy, replay)


def test_a_run_that_ends_before_its_first_gradient_step_says_so_before_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first of 0.25 gradient steps an env step is due 4 env steps after the 32 of the warm-up."""
    slow = ("policy=dqn", "env=cartpole", "data.training_intensity=0.25")
    run.build(config(tmp_path, *slow, "total_env_steps=36"))
    assert caplog.messages == []
    run.build(config(tmp_path, *slow, "total_env_steps=35"))
    assert caplog.messages == [
        "data.learning_starts=32: the first gradient step is due after 36 env steps, and the run ends with the "
        "iteration that reaches total_env_steps=35: it learns next to nothing; lower data.learning_starts, or raise "
        "total_env_steps"
    ]


@pytest.mark.parametrize("intensity", [0.25, 1.0, 2.0])
def test_gradient_steps_come_as_soon_as_they_are_due(tmp_path: Path, intensity: float) -> None:
    Diary.events = []
    run.train(
        config(
            tmp_path / "run",
            "policy=dqn",
            "env=cartpole",
            "total_env_steps=100",
            f"data.training_intensity={intensity}",
            "workers.fragment_length=4",
            f"data.plan={__name__}:recording_plan",
        )
    )
    assert Diary.events[-1][1] >= 100
    due = 0
    for steps, env_steps, taken in Diary.events:
        assert steps or taken == due  # acting goes on when all steps are taken
        due = int(max(0, env_steps - 32) * intensity)
        assert taken + steps <= due  # rows come before their gradient steps are taken
    assert sum(steps for steps, _, _ in Diary.events) == int((Diary.events[-1][1] - 32) * intensity)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("policy=sac", "env.id=Pendulum-v1"), 3),
        (("policy=sac", "env.id=Pendulum-v1", "data.n_step=1"), 1),
        (("policy=dqn", "env.id=CartPole-v1"), 3),
        (("policy=r2d2", "env.id=CartPole-v1", "data.capacity=4000"), 5),
        (("policy=td3", "env=point_reach", "data=hindsight"), 1),
        (("policy=ddpg", "env.id=Pendulum-v1", "data=replay"), 1),
        (("policy=tqc", "env.id=Pendulum-v1"), 3),
        ((f"policy={__name__}:OneStep", "env.id=Pendulum-v1"), 1),
    ],
)
def test_rows_sum_three_rewards_for_the_package_s_own_losses_and_one_for_others(
    tmp_path: Path, overrides: tuple[str, ...], expected: int
) -> None:
    policy, datamodule, _ = run.build(config(tmp_path, *overrides))
    assert datamodule.make_buffer(policy).n_step == expected


def test_an_iteration_takes_fragments_per_iteration_fragments(tmp_path: Path) -> None:
    Diary.events = []
    status = run.train(
        config(
            tmp_path / "run",
            "policy=sac",
            "env=pendulum",
            "total_env_steps=60",
            "data.fragments_per_iteration=10",
            f"data.plan={__name__}:recording_plan",
        )
    )
    assert status["env_steps"] == 60 == sum(steps == 0 for steps, _, _ in Diary.events)
    assert sum(steps for steps, _, _ in Diary.events) == 60 - 32


def test_a_buffer_larger_than_the_memory_is_refused_with_a_capacity_that_fits(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"GiB.*data\.capacity to \d+"):
        run.train(config(tmp_path / "run", "policy=dqn", "env=cartpole", "data.capacity=1_000_000_000_000"))


class ReadsPreviousStep(Model):
    """Outputs of the previous action and reward alone."""

    prev_actions = prev_rewards = 1

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, **keywords: Any) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.layer = nn.Linear(2, num_outputs)

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        """Outputs, and no state."""
        actions, rewards = input_dict["prev_actions"], input_dict["prev_rewards"]
        if rewards is None:  # the catalog calls the model once with observations only
            return self.layer(torch.zeros(len(input_dict["obs"]), 2)), []
        return self.layer(torch.stack([actions.float(), rewards], dim=1)), []


def test_rows_hold_the_previous_step_for_a_model_without_state_that_reads_it() -> None:
    """CartPole's reward is 1: prev_rewards of the next step are 1, and 0 before the first step."""
    env = CARTPOLE
    policy = DQN(*env.spaces(), model={"custom_model": ReadsPreviousStep})
    buffer = ReplayDataModule(env, capacity=100, batch_size=8, learning_starts=8).make_buffer(policy)
    fragment = RolloutWorker(env, policy, fragment_length=40).sample()
    buffer.add(policy.learner.take_experience(fragment))
    assert buffer.ring is not None
    stored = buffer.rows(buffer.ring.ids(np.flatnonzero(buffer.ring.flags >= 128)))
    for rows in (stored, policy.postprocess_trajectory(fragment)):
        assert torch.equal(rows["next_prev_actions"], rows.actions)
        assert set(rows["next_prev_rewards"].tolist()) == {1.0}
        assert set(rows.prev_rewards.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("memory", [False, True], ids=["rows", "sequences"])
def test_rows_hold_the_time_step_if_the_policy_reads_it(memory: bool) -> None:
    """Curiosity reads the next observation of a row's own step, scaled rewards are clipped one by one; else neither."""
    env = CARTPOLE
    policy_class, model = (R2D2, {"use_lstm": True, "lstm_cell_size": 8}) if memory else (DQN, {})
    module = ReplayDataModule(env, capacity=200, batch_size=8, learning_starts=8, n_step=3, sequence_length=8)
    curious, plain = {"exploration": {"type": "curiosity"}, "reward_filter": "return_std"}, {}
    for keywords, expected in ((curious, {"step_next_obs", "step_rewards", "intrinsic_rewards"}), (plain, set())):
        policy = policy_class(*env.spaces(), model=model, **keywords)
        buffer = module.make_buffer(policy)
        fragment = RolloutWorker(env, policy, fragment_length=40).sample()
        buffer.add(policy.learner.take_experience(fragment))
        rows = buffer.sample(4)
        found = {"step_next_obs", "step_rewards", "intrinsic_rewards"} & set(rows)
        assert found == expected - ({"step_next_obs"} if memory else set())  # "next_obs" of a sequence's row is that
        if keywords and not memory:
            follows = {
                tuple(obs.tolist()): after for obs, after in zip(fragment.obs[:-1, 0], fragment.obs[1:, 0], strict=True)
            }
            for obs, after in zip(rows.obs, rows["step_next_obs"], strict=True):
                assert torch.equal(follows[tuple(obs.tolist())], after)
            assert not torch.equal(rows["step_next_obs"], rows.next_obs)
            assert torch.equal(rows["step_rewards"].sum(1) > 1.0, rows.discounts < 0.99)


RECURRENT = ["policy=r2d2", "env=stateless_cartpole", "data.sequence_length=8", "workers.fragment_length=4"]
RECURRENT += ["data.n_step=1", "data.sequence_stride=8"]


def test_learning_waits_for_a_batch_of_sequences(tmp_path: Path) -> None:
    """32 steps make 5 or so; the gradient steps due meanwhile are made up for."""
    Diary.events = []
    overrides = [*RECURRENT, "total_env_steps=120", "data.training_intensity=1.0"]
    run.train(config(tmp_path / "run", *overrides, f"data.plan={__name__}:recording_plan"))
    drawn = [(env_steps, done) for steps, env_steps, done in Diary.events if steps]
    assert drawn[0][0] > 40 and drawn[0][1] == 0
    assert drawn[-1][1] + 1 == Diary.events[-1][1] - 32


def test_a_full_buffer_with_fewer_sequences_than_a_batch_raises(tmp_path: Path) -> None:
    """128 rows of one long episode: 16 sequences of 8, but that the newest one is not complete."""
    few = ["data.capacity=128", "data.learning_starts=40", "total_env_steps=200", "env=mountaincar"]
    others = [override for override in RECURRENT if not override.startswith("env=")]
    with pytest.raises(ConfigError, match=r"16 .*15"):
        run.train(config(tmp_path / "run", *others, *few))


def test_a_buffer_without_room_for_a_batch_of_sequences_is_refused(tmp_path: Path) -> None:
    few = ["data.capacity=120", "data.learning_starts=40"]
    message = r"16 sequences that start 8 rows apart .* needs a buffer of 128 rows; data\.capacity leaves 120: raise it"
    with pytest.raises(ConfigError, match=message):
        run.train(config(tmp_path / "run", *RECURRENT, *few))


@pytest.mark.parametrize(("length", "stride"), [(8, 4), (7, 3), (1, 1)])
def test_sequences_overlap_by_half_by_default(length: int, stride: int) -> None:
    module = ReplayDataModule(CARTPOLE, sequence_length=length)
    assert module.sequences["stride"] == stride


def test_a_checkpoint_without_a_buffer_needs_save_replay_false(tmp_path: Path) -> None:
    def train(total: int, *overrides: str) -> Any:
        composed = config(tmp_path / "run", "policy=dqn", "env=cartpole", f"total_env_steps={total}", *overrides)
        policy, datamodule, trainer = run.build(composed)
        last = tmp_path / "run" / "checkpoints" / "last.ckpt"
        trainer.fit(policy, datamodule=datamodule, ckpt_path=last if last.exists() else None, weights_only=True)
        return datamodule

    train(40, "data.save_replay=false")
    assert "replay" not in next(
        iter(
            value
            for name, value in torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True).items()
            if "DataModule" in name
        )
    )
    with pytest.raises(CheckpointError, match=r"data\.save_replay=false"):
        train(80)
    assert 0 < len(train(80, "data.save_replay=false").replay or ()) < 80


@pytest.mark.parametrize(
    ("workers", "fragments"),
    [
        (["workers.fragment_length=8", "workers.envs_per_worker=2"], 2),
        pytest.param([], 32, marks=pytest.mark.every),
    ],
)
def test_an_iteration_is_about_32_env_steps_and_the_same_gradient_steps(
    workers: list[str], fragments: int, tmp_path: Path
) -> None:
    """What Lightning does for a batch is done once for all of them, whatever a fragment is."""
    policies = []
    for number in ("null", str(fragments)):
        overrides = [
            "policy=dqn",
            "env=cartpole",
            "total_env_steps=96",
            f"data.fragments_per_iteration={number}",
        ]
        policy, datamodule, trainer = run.build(config(tmp_path / number, *overrides, *workers))
        trainer.fit(policy, datamodule=datamodule)
        assert datamodule.fragments_per_iteration == fragments and policy.gradient_steps > 0
        policies.append(policy)
    assert policies[0].iterations == policies[1].iterations
    assert all(map(torch.equal, policies[0].parameters(), policies[1].parameters()))


def test_a_run_resumed_without_its_buffer_waits_for_learning_starts_each_time(tmp_path: Path) -> None:
    """Of 40 env steps 32 fill the buffer, three times over."""
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    for total in (40, 80, 120):
        overrides = [f"total_env_steps={total}", "data.save_replay=false", "data.fragments_per_iteration=1"]
        policy, datamodule, trainer = run.build(config(tmp_path / "run", "policy=dqn", "env=cartpole", *overrides))
        trainer.fit(policy, datamodule=datamodule, ckpt_path=last if last.exists() else None, weights_only=True)
        assert policy.gradient_steps == total // 40 * 8


def test_a_policy_with_earlier_env_steps_fills_a_new_buffer_before_learning(tmp_path: Path) -> None:
    more = ["total_env_steps=5040", "data.fragments_per_iteration=1"]
    composed = config(tmp_path / "run", "policy=dqn", "env=cartpole", *more)
    policy, datamodule, trainer = run.build(composed)
    policy.env_steps = 5000
    trainer.fit(policy, datamodule=datamodule)
    assert (policy.env_steps, policy.gradient_steps) == (5040, 8)
