"""Fine-tuning: a run that starts with the weights and filters of another, and counts from 0."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_rl.config import check_config, compose_config
from lightning_rl.errors import CheckpointError
from lightning_rl.policies import Policy
from lightning_rl.policies.checkpoints import read_checkpoint
from lightning_rl.runs import run
from lightning_rl.runs.algorithm import Algorithm
from lightning_rl.runs.initial_weights import load_initial_weights
from tests.run_comparison import assert_equal
from tests.trained_runs import train

SHORT = (
    *("env=cartpole", "experiment=none", "evaluation=none", "logger=none", "total_env_steps=300"),
    *("workers.fragment_length=16", "model.fcnet_hiddens=[8,8]", "trainer.enable_progress_bar=false"),
)
PPO = ("policy.minibatches=1", "policy.passes=1")
FILTER = "policy.observation_filter=mean_std"
HEAD = "model.head.linear.weight"


def config_of(run_dir: Path, *overrides: str) -> dict[str, Any]:
    config = compose_config([*SHORT, f"run_dir='{run_dir}'", *overrides])
    check_config(config)
    return config


def held_in(run_dir: Path) -> dict[str, torch.Tensor]:
    """The weights in a run's last checkpoint."""
    return read_checkpoint(run_dir / "checkpoints" / "last.ckpt")["state_dict"]


def built(run_dir: Path, source: object, *overrides: str) -> Policy:
    """The policy of a run that begins with the weights of `source`."""
    return run.build(config_of(run_dir, f"init_from='{source}'", *overrides))[0]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with an observation filter."""
    run_dir = tmp_path_factory.mktemp("first") / "run"
    run.train(config_of(run_dir, *PPO, FILTER))
    return run_dir


@pytest.mark.parametrize("file", ["", "checkpoints/last.ckpt"])
def test_weights_and_filters_are_those_of_the_file_and_counters_are_0(first: Path, file: str, tmp_path: Path):
    policy = built(tmp_path / "run", first / file, *PPO, FILTER, "seed=7")
    assert_equal(dict(policy.state_dict()), held_in(first))
    assert policy.state_dict()["observation_filter.moments.count"] > 0
    assert (policy.env_steps, policy.gradient_steps, policy.iterations) == (0, 0, 0)


def test_strictly_everything_that_differs_is_named_and_nothing_is_changed(first: Path, tmp_path: Path):
    policy, _, _ = run.build(config_of(tmp_path / "run", *PPO, "model.fcnet_hiddens=[8,5]"))
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    with pytest.raises(CheckpointError) as error:
        load_initial_weights(policy, str(first), strict=True)
    assert "model.trunk.layers.1.weight [8, 8] against [5, 8]" in str(error.value)
    assert "and 7 more" in str(error.value) and "init_from_strict=false" in str(error.value)
    assert_equal(before, dict(policy.state_dict()))


def test_partly_what_fits_is_taken_and_the_rest_is_named(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Another head (Acrobot has 3 actions and 6 observed numbers): only layers behind the first one fit."""
    keys = ("env.id=Acrobot-v1", "env=custom", "init_from_strict=false")
    policy, held = built(tmp_path / "run", first, *PPO, *keys), held_in(first)
    taken = [name for name, value in policy.state_dict().items() if name in held and torch.equal(held[name], value)]
    assert {"model.trunk.layers.1.weight", "model.value_trunk.layers.1.weight", "model.trunk.layers.0.bias"} <= {*taken}
    assert HEAD not in taken and "model.trunk.layers.0.weight" not in taken
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("init_from: ") and "model.trunk.layers.0.weight [8, 4] against [8, 6]" in line


def test_nothing_that_fits_is_an_error(first: Path, tmp_path: Path):
    with pytest.raises(CheckpointError, match="nothing fits"):
        built(tmp_path / "run", first, "policy=dqn", "init_from_strict=false")


def test_a_path_without_a_checkpoint_is_refused_in_one_line_that_names_the_key(tmp_path: Path):
    config = config_of(tmp_path / "run")
    for source in ("nowhere.ckpt", "", " ", 5_000 * "x"):
        with pytest.raises(CheckpointError, match=r"^init_from='.*(does not exist|cannot be read)[^\n]*$") as error:
            run.build({**config, "init_from": source})
        assert len(str(error.value)) < 400


def test_another_algorithm_with_the_same_network_takes_it(first: Path, tmp_path: Path):
    policy = built(tmp_path / "run", first, "policy=a2c", FILTER, "init_from_strict=false")
    assert torch.equal(policy.state_dict()[HEAD], held_in(first)[HEAD])


def test_a_resumed_run_does_not_read_the_file_again(first: Path, tmp_path: Path):
    source = tmp_path / "source"
    shutil.copytree(first, source)
    config = config_of(tmp_path / "run", *PPO, FILTER, f"init_from='{source}'")
    assert run.train(config)["state"] == "ok"
    shutil.rmtree(source)
    again = run.resumed_config(tmp_path / "run", {"total_env_steps": 600})
    check_config(again)
    run.check_same_run(again, tmp_path / "run" / "checkpoints" / "last.ckpt", ["total_env_steps"])
    assert run.train(again, tmp_path / "run" / "checkpoints" / "last.ckpt")["env_steps"] >= 600


def test_algorithm_takes_it_too_and_restores_without_it(first: Path, tmp_path: Path):
    overrides = [*SHORT, *PPO, FILTER, f"run_dir='{tmp_path}/run'"]
    algorithm = Algorithm("ppo", overrides=overrides, config={"init_from": str(first)})
    assert torch.equal(algorithm.policy.state_dict()[HEAD], held_in(first)[HEAD])
    algorithm.config["init_from"] = str(tmp_path / "gone")
    algorithm.train()
    restored = Algorithm.restore(algorithm.save())
    assert torch.equal(restored.policy.state_dict()[HEAD], algorithm.policy.state_dict()[HEAD])
    algorithm.stop()
    restored.stop()


def test_names_in_the_file_are_not_imported(first: Path, tmp_path: Path):
    """A checkpoint of another's code gives its tensors without trust."""
    content = torch.load(first / "checkpoints" / "last.ckpt", weights_only=True)
    content["policy"]["class"] = "unheard_of.package:Policy"
    torch.save(content, tmp_path / "foreign.ckpt")
    policy = built(tmp_path / "run", tmp_path / "foreign.ckpt", *PPO, FILTER)
    assert torch.equal(policy.state_dict()[HEAD], content["state_dict"][HEAD])


def test_several_agents_take_the_weights_of_the_policies_of_the_same_ids(tmp_path: Path):
    several, name = ("env=multi_agent_cartpole", "env.agents=2"), f"policies.shared.{HEAD}"
    source = train(tmp_path / "a", *several, "experiment=none", "model.fcnet_hiddens=[8,8]")
    assert torch.equal(built(tmp_path / "b", source, *several, "seed=5").state_dict()[name], held_in(source)[name])
