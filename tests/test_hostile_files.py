"""Files from others are data: what they name is not imported, not called, and refused in one line.

Every payload here would leave a canary (a file), by a command or because its module was imported.
"""

from __future__ import annotations

import ast
import copy
import importlib
import json
import pickle
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lightning_rl import Algorithm, Policy, errors, trust
from lightning_rl.callbacks import AtomicCheckpointIO, RLCheckpoint
from lightning_rl.cli import main
from lightning_rl.config.check import check_config
from lightning_rl.config.compose import compose_config
from lightning_rl.data.offline import JsonReader
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import CheckpointError, ConfigError, EnvError
from lightning_rl.policies import PPO
from lightning_rl.policies.checkpoints import read_checkpoint
from lightning_rl.runs.evaluation import evaluate
from lightning_rl.trust import FileTrust, packages_to_trust
from lightning_rl.version import __version__
from tests.envs.classic_control import CARTPOLE

TryEach = Callable[[Iterable[Any], Callable[[Any], None]], None]
TREE = "{place}"  # in a payload: the directory of the canary
STRANGER = """
from pathlib import Path
Path({canary!r}).touch()
import gymnasium, torch
from os import system
from functools import partial
from lightning_rl.policies import PPO
from lightning_rl.callbacks import RLCallback
class Evil(PPO): pass
class Env(gymnasium.Env): pass
class Outer:
    Env = Env
def touch(*anything, **keywords): Path({canary!r}).touch()
command = partial(system, "touch {canary}")
"""
WELCOME = """
from os import system
import subprocess
import gymnasium
from lightning_rl import losses
from lightning_rl.policies import PPO
class Mine(PPO): pass
def make(**keywords): return gymnasium.make("CartPole-v1")
class Env(type(gymnasium.make("CartPole-v1").unwrapped)): pass
def nothing(policy, batch): return batch.rewards.sum() * 0
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A checkpoint and a config as the package writes them."""
    policy = PPO(*CARTPOLE.spaces(), model={"fcnet_hiddens": [4]})
    checkpoint: dict[str, Any] = {"state_dict": policy.state_dict(), "pytorch-lightning_version": "2.6.6"}
    policy.on_save_checkpoint(checkpoint)
    config = compose_config(["policy=ppo", "env=cartpole", "model.fcnet_hiddens=[4]", "run_dir=elsewhere"])
    return {"checkpoint": checkpoint, "config": config}


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a payload would leave; the packages "stranger" and "welcome" can be imported, by a process that is fresh."""
    file = tmp_path / "canary"
    for name, text in (("stranger", STRANGER), ("welcome", WELCOME)):
        (tmp_path / f"{name}.py").write_text(text.format(canary=str(file)) if name == "stranger" else text)
    monkeypatch.syspath_prepend(tmp_path)
    fresh = set[str]()
    for module in (errors, trust):
        monkeypatch.setattr(module, "named_here", fresh)
    monkeypatch.delenv("LIGHTNING_RL_TRUST", raising=False)
    monkeypatch.chdir(tmp_path)
    yield file
    for name in ("stranger", "welcome"):
        sys.modules.pop(name, None)
    assert not file.exists()


@pytest.fixture
def try_each(canary: Path, tmp_path: Path) -> TryEach:
    """`try_each(cases, check)`: each in a fresh process, as it were; fails with every case that is wrong."""

    def tried(cases: Iterable[Any], check: Callable[[Any], None]) -> None:
        wrong = {}
        for case in cases:
            try:
                check(case)
                assert not canary.exists(), "the payload ran"
            except (Exception, pytest.fail.Exception) as error:
                wrong[case] = error
            errors.named_here.clear()
            for name in ("stranger", "welcome"):
                sys.modules.pop(name, None)
            for left in tmp_path.iterdir():
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left)
                elif left.suffix != ".py":
                    left.unlink()
        assert not wrong

    return tried


def with_changes(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with values at dotted keys; `...` deletes one."""
    own = copy.deepcopy(dict(content))
    for key, value in changes.items():
        *path, name = key.split(".")
        inner: Any = own
        for part in path:
            if inner.get(part) is None:
                inner[part] = {}
            inner = inner[part]
        if value is ...:
            del inner[name]
        else:
            inner[name] = value
    return own


def run_directory(tmp_path: Path, base: Mapping[str, Any], changes: Mapping[str, Any]) -> Path:
    run_dir = tmp_path / "theirs"
    (run_dir / "checkpoints").mkdir(parents=True)
    torch.save(base["checkpoint"], run_dir / "checkpoints" / "last.ckpt")
    (run_dir / "config.yaml").write_text(yaml.safe_dump(with_changes(base["config"], changes)))
    return run_dir


def one_line(error: BaseException | str) -> str:
    text = str(error).strip()
    assert text and "\n" not in text and "Traceback" not in text, text
    return text


COMMAND = {"args": "touch {place}/canary", "shell": True}

