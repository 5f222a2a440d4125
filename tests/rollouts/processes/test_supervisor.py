"""Whatever happens to processes, each request is done once and in order, and no call waits for ever: virtual time."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_rl.config.groups import shipped_conf
from lightning_rl.errors import ConfigError, EnvApiError, EnvError
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.rollouts.processes.completion_queue import CompletionQueue
from lightning_rl.rollouts.processes.limits import Limits, limits_of
from lightning_rl.rollouts.processes.supervisor import ProcessReport, ProcessSlot, Request, Supervisor
from lightning_rl.schema.signatures import keywords_of
from tests.refusals import not_refused
from tests.rollouts.processes.fake_transport import FakeProcess, FakeTransport, Fate

DONE = Fate()


class Counting:
    """The object in a process: "sample" gives the next number of its worker."""

    memory_mb = 10.0

    def perform(self, method: str, *arguments: Any) -> tuple[Any, ProcessReport]:
        value = getattr(self, method)(*arguments)
        return value, ProcessReport({self.worker: self.next}, 0, self.memory_mb)

    def perform_in_place(self, method: str, *arguments: Any) -> tuple[Any, tuple[Any, ProcessReport]]:
        value, news = self.perform(method, *arguments)
        return f"fragment {value}", (value, news)

    def start(self, worker: int, next_number: int) -> None:
        self.worker, self.next = worker, next_number

    def sample(self, weights: int) -> tuple[int, int, int]:
        self.next += 1
        return self.worker, self.next - 1, weights

    def raises(self, error: Exception) -> None:
        raise error


class FakeWorkerSet:
    """The part of a worker set that uses the supervisor, without workers."""

    def __init__(self, count: int, fates: Any = DONE, limits: Limits | None = None, cls: Any = Counting) -> None:
        fate = fates if callable(fates) else lambda process, method, arguments: fates
        self.transport = FakeTransport(cls, fate)
        self.next: dict[Any, Any] = dict.fromkeys(range(count), 0)
        self.attempts: list[tuple[int, bool]] = []
        names = [f"process {number}" for number in range(count)]
        hooks = {"start_arguments": self._start_arguments, "on_report": self._on_report}
        self.supervisor = Supervisor(self.transport, names, limits or Limits(), **hooks)
        self.weights = 0
        self.requests = CompletionQueue(self.supervisor, self._request)

    def _start_arguments(self, process: ProcessSlot) -> tuple[int, int]:
        self.attempts.append((process.number, process.new_seeds))
        return process.number, self.next[process.number]

    def _on_report(self, report: ProcessReport) -> None:
        self.next.update(report.positions)

    def _request(self, number: int) -> Request:
        def arguments(request: Request) -> tuple[int]:
            self.requests.record_weights(request, self.weights)
            return (self.weights,)

        return Request(number, "sample", arguments, in_place=True, timed=True)

    def receive(self, in_order: bool = False) -> tuple[int, int, int]:
        """Worker, number and weights of the next sample."""
        request = self.requests.next_done(in_order)
        assert request is not None
        return request.value

    def sample(self, count: int, per_process: int = 1) -> list[int]:
        """The numbers of that many samples; requests are submitted before each of them."""
        numbers = []
        for _ in range(count):
            self.requests.fill(per_process)
            numbers.append(self.receive()[1])
        return numbers

    def call(self, process: int, method: str, argument: Any) -> Request:
        return self.supervisor.submit(Request(process, method, lambda _: (argument,)))

    def work(self) -> None:
        self.supervisor.work(lambda: False)

    @property
    def restarts(self) -> int:
        return self.supervisor.restarts


def start(*arguments: Any, **keywords: Any) -> FakeWorkerSet:
    workers = FakeWorkerSet(*arguments, **keywords)
    workers.supervisor.start()
    return workers


def one_by_one(*fates: Fate, otherwise: Fate = DONE) -> Any:
    """Fates of the requests to sample, in the order in which they are submitted."""
    left = list(fates)

    def fate(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
        return left.pop(0) if method == "sample" and left else otherwise

    return fate


def dies_over_every_sample(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
    """Fates of which those of worker 1's samples end its process."""
    return Fate("dies" if method == "sample" and process.object.worker == 1 else "done")


HALF = Limits(max_failures=2, min_healthy=0.5)


