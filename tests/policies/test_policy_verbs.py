"""Methods of Policy other than acting and learning: subclasses, copies, weights, states, Lightning's hooks."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import lightning_rl
from lightning_rl import ScratchPolicy
from lightning_rl.callbacks import MetricsCallback
from lightning_rl.checkpoint_files import SCHEMA
from lightning_rl.errors import CheckpointError, ConfigError, UnsupportedSpaceError
from lightning_rl.policies import A2C, PPO, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE, PENDULUM

SMALL: dict[str, Any] = {"model": {"fcnet_hiddens": [4]}}


def fragment(policy: Policy) -> SampleBatch:
    return RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=8, seed=1).sample()


def entropy(policy: Policy, model: Any, dist_class: Any, batch: SampleBatch) -> Tensor:
    return -policy.distribution_of(batch).entropy().mean()


# -- subclasses -------------------------------------------------------------------------------------------------------
class LossOnly(Policy):
    """An algorithm that defines its loss only."""

    def loss(self, batch: SampleBatch) -> Any:
        return self.evaluate(batch)[1].square().mean(), {}


class WithDepth(PPO):
    """Has a keyword of its own."""

    def __init__(self, observation_space: Any, action_space: Any, *, depth: int = 1, **keywords: Any) -> None:
        super().__init__(observation_space, action_space, **keywords)
        self.depth = depth


def test_a_subclass_s_own_keywords_are_checked() -> None:
    class Own(PPO):
        def __init__(self, observation_space: Any, action_space: Any, *, depth: int = 1, **keywords: Any) -> None:
            super().__init__(observation_space, action_space, **keywords)
            self.depth = depth

    assert Own(*CARTPOLE.spaces(), depth=3, **SMALL).depth == 3
    with pytest.raises(ConfigError, match=r"policy\.depth='x'"):
        Own(*CARTPOLE.spaces(), depth="x", **SMALL)  # type: ignore[arg-type]

    class Derived(Own):
        """Has no own constructor."""

    assert "__init__" not in vars(Derived) and Derived(*CARTPOLE.spaces(), depth=3, **SMALL).depth == 3


def compute_actions(self: Any, obs: Any, state: Any = (), **_: Any) -> Any:
    return [0 for _ in obs], [], {}


def learn_on_batch(self: Any, batch: SampleBatch) -> dict[str, float]:
    return {}


def loss(self: Any, batch: SampleBatch) -> Any:
    return torch.zeros(()), {}


@pytest.mark.parametrize(
    "methods",
    [
        (),
        (loss,),
        (compute_actions,),
        (learn_on_batch,),
        (compute_actions, learn_on_batch, loss),
    ],
    ids=lambda methods: "+".join(each.__name__ for each in methods) if isinstance(methods, tuple) else None,
)
def test_policy_overridden_and_has_loss_name_the_methods_that_a_subclass_defines(methods: Any) -> None:
    own = type("Own", (Policy,), {method.__name__: method for method in methods})
    names = {method.__name__ for method in methods}
    assert own.overridden == names - {"loss"} and own.has_loss == ("loss" in names)
    assert list(own(*CARTPOLE.spaces()).parameters()), "the base class builds a model"


def test_a_policy_with_own_acting_and_learning_is_refused_in_favour_of_scratch_policy() -> None:
    methods = {"compute_actions": compute_actions, "learn_on_batch": learn_on_batch}
    with pytest.raises(ConfigError, match=r"lightning_rl\.ScratchPolicy"):
        type("Own", (Policy,), methods)(*CARTPOLE.spaces())
    scratch = type("Own", (ScratchPolicy,), methods)
    assert not scratch.has_model and not list(scratch(*CARTPOLE.spaces()).parameters())


def test_a_subclass_of_policy_refuses_models_with_memory_by_default() -> None:
    with pytest.raises(UnsupportedSpaceError, match="LossOnly"):
        LossOnly(*CARTPOLE.spaces(), model={"use_lstm": True})


def test_a_new_policy_has_counters_of_0_and_takes_one_gradient_step_per_iteration() -> None:
    policy = LossOnly(*CARTPOLE.spaces(), **SMALL)
    assert (policy.env_steps, policy.iterations, policy.gradient_steps) == (0, 0, 0)
    assert (policy.passes, policy.minibatches, policy.learn_seconds, policy.iteration_metrics) == (1, 1, 0.0, {})
    assert policy.log_extra and not policy.automatic_optimization and policy.gamma == 0.99 and policy.seed == 0
    policy.learn_on_batch(policy.learner.rows_of(fragment(policy)))
    assert policy.gradient_steps == 1


def test_with_updates_gives_a_class_the_base_s_name_by_default_and_the_caller_s_module() -> None:
    derived = PPO.with_updates(loss_fn=entropy)
    assert (derived.__name__, derived.__module__) == ("PPO", __name__) and derived is not PPO
    assert PPO.with_updates("Other", loss_fn=entropy).__name__ == "Other"


# -- arguments and copies ---------------------------------------------------------------------------------------------
def test_constructor_arguments_gives_spaces_and_all_keywords_passed() -> None:
    observation, action = CARTPOLE.spaces()
    policy = WithDepth(observation, action, depth=2, gamma=0.5, **SMALL)
    spaces = (observation, action)
    assert policy.constructor_arguments() == (spaces, {"depth": 2, "gamma": 0.5, **SMALL})
    assert LossOnly(*CARTPOLE.spaces()).constructor_arguments() == (spaces, {})
    assert LossOnly(action_space=action, observation_space=observation).constructor_arguments() == (spaces, {})


def test_copy_for_acting_gives_an_equal_policy_in_eval_mode() -> None:
    policy = WithDepth(*CARTPOLE.spaces(), depth=2, **SMALL).train()
    policy.learn_on_batch(fragment(policy))
    twin: Any = policy.copy_for_acting()
    assert type(twin) is WithDepth and twin.depth == 2 and not twin.training and twin is not policy
    assert (twin.env_steps, twin.iterations, twin.gradient_steps) == (16, 1, policy.gradient_steps)
    for name, value in policy.state_dict().items():
        assert torch.equal(twin.state_dict()[name], value), name


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
def test_a_fit_warns_of_loggers_without_a_metrics_callback(
    loggers: list[Any], callbacks: list[Any], warned: bool
) -> None:
    policy = PPO(*CARTPOLE.spaces(), **SMALL)
    policy._trainer = SimpleNamespace(loggers=loggers, callbacks=callbacks)  # type: ignore[assignment]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        policy.on_fit_start()
    assert [str(each.message)[:17] for each in found] == ["nothing is logged"] * warned
    assert all(each.filename == __file__ for each in found), "the warning points at the caller"


@pytest.mark.parametrize(("fn", "logged"), [("fit", False), ("validate", True), ("test", True)])
@pytest.mark.parametrize("step", ["validation_step", "test_step"])
def test_validation_and_test_steps_log_means_over_episodes(
    step: str, fn: str, logged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returns 1, 2 and 6 have mean 3; lengths 3, 3 and 6 have mean 4."""
    policy = PPO(*CARTPOLE.spaces(), **SMALL)
    policy._trainer = SimpleNamespace(state=SimpleNamespace(fn=fn))  # type: ignore[assignment]
    logged_values: list[Any] = []
    monkeypatch.setattr(policy, "log", lambda name, value, **how: logged_values.append((name, value.item(), how)))
    getattr(policy, step)(
        SampleBatch(episode_returns=torch.tensor([1.0, 2.0, 6.0]), episode_lengths=torch.tensor([3, 3, 6]))
    )
    how = {"on_epoch": True, "logger": logged, "batch_size": 3, "sync_dist": True}
    assert logged_values == [("eval/ep_rew_mean", 3.0, how), ("eval/ep_len_mean", 4.0, how)]