PPO_PATH = "lightning_rl.policies:PPO"
NAMES_IN_POLICIES: dict[str, dict[str, Any]] = {
    "hydra": {
        "class": "hydra.utils:instantiate",
        "kwargs.config": {"_target_": "os.system", "command": "touch {place}/canary"},
    },
    "mock": {"class": "unittest.mock:MagicMock"},
    "command": {"class": "os:system"},
    "command with a dot": {"class": "os.system"},
    "popen": {"class": "subprocess:Popen", "kwargs": COMMAND},
    "eval": {"class": "builtins:eval"},
    "stranger's policy": {"class": "stranger:Evil"},
    "stranger's policy with a dot": {"class": "stranger.Evil"},
    "torch": {"class": "torch:load", "kwargs": {"f": "{place}/evil.pt", "weights_only": False}},
    "torch hub": {"class": "torch.hub:load", "kwargs": {"repo_or_dir": "{place}", "source": "local"}},
    "made": {
        "class": "lightning_rl.runs.run:instantiate",
        "kwargs": {"entry": {"_target_": "os:system"}, "key": "_target_"},
    },
    "import_object": {"class": "lightning_rl.errors:import_object", "kwargs": {"path": "stranger:Evil"}},
    "object_at": {"class": "lightning_rl.errors:object_at", "kwargs": {"path": "stranger:Evil"}},
    "gymnasium": {"class": "gymnasium:make", "kwargs": {"id": "stranger:Id-v0"}},
    "through our module": {"class": "lightning_rl.checkpoint_files:os.system"},
    "through our module's module": {"class": "lightning_rl.benchmark.sides:subprocess.Popen", "kwargs": COMMAND},
    "a class of ours that is no policy": {"class": "lightning_rl.runs.launchers:LocalLauncher"},
    "a model for a policy": {"class": "lightning_rl.models:FullyConnectedNetwork"},
    "no path": {"class": "PPO"},
    "an empty path": {"class": ""},
    "a relative path": {"class": "..stranger:Evil"},
    "a class that is not there": {"class": "lightning_rl.policies:NotThere"},
    "custom_model": {"kwargs.model.custom_model": "stranger:Evil"},
    "custom_model, a function of torch": {"kwargs.model.custom_model": "torch.hub:load"},
    "custom_action_dist": {"kwargs.model.custom_action_dist": "stranger:Evil"},
    "custom_preprocessor": {"kwargs.model.custom_preprocessor": "os.system"},
    "keywords of a model": {"kwargs.model.custom_model_config": {"layer": {"_target_": "os.system"}}},
    "exploration": {"kwargs.exploration": {"type": "stranger:Evil"}},
    "exploration that is none": {"kwargs.exploration": {"type": "lightning_rl.policies:PPO"}},
    "sub_exploration": {
        "kwargs.exploration": {"type": "curiosity", "sub_exploration": {"type": "stranger.Evil"}},
    },
    "networks of an exploration": {
        "kwargs.exploration": {"type": "rnd", "network": {"custom_model": "stranger:Evil"}},
    },
    "optimizer": {"kwargs.optimizer": "stranger:touch"},
    "optimizer, a function of torch": {"kwargs.optimizer": "torch.optim:swa_utils.update_bn"},
    "optimizer, a module of torch": {"kwargs.optimizer": "torch:load"},
    "custom loss": {"kwargs.custom_losses": ["stranger:touch"]},
    "custom loss with keywords": {"kwargs.custom_losses": [{"loss": "os:system", "command": "touch {place}/canary"}]},
    "custom loss of torch": {"kwargs.custom_losses": [{"loss": "torch:compile"}]},
    "custom loss of ours": {"kwargs.custom_losses": ["lightning_rl.errors:import_object"]},
    "partial": {"kwargs.optimizer_kwargs": {"_partial_": True, "_target_": "os.system"}},
    "target deep inside": {"kwargs.model.custom_model_config": {"a": [{"b": [{"_target_": "stranger.touch"}]}]}},
    "settings of a policy of functions": {
        "class": "lightning_rl.policies.function_policy:FromFunctions",
        "kwargs": {"config": {"optimizer": "stranger:touch"}},
    },
    **{
        f"several policies, {what}": {"class": "lightning_rl.policies:MultiAgentPolicy", "kwargs": kwargs}
        for what, kwargs in {
            "a class": {"policies": {"a": {"_target_": "stranger:Evil"}}},
            "a path for an entry": {"policies": {"a": "stranger:Evil"}},
            "a function": {"policies": {"a": {"_target_": "os:system"}}},
            "a scripted one": {"policies": {"a": {"_target_": "scripted", "function": "os:system"}}},
            "a function of ours": {
                "policies": {"a": {"_target_": "scripted", "function": "lightning_rl.errors:import_object"}}
            },
            "an optimizer": {
                "policies": {"a": {"_target_": "lightning_rl.policies:PPO", "optimizer": "stranger:Evil"}}
            },
            "a loss": {
                "policies": {"a": {"_target_": "lightning_rl.policies:PPO", "custom_losses": ["stranger:touch"]}}
            },
            "a model": {
                "policies": {"a": {"_target_": "lightning_rl.policies:PPO", "model": {"custom_model": "stranger:Evil"}}}
            },
            "the mapping": {"policies": {"a": {"_target_": "random"}}, "policy_mapping": "stranger:touch"},
        }.items()
    },
    "losses of a policy of functions": {
        "class": "lightning_rl.policies.function_policy:FromFunctions",
        "kwargs": {"config": {"custom_losses": ["stranger:touch"]}},
    },
}


def with_tree(value: Any, place: Path) -> Any:
    if isinstance(value, str):
        return value.replace(TREE, str(place))
    if isinstance(value, Mapping):
        return {key: with_tree(child, place) for key, child in value.items()}
    return [with_tree(child, place) for child in value] if isinstance(value, list) else value


def test_a_checkpoint_names_no_code(try_each: TryEach, base: dict[str, Any], tmp_path: Path) -> None:
    def check(case: str) -> None:
        spec = with_changes(base["checkpoint"]["policy"], with_tree(NAMES_IN_POLICIES[case], tmp_path))
        file = tmp_path / "theirs.ckpt"
        torch.save({**base["checkpoint"], "policy": spec}, file)
        with pytest.raises(CheckpointError) as refused:
            Policy.load(file)
        assert str(file) in one_line(refused.value)

    try_each(NAMES_IN_POLICIES, check)


def test_the_config_in_a_checkpoint_names_no_code(try_each: TryEach, base: dict[str, Any], tmp_path: Path) -> None:
    """`Algorithm.restore` builds what `Algorithm.save` wrote beside the policy's own keywords."""

    def check(case: str) -> None:
        changes = {
            key.replace("kwargs", "policy", 1) if key != "class" else "policy._target_": value
            for key, value in with_tree(NAMES_IN_POLICIES[case], tmp_path).items()
        }
        if "policy" in changes:
            changes["policy"] = {
                "_target_": "lightning_rl.policies:PPO",
                **changes.pop("policy"),
                **({"_target_": changes.pop("policy._target_")} if "policy._target_" in changes else {}),
            }
        file = tmp_path / "theirs.ckpt"
        torch.save({**base["checkpoint"], "config": with_changes(base["config"], changes)}, file)
        with pytest.raises((CheckpointError, ConfigError)) as refused:
            Algorithm.restore(file)
        one_line(refused.value)

    try_each(NAMES_IN_POLICIES, check)


