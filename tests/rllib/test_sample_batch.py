"""RLlib's names of columns, and the form in which its functions of postprocessing see experience."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lightning_rl.policies import PPO
from lightning_rl.rllib.agents.dqn import DQNTorchPolicy
from lightning_rl.rllib.agents.ppo import PPOTorchPolicy
from lightning_rl.rllib.evaluation.postprocessing import (
    Postprocessing,
    compute_advantages,
    compute_gae_for_sample_batch,
    discount_cumsum,
)
from lightning_rl.rllib.policy import TorchPolicy, build_torch_policy
from lightning_rl.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch, concat_samples
from lightning_rl.rllib.trajectories import fragment_of_trajectory, trajectories
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.small_worker import small_worker

CONSTANTS = {
    **{"CUR_OBS": "obs", "NEXT_OBS": "new_obs", "ACTIONS": "actions", "REWARDS": "rewards", "DONES": "dones"},
    **{"PREV_ACTIONS": "prev_actions", "PREV_REWARDS": "prev_rewards", "INFOS": "infos", "SEQ_LENS": "seq_lens"},
    **{"ACTION_DIST_INPUTS": "action_dist_inputs", "ACTION_PROB": "action_prob", "ACTION_LOGP": "action_logp"},
    **{"EPS_ID": "eps_id", "ENV_ID": "env_id", "AGENT_INDEX": "agent_index", "UNROLL_ID": "unroll_id", "T": "t"},
    "VF_PREDS": "vf_preds",
}
LSTM = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5}


def sampled(policy: Any) -> Any:
    """A fragment of CartPole, `[16, 4]`, in which episodes end."""
    return small_worker(policy).sample()


# -- names ------------------------------------------------------------------------------------------------------------
def test_constants_have_rllib_s_values() -> None:
    assert {name: getattr(SampleBatch, name) for name in CONSTANTS} == CONSTANTS


def test_a_column_is_found_and_set_by_either_name() -> None:
    batch = SampleBatch({SampleBatch.DONES: np.array([False, True]), SampleBatch.NEXT_OBS: np.array([1, 2])})
    assert batch.keys() == ["terminated", "next_obs"] and "dones" in batch and "new_obs" in batch
    assert batch["dones"] is batch["terminated"] is batch.dones and batch.get("new_obs") is batch.next_obs
    del batch["new_obs"]
    assert "next_obs" not in batch and batch.get("new_obs", 3) == 3


def test_operations_keep_the_class_and_with_it_the_names() -> None:
    batch = SampleBatch(dones=np.array([False, True]), rewards=np.array([1.0, 2.0]))
    made = [
        batch[1:],
        batch.copy(),
        batch.torch(),
        batch.torch().minibatches(2)[0],
        batch.concat(batch),
        batch.slice(0, 1),
    ]
    made += [SampleBatch.concat_samples([batch, batch]), pickle.loads(pickle.dumps(batch)), *batch.timeslices(1)]
    assert all(type(each) is SampleBatch and "dones" in each for each in made)
    assert [row["rewards"] for row in batch.rows()] == [1.0, 2.0]


# -- trajectories -----------------------------------------------------------------------------------------------------
def test_trajectories_are_episodes_of_one_environment_in_arrays_and_hold_all_experience() -> None:
    fragment = sampled(PPO(*CARTPOLE.spaces()))
    parts = trajectories(fragment)
    assert sum(part.count for part in parts) == int(fragment.valid.sum())
    assert int((fragment.terminated | fragment.truncated).sum()) > 0
    for part in parts:
        assert isinstance(part["obs"], np.ndarray) and len(set(part["agent_index"])) == 1
        assert np.diff(part["t"]).tolist() == [1] * (part.count - 1) and not part["dones"][:-1].any()
        assert np.array_equal(part["new_obs"][:-1], part["obs"][1:])


def test_a_trajectory_becomes_a_fragment_that_is_cut_where_it_was_cut() -> None:
    policy = PPO(*CARTPOLE.spaces(), model=LSTM)
    for part in trajectories(sampled(policy)):
        fragment = fragment_of_trajectory(part)
        assert fragment.obs.shape == (part.count + 1, 1, 4) and fragment.state_in["0"].shape[0] == part.count + 1
        (again,) = trajectories(fragment)
        for name in again.without("agent_index", "state_in"):
            assert np.array_equal(again[name], part[name]), name
        assert np.array_equal(again["state_in_1"], part["state_in_1"])


# -- functions of postprocessing --------------------------------------------------------------------------------------
def test_compute_advantages_by_hand() -> None:
    """γ = ½, λ = 1, V = 1, 2 and a last value 4: δ = 1 + 1 − 1 and 1 + 2 − 2; the returns are 1 + ½·3 and 1 + ½·4."""
    rollout = SampleBatch(rewards=np.ones(2), vf_preds=np.array([1.0, 2.0]))
    done = compute_advantages(rollout, 4.0, gamma=0.5, lambda_=1.0)
    assert done[Postprocessing.ADVANTAGES].tolist() == [1.5, 1.0]
    assert done[Postprocessing.VALUE_TARGETS].tolist() == [2.5, 3.0]
    assert compute_advantages(rollout, 4.0, 0.5, use_gae=False)["advantages"].tolist() == [1.5, 1.0]
    assert compute_advantages(rollout, 0.0, 0.5, use_gae=False, use_critic=False)["advantages"].tolist() == [1.5, 1.0]
    assert discount_cumsum(np.array([1.0, 2.0, 4.0]), 0.5).tolist() == [3.0, 4.0, 4.0]


class SeesTrajectories(PPOTorchPolicy):
    """PPO with advantages of RLlib's function, from one trajectory at a time."""

    def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
        return compute_gae_for_sample_batch(self, sample_batch, other_agent_batches, episode)


