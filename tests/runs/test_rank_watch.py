"""RankWatch: a process whose run has lost a rank is interrupted, and killed if that fails."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

import pytest

from lightning_rl.errors import RankError
from lightning_rl.runs import rank_watch
from lightning_rl.runs.rank_watch import RankWatch, describe_exit


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_watch, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(rank_watch, "UNWIND_SECONDS", 0.1)


def test_a_process_that_waits_for_something_else_is_woken_with_the_reason() -> None:
    started = time.monotonic()
    with pytest.raises(RankError, match="rank 3"), RankWatch(lambda: "rank 3 is gone"):
        time.sleep(60)
    assert time.monotonic() - started < 20


def test_the_rank_watch_does_not_act_while_all_ranks_live() -> None:
    calls: list[int] = []
    with RankWatch(lambda: calls.append(1)) as watch:
        while len(calls) < 3:
            time.sleep(0.01)
    assert watch.failure is None


def test_the_handler_of_before_is_back_afterwards() -> None:
    import signal

    before = signal.getsignal(rank_watch.WAKE)
    with RankWatch(lambda: None):
        assert signal.getsignal(rank_watch.WAKE) != before
    assert signal.getsignal(rank_watch.WAKE) == before


def test_a_process_that_no_signal_reaches_is_ended_with_its_last_words() -> None:
    program = """
        import signal, time
        from lightning_rl.runs import rank_watch
        rank_watch.UNWIND_SECONDS = rank_watch.HARD_SECONDS = 0.1
        with rank_watch.RankWatch(lambda: "rank 1 is gone", lambda found: print("noted:", found, flush=True)):
            signal.pthread_sigmask(signal.SIG_BLOCK, {rank_watch.WAKE})  # as a call into C would
            time.sleep(600)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (1, "noted: rank 1 is gone\n", "error: rank 1 is gone\n")


def test_the_rank_watch_describes_how_a_rank_ended() -> None:
    assert describe_exit(2, 77, -9) == "rank 2 (process 77) was killed by SIGKILL"
    assert describe_exit(2, 77, 3) == "rank 2 (process 77) ended with exit code 3"
