"""Methods of Policy other than acting and learning: subclasses, copies, weights, states, Lightning's hooks."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl import ScratchPolicy
from lightning_rl.callbacks import MetricsCallback
from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.policies import PPO, Policy
from lightning_rl.policies.checkpoints import counters
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE, PENDULUM
from tests.policies.fits_and_files import assert_same, weights_of

SMALL: dict[str, Any] = {"model": {"fcnet_hiddens": [4]}}


def fragment(policy: Policy) -> SampleBatch:
    return RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=8, seed=1).sample()


# -- subclasses -------------------------------------------------------------------------------------------------------
class LossOnly(Policy):
    """An algorithm that defines its loss only."""

    def loss(self, batch: SampleBatch) -> Any:
        return self.distribution_and_values(batch)[1].square().mean(), {}


class WithDepth(PPO):
    """Has a keyword of its own."""

    def __init__(self, observation_space: Any, action_space: Any, *, depth: int = 1, **keywords: Any) -> None:
        super().__init__(observation_space, action_space, **keywords)
        self.depth = depth


class Deeper(WithDepth):
    """Has no own constructor."""


@pytest.mark.parametrize("kind", [WithDepth, Deeper])
def test_a_subclass_s_own_keywords_are_checked(kind: Any) -> None:
    assert kind(*CARTPOLE.spaces(), depth=3, **SMALL).depth == 3
    with pytest.raises(ConfigError, match=r"policy\.depth='x'"):
        kind(*CARTPOLE.spaces(), depth="x", **SMALL)


def compute_actions(self: Any, obs: Any, state: Any = (), **_: Any) -> Any:
    return [0 for _ in obs], [], {}


def learn_on_batch(self: Any, batch: SampleBatch) -> dict[str, float]:
    return {}


def loss(self: Any, batch: SampleBatch) -> Any:
    return torch.zeros(()), {}


@pytest.mark.parametrize(
    "methods", [(), (loss,), (compute_actions,), (learn_on_batch,), (compute_actions, learn_on_batch, loss)]
)
def test_policy_overridden_and_has_loss_name_the_methods_that_a_subclass_defines(methods: Any) -> None:
    own = type("Own", (Policy,), {method.__name__: method for method in methods})
    names = {method.__name__ for method in methods}
    assert own.overridden == names - {"loss"} and own.has_loss == ("loss" in names)
    assert list(own(*CARTPOLE.spaces()).parameters()), "the base class builds a model"


def test_a_policy_with_own_acting_and_learning_is_refused_in_favor_of_scratch_policy() -> None:
    methods = {"compute_actions": compute_actions, "learn_on_batch": learn_on_batch}
    with pytest.raises(ConfigError, match=r"lightning_rl\.ScratchPolicy"):
        type("Own", (Policy,), methods)(*CARTPOLE.spaces())
    scratch = type("Own", (ScratchPolicy,), methods)
    assert not scratch.has_model and not list(scratch(*CARTPOLE.spaces()).parameters())


def test_a_subclass_of_policy_refuses_models_with_memory_by_default() -> None:
    for kind in (LossOnly, type("WithoutSequences", (PPO,), {"supports_recurrent": False})):
        with pytest.raises(UnsupportedSpaceError, match=kind.__name__):
            kind(*CARTPOLE.spaces(), model={"use_lstm": True})


def test_a_new_policy_has_counters_of_0_and_takes_one_gradient_step_per_iteration() -> None:
    policy = LossOnly(*CARTPOLE.spaces(), **SMALL)
    assert counters(policy) == {"env_steps": 0, "iterations": 0, "gradient_steps": 0}
    policy.learn_on_batch(policy.learner.rows_of(fragment(policy)))
    assert policy.gradient_steps == 1


# -- arguments and copies ---------------------------------------------------------------------------------------------
def test_constructor_arguments_gives_spaces_and_all_keywords_passed() -> None:
    spaces = observation, action = CARTPOLE.spaces()
    policy = WithDepth(observation, action, depth=2, gamma=0.5, **SMALL)
    assert policy.constructor_arguments() == (spaces, {"depth": 2, "gamma": 0.5, **SMALL})
    assert LossOnly(action_space=action, observation_space=observation).constructor_arguments() == (spaces, {})


def test_copy_for_acting_gives_an_equal_policy_in_eval_mode() -> None:
    policy = WithDepth(*CARTPOLE.spaces(), depth=2, **SMALL).train()
    policy.learn_on_batch(fragment(policy))
    twin: Any = policy.copy_for_acting()
    assert type(twin) is WithDepth and twin.depth == 2 and not twin.training and twin is not policy
    assert counters(twin) == counters(policy) and twin.env_steps == 16
    assert_same(weights_of(twin), weights_of(policy))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.float32])
def test_get_weights_gives_numpy_arrays_for_parameters_of_any_dtype(dtype: torch.dtype) -> None:
    policy = PPO(*CARTPOLE.spaces(), **SMALL).to(dtype)
    weights = policy.get_weights()
    kinds = {weights[name].dtype for name, _ in policy.named_parameters()}
    assert kinds == {np.dtype(np.float64 if dtype == torch.float64 else np.float32)}
    for name, parameter in policy.named_parameters():
        np.testing.assert_array_equal(weights[name], parameter.detach().float().numpy())


# -- in a Trainer -----------------------------------------------------------------------------------------------------
class OwnMetrics(MetricsCallback):
    """A user's subclass of MetricsCallback."""


