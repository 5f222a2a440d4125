"""Two ranks that learn together have the same weights, whichever parameters a loss reaches."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

PROGRAM = """
    import sys
    import torch
    from lightning.pytorch import Callback
    from lightning_rl import run
    from lightning_rl.config import compose_config
    from lightning_rl.config_check import check_config

    class Weights(Callback):
        def on_train_end(self, trainer, policy):
            weights = {name: value for name, value in policy.state_dict().items()}
            torch.save({"steps": policy.gradient_steps, "weights": weights}, f"rank{trainer.global_rank}.pt")

    config = compose_config(["trainer=ddp", "trainer.accelerator=cpu", "workers.logical_workers=2", "logger=none",
                             "evaluation.interval=0", "experiment=none", "model.fcnet_hiddens=[8]", "run_dir=run",
                             *sys.argv[1:]])
    check_config(config)
    config["trainer"]["strategy"] = "ddp_fork"  # the ranks are this program's
    policy, data, trainer = run.build(config)
    trainer.callbacks.append(Weights())
    run.fit(policy, data, trainer)
"""
ON_POLICY = ("total_env_steps=256", "workers.fragment_length=32", "policy.minibatches=2")
REPLAYED = ("total_env_steps=120", "data.learning_starts=64", "data.batch_size=16", "data.capacity=500")


@pytest.mark.parametrize(
    ("policy", "env", "overrides"),
    [
        ("ppo", "cartpole", ON_POLICY),
        ("dqn", "cartpole", REPLAYED),
        ("sac", "pendulum", REPLAYED),
        ("td3", "pendulum", REPLAYED),  # whose actor learns at every second step
    ],
)
def test_ranks_have_the_same_weights(policy: str, env: str, overrides: tuple[str, ...], tmp_path: Path) -> None:
    """They act in environments of their own, so they would not if one of them missed the other's gradients."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), f"policy={policy}", f"env={env}", *overrides]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=100)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in (0, 1))
    assert first["steps"] == second["steps"] > 0
    for name, value in first["weights"].items():
        torch.testing.assert_close(value, second["weights"][name], rtol=0, atol=0, msg=name)
