"""Worker sets on a `FakeTransport`: no real processes, and a clock that only moves when the set waits."""

from __future__ import annotations

import faulthandler
import itertools
from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.rollouts.processes.process_worker_set import ProcessWorkerSet
from lightning_rl.rollouts.processes.rollout_process import RolloutProcess
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.processes.fake_transport import FakeProcess, FakeTransport, Fate

OPTIONS: dict[str, Any] = {"num_envs": 2, "fragment_length": 16, "seed": 3}
PATIENT = Limits(max_restarts=1000, max_failures=1000)


STARTED: list[ProcessWorkerSet] = []  # by the running test


@pytest.fixture(autouse=True)
def own_faulthandler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The processes are objects in this one, whose crashes pytest wants to report; stops the test's sets at the end."""
    monkeypatch.setattr(faulthandler, "enable", lambda file: None)
    yield
    while STARTED:
        STARTED.pop().stop()


def random_deaths(seed: int, share: float, kinds: Sequence[str] = ("dies", "hangs", "dies after")) -> Any:
    """Fates of which that share ends the process."""
    random = np.random.default_rng(seed)

    def fate(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
        ends = random.random() < share
        return Fate(str(random.choice(kinds)) if ends else "done", float(random.uniform(0.5, 2.0)), bool(ends))

    return fate


def fake_worker_set(policy: Any, fate: Any, indices: Sequence[int] = (0, 1, 2), **options: Any) -> ProcessWorkerSet:
    keywords: dict[str, Any] = {"num_workers": 2, "limits": PATIENT, **OPTIONS, **options}
    STARTED.append(ProcessWorkerSet(FakeTransport(RolloutProcess, fate), CARTPOLE, policy, list(indices), **keywords))
    return STARTED[-1]


def kill_worker_1(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
    """A fate in which every call and every sample of worker 1 kills its process."""
    return Fate("dies" if method in ("call_worker", "sample") and arguments[0] in (1, [1]) else "done")


def nth(kind: str, numbers: Container[int], method: str | None = None) -> Any:
    """Fates of which those of the requests (of a method) with these numbers, counted from 0, are of that kind."""
    count = itertools.count()

    def fate(process: FakeProcess, called: str, arguments: Sequence[Any]) -> Fate:
        return Fate(kind if method in (None, called) and next(count) in numbers else "done")

    return fate