def test_predict_step_gives_deterministic_actions_in_the_environment_s_range() -> None:
    """Pendulum takes torques within ±2; the policy's actions are within ±1."""
    policy = PPO(*PENDULUM.spaces(), **SMALL)
    obs = torch.ones(3, 3)
    best = policy.compute_actions(obs, explore=False)[0]
    found = policy.predict_step(obs)
    assert isinstance(found, np.ndarray) and best.abs().min() > 1e-4
    np.testing.assert_allclose(found, 2.0 * best.numpy(), rtol=1e-5)


# -- state ------------------------------------------------------------------------------------------------------------
class OneNumber(ScratchPolicy):
    """A ScratchPolicy whose weights are a number."""

    number = 0

    def compute_actions(self, obs: Any, state: Any = (), **_: Any) -> Any:
        return [0 for _ in obs], [], {}

    def learn_on_batch(self, batch: SampleBatch) -> dict[str, float]:
        return {}

    def get_weights(self) -> Any:
        return {"number": self.number}

    def set_weights(self, weights: Any) -> None:
        self.number = weights["number"]


def test_a_scratch_policy_s_state_has_no_optimizer() -> None:
    policy, twin = OneNumber(*CARTPOLE.spaces()), OneNumber(*CARTPOLE.spaces())
    policy.number, policy.env_steps = 3, 7
    state = policy.get_state()
    assert set(state) == {"weights", "counters"} and policy.configure_optimizers() is None
    twin.set_state(state)
    assert (twin.number, twin.env_steps) == (3, 7)


