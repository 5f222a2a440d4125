"""CompileNetworks: equal numbers with `torch.compile`, or one error that names what is missing."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest
import torch
from lightning.pytorch.plugins import Precision

from lightning_rl.callbacks import CompileNetworks
from lightning_rl.config import check_config, compose_config
from lightning_rl.errors import ConfigError
from lightning_rl.policies import DQN
from lightning_rl.runs import run

SMALL = (
    "experiment=none",
    "logger=none",
    "evaluation=none",
    "model.fcnet_hiddens=[8]",
    "trainer.enable_progress_bar=false",
)
CASES = {
    "ppo": ("env=cartpole", "total_env_steps=256", "workers.fragment_length=16", "policy.minibatches=2"),
    "dqn": ("env=cartpole", "total_env_steps=96", "data.learning_starts=64", "data.batch_size=16"),
    "sac": ("env=pendulum", "total_env_steps=80", "data.learning_starts=64", "data.batch_size=16"),
}


def train(directory: Path, policy: str, compiled: bool) -> dict[str, torch.Tensor]:
    config: dict[str, Any] = compose_config([f"policy={policy}", *SMALL, *CASES[policy], f"run_dir={directory}"])
    if compiled:
        config["callbacks"] = [{"callback": "lightning_rl.callbacks:CompileNetworks"}]
    check_config(config)
    run.train(config)
    return torch.load(directory / "checkpoints" / "last.ckpt")["state_dict"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler: install g++")
@pytest.mark.parametrize("policy", CASES)
def test_compiled_networks_learn_the_same(policy: str, tmp_path: Path) -> None:
    """Up to rounding: compiled code may add in another order."""
    plain, compiled = (train(tmp_path / str(how), policy, how) for how in (False, True))
    assert list(plain) == list(compiled)  # checkpoints have the same keys with and without compiling
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_cuda_graphs_on_a_cpu_are_refused(mode: str, tmp_path: Path) -> None:
    config = compose_config([*SMALL, f"run_dir={tmp_path}"])
    config["callbacks"] = [{"callback": "lightning_rl.callbacks:CompileNetworks", "mode": mode}]
    with pytest.raises(ConfigError, match=f"mode='{mode}' captures CUDA graphs, .* mode=default, or trainer=gpu"):
        run.train(config)


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    config = compose_config([*SMALL, f"run_dir={tmp_path}"])
    config["callbacks"] = ["lightning_rl.callbacks:CompileNetworks"]
    with pytest.raises(ConfigError, match="install g\\+\\+"):
        run.train(config)


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(ConfigError, match="mode='fast'"):
        CompileNetworks("fast")


def small_dqn() -> DQN:
    return DQN(gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2), model={"fcnet_hiddens": [4]})


def trainer_on_a_gpu(act_on: str) -> Any:
    strategy = SimpleNamespace(root_device=torch.device("cuda", 0))
    return SimpleNamespace(
        strategy=strategy, precision_plugin=Precision(), datamodule=SimpleNamespace(act_on=act_on)
    )  # fmt: skip


@pytest.mark.parametrize(("mode", "marks"), [("reduce-overhead", 3), ("default", 0)])
def test_each_loss_begins_a_step_of_captured_graphs(mode: str, marks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """DQN's loss calls two networks, and the second call may not overwrite what the first one returned."""
    made: list[None] = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: made.append(None))
    trainer = trainer_on_a_gpu("cpu")
    CompileNetworks(mode).setup(trainer, small_dqn(), "fit")
    context = getattr(trainer.precision_plugin, "loss_context", nullcontext)
    for _ in range(3):
        with context():
            pass
    assert len(made) == marks


def test_captured_graphs_are_refused_where_the_learner_acts() -> None:
    with pytest.raises(ConfigError, match=r"workers\.act_on=cpu"):
        CompileNetworks("reduce-overhead").setup(trainer_on_a_gpu("learner"), small_dqn(), "fit")
    CompileNetworks("default").setup(trainer_on_a_gpu("learner"), small_dqn(), "fit")
