"""Fine-tuning: a run that starts with the weights and filters of another, and counts from 0."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_rl.algorithm import Algorithm
from lightning_rl.config import check_config, compose_config
from lightning_rl.errors import CheckpointError
from lightning_rl.policies.checkpoints import read_checkpoint
from lightning_rl.runs import run
from lightning_rl.runs.initial_weights import load_initial_weights

SHORT = (
    *("env=cartpole", "experiment=none", "evaluation=none", "logger=none", "total_env_steps=300"),
    *("workers.fragment_length=16", "policy.minibatches=1", "policy.passes=1"),
    *("model.fcnet_hiddens=[8,8]", "trainer.enable_progress_bar=false"),
)


def config_of(run_dir: Path, *overrides: str) -> dict[str, Any]:
    config = compose_config([*SHORT, f"run_dir='{run_dir}'", *overrides])
    check_config(config)
    return config


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with an observation filter."""
    run_dir = tmp_path_factory.mktemp("first") / "run"
    run.train(config_of(run_dir, "policy.observation_filter=mean_std"))
    return run_dir


@pytest.mark.parametrize("source", ["run directory", "file"])
def test_weights_and_filters_are_those_of_the_file_and_counters_are_0(first: Path, source: str, tmp_path: Path):
    given = first if source == "run directory" else first / "checkpoints" / "last.ckpt"
    config = config_of(tmp_path / "run", "policy.observation_filter=mean_std", f"init_from='{given}'", "seed=7")
    policy, _, _ = run.build(config)
    held = read_checkpoint(first / "checkpoints" / "last.ckpt")
    assert held["state_dict"].keys() == policy.state_dict().keys()
    assert all(torch.equal(policy.state_dict()[name], value) for name, value in held["state_dict"].items())
    assert policy.state_dict()["observation_filter.moments.count"] > 0
    assert (policy.env_steps, policy.gradient_steps, policy.iterations) == (0, 0, 0) and held["counters"]["env_steps"]


def test_strictly_everything_that_differs_is_named_and_nothing_is_changed(first: Path, tmp_path: Path):
    policy, _, _ = run.build(config_of(tmp_path / "run", "model.fcnet_hiddens=[8,5]"))
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    with pytest.raises(CheckpointError) as error:
        load_initial_weights(policy, str(first), strict=True)
    assert "model.trunk.layers.1.weight [8, 8] against [5, 8]" in str(error.value)
    assert "and 7 more" in str(error.value) and "init_from_strict=false" in str(error.value)
    assert all(torch.equal(before[name], value) for name, value in policy.state_dict().items())


