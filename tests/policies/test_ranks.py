"""Two ranks that learn together have the same weights, whichever parameters a loss reaches."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_rl.policies import A2C, APPO, IMPALA, PG, PPO, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs.trainer import reaches_every_parameter
from tests.envs.classic_control import CARTPOLE

PROGRAM = """
    import sys
    import torch
    from lightning.pytorch import Callback
    from lightning_rl.runs import run
    from lightning_rl.config import check_config, compose_config

    class Weights(Callback):
        obs = None

        def on_train_batch_start(self, trainer, policy, batch, batch_idx):
            self.obs = batch.get("obs") if self.obs is None and hasattr(batch, "count") else self.obs

        def on_train_end(self, trainer, policy):
            weights = {name: value for name, value in policy.state_dict().items()}
            found = {"steps": policy.gradient_steps, "weights": weights, "before": before, "obs": self.obs}
            torch.save(found, f"rank{trainer.global_rank}.pt")

    config = compose_config(["trainer=ddp", "trainer.accelerator=cpu", "workers.logical_workers=2", "logger=none",
                             "experiment=none", "model.fcnet_hiddens=[8]", "run_dir=run", "evaluation=none",
                             *sys.argv[1:]])
    check_config(config)
    if config["trainer"]["devices"] > 1:
        config["trainer"]["strategy"] = "ddp_fork"  # the ranks are this program's
    policy, data, trainer = run.build(config)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    trainer.callbacks.append(Weights())
    run.fit(policy, data, trainer)
"""
ON_POLICY = ("total_env_steps=256", "workers.fragment_length=32", "policy.minibatches=2")
STEERED = ("policy.kl_coef=0.2", "policy.kl_target=0.002", "policy.lr=0.003", "policy.observation_filter=mean_std")
POPULATION = ("total_env_steps=300", "data.directions=4")
REPLAYED = ("total_env_steps=120", "data.learning_starts=64", "data.batch_size=16", "data.capacity=500")


@pytest.mark.parametrize(
    ("policy", "env", "overrides"),
    [
        ("ppo", "cartpole", ON_POLICY),
        ("pg", "cartpole", ("total_env_steps=600",)),  # whose loss does not reach the model's values
        ("impala", "cartpole", ON_POLICY),
        ("appo", "cartpole", (*ON_POLICY, "policy.kl_coef=0.1")),
        ("dqn", "cartpole", REPLAYED),
        ("sac", "pendulum", REPLAYED),
        ("td3", "pendulum", REPLAYED),  # whose actor learns at every second step
        ("ddppo", "cartpole", (*ON_POLICY, *STEERED)),
        ("es", "cartpole", POPULATION),
        ("ars", "cartpole", POPULATION),
    ],
)
def test_ranks_have_the_same_weights(policy: str, env: str, overrides: tuple[str, ...], tmp_path: Path) -> None:
    """They act in environments of their own, so they would not if one of them missed the other's gradients."""
    first, second = weights_of_ranks(tmp_path, f"policy={policy}", f"env={env}", *overrides)
    assert first["steps"] == second["steps"] > 0
    for name, value in first["weights"].items():
        torch.testing.assert_close(value, second["weights"][name], rtol=0, atol=0, msg=name)


@pytest.mark.parametrize(
    ("policy", "overrides"),
    [
        ("ppo", ("policy.minibatches=1", "policy.passes=3")),
        ("a2c", ("policy.standardise_advantages=true",)),
        ("a2c", ("policy.microbatches=3", "policy.standardise_advantages=true")),
        ("pg", ()),
    ],
)
def test_two_ranks_take_the_gradient_steps_of_one_with_the_same_workers(
    policy: str, overrides: tuple[str, ...], tmp_path: Path
) -> None:
    """The mean of two ranks' gradients is the gradient of all rows; 200 steps without an end give each rank as many."""
    asked = (f"policy={policy}", "env=pendulum", "workers.fragment_length=32", "total_env_steps=2048", *overrides)
    _, both = weights_of_ranks(tmp_path, *asked)
    (alone,) = weights_of_ranks(
        tmp_path, *asked, "trainer.devices=1", "trainer.strategy=auto", "run_dir=alone", ranks=1
    )
    assert both["steps"] == alone["steps"] > 0
    moved = 0.0
    for name, value in alone["weights"].items():
        torch.testing.assert_close(both["weights"][name], value, rtol=1e-4, atol=1e-5, msg=name)
        moved = max(moved, float((value - alone["before"][name]).abs().max()))
    assert moved > 1e-3  # a hundred times the tolerance


