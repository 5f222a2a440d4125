"""View requirements of models and policies: the same views in acting, in trajectories and in training batches."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from lightning_rl.errors import ConfigError
from lightning_rl.rllib.agents.ppo import PPOTorchPolicy, PPOTrainer
from lightning_rl.rllib.evaluation import RolloutWorker
from lightning_rl.rllib.models import ModelCatalog
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2
from lightning_rl.rllib.policy.torch_policy import TorchPolicy
from lightning_rl.rllib.policy.view_requirement import ViewRequirement
from lightning_rl.rllib.view_requirements import add_views
from lightning_rl.sample_batch import SampleBatch


class Counter(gym.Env[Any, Any]):
    """Observes 1, 2, 3, 4 and the final 5; the reward of a step is ten times the observation after it."""

    observation_space, action_space = spaces.Box(0.0, 9.0, (1,)), spaces.Discrete(3)

    def __init__(self, config: Any = None) -> None:
        self.n = 0

    def reset(self, **keywords: Any) -> Any:
        super().reset(**keywords)
        self.n = 1
        return np.array([self.n], np.float32), {}

    def step(self, action: Any) -> Any:
        self.n += 1
        return np.array([self.n], np.float32), 10.0 * self.n, self.n == 5, False, {"n": self.n, "took": int(action)}


class Views(TorchModelV2, nn.Module):
    """Keeps the views that it has read."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, views=()):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.outputs, self.values = nn.Linear(1, num_outputs), nn.Linear(1, 1)
        self.view_requirements.update(views)

    def forward(self, input_dict, state, seq_lens):
        self.read = {name: input_dict[name] for name in self.view_requirements if name in input_dict}
        self.last = self.values(input_dict["obs"])
        return self.outputs(input_dict["obs"]), []

    def value_function(self):
        return self.last.squeeze(1)


