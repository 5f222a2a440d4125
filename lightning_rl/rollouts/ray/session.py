"""The Ray session of a run: starting, stopping, and waiting for results with a time limit."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psutil  # Ray has it with it
import ray
from ray._private import ray_constants
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from lightning_rl.errors import ConfigError, EnvError
from lightning_rl.rollouts.ray.guard import start_guard

__all__ = ["first_ready", "get_results", "is_ready", "kill_actors", "start_ray", "stop_ray", "translate_task_error"]

CONNECT_TIMEOUT_S = 20.0
GRACE_S = 1.0  # for processes that a session started, to end with it
ANSWER_TIMEOUT_S = 1800.0  # for actors without a supervisor; saving a large buffer takes minutes

_guards: list[subprocess.Popen[bytes] | None] = []  # of the session of this process
_users: list[str] = []  # the address of the session that `start_ray` began, once for each `stop_ray` to come


def start_ray(num_workers: int, address: str = "local", **options: Any) -> bool:
    """Start a Ray session private to this run, unless this process has one or `address` names a cluster.

    Args:
        num_workers: processes that will be started.
        address: "local" for a private session, "auto" or host:port to join a cluster.
        options: more keywords of `ray.init`.

    Returns:
        Whether the caller must call `stop_ray`, which ends the session after its last user; False in a session that
            was started elsewhere.

    Raises:
        ConfigError: there is no cluster at that address.
    """
    if ray.is_initialized():
        _users.extend(_users[:1])
        return bool(_users)
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error", "configure_logging": True}
    if address == "local":
        ray_constants.ENABLE_RAY_CLUSTER = False  # listen on loopback only, also where Ray was imported before
        quiet["num_cpus"] = max(os.cpu_count() or 1, num_workers + 1)  # never wait for a core that a worker holds
        quiet["object_store_memory"] = 512 * 2**20
    try:
        _check_reachable(address)
        _users[:] = [address]
        with defer_signals():
            ray.init(address=address, **{**quiet, **options})
    except OSError as error:  # ConnectionError and TimeoutError are such
        if address == "local":
            raise
        raise ConfigError(
            f"workers.ray.address={address}: no Ray cluster answers there ({error}): start one with "
            "`ray start --head`, or leave workers.ray.address=local"
        ) from error
    except SystemExit:  # while it starts, Ray lets SIGTERM end the program
        stop_ray()
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGTERM)  # the handler from before is installed again
        raise
    except BaseException:  # a deferred signal
        stop_ray()
        raise
    _guards.append(start_guard())
    return True


def _check_reachable(address: str) -> None:
    """Raise at once if no server is at host:port; Ray itself waits for minutes, and then ends the process."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()


def stop_ray() -> None:
    """End the session, unless others use it.

    That includes Ray's agents that have only just started and would stay for another minute.
    """
    if len(_users) > 1:
        _users.pop()
        return
    with defer_signals():
        while _guards:
            if (guard := _guards.pop()) is not None:
                guard.kill()
                guard.wait()
        private = "local" in _users  # the processes of a cluster that was joined stay, also if this one started it
        _users.clear()
        raylets = [child for child in psutil.Process().children() if private and child.name() == "raylet"]
        started = [process for raylet in raylets for process in raylet.children(recursive=True)]
        ray.shutdown()
        for process in psutil.wait_procs(started, timeout=GRACE_S)[1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


@contextmanager
def defer_signals() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM to the end of the block: an interrupted Ray crashes or leaves processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {each: signal.signal(each, lambda *of: received.append(of[0])) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for each in received:
            signal.raise_signal(each)


def get_results(references: Sequence[Any], name: str, remedy: str, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Any]:
    """The results under these references of the object store; waits for them.

    Args:
        references: the references of the store.
        name, remedy: the process that computes the results, and advice if it died, for the error message.
        timeout_s: longest wait, seconds.

    Raises:
        EnvError: an environment failed there (with the worker's own traceback), the process died, or it does not
            answer.
    """
    try:
        return list(ray.get(list(references), timeout=timeout_s))
    except RayTaskError as error:
        raise translate_task_error(error) from error
    except RayActorError as error:
        raise EnvError(f"the process of {name} died: {error}. If it was killed for memory, {remedy}") from error
    except GetTimeoutError as error:
        raise EnvError(f"{name} has not answered for {timeout_s:.0f} s: it hangs, or is too slow") from error


def first_ready(references: Sequence[Any], name: str, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
    """The first of the references with a result; waits for it. The cost grows with their number.

    Args:
        references: at least one.
        name, timeout_s: see `get_results`.

    Raises:
        EnvError: none is ready after `timeout_s`.
    """
    ready, _ = ray.wait(list(references), num_returns=1, timeout=timeout_s, fetch_local=False)
    if not ready:
        raise EnvError(f"no {name} has answered for {timeout_s:.0f} s: they hang, or are too slow")
    return ready[0]


def translate_task_error(error: RayTaskError) -> BaseException:
    """The error that a process raised; errors of the package come as themselves, with the traceback in the message."""
    if isinstance(error.cause, EnvError | MemoryError):
        return type(error.cause)(f"{error.cause}\n{error}")
    return error


def is_ready(reference: Any) -> bool:
    """Whether the result under a reference is there, so that `get_results` does not wait."""
    return bool(ray.wait([reference], timeout=0, fetch_local=False)[0])


def kill_actors(actors: Sequence[Any]) -> None:
    """Kill the processes of actors."""
    for actor in actors:
        ray.kill(actor)
