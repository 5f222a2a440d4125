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

import pytest
import ray
import torch

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent.toy_games import RockPaperScissors
from lightning_rl.errors import EnvError
from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker, WorkerSet, make_worker_set
from lightning_rl.sample_batch import SampleBatch, env_steps
from tests.data.small_runs import APEX
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.agents import Policies, own
from tests.rollouts.fragment_equality import assert_equal_fragments
from tests.rollouts.ray.programs import descendants
from tests.run_comparison import assert_equal
from tests.run_processes import Run

pytestmark = pytest.mark.ray

OPTIONS: dict[str, Any] = {"num_envs": 2, "fragment_length": 8, "seed": 3}


@pytest.fixture
def policy() -> PPO:
    return PPO(*CARTPOLE.spaces(), seed=1, passes=1)


@pytest.fixture
def remote(policy: PPO) -> Iterator[Any]:
    workers = make_worker_set(CARTPOLE, policy, num_workers=2, worker_indices=[0, 1, 2], **OPTIONS)
    yield workers
    workers.stop()


GAME = EnvCreator(RockPaperScissors, {"repetitions": 5})


def two_policies() -> Policies:
    agents, acted = (space.spaces for space in GAME.spaces())
    return own(**{agent: PPO(agents[agent], acted[agent], seed=seed) for seed, agent in enumerate(agents)})


@pytest.mark.parametrize("agents", ["one", "several"])
def test_methods_of_the_ray_worker_set_equal_those_in_one_process(agents: str, policy: PPO) -> None:
    """The processes build policies from other weights, and get the learner's before they sample."""
    several = agents == "several"
    env, learner, built = (GAME, two_policies(), two_policies()) if several else (CARTPOLE, policy, policy)
    with torch.no_grad():
        for weights in learner.parameters():
            weights.add_(0.1)
    local = WorkerSet(env, learner, [0, 1, 2], **OPTIONS)
    remote = make_worker_set(env, built, num_workers=2, worker_indices=[0, 1, 2], **OPTIONS)
    try:
        for _ in range(2):
            for workers in (local, remote):
                workers.sync_weights(learner)
            here, there = local.sample(), remote.sample()
            assert_equal_fragments(here, there)
            if several:
                assert (here.env_steps, here.num_envs) == (there.env_steps, there.num_envs)
            else:
                learner.learn_on_batch(here)
        assert local.get_metrics() == remote.get_metrics()
        assert_equal(local.state_dict(), remote.state_dict())
        assert remote.foreach_worker(lambda worker: worker.worker_index) == [0, 1, 2]
        for workers in (local, remote):
            workers.force_reset()
            workers.sync_weights(learner)
        here, there = local.sample(), remote.sample()
        assert_equal_fragments(here, there)
        assert several or not here.t[0].any()
        found, expected = remote.run_episodes(4), local.run_episodes(4)
        assert found == expected
        assert not several or [each.by_policy for each in found] == [each.by_policy for each in expected]
        remote.submit_samples(1, 0)
        samples = [remote.next_sample() for _ in range(2)]
        theirs = [fragment for sample in samples for fragment in remote.fetch(sample)]
        mine = [worker.sample() for worker in local.workers]
        assert sum(sample.env_steps for sample in samples) == sum(map(env_steps, mine)) > 0
        for fragment in theirs:  # those of a process come together, in any order
            assert any(torch.equal(first_obs(fragment), first_obs(other)) for other in mine)
    finally:
        remote.stop()


def first_obs(fragment: Any) -> torch.Tensor:
    """The observations, or those of the first policy."""
    return (fragment if isinstance(fragment, SampleBatch) else fragment["player_0"]).obs


def test_sample_async_gives_fragments_as_they_become_ready(policy: PPO, remote: Any) -> None:
    remote.sync_weights(policy)
    ready = remote.sample_async()
    assert [len(next(ready).rewards) for _ in range(4)] == [8] * 4


def test_an_environment_that_cannot_be_made_comes_with_its_own_traceback(policy: PPO) -> None:
    """That of one which raises in a step is in test_deaths.py."""
    env = EnvCreator("tests.rollouts.crashing:CrashingCartPole", {"how": 5}, check=False)
    with pytest.raises(EnvError, match=r"(?s)TypeError: 'int' object is not iterable.*crashing\.py"):
        make_worker_set(env, policy, num_workers=1, worker_indices=[0], vectorization="sync", **OPTIONS)


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
@pytest.mark.ray(own_session=True)
def test_a_session_ends_with_the_last_workers_that_use_it(policy: PPO) -> None:
    first, second = (make_worker_set(CARTPOLE, policy, num_workers=1, worker_indices=[0], **OPTIONS) for _ in range(2))
    try:
        first.stop()
        second.sync_weights(policy)
        assert env_steps(second.sample()) == 2 * 8 and ray.is_initialized()
    finally:
        second.stop()
    assert not ray.is_initialized()


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
@pytest.mark.parametrize("ending", [pytest.param("success", marks=pytest.mark.slow), "ctrl-c"])
@pytest.mark.parametrize("policy_name", [pytest.param("ppo", marks=pytest.mark.slow), "apex"])
def test_no_process_is_left_behind(policy_name: str, ending: str, tmp_path: Path) -> None:
    """That of a run which ends by an error is in tests/test_failing_workers.py."""
    steps = "1000" if ending == "success" else "1000000000"
    overrides = [f"total_env_steps={steps}", "run_dir=run", "report_every_env_steps=1", "workers.num_workers=2"]
    apex = [*APEX, "experiment=none"] if policy_name == "apex" else []
    with Run("train", f"policy={policy_name}", "env=cartpole", *apex, *overrides, cwd=tmp_path) as run:
        if ending == "ctrl-c":
            run.until((tmp_path / "run" / "metrics.csv").exists)
            commands = [" ".join(process.cmdline()) for process in run.all()]
            assert any("RolloutProcess" in command for command in commands)
            assert sum("ReplayShard" in command for command in commands) == (2 if apex else 0)
            run.process.send_signal(signal.SIGINT)
        assert run.wait() == {"success": 0, "ctrl-c": 130}[ending], run.text
        run.until_gone(15)