def without_values(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> Any:
    """A loss of the user's own."""
    outputs, _ = model(train_batch)
    return -dist_class(outputs, model).logp(train_batch["actions"]).mean()


def test_a_loss_of_one_s_own_is_not_thought_to_reach_every_parameter() -> None:
    """Else gradients would not be summed, and ranks go their own ways."""
    spaces = CARTPOLE.spaces()
    assert reaches_every_parameter(PPO(*spaces), None) and reaches_every_parameter(APPO(*spaces), None)
    assert not reaches_every_parameter(PPO(*spaces), "my_pkg.nets:Net")
    own = PPO.with_updates("WithoutValues", loss_fn=without_values)
    assert not reaches_every_parameter(own(*spaces), None) and not reaches_every_parameter(PG(*spaces), None)


@pytest.mark.parametrize("algorithm", [A2C, PPO, IMPALA, APPO, PG])
def test_a_loss_that_reaches_every_parameter_says_so(algorithm: type[Policy]) -> None:
    """Else DDP looks through the graph at every step. PG has no use for the model's values."""
    env = CARTPOLE
    policy = algorithm(*env.spaces())
    loss, _ = policy.learner.total_loss(policy.learner.rows_of(RolloutWorker(env, policy, fragment_length=8).sample()))
    learned = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    reached = [gradient is not None for gradient in torch.autograd.grad(loss, learned, allow_unused=True)]
    assert reaches_every_parameter(policy, None) is all(reached) is (algorithm is not PG)


@pytest.mark.parametrize(("policy", "overrides"), [("es", ()), ("ars", ("policy.top_directions=2",))])
def test_two_ranks_compare_directions_as_one_does(policy: str, overrides: tuple[str, ...], tmp_path: Path) -> None:
    """Ranks and the best directions are those of the whole population, however it is shared out."""
    asked = (f"policy={policy}", "env=cartpole", "data.directions=6", "total_env_steps=600", *overrides)
    _, both = weights_of_ranks(tmp_path, *asked)
    (alone,) = weights_of_ranks(
        tmp_path, *asked, "trainer.devices=1", "trainer.strategy=auto", "run_dir=alone", ranks=1
    )
    assert both["steps"] == alone["steps"] > 1
    for name, value in alone["weights"].items():
        torch.testing.assert_close(both["weights"][name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_a_worker_s_experience_does_not_depend_on_its_rank(tmp_path: Path) -> None:
    """Worker 1 acts in rank 1 of two, or in the only rank, and sees the same first fragment; worker 0 sees another."""
    asked = ("policy=ppo", "env=pendulum", "workers.fragment_length=32", "total_env_steps=256")
    first, second = weights_of_ranks(tmp_path, *asked)
    (alone,) = weights_of_ranks(
        tmp_path, *asked, "trainer.devices=1", "trainer.strategy=auto", "run_dir=alone", ranks=1
    )
    torch.testing.assert_close(torch.cat([first["obs"], second["obs"]], dim=1), alone["obs"], rtol=0, atol=0)
    assert not torch.equal(first["obs"], second["obs"])


def weights_of_ranks(directory: Path, *overrides: str, ranks: int = 2) -> list[Any]:
    """What the program above writes, rank by rank."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), *overrides]
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment, timeout=110)
    assert done.returncode == 0, done.stderr
    return [torch.load(directory / f"rank{rank}.pt", weights_only=True) for rank in range(ranks)]
