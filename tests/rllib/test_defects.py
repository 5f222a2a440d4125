"""RLlib's known defects in batches, sequences, filters, preprocessing and models, each as the test that RLlib fails.

Defects of distributions and exploration are in tests/models and tests/exploration.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.models import ModelCatalog
from lightning_rl.models.recurrent import PreviousSteps, RecurrentModel
from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch

VECTOR, TWO = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)


# -- batches ----------------------------------------------------------------------------------------------------------
def test_timeslices_end_although_the_size_does_not_divide_the_rows() -> None:
    """RLlib: `timeslices(size)` never returns when rows are left over."""
    slices = SampleBatch(obs=torch.arange(7), actions=torch.arange(7)).timeslices(3)
    assert [part.obs.tolist() for part in slices] == [[0, 1, 2], [3, 4, 5], [6]]


def test_shuffle_moves_every_column_alike() -> None:
    """RLlib: `shuffle` leaves `infos` in the old order."""
    batch = SampleBatch(obs=torch.arange(50), infos=np.arange(50).astype(object), nested={"a": torch.arange(50)})
    shuffled = batch.shuffle(torch.Generator().manual_seed(0))
    assert shuffled.obs.tolist() == shuffled.infos.tolist() == shuffled.nested.a.tolist() != list(range(50))


def test_splitting_by_episode_cuts_at_truncations_too() -> None:
    """RLlib: `DONES` are the terminations alone, so code that cuts by them runs across time limits."""
    batch = SampleBatch(
        obs=torch.arange(6),
        terminated=torch.tensor([0, 1, 0, 0, 0, 0], dtype=torch.bool),
        truncated=torch.tensor([0, 0, 0, 1, 0, 0], dtype=torch.bool),
    )
    assert [part.obs.tolist() for part in batch.split_by_episode()] == [[0, 1], [2, 3], [4, 5]]


def test_rows_are_shuffled_not_only_the_order_of_fixed_slices() -> None:
    """RLlib's default path permutes fixed slices of neighboring rows, so minibatches stay correlated."""
    batch = SampleBatch(obs=torch.arange(64), actions=torch.arange(64))
    first = batch.minibatches(4, torch.Generator().manual_seed(0))[0].obs
    assert len(set((first // 16).tolist())) == 4


# -- sequences and memory ---------------------------------------------------------------------------------------------
class ManyStates(RecurrentModel):
    """Twelve numbers of state, the i-th starts at i; the outputs are all of them in a row."""

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__(obs_space, action_space, num_outputs)
        self.outputs, self.values = nn.Linear(12, num_outputs), nn.Linear(12, 1)
        self.order: list[float] = []

    def get_initial_state(self) -> list[Tensor]:
        return [torch.full((1,), float(i)) for i in range(12)]

    def forward_rnn(self, inputs: Tensor, state: Any, seq_lens: Tensor | None) -> tuple[Tensor, Any]:
        self.order = [part[0, 0].item() for part in state]
        self.last = torch.cat(list(state), dim=1).unsqueeze(1).expand(-1, inputs.shape[1], -1)
        return self.outputs(self.last), list(state)

    def value_function(self) -> Tensor:
        return self.values(self.last).reshape(-1)


def test_a_model_gets_its_states_in_order_though_there_are_more_than_ten() -> None:
    """RLlib collects `state_in_i` in the order in which the columns were put in ("state_in_10" before "state_in_2")."""
    env = gym.make("CartPole-v1")
    policy = PPO(env.observation_space, env.action_space, model={"custom_model": ManyStates})
    rows = policy.postprocess_trajectory(RolloutWorker("CartPole-v1", policy, num_envs=2, fragment_length=8).sample())
    backwards = SampleBatch({name: rows.state_in[name] for name in reversed(rows.state_in.columns)})
    rows["state_in"] = backwards
    policy.distribution_and_values(rows)
    assert policy.model.order == [float(i) for i in range(12)]


def test_no_action_yet_is_not_action_0() -> None:
    """RLlib one-hots 0 at an episode's start, which looks like "action 0 was taken"."""
    previous = PreviousSteps(spaces.Discrete(3), actions=1, rewards=1)
    none, zero = (
        torch.cat(previous({"prev_actions": torch.tensor([action]), "prev_rewards": torch.zeros(1)}), dim=1)
        for action in (-1, 0)
    )
    assert none.tolist() == [[0, 0, 0, 0]] and zero.tolist() == [[1, 0, 0, 0]]


# -- filters ----------------------------------------------------------------------------------------------------------
def test_observations_are_recorded_raw() -> None:
    """RLlib records filtered ones, normalized by statistics that are old when they are learned from."""
    env = gym.make("Pendulum-v1")
    policy = PPO(env.observation_space, env.action_space, observation_filter="mean_std")
    worker = RolloutWorker("Pendulum-v1", policy, num_envs=2, fragment_length=32)
    policy.learn_on_batch(worker.sample())
    radius = worker.sample().obs[..., :2].square().sum(-1)
    assert_close(radius, torch.ones_like(radius))  # cos² + sin²


def test_models_see_integers_and_pixels_as_the_environment_gave_them() -> None:
    """RLlib gives discrete parts back as one-hot vectors and images as floats: no embedding, four times the memory."""
    space = spaces.Dict({"word": spaces.Discrete(5), "picture": spaces.Box(0, 255, (4, 4, 3), np.uint8)})
    policy, seen = PPO(space, TWO), list[Any]()
    policy.model.register_forward_pre_hook(lambda model, inputs: seen.append(inputs[0]["obs"]))
    policy.compute_actions({"word": np.array([3, 4]), "picture": np.zeros((2, 4, 4, 3), np.uint8)})
    assert seen[0]["word"].tolist() == [3, 4] and seen[0]["picture"].dtype == torch.uint8


# -- preprocessing and models -----------------------------------------------------------------------------------------
def test_the_catalog_is_called_once_per_policy_and_not_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acting and learning do not call the catalog."""
    env = gym.make("CartPole-v1")
    policy = PPO(env.observation_space, env.action_space)
    worker = RolloutWorker("CartPole-v1", policy, num_envs=2, fragment_length=32)
    for name in ("get_preprocessor", "get_action_dist", "get_model"):
        monkeypatch.delattr(ModelCatalog, name)
    assert np.isfinite(policy.learn_on_batch(worker.sample())["loss"])
