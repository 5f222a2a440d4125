"""Files from others are data: what they name is not imported, not called, and refused in one line.

Every payload here would leave a canary (a file), by a command or because its module was imported.
"""

from __future__ import annotations

import ast
import base64
import copy
import importlib
import json
import os
import pickle
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pytest
import torch
import yaml

from lightning_rl import Algorithm, Policy, errors
from lightning_rl.callbacks import AtomicCheckpointIO, RLCheckpoint
from lightning_rl.cli import main
from lightning_rl.config.compose import compose_config
from lightning_rl.data.offline import JsonReader
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import CheckpointError, ConfigError, EnvError
from lightning_rl.policies import PPO
from lightning_rl.runs.evaluation import evaluate
from lightning_rl.schema import trust
from lightning_rl.schema.trust import FileTrust
from lightning_rl.version import __version__
from tests.envs.classic_control import CARTPOLE

Attack = dict[str, Any]  # dotted key of a file → what is written there
TryEach = Callable[[Iterable[Any], Callable[[Any], None]], None]
PACKAGES = {
    "stranger": """
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
""",
    "welcome": """
from os import system
import subprocess
import gymnasium
from lightning_rl import losses
from lightning_rl.policies import PPO
class Mine(PPO): pass
def make(**keywords): return gymnasium.make("CartPole-v1")
class Env(type(gymnasium.make("CartPole-v1").unwrapped)): pass
def nothing(policy, batch): return batch.rewards.sum() * 0
""",
}


def forget_packages() -> None:
    for name in PACKAGES:
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a payload would leave; both packages can be imported, by a process that is fresh."""
    file = tmp_path / "canary"
    for name, text in PACKAGES.items():
        (tmp_path / f"{name}.py").write_text(text.format(canary=str(file)))
    monkeypatch.syspath_prepend(tmp_path)
    fresh = set[str]()
    for module in (errors, trust):
        monkeypatch.setattr(module, "named_here", fresh)
    monkeypatch.delenv("LIGHTNING_RL_TRUST", raising=False)
    monkeypatch.chdir(tmp_path)
    yield file
    forget_packages()
    assert not file.exists()


@pytest.fixture
def try_each(canary: Path, tmp_path: Path) -> TryEach:
    """`try_each(cases, check)`: each in a fresh process, as it were; fails with every case that is wrong."""

    def tried(cases: Iterable[Any], check: Callable[[Any], None]) -> None:
        wrong = []
        for case in cases:
            try:
                check(case)
                assert not canary.exists(), "the payload ran"
            except (Exception, pytest.fail.Exception) as error:
                wrong.append((case, error))
            errors.named_here.clear()
            forget_packages()
            for left in tmp_path.iterdir():
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left)
                elif left.suffix != ".py":
                    left.unlink()
        assert not wrong

    return tried


def with_changes(content: Mapping[str, Any], changes: Attack) -> dict[str, Any]:
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


def with_place(value: Any, place: Path) -> Any:
    """A payload with the directory of the canary in the place of `{place}`."""
    if isinstance(value, str):
        return value.replace("{place}", str(place))
    if isinstance(value, Mapping):
        return {key: with_place(child, place) for key, child in value.items()}
    return [with_place(child, place) for child in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Theirs:
    """Writes the files of another user: a checkpoint and a config as the package writes them, but for an attack."""

    place: Path
    content: dict[str, Any]
    config: dict[str, Any]

    def checkpoint(self, attack: Attack, name: str = "theirs.ckpt") -> Path:
        (self.place / name).parent.mkdir(parents=True, exist_ok=True)
        torch.save(with_changes(self.content, with_place(attack, self.place)), self.place / name)
        return self.place / name

    def checkpoint_with_config(self, attack: Attack) -> Path:
        """One that lies by itself, with no logger but a payload's."""
        config = with_changes({**self.config, "logger": {}}, with_place(attack, self.place))
        if isinstance(config["logger"], dict) and set(config["logger"]) == {"csv"}:
            config["logger"]["csv"]["_target_"] = "lightning_rl.callbacks.CSVLogger"
        return self.checkpoint({"config": config}, "theirs/last.ckpt")

    def run(self, attack: Attack) -> Path:
        """The directory of a run."""
        run_dir = self.checkpoint({}, "theirs/checkpoints/last.ckpt").parents[1]
        (run_dir / "config.yaml").write_text(yaml.safe_dump(with_changes(self.config, with_place(attack, self.place))))
        return run_dir


