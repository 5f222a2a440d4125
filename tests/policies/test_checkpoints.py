"""Checkpoint content: which files load, their errors, weights alone, and the plain data that a spec and weights are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import lightning_rl
from lightning_rl import ScratchPolicy
from lightning_rl.errors import CheckpointError, ConfigError, NonFiniteError
from lightning_rl.policies import A2C, PPO, Policy
from lightning_rl.policies.checkpoints import load_policy
from lightning_rl.run_directory.checkpoint_files import SCHEMA, check_version
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE, PENDULUM
from tests.models.parameters import parameter_vector
from tests.policies.fits_and_files import assert_same, content_of, saved
from tests.refusals import not_refused
from tests.rollouts.small_worker import small_worker

SMALL: dict[str, Any] = {"model": {"fcnet_hiddens": [4]}}
FOREIGN = "was not written by lightning_rl: it holds no policy"


def small_ppo(**keywords: Any) -> PPO:
    return PPO(*CARTPOLE.spaces(), **{**SMALL, **keywords})


@pytest.fixture
def content() -> dict[str, Any]:
    """The checkpoint of a small PPO."""
    return content_of(small_ppo())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of a small PPO."""
    return saved(small_ppo(), tmp_path / "some.ckpt")


def half(policy: Policy, batch: SampleBatch) -> torch.Tensor:
    return batch.rewards.sum() * 0.5


# -- reading ----------------------------------------------------------------------------------------------------------
def test_load_needs_policy_counters_and_state_dict_only(content: dict[str, Any], file: Path) -> None:
    saved({name: content[name] for name in ("policy", "counters", "state_dict")}, file)
    assert isinstance(Policy.load(file), PPO)


def test_load_refuses_damaged_foreign_and_incomplete_files(content: dict[str, Any], tmp_path: Path) -> None:
    """Weights that are not finite, too; a policy's entry that is missing or of another type is named."""
    file, spec, weights = tmp_path / "some.ckpt", content["policy"], content["state_dict"]
    name, first = next(name for name in weights if name.endswith("weight")), torch.tensor(0)
    keys = ["class", "kwargs", "observation_space", "action_space"]
    cases = [
        (None, r"some\.ckpt does not exist"), (b"", "some.ckpt cannot be read"),
        (b"no", "some.ckpt cannot be read"),
        *((foreign, FOREIGN) for foreign in ({"weights": 1}, [1, 2], 3, "policy counters state_dict", {})),
        *(({**content, key: None}, FOREIGN) for key in ("policy", "counters", "state_dict")),
        *(({**content, "policy": {**spec, key: ["x"]}}, f"'{key}'") for key in keys),
        *(({**content, "policy": {**spec, key: None}}, f"'{key}'") for key in keys),
        ({**content, "policy": "lightning_rl.policies:PPO"}, "'class'"),
        *(
            ({**content, "state_dict": {**weights, name: weights[name].index_fill(0, first, value)}}, rf"{name}.*NaN")
            for value in (torch.nan, torch.inf)
        ),
    ]  # fmt: skip

    def load(held: Any) -> None:
        if isinstance(held, bytes):
            file.write_bytes(held)
        elif isinstance(held, dict):  # None stands for an entry that is missing
            held = {key: value for key, value in held.items() if value is not None}
            if isinstance(held.get("policy"), dict):
                held["policy"] = {key: value for key, value in held["policy"].items() if value is not None}
        if held is not None and not isinstance(held, bytes):
            torch.save(held, file)
        Policy.load(file)

    assert not_refused(load, cases, CheckpointError) == []


def test_on_load_checkpoint_refuses_what_does_not_fit_before_it_changes_weights(content: dict[str, Any]) -> None:
    policy = PPO(*CARTPOLE.spaces())
    before = parameter_vector(policy)
    cases = [
        *((content_without(content, key), FOREIGN) for key in ("policy", "counters")),
        (content_of(A2C(*CARTPOLE.spaces())), "a2c:A2C"),
        (content_of(PPO(*PENDULUM.spaces())), "observation_space"),
        (content_of(small_ppo(model={"fcnet_hiddens": [3]})), r"\[3, 4\].*\[64, 4\]"),
    ]
    assert not_refused(policy.on_load_checkpoint, cases, CheckpointError) == []
    assert torch.equal(before, parameter_vector(policy))


def content_without(content: dict[str, Any], missing: str) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != missing}