BROKEN_SPECS: dict[str, dict[str, Any]] = {
    "class is no text": {"policy.class": ["lightning_rl.policies:PPO"]},
    "no class": {"policy.class": ...},
    "keywords are a list": {"policy.kwargs": ["stranger:Evil"]},
    "policy is text": {"policy": "stranger:Evil"},
    "unknown keyword": {"policy.kwargs.nonsense": 1},
    "keyword twice": {"policy.kwargs.observation_space": {"type": "Discrete"}},
    "wrong type": {"policy.kwargs.model": "stranger:Evil"},
    "space of another kind": {"policy.observation_space": {"type": "os:system"}},
    "space without shape": {"policy.observation_space": {"type": "Box"}},
    "space of objects": {
        "policy.observation_space": {"type": "Box", "shape": [2], "dtype": "O", "low": 0, "high": 1},
    },
    "space larger than the memory": {
        "policy.observation_space": {"type": "Box", "shape": [10**9, 10**9], "dtype": "float32", "low": 0, "high": 1},
    },
    "space of negative shape": {
        "policy.observation_space": {"type": "Box", "shape": [-5], "dtype": "float32", "low": 0, "high": 1},
    },
    "no counters": {"counters": {}},
    "counters of text": {"counters": {"env_steps": "many", "iterations": 0, "gradient_steps": 0}},
    "other weights": {"state_dict": {"weight": torch.zeros(3)}},
    "weights of text": {"state_dict": "stranger:Evil"},
    "a newer schema": {"lightning_rl": {"version": "9.9.9", "schema": 99}},
    "schema of text": {"lightning_rl": {"version": "9.9.9", "schema": "one"}},
    "version instead of both": {"lightning_rl": "9.9.9"},
    "Lightning of long ago": {"pytorch-lightning_version": "1.0.0"},
    "Lightning of the future": {"pytorch-lightning_version": "9.0.0"},
    "Lightning's version is a list": {"pytorch-lightning_version": ["2.6.6"]},
}


def test_an_edited_checkpoint_is_refused_in_one_line(try_each: TryEach, base: dict[str, Any], tmp_path: Path) -> None:
    def check(case: str) -> None:
        file = tmp_path / "theirs.ckpt"
        torch.save(with_changes(base["checkpoint"], BROKEN_SPECS[case]), file)
        with pytest.raises(CheckpointError) as refused:
            Policy.load(file)
        assert str(file) in one_line(refused.value)

    try_each(BROKEN_SPECS, check)