class Window(Views):
    """Reads two earlier observations."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.view_requirements["window"] = ViewRequirement("obs", shift="-2:0")


VIEWS = {
    "window": ViewRequirement("obs", shift="-2:0"),
    "before": ViewRequirement("obs", shift=-1),
    "every_other": ViewRequirement("obs", shift="-2:0:2"),
    "acted": ViewRequirement("actions", shift="-2:-1"),
    "gained": ViewRequirement("rewards", shift=-1),
    "newest_only": ViewRequirement("obs", shift=[0]),
    "later": ViewRequirement("obs", shift=1, used_for_compute_actions=False),
    "next_actions": ViewRequirement("actions", shift=1, used_for_compute_actions=False),
    "acting_only": ViewRequirement("obs", shift=-2, used_for_training=False),
}
EXPECTED: dict[str, list[Any]] = {
    "window": [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]],
    "before": [0, 1, 2, 3],
    "every_other": [[0, 1], [0, 2], [1, 3], [2, 4]],
    "gained": [0, 20, 30, 40],
    "newest_only": [[1], [2], [3], [4]],
    "later": [2, 3, 4, 5],
}


def worker_of(views: Any, **options: Any) -> Any:
    ModelCatalog.register_custom_model("views", Views)
    model = {"custom_model": "views", "custom_model_config": {"views": views}}
    policy = PPOTorchPolicy(Counter.observation_space, Counter.action_space, {"model": model, "seed": 1})
    return RolloutWorker(env_creator=Counter, policy=policy, count_resets=True, **options)


def test_models_and_training_batches_get_the_same_views_also_where_an_episode_goes_on() -> None:
    """Each fragment of 3 rows cuts episodes of 4 steps: rows 1, 2, 3 | 4, reset, 1 | 2, 3, 4 | reset, 1, 2."""
    worker = worker_of(VIEWS, rollout_fragment_length=3)
    policy = worker.policy
    acted: dict[str, list[Any]] = {name: [] for name in EXPECTED}
    trained: dict[str, list[Any]] = {name: [] for name in EXPECTED}
    actions: list[int] = []
    next_actions: list[int] = []
    for _ in range(4):
        fragment = worker.sample()
        rows = policy.postprocess_trajectory(fragment)
        policy.outputs_of(rows)
        actions += rows["actions"].tolist()
        next_actions += rows["next_actions"].tolist()
        assert "acting_only" not in rows and policy.model.read["acting_only"].shape == rows["obs"].shape
        assert policy.model.read["acted"].tolist() == rows["acted"].tolist()
        for name in EXPECTED:
            trained[name] += rows[name].reshape(rows.count, *rows[name].shape[1:2]).squeeze(-1).tolist()
            if name in policy.model.read:
                view = policy.model.read[name]
                acted[name] += view.reshape(rows.count, *view.shape[1:2]).squeeze(-1).tolist()
    del acted["later"]
    wanted = {name: [*each, *each, *each[:2]] for name, each in EXPECTED.items()}
    wanted["newest_only"] = [entry[0] for entry in wanted["newest_only"]]
    assert trained == wanted and acted == {name: wanted[name] for name in acted}
    known = [
        row for row in range(10) if row not in (2, 3, 4, 7, 9)
    ]  # the others are the last of an episode or a sample
    assert [next_actions[row] for row in known] == [actions[row + 1] for row in known]


def test_trajectories_have_the_views_and_a_loss_reads_them() -> None:
    seen: dict[str, Any] = {}

    class Own(TorchPolicy):
        def __init__(self, observation_space, action_space, config):
            super().__init__(observation_space, action_space, config)
            self.view_requirements["before_that"] = ViewRequirement("rewards", shift=-2)

        def postprocess_trajectory(self, sample_batch, other_agent_batches=None, episode=None):
            seen.setdefault("windows", []).append(sample_batch["window"][:, :, 0].tolist())
            return sample_batch

        def loss(self, model, dist_class, train_batch):
            logits, _ = model(train_batch)
            seen["loss"] = (train_batch["window"].shape[1:], train_batch["before_that"].tolist())
            seen["columns"] = [name in train_batch for name in ("new_obs", "prev_actions", "prev_rewards", "eps_id")]
            return -dist_class(logits, model).logp(train_batch["actions"]).mean()

    ModelCatalog.register_custom_model("window", Window)
    config = {"train_batch_size": 5, "rollout_fragment_length": 5, "model": {"custom_model": "window"}}
    trainer = PPOTrainer.with_updates("OwnTrainer", default_policy=Own)(
        env=Counter, config={**config, "num_workers": 0}
    )
    trainer.train()
    trainer.stop()
    assert seen["windows"] == [EXPECTED["window"], EXPECTED["window"][:1]]
    assert seen["loss"] == ((3, 1), [0, 0, 20, 30, 0]) and seen["columns"] == [True] * 4


def test_views_of_later_rows_stop_at_the_end_of_an_episode_and_of_a_fragment() -> None:
    """Rows 1, 2, reset, 4, 5 and the observation 6 after them: two steps later there is 3 (final), 0, –, 6, 0."""
    valid = torch.tensor([True, True, False, True, True]).unsqueeze(1)
    fragment = SampleBatch(
        obs=torch.arange(1.0, 7.0).unsqueeze(1),
        rewards=torch.arange(1.0, 6.0).unsqueeze(1),
        terminated=torch.tensor([False, True, False, False, False]).unsqueeze(1),
        truncated=torch.zeros(5, 1, dtype=torch.bool),
        valid=valid,
    )
    asked = {
        "obs_2": ViewRequirement("obs", shift=2),
        "rewards_1": ViewRequirement("rewards", shift=1),
        "rewards_around": ViewRequirement("rewards", shift="-1:1"),
    }
    found = add_views(asked, fragment, None, Counter.action_space)
    assert found["obs_2"][valid].tolist() == [3, 0, 6, 0]
    assert found["rewards_1"][valid].tolist() == [2, 0, 5, 0]
    assert found["rewards_around"][valid].tolist() == [[0, 1, 2], [1, 2, 0], [0, 4, 5], [4, 5, 0]]


@pytest.mark.parametrize(
    ("views", "instead"),
    [
        ({"last_state": ("state_out_0", "-3:-1")}, "get_initial_state"),
        ({"now": ("rewards", 0)}, "used_for_compute_actions=False"),
        ({"values": ("vf_preds", -1)}, "used_for_compute_actions=False"),
    ],
)
def test_views_that_cannot_be_given_are_refused_with_what_to_use(views: Any, instead: str) -> None:
    with pytest.raises(ConfigError, match=instead):
        worker_of({name: ViewRequirement(*each[:1], shift=each[1]) for name, each in views.items()})
    with pytest.raises(ConfigError, match="batch_repeat_value=20"):
        ViewRequirement("obs", batch_repeat_value=20)
