"""Gymnasium's asynchronous vector environment, which neither waits forever nor leaves processes behind."""

from __future__ import annotations

import pickle
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import _async_worker

from lightning_rl.envs.infos import add_info, join_infos, sendable
from lightning_rl.errors import EnvError

__all__ = ["AsyncEnv"]

CLOSING_S = 10.0  # that an environment has for its last step and for `close`


class AsyncEnv(AsyncVectorEnv):
    """`AsyncVectorEnv` that can be closed at any time, takes any infos, and says which process has died.

    Observations are overwritten by the next step: the caller copies what it keeps.

    Args:
        creators: functions that create the environments.
        autoreset_mode: what happens after an episode's end.
    """

    def __init__(self, creators: Sequence[Callable[[], gym.Env[Any, Any]]], autoreset_mode: AutoresetMode) -> None:
        with self._named_deaths():
            super().__init__(
                [partial(_Sending, creator) for creator in creators],
                autoreset_mode=autoreset_mode,
                context="forkserver",  # forking a process that already runs threads (torch, Ray) can deadlock the child
                copy=False,
                worker=_run_env,
            )

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments.

        Raises:
            EnvError: the process of one has died.
        """
        with self._named_deaths():
            obs, infos = super().reset(seed=seed, options=options)
        return obs, join_infos(infos, self.num_envs)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments, and reset those whose episode ended in the last step.

        Raises:
            EnvError: the process of one has died.
        """
        with self._named_deaths():
            obs, rewards, terminated, truncated, infos = super().step(actions)
        return obs, rewards, terminated, truncated, join_infos(infos, self.num_envs)

    def close_extras(self, timeout: float | None = CLOSING_S, terminate: bool = False) -> None:
        """Let each environment take its last step and close; kill the processes that take longer.

        Args:
            timeout: seconds for all of them together; `None`: `CLOSING_S`.
            terminate: kill them at once.
        """
        seconds = 0.0 if terminate else CLOSING_S if timeout is None else timeout
        deadline = time.monotonic() + seconds
        pipes = [pipe for pipe in self.parent_pipes if pipe is not None]
        for pipe in pipes:
            with suppress(OSError):  # its process has ended
                pipe.send(("close", None))
        for pipe in pipes:
            with suppress(EOFError, OSError):
                while pipe.poll(max(0.0, deadline - time.monotonic())):
                    pipe.recv_bytes()  # of the call that nothing waits for any more
            pipe.close()
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()

    def _add_info(self, vector_infos: dict[Any, Any], env_info: Any, env_num: int) -> dict[Any, Any]:
        """Collect the infos for `join_infos`."""
        return add_info(vector_infos, env_info, env_num)

    @contextmanager
    def _named_deaths(self) -> Iterator[None]:
        """Name the environments whose processes have ended, where Gymnasium only says that a pipe has."""
        try:
            yield
        except (EOFError, ConnectionError) as error:
            for process in self.processes:
                process.join(1.0 / len(self.processes))  # an exit code comes a little after the end of the pipe
            codes = {index: process.exitcode for index, process in enumerate(self.processes)}
            ended = ", ".join(f"{index} (exit code {code})" for index, code in codes.items() if code is not None)
            raise EnvError(f"the process of sub-environment {ended or 'unknown'} has ended") from error


class _Sending(gym.Wrapper[Any, Any, Any, Any]):
    """Makes what an environment gives and raises fit to be sent to another process.

    Args:
        creator: the creator of the environment.
    """

    def __init__(self, creator: Callable[[], gym.Env[Any, Any]]) -> None:
        super().__init__(creator())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As the environment."""
        try:
            obs, info = self.env.reset(seed=seed, options=options)
        except Exception as error:
            if _arrives(error):
                raise
            raise EnvError(f"{type(error).__name__}: {error}") from error
        return obs, sendable(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As the environment."""
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
        except Exception as error:
            if _arrives(error):
                raise
            raise EnvError(f"{type(error).__name__}: {error}") from error
        return obs, reward, terminated, truncated, sendable(info)


def _arrives(error: Exception) -> bool:
    """Whether an error reaches the training process: Gymnasium pickles it, and calls its class with it.

    The training process would wait forever for one that cannot be pickled.
    """
    try:
        type(error)(pickle.loads(pickle.dumps(error)))
    except Exception:  # of the error's own code
        return False
    return True


def _run_env(*arguments: Any) -> None:
    """Gymnasium's loop of one environment's process."""
    # Ctrl-C reaches every process of a terminal; the training process still needs the environments for its iteration.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(ConnectionError):  # the training process has ended, or reads no more
        _async_worker(*arguments)