class Reduced:
    """A pickle that calls a function when it is read."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> Any:
        return self.function, self.arguments


def reducing(file: Path, base: dict[str, Any]) -> None:
    import os

    torch.save({**base["checkpoint"], "policy": Reduced(os.system, f"touch {file.parent}/canary")}, file)


def reducing_in_weights(file: Path, base: dict[str, Any]) -> None:
    import os

    torch.save({**base["checkpoint"], "state_dict": {"w": Reduced(os.system, f"touch {file.parent}/canary")}}, file)


def plain_pickle(file: Path, base: dict[str, Any]) -> None:
    import os

    file.write_bytes(pickle.dumps(Reduced(os.system, f"touch {file.parent}/canary")))


def old_format(file: Path, base: dict[str, Any]) -> None:
    import os

    payload = {"policy": Reduced(os.system, f"touch {file.parent}/canary")}
    torch.save(payload, file, _use_new_zipfile_serialization=False)


def importing(file: Path, base: dict[str, Any]) -> None:
    """The pickle opcode GLOBAL imports a module."""
    torch.save({"policy": 0}, file)
    replace_entries(file, {"data.pkl": b"cstranger\nEvil\n."})


def replace_entries(file: Path, contents: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, contents.get(Path(name).name, content))


def traversal(file: Path, base: dict[str, Any]) -> None:
    torch.save(base["checkpoint"], file)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("../../canary", b"")


def absolute(file: Path, base: dict[str, Any]) -> None:
    torch.save(base["checkpoint"], file)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(f"{file.parent}/canary", b"")


def bomb(file: Path, base: dict[str, Any]) -> None:
    """64 MB of zeros in 64 kB."""
    torch.save({"policy": 0}, file)
    replace_entries(file, {"data.pkl": bytes(64 * 2**20)}, zipfile.ZIP_DEFLATED)


def deep(file: Path, base: dict[str, Any]) -> None:
    value: Any = 0
    for _ in range(200):
        value = [value]
    torch.save(with_changes(base["checkpoint"], {"policy.kwargs.model.custom_model_config": {"a": value}}), file)


def very_deep(file: Path, base: dict[str, Any]) -> None:
    """100,000 lists in each other, which torch.save itself could not write."""
    torch.save({"policy": 0}, file)
    replace_entries(file, {"data.pkl": b"\x80\x02" + b"]" * 10**5 + b"a" * (10**5 - 1) + b"."})


def endless(file: Path, base: dict[str, Any]) -> None:
    value: list[Any] = []
    value.append(value)
    torch.save({**base["checkpoint"], "counters": value}, file)


def doubling(file: Path, base: dict[str, Any]) -> None:
    """40 lists, each of which holds the one before twice: a billion entries for whatever walks them."""
    value: list[Any] = []
    for _ in range(40):
        value = [value, value]
    torch.save({**base["checkpoint"], "counters": value}, file)


def link_to_text(file: Path, base: dict[str, Any]) -> None:
    file.symlink_to("/etc/passwd")


def link_to_nothing(file: Path, base: dict[str, Any]) -> None:
    file.symlink_to(file.with_name("missing"))


def link_to_hostile(file: Path, base: dict[str, Any]) -> None:
    other = file.with_name("other.ckpt")
    reducing(other, base)
    file.symlink_to(other)


def a_directory(file: Path, base: dict[str, Any]) -> None:
    file.mkdir()


def an_endless_device(file: Path, base: dict[str, Any]) -> None:
    file.symlink_to("/dev/zero")


FILES = [
    *(reducing, reducing_in_weights, plain_pickle, old_format, importing, traversal, absolute, bomb, deep),
    *(very_deep, endless, doubling, link_to_text, link_to_nothing, link_to_hostile, a_directory, an_endless_device),
]


def test_a_hostile_file_is_refused(try_each: TryEach, base: dict[str, Any], tmp_path: Path) -> None:
    def check(case: tuple[Callable[..., None], str]) -> None:
        make, verb = case
        file = tmp_path / "theirs.ckpt"
        make(file, base)
        verbs: dict[str, Callable[[], Any]] = {
            "load": lambda: Policy.load(file),
            "restore": lambda: Algorithm.restore(file),
            "evaluate": lambda: evaluate(file, env="CartPole-v1", episodes=1),
        }
        with pytest.raises(CheckpointError) as refused:
            verbs[verb]()
        assert "theirs.ckpt" in one_line(refused.value)

    try_each(product(FILES, ("load", "restore", "evaluate")), check)


HOSTILE_ENVS: dict[str, dict[str, Any]] = {
    "popen": {"env.id": "subprocess:Popen", "env.kwargs": COMMAND},
    "command": {"env.id": "os:system", "env.kwargs": {"command": "touch {place}/canary"}},
    "stranger's class": {"env.id": "stranger:Env"},
    "stranger's nested class": {"env.id": "stranger:Outer.Env"},
    "stranger's function": {"env.id": "stranger:touch"},
    "stranger's id": {"env.id": "stranger:CartPole-v1"},
    "stranger's module": {"env.id": "stranger.envs"},
    "our function with dots": {"env.id": "lightning_rl.errors.import_object", "env.kwargs": {"path": "stranger:Evil"}},
    "our module": {"env.id": "lightning_rl.envs.creator"},
    "our function": {
        "env.id": "lightning_rl.runs.run:instantiate",
        "env.kwargs": {"entry": "os:system", "key": "_target_"},
    },
    "our class that is no environment": {"env.id": "lightning_rl.runs.launchers:RayTrainLauncher"},
    "gymnasium.make": {"env.id": "gymnasium:make", "env.kwargs": {"id": "stranger:Id-v0"}},
    "an id that relays": {
        "env.id": "GymV26Environment-v0",
        "env.kwargs": {"env_id": "stranger:Id-v0", "make_kwargs": {}},
    },
    "an id that relays, without its version": {
        "env.id": "GymV26Environment",
        "env.kwargs": {"env_id": "stranger:Id-v0"},
    },
    "an id that relays, behind a module of ours": {
        "env.id": "lightning_rl.envs.toy_tasks:GymV26Environment-v0",
        "env.kwargs": {"env_id": "stranger:Id-v0"},
    },
    "an older id that relays": {"env.id": "GymV21Environment-v0", "env.kwargs": {"env_id": "stranger:Id-v0"}},
    "wrapper": {"env.wrappers": ["stranger:touch"]},
    "wrapper with keywords": {"env.wrappers": [{"wrapper": "os:system", "command": "touch {place}/canary"}]},
    "wrapper in a wrapper": {"env.wrappers": [{"wrapper": {"wrapper": {"wrapper": "stranger:touch"}}}]},
    "wrapper, a function of ours": {"env.wrappers": ["lightning_rl.errors:import_object"]},
    "wrapper, a function of Gymnasium": {"env.wrappers": ["gymnasium.wrappers:vector.gym.make"]},
    "wrapper, a module's module": {"env.wrappers": ["gymnasium.wrappers.rendering:os.system"]},
    "target in the keywords": {"env.kwargs": {"lap": {"_target_": "os.system"}}},
    "wrapper that writes elsewhere": {
        "env.wrappers": [{"wrapper": "gymnasium.wrappers:RecordVideo", "video_folder": "{place}/canary"}],
    },
    "evaluation's wrapper that writes elsewhere": {
        "evaluation.env": {
            "id": "CartPole-v1",
            "wrappers": [{"wrapper": "gymnasium.wrappers:RecordVideo", "video_folder": "../canary"}],
        },
    },
    "evaluation's environment": {"evaluation.env": {"id": "subprocess:Popen", "kwargs": COMMAND}},
    "evaluation's wrapper": {"evaluation.env": {"id": "CartPole-v1", "wrappers": ["stranger:touch"]}},
}
HOSTILE_CONFIGS: dict[str, dict[str, Any]] = {
    **HOSTILE_ENVS,
    "policy": {"policy._target_": "stranger:Evil"},
    "policy that is a function": {"policy._target_": "lightning_rl.runs.run:instantiate"},
    "custom_model of the policy": {"policy.model.custom_model": "stranger:Evil"},
    "custom_model": {"model.custom_model": "stranger:Evil"},
    "custom_action_dist": {"model.custom_action_dist": "stranger.Evil"},
    "exploration": {"exploration.type": "stranger:Evil"},
    "exploration of the policy": {"policy.exploration.type": "stranger:Evil"},
    "optimizer": {"policy.optimizer": "torch.hub:load"},
    "custom loss": {"policy.custom_losses": [{"loss": "stranger:touch"}]},
    "data": {"data._target_": "stranger:touch"},
    "data that is none": {"data._target_": "lightning_rl.policies:PPO"},
    "dataset": {"data.dataset": "os:system"},
    "dataset that is a function": {"data.dataset": "lightning_rl.data.plans:record_times"},
    "plan": {"data.plan": "stranger:touch"},
    "plan of ours": {"data.plan": "lightning_rl.data.plans:for_each"},
    "compute_reward": {"data.compute_reward": "stranger:touch"},
    "launcher": {"launcher._target_": "stranger:touch"},
    "launcher, a function of ours": {
        "launcher._target_": "lightning_rl.runs.run:record_outcome",
        "launcher.run_dir": "{place}",
    },
    "launcher's cluster": {
        "launcher": {"_target_": "lightning_rl.runs.launchers:RayTrainLauncher", "address": "192.0.2.1:6379"},
    },
    "logger": {"logger.mine": {"_target_": "os.system", "command": "touch {place}/canary"}},
    "logger as text": {"logger.mine": "stranger:touch"},
    "logger under a dotted name": {"logger": {"mine.own": "stranger:touch"}},
    "logger of Hydra": {"logger.mine": {"_target_": "hydra.utils.call", "config": {"_target_": "os.system"}}},
    "logger of another package": {"logger.mine": {"_target_": "lightning.pytorch.loggers.MLFlowLogger"}},
    "settings of Weights & Biases": {
        "logger.mine": {"_target_": "lightning.pytorch.loggers.WandbLogger", "settings": {"_executable": "touch"}},
    },
    "entity of Weights & Biases": {
        "logger.mine": {"_target_": "lightning.pytorch.loggers.wandb:WandbLogger", "entity": "them"},
    },
    "settings of Weights & Biases in our logger": {
        "logger.mine": {"_target_": "lightning_rl.callbacks.WandbLogger", "settings": {"x": 1}},
    },
    "Weights & Biases by another name": {
        "logger.mine": {
            "_target_": "lightning_rl.callbacks.experiment_trackers:LightningWandbLogger",
            "settings": {"_executable": "touch"},
        },
    },
    "MLflow's server": {
        "logger.mine": {
            "_target_": "lightning_rl.callbacks.MLFlowLogger",
            "tracking_uri": "http://192.0.2.1:5000",
        },
    },
    "MLflow's server by a name": {
        "logger.mine": {
            "_target_": "lightning_rl.callbacks.MLFlowLogger",
            "tracking_uri": "databricks",
        },
    },
    "MLflow's files": {
        "logger.mine": {
            "_target_": "lightning_rl.callbacks.MLFlowLogger",
            "artifact_location": "canary",
        },
    },
    "MLflow elsewhere": {
        "logger.mine": {"_target_": "lightning_rl.callbacks.MLFlowLogger", "directory": "{place}"},
    },
    "logger in a logger": {"logger.csv.path": {"_target_": "stranger.touch"}},
    "logger elsewhere": {"logger.csv.path": "{place}/canary"},
    "logger at home": {"logger.csv.path": "~/.profile"},
    "logger in the working directory": {"logger.csv.path": "canary"},
    "Lightning's logger elsewhere": {
        "logger.mine": {"_target_": "lightning.pytorch.loggers.CSVLogger", "save_dir": "{place}", "name": "canary"},
    },
    "torch's load": {
        "logger.mine": {"_target_": "torch.load", "f": "{place}/evil.pt", "weights_only": False},
    },
    "callback": {"callbacks": ["stranger:touch"]},
    "callback, a class that is none": {"callbacks": ["subprocess:Popen"]},
    "callback with keywords": {"callbacks": [{"callback": "os:system", "command": "touch {place}/canary"}]},
    "callback as target": {"callbacks": [{"_target_": "os:system", "command": "touch {place}/canary"}]},
    "callback, a function of ours": {"callbacks": ["lightning_rl.callbacks.checkpoint_io:remove_staging"]},
    "callback elsewhere": {
        "callbacks": [{"callback": "lightning.pytorch.callbacks:ModelCheckpoint", "dirpath": "{place}/canary"}],
    },
    "callback whose file name reads a docstring": {
        "callbacks": [
            {"callback": "lightning.pytorch.callbacks:ModelCheckpoint", "filename": "{step].__doc__[15}canary"}
        ],
    },
    "callback whose file name reads an attribute": {
        "callbacks": [{"callback": "lightning.pytorch.callbacks:ModelCheckpoint", "filename": "{step.__doc__}"}],
    },
    "callback whose file name fills with dots": {
        "callbacks": [{"callback": "lightning.pytorch.callbacks:ModelCheckpoint", "filename": "{step:.^3}/canary"}],
    },
    "callback whose file name makes characters of numbers": {
        "callbacks": [{"callback": "lightning.pytorch.callbacks:ModelCheckpoint", "filename": "..{epoch:c}canary"}],
    },
    "target in the trainer": {"trainer.strategy": {"_target_": "os.system"}},
    "Ray's runtime environment": {
        "workers.ray": {"runtime_env": {"worker_process_setup_hook": "stranger.touch"}},
        "workers.num_workers": 1,
    },
    "Ray's cluster": {"workers.ray": {"address": "192.0.2.1:6379"}, "workers.num_workers": 1},
    "Ray's system": {"workers.ray": {"_system_config": {"object_spilling_config": "x"}}},
}


def first_key(case: str) -> str:
    """How the key that the refusal names begins."""
    return next(iter(HOSTILE_CONFIGS[case]))


def test_resume_runs_nothing_that_a_config_names(
    try_each: TryEach, base: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(case: str) -> None:
        run_dir = run_directory(tmp_path, base, with_tree(HOSTILE_CONFIGS[case], tmp_path))
        assert main(["resume", str(run_dir)]) == 2
        output = capsys.readouterr()
        assert output.out == f"lightning_rl {__version__}: resume {run_dir}\n"
        assert f"{run_dir / 'config.yaml'}: {first_key(case)}" in one_line(output.err)

    try_each(HOSTILE_CONFIGS, check)


def test_evaluate_runs_nothing_that_a_config_names(
    try_each: TryEach, base: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(case: str) -> None:
        run_dir = run_directory(tmp_path, base, with_tree(HOSTILE_ENVS[case], tmp_path))
        assert main(["evaluate", str(run_dir), "--episodes", "1"]) == 2
        assert f"{run_dir / 'config.yaml'}: {first_key(case)}" in one_line(capsys.readouterr().err)

    try_each(HOSTILE_ENVS, check)


def test_evaluate_runs_nothing_that_the_config_in_a_checkpoint_names(
    try_each: TryEach, base: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint in no run directory is played in the environment of the config inside it."""

    def check(case: str) -> None:
        file = tmp_path / "theirs" / "last.ckpt"
        file.parent.mkdir()
        config = with_changes(base["config"], with_tree(HOSTILE_ENVS[case], tmp_path))
        torch.save({**base["checkpoint"], "config": config}, file)
        assert main(["evaluate", str(file), "--episodes", "1"]) == 2
        assert f"{file}: {first_key(case)}" in one_line(capsys.readouterr().err)

    try_each(HOSTILE_ENVS, check)


