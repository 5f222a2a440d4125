"""What Lightning, workers and users ask of a policy beside acting and learning."""

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


# -- classes of one's own ---------------------------------------------------------------------------------------------
class Least(Policy):
    """An algorithm that defines nothing but its loss."""

    def loss(self, batch: SampleBatch) -> Any:
        return self.evaluate(batch)[1].square().mean(), {}


class Deep(PPO):
    """Takes a keyword of its own."""

    def __init__(self, observation_space: Any, action_space: Any, *, depth: int = 1, **keywords: Any) -> None:
        super().__init__(observation_space, action_space, **keywords)
        self.depth = depth


def test_keywords_of_a_class_of_one_s_own_are_checked() -> None:
    class Own(PPO):
        def __init__(self, observation_space: Any, action_space: Any, *, depth: int = 1, **keywords: Any) -> None:
            super().__init__(observation_space, action_space, **keywords)
            self.depth = depth

    assert Own(*CARTPOLE.spaces(), depth=3, **SMALL).depth == 3
    with pytest.raises(ConfigError, match=r"policy\.depth='x' is text; expected integer"):
        Own(*CARTPOLE.spaces(), depth="x", **SMALL)  # type: ignore[arg-type]

    class Derived(Own):
        """Has no constructor of its own."""

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
def test_a_class_knows_which_verbs_it_defines_itself(methods: Any) -> None:
    own = type("Own", (Policy,), {method.__name__: method for method in methods})
    names = {method.__name__ for method in methods}
    assert own.overridden == names - {"loss"} and own.has_loss == ("loss" in names)
    assert list(own(*CARTPOLE.spaces()).parameters()), "a model is built for it"


def test_a_class_that_acts_and_learns_by_itself_is_sent_to_scratch_policy() -> None:
    methods = {"compute_actions": compute_actions, "learn_on_batch": learn_on_batch}
    with pytest.raises(ConfigError, match=r"Own acts and learns by methods of its own.*lightning_rl\.ScratchPolicy"):
        type("Own", (Policy,), methods)(*CARTPOLE.spaces())
    scratch = type("Own", (ScratchPolicy,), methods)
    assert not scratch.has_model and not list(scratch(*CARTPOLE.spaces()).parameters())


def test_a_class_that_does_not_say_so_learns_from_no_memory() -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"Least does not learn from recurrent models; .* has state"):
        Least(*CARTPOLE.spaces(), model={"use_lstm": True})


def test_a_policy_begins_with_nothing_counted_and_one_minibatch_in_one_sweep() -> None:
    policy = Least(*CARTPOLE.spaces(), **SMALL)
    assert (policy.env_steps, policy.iterations, policy.gradient_steps) == (0, 0, 0)
    assert (policy.passes, policy.minibatches, policy.learn_seconds, policy.iteration_metrics) == (1, 1, 0.0, {})
    assert policy.log_extra and not policy.automatic_optimization and policy.gamma == 0.99 and policy.seed == 0
    policy.learn_on_batch(policy.learner.rows_of(fragment(policy)))
    assert policy.gradient_steps == 1


def test_a_derived_class_has_its_base_s_name_where_none_is_given_and_the_caller_s_module() -> None:
    derived = PPO.with_updates(loss_fn=entropy)
    assert (derived.__name__, derived.__module__) == ("PPO", __name__) and derived is not PPO
    assert PPO.with_updates("Other", loss_fn=entropy).__name__ == "Other"


# -- arguments and copies ---------------------------------------------------------------------------------------------
def test_a_policy_knows_all_keywords_it_was_made_with() -> None:
    observation, action = CARTPOLE.spaces()
    policy = Deep(observation, action, depth=2, gamma=0.5, **SMALL)
    spaces = (observation, action)
    assert policy.constructor_arguments() == (spaces, {"depth": 2, "gamma": 0.5, **SMALL})
    assert Least(*CARTPOLE.spaces()).constructor_arguments() == (spaces, {})
    assert Least(action_space=action, observation_space=observation).constructor_arguments() == (spaces, {})