@pytest.mark.parametrize(
    ("loggers", "callbacks", "warned"),
    [
        ([], [], False),
        (["some"], [], True),
        (["some"], [object()], True),
        (["some"], [object(), MetricsCallback()], False),
        (["some"], [OwnMetrics()], False),
    ],
)
def test_a_fit_warns_of_loggers_without_a_metrics_callback(loggers: Any, callbacks: Any, warned: bool) -> None:
    policy = PPO(*CARTPOLE.spaces(), **SMALL)
    policy._trainer = SimpleNamespace(loggers=loggers, callbacks=callbacks)  # type: ignore[assignment]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        policy.on_fit_start()
    assert [str(each.message)[:17] for each in found] == ["nothing is logged"] * warned
    assert all(each.filename == __file__ for each in found), "the warning points at the caller"


@pytest.mark.parametrize(("fn", "logged"), [("fit", False), ("validate", True), ("test", True)])
@pytest.mark.parametrize("step", ["validation_step", "test_step"])
def test_validation_and_test_steps_log_means_over_episodes(step: str, fn: str, logged: bool, monkeypatch: Any) -> None:
    """Returns 1, 2 and 6 have mean 3; lengths 3, 3 and 6 have mean 4."""
    policy, found = PPO(*CARTPOLE.spaces(), **SMALL), []
    policy._trainer = SimpleNamespace(state=SimpleNamespace(fn=fn))  # type: ignore[assignment]
    monkeypatch.setattr(policy, "log", lambda name, value, **how: found.append((name, value.item(), how)))
    returns, lengths = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([3, 3, 6])
    getattr(policy, step)(SampleBatch(episode_returns=returns, episode_lengths=lengths))
    how = {"on_epoch": True, "logger": logged, "batch_size": 3, "sync_dist": True}
    assert found == [("eval/ep_rew_mean", 3.0, how), ("eval/ep_len_mean", 4.0, how)]


def test_predict_step_gives_deterministic_actions_in_the_environment_s_range() -> None:
    """Pendulum takes torques within ±2; the policy's actions are within ±1."""
    policy = PPO(*PENDULUM.spaces(), **SMALL)
    obs = torch.ones(3, 3)
    best = policy.compute_actions(obs, explore=False)[0]
    found = policy.predict_step(obs)
    assert isinstance(found, np.ndarray) and best.abs().min() > 1e-4
    np.testing.assert_allclose(found, 2.0 * best.numpy(), rtol=1e-5)