@pytest.mark.parametrize(
    "changes", [{"evaluation": torch.zeros(2)}, {"env": torch.zeros(2)}, {"env": None}, {"run_dir": 3}]
)
def test_a_config_in_a_checkpoint_that_names_no_environment_is_refused(
    changes: dict[str, Any], base: dict[str, Any], tmp_path: Path
) -> None:
    """A tensor in the place of a section of no use to an evaluation is as good as none."""
    torch.save({**base["checkpoint"], "config": {**base["config"], **changes}}, tmp_path / "theirs.ckpt")
    if "evaluation" in changes:
        assert evaluate(tmp_path / "theirs.ckpt", episodes=1)["episodes"] == 1
    else:
        with pytest.raises(ConfigError, match="--env ID") as refused:
            evaluate(tmp_path / "theirs.ckpt", episodes=1)
        one_line(refused.value)


def test_wrappers_of_a_config_in_a_checkpoint_write_beside_it_only(base: dict[str, Any], tmp_path: Path) -> None:
    wrapper = {"wrapper": "gymnasium.wrappers:RecordVideo", "video_folder": str(tmp_path / "elsewhere")}
    config = with_changes(base["config"], {"env.wrappers": [wrapper]})
    torch.save({**base["checkpoint"], "config": config}, tmp_path / "theirs.ckpt")
    with pytest.raises(ConfigError, match=r"env.wrappers.*video_folder"):
        evaluate(tmp_path / "theirs.ckpt", episodes=1)
    assert not (tmp_path / "elsewhere").exists()