def test_a_copy_for_acting_is_the_same_policy_in_eval_mode() -> None:
    policy = Deep(*CARTPOLE.spaces(), depth=2, **SMALL).train()
    policy.learn_on_batch(fragment(policy))
    twin: Any = policy.copy_for_acting()
    assert type(twin) is Deep and twin.depth == 2 and not twin.training and twin is not policy
    assert (twin.env_steps, twin.iterations, twin.gradient_steps) == (16, 1, policy.gradient_steps)
    for name, value in policy.state_dict().items():
        assert torch.equal(twin.state_dict()[name], value), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.float32])
def test_weights_of_any_precision_are_numpy_arrays(dtype: torch.dtype) -> None:
    policy = PPO(*CARTPOLE.spaces(), **SMALL).to(dtype)
    weights = policy.get_weights()
    kinds = {weights[name].dtype for name, _ in policy.named_parameters()}
    assert kinds == {np.dtype(np.float64 if dtype == torch.float64 else np.float32)}
    for name, parameter in policy.named_parameters():
        np.testing.assert_array_equal(weights[name], parameter.detach().float().numpy())


# -- in a Trainer -----------------------------------------------------------------------------------------------------
class OwnMetrics(MetricsCallback):
    """A user's, derived from ours."""


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
def test_loggers_that_get_nothing_are_warned_of(loggers: list[Any], callbacks: list[Any], warned: bool) -> None:
    policy = PPO(*CARTPOLE.spaces(), **SMALL)
    policy._trainer = SimpleNamespace(loggers=loggers, callbacks=callbacks)  # type: ignore[assignment]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        policy.on_fit_start()
    assert [str(each.message)[:17] for each in found] == ["nothing is logged"] * warned
    assert all(each.filename == __file__ for each in found), "what called it"


