"""Acting, storing and learning in turn: what a run with replay does, seen from its plan and its checkpoints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lightning_rl.data import ReplayDataModule
from lightning_rl.errors import CheckpointError
from lightning_rl.models import Model
from lightning_rl.policies import DQN, R2D2, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs import run
from lightning_rl.sample_batch import SampleBatch
from tests.data.small_runs import APEX, EVENTS, REPLAY, assert_ratio, fit, small_config
from tests.envs.classic_control import CARTPOLE
from tests.refusals import not_refused
from tests.run_comparison import assert_equal_weights


class OneStep(Policy):
    """Its loss knows nothing of `discounts`."""

    data, off_policy = "replay", True

    def loss(self, batch: SampleBatch) -> tuple[Tensor, dict[str, Tensor]]:
        values = self.outputs_of(batch)[0].mean(1)
        return (values - batch.rewards - self.gamma).square().mean(), {}


def test_a_run_that_ends_before_its_first_gradient_step_says_so_before_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first of 0.25 gradient steps an env step is due 4 env steps after the 32 of the warm-up."""
    for total, messages in ((36, 0), (35, 1)):
        run.build(small_config(tmp_path, *REPLAY, "data.update_to_data_ratio=0.25", f"total_env_steps={total}"))
        assert len(caplog.messages) == messages
    named = r"data\.learning_starts=32: .* after 36 env steps.*total_env_steps=35"
    assert re.match(named, caplog.messages[0])


@pytest.mark.parametrize("kind", ["replay", "apex"])
@pytest.mark.parametrize("intensity", [0.25, 1.0, 2.0])
def test_gradient_steps_come_as_soon_as_they_are_due(tmp_path: Path, intensity: float, kind: str) -> None:
    kinds = {"replay": [*REPLAY, "workers.fragment_length=4"], "apex": APEX}
    plan = [f"data.update_to_data_ratio={intensity}", f"data.plan=tests.data.small_runs:recorded_{kind}"]
    fit(tmp_path, *kinds[kind], *plan, "total_env_steps=100")
    assert_ratio(100, intensity)
    due = 0
    for steps, env_steps, taken in EVENTS:
        assert steps or taken == due  # acting goes on when all steps are taken
        due = int(max(0, env_steps - 32) * intensity)


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
    policy, datamodule, _ = run.build(small_config(tmp_path, *REPLAY, *overrides))
    assert datamodule.source.make_buffer(policy).n_step == expected


class PostprocessesFragments(DQN):
    """Changes rows that no replay buffer makes."""

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """As DQN."""
        return super().postprocess_trajectory(batch, other_agent_batches)


def test_a_postprocessing_that_replay_does_not_call_is_said(recwarn: pytest.WarningsRecorder) -> None:
    for policy_class, messages in ((DQN, 0), (PostprocessesFragments, 1)):
        data = ReplayDataModule(CARTPOLE, capacity=100, batch_size=8, learning_starts=8)
        data.source.prepare(policy_class(*CARTPOLE.spaces()))
        found = [str(warning.message) for warning in recwarn if "postprocess_trajectory" in str(warning.message)]
        assert len(found) == messages
    assert found[0].startswith("PostprocessesFragments.postprocess_trajectory")


def test_an_iteration_takes_fragments_per_iteration_fragments(tmp_path: Path) -> None:
    plan = ["data.fragments_per_iteration=10", "data.plan=tests.data.small_runs:recorded_replay"]
    policy, _ = fit(tmp_path, *REPLAY, "policy=sac", "env=pendulum", "total_env_steps=60", *plan)
    assert policy.env_steps == 60 == sum(steps == 0 for steps, _, _ in EVENTS)
    assert sum(steps for steps, _, _ in EVENTS) == 60 - 32


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


def filled(data: ReplayDataModule, policy: Policy) -> tuple[Any, SampleBatch]:
    """The buffer for a policy with a fragment of 40 steps in it, and the fragment."""
    buffer, fragment = data.source.make_buffer(policy), RolloutWorker(CARTPOLE, policy, fragment_length=40).sample()
    buffer.add(policy.learner.take_experience(fragment))
    return buffer, fragment