class HandsOn(PPOTorchPolicy):
    """PPO whose method in RLlib's form calls the base's."""

    def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
        assert isinstance(sample_batch[SampleBatch.REWARDS], np.ndarray)
        return super().postprocess_trajectory(sample_batch, other_agent_batches, episode)


def gae_of(policy, sample_batch, other_agent_batches=None, episode=None):
    return compute_gae_for_sample_batch(policy, sample_batch, other_agent_batches, episode)


@pytest.mark.parametrize("model", [{}, LSTM])
@pytest.mark.parametrize("cls", [SeesTrajectories, HandsOn, PPOTorchPolicy.with_updates("Gae", postprocess_fn=gae_of)])
def test_advantages_by_trajectory_are_those_of_the_whole_fragment(cls: Any, model: Any) -> None:
    policy, own = cls(*CARTPOLE.spaces(), model=model, seed=1), PPO(*CARTPOLE.spaces(), model=model, seed=1)
    fragment = sampled(own)
    rows, expected = policy.postprocess_trajectory(fragment), own.postprocess_trajectory(fragment)
    assert sorted(rows.advantages.tolist()) == pytest.approx(sorted(expected.advantages.tolist()), abs=1e-5)
    if model:
        assert rows.seq_lens.sum() == rows.count and rows.seq_lens.max() == 5
        assert_close(sorted(rows.seq_lens.tolist()), sorted(expected.seq_lens.tolist()))
        assert len(rows["state_in"]["0"]) == len(rows.seq_lens)
    assert np.isfinite(policy.learn_on_batch(fragment)["loss"])


# -- losses in RLlib's form -------------------------------------------------------------------------------------------
class ClassicLoss(TorchPolicy):
    """REINFORCE as a policy in RLlib's form."""

    def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
        return compute_advantages(sample_batch, 0.0, self.config["gamma"], use_gae=False, use_critic=False)

    def loss(self, model, dist_class, train_batch):
        logits, _ = model.from_batch(train_batch)
        dist = dist_class(logits, model)
        assert train_batch[SampleBatch.DONES].dtype == torch.bool
        return -(dist.logp(train_batch[SampleBatch.ACTIONS]) * train_batch[Postprocessing.ADVANTAGES]).mean()