# -- building the policy ----------------------------------------------------------------------------------------------
def test_load_advises_policy_class_only_where_a_trusted_class_cannot_be_imported(
    content: dict[str, Any], file: Path
) -> None:
    spec, gone = content["policy"], "lightning_rl.models:Gone"
    for changed, named, advised in (
        ({"class": "lightning_rl.policies:Gone"}, "lightning_rl.policies:Gone", True),
        ({"class": "torch.nn:Linear"}, "torch.nn:Linear", False),  # outside the trusted prefixes
        ({"kwargs": {**spec["kwargs"], "model": {"custom_model": gone}}}, gone, False),
    ):
        with pytest.raises(CheckpointError, match=named) as refused:
            Policy.load(saved({**content, "policy": {**spec, **changed}}, file))
        assert ("policy_class=" in str(refused.value)) is advised


class FailingPolicy(PPO):
    """Its constructor raises."""

    error: ClassVar[Exception]

    def __init__(self, *args: Any, **keywords: Any) -> None:
        raise self.error


def test_errors_of_a_policy_s_constructor_name_the_checkpoint_once(file: Path, monkeypatch: Any) -> None:
    for error, message in (
        (ValueError("first\nsecond"), f"checkpoint {file} does not make a policy (ValueError: first): it was changed,"),
        (MemoryError(), f"checkpoint {file} does not make a policy (MemoryError: ): it was changed,"),
        (CheckpointError("half of it is gone"), f"checkpoint {file}: half of it is gone"),
        (CheckpointError(f"some.ckpt: {file} is odd"), f"some.ckpt: {file} is odd"),
    ):
        monkeypatch.setattr(FailingPolicy, "error", error, raising=False)
        with pytest.raises(CheckpointError) as refused:
            load_policy(file, FailingPolicy)
        assert str(refused.value).startswith(message) and str(refused.value).count(str(file)) == 1


def test_wrong_keywords_of_the_file_are_checkpoint_errors_and_the_caller_s_are_config_errors(
    content: dict[str, Any], file: Path
) -> None:
    assert PPO.load_from_checkpoint(file, gamma=0.5).gamma == 0.5
    with pytest.raises(ConfigError, match=r"^policy\.gamma=2\.0"):
        PPO.load_from_checkpoint(file, gamma=2.0)
    with pytest.raises(ConfigError, match=r"PPO.*'gama'.*'gamma'"):
        PPO.load_from_checkpoint(file, gama=0.5)
    content["policy"]["kwargs"]["gamma"] = 2.0
    with pytest.raises(CheckpointError, match=re.escape(f"checkpoint {file} does not make a policy (ConfigError: ")):
        PPO.load_from_checkpoint(saved(content, file))


@pytest.mark.parametrize("cls", [Policy, PPO])
def test_load_from_checkpoint_refuses_lightning_s_arguments_that_it_cannot_follow(
    cls: type[Policy], file: Path
) -> None:
    cases = [
        ({"hparams_file": "h.yaml"}, r"hparams_file='h.yaml', weights_only=None"),
        ({"weights_only": False}, "hparams_file=None, weights_only=False"),
        ({"map_location": {"cuda:1": "cuda:0"}}, "'cuda:0'"),
    ]
    assert not_refused(lambda arguments: cls.load_from_checkpoint(file, **arguments), cases) == []


def test_load_from_checkpoint_of_policy_builds_the_file_s_class_and_takes_no_keywords(file: Path) -> None:
    for fits in ({}, {"strict": True}, {"weights_only": True}, {"strict": None}):
        assert type(Policy.load_from_checkpoint(file, **fits)) is PPO
    for arguments in ({"gamma": 0.5}, {"strict": False}, {"strict": True, "gamma": 0.5}):
        with pytest.raises(ConfigError, match=r"Policy\.load_from_checkpoint"):
            Policy.load_from_checkpoint(file, **arguments)
        assert type(PPO.load_from_checkpoint(file, **arguments)) is PPO
    with pytest.raises(CheckpointError, match=r"holds a .*lightning_rl\.policies\.ppo:PPO, not a .*:A2C"):
        A2C.load_from_checkpoint(file)


@pytest.mark.parametrize("cls", [Policy, PPO])
def test_load_from_checkpoint_puts_the_policy_on_map_location(cls: type[Policy], file: Path) -> None:
    for device in ("meta", torch.device("meta"), "cpu", None):
        loaded = cls.load_from_checkpoint(file, map_location=device)
        assert {p.device.type for p in loaded.parameters()} == {torch.device(device or "cpu").type}