def test_rows_hold_the_previous_step_for_a_model_without_state_that_reads_it() -> None:
    """CartPole's reward is 1: prev_rewards of the next step are 1, and 0 before the first step."""
    policy = DQN(*CARTPOLE.spaces(), model={"custom_model": ReadsPreviousStep})
    buffer, fragment = filled(ReplayDataModule(CARTPOLE, capacity=100, batch_size=8, learning_starts=8), policy)
    stored = buffer.rows(buffer.ring.ids(np.flatnonzero(buffer.ring.flags >= 128)))
    for rows in (stored, policy.postprocess_trajectory(fragment)):
        assert torch.equal(rows["next_prev_actions"], rows.actions)
        assert set(rows["next_prev_rewards"].tolist()) == {1.0}
        assert set(rows.prev_rewards.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("memory", [False, True], ids=["rows", "sequences"])
def test_rows_hold_the_time_step_if_the_policy_reads_it(memory: bool) -> None:
    """Curiosity reads the next observation of a row's own step, scaled rewards are clipped one by one; else neither."""
    policy_class, model = (R2D2, {"use_lstm": True, "lstm_cell_size": 8}) if memory else (DQN, {})
    data = ReplayDataModule(CARTPOLE, capacity=200, batch_size=8, learning_starts=8, n_step=3, sequence_length=8)
    of_the_step = {"step_next_obs", "step_rewards", "intrinsic_rewards"}
    curious, plain = {"exploration": {"type": "curiosity"}, "reward_filter": "return_std"}, {}
    for keywords, expected in ((curious, of_the_step), (plain, set())):
        buffer, fragment = filled(data, policy_class(*CARTPOLE.spaces(), model=model, **keywords))
        rows = buffer.sample(4)
        # "next_obs" of a sequence's row is that of its step
        assert of_the_step & set(rows) == expected - ({"step_next_obs"} if memory else set())
        if keywords and not memory:
            pairs = zip(fragment.obs[:-1, 0], fragment.obs[1:, 0], strict=True)
            follows = {tuple(obs.tolist()): after for obs, after in pairs}
            for obs, after in zip(rows.obs, rows["step_next_obs"], strict=True):
                assert torch.equal(follows[tuple(obs.tolist())], after)
            assert not torch.equal(rows["step_next_obs"], rows.next_obs)
            assert torch.equal(rows["step_rewards"].sum(1) > 1.0, rows.discounts < 0.99)


RECURRENT = [*REPLAY, "policy=r2d2", "data.sequence_length=8", "workers.fragment_length=4", "data.n_step=1"]
RECURRENT.append("data.sequence_stride=8")


def test_learning_waits_for_a_batch_of_sequences(tmp_path: Path) -> None:
    """32 steps make 5 or so; the gradient steps due meanwhile are made up for."""
    plan = ["data.update_to_data_ratio=1.0", "data.plan=tests.data.small_runs:recorded_replay"]
    fit(tmp_path, *RECURRENT, "env=stateless_cartpole", "total_env_steps=120", *plan)
    drawn = [(env_steps, done) for steps, env_steps, done in EVENTS if steps]
    assert drawn[0][0] > 40 and drawn[0][1] == 0
    assert drawn[-1][1] + 1 == EVENTS[-1][1] - 32


def test_a_buffer_that_cannot_hold_a_batch_of_sequences_is_refused(tmp_path: Path) -> None:
    """128 rows of one long episode are 16 sequences of 8, but that the newest one is not complete."""
    cases = [
        (120, r"16 sequences that start 8 rows apart .* a buffer of 128 rows; data\.capacity leaves 120: raise it"),
        (128, r"16 .*15"),
    ]
    few = [*RECURRENT, "env=mountaincar", "data.learning_starts=40", "total_env_steps=200"]
    assert not_refused(lambda capacity: fit(tmp_path, *few, f"data.capacity={capacity}"), cases) == []


@pytest.mark.parametrize(("length", "stride"), [(8, 4), (7, 3), (1, 1)])
def test_sequences_overlap_by_half_by_default(length: int, stride: int) -> None:
    source = ReplayDataModule(CARTPOLE, sequence_length=length).source
    policy = R2D2(*CARTPOLE.spaces(), model={"use_lstm": True, "lstm_cell_size": 8})
    assert source.make_buffer(policy).stride == stride


def test_a_checkpoint_without_a_buffer_needs_save_replay_false_and_fills_a_new_one_each_time(tmp_path: Path) -> None:
    """Of 40 env steps 32 fill the buffer, three times over."""

    def train(total: int, *overrides: str) -> tuple[Any, Any]:
        each = [*REPLAY, "data.fragments_per_iteration=1", f"total_env_steps={total}", *overrides]
        return fit(tmp_path, *each, resume=total > 40)

    for total in (40, 80, 120):
        policy, datamodule = train(total, "data.save_replay=false")
        assert policy.gradient_steps == total // 40 * 8 and 0 < len(datamodule.source.buffer) <= 40
    saved = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)
    assert "replay" not in saved["RolloutDataModule"]
    with pytest.raises(CheckpointError, match=r"data\.save_replay=false"):
        train(160)


@pytest.mark.parametrize(
    ("workers", "fragments"),
    [(["workers.fragment_length=8", "workers.envs_per_worker=2"], 2), pytest.param([], 32, marks=pytest.mark.every)],
)
def test_an_iteration_is_about_32_env_steps_and_steps_are_the_same(
    workers: list[str], fragments: int, tmp_path: Path
) -> None:
    """What Lightning does for a batch is done once for all of them, whatever a fragment is."""
    policies = []
    for number in ("null", str(fragments)):
        overrides = [*REPLAY, "total_env_steps=96", f"data.fragments_per_iteration={number}", *workers]
        policy, _ = fit(tmp_path / number, *overrides)
        assert policy.gradient_steps > 0
        policies.append(policy)
    assert policies[0].iterations == policies[1].iterations
    assert_equal_weights(*policies)


def test_a_policy_with_earlier_env_steps_fills_a_new_buffer_before_learning(tmp_path: Path) -> None:
    more = [*REPLAY, "total_env_steps=5040", "data.fragments_per_iteration=1"]
    policy, datamodule, trainer = run.build(small_config(tmp_path, *more))
    policy.env_steps = 5000
    trainer.fit(policy, datamodule=datamodule)
    assert (policy.env_steps, policy.gradient_steps) == (5040, 8)