def kl_loss(policy, model, dist_class, train_batch):
    """As losses of RLlib's PPO read it: the distribution that acted, and probabilities."""
    logits, _ = model({"obs": train_batch[SampleBatch.CUR_OBS]}, [], None)
    acted = dist_class(train_batch[SampleBatch.ACTION_DIST_INPUTS], model)
    policy.seen = train_batch[SampleBatch.ACTION_PROB], acted.kl(dist_class(logits, model))
    return logits.square().mean()


@pytest.mark.parametrize("observation_filter", ["none", "mean_std"])
def test_a_loss_reads_what_acted_and_calls_the_model_with_observations(observation_filter: Any) -> None:
    cls: Any = build_torch_policy("ReadsActing", loss_fn=kl_loss)
    policy = cls(*CARTPOLE.spaces(), observation_filter=observation_filter)
    fragment = sampled(policy)
    policy.learn_on_batch(fragment)
    probabilities, kl = policy.seen
    assert_close(probabilities, SampleBatch.of(policy.flatten_fragment(fragment))["action_logp"].exp())
    assert kl.abs().max() < 1e-6


class OneMore(PPOTorchPolicy):
    """PPO's loss and one of its own."""

    def loss(self, model, dist_class, train_batch):
        return super().loss(model, dist_class, train_batch) + 1.0


def test_a_loss_method_in_rllib_s_form_learns_with_any_model() -> None:
    for model in ({}, LSTM):
        policy = ClassicLoss(*CARTPOLE.spaces(), {"lr": 0.01, "gamma": 0.9, "model": model, "num_workers": 2})
        before = [parameter.clone() for parameter in policy.parameters()]
        assert np.isfinite(policy.learn_on_batch(sampled(policy))["loss"])
        assert any(not torch.equal(*pair) for pair in zip(before, policy.parameters(), strict=True))
        assert policy.config["gamma"] == policy.gamma == 0.9 and policy.config["num_workers"] == 2


def test_a_loss_method_adds_to_its_base_s_and_keeps_its_metrics() -> None:
    policy, own = (cls(*CARTPOLE.spaces(), seed=1) for cls in (OneMore, PPO))
    rows = own.postprocess_trajectory(sampled(own))
    (loss, metrics), (expected, names) = policy.loss(rows), own.loss(rows)
    assert_close(loss, expected + 1)
    assert set(metrics) == set(names)


def test_numpy_columns_of_a_function_in_the_package_s_own_form_become_tensors() -> None:
    def postprocess(policy, fragment, others):
        fragment["weight"] = np.ones(fragment.rewards.shape, np.float32)
        return fragment

    cls: Any = build_torch_policy("Weighted", postprocess_fn=postprocess, loss_fn=lambda p, m, d, b: m(b)[0].mean())
    assert torch.equal(
        cls(*CARTPOLE.spaces()).postprocess_trajectory(sampled(PPO(*CARTPOLE.spaces())))["weight"].unique(),
        torch.ones(1),
    )


# -- methods ----------------------------------------------------------------------------------------------------------
def test_a_batch_is_changed_and_copied_like_a_dict() -> None:
    batch = SampleBatch({"rewards": [1.0, 2.0], "dones": np.array([True, False])})
    batch.update({"obs": np.zeros(2)}, actions=np.ones(2))
    assert batch.pop("obs").tolist() == [0, 0] and "obs" not in batch and batch.pop("obs", None) is None
    rewards, dones = batch.columns(["rewards", "dones"])
    assert rewards is batch["rewards"] and dones is batch["dones"]
    assert batch.copy(shallow=True)["rewards"] is rewards
    batch.copy()["rewards"][0] = 9.0
    assert rewards.tolist() == [1, 2]
    assert batch.env_steps() == batch.agent_steps() == 2 and batch.policy_batches == {"default_policy": batch}
    assert batch.decompress_if_needed().to_device("cpu")["rewards"].tolist() == [1, 2]