def test_load_from_checkpoint_loads_a_part_of_the_weights_with_strict_false_only(
    content: dict[str, Any], file: Path
) -> None:
    name = "model.trunk.layers.0.weight"
    content["state_dict"] = {each: tensor + 1.0 for each, tensor in content["state_dict"].items() if each != name}
    saved(content, file)
    loaded = PPO.load_from_checkpoint(file, strict=False).state_dict()
    assert all(torch.equal(loaded[each], tensor) for each, tensor in content["state_dict"].items())
    for strict in (None, True):
        with pytest.raises(CheckpointError, match=rf"{re.escape(name)} absent against \[4, 4\]"):
            PPO.load_from_checkpoint(file, strict=strict)


def test_a_loaded_policy_has_the_file_s_counters_filters_and_actions_and_is_in_eval_mode(file: Path) -> None:
    model = {"fcnet_hiddens": [8], "free_log_std": True}
    policy = PPO(*PENDULUM.spaces(), observation_filter="mean_std", model=model, seed=1)
    policy.learn_on_batch(small_worker(policy, PENDULUM).sample())
    policy.env_steps, policy.iterations, policy.gradient_steps = 7, 5, 3
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for loaded in (Policy.load(str(saved(policy, file))), PPO.load_from_checkpoint(file)):
        assert isinstance(loaded, PPO)
        assert (loaded.env_steps, loaded.iterations, loaded.gradient_steps) == (7, 5, 3)
        assert not any(module.training for module in loaded.modules())
        assert torch.equal(loaded.compute_actions(obs, explore=False)[0], policy.compute_actions(obs, explore=False)[0])


def test_the_error_for_tensors_of_other_shapes_names_five_of_many(content: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="this model") as refused:
        small_ppo(model={"fcnet_hiddens": [3, 3, 3]}).on_load_checkpoint(content)
    assert str(refused.value).partition("(file against model): ")[2].count(" against ") == 5


# -- keywords as plain data -------------------------------------------------------------------------------------------
class LossObject:
    """A loss without an import path."""

    def __call__(self, policy: Policy, batch: SampleBatch) -> torch.Tensor:
        return batch.rewards.sum()


def test_spec_writes_keywords_as_given_and_functions_as_import_paths() -> None:
    given = {"max_grad_norm": None, "lr": ((0, 1e-3), (10, 0.0)), "clip_actions": True, "optimizer_kwargs": {"eps": 1}}
    policy = PPO(*CARTPOLE.spaces(), **given, custom_losses=[half, {"loss": half, "weight": 2.0}])
    path = f"{__name__}:half"
    assert policy.spec()["kwargs"] == {**given, "custom_losses": [path, {"loss": path, "weight": 2.0}]}


def test_spec_refuses_functions_without_an_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "__module__", "__main__")
    for loss in (half, LossObject(), lambda policy, batch: batch.rewards.sum()):
        with pytest.raises(CheckpointError, match=r"custom_losses\.0(\.loss)? is .*import path"):
            small_ppo(custom_losses=[loss]).spec()


def test_on_save_checkpoint_writes_version_spec_and_counters() -> None:
    policy = small_ppo(gamma=0.5)
    written = content_of(policy)
    assert written["lightning_rl"] == {"version": lightning_rl.__version__, "schema": SCHEMA}
    assert written["policy"] == policy.spec() and written["policy"]["kwargs"]["gamma"] == 0.5
    assert written["counters"] == {"env_steps": 0, "iterations": 0, "gradient_steps": 0}
    assert "weights" not in written


# -- optimizers -------------------------------------------------------------------------------------------------------
def test_on_load_checkpoint_refuses_an_empty_list_of_optimizer_states(content: dict[str, Any]) -> None:
    """Weights alone, without the list, are no resumed run; a policy from scratch has no optimizer."""
    policy, scratch = small_ppo(), policy_with_weights(3)
    with pytest.raises(CheckpointError, match="optimizer"):
        policy.on_load_checkpoint({**content, "optimizer_states": []})
    policy.on_load_checkpoint(content)
    scratch.on_load_checkpoint({**content_of(scratch), "optimizer_states": []})


# -- weights of scratch policies --------------------------------------------------------------------------------------
class AnyWeights(ScratchPolicy):
    """A ScratchPolicy with any object as its weights."""

    weights: Any = None

    def compute_actions(self, obs: Any, state: Any = (), **_: Any) -> Any:
        return [0 for _ in obs], [], {}

    def learn_on_batch(self, samples: SampleBatch) -> Any:
        return {}

    def get_weights(self) -> Any:
        return self.weights

    def set_weights(self, weights: Any) -> None:
        self.weights = weights


