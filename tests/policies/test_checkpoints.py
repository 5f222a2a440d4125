"""Policies in checkpoints: what is written, what is loaded, and the errors for files that cannot be loaded."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from lightning_rl import ScratchPolicy
from lightning_rl.checkpoint_files import SCHEMA, migrate_checkpoint, version_entry
from lightning_rl.errors import CheckpointError, ConfigError, NonFiniteError
from lightning_rl.policies import A2C, PPO, Policy
from lightning_rl.policies.checkpoints import load_policy, read_checkpoint
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE

SMALL: dict[str, Any] = {"model": {"fcnet_hiddens": [4]}}
FOREIGN = "was not written by lightning_rl: it holds no policy"


def content_of(policy: Policy) -> dict[str, Any]:
    checkpoint: dict[str, Any] = {"state_dict": policy.state_dict()}
    policy.on_save_checkpoint(checkpoint)
    return checkpoint


@pytest.fixture
def content() -> dict[str, Any]:
    """The checkpoint of a small PPO."""
    return content_of(PPO(*CARTPOLE.spaces(), **SMALL))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    def write_file(content: Any) -> Path:
        torch.save(content, tmp_path / "some.ckpt")
        return tmp_path / "some.ckpt"

    return write_file


def half(policy: Policy, batch: SampleBatch) -> torch.Tensor:
    return batch.rewards.sum() * 0.5


# -- reading ----------------------------------------------------------------------------------------------------------
def test_load_needs_policy_counters_and_state_dict_only(content: dict[str, Any], write: Callable[[Any], Path]) -> None:
    file = write({name: content[name] for name in ("policy", "counters", "state_dict")})
    assert isinstance(Policy.load(file), PPO)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_load_refuses_weights_that_are_not_finite(
    value: float, content: dict[str, Any], write: Callable[[Any], Path]
) -> None:
    name = next(name for name in content["state_dict"] if name.endswith("weight"))
    content["state_dict"][name] = content["state_dict"][name].clone()
    content["state_dict"][name][0, 0] = value
    with pytest.raises(CheckpointError, match=rf"some.ckpt: {name}.*NaN"):
        Policy.load(write(content))


@pytest.mark.parametrize("missing", ["policy", "counters", "state_dict"])
def test_load_refuses_a_file_without_policy_counters_or_state_dict(
    missing: str, content: dict[str, Any], write: Callable[[Any], Path]
) -> None:
    del content[missing]
    with pytest.raises(CheckpointError, match=FOREIGN):
        Policy.load(write(content))


@pytest.mark.parametrize("foreign", [[1, 2], 3, "policy counters state_dict", {}], ids=str)
def test_load_refuses_files_that_hold_no_mapping(foreign: Any, write: Callable[[Any], Path]) -> None:
    with pytest.raises(CheckpointError, match=FOREIGN):
        Policy.load(write(foreign))


@pytest.mark.parametrize("key", ["class", "kwargs", "observation_space", "action_space"])
@pytest.mark.parametrize("instead", ["nothing", "a list"])
def test_read_checkpoint_names_a_policy_entry_that_is_missing_or_of_another_type(
    key: str, instead: str, content: dict[str, Any], write: Callable[[Any], Path]
) -> None:
    content["policy"] = {name: value for name, value in content["policy"].items() if name != key}
    if instead == "a list":
        content["policy"][key] = ["x"]
    with pytest.raises(CheckpointError, match=f"'{key}'"):
        read_checkpoint(write(content))


def test_read_checkpoint_refuses_a_policy_entry_that_is_no_mapping(
    content: dict[str, Any], write: Callable[[Any], Path]
) -> None:
    with pytest.raises(CheckpointError, match="'class'"):
        read_checkpoint(write({**content, "policy": "lightning_rl.policies:PPO"}))


@pytest.mark.parametrize("missing", ["policy", "counters"])
def test_on_load_checkpoint_refuses_a_checkpoint_without_policy_or_counters(
    missing: str, content: dict[str, Any]
) -> None:
    del content[missing]
    with pytest.raises(CheckpointError, match=FOREIGN):
        PPO(*CARTPOLE.spaces(), **SMALL).on_load_checkpoint(content)


# -- building the policy ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("key", "named", "advised"),
    [
        ("class", "lightning_rl.policies:Gone", True),
        ("class", "torch.nn:Linear", False),  # outside the trusted prefixes
        ("custom_model", "lightning_rl.models:Gone", False),
    ],
)
def test_load_advises_policy_class_only_where_a_trusted_class_cannot_be_imported(
    key: str, named: str, advised: bool, content: dict[str, Any], write: Callable[[Any], Path]
) -> None:
    spec = content["policy"]
    if key == "class":
        spec["class"] = named
    else:
        spec["kwargs"]["model"][key] = named
    with pytest.raises(CheckpointError, match=named) as refused:
        Policy.load(write(content))
    assert ("policy_class=" in str(refused.value)) is advised


class FailingPolicy(PPO):
    """Its constructor raises."""

    error: ClassVar[Exception]

    def __init__(self, *args: Any, **keywords: Any) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("first\nsecond"), "checkpoint {file} does not make a policy (ValueError: first): it was changed,"),
        (MemoryError(), "checkpoint {file} does not make a policy (MemoryError: ): it was changed,"),
        (CheckpointError("half of it is gone"), "checkpoint {file}: half of it is gone"),
        (CheckpointError("some.ckpt: {file} is odd"), "some.ckpt: {file} is odd"),
    ],
    ids=["two lines", "no line", "without the file", "with the file"],
)
def test_errors_of_a_policy_s_constructor_name_the_checkpoint_once(
    error: Exception, message: str, content: dict[str, Any], write: Callable[[Any], Path], monkeypatch: Any
) -> None:
    file = write(content)
    message = message.format(file=file)
    monkeypatch.setattr(
        FailingPolicy, "error", type(error)(*(str(each).format(file=file) for each in error.args)), raising=False
    )
    with pytest.raises(CheckpointError) as refused:
        load_policy(file, FailingPolicy)
    assert str(refused.value).startswith(message) and str(refused.value).count(str(file)) == 1


def test_wrong_keywords_of_the_file_are_checkpoint_errors_and_the_caller_s_are_config_errors(
    content: dict[str, Any], write: Callable[[Any], Path]
) -> None:
    file = write(content)
    assert PPO.load_from_checkpoint(file, gamma=0.5).gamma == 0.5
    with pytest.raises(ConfigError, match=r"^policy\.gamma=2\.0"):
        PPO.load_from_checkpoint(file, gamma=2.0)
    with pytest.raises(ConfigError, match=r"PPO.*'gama'.*'gamma'"):
        PPO.load_from_checkpoint(file, gama=0.5)
    content["policy"]["kwargs"]["gamma"] = 2.0
    with pytest.raises(CheckpointError, match=re.escape(f"checkpoint {file} does not make a policy (ConfigError: ")):
        PPO.load_from_checkpoint(write(content))


def test_load_from_checkpoint_names_the_class_of_another_class_s_file(
    content: dict[str, Any], write: Callable[[Any], Path]
) -> None:
    with pytest.raises(CheckpointError, match=r"lightning_rl\.policies\.ppo:PPO.*A2C"):
        A2C.load_from_checkpoint(write(content))


@pytest.mark.parametrize("strict", [None, True, False])
def test_load_from_checkpoint_loads_a_part_of_the_weights_with_strict_false_only(
    strict: bool | None, content: dict[str, Any], write: Callable[[Any], Path]
) -> None:
    name = "model.trunk.layers.0.weight"
    content["state_dict"] = {each: tensor + 1.0 for each, tensor in content["state_dict"].items() if each != name}
    file = write(content)
    if strict is False:
        loaded = PPO.load_from_checkpoint(file, strict=False).state_dict()
        assert all(torch.equal(loaded[each], tensor) for each, tensor in content["state_dict"].items())
    else:
        with pytest.raises(CheckpointError, match=rf"{re.escape(name)} absent against \[4, 4\]"):
            PPO.load_from_checkpoint(file, strict=strict)


def test_a_loaded_policy_has_the_file_s_counters_and_is_in_eval_mode(write: Callable[[Any], Path]) -> None:
    policy = PPO(*CARTPOLE.spaces(), **SMALL).train()
    policy.env_steps, policy.iterations, policy.gradient_steps = 7, 5, 3
    for loaded in (Policy.load(write(content_of(policy))), PPO.load_from_checkpoint(write(content_of(policy)))):
        assert (loaded.env_steps, loaded.iterations, loaded.gradient_steps) == (7, 5, 3)
        assert not any(module.training for module in loaded.modules())


def test_the_error_for_tensors_of_other_shapes_names_five_of_many(content: dict[str, Any]) -> None:
    other = PPO(*CARTPOLE.spaces(), model={"fcnet_hiddens": [3, 3, 3]})
    with pytest.raises(CheckpointError, match="this model") as refused:
        other.on_load_checkpoint(content)
    assert str(refused.value).partition("(file against model): ")[2].count(" against ") == 5


# -- keywords as plain data -------------------------------------------------------------------------------------------
class LossObject:
    """A loss without an import path."""

    def __call__(self, policy: Policy, batch: SampleBatch) -> torch.Tensor:
        return batch.rewards.sum()


def test_spec_writes_keywords_as_given() -> None:
    given = {
        "max_grad_norm": None,
        "lr": ((0, 1e-3), (10, 0.0)),
        "clip_actions": True,
        "optimizer_kwargs": {"eps": 1e-3},
    }
    kwargs = PPO(*CARTPOLE.spaces(), **given).spec()["kwargs"]  # type: ignore[arg-type]
    assert kwargs == given


def test_spec_writes_functions_as_import_paths() -> None:
    policy = PPO(*CARTPOLE.spaces(), **SMALL, custom_losses=[half, {"loss": half, "weight": 2.0}])
    path = f"{__name__}:half"
    assert policy.spec()["kwargs"]["custom_losses"] == [path, {"loss": path, "weight": 2.0}]


def test_spec_refuses_functions_without_an_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "__module__", "__main__")
    for loss in (half, LossObject(), lambda policy, batch: batch.rewards.sum()):
        policy = PPO(*CARTPOLE.spaces(), **SMALL, custom_losses=[loss])
        with pytest.raises(CheckpointError, match=r"custom_losses\.0(\.loss)? is "):
            policy.spec()


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


def loaded_weights(weights: Any, file: Path) -> Any:
    torch.save(content_of(policy_with_weights(weights)), file)
    return load_policy(file, AnyWeights).weights  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "weights",
    [
        None,
        {"flag": True, "count": 3, "rate": 0.5, "name": "x", "nothing": None},
        {1: 2, 0.5: 3, (0, "a", (1,)): 4, "b": {}},
        [1, (2, [3, (4,)]), ()],
    ],
    ids=["none", "plain values", "keys", "containers"],
)
def test_a_scratch_policy_s_plain_weights_load_as_they_were_saved(weights: Any, tmp_path: Path) -> None:
    loaded = loaded_weights(weights, tmp_path / "own.ckpt")
    assert repr(loaded) == repr(weights)  # repr distinguishes lists from tuples, and 1 from True


def test_a_scratch_policy_s_arrays_and_tensors_load_as_they_were_saved(tmp_path: Path) -> None:
    weights = {
        "array": np.arange(6, dtype=np.int16).reshape(2, 3),
        "flags": np.array([True, False]),
        "number": np.float32(0.5),
        "tensor": torch.arange(3.0),
    }
    loaded = loaded_weights(weights, tmp_path / "own.ckpt")
    for name in ("array", "flags"):
        assert isinstance(loaded[name], np.ndarray) and loaded[name].dtype == weights[name].dtype
        np.testing.assert_array_equal(loaded[name], weights[name])
    assert loaded["number"] == 0.5 and type(loaded["number"]) is float
    assert torch.equal(loaded["tensor"], weights["tensor"])


def test_on_save_checkpoint_copies_weights_without_gradients() -> None:
    parameter, array = torch.nn.Parameter(torch.zeros(2)), np.zeros(2)
    written = content_of(policy_with_weights({"parameter": parameter, "array": array}))["weights"]
    with torch.no_grad():
        parameter += 1.0
    array += 1.0
    assert not written["parameter"].requires_grad and written["parameter"].tolist() == [0.0, 0.0]
    assert written["array"]["numpy array"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "weights",
    [np.array(["text"]), np.array([object()]), {None: 1}, {"a": 1, None: 2}, {(0, None): 1}, {frozenset({1}): 2}, {1j}],
    ids=["texts", "objects", "no name", "one no name", "a name in two parts", "a set as a name", "a set"],
)
def test_on_save_checkpoint_refuses_weights_that_are_no_plain_data(weights: Any) -> None:
    with pytest.raises(CheckpointError, match=r"weights\['w'\]\[0\]=.*get_weights"):
        content_of(policy_with_weights({"w": [weights]}))


# -- weights that are not finite --------------------------------------------------------------------------------------
NAN = torch.tensor([1.0, float("nan"), 2.0])


@pytest.mark.parametrize(
    ("weights", "place"),
    [
        ({"q": NAN}, r"weights\['q'\] and 0 more of 1 tensors"),
        ({"q": [torch.ones(1), (NAN,)], "p": NAN}, r"weights\['q'\]\[1\]\[0\] and 1 more of 3 tensors"),
        (NAN, r"weights and 0 more of 1 tensors"),
    ],
    ids=["in a dict", "in lists and tuples", "alone"],
)
def test_on_save_checkpoint_names_the_place_of_weights_that_are_not_finite(weights: Any, place: str) -> None:
    with pytest.raises(NonFiniteError, match=rf"^{place}.*NaN"):
        content_of(policy_with_weights(weights))


def test_on_save_checkpoint_refuses_a_parameter_with_one_number_that_is_not_finite() -> None:
    policy = PPO(*CARTPOLE.spaces(), **SMALL)
    name, parameter = list(policy.named_parameters())[-2]
    with torch.no_grad():
        parameter.view(-1)[1] = float("inf")
    count = len(list(policy.parameters()))
    with pytest.raises(NonFiniteError, match=rf"^{re.escape(name)} and 0 more of {count} tensors"):
        content_of(policy)


def test_on_save_checkpoint_accepts_weights_without_tensors() -> None:
    assert content_of(policy_with_weights({"w": 1.0}))["weights"] == {"w": 1.0}


def test_the_form_of_a_checkpoint_decides_and_not_the_version_that_wrote_it() -> None:
    newer = {"version": "9.9.9", "schema": SCHEMA}
    assert migrate_checkpoint({"lightning_rl": newer}, "x.ckpt") == version_entry()
    with pytest.raises(CheckpointError, match=r"written by lightning_rl 9\.9\.9 with schema 2.*install"):
        migrate_checkpoint({"lightning_rl": {**newer, "schema": SCHEMA + 1}}, "x.ckpt")
