"""Worker processes that die, raise, hang, leak or run out of memory; one Ray session for all tests of the file."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import EnvError
from lightning_rl.policies import PPO
from lightning_rl.process_memory import resident_mb
from lightning_rl.rollouts import WorkerSet, make_worker_set
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.agents import shared
from tests.rollouts.fragment_equality import assert_equal_fragments
from tests.run_processes import until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]

CRASHING = "tests.rollouts.crashing:CrashingCartPole"
OPTIONS: dict[str, Any] = {"num_envs": 2, "fragment_length": 32, "seed": 3, "vectorization": "sync"}


@pytest.fixture
def policy() -> PPO:
    return PPO(*CARTPOLE.spaces(), seed=1, passes=1)


@pytest.fixture
def make_workers(policy: PPO) -> Iterator[Any]:
    """Makes worker sets with the policy's weights, and stops them afterwards."""
    sets: list[Any] = []

    def make(num_workers: int = 2, indices: tuple[int, ...] = (0, 1), **options: Any) -> Any:
        acting = options.pop("acting", policy)
        env = EnvCreator(CRASHING, options.pop("crash", {}), agents=options.pop("agents", None), check=False)
        keywords = {"num_workers": num_workers, "worker_indices": list(indices), **OPTIONS, **options}
        workers = make_worker_set(env, acting, **keywords)
        workers.sync_weights(acting)
        sets.append(workers)
        return workers

    yield make
    for workers in sets:
        workers.stop()


def pids(workers: Any) -> list[int]:
    return workers.foreach_worker(lambda worker: os.getpid())


def has_ended(pid: int) -> bool:
    """Whether a process has ended; its body may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def count_ended(processes: list[int]) -> int:
    """How many of the processes have ended; waits for the first one."""
    with contextlib.suppress(AssertionError):
        until(lambda: any(map(has_ended, processes)), 30, lambda: True, str)
    return sum(map(has_ended, processes))


@pytest.mark.parametrize(
    ("how", "agents"), [("kill", None), ("kill", 2), pytest.param("segfault", None, marks=pytest.mark.slow)]
)
def test_the_death_of_a_process_while_it_samples_changes_no_fragment(
    how: str, agents: int | None, policy: PPO, make_workers: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whole episodes; a process dies in the second of three rounds, whose fragment another one samples again."""
    options: dict[str, Any] = {"batch_mode": "complete_episodes"}
    acting = policy if agents is None else shared(policy, "agent_0", "agent_1")
    calm = EnvCreator(CRASHING, {"at": -1}, agents=agents, check=False)
    local = WorkerSet(calm, acting, [0, 1, 2], **OPTIONS, **options)
    crash = {"how": how, "at": 100, "once": str(tmp_path / "died")}
    remote = make_workers(2, (0, 1, 2), crash=crash, agents=agents, acting=acting, **options)
    before = pids(remote)
    for _ in range(3):
        assert_equal_fragments(local.sample(), remote.sample())
        assert local.get_metrics() == remote.get_metrics()
    assert local.state_dict() == remote.state_dict() and (tmp_path / "died").exists()
    assert remote.get_health() == {"sys/worker_restarts": 1.0, "sys/env_restarts": 0.0}
    assert count_ended([*set(before)]) == 1 and re.search(r"rollout process \d \(workers .*\) died", caplog.text)


STEP_TIMEOUT = {"step_timeout_s": 2.0}, ["step_timeout_s=2", "crashing.py", "in fail"]
SAMPLE_TIMEOUT = {"sample_timeout_s": 5.0}, ["sample_timeout_s=5"]