def test_episodes_are_split_by_their_id_or_by_their_ends() -> None:
    rows = {"rewards": [1, 2, 3, 4], "dones": [True, False, False, True]}

    def counts(*key: str, **columns: Any) -> list[int]:
        return [part.count for part in SampleBatch({**rows, **columns}).split_by_episode(*key)]

    assert counts() == [1, 3]
    assert counts(eps_id=[0, 1, 2, 2]) == [1, 1, 2] and counts("dones", eps_id=[0, 1, 2, 2]) == [1, 3]
    assert [part.count for part in SampleBatch({"eps_id": [7, 7, 8]}).split_by_episode()] == [2, 1]
    with pytest.raises(KeyError, match="terminated"):
        SampleBatch({"rewards": [1, 2]}).split_by_episode()
    with pytest.raises(ValueError, match="fragment"):
        SampleBatch.of(sampled(PPO(*CARTPOLE.spaces()))).split_by_episode()
    assert SampleBatch({"dones": [False, True]}).is_single_trajectory()
    assert not SampleBatch(rows).is_single_trajectory()


def test_sequences_are_padded_with_zeros_behind_their_rows() -> None:
    batch = SampleBatch({"rewards": [1, 2, 3], "seq_lens": [1, 2], "state_in_0": np.zeros((2, 4))})
    assert batch.right_zero_pad(3, exclude_states=True) is batch
    assert batch["rewards"].tolist() == [1, 0, 0, 2, 3, 0]


def test_a_batch_of_several_policies_keeps_rllib_s_names() -> None:
    parts = {name: SampleBatch({"rewards": [1.0, 2.0, 3.0], "dones": [False, False, True]}) for name in "ab"}
    batch = MultiAgentBatch(parts, 3)
    joined = concat_samples([batch, batch])
    assert batch.env_steps == batch.env_steps() == 3 and batch.agent_steps() == 6 and joined.env_steps() == 6
    made = [batch.copy(), batch.to_device("cpu"), *batch.timeslices(2), pickle.loads(pickle.dumps(batch)), joined]
    assert all(type(each) is MultiAgentBatch and "dones" in each["b"] for each in made)
    assert [part.env_steps() for part in batch.timeslices(2)] == [2, 1] and batch.size_bytes() == batch.nbytes


# -- batches made by hand ---------------------------------------------------------------------------------------------
def by_hand() -> SampleBatch:
    """Six steps of one episode, as a program writes them."""
    obs = np.linspace(-1, 1, 28, dtype=np.float32).reshape(7, 4)
    columns = {"obs": obs[:-1], "new_obs": obs[1:], "actions": np.array([0, 1] * 3), "rewards": np.ones(6)}
    return SampleBatch({**columns, "dones": np.arange(6) == 5, "infos": [{}] * 6})


def test_a_policy_learns_from_rows_that_are_made_by_hand() -> None:
    policy = PPOTorchPolicy(*CARTPOLE.spaces(), {"lambda": 1.0, "gamma": 1.0})
    rows = by_hand()
    rows.update(policy.compute_actions(rows["obs"])[2])
    rows = policy.postprocess_trajectory(rows)
    assert_close(rows["value_targets"], np.arange(6, 0, -1, dtype=np.float32))  # γ = λ = 1, and the episode ends
    before = policy.get_weights()
    policy.learn_on_batch(rows)
    assert any(not np.array_equal(before[name], value) for name, value in policy.get_weights().items())


def test_transitions_that_are_made_by_hand_are_of_one_step() -> None:
    """Without "discounts", rows are learned from as if each had γ."""
    policy = DQNTorchPolicy(*CARTPOLE.spaces(), {"gamma": 0.5})
    rows = by_hand()
    gradients, metrics = policy.compute_gradients(rows)
    given = SampleBatch({**dict(rows.items()), "discounts": np.full(6, 0.5)})
    other, same = policy.compute_gradients(given)
    assert metrics == same and all(np.array_equal(one, two) for one, two in zip(gradients, other, strict=True))
    assert policy.learn_on_batch(rows)["loss"] > 0 and "discounts" not in rows