def test_restore_runs_nothing_that_a_config_names(try_each: TryEach, base: dict[str, Any], tmp_path: Path) -> None:
    """The run of a checkpoint that lies by itself may write beside it only; here it has no logger but the payload's."""

    def check(case: str) -> None:
        config = with_changes({**base["config"], "logger": {}}, with_tree(HOSTILE_CONFIGS[case], tmp_path))
        if set(config["logger"]) == {"csv"}:
            config["logger"]["csv"]["_target_"] = "lightning_rl.callbacks.CSVLogger"
        file = tmp_path / "theirs" / "last.ckpt"
        file.parent.mkdir()
        torch.save({**base["checkpoint"], "config": config}, file)
        with pytest.raises(CheckpointError) as refused:
            Algorithm.restore(file)
        assert f"checkpoint {file}: {first_key(case)}" in one_line(refused.value)

    try_each(HOSTILE_CONFIGS, check)


TEXTS: dict[str, str] = {
    "a Python object": "!!python/object/apply:os.system ['touch {place}/canary']",
    "a Python object inside": "run_dir: x\nenv: !!python/object/new:subprocess.Popen [[touch, '{place}/canary']]",
    "a Python name": "run_dir: x\npolicy: {{_target_: !!python/name:os.system }}",
    "an import": "run_dir: !!python/module:stranger",
    "a tag of its own": "run_dir: !stranger x",
    "aliases of aliases": "run_dir: x\na0: &a0 [1]\n"
    + "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)),
    "merges of merges": "run_dir: x\na0: &a0 {{k: 1}}\n"
    + "\n".join(f"a{i}: &a{i} {{{{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}}}" for i in range(1, 12)),
    "an endless list": "run_dir: x\na: &a [*a]",
    "deep": "run_dir: x\na: " + "[" * 500 + "]" * 500,
    "long": "run_dir: x\na: [" + "1," * 2**19 + "]",
    "a list": "[1, 2]",
    "a text": "stranger",
    "nothing": "",
    "no run_dir": "seed: 1",
    "run_dir of a list": "run_dir: [x]",
    "half a file": "run_dir: x\nenv: {{id:",
    "bytes": "\x00\x01\x02",
}


