"""Files of earlier versions that name classes by old import paths load, and the trust check sees the current paths."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lightning_rl import Algorithm, Policy
from lightning_rl.checkpoint_files import migrate_checkpoint
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import CheckpointError, ConfigError, object_at
from lightning_rl.policies import PPO
from lightning_rl.renamed_paths import RENAMED_PATHS, current_path, with_current_paths
from lightning_rl.run_directory.config_file import read_config, write_config
from lightning_rl.runs.evaluation import environment
from lightning_rl.runs.run import check_same_run, resumed_config

OLD_ENV, NEW_ENV = "lightning_rl.rollouts.tasks:StatelessCartPole", "lightning_rl.envs.toy_tasks:StatelessCartPole"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A checkpoint and a config whose environment has the path of an earlier version."""
    run_dir = tmp_path_factory.mktemp("run")
    algorithm = Algorithm("ppo", NEW_ENV, overrides=["model.fcnet_hiddens=[4]", f"run_dir={run_dir}"])
    checkpoint = torch.load(algorithm.save(run_dir / "saved.ckpt"), weights_only=True)
    algorithm.stop()
    checkpoint["config"] |= {"run_dir": "elsewhere", "env": {**checkpoint["config"]["env"], "id": OLD_ENV}}
    return {"checkpoint": checkpoint, "config": checkpoint["config"]}


def write_run(directory: Path, files: Mapping[str, Any]) -> Path:
    """Write a run directory with these files; the checkpoint's path."""
    checkpoint = directory / "checkpoints" / "last.ckpt"
    checkpoint.parent.mkdir(parents=True)
    torch.save(files["checkpoint"], checkpoint)
    (directory / "config.yaml").write_text(yaml.safe_dump(files["config"]))
    return checkpoint


@pytest.mark.parametrize("old", RENAMED_PATHS)
def test_a_renamed_path_leads_to_a_module_or_class_that_exists(old: str):
    """The old module does not exist any more: else the table would hide it."""
    new = RENAMED_PATHS[old]
    if new.rpartition(".")[2][0].isupper():
        assert isinstance(object_at(new), type)
    else:
        importlib.import_module(new)
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (OLD_ENV, NEW_ENV),
        (OLD_ENV.replace(":", "."), NEW_ENV.replace(":", ".")),
        ("lightning_rl.exploration.layered:LayeredExploration", "lightning_rl.exploration.wrapper:ExplorationWrapper"),
        ("lightning_rl.run:train", "lightning_rl.runs.run:train"),
        ("lightning_rl.run_directory.lock:RunLock", "lightning_rl.run_directory.lock:RunLock"),
        ("my_pkg.lightning_rl.rollouts.tasks:Env", "my_pkg.lightning_rl.rollouts.tasks:Env"),
        ("CartPole-v1", "CartPole-v1"),
    ],
)
def test_current_path_replaces_whole_modules_and_classes_only(old: str, new: str):
    assert current_path(old) == new


def test_only_values_that_name_code_are_replaced():
    """`run_dir` is a directory, whatever its text looks like; a wrapper in the list of an environment is code."""
    content = {
        "run_dir": OLD_ENV,
        "env": {"id": OLD_ENV, "wrappers": [{"wrapper": "lightning_rl.rollouts.atari:FireReset", "key": OLD_ENV}]},
    }
    assert with_current_paths(content) == {
        "run_dir": OLD_ENV,
        "env": {"id": NEW_ENV, "wrappers": [{"wrapper": "lightning_rl.envs.atari:FireReset", "key": OLD_ENV}]},
    }


def test_an_algorithm_is_restored_from_a_checkpoint_with_an_old_path(files: dict[str, Any], tmp_path: Path):
    algorithm = Algorithm.restore(write_run(tmp_path / "run", files))
    try:
        assert algorithm.config["env"]["id"] == NEW_ENV
    finally:
        algorithm.stop()


def test_a_policy_loads_from_a_checkpoint_with_old_paths(
    files: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The class of the policy and a name in its keywords, as if both had been renamed."""
    monkeypatch.setitem(RENAMED_PATHS, "lightning_rl.agents.ppo", "lightning_rl.policies.ppo")
    monkeypatch.setitem(RENAMED_PATHS, "lightning_rl.noise.Uniform", "lightning_rl.exploration.random.Random")
    checkpoint = copy.deepcopy(files["checkpoint"])
    checkpoint["policy"]["class"] = "lightning_rl.agents.ppo:PPO"
    checkpoint["policy"]["kwargs"]["exploration"] = {"type": "lightning_rl.noise:Uniform"}
    policy = Policy.load(write_run(tmp_path / "run", {**files, "checkpoint": checkpoint}))
    assert (type(policy), type(policy.exploration).__name__) == (PPO, "Random")


def test_a_run_with_an_old_path_is_evaluated_and_resumed_with_the_current_one(files: dict[str, Any], tmp_path: Path):
    """Neither its config nor its history changes."""
    checkpoint = write_run(tmp_path, files)
    before = (tmp_path / "config.yaml").read_text()
    config = resumed_config(tmp_path, {})
    assert read_config(tmp_path)["env"]["id"] == config["env"]["id"] == NEW_ENV
    observation_space, _ = EnvCreator(**environment(checkpoint, None)[0]).spaces()
    assert observation_space.shape == (2,)
    check_same_run(config, checkpoint)
    write_config({**config, "run_dir": "elsewhere"}, tmp_path)
    assert (tmp_path / "config.yaml").read_text() == before
    assert not (tmp_path / "config_history.yaml").exists()


@pytest.mark.parametrize("new", ["subprocess:Popen", "stranger:Env", "lightning_rl.runs.launchers:LocalLauncher"])
def test_the_trust_check_applies_to_the_current_path(
    new: str, files: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A class of the standard library, one of another package, and one of this package that is no environment."""
    monkeypatch.setitem(RENAMED_PATHS, "lightning_rl.rollouts.tasks.StatelessCartPole", new.replace(":", "."))
    checkpoint = write_run(tmp_path, files)
    with pytest.raises(ConfigError, match=new.rpartition(":")[2]):
        resumed_config(tmp_path, {})
    with pytest.raises(CheckpointError, match=new.rpartition(":")[2]):
        Algorithm.restore(checkpoint)


@pytest.mark.parametrize("policy", [None, "text", {"class": 3, "kwargs": "text"}, {"kwargs": {"model": [OLD_ENV]}}])
def test_damaged_descriptions_of_policies_pass_through(policy: Any):
    checkpoint = {"policy": policy, "config": "text", "lightning_rl": {"version": "0.1.0", "schema": 1}}
    assert migrate_checkpoint(copy.deepcopy(checkpoint), "x.ckpt")["policy"] == policy
