"""Workers in Ray processes: equal data, the environment's own traceback, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import EnvError
from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker, WorkerSet, make_worker_set
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.ray.programs import PROGRAM, descendants
from tests.run_comparison import assert_equal

pytestmark = pytest.mark.ray

OPTIONS: dict[str, Any] = {"num_envs": 2, "fragment_length": 8, "seed": 3}


class Breaks(gym.Env[np.ndarray, int]):
    """Cannot be made, or raises in its third step."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, where: str) -> None:
        self.where, self.t = where, 0
        if where == "init":
            raise FileNotFoundError("map.txt is not on this machine")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        if self.t == 3:
            raise ArithmeticError("wheels came off")
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.fixture
def policy() -> PPO:
    return PPO(*CARTPOLE.spaces(), seed=1, passes=1)


@pytest.fixture
def remote(policy: PPO) -> Iterator[Any]:
    workers = make_worker_set(CARTPOLE, policy, num_workers=2, worker_indices=[0, 1, 2], **OPTIONS)
    yield workers
    workers.stop()


def test_methods_of_the_ray_worker_set_equal_those_in_one_process(policy: PPO, remote: Any) -> None:
    local = WorkerSet(CARTPOLE, policy, [0, 1, 2], **OPTIONS)
    for _ in range(2):
        for workers in (local, remote):
            workers.sync_weights(policy)
        here, there = local.sample(), remote.sample()
        assert here.columns == there.columns
        assert all(torch.equal(here[name], there[name]) for name in here)
        policy.learn_on_batch(here)
    assert local.get_metrics() == remote.get_metrics()
    assert_equal(local.state_dict(), remote.state_dict())
    assert remote.foreach_worker(lambda worker: worker.worker_index) == [0, 1, 2]
    for workers in (local, remote):
        workers.force_reset()
        workers.sync_weights(policy)
    here, there = local.sample(), remote.sample()
    assert torch.equal(here.obs, there.obs) and not here.t[0].any()
    assert local.run_episodes(4) == remote.run_episodes(4)


def test_sample_async_gives_fragments_as_they_become_ready(policy: PPO, remote: Any) -> None:
    remote.sync_weights(policy)
    ready = remote.sample_async()
    assert [len(next(ready).rewards) for _ in range(4)] == [8] * 4


@pytest.mark.parametrize(
    ("where", "message"), [("init", r"FileNotFoundError: map.txt"), ("step", "ArithmeticError.*wheels came off")]
)
def test_an_environment_s_failure_comes_with_its_own_traceback(where: str, message: str) -> None:
    env = EnvCreator(f"{__name__}:Breaks", {"where": where}, check=False)
    policy = PPO(Breaks.observation_space, Breaks.action_space)
    with pytest.raises(EnvError, match=message) as error:
        workers = make_worker_set(env, policy, num_workers=1, worker_indices=[0], vectorization="sync", **OPTIONS)
        workers.sync_weights(policy)
        try:
            workers.sample()
        finally:
            workers.stop()
    assert "test_worker_set.py" in str(error.value)


def test_a_worker_class_becomes_an_actor(policy: PPO) -> None:
    import ray

    actor = RolloutWorker.as_remote(num_cpus=1).remote(CARTPOLE, policy, num_envs=1, fragment_length=5)
    assert len(ray.get(actor.sample.remote()).rewards) == 5


HELD_UP = """
import psutil
import ray
from lightning_rl.rollouts.ray.session import start_ray, stop_ray

def abrupt(shutdown=ray.shutdown):
    raylet.kill()
    shutdown()

start_ray(1)
(raylet,) = [each for each in psutil.Process().children() if each.name() == "raylet"]
helpers = [each for each in raylet.children() if "Agent" in each.name()]
for helper in helpers:
    helper.suspend()
ray.shutdown = abrupt
stop_ray()
print(len(helpers))
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_processes_of_ray_end_with_the_session() -> None:
    """As when a signal ends a run on a busy machine, whose session has only just begun to start."""
    group = time.monotonic_ns()
    environ = {**os.environ, "LIGHTNING_RL_TEST_GROUP": str(group), "PYTHONPATH": os.getcwd()}
    ended = subprocess.run([sys.executable, "-c", HELD_UP], env=environ, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0 and int(ended.stdout) >= 1, ended.stderr
    deadline = time.monotonic() + 10
    while descendants(group) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert descendants(group) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize("ending", [pytest.param("success", marks=pytest.mark.slow), "error", "ctrl-c"])
def test_no_process_is_left_behind(ending: str, tmp_path: Path) -> None:
    group = time.monotonic_ns()
    steps = "1000" if ending == "success" else "1000000000"
    overrides = [f"total_env_steps={steps}", f"run_dir={tmp_path / 'run'}", "report_every_env_steps=1"]
    if ending == "error":
        overrides += [
            f"env.id={__name__}:Breaks",
            "env.kwargs.where=step",
            "env.check=false",
            "workers.vectorization=sync",
        ]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *overrides],
        env={**os.environ, "LIGHTNING_RL_TEST_GROUP": str(group), "PYTHONPATH": os.getcwd()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if ending == "ctrl-c":
        deadline = time.monotonic() + 60
        while not (tmp_path / "run" / "metrics.csv").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert any("RolloutProcess" in command for command in descendants(group))
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    expected = {"success": 0, "error": 2, "ctrl-c": 130}[ending]
    assert process.returncode == expected, errors
    deadline = time.monotonic() + 15
    while descendants(group) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert descendants(group) == []
    if ending == "error":
        assert "wheels came off" in errors
