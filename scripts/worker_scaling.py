"""What one driver spends on each fragment: measured with real processes, and simulated for up to 1,000 workers.

python scripts/worker_scaling.py real        # two Ray processes that give canned fragments
python scripts/worker_scaling.py simulated   # the bookkeeping alone, without processes, in virtual time
python scripts/worker_scaling.py model --small-ms 0.6 --large-ms 1.1 --ms-per-mb 0.15   # the table of docs/scaling.md

Times are CPU time of the driver process, so that other load on the machine matters little; of all its threads, Ray's
among them, and of the one that drives, which is what limits the fragments that one driver can take.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.policies import PPO
from lightning_rl.rollouts.processes.completion_queue import CompletionQueue
from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.rollouts.processes.process_worker_set import SMALL_BYTES, ProcessWorkerSet
from lightning_rl.rollouts.processes.rollout_process import RolloutProcess
from lightning_rl.rollouts.processes.supervisor import ProcessReport, Request, Supervisor
from lightning_rl.rollouts.processes.transport import Outcome
from lightning_rl.sample_batch import SampleBatch

MB = 1e6
SIZES = {"CartPole": 18_000, "Humanoid": 700_000, "Atari": 2_800_000}  # bytes of a fragment of 400 steps
STEP_BYTES = {"CartPole": 46, "Humanoid": 1_700, "Atari, one frame": 7_100, "Atari, four stacked": 28_300}


# -- real processes ---------------------------------------------------------------------------------------------------
class CannedProcess(RolloutProcess):
    """Gives the same fragment again and again."""

    def start(self, recipe: Any, indices: Sequence[int], *more: Any) -> None:
        self.indices, self.canned = list(indices), SampleBatch()

    def make(self, nbytes: int) -> None:
        """The fragment: most of it observations, some columns of numbers."""
        steps = 400
        obs = np.zeros((steps + 1, 1, max(1, (nbytes - 30 * steps) // (steps + 1))), np.uint8)
        columns = {name: np.zeros((steps, 1), np.float32) for name in ("rewards", "action_logp", "vf_preds")}
        flags = {name: np.ones((steps, 1), bool) for name in ("terminated", "truncated", "valid")}
        self.canned = SampleBatch(obs=obs, actions=np.zeros((steps, 1), np.int64), **columns, **flags)

    def sample(self, indices: Sequence[int], *acting: Any) -> tuple[list[Any], list[Any]]:
        metrics: dict[str, Any] = {"episode_returns": [], "episode_lengths": []}
        return [self.canned] * len(indices), [(index, 400, self.canned.nbytes, metrics) for index in indices]

    def _report(self) -> ProcessReport:
        return ProcessReport({index: {"fragment": 0, "env_steps": 0} for index in self.indices}, 0, 0.0)


def real(fragments: int, repeats: int) -> dict[str, float]:
    """Milliseconds of CPU a fragment, by size, in all threads: requested, received, and brought here as tensors."""
    from lightning_rl.rollouts.ray.session import start_ray, stop_ray
    from lightning_rl.rollouts.ray.transport import RayTransport

    start_ray(2)
    env = EnvCreator("CartPole-v1")
    policy = PPO(*env.spaces())
    workers = ProcessWorkerSet(RayTransport(CannedProcess), env, policy, [0, 1], num_workers=2)
    workers.sync_weights(policy)

    def brought() -> None:
        workers.submit_samples(2, 0)
        workers.fetch(workers.next_sample())

    found = {}
    for name, nbytes in SIZES.items():
        workers._call_all("make", lambda request, nbytes=nbytes: (nbytes,))
        for _ in range(100):
            brought()
        own = cpu_ms(brought, fragments, time.thread_time)
        found[name] = statistics.median(cpu_ms(brought, fragments) for _ in range(repeats))
        print(f"{name:10} {nbytes / MB:6.3f} MB  {found[name]:6.3f} ms a fragment, {own:.3f} of it here", flush=True)
    workers.stop()
    stop_ray()
    slope = (found["Atari"] - found["Humanoid"]) / ((SIZES["Atari"] - SIZES["Humanoid"]) / MB)
    large = found["Humanoid"] - slope * SIZES["Humanoid"] / MB
    print(f"small ones {found['CartPole']:.2f} ms, large ones {large:.2f} ms + {slope:.2f} ms/MB")
    return found


def cpu_ms(do: Callable[[], Any], times: int, clock: Callable[[], float] = time.process_time) -> float:
    """CPU time for each call, milliseconds: of this process, or by another clock."""
    begun = clock()
    for _ in range(times):
        do()
    return 1000 * (clock() - begun) / times


# -- simulated workers ------------------------------------------------------------------------------------------------
class SteadyTransport:
    """Processes that do each request in a second, on a clock that only moves in `wait`.

    All take equally long, so requests end in the order of submission: the transport itself costs the same for any
    number of processes, and a difference is the supervisor's.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.processes = 0
        self._ends: deque[tuple[float, int, Any]] = deque()
        self._report = ProcessReport({}, 0, 0.0)

    def now(self) -> float:
        return self.seconds

    def start(self) -> int:
        self.processes += 1
        return self.processes

    def submit(self, process: int, token: int, method: str, arguments: Sequence[Any], in_place: bool) -> Any:
        self._ends.append((self.seconds + 1.0, token, [(process, 400, 18_000, {})]))
        return token

    def wait(self, timeout: float) -> list[Outcome]:
        if not self._ends or self._ends[0][0] > self.seconds + timeout:
            self.seconds += timeout
            return []
        at, token, value = self._ends.popleft()
        self.seconds = max(self.seconds, at) + 1e-9
        return [Outcome(token, (value, self._report), None, at)]

    def kill(self, process: int) -> None: ...


