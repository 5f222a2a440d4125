"""An asynchronous vector environment ends, whatever its environments do."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from gymnasium.vector import AutoresetMode

from lightning_rl.envs.async_vector_env import AsyncEnv
from lightning_rl.errors import EnvError
from tests.envs.odd_infos import Failing

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning")  # Gymnasium prints the errors of its processes


@contextmanager
def failing(how: str) -> Iterator[AsyncEnv]:
    """Two environments after two steps, the second of which fails in the next."""
    env = AsyncEnv([partial(Failing, each) for each in ("", how)], AutoresetMode.NEXT_STEP)
    try:
        env.reset(seed=0)
        for _ in range(2):
            env.step([0, 0])
        yield env
    finally:
        env.close(timeout=0.2)
        assert not any(process.is_alive() for process in env.processes)


@pytest.mark.parametrize("how", ["with an error of two arguments", "with an error that holds a function"])
def test_an_error_that_cannot_be_pickled_arrives_with_its_text(how: str) -> None:
    with failing(how) as env, pytest.raises(EnvError, match=r"wheels.*came off"):
        env.step([0, 0])


def test_a_killed_process_is_named_with_its_exit_code() -> None:
    with failing("by being killed") as env, pytest.raises(EnvError, match=r"1 \(exit code -9\)"):
        env.step([0, 0])


@pytest.mark.parametrize("how", ["", "by waiting"])
def test_it_can_be_closed_while_a_call_is_pending(how: str) -> None:
    with failing(how) as env:
        env.step_async([0, 0])


def test_ctrl_c_does_not_end_the_environments_of_a_run() -> None:
    """A terminal sends it to all processes; the run needs the environments to end its iteration."""
    with failing("") as env:
        for process in env.processes:
            os.kill(process.pid or 0, signal.SIGINT)
        env.step([0, 0])
