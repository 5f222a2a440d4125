"""What users of other packages write first: it works, or one error says what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from lightning_rl import A2C, DQN, PPO, SAC, Algorithm, Model
from lightning_rl.config.compose import compose_config
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import CheckpointError, ConfigError, EnvError, NonFiniteError
from lightning_rl.learning.learner import fast_modes
from lightning_rl.schedules import check_schedule

BOX, TURNS = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
SMALL: dict[str, Any] = {
    "workers": {"envs_per_worker": 2, "fragment_length": 16},
    "policy": {"model": {"fcnet_hiddens": [8]}},
}


@pytest.mark.parametrize(
    ("env", "named"),
    [
        (lambda: gym.make("CartPole-v1"), r"its id or class \(CartPole-v1\)"),
        (lambda: gym.make_vec("CartPole-v1", 2), r"workers\.envs_per_worker"),
        (lambda: lambda: gym.make_vec("CartPole-v1", 2), r"expected one environment: workers\.envs_per_worker"),
    ],
)
def test_environments_that_are_there_already_or_several_are_refused(env: Any, named: str) -> None:
    with pytest.raises(EnvError, match=named):
        EnvCreator(env()).make_single()


@pytest.mark.parametrize("kind", [SAC, PPO])
@pytest.mark.parametrize("obs", [np.zeros((2, 3), np.float32), np.zeros(2, np.float32)])
def test_a_batch_is_not_one_observation(kind: Any, obs: np.ndarray) -> None:
    policy = kind(BOX, spaces.Box(-1, 1, (1,)), model={"fcnet_hiddens": [8]})
    with pytest.raises(ValueError, match=r"has shape \(2.*expected Box"):
        policy.compute_single_action(obs)


def test_an_image_of_any_type_is_divided_alike() -> None:
    policy = PPO(spaces.Box(0, 255, (36, 36, 3), np.uint8), spaces.Box(-1, 1, (2,)), seed=1)
    obs = np.random.default_rng(0).integers(0, 256, (36, 36, 3)).astype(np.uint8)
    for same in (obs.tolist(), obs.astype(np.float32), obs.astype(np.int64)):
        assert np.array_equal(policy.compute_single_action(same), policy.compute_single_action(obs))
    with pytest.raises(ValueError, match="other than whole numbers from 0 to 255"):
        policy.compute_single_action(obs / 255)


def test_the_state_of_a_recurrent_policy_may_be_an_array() -> None:
    policy = PPO(BOX, TURNS, model={"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [8]})
    obs = np.ones(3, np.float32)
    state = policy.compute_single_action(obs, [])[1]
    action, after, _ = policy.compute_single_action(obs, [np.asarray(each) for each in state])
    expected, other, _ = policy.compute_single_action(obs, state)
    assert action == expected and all(torch.equal(one, two) for one, two in zip(after, other, strict=True))


class OwnPolicy(PPO):
    """PPO under another name."""


@pytest.mark.parametrize("choice", [r"tests.test_habits\:OwnPolicy", "tests.test_habits:OwnPolicy"])
def test_a_sweep_s_job_may_name_a_policy_of_one_s_own(choice: str) -> None:
    config = compose_config([f"policy={choice}", "env=cartpole"])
    assert config["policy"]["_target_"] == "tests.test_habits:OwnPolicy"


class Returns(A2C):
    """Returns what its test says."""

    form: Any = None

    def loss(self, batch: Any) -> Any:
        loss, metrics = super().loss(batch)
        return type(self).form(loss, metrics)


@pytest.mark.parametrize(
    "form",
    [
        lambda loss, metrics: loss,
        lambda loss, metrics: (None, metrics),
        lambda loss, metrics: (loss.expand(3), metrics),
    ],
)
def test_a_loss_of_another_form_is_refused_by_its_class(monkeypatch: pytest.MonkeyPatch, form: Any) -> None:
    monkeypatch.setattr(Returns, "form", staticmethod(form))
    algorithm = Algorithm(Returns, env="CartPole-v1", config=SMALL)
    with pytest.raises(ConfigError, match=r"Returns\.loss returned .*; expected a scalar tensor and the metrics"):
        algorithm.train()
    algorithm.stop()


def test_a_metric_may_be_a_number_with_microbatches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Returns, "form", staticmethod(lambda loss, metrics: (loss, {**metrics, "x": 1.5})))
    config = {**SMALL, "policy": {**SMALL["policy"], "microbatches": 2}}
    algorithm = Algorithm(Returns, env="CartPole-v1", config=config)
    assert algorithm.train()["train/x"] == 1.5
    algorithm.stop()


def test_a_wrong_key_of_restore_is_not_the_checkpoint_s_fault(tmp_path: Path) -> None:
    algorithm = Algorithm("ppo", env="CartPole-v1", config={**SMALL, "run_dir": str(tmp_path / "run")})
    file = algorithm.save()
    algorithm.stop()
    with pytest.raises(ConfigError, match=r"policy\.lr") as caught:
        Algorithm.restore(file, config={"policy.lr": 1e-4})
    assert not isinstance(caught.value, CheckpointError)


def test_steps_of_a_schedule_are_no_shares() -> None:
    with pytest.raises(ConfigError, match="50%"):
        check_schedule("policy.lr", [[0, 1e-3], [0.5, 5e-4], [1.0, 0.0]])
    check_schedule("policy.lr", [[0, 1e-3], [1e5, 0.0]])


class NaNModel(Model):
    """Its outputs are NaN in train mode."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.linear = nn.Linear(4, self.num_outputs)

    def forward(self, inputs: Any, state: Any, seq_lens: Any) -> Any:
        outputs = self.linear(inputs["obs_flat"])
        self.values = outputs[:, 0]
        return (outputs * torch.nan if self.training else outputs), state

    def value_function(self) -> Tensor:
        return self.values


def test_ppo_refuses_a_loss_that_is_nan() -> None:
    config = {**SMALL, "policy": {"model": {"custom_model": NaNModel}}}
    algorithm = Algorithm("ppo", env="CartPole-v1", config=config)
    with pytest.raises(NonFiniteError):
        algorithm.train()
    algorithm.stop()


class Frozen(Model):
    """Keeps its batch norm in eval mode, as a pretrained trunk."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.norm, self.linear = nn.BatchNorm1d(3), nn.Linear(3, self.num_outputs)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, inputs: Any, state: Any, seq_lens: Any) -> Any:
        return self.linear(self.norm(inputs["obs_flat"])), state


def test_a_model_decides_its_own_mode() -> None:
    policy = DQN(BOX, TURNS, model={"custom_model": Frozen})
    with fast_modes(policy):
        policy.eval()
        policy.train()
        norms = [module for module in policy.model.modules() if isinstance(module, nn.BatchNorm1d)]
        assert policy.training and norms and not any(norm.training for norm in norms)