@pytest.mark.parametrize(
    ("how", "options", "words"),
    [
        pytest.param("hang", *STEP_TIMEOUT, marks=pytest.mark.slow),
        ("hang in C", *STEP_TIMEOUT),
        pytest.param("hang", *SAMPLE_TIMEOUT, marks=pytest.mark.slow),
        ("stopped", *SAMPLE_TIMEOUT),
        ("segfault", {}, ["Segmentation fault", "crashing.py"]),
        pytest.param("oom", {"max_env_restarts": 0}, [], marks=pytest.mark.slow),
    ],
)
def test_a_process_that_hangs_or_crashes_is_ended_and_replaced_once_with_its_traceback(
    how: str, options: Any, words: list[str], make_workers: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that the system has stopped cannot react at all."""
    crash = {} if how == "stopped" else {"how": how, "at": 40, "once": str(tmp_path / "once")}
    workers = make_workers(crash=crash, **options)
    before = pids(workers)
    if how == "stopped":
        os.kill(before[0], signal.SIGSTOP)
    for _ in range(3):
        workers.sample()
    assert workers.get_health()["sys/worker_restarts"] == 1 and count_ended(before) == 1
    assert len(set(before) & set(pids(workers))) == 1
    assert all(word in caplog.text for word in words)


@pytest.mark.parametrize("how", ["raise", pytest.param("nan", marks=pytest.mark.slow)])
def test_an_environment_that_fails_once_is_replaced_in_its_process(how: str, make_workers: Any, tmp_path: Path) -> None:
    workers = make_workers(crash={"how": how, "at": 40, "once": str(tmp_path / "once")})
    before = pids(workers)
    batch = [workers.sample() for _ in range(3)][-1]
    assert torch.isfinite(batch.rewards).all()
    assert pids(workers) == before
    assert workers.get_health() == {"sys/worker_restarts": 0.0, "sys/env_restarts": 1.0}
    assert sorted(state["fragment"] for state in workers.state_dict().values()) == [3, 3]


def test_an_environment_that_keeps_failing_gets_another_process_and_then_the_run_ends(
    make_workers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Every environment fails in its 40th step, in its second fragment of 32; then the restarts are used up."""
    workers = make_workers(1, (0,), crash={"how": "raise", "at": 40}, max_restarts=1, max_env_restarts=0)
    with pytest.raises(EnvError) as error:
        for _ in range(9):
            workers.sample()
    assert "wheels came off" in caplog.text and "restart 1" in caplog.text
    words = r"^rollout process 0 \(workers 0\) failed: environment.*of worker 0 \(fragment.*seed 3.*after actions"
    assert re.search(rf"(?s){words}.*ArithmeticError: wheels came off.*max_restarts=1", str(error.value))
    assert "crashing.py" in str(error.value)  # with its traceback


@pytest.mark.slow
def test_replacing_a_process_that_leaks_changes_no_whole_episode(policy: PPO, make_workers: Any) -> None:
    options: dict[str, Any] = {"batch_mode": "complete_episodes"}
    local = WorkerSet(CARTPOLE, policy, [0], **{**OPTIONS, **options})
    probe = make_workers(1, (0,), **options)
    (memory,) = probe.foreach_worker(lambda worker: resident_mb())
    probe.stop()
    remote = make_workers(1, (0,), crash={"leak_mb": 1.0}, max_memory_mb=memory + 500.0, **options)
    for _ in range(12):
        assert_equal_fragments(local.sample(), remote.sample())
    assert remote.get_health()["sys/worker_restarts"] >= 1


def test_asynchronous_workers_go_on_while_a_dead_one_restarts(make_workers: Any) -> None:
    workers = make_workers(2, (0, 1))
    workers.submit_samples(2, 0)
    workers.next_sample()
    os.kill(pids(workers)[0], signal.SIGKILL)
    found = []
    while len(found) < 30 or workers.get_health()["sys/worker_restarts"] < 1:
        workers.submit_samples(2, 0)
        sample = workers.next_sample()
        found += [int(fragment.valid.sum()) for fragment in workers.fetch(sample)]
    assert all(steps > 0 for steps in found)
    states = workers.state_dict()
    assert min(state["fragment"] for state in states.values()) >= 1