@pytest.fixture(scope="module")
def contents() -> tuple[dict[str, Any], dict[str, Any]]:
    policy = PPO(*CARTPOLE.spaces(), model={"fcnet_hiddens": [4]})
    checkpoint: dict[str, Any] = {"state_dict": policy.state_dict(), "pytorch-lightning_version": "2.6.6"}
    policy.on_save_checkpoint(checkpoint)
    return checkpoint, compose_config(["policy=ppo", "env=cartpole", "model.fcnet_hiddens=[4]", "run_dir=elsewhere"])


@pytest.fixture
def theirs(tmp_path: Path, contents: tuple[dict[str, Any], dict[str, Any]]) -> Theirs:
    return Theirs(tmp_path, *contents)


def one_line(error: BaseException | str) -> str:
    text = str(error).strip()
    assert text and "\n" not in text and "Traceback" not in text, text
    return text


def refused(call: Callable[..., Any], *arguments: Any, error: Any = CheckpointError, **keywords: Any) -> str:
    """The one line of the error that a call raises."""
    with pytest.raises(error) as raised:
        call(*arguments, **keywords)
    return one_line(raised.value)


def refused_command(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """The one line with which a command ends."""
    assert main(list(map(str, arguments))) == 2
    return one_line(capsys.readouterr().err)


# -- names of code ----------------------------------------------------------------------------------------------------
def at(key: str, *values: Any) -> list[Attack]:
    """An attack with each of the values at one key."""
    return [{key: value} for value in values]


TOUCH = "touch {place}/canary"
SYSTEM = {"_target_": "os.system", "command": TOUCH}
SHELL = {"args": TOUCH, "shell": True}
EVIL_FILE = {"f": "{place}/evil.pt", "weights_only": False}
FUNCTIONS, SEVERAL = "lightning_rl.rllib.function_policy:FunctionPolicy", "lightning_rl.policies:PolicySet"
PPO_PATH = "lightning_rl.policies:PPO"

# In the entry of a checkpoint that says how to build the policy.
POLICIES: list[Attack] = [
    {"class": "hydra.utils:instantiate", "kwargs.config": SYSTEM},
    {"class": "subprocess:Popen", "kwargs": SHELL},
    {"class": "torch:load", "kwargs": EVIL_FILE},
    {"class": "torch.hub:load", "kwargs": {"repo_or_dir": "{place}", "source": "local"}},
    {"class": "lightning_rl.runs.run:instantiate", "kwargs": {"entry": {"_target_": "os:system"}, "key": "_target_"}},
    {"class": "lightning_rl.errors:import_object", "kwargs": {"path": "stranger:Evil"}},
    {"class": "lightning_rl.errors:object_at", "kwargs": {"path": "stranger:Evil"}},
    {"class": "gymnasium:make", "kwargs": {"id": "stranger:Id-v0"}},
    {"class": "lightning_rl.cli.benchmarks.sides:subprocess.Popen", "kwargs": SHELL},
    *at(
        "class", "unittest.mock:MagicMock", "os:system", "os.system", "builtins:eval", "stranger:Evil", "stranger.Evil"
    ),
    *at("class", "lightning_rl.run_directory.checkpoint_files:os.system", "lightning_rl.runs.launchers:LocalLauncher"),
    *at("class", "lightning_rl.models:FullyConnectedNetwork", "lightning_rl.policies:NotThere"),
    *at("class", "PPO", "", "..stranger:Evil"),
    *at("kwargs.model.custom_model", "stranger:Evil", "torch.hub:load"),
    *at("kwargs.model.custom_action_dist", "stranger:Evil"),
    *at("kwargs.model.custom_preprocessor", "os.system"),
    *at("kwargs.model.custom_model_config", {"layer": {"_target_": "os.system"}}),
    *at("kwargs.model.custom_model_config", {"a": [{"b": [{"_target_": "stranger.touch"}]}]}),
    *at("kwargs.exploration", {"type": "stranger:Evil"}, {"type": PPO_PATH}),
    *at("kwargs.exploration", {"type": "curiosity", "sub_exploration": {"type": "stranger.Evil"}}),
    *at("kwargs.exploration", {"type": "rnd", "network": {"custom_model": "stranger:Evil"}}),
    *at("kwargs.optimizer", "stranger:touch", "torch.optim:swa_utils.update_bn", "torch:load"),
    *at("kwargs.optimizer_kwargs", {"_partial_": True, "_target_": "os.system"}),
    *at("kwargs.custom_losses", ["stranger:touch"], [{"loss": "os:system", "command": TOUCH}]),
    *at("kwargs.custom_losses", [{"loss": "torch:compile"}], ["lightning_rl.errors:import_object"]),
    {"class": FUNCTIONS, "kwargs": {"config": {"optimizer": "stranger:touch"}}},
    {"class": FUNCTIONS, "kwargs": {"config": {"custom_losses": ["stranger:touch"]}}},
    {"class": SEVERAL, "kwargs": {"policies": {"a": {"_target_": "random"}}, "policy_mapping": "stranger:touch"}},
    *(
        {"class": SEVERAL, "kwargs": {"policies": {"a": entry}}}
        for entry in (
            *("stranger:Evil", {"_target_": "stranger:Evil"}, {"_target_": "os:system"}),
            {"_target_": "scripted", "function": "os:system"},
            {"_target_": "scripted", "function": "lightning_rl.errors:import_object"},
            {"_target_": PPO_PATH, "optimizer": "stranger:Evil"},
            {"_target_": PPO_PATH, "custom_losses": ["stranger:touch"]},
            {"_target_": PPO_PATH, "model": {"custom_model": "stranger:Evil"}},
        )
    ),
]

BOX = {"type": "Box", "shape": [2], "dtype": "float32", "low": 0, "high": 1}
BROKEN: list[Attack] = [
    *at("policy", "stranger:Evil"),
    *at("policy.class", ["lightning_rl.policies:PPO"], ...),
    *at("policy.kwargs", ["stranger:Evil"]),
    *at("policy.kwargs.nonsense", 1),
    *at("policy.kwargs.observation_space", {"type": "Discrete"}),
    *at("policy.kwargs.model", "stranger:Evil"),
    *at("policy.observation_space", {"type": "os:system"}, {"type": "Box"}, {**BOX, "dtype": "O"}),
    *at("policy.observation_space", {**BOX, "shape": [10**9, 10**9]}, {**BOX, "shape": [-5]}),
    *at("counters", {}, {"env_steps": "many", "iterations": 0, "gradient_steps": 0}),
    *at("state_dict", {"weight": torch.zeros(3)}, "stranger:Evil"),
    *at("lightning_rl", {"version": "9.9.9", "schema": 99}, {"version": "9.9.9", "schema": "one"}, "9.9.9"),
]


def test_a_checkpoint_names_no_code_and_is_whole(try_each: TryEach, theirs: Theirs) -> None:
    def check(attack: Attack) -> None:
        file = theirs.checkpoint(attack)
        assert str(file) in refused(Policy.load, file)

    try_each([*BROKEN, *({f"policy.{key}": value for key, value in attack.items()} for attack in POLICIES)], check)


def test_the_policy_of_a_config_in_a_checkpoint_names_no_code(try_each: TryEach, theirs: Theirs) -> None:
    """`Algorithm.restore` builds what `Algorithm.save` wrote beside the policy's own keywords."""

    def check(attack: Attack) -> None:
        keywords = {key.replace("kwargs", "policy", 1): value for key, value in attack.items() if key != "class"}
        config = with_place({**keywords, "policy._target_": attack.get("class", PPO_PATH)}, theirs.place)
        file = theirs.checkpoint({"config": with_changes(theirs.config, config)})
        refused(Algorithm.restore, file, error=(CheckpointError, ConfigError))

    try_each(POLICIES, check)


# -- files ------------------------------------------------------------------------------------------------------------
class Reduced:
    """A pickle that calls a function when it is read."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> Any:
        return self.function, self.arguments


def save_with_pickle(file: Path, content: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    """A checkpoint with another pickle inside."""
    torch.save({"policy": 0}, file)
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, own in entries.items():
            archive.writestr(name, content if Path(name).name == "data.pkl" else own)


def save_with_entry(file: Path, checkpoint: dict[str, Any], name: str) -> None:
    """A checkpoint with one entry more."""
    torch.save(checkpoint, file)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, b"")


def hostile_files(theirs: Theirs) -> dict[str, Callable[[Path], object]]:
    """What writes each."""
    checkpoint, touch = theirs.content, Reduced(os.system, f"touch {theirs.place}/canary")
    deep: Any = 0
    for _ in range(200):
        deep = [deep]
    endless: list[Any] = []
    endless.append(endless)
    doubling: list[Any] = []
    for _ in range(40):  # each holds the one before twice: a billion entries for whatever walks them
        doubling = [doubling, doubling]
    very_deep = b"\x80\x02" + b"]" * 10**5 + b"a" * (10**5 - 1) + b"."  # which torch.save itself could not write

    def link_to_hostile(file: Path) -> None:
        torch.save({**checkpoint, "policy": touch}, file.with_name("other.ckpt"))
        file.symlink_to(file.with_name("other.ckpt"))

    return {
        "a call": lambda file: torch.save({**checkpoint, "policy": touch}, file),
        "a call among the weights": lambda file: torch.save({**checkpoint, "state_dict": {"w": touch}}, file),
        "a plain pickle": lambda file: file.write_bytes(pickle.dumps(touch)),
        "the old format": lambda file: torch.save({"policy": touch}, file, _use_new_zipfile_serialization=False),
        "an import": lambda file: save_with_pickle(file, b"cstranger\nEvil\n."),  # the opcode GLOBAL
        "64 MB in 64 kB": lambda file: save_with_pickle(file, bytes(64 * 2**20), zipfile.ZIP_DEFLATED),
        "100,000 lists in each other": lambda file: save_with_pickle(file, very_deep),
        "traversal": lambda file: save_with_entry(file, checkpoint, "../../canary"),
        "an absolute path": lambda file: save_with_entry(file, checkpoint, f"{file.parent}/canary"),
        "depth": lambda file: theirs.checkpoint({"policy.kwargs.model.custom_model_config": {"a": deep}}),
        "a list in itself": lambda file: torch.save({**checkpoint, "counters": endless}, file),
        "doubling": lambda file: torch.save({**checkpoint, "counters": doubling}, file),
        "a link to text": lambda file: file.symlink_to("/etc/passwd"),
        "a link to nothing": lambda file: file.symlink_to(file.with_name("missing")),
        "a link to a call": link_to_hostile,
        "a directory": lambda file: file.mkdir(),
        "an endless device": lambda file: file.symlink_to("/dev/zero"),
    }


@pytest.mark.parametrize("open_file", [Policy.load, Algorithm.restore, evaluate])
def test_a_hostile_file_is_refused(open_file: Callable[..., Any], try_each: TryEach, theirs: Theirs) -> None:
    builders = hostile_files(theirs)
    keywords = {"env": "CartPole-v1", "episodes": 1} if open_file is evaluate else {}

    def check(name: str) -> None:
        file = theirs.place / "theirs.ckpt"
        builders[name](file)
        assert "theirs.ckpt" in refused(open_file, file, **keywords)

    try_each(builders, check)


# -- configs ----------------------------------------------------------------------------------------------------------
def env(name: str, **keywords: Any) -> Attack:
    return {"env.id": name, "env.kwargs": keywords}


RECORD = {"wrapper": "gymnasium.wrappers:RecordVideo"}
HOSTILE_ENVS: list[Attack] = [
    *(env("subprocess:Popen", **SHELL), env("os:system", command=TOUCH)),
    *at("env.id", "stranger:Env", "stranger:Outer.Env", "stranger:touch", "stranger:CartPole-v1", "stranger.envs"),
    env("lightning_rl.errors.import_object", path="stranger:Evil"),
    env("lightning_rl.runs.run:instantiate", entry="os:system", key="_target_"),
    *at("env.id", "lightning_rl.envs.creator", "lightning_rl.runs.launchers:RayTrainLauncher"),
    env("gymnasium:make", id="stranger:Id-v0"),
    # Ids of Gymnasium's that relay to others.
    env("GymV26Environment-v0", env_id="stranger:Id-v0", make_kwargs={}),
    env("GymV26Environment", env_id="stranger:Id-v0"),
    env("lightning_rl.envs.toy_tasks:GymV26Environment-v0", env_id="stranger:Id-v0"),
    env("GymV21Environment-v0", env_id="stranger:Id-v0"),
    *at("env.wrappers", ["stranger:touch"], [{"wrapper": "os:system", "command": TOUCH}]),
    *at("env.wrappers", [{"wrapper": {"wrapper": {"wrapper": "stranger:touch"}}}]),
    *at("env.wrappers", ["lightning_rl.errors:import_object"], ["gymnasium.wrappers:vector.gym.make"]),
    *at("env.wrappers", ["gymnasium.wrappers.rendering:os.system"], [{**RECORD, "video_folder": "{place}/canary"}]),
    *at("env.kwargs", {"lap": {"_target_": "os.system"}}),
    *at("evaluation.env", {"id": "CartPole-v1", "wrappers": [{**RECORD, "video_folder": "../canary"}]}),
    *at("evaluation.env", {"id": "subprocess:Popen", "kwargs": SHELL}),
    *at("evaluation.env", {"id": "CartPole-v1", "wrappers": ["stranger:touch"]}),
]
WANDB, MLFLOW = "lightning.pytorch.loggers.WandbLogger", {"_target_": "lightning_rl.callbacks.MLFlowLogger"}
OUR_WANDB = "lightning_rl.callbacks.experiment_trackers:LightningWandbLogger"
KEPT = {"callback": "lightning.pytorch.callbacks:ModelCheckpoint"}
HOSTILE_CONFIGS: list[Attack] = [
    *HOSTILE_ENVS,
    *at("policy._target_", "stranger:Evil", "lightning_rl.runs.run:instantiate"),
    *at("policy.model.custom_model", "stranger:Evil"),
    *at("model.custom_model", "stranger:Evil"),
    *at("model.custom_action_dist", "stranger.Evil"),
    *at("exploration.type", "stranger:Evil"),
    *at("policy.exploration.type", "stranger:Evil"),
    *at("policy.optimizer", "torch.hub:load"),
    *at("policy.custom_losses", [{"loss": "stranger:touch"}]),
    *at("data._target_", "stranger:touch", "lightning_rl.policies:PPO"),
    *at("data.dataset", "os:system", "lightning_rl.data.plans:record_times"),
    *at("data.plan", "stranger:touch", "lightning_rl.data.plans:async_gradients"),
    *at("data.compute_reward", "stranger:touch"),
    *at("rank_launcher._target_", "stranger:touch"),
    {"rank_launcher._target_": "lightning_rl.runs.run:record_outcome", "rank_launcher.run_dir": "{place}"},
    *at("rank_launcher", {"_target_": "lightning_rl.runs.launchers:RayTrainLauncher", "address": "192.0.2.1:6379"}),
    *at("logger", {"mine.own": "stranger:touch"}),
    *at("logger.mine", SYSTEM, "stranger:touch", {"_target_": "hydra.utils.call", "config": {"_target_": "os.system"}}),
    *at("logger.mine", {"_target_": "torch.load", **EVIL_FILE}),
    *at("logger.mine", {"_target_": "lightning.pytorch.loggers.MLFlowLogger"}),
    *at("logger.mine", {"_target_": WANDB, "settings": {"_executable": "touch"}}),
    *at("logger.mine", {"_target_": "lightning.pytorch.loggers.wandb:WandbLogger", "entity": "them"}),
    *at("logger.mine", {"_target_": "lightning_rl.callbacks.WandbLogger", "settings": {"x": 1}}),
    *at("logger.mine", {"_target_": OUR_WANDB, "settings": {"_executable": "touch"}}),
    *at("logger.mine", {**MLFLOW, "tracking_uri": "http://192.0.2.1:5000"}, {**MLFLOW, "tracking_uri": "databricks"}),
    *at("logger.mine", {**MLFLOW, "artifact_location": "canary"}, {**MLFLOW, "directory": "{place}"}),
    *at("logger.mine", {"_target_": "lightning.pytorch.loggers.CSVLogger", "save_dir": "{place}", "name": "canary"}),
    *at("logger.csv.path", {"_target_": "stranger.touch"}, "{place}/canary", "~/.profile", "canary"),
    *at("callbacks", ["stranger:touch"], ["subprocess:Popen"], [{"callback": "os:system", "command": TOUCH}]),
    *at("callbacks", [{"_target_": "os:system", "command": TOUCH}]),
    *at("callbacks", ["lightning_rl.callbacks.checkpoint_io:remove_staging"], [{**KEPT, "dirpath": "{place}/canary"}]),
    # A file name is a template: it reads attributes and docstrings, fills with dots, and makes characters of numbers.
    *at("callbacks", [{**KEPT, "filename": "{step].__doc__[15}canary"}], [{**KEPT, "filename": "{step.__doc__}"}]),
    *at("callbacks", [{**KEPT, "filename": "{step:.^3}/canary"}], [{**KEPT, "filename": "..{epoch:c}canary"}]),
    *at("trainer.strategy", {"_target_": "os.system"}),
    {"workers.ray": {"runtime_env": {"worker_process_setup_hook": "stranger.touch"}}, "workers.num_workers": 1},
    {"workers.ray": {"address": "192.0.2.1:6379"}, "workers.num_workers": 1},
    *at("workers.ray", {"_system_config": {"object_spilling_config": "x"}}),
]


@pytest.mark.parametrize(("verb", "attacks"), [("resume", HOSTILE_CONFIGS), ("evaluate", HOSTILE_ENVS)])
def test_nothing_that_the_config_of_a_run_names_is_run(
    verb: str, attacks: list[Attack], try_each: TryEach, theirs: Theirs, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(attack: Attack) -> None:
        run_dir = theirs.run(attack)
        assert main([verb, str(run_dir)]) == 2
        output = capsys.readouterr()
        assert verb == "evaluate" or output.out == f"lightning_rl {__version__}: resume {run_dir}\n"
        assert f"{run_dir / 'config.yaml'}: {next(iter(attack))}" in one_line(output.err)

    try_each(attacks, check)


def test_nothing_that_the_config_in_a_checkpoint_names_is_run(
    try_each: TryEach, theirs: Theirs, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a checkpoint is played in the environment of the config inside it, and restored to write beside it only."""

    def check(attack: Attack) -> None:
        file = theirs.checkpoint_with_config(attack)
        assert f"checkpoint {file}: {next(iter(attack))}" in refused(Algorithm.restore, file)
        if attack in HOSTILE_ENVS:
            assert f"{file}: {next(iter(attack))}" in refused_command(capsys, "evaluate", file)

    try_each(HOSTILE_CONFIGS, check)


@pytest.mark.parametrize("changes", [{"env": torch.zeros(2)}, {"env": None}, {"run_dir": 3}])
def test_a_config_in_a_checkpoint_that_names_no_environment_is_refused(changes: Attack, theirs: Theirs) -> None:
    file = theirs.checkpoint({"config": {**theirs.config, **changes}})
    assert "--env ID" in refused(evaluate, file, episodes=1, error=ConfigError)


def test_a_tensor_in_the_place_of_a_section_of_no_use_to_an_evaluation_is_as_good_as_none(theirs: Theirs) -> None:
    file = theirs.checkpoint({"config": {**theirs.config, "evaluation": torch.zeros(2)}})
    assert evaluate(file, episodes=1)["episodes"] == 1


def multiplied(first: str, entry: str) -> str:
    """YAML in which each of eleven lines holds the one before ten times."""
    lines = (f"a{i}: &a{i} " + entry.format(", ".join([f"*a{i - 1}"] * 10)) for i in range(1, 12))
    return "\n".join(["run_dir: x", f"a0: &a0 {first}", *lines])


MALFORMED = [
    "!!python/object/apply:os.system ['touch {place}/canary']",
    "run_dir: x\nenv: !!python/object/new:subprocess.Popen [[touch, '{place}/canary']]",
    "run_dir: x\npolicy: {_target_: !!python/name:os.system }",
    *("run_dir: !!python/module:stranger", "run_dir: !stranger x"),
    *(multiplied("[1]", "[{}]"), multiplied("{k: 1}", "{{<<: [{}]}}")),
    *("run_dir: x\na: &a [*a]", "run_dir: x\na: " + "[" * 500 + "]" * 500, "run_dir: x\na: [" + "1," * 2**19 + "]"),
    *("[1, 2]", "stranger", "", "seed: 1", "run_dir: [x]", "run_dir: x\nenv: {id:", "\x00\x01\x02"),
]


def test_a_malformed_config_is_refused(try_each: TryEach, theirs: Theirs, capsys: pytest.CaptureFixture[str]) -> None:
    def check(case: tuple[str, str]) -> None:
        text, verb = case
        file = theirs.run({}) / "config.yaml"
        file.write_text(with_place(text, theirs.place))
        assert str(file) in refused_command(capsys, verb, file.parent)

    try_each(product(MALFORMED, ("resume", "evaluate")), check)


def test_offline_data_is_data(try_each: TryEach, tmp_path: Path) -> None:
    """Pickles that run code or hold objects, LZ4 that is cut off, other types, and a hundred thousand brackets."""

    def packed(content: bytes) -> str:
        return base64.b64encode(content).decode()

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "harm",)

    pickled = [pickle.dumps(each) for each in (Evil(), np.array([Evil()]), os.system, np.array(["text"]))]
    columns: list[Any] = [
        *(packed(lz4.frame.compress(each)) for each in pickled),
        *(packed(lz4.frame.compress(bytes(1000))[:-9]), packed(b"no LZ4"), "no base64"),
        *([{"a": 1}], {"dtype": "O"}, None),
    ]
    deep = '{"type": "SampleBatch", "obs": ' + "[" * 10**5 + "]" * 10**5 + "}"
    lines = [json.dumps({"type": "SampleBatch", "obs": column}) for column in columns]

    def check(line: str) -> None:
        (tmp_path / "data.json").write_text(f"{line}\n")
        refused(JsonReader(tmp_path / "data.json").next, error=ConfigError)

    try_each([*lines, '{"type": "stranger:Evil"}', deep], check)
    assert not (tmp_path / "harm").exists()


