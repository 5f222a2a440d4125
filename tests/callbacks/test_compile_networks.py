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
from lightning_rl.config import compose_config
from lightning_rl.errors import ConfigError
from lightning_rl.policies import DQN
from lightning_rl.runs import run
from tests.edited_runs import last_checkpoint

SMALL = ("experiment=none", "logger=none", "evaluation=none", "model.fcnet_hiddens=[8]")
OFF_POLICY = ("data.learning_starts=64", "data.batch_size=16")
CASES = {
    "ppo": ("env=cartpole", "total_env_steps=256", "workers.fragment_length=16", "policy.minibatches=2"),
    "dqn": ("env=cartpole", "total_env_steps=96", *OFF_POLICY),
    "sac": ("env=pendulum", "total_env_steps=80", *OFF_POLICY),
}
CALLBACK = "lightning_rl.callbacks:CompileNetworks"


def train(directory: Path, *overrides: str, **callback: Any) -> dict[str, torch.Tensor]:
    """The weights in the end; compiled if there are keywords of the callback."""
    config: dict[str, Any] = compose_config([*SMALL, *overrides, f"run_dir={directory}"])
    config["callbacks"] = [callback] if callback else []
    run.train(config)
    return last_checkpoint(directory)["state_dict"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler: install g++")
@pytest.mark.parametrize("policy", CASES)
def test_compiled_networks_learn_the_same(policy: str, tmp_path: Path) -> None:
    """Up to rounding: compiled code may add in another order."""
    asked = (f"policy={policy}", *CASES[policy])
    plain, compiled = train(tmp_path / "plain", *asked), train(tmp_path / "compiled", *asked, callback=CALLBACK)
    assert list(plain) == list(compiled)  # checkpoints have the same keys with and without compiling
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-3, atol=1e-4, msg=name)


def test_what_cannot_be_compiled_is_refused(tmp_path: Path) -> None:
    for mode in ("reduce-overhead", "max-autotune"):
        with pytest.raises(ConfigError, match=f"mode='{mode}' captures CUDA graphs, .* mode=default, or trainer=gpu"):
            train(tmp_path / mode, callback=CALLBACK, mode=mode)


def small_dqn() -> DQN:
    return DQN(gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2), model={"fcnet_hiddens": [4]})


def trainer_on_a_gpu(act_on: str) -> Any:
    strategy, data = SimpleNamespace(root_device=torch.device("cuda", 0)), SimpleNamespace(act_on=act_on)
    return SimpleNamespace(strategy=strategy, precision_plugin=Precision(), datamodule=data)


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