def policy_with_weights(weights: Any) -> AnyWeights:
    policy = AnyWeights(*CARTPOLE.spaces())
    policy.weights = weights
    return policy


def test_a_scratch_policy_s_state_has_no_optimizer() -> None:
    policy, twin = policy_with_weights(3), policy_with_weights(0)
    policy.env_steps = 7
    state = policy.get_state()
    assert set(state) == {"weights", "counters"} and policy.configure_optimizers() is None
    twin.set_state(state)
    assert (twin.weights, twin.env_steps) == (3, 7)


def test_a_scratch_policy_s_weights_load_as_they_were_saved(tmp_path: Path) -> None:
    """Plain values, their containers, arrays and tensors."""

    def loaded(weights: Any) -> Any:
        return load_policy(saved(policy_with_weights(weights), tmp_path / "own.ckpt"), AnyWeights).weights  # type: ignore[attr-defined]

    for plain in (
        None,
        {"flag": True, "count": 3, "rate": 0.5, "name": "x", "nothing": None},
        {1: 2, 0.5: 3, (0, "a", (1,)): 4, "b": {}},
        [1, (2, [3, (4,)]), ()],
    ):
        assert repr(loaded(plain)) == repr(plain)  # repr distinguishes lists from tuples, and 1 from True
    arrays = {"array": np.arange(6, dtype=np.int16).reshape(2, 3), "flags": np.array([True, False])}
    assert_same(loaded({**arrays, "tensor": torch.arange(3.0)}), {**arrays, "tensor": torch.arange(3.0)})
    assert type(loaded(np.float32(0.5))) is float


def test_on_save_checkpoint_copies_weights_without_gradients() -> None:
    parameter, array = torch.nn.Parameter(torch.zeros(2)), np.zeros(2)
    written = content_of(policy_with_weights({"parameter": parameter, "array": array}))["weights"]
    with torch.no_grad():
        parameter += 1.0
    array += 1.0
    assert not written["parameter"].requires_grad and written["parameter"].tolist() == [0.0, 0.0]
    assert written["array"]["numpy array"].tolist() == [0.0, 0.0]


def test_on_save_checkpoint_refuses_weights_that_are_no_plain_data() -> None:
    """Arrays of texts or objects, names that are no plain data or have a part that is none, and sets."""
    wrong = [
        np.array(["text"]),
        np.array([object()]),
        {None: 1},
        {"a": 1, None: 2},
        {(0, None): 1},
        {frozenset({1}): 2},
    ]
    cases = [({"w": [weights]}, r"weights\['w'\]\[0\]=.*get_weights") for weights in [*wrong, {1j}]]
    assert not_refused(lambda weights: content_of(policy_with_weights(weights)), cases, CheckpointError) == []


# -- weights that are not finite --------------------------------------------------------------------------------------
NAN = torch.tensor([1.0, float("nan"), 2.0])


def test_on_save_checkpoint_names_the_place_of_weights_that_are_not_finite() -> None:
    policy = small_ppo()
    name, parameter = list(policy.named_parameters())[-2]
    with torch.no_grad():
        parameter.view(-1)[1] = float("inf")
    count = len(list(policy.parameters()))
    cases = [
        (policy_with_weights({"q": NAN}), r"^weights\['q'\] and 0 more of 1 tensors.*NaN"),
        (
            policy_with_weights({"q": [torch.ones(1), (NAN,)], "p": NAN}),
            r"^weights\['q'\]\[1\]\[0\] and 1 more of 3 tensors.*NaN",
        ),
        (policy_with_weights(NAN), r"^weights and 0 more of 1 tensors.*NaN"),
        (policy, rf"^{re.escape(name)} and 0 more of {count} tensors"),
    ]
    assert not_refused(content_of, cases, NonFiniteError) == []
    assert content_of(policy_with_weights({"w": 1.0}))["weights"] == {"w": 1.0}  # without tensors


def test_the_form_of_a_checkpoint_decides_and_not_the_version_that_wrote_it() -> None:
    newer = {"version": "9.9.9", "schema": SCHEMA}
    check_version({"lightning_rl": newer}, "x.ckpt")
    with pytest.raises(
        CheckpointError, match=rf"written by lightning_rl 9\.9\.9 with schema {SCHEMA + 1}.*version that wrote it"
    ):
        check_version({"lightning_rl": {**newer, "schema": SCHEMA + 1}}, "x.ckpt")