@pytest.mark.parametrize(("fn", "logged"), [("fit", False), ("validate", True), ("test", True)])
@pytest.mark.parametrize("step", ["validation_step", "test_step"])
def test_an_evaluation_logs_means_over_its_episodes(
    step: str, fn: str, logged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returns 1, 2 and 6 have mean 3; lengths 3, 3 and 6 have mean 4."""
    policy = PPO(*CARTPOLE.spaces(), **SMALL)
    policy._trainer = SimpleNamespace(state=SimpleNamespace(fn=fn))  # type: ignore[assignment]
    told: list[Any] = []
    monkeypatch.setattr(policy, "log", lambda name, value, **how: told.append((name, value.item(), how)))
    getattr(policy, step)(
        SampleBatch(episode_returns=torch.tensor([1.0, 2.0, 6.0]), episode_lengths=torch.tensor([3, 3, 6]))
    )
    how = {"on_epoch": True, "logger": logged, "batch_size": 3, "sync_dist": True}
    assert told == [("eval/ep_rew_mean", 3.0, how), ("eval/ep_len_mean", 4.0, how)]


def test_predicted_actions_are_the_best_as_the_environment_takes_them() -> None:
    """Pendulum's torque is within ±2, the policy's actions within ±1."""
    policy = PPO(*PENDULUM.spaces(), **SMALL)
    obs = torch.ones(3, 3)
    best = policy.compute_actions(obs, explore=False)[0]
    found = policy.predict_step(obs)
    assert isinstance(found, np.ndarray) and best.abs().min() > 1e-4
    np.testing.assert_allclose(found, 2.0 * best.numpy(), rtol=1e-5)


# -- state ------------------------------------------------------------------------------------------------------------
class Counts(ScratchPolicy):
    """Written from scratch."""

    number = 0

    def compute_actions(self, obs: Any, state: Any = (), **_: Any) -> Any:
        return [0 for _ in obs], [], {}

    def learn_on_batch(self, batch: SampleBatch) -> dict[str, float]:
        return {}

    def get_weights(self) -> Any:
        return {"number": self.number}

    def set_weights(self, weights: Any) -> None:
        self.number = weights["number"]


def test_a_policy_from_scratch_has_a_state_without_an_optimizer() -> None:
    policy, twin = Counts(*CARTPOLE.spaces()), Counts(*CARTPOLE.spaces())
    policy.number, policy.env_steps = 3, 7
    state = policy.get_state()
    assert set(state) == {"weights", "counters"} and policy.configure_optimizers() is None
    twin.set_state(state)
    assert (twin.number, twin.env_steps) == (3, 7)


def saved(policy: Policy, **more: Any) -> dict[str, Any]:
    checkpoint: dict[str, Any] = {"state_dict": policy.state_dict(), **more}
    policy.on_save_checkpoint(checkpoint)
    return checkpoint


def test_a_checkpoint_says_which_version_wrote_it_and_what_is_in_it() -> None:
    policy = PPO(*CARTPOLE.spaces(), gamma=0.5, **SMALL)
    checkpoint = saved(policy)
    assert checkpoint["lightning_rl"] == {"version": lightning_rl.__version__, "schema": SCHEMA}
    assert checkpoint["policy"] == policy.spec() and checkpoint["policy"]["kwargs"]["gamma"] == 0.5
    assert checkpoint["counters"] == {"env_steps": 0, "iterations": 0, "gradient_steps": 0}
    assert "weights" not in checkpoint and saved(Counts(*CARTPOLE.spaces()))["weights"] == {"number": 0}


def test_moments_in_a_checkpoint_have_no_gaps_and_come_back_with_them() -> None:
    policy, twin = PPO(*CARTPOLE.spaces(), **SMALL), PPO(*CARTPOLE.spaces(), **SMALL)
    policy.learn_on_batch(fragment(policy))
    state = policy.configure_optimizers().state_dict()
    checkpoint = saved(policy, optimizer_states=[state])
    (filed,) = checkpoint["optimizer_states"]
    assert filed["state"][0]["exp_avg"].numel() == sum(p.numel() for p in policy.parameters())
    twin.on_load_checkpoint(checkpoint)
    (again,) = checkpoint["optimizer_states"]
    assert torch.equal(again["state"][0]["exp_avg"], state["state"][0]["exp_avg"])
    assert twin.env_steps == 16


def test_a_checkpoint_without_the_optimizer_s_state_is_refused_where_there_is_an_optimizer() -> None:
    for policy, refused in ((PPO(*CARTPOLE.spaces(), **SMALL), True), (Counts(*CARTPOLE.spaces()), False)):
        checkpoint = saved(policy, optimizer_states=[])
        assert checkpoint["optimizer_states"] == []
        if refused:
            with pytest.raises(CheckpointError, match="holds no state of an optimizer: it was changed"):
                policy.on_load_checkpoint(checkpoint)
            del checkpoint["optimizer_states"]  # weights alone
        policy.on_load_checkpoint(checkpoint)


# -- loading under Lightning's name -----------------------------------------------------------------------------------
@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.save(saved(PPO(*CARTPOLE.spaces(), **SMALL)), tmp_path / "some.ckpt")
    return tmp_path / "some.ckpt"


@pytest.mark.parametrize("cls", [Policy, PPO])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hparams_file": "h.yaml"}, "hparams_file='h.yaml', weights_only=None: leave both out"),
        ({"weights_only": False}, "hparams_file=None, weights_only=False: leave both out"),
        ({"map_location": {"cuda:1": "cuda:0"}}, "expected a device, such as 'cuda:0'"),
    ],
)
def test_what_lightning_s_verb_takes_and_this_one_cannot_is_refused(
    cls: type[Policy], arguments: dict[str, Any], message: str, file: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        cls.load_from_checkpoint(file, **arguments)


@pytest.mark.parametrize("arguments", [{"gamma": 0.5}, {"strict": False}, {"strict": True, "gamma": 0.5}], ids=str)
def test_the_class_in_a_file_is_loaded_as_the_file_says(arguments: dict[str, Any], file: Path) -> None:
    for fits in ({}, {"strict": True}, {"weights_only": True}, {"strict": None}):
        assert type(Policy.load_from_checkpoint(file, **fits)) is PPO
    with pytest.raises(ConfigError, match=r"Policy\.load_from_checkpoint takes a file as it is: call it on the class"):
        Policy.load_from_checkpoint(file, **arguments)
    assert type(PPO.load_from_checkpoint(file, **arguments)) is PPO


@pytest.mark.parametrize("cls", [Policy, PPO])
@pytest.mark.parametrize("device", ["meta", torch.device("meta"), "cpu", None], ids=str)
def test_a_policy_is_loaded_onto_a_device(cls: type[Policy], device: Any, file: Path) -> None:
    loaded = cls.load_from_checkpoint(file, map_location=device)
    assert {p.device.type for p in loaded.parameters()} == {torch.device(device or "cpu").type}


def test_a_file_of_another_class_is_refused(file: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds a .*:PPO, not a .*:A2C"):
        A2C.load_from_checkpoint(file)