def simulated_requests(count: int) -> Callable[[], Request | None]:
    """What takes the next fragment from `count` workers with two requests each, after some rounds of all of them."""
    names = [f"process {number}" for number in range(count)]
    supervisor = Supervisor(
        SteadyTransport(),
        names,
        Limits(),
        start_arguments=lambda process: (process.number,),
        on_report=lambda report: None,
    )

    def arguments(request: Request) -> tuple[int, int]:
        requests.record_weights(request, 7)
        return request.process_number, 7

    requests = CompletionQueue(supervisor, lambda n: Request(n, "sample", arguments, in_place=True, timed=True))
    supervisor.start()
    requests.fill(1)  # then staggered, so that fragments come one by one as in a run that lasts
    for _ in range(count):
        requests.next_done()
        requests.fill(2)

    def take() -> Request | None:
        requests.fill(2)
        return requests.next_done()

    for _ in range(3 * count):
        take()
    return take


def simulated(fragments: int, repeats: int) -> dict[int, float]:
    """Microseconds of CPU a fragment, by number of workers; the least of several measurements."""
    found = {}
    for count in (10, 30, 100, 300, 1000):
        take = simulated_requests(count)
        gc.collect()
        gc.freeze()
        found[count] = 1000 * min(cpu_ms(take, fragments) for _ in range(repeats))
        print(f"{count:5} workers: {found[count]:6.2f} µs a fragment", flush=True)
    print(f"from 10 to 1000 workers: × {found[1000] / found[10]:.2f}")
    return found


def calls(count: int, fragments: int = 2000) -> int:
    """Function calls that the bookkeeping makes for that many fragments: a cost without a clock."""
    take, made = simulated_requests(count), 0

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        for _ in range(fragments):
            take()
    finally:
        sys.setprofile(None)
    return made


# -- the model --------------------------------------------------------------------------------------------------------
def rows(small_ms: float, large_ms: float, ms_per_mb: float) -> list[str]:
    """The table of docs/scaling.md: how many cores the drivers of that many workers need.

    Args:
        small_ms: the small ms of a fragment that is small enough to come along with what is told about it.
        large_ms, ms_per_mb: the large ms and ms per mb of one that goes through the object store.
    """
    found = []
    for what, workers, speed, steps in (
        ("CartPole", 100, 1000, 400),
        ("CartPole", 1000, 1000, 400),
        ("CartPole", 1000, 1000, 2000),
        ("Humanoid", 1000, 200, 400),
        ("Atari, one frame", 100, 1000, 400),
        ("Atari, one frame", 1000, 1000, 400),
        ("Atari, four stacked", 1000, 1000, 400),
    ):
        fragments, megabytes = workers * speed / steps, STEP_BYTES[what] * steps / MB
        small = megabytes * MB <= SMALL_BYTES
        cores = fragments * (small_ms if small else large_ms + ms_per_mb * megabytes) / 1000
        found.append(
            f"| {what} | {workers:,} | {speed:,} | {steps:,} | {megabytes:.2f} MB | {fragments:,.0f} | "
            f"{fragments * megabytes:,.0f} MB | {cores:.2f} | {cores / 8:.2f} |"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["real", "simulated", "model"])
    parser.add_argument("--fragments", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small-ms", type=float, default=0.6)
    parser.add_argument("--large-ms", type=float, default=1.1)
    parser.add_argument("--ms-per-mb", type=float, default=0.15)
    options = parser.parse_args()
    started = time.perf_counter()
    if options.what == "real":
        real(options.fragments, options.repeats)
    elif options.what == "simulated":
        simulated(10 * options.fragments, options.repeats)
    else:
        print("\n".join(rows(options.small_ms, options.large_ms, options.ms_per_mb)))
        return
    print(f"{time.perf_counter() - started:.0f} s; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