def test_a_malformed_config_is_refused(
    try_each: TryEach, base: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(case: tuple[str, str]) -> None:
        text, verb = case
        run_dir = run_directory(tmp_path, base, {})
        (run_dir / "config.yaml").write_text(TEXTS[text].format(place=tmp_path))
        assert main([verb, str(run_dir)]) == 2
        assert str(run_dir / "config.yaml") in one_line(capsys.readouterr().err)

    try_each(product(TEXTS, ("resume", "evaluate")), check)


LINES: dict[str, Any] = {
    "objects": {"type": "SampleBatch", "obs": {"dtype": "O", "shape": [1], "base64": "AAAAAAAAAAA="}},
    "listed objects": {"type": "SampleBatch", "obs": {"dtype": "O", "shape": [1], "values": [{"a": 1}]}},
    "a name for a type": {"type": "SampleBatch", "obs": {"dtype": "stranger:Evil", "shape": [1], "values": [1]}},
    "another type": {"type": "stranger:Evil"},
    "a shape that is not the bytes'": {
        "type": "SampleBatch",
        "obs": {"dtype": "float32", "shape": [10**12], "base64": "AAAA"},
    },
}


def test_offline_data_is_data(try_each: TryEach, tmp_path: Path) -> None:
    def check(case: str) -> None:
        (tmp_path / "data.json").write_text(json.dumps(LINES[case]) + "\n")
        with pytest.raises(ConfigError) as refused:
            JsonReader(tmp_path / "data.json").next()
        one_line(refused.value)

    try_each(LINES, check)


def test_a_deep_line_of_offline_data_is_refused(canary: Path, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"type": "SampleBatch", "obs": ' + "[" * 10**5 + "]" * 10**5 + "}\n")
    with pytest.raises(ConfigError) as refused:
        JsonReader(tmp_path / "data.json").next()
    one_line(refused.value)


# -- what is trusted --------------------------------------------------------------------------------------------------
@pytest.fixture
def welcome(base: dict[str, Any], canary: Path, tmp_path: Path) -> Path:
    """A checkpoint whose policy is the user's own, of the package "welcome"."""
    spec = with_changes(
        base["checkpoint"]["policy"], {"class": "welcome:Mine", "kwargs.custom_losses": ["welcome:nothing"]}
    )
    file = tmp_path / "mine.ckpt"
    torch.save({**base["checkpoint"], "policy": spec}, file)
    return file


def test_a_policy_of_one_s_own_is_loaded_where_its_package_is_trusted(
    welcome: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal names the ways: an argument, an environment variable, an option, or the class itself."""
    with pytest.raises(CheckpointError) as refused:
        Policy.load(welcome)
    assert one_line(refused.value) == (
        f"checkpoint {welcome}: policy.custom_losses.0='welcome:nothing' names code that you have not trusted; if you "
        "trust who wrote it: --trust welcome, LIGHTNING_RL_TRUST=welcome or Policy.load(…, trust=['welcome'])"
    )
    assert type(Policy.load(welcome, trust=["welcome"])).__name__ == "Mine"
    assert type(Policy.load(welcome, trust="welcome")).__name__ == "Mine"
    mine = sys.modules["welcome"].Mine
    assert type(Policy.load(welcome, mine)) is mine
    assert main(["evaluate", str(welcome), "--env", "CartPole-v1", "--episodes", "1", "--trust", "welcome"]) == 0
    monkeypatch.setenv("LIGHTNING_RL_TRUST", "others, welcome")
    assert type(Policy.load(welcome)) is mine


def test_objects_passed_in_python_are_trusted_and_names_in_files_are_not(
    base: dict[str, Any], welcome: Path, canary: Path, tmp_path: Path
) -> None:
    file = tmp_path / "plain.ckpt"
    torch.save(base["checkpoint"], file)
    with pytest.raises(CheckpointError, match=r"policy\.custom_losses\.0='welcome:nothing'"):
        Policy.load(welcome, policy_class=PPO)
    losses = ["welcome:nothing"]
    assert PPO.load_from_checkpoint(file, custom_losses=losses).spec()["kwargs"]["custom_losses"] == losses


def test_a_refusal_does_not_offer_another_file_of_the_run(
    welcome: Path, base: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = run_directory(tmp_path, base, {})
    welcome.rename(run_dir / "checkpoints" / "best_000000100_5.00.ckpt")
    assert main(["evaluate", str(run_dir), "--best"]) == 2
    assert one_line(capsys.readouterr().err).endswith("Policy.load(…, trust=['welcome'])")


@pytest.mark.parametrize("trust", ["welcom", "welcome_too", "welcome.Mine2", "elcome", "Mine", "*"])
def test_a_prefix_is_made_of_whole_names(trust: str, welcome: Path) -> None:
    with pytest.raises(CheckpointError, match="not trusted"):
        Policy.load(welcome, trust=[trust])


@pytest.mark.parametrize("trust", ["os", "subprocess", "builtins", "importlib.util"])
def test_the_standard_library_cannot_be_trusted(trust: str, welcome: Path) -> None:
    with pytest.raises(ConfigError, match="policy"):
        Policy.load(welcome, trust=[trust])


@pytest.mark.parametrize(
    "changes",
    [
        {"env.id": "welcome:system", "env.kwargs": {"command": "touch {place}/canary"}},
        {"env.id": "welcome:subprocess.Popen", "env.kwargs": COMMAND},
        {"env.wrappers": ["welcome:system"]},
        {"env.wrappers": ["welcome:gymnasium.make"]},
        {"env.wrappers": ["welcome:Mine"]},
    ],
    ids=str,
)
def test_trusting_a_package_does_not_trust_its_imports(
    changes: dict[str, Any], base: dict[str, Any], canary: Path, tmp_path: Path
) -> None:
    run_dir = run_directory(tmp_path, base, with_tree(changes, tmp_path))
    with pytest.raises((ConfigError, EnvError)):
        evaluate(run_dir, trust=["welcome"])


@pytest.mark.parametrize("name", ["welcome:make", "welcome:Env"])
def test_an_environment_of_one_s_own_is_played_where_its_package_is_trusted(
    name: str, base: dict[str, Any], canary: Path, tmp_path: Path
) -> None:
    run_dir = run_directory(tmp_path, base, {"env.id": name})
    with pytest.raises(ConfigError, match="--trust welcome"):
        evaluate(run_dir)
    assert evaluate(run_dir, trust=["welcome"], episodes=1)["length_mean"] > 0
    assert evaluate(run_dir, env=name, episodes=1)["length_mean"] > 0, "typed by the user"


def test_files_may_name_paths_that_the_process_has_used_itself(canary: Path, tmp_path: Path) -> None:
    package = importlib.import_module("welcome")

    own = Algorithm(package.Mine, "CartPole-v1", overrides=[f"run_dir={tmp_path}/own", "model.fcnet_hiddens=[4]"])
    path = own.save()
    own.stop()
    restored = Algorithm.restore(path)
    restored.stop()
    assert type(Policy.load(path)) is type(restored.policy) is package.Mine


def test_a_run_reports_the_packages_that_its_files_need() -> None:
    config = compose_config(["policy=ppo", "env.id=my_pkg.envs:Maze", "policy.custom_losses=[other.losses:symmetry]"])
    assert packages_to_trust(config) == ["my_pkg", "other"]
    assert packages_to_trust(compose_config(["policy=ppo", "env.id=Taxi-v3"])) == []


def test_the_package_s_own_configs_name_nothing_that_is_not_trusted() -> None:
    for overrides in (
        ["policy=dqn"],
        ["policy=es"],
        ["policy=ppo", "env=repeat_after_me", "model=lstm"],
        ["policy=sac", "env=pendulum"],
        ["policy=impala", "workers.num_workers=2"],
        ["policy=apex"],
        ["policy=ppo", "env=breakout"],
        ["launcher=ray_train", "launcher.address=local", "exploration=curiosity"],
        ["policy=ppo", "logger=wandb"],
        ["policy=ppo", "logger=mlflow"],
        ["policy=ppo", "callbacks=[lightning.pytorch.callbacks:LearningRateMonitor]"],
    ):
        config = compose_config(overrides)
        FileTrust("config.yaml", write_to=config["run_dir"]).check(config)


def test_names_at_unknown_keys_are_refused_at_their_import(canary: Path) -> None:
    """The second check, for a class that resolves a name where the first check sees a text."""
    with pytest.raises(ConfigError, match="stranger"), FileTrust("config.yaml").restrict_imports():
        errors.import_object("stranger:Evil")
    with pytest.raises(ConfigError, match="stranger"), FileTrust("config.yaml").restrict_imports():
        EnvCreator("stranger:Id-v0").make_single()
    with FileTrust("config.yaml", ["welcome"]).restrict_imports():
        errors.import_object("welcome:Mine")


def test_a_checkpoint_names_no_file_that_is_deleted(canary: Path, tmp_path: Path) -> None:
    """Superfluous best files are deleted, and a checkpoint lists the best files."""
    mine = tmp_path / "mine.txt"
    mine.touch()
    for name in (str(mine), "../mine.txt", "best_000000001_1.00.ckpt/../../mine.txt"):
        with pytest.raises(CheckpointError, match="names"):
            RLCheckpoint(tmp_path / "checkpoints").load_state_dict({"best": {name: -1.0}})
    with pytest.raises(CheckpointError, match="not deleted"):
        AtomicCheckpointIO().remove_checkpoint(mine)
    assert mine.exists()


def test_a_checkpoint_deletes_no_file_of_another_run(tmp_path: Path) -> None:
    """Lightning's ModelCheckpoint deletes what its state names if the name begins with its directory."""
    own, other = (tmp_path / name / "checkpoints" for name in ("own", "other"))
    for directory in (own, other):
        directory.mkdir(parents=True)
        (directory / "last.ckpt").touch()
    (own / "link").symlink_to(other)
    through = own / ".." / ".." / "other" / "checkpoints" / "last.ckpt"
    for io, path in (
        (AtomicCheckpointIO(), through),
        (AtomicCheckpointIO([tmp_path / "own"]), through),
        (AtomicCheckpointIO([tmp_path / "own"]), other / "last.ckpt"),
        (AtomicCheckpointIO([tmp_path / "own"]), own / "link" / "last.ckpt"),
    ):
        with pytest.raises(CheckpointError, match=r"last.ckpt"):
            io.remove_checkpoint(path)
    assert (other / "last.ckpt").exists()
    AtomicCheckpointIO([tmp_path / "own"]).remove_checkpoint(own / "last.ckpt")
    assert not (own / "last.ckpt").exists()


def test_a_run_writes_checkpoints_only_below_its_directories(tmp_path: Path) -> None:
    io = AtomicCheckpointIO([tmp_path / "run"])
    for path in (tmp_path / "x.ckpt", tmp_path / "run" / "checkpoints" / ".." / ".." / "x.ckpt", Path("/x.ckpt")):
        with pytest.raises(CheckpointError, match="outside"):
            io.save_checkpoint({}, path)
    assert not (tmp_path / "x.ckpt").exists()
    io.save_checkpoint({}, tmp_path / "run" / "checkpoints" / "x.ckpt")
    io.allow(tmp_path / "archive")
    io.save_checkpoint({}, tmp_path / "archive" / "x.ckpt")


def test_checkpoints_may_be_written_to_the_directory_of_a_user_s_callback(tmp_path: Path) -> None:
    kept = {"callback": "lightning.pytorch.callbacks:ModelCheckpoint", "every_n_train_steps": 1, "save_top_k": -1}
    algorithm = Algorithm(
        "pg",
        "CartPole-v1",
        overrides=[f"run_dir={tmp_path}/run", "model.fcnet_hiddens=[4]", "workers.fragment_length=16"],
        config={"callbacks": [{**kept, "dirpath": f"{tmp_path}/kept"}]},
    )
    algorithm.train()
    algorithm.save(tmp_path / "saved" / "mine.ckpt")
    algorithm.stop()
    assert list((tmp_path / "kept").glob("*.ckpt")) and (tmp_path / "saved" / "mine.ckpt").exists()


def test_a_restored_algorithm_writes_next_to_its_checkpoint(base: dict[str, Any], canary: Path, tmp_path: Path) -> None:
    """A file names its run directory; if the file does not lie there, that directory belongs to another run."""
    elsewhere, file = tmp_path / "elsewhere", tmp_path / "downloads" / "theirs.ckpt"
    source = Algorithm(
        "pg",
        "CartPole-v1",
        overrides=[f"run_dir={elsewhere}", "model.fcnet_hiddens=[4]", "workers.fragment_length=16"],
        config={"callbacks": [{"callback": "lightning.pytorch.callbacks:ModelCheckpoint", "every_n_train_steps": 1}]},
    )
    source.save(file)
    source.stop()
    restored = Algorithm.restore(file)
    restored.train()
    saved = restored.save()
    restored.stop()
    assert not elsewhere.exists()
    assert saved == tmp_path / "downloads" / "theirs" / "checkpoints" / "last.ckpt"
    assert {path.relative_to(file.parent).parts[0] for path in file.parent.rglob("*.ckpt")} == {"theirs", "theirs.ckpt"}


def test_every_place_that_imports_a_name_is_known() -> None:
    """A new one needs a line in `PLACES` of trust.py: where files name what it imports, and what belongs there."""
    package = Path(trust.__file__).parent
    texts = {str(file.relative_to(package)): file.read_text() for file in package.rglob("*.py")}
    users = {name for name, text in texts.items() if re.search(r"(?<!def )\bimport_object\(", text)}
    assert users == {
        *("config/check.py", "config/compose.py", "config/descriptions.py", "config/policy_option.py"),
        *(
            "config/run_fractions.py",
            "data/datamodule.py",
            "replay/hindsight.py",
            "exploration/catalog.py",
            "models/custom.py",
        ),
        *("policies/checkpoints.py", "learning/custom_losses.py", "learning/optimiser.py", "rllib/__init__.py"),
        *("envs/creator.py", "runs/run.py", "runs/multi_agent.py", "signatures.py"),
        *("config/policies.py", "policies/multi_agent_policy.py"),
        *("policies/policy_mapping.py", "policies/scripted_policy.py"),
        "diagnosis/fitting_policies.py",  # reads options of the package's and the user's own conf, no files of others
    }
    keywords = {
        argument.arg
        for text in texts.values()
        for argument in ast.walk(ast.parse(text))
        if isinstance(argument, ast.arg) and argument.annotation and "ImportPath" in ast.unparse(argument.annotation)
    }
    assert keywords == {"dataset", "function", "plan"}
    loaders = r"\b(torch|np|numpy|pickle|joblib|dill|cloudpickle|marshal|shelve)\.(loads?|Unpickler)\("
    assert {name for name, text in texts.items() if re.search(loaders, text)} <= {
        *("checkpoint_files.py", "callbacks/checkpoint_io.py"),
        "envs/async_vector_env.py",  # what it has pickled itself
    }
    assert not {name for name, text in texts.items() if re.search(r"(?<![.\w])(eval|exec|__import__)\(", text)}


def test_a_config_of_the_time_before_the_schema_is_migrated(base: dict[str, Any], canary: Path, tmp_path: Path) -> None:
    config = with_changes(
        {**base["config"], "logger": {}}, {"evaluation.every_env_steps": ..., "evaluation.interval": 3}
    )
    config["data"]["iterations_per_epoch"] = 10
    checkpoint = {**base["checkpoint"], "config": config}
    del checkpoint["lightning_rl"]
    file = tmp_path / "old.ckpt"
    torch.save(checkpoint, file)
    content = read_checkpoint(file)
    assert content["lightning_rl"]["schema"] == 1
    assert content["config"]["evaluation"]["every_env_steps"] == "5%"
    check_config(content["config"])