# -- what is trusted --------------------------------------------------------------------------------------------------
@pytest.fixture
def welcome(theirs: Theirs) -> Path:
    """A checkpoint whose policy is the user's own, of the package "welcome"."""
    own = {"policy.class": "welcome:Mine", "policy.kwargs.custom_losses": ["welcome:nothing"]}
    return theirs.checkpoint(own, "mine.ckpt")


def test_a_policy_of_one_s_own_is_loaded_where_its_package_is_trusted(
    welcome: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal names the ways: an argument, an environment variable, an option, or the class itself."""
    assert refused(Policy.load, welcome) == (
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


def test_objects_passed_in_python_are_trusted_and_names_in_files_are_not(welcome: Path, theirs: Theirs) -> None:
    assert "policy.custom_losses.0='welcome:nothing'" in refused(Policy.load, welcome, policy_class=PPO)
    losses = ["welcome:nothing"]
    found = PPO.load_from_checkpoint(theirs.checkpoint({}), custom_losses=losses)
    assert found.spec()["kwargs"]["custom_losses"] == losses


def test_a_refusal_does_not_offer_another_file_of_the_run(
    welcome: Path, theirs: Theirs, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = theirs.run({})
    welcome.rename(run_dir / "checkpoints" / "best_000000100_5.00.ckpt")
    said = refused_command(capsys, "evaluate", run_dir, "--best")
    assert said.endswith("Policy.load(…, trust=['welcome'])")


def test_a_prefix_is_made_of_whole_names_and_never_the_standard_library(welcome: Path) -> None:
    for trusted in ("welcom", "welcome_too", "welcome.Mine2", "elcome", "Mine", "*"):
        assert "not trusted" in refused(Policy.load, welcome, trust=[trusted])
    for trusted in ("os", "subprocess", "builtins", "importlib.util"):
        assert "policy" in refused(Policy.load, welcome, trust=[trusted], error=ConfigError)


def test_trusting_a_package_does_not_trust_its_imports(try_each: TryEach, theirs: Theirs) -> None:
    def check(attack: Attack) -> None:
        with pytest.raises((ConfigError, EnvError)):
            evaluate(theirs.run(attack), trust=["welcome"])

    wrappers = at("env.wrappers", ["welcome:system"], ["welcome:gymnasium.make"], ["welcome:Mine"])
    try_each([env("welcome:system", command=TOUCH), env("welcome:subprocess.Popen", **SHELL), *wrappers], check)


@pytest.mark.parametrize("name", ["welcome:make", "welcome:Env"])
def test_an_environment_of_one_s_own_is_played_where_its_package_is_trusted(name: str, theirs: Theirs) -> None:
    run_dir = theirs.run({"env.id": name})
    assert "--trust welcome" in refused(evaluate, run_dir, error=ConfigError)
    assert evaluate(run_dir, trust=["welcome"], episodes=1)["length_mean"] > 0
    assert evaluate(run_dir, env=name, episodes=1)["length_mean"] > 0, "typed by the user"


def test_files_may_name_paths_that_the_process_has_used_itself(tmp_path: Path) -> None:
    package = importlib.import_module("welcome")
    own = Algorithm(package.Mine, "CartPole-v1", overrides=[f"run_dir={tmp_path}/own", "model.fcnet_hiddens=[4]"])
    path = own.save()
    own.stop()
    restored = Algorithm.restore(path)
    restored.stop()
    assert type(Policy.load(path)) is type(restored.policy) is package.Mine


def test_the_package_s_own_configs_name_nothing_that_is_not_trusted() -> None:
    for overrides in (
        *("policy=dqn", "policy=es", "policy=apex", "policy=impala workers.num_workers=2", "policy=sac env=pendulum"),
        *("env=repeat_after_me model=lstm", "env=breakout", "logger=wandb", "logger=mlflow"),
        "rank_launcher=ray_train rank_launcher.address=local exploration=curiosity",
        "callbacks=[lightning.pytorch.callbacks:LearningRateMonitor]",
    ):
        config = compose_config(overrides.split())
        FileTrust("config.yaml", write_to=config["run_dir"]).check(config)


def test_names_at_unknown_keys_are_refused_at_their_import() -> None:
    """The second check, for a class that resolves a name where the first check sees a text."""
    for call in (lambda: errors.import_object("stranger:Evil"), EnvCreator("stranger:Id-v0").make_single):
        with pytest.raises(ConfigError, match="stranger"), FileTrust("config.yaml").restrict_imports():
            call()
    with FileTrust("config.yaml", ["welcome"]).restrict_imports():
        errors.import_object("welcome:Mine")


# -- what is written and deleted --------------------------------------------------------------------------------------
def test_a_checkpoint_names_no_file_that_is_deleted(tmp_path: Path) -> None:
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
    io = AtomicCheckpointIO([tmp_path / "own"])
    for remove, path in (
        (AtomicCheckpointIO().remove_checkpoint, through),
        *((io.remove_checkpoint, path) for path in (through, other / "last.ckpt", own / "link" / "last.ckpt")),
    ):
        with pytest.raises(CheckpointError, match=r"last.ckpt"):
            remove(path)
    assert (other / "last.ckpt").exists()
    io.remove_checkpoint(own / "last.ckpt")
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


MODEL_CHECKPOINT = {"callback": "lightning.pytorch.callbacks:ModelCheckpoint", "every_n_train_steps": 1}


def short_algorithm(run_dir: Path, **callback: Any) -> Algorithm:
    """One with Lightning's ModelCheckpoint."""
    small = [f"run_dir={run_dir}", "model.fcnet_hiddens=[4]", "workers.fragment_length=16"]
    return Algorithm("pg", "CartPole-v1", overrides=small, config={"callbacks": [{**MODEL_CHECKPOINT, **callback}]})


def test_checkpoints_may_be_written_to_the_directory_of_a_user_s_callback(tmp_path: Path) -> None:
    algorithm = short_algorithm(tmp_path / "run", save_top_k=-1, dirpath=f"{tmp_path}/kept")
    algorithm.train()
    algorithm.save(tmp_path / "saved" / "mine.ckpt")
    algorithm.stop()
    assert list((tmp_path / "kept").glob("*.ckpt")) and (tmp_path / "saved" / "mine.ckpt").exists()


def test_a_restored_algorithm_writes_next_to_its_checkpoint(tmp_path: Path) -> None:
    """A file names its run directory; if the file does not lie there, that directory belongs to another run."""
    elsewhere, file = tmp_path / "elsewhere", tmp_path / "downloads" / "theirs.ckpt"
    source = short_algorithm(elsewhere)
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
    package = Path(trust.__file__).parents[1]
    texts = {str(file.relative_to(package)): file.read_text() for file in package.rglob("*.py")}
    users = {name for name, text in texts.items() if re.search(r"(?<!def )\bimport_object\(", text)}
    assert users == {
        *("config/check.py", "config/compose.py", "config/descriptions.py", "config/policy_option.py"),
        *("config/policies.py", "config/run_fractions.py", "data/source.py"),
        *("exploration/catalog.py", "models/custom.py", "learning/custom_losses.py", "learning/policy_optimizer.py"),
        *("policies/checkpoints.py", "policies/policy_entries.py", "policies/policy_mapping.py"),
        *("policies/scripted_policy.py", "envs/creator.py", "schema/signatures.py"),
        *("runs/run.py", "runs/multi_agent.py"),
        "diagnosis/fitting_policies.py",  # reads options of the package's and the user's own conf, no files of others
    }
    keywords = {
        node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)  # of a constructor, or a dataclass's field
        for text in texts.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.arg | ast.AnnAssign)
        and node.annotation
        and "ImportPath" in ast.unparse(node.annotation)
    }
    assert keywords == {"dataset", "function", "plan"}
    loaders = r"\b(torch|np|numpy|pickle|joblib|dill|cloudpickle|marshal|shelve)\.(loads?|Unpickler)\("
    assert {name for name, text in texts.items() if re.search(loaders, text)} <= {
        *("run_directory/checkpoint_files.py", "callbacks/checkpoint_io.py"),
        "data/offline/tables.py",  # NumPy's arrays, without objects (`allow_pickle=False`)
        "envs/async_vector_env.py",  # what it has pickled itself
    }
    assert not {name for name, text in texts.items() if re.search(r"(?<![.\w])(eval|exec|__import__)\(", text)}