def test_partly_what_fits_is_taken_and_the_rest_is_named(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Another head (Acrobot has 3 actions and 6 observed numbers): only layers behind the first one fit."""
    keys = ("env.id=Acrobot-v1", "env=custom", f"init_from='{first}'", "init_from_strict=false")
    policy, _, _ = run.build(config_of(tmp_path / "run", *keys))
    held = read_checkpoint(first / "checkpoints" / "last.ckpt")["state_dict"]
    taken = [name for name, value in policy.state_dict().items() if name in held and torch.equal(held[name], value)]
    assert {"model.trunk.layers.1.weight", "model.value_trunk.layers.1.weight", "model.trunk.layers.0.bias"} <= {*taken}
    assert "model.head.linear.weight" not in taken and "model.trunk.layers.0.weight" not in taken
    line = capsys.readouterr().out.strip()
    assert line.startswith("init_from: ") and "model.trunk.layers.0.weight [8, 4] against [8, 6]" in line
    assert "\n" not in line


def test_nothing_that_fits_is_an_error(first: Path, tmp_path: Path):
    with pytest.raises(CheckpointError, match="nothing fits"):
        config = compose_config(["policy=dqn", *SHORT[:5], SHORT[-1], f"init_from='{first}'", "init_from_strict=false"])
        check_config(config)
        run.build(config)


@pytest.mark.parametrize("source", ["nowhere.ckpt", "", " ", "a\nb", "a\0b", 5_000 * "x"], ids=repr)
def test_a_path_without_a_checkpoint_is_refused_in_one_line_that_names_the_key(source: str, tmp_path: Path):
    config = {**config_of(tmp_path / "run"), "init_from": source}
    with pytest.raises(CheckpointError, match=r"^init_from='.*(no such file|no path)[^\n]*$") as error:
        run.build(config)
    assert len(str(error.value)) < 400


def test_another_algorithm_with_the_same_network_takes_it(first: Path, tmp_path: Path):
    keys = ("policy=a2c", f"init_from='{first}'", "policy.observation_filter=mean_std", "init_from_strict=false")
    config = compose_config([*(key for key in SHORT if not key.startswith("policy.")), *keys])
    check_config(config)
    policy, _, _ = run.build({**config, "run_dir": str(tmp_path / "run")})
    held = read_checkpoint(first / "checkpoints" / "last.ckpt")["state_dict"]
    assert torch.equal(policy.state_dict()["model.head.linear.weight"], held["model.head.linear.weight"])


def test_a_resumed_run_does_not_read_the_file_again(first: Path, tmp_path: Path):
    source = tmp_path / "source"
    shutil.copytree(first, source)
    config = config_of(tmp_path / "run", "policy.observation_filter=mean_std", f"init_from='{source}'")
    assert run.train(config)["state"] == "ok"
    shutil.rmtree(source)
    again = run.resumed_config(tmp_path / "run", {"total_env_steps": 600})
    check_config(again)
    run.check_same_run(again, tmp_path / "run" / "checkpoints" / "last.ckpt", ["total_env_steps"])
    assert run.train(again, tmp_path / "run" / "checkpoints" / "last.ckpt")["env_steps"] >= 600


def test_algorithm_takes_it_too_and_restores_without_it(first: Path, tmp_path: Path):
    algorithm = Algorithm(
        "ppo",
        overrides=[*SHORT, "policy.observation_filter=mean_std", f"run_dir='{tmp_path}/run'"],
        config={"init_from": str(first)},
    )
    held = read_checkpoint(first / "checkpoints" / "last.ckpt")["state_dict"]
    name = "model.head.linear.weight"
    assert torch.equal(algorithm.policy.state_dict()[name], held[name])
    algorithm.config["init_from"] = str(tmp_path / "gone")
    algorithm.train()
    path = algorithm.save()
    restored = Algorithm.restore(path)
    assert torch.equal(restored.policy.state_dict()[name], algorithm.policy.state_dict()[name])
    algorithm.stop()
    restored.stop()


def test_names_in_the_file_are_not_imported(first: Path, tmp_path: Path):
    """A checkpoint of another's code gives its tensors without trust."""
    content = torch.load(first / "checkpoints" / "last.ckpt", weights_only=True)
    content["policy"]["class"] = "unheard_of.package:Policy"
    torch.save(content, tmp_path / "foreign.ckpt")
    keys = ("policy.observation_filter=mean_std", f"init_from='{tmp_path / 'foreign.ckpt'}'")
    policy, _, _ = run.build(config_of(tmp_path / "run", *keys))
    name = "model.head.linear.weight"
    assert torch.equal(policy.state_dict()[name], content["state_dict"][name])


def test_several_agents_take_the_weights_of_the_policies_of_the_same_ids(tmp_path: Path):
    keys = [key for key in SHORT if key != "env=cartpole"] + ["env=multi_agent_cartpole", "env.agents=2"]
    config = compose_config([*keys, f"run_dir='{tmp_path}/a'"])
    check_config(config)
    run.train(config)
    config = compose_config([*keys, f"run_dir='{tmp_path}/b'", f"init_from='{tmp_path}/a'", "seed=5"])
    check_config(config)
    policy, _, _ = run.build(config)
    held = read_checkpoint(tmp_path / "a" / "checkpoints" / "last.ckpt")["state_dict"]
    name = "policies.shared.model.head.linear.weight"
    assert torch.equal(policy.state_dict()[name], held[name])
