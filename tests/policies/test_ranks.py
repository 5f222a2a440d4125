"""Policies trained by two DDP ranks: equal weights on both, and those that one rank would learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.policies.rank_results import assert_ranks_agree, results_of_ranks

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
            found = {"weights": dict(policy.state_dict()), "before": before, "obs": self.obs}
            found["steps"] = policy.gradient_steps
            torch.save(found, f"rank{trainer.global_rank}.pt")

    config = compose_config(["trainer=ddp", "trainer.accelerator=cpu", "workers.logical_workers=2", "logger=none",
                             "experiment=none", "model.fcnet_hiddens=[8]", "run_dir=run", "evaluation=none",
                             *sys.argv[1:]])
    check_config(config)
    if config["trainer"]["devices"] > 1:
        config["trainer"]["strategy"] = "ddp_fork"  # forks this program; other strategies would start it again
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
        ("ppo", "cartpole", ("total_env_steps=128", *ON_POLICY[1:])),
        pytest.param("sac", "pendulum", REPLAYED, marks=pytest.mark.process),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in [
                ("es", "cartpole", POPULATION),
                ("pg", "cartpole", ("total_env_steps=600",)),  # its loss does not use the model's values
                ("impala", "cartpole", ON_POLICY),
                ("appo", "cartpole", (*ON_POLICY, "policy.kl_coef=0.1")),
                ("dqn", "cartpole", REPLAYED),
                ("td3", "pendulum", REPLAYED),  # its actor learns at every second step
                ("ddppo", "cartpole", (*ON_POLICY, *STEERED)),
                ("ars", "cartpole", POPULATION),
            ]
        ),
    ],
)
def test_ranks_have_equal_weights_after_training(
    policy: str, env: str, overrides: tuple[str, ...], tmp_path: Path
) -> None:
    """Each rank has its own environments, so weights would differ if gradients were not shared."""
    arguments = (f"policy={policy}", f"env={env}", *overrides)
    first, second = results_of_ranks(tmp_path, *arguments, program=PROGRAM)
    assert first["steps"] == second["steps"] > 0
    assert_ranks_agree(first, second)


PPO = ("policy=ppo", "policy.minibatches=1", "policy.passes=3")
AVERAGED = [
    pytest.param(PPO, marks=pytest.mark.process),
    *(
        pytest.param(each, marks=pytest.mark.slow)
        for each in [
            ("policy=a2c", "policy.microbatches=3", "policy.standardize_advantages=true"),
            ("policy=a2c", "policy.standardize_advantages=true"),
            ("policy=pg", "policy.lr=3e-3"),
        ]
    ),
]


@pytest.fixture(scope="module")
def two_ranks_and_one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Both ranks of a run, and the only rank of another with the same workers."""
    overrides = (*request.param, "env=pendulum", "workers.fragment_length=32", "total_env_steps=2048")
    return two_ranks_and_one_of(tmp_path_factory.mktemp("ranks"), *overrides)


@pytest.mark.parametrize("two_ranks_and_one", AVERAGED, indirect=True, ids=" ".join)
def test_two_ranks_learn_the_weights_of_one_rank_with_the_same_workers(two_ranks_and_one: list[Any]) -> None:
    """The mean of two ranks' gradients is that of all rows; Pendulum's 200 steps give both equally many rows."""
    _, both, alone = two_ranks_and_one
    assert both["steps"] == alone["steps"] > 0
    assert_ranks_agree(both, alone, rtol=1e-4, atol=1e-5)
    changes = [float((value - alone["before"][name]).abs().max()) for name, value in alone["weights"].items()]
    assert max(changes) > 1e-3  # a hundred times the tolerance


@pytest.mark.process
@pytest.mark.parametrize("two_ranks_and_one", [PPO], indirect=True, ids=" ".join)
def test_a_worker_s_first_fragment_does_not_depend_on_its_rank(two_ranks_and_one: list[Any]) -> None:
    """Worker 1 samples the same first fragment in rank 1 of two and in the only rank; worker 0 samples another."""
    first, second, alone = two_ranks_and_one
    torch.testing.assert_close(torch.cat([first["obs"], second["obs"]], dim=1), alone["obs"], rtol=0, atol=0)
    assert not torch.equal(first["obs"], second["obs"])


@pytest.mark.parametrize(
    ("policy", "overrides"),
    [
        pytest.param("ars", ("policy.top_directions=2",), marks=pytest.mark.process),
        pytest.param("es", (), marks=pytest.mark.slow),
    ],
)
def test_two_ranks_of_es_and_ars_learn_the_weights_of_one(
    policy: str, overrides: tuple[str, ...], tmp_path: Path
) -> None:
    """Return ranks and best directions are those of the whole population."""
    common = (f"policy={policy}", "env=cartpole", "data.directions=6", "total_env_steps=600", *overrides)
    _, both, alone = two_ranks_and_one_of(tmp_path, *common)
    assert both["steps"] == alone["steps"] > 1
    assert_ranks_agree(both, alone, rtol=1e-4, atol=1e-5)


def two_ranks_and_one_of(directory: Path, *overrides: str) -> list[Any]:
    """What `PROGRAM` wrote in both ranks of a run, and in the only rank of another with the same workers."""
    alone = ("trainer.devices=1", "trainer.strategy=auto", "run_dir=alone")
    both = results_of_ranks(directory, *overrides, program=PROGRAM)
    return [*both, *results_of_ranks(directory, *overrides, *alone, program=PROGRAM, ranks=1)]