# -- one failure each -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["dies", "hangs", "dies after"])
def test_a_successor_does_the_requests_of_a_failed_process(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """A death between two requests is noticed at the second one."""
    workers = start(1, one_by_one(DONE, Fate(kind)))
    assert workers.sample(3) == [0, 1, 2]
    assert workers.restarts == 1 and len(workers.transport.processes) == 2
    assert workers.transport.processes[0].killed
    assert "process 0" in caplog.text and "restart 1" in caplog.text


def test_a_late_result_of_a_replaced_process_is_dropped() -> None:
    """The hanging process answers when it is killed; its successor does the same again."""
    slow = Fate("done", seconds=61.0, late=True)  # the deadline is 60 s, once one second is usual
    workers = start(1, one_by_one(DONE, slow))
    assert workers.sample(4) == [0, 1, 2, 3] and workers.restarts == 1


def test_the_first_sample_may_take_the_start_timeout_and_later_ones_a_multiple_of_the_usual_time() -> None:
    """250 s for the first sample are allowed, 61 s later are not: 1 s has become usual."""
    workers = start(1, one_by_one(Fate(seconds=250.0), *[DONE] * 40, Fate(seconds=61.0)))
    workers.sample(41)
    assert workers.restarts == 0
    workers.sample(1)
    assert workers.restarts == 1


def test_a_process_that_is_always_slow_is_not_replaced() -> None:
    """One of two takes a hundred times as long as the other."""
    fates = {0: DONE, 1: Fate(seconds=100.0)}
    workers = start(2, lambda process, method, arguments: fates[process.number] if method == "sample" else DONE)
    workers.sample(300)
    assert workers.restarts == 0


def test_a_repeated_deadline_is_longer_each_time() -> None:
    """Something that takes 100 s now, once 1 s was usual: given up after 60 s, done in the second attempt's 120 s."""
    workers = start(1, one_by_one(DONE, otherwise=Fate(seconds=100.0)), limits=Limits(start_timeout_s=1000.0))
    assert workers.sample(2) == [0, 1] and workers.restarts == 1


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(sample_timeout_s=7.0), r"took more than 7 s for sample.*workers\.sample_timeout_s=7: raise it, or set"),
        (Limits(start_timeout_s=90.0), r"took more than 90 s for sample.*workers\.start_timeout_s=90"),
    ],
)
def test_a_deadline_is_kept_and_named_by_its_key(
    limits: Limits, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    workers = start(1, one_by_one(Fate("hangs")), limits=limits)
    begun = workers.transport.seconds
    workers.sample(1)
    took = workers.transport.seconds - begun - 2.0  # 2 s: the second start and sample
    assert 0.0 <= took - (limits.sample_timeout_s or limits.start_timeout_s) <= 1.0
    assert re.search(message, caplog.text)


def test_time_between_calls_of_work_counts_as_no_hang() -> None:
    """The learner learns for an hour; the answers were there long before."""
    workers = start(2, limits=Limits(sample_timeout_s=5.0))
    workers.requests.fill(2)
    workers.transport.seconds += 3600.0
    assert sorted(workers.receive()[:2] for _ in range(4)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert workers.restarts == 0


def test_a_process_that_hangs_is_noticed_while_others_answer() -> None:
    def fate(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
        return Fate("hangs" if process.number == 0 and method == "sample" else "done")

    workers = start(2, fate, limits=Limits(sample_timeout_s=10.0))
    workers.sample(40)
    assert workers.restarts == 1 and workers.next[0] > 10


def test_a_process_that_is_waited_for_is_named_long_before_it_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    """Once for the request that hangs; 20 s are no news of a process whose requests take 10 s."""
    start(1, one_by_one(Fate(seconds=10.0), Fate(seconds=20.0), Fate("hangs"))).sample(3)
    slow, ended = (record.getMessage().splitlines()[0] for record in caplog.records)
    assert slow == "process 0 has taken 60 s for sample; it is ended after 240 s"
    assert ended.startswith("process 0 took more than 240 s for sample")


def test_a_failure_of_the_first_request_is_raised_at_once() -> None:
    """An environment that never worked is reported at once, without restarts."""
    workers = start(1)
    workers.call(0, "raises", EnvError("wheels came off"))
    for _ in range(2):  # and in every later call, as no result can come
        with pytest.raises(EnvError, match="wheels came off"):
            workers.work()
    assert len(workers.transport.processes) == 1


@pytest.mark.parametrize("error", [TypeError("add() takes 2 arguments"), EnvApiError("add() takes 2 arguments")])
def test_an_error_of_the_code_is_no_failure_of_a_process(error: Exception) -> None:
    workers = start(1)
    workers.sample(1)
    workers.call(0, "raises", error)
    with pytest.raises(type(error), match="takes 2"):
        workers.work()


def test_a_failing_environment_gets_another_process_and_its_error_ends_the_run_in_the_end() -> None:
    workers = start(1, limits=Limits(max_failures=3))
    workers.sample(1)
    workers.call(0, "raises", EnvError("wheels came off\n  line 7"))
    with pytest.raises(EnvError, match=r"(?s)^process 0 failed: wheels came off.*line 7.*max_failures.*min_healthy"):
        workers.work()
    assert len(workers.transport.processes) == 3
    assert workers.attempts == [(0, False), (0, True), (0, True)]  # what raised once is not begun in the same way


def test_a_request_is_repeated_with_the_same_seeds_until_three_deaths() -> None:
    """Three deaths over the same fragment are the fragment's fault."""
    workers = start(1, one_by_one(*[Fate("dies")] * 4))
    workers.sample(1)
    assert workers.attempts == [(0, False), (0, False), (0, False), (0, True), (0, True)]


def test_restarts_in_a_row_wait_twice_as_long_each_time() -> None:
    """0 + 2 + 4 + 8 s between the five attempts, each of which starts for 1 s and dies after 1 s."""
    limits = Limits(max_failures=6, restart_backoff_s=2.0)
    workers = start(1, one_by_one(*[Fate("dies")] * 4), limits=limits)
    begun = workers.transport.seconds
    workers.sample(1)
    assert workers.transport.seconds - begun == pytest.approx(5 + 4 + 14, abs=4 * 0.5)
    assert limits.backoff(100) == 60.0


def test_a_finished_request_ends_a_row_of_failures_but_max_restarts_counts_all() -> None:
    """Every second sample kills its process: no process fails twice in a row."""
    workers = start(1, one_by_one(*[DONE, Fate("dies")] * 6), limits=Limits(max_failures=2))
    workers.sample(12)
    assert workers.restarts == 6
    workers = start(1, one_by_one(*[DONE, Fate("dies")] * 6), limits=Limits(max_restarts=3))
    assert workers.sample(4) == [0, 1, 2, 3]
    with pytest.raises(EnvError, match=r"workers\.max_restarts=3"):
        workers.sample(1)


def test_reports_that_overtake_each_other_leave_the_newest_state() -> None:
    """Large results may come later than small ones that were requested after them."""
    workers = FakeWorkerSet(1, one_by_one(Fate(seconds=0.0), Fate(seconds=0.0), Fate("dies")))
    wait = workers.transport.wait
    workers.transport.wait = lambda timeout: wait(timeout)[::-1]  # type: ignore[method-assign]
    workers.supervisor.start()
    workers.requests.fill(2)
    assert [workers.receive()[1], workers.receive()[1], *workers.sample(1)] == [1, 0, 2]


def test_with_enough_healthy_processes_a_run_goes_on_without_one() -> None:
    def fate(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
        return Fate("dies" if method == "sample" and arguments == (13,) else "done")

    workers = start(2, fate, limits=HALF)
    workers.requests.fill(1)
    assert {workers.receive()[0] for _ in range(2)} == {0, 1}
    broken = workers.call(1, "sample", 13)
    workers.sample(10)
    assert broken.lost and workers.supervisor.healthy == [0]
    assert workers.call(1, "sample", 0).lost  # without waiting for it
    workers.call(0, "sample", 13)
    with pytest.raises(EnvError, match="0 of 2"):
        workers.work()


def test_a_start_that_fails_is_repeated_and_one_that_raises_is_not() -> None:
    fates = [Fate("dies"), Fate("hangs"), DONE]
    assert start(1, lambda process, method, arguments: fates.pop(0)).restarts == 2
    with pytest.raises(EnvError, match="wheels came off"):
        start(1, Fate("raises"))


def test_a_process_above_max_memory_mb_is_replaced_between_two_requests() -> None:
    """After 20, 30, 40 and 50 MiB; replacements for growing memory do not count as restarts."""

    class Leaking(Counting):
        def sample(self, weights: int) -> tuple[int, int, int]:
            self.memory_mb += 10.0
            return super().sample(weights)

    workers = start(1, limits=Limits(max_memory_mb=45.0, max_restarts=0), cls=Leaking)
    assert workers.sample(12, per_process=2) == [*range(12)]
    assert workers.supervisor.replacements == 3 and workers.restarts == 0
    with pytest.raises(ConfigError, match=r"max_memory_mb=15.0: process 0 .*20 MiB"):
        start(1, limits=Limits(max_memory_mb=15.0), cls=Leaking).sample(2)


# -- the oldest weights -----------------------------------------------------------------------------------------------
def test_the_oldest_weights_leave_out_a_process_that_waits_for_its_restart() -> None:
    workers = start(2, one_by_one(Fate("dies", seconds=1.0), Fate(seconds=3.0)))
    workers.weights = 5
    workers.requests.fill(1)
    workers.weights = 9
    assert workers.requests.oldest_gradient_steps == 5
    assert workers.receive() == (1, 0, 5)  # by then process 0 has died and begun again, with the newest weights
    assert workers.requests.oldest_gradient_steps == 9
    assert workers.receive() == (0, 0, 9)
    assert workers.requests.oldest_gradient_steps is None


def test_a_request_whose_process_died_has_no_weights_until_the_successor_is_up() -> None:
    """Process 0 dies after 1 s, its successor needs 10 s to start; process 1 acts with weights 5 until 3 s."""

    def fate(process: FakeProcess, method: str, arguments: Sequence[Any]) -> Fate:
        if method == "start":
            return Fate(seconds=10.0 if process.number > 1 else 1.0)
        return Fate("dies", 1.0) if process.number == 0 else Fate(seconds=3.0)

    workers = start(2, fate)
    workers.weights = 5
    workers.requests.fill(1)
    workers.weights = 9
    assert workers.receive() == (1, 0, 5)
    assert workers.requests.oldest_gradient_steps is None  # no process acts
    assert workers.receive() == (0, 0, 9)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("most", [1, 2, None])
def test_a_lost_sample_request_is_replaced_by_one_to_another_process(most: int | None, in_order: bool) -> None:
    """Process 1 dies over every sample, and is given up while its request is the only one."""
    workers = start(2, dies_over_every_sample, limits=HALF)
    workers.requests.fill(1, most)
    taken = [workers.receive(in_order)[:2]]
    if not workers.requests:
        workers.requests.fill(1, most)  # only process 1 waits for its turn
    taken.append(workers.receive(in_order)[:2])
    assert taken == [(0, 0), (0, 1)]
    assert workers.supervisor.healthy == [0]
    for number in range(2, 6):
        workers.requests.fill(2, most)
        assert workers.receive(in_order)[1] == number


def test_drain_waits_for_requests_in_flight_and_submits_none_for_a_lost_process() -> None:
    workers = start(2, dies_over_every_sample, limits=HALF)
    workers.requests.fill(2)
    workers.requests.drain()
    assert workers.next == {0: 2, 1: 0} and len(workers.requests) == 0
    workers.requests.drain()  # no request is in flight, so it returns at once
    assert workers.sample(1) == [2]


def test_in_order_gives_requests_in_the_order_of_submission() -> None:
    """The first one dies; its place is kept."""
    workers = start(3, one_by_one(Fate("dies"), Fate(seconds=2.0), Fate(seconds=0.5)))
    workers.requests.fill(1)
    assert [workers.receive(in_order=True)[0] for _ in range(3)] == [0, 1, 2]


def test_a_successor_does_not_repeat_cancelled_requests() -> None:
    """The first of the cancelled ones was done, the second died; the third request is the one that is received."""
    workers = start(1, one_by_one(DONE, Fate("dies")))
    workers.requests.fill(2)
    workers.requests.cancel()
    assert workers.sample(1) == [1] and len(workers.requests) == 0


def test_work_raises_if_no_process_has_a_request() -> None:
    workers = start(1)
    with pytest.raises(RuntimeError, match="request"):
        workers.work()
    assert not workers.requests.has_done()
    workers.supervisor.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        workers.work()


def test_a_stopping_run_waits_seconds_only_for_a_process_that_hangs() -> None:
    workers = start(1, one_by_one(Fate("hangs")))
    workers.supervisor.stopping = lambda: workers.transport.seconds >= 20.0
    with pytest.raises(KeyboardInterrupt, match="8 s"):
        workers.sample(1)
    assert 28.0 <= workers.transport.seconds <= 29.0


def test_limits_out_of_range_are_refused() -> None:
    cases = [
        ({"max_restarts": -1}, "max_restarts=-1"),
        ({"max_failures": 0}, "max_failures=0"),
        ({"min_healthy": 0.0}, "min_healthy=0.0"),
        ({"min_healthy": 1.1}, "min_healthy=1.1"),
        ({"sample_timeout_s": 0.0}, "sample_timeout_s=0.0; expected a number above 0, or null"),
        ({"start_timeout_s": 0.0}, "start_timeout_s=0.0; expected a number above 0"),
        ({"step_timeout_s": math.nan}, "step_timeout_s=nan"),
        ({"step_timeout_s": 1.0, "num_workers": 0}, "num_workers=0"),
    ]
    assert not_refused(lambda options: limits_of({"num_workers": 2, **options}), cases) == []


def test_the_config_has_the_defaults_of_limits() -> None:
    written = yaml.safe_load((shipped_conf() / "workers" / "default.yaml").read_text(encoding="utf-8"))
    for each in fields(Limits):
        assert written[each.name] == each.default, each.name
    assert written["max_env_restarts"] == keywords_of(RolloutWorker)["max_env_restarts"].default


# -- all at random ----------------------------------------------------------------------------------------------------
FATES = st.builds(
    Fate, st.sampled_from(["done"] * 6 + ["dies", "dies after", "hangs", "raises"]), st.floats(0.0, 3.0), st.booleans()
)


@settings(max_examples=300, deadline=None)
@given(
    fates=st.lists(FATES, max_size=40),
    count=st.integers(1, 4),
    limit=st.integers(1, 3),
    most=st.sampled_from([None, 1, 2, 5]),
    ahead=st.booleans(),
    in_order=st.booleans(),
    limits=st.builds(
        Limits,
        max_restarts=st.integers(0, 12),
        max_failures=st.sampled_from([1, 1, 2, 4]),  # 1: given up at the first failure
        min_healthy=st.sampled_from([0.25, 0.25, 0.5, 1.0]),
        sample_timeout_s=st.sampled_from([None, 4.0]),
        start_timeout_s=st.just(30.0),
    ),
)
def test_whatever_fails_every_request_is_done_once_and_in_order(
    fates: list[Fate], count: int, limit: int, most: int | None, ahead: bool, in_order: bool, limits: Limits
) -> None:
    """Each worker's numbers are 0, 1, 2, … as received, or the run ends with a reason that is true."""
    left = list(fates)
    workers = FakeWorkerSet(count, lambda process, method, arguments: left.pop(0) if left else Fate(), limits)
    workers.transport.patience_s = 60 * 60.0
    numbers: dict[int, list[int]] = defaultdict(list)
    ended = None
    try:
        workers.supervisor.start()
        for _ in range(60):
            if ahead or not workers.requests:
                workers.requests.fill(limit, most)
            assert len(workers.requests) <= min(limit * count, limit * count if most is None else most)
            worker, number, _ = workers.receive(in_order)
            numbers[worker].append(number)
    except EnvError as error:
        ended = error
    assert all(found == list(range(len(found))) for found in numbers.values())
    alive = [process for process in workers.transport.processes if not process.killed]
    assert len(alive) <= count
    assert workers.restarts <= limits.max_restarts
    assert workers.transport.seconds < 60 * 60  # no deadline is longer than minutes
    if ended is None:
        assert sum(map(len, numbers.values())) == 60
        assert len(workers.supervisor.healthy) >= limits.least_healthy(count)
    elif "max_restarts" in str(ended):
        assert workers.restarts == limits.max_restarts
    elif "min_healthy" in str(ended):
        assert len(workers.supervisor.healthy) < limits.least_healthy(count)
    else:
        assert str(ended) == "wheels came off"  # in the first request of a process
        assert any(process.served == 0 for process in workers.supervisor.processes)