def save(policy: Policy, **more: Any) -> dict[str, Any]:
    checkpoint: dict[str, Any] = {"state_dict": policy.state_dict(), **more}
    policy.on_save_checkpoint(checkpoint)
    return checkpoint


def test_on_save_checkpoint_writes_version_spec_and_counters() -> None:
    policy = PPO(*CARTPOLE.spaces(), gamma=0.5, **SMALL)
    checkpoint = save(policy)
    assert checkpoint["lightning_rl"] == {"version": lightning_rl.__version__, "schema": SCHEMA}
    assert checkpoint["policy"] == policy.spec() and checkpoint["policy"]["kwargs"]["gamma"] == 0.5
    assert checkpoint["counters"] == {"env_steps": 0, "iterations": 0, "gradient_steps": 0}
    assert "weights" not in checkpoint and save(OneNumber(*CARTPOLE.spaces()))["weights"] == {"number": 0}


def test_on_save_checkpoint_drops_the_padding_of_flat_moments_and_on_load_restores_it() -> None:
    policy, twin = PPO(*CARTPOLE.spaces(), **SMALL), PPO(*CARTPOLE.spaces(), **SMALL)
    policy.learn_on_batch(fragment(policy))
    state = policy.configure_optimizers().state_dict()
    checkpoint = save(policy, optimizer_states=[state])
    (filed,) = checkpoint["optimizer_states"]
    assert filed["state"][0]["exp_avg"].numel() == sum(p.numel() for p in policy.parameters())
    twin.on_load_checkpoint(checkpoint)
    (again,) = checkpoint["optimizer_states"]
    assert torch.equal(again["state"][0]["exp_avg"], state["state"][0]["exp_avg"])
    assert twin.env_steps == 16


def test_on_load_checkpoint_refuses_an_empty_list_of_optimizer_states() -> None:
    for policy, refused in ((PPO(*CARTPOLE.spaces(), **SMALL), True), (OneNumber(*CARTPOLE.spaces()), False)):
        checkpoint = save(policy, optimizer_states=[])
        assert checkpoint["optimizer_states"] == []
        if refused:
            with pytest.raises(CheckpointError, match="optimizer"):
                policy.on_load_checkpoint(checkpoint)
            del checkpoint["optimizer_states"]  # weights alone
        policy.on_load_checkpoint(checkpoint)


# -- loading under Lightning's name -----------------------------------------------------------------------------------
@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.save(save(PPO(*CARTPOLE.spaces(), **SMALL)), tmp_path / "some.ckpt")
    return tmp_path / "some.ckpt"


@pytest.mark.parametrize("cls", [Policy, PPO])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hparams_file": "h.yaml"}, r"hparams_file='h.yaml', weights_only=None"),
        ({"weights_only": False}, "hparams_file=None, weights_only=False"),
        ({"map_location": {"cuda:1": "cuda:0"}}, "'cuda:0'"),
    ],
)
def test_load_from_checkpoint_refuses_lightning_s_arguments_that_it_cannot_follow(
    cls: type[Policy], arguments: dict[str, Any], message: str, file: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        cls.load_from_checkpoint(file, **arguments)


@pytest.mark.parametrize("arguments", [{"gamma": 0.5}, {"strict": False}, {"strict": True, "gamma": 0.5}], ids=str)
def test_policy_load_from_checkpoint_builds_the_file_s_class_and_takes_no_keywords(
    arguments: dict[str, Any], file: Path
) -> None:
    for fits in ({}, {"strict": True}, {"weights_only": True}, {"strict": None}):
        assert type(Policy.load_from_checkpoint(file, **fits)) is PPO
    with pytest.raises(ConfigError, match=r"Policy\.load_from_checkpoint"):
        Policy.load_from_checkpoint(file, **arguments)
    assert type(PPO.load_from_checkpoint(file, **arguments)) is PPO


@pytest.mark.parametrize("cls", [Policy, PPO])
@pytest.mark.parametrize("device", ["meta", torch.device("meta"), "cpu", None], ids=str)
def test_load_from_checkpoint_puts_the_policy_on_map_location(cls: type[Policy], device: Any, file: Path) -> None:
    loaded = cls.load_from_checkpoint(file, map_location=device)
    assert {p.device.type for p in loaded.parameters()} == {torch.device(device or "cpu").type}


def test_load_from_checkpoint_refuses_a_file_of_another_class(file: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds a .*:PPO, not a .*:A2C"):
        A2C.load_from_checkpoint(file)
