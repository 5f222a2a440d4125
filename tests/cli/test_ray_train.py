"""`rank_launcher=ray_train`: the same config and results as on one machine. The nodes are processes here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.edited_runs import last_checkpoint, status_of
from tests.run_comparison import assert_equal
from tests.run_processes import Run

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

TWO_RANKS = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.enable_progress_bar=false")
SHORT = ("policy=ppo", "env=cartpole", "experiment=none", "total_env_steps=512", "workers.fragment_length=16")
SMALL = ("policy.minibatches=2", "model.fcnet_hiddens=[8]", "evaluation.episodes=4")

FRAGILE = """
import gymnasium as gym


class Fragile(gym.Wrapper):
    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))

    def step(self, action):
        raise RuntimeError("the gripper is stuck")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Two nodes of 2 CPUs beside a head without any; gives its address."""
    pytest.importorskip("ray.train", reason="pip install 'lightning_rl[cluster]'", exc_type=ImportError)
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(2):
        found.add_node(num_cpus=2)
    try:
        yield found.address
    finally:
        found.shutdown()


def on_cluster(address: str, *overrides: str) -> tuple[str, ...]:
    return (
        "train",
        "rank_launcher=ray_train",
        f"rank_launcher.address={address}",
        "rank_launcher.placement=strict_spread",
        *overrides,
    )


def test_ranks_on_two_nodes_learn_what_ranks_of_one_machine_learn(cluster: str, tmp_path: Path) -> None:
    asked = (*SHORT, *SMALL, *TWO_RANKS, "logger=none")
    for name, command in (("nodes", on_cluster(cluster, *asked)), ("here", ("train", *asked))):
        with Run(*command, f"run_dir={tmp_path}/{name}", cwd=tmp_path) as run:
            assert run.wait(400) == 0, run.text
    nodes, here = (last_checkpoint(tmp_path / name) for name in ("nodes", "here"))
    assert nodes["counters"] == here["counters"]
    assert_equal(nodes["state_dict"], here["state_dict"])


def test_a_run_of_the_cluster_is_resumed_there_with_workers_on_the_nodes(cluster: str, tmp_path: Path) -> None:
    asked = (*SHORT, *SMALL, *TWO_RANKS, "logger=none", "workers.num_workers=2", "workers.ray.placement=spread")
    nodes = tmp_path / "nodes"
    for command in ((*on_cluster(cluster, *asked), f"run_dir={nodes}"), ("resume", str(nodes), "total_env_steps=1024")):
        with Run(*command, cwd=tmp_path) as run:
            assert run.wait(400) == 0, run.text
    assert status_of(nodes)["state"] == "ok"
    assert last_checkpoint(nodes)["counters"]["env_steps"] == status_of(nodes)["env_steps"] >= 1024


def test_the_error_of_a_failed_rank_is_reported(cluster: str, tmp_path: Path) -> None:
    (tmp_path / "fragile.py").write_text(FRAGILE)
    env = ("env.id=fragile:Fragile", "env.check=false", "policy.minibatches=1", "evaluation=none", *TWO_RANKS)
    with Run(*on_cluster(cluster, *env), f"run_dir={tmp_path}/nodes", cwd=tmp_path) as run:
        assert run.wait(400) == 2, run.text
        assert "error: rank 0: environment 'fragile:Fragile' of worker 0" in run.text
    status = status_of(tmp_path / "nodes")
    assert status["state"] == "failed" and "the gripper is stuck" in status["error"]


def test_too_few_resources_for_the_ranks_are_reported_before_any_file_is_written(cluster: str, tmp_path: Path) -> None:
    many = ("trainer.devices=5", "trainer.accelerator=cpu", "rank_launcher.timeout_s=3", f"run_dir={tmp_path}/nodes")
    with Run(*on_cluster(cluster, *SHORT, *many), cwd=tmp_path) as run:
        assert run.wait(300) == 2, run.text
        assert "5 ranks with CPU 1" in run.text and "Lower trainer.devices or rank_launcher.resources" in run.text
    assert not (tmp_path / "nodes").exists()


def test_without_the_extra_the_launcher_names_the_package_to_install(command: Command, tmp_path: Path) -> None:
    with suppress(ImportError):
        importlib.import_module("ray.train")
        pytest.skip("Ray Train is installed")
    asked = ("train", "rank_launcher=ray_train", "rank_launcher.address=local", *TWO_RANKS, "run_dir=out")
    assert "pip install 'lightning_rl[cluster]'" in command(*asked).refusal
    assert not (tmp_path / "out").exists()
