"""RankWatch: a process whose run has lost a rank is interrupted, and killed if that fails."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from lightning_rl.errors import RankError
from lightning_rl.runs import rank_watch
from lightning_rl.runs.rank_watch import RankWatch, describe_exit


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_watch, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(rank_watch, "UNWIND_SECONDS", 0.1)


def test_a_process_that_waits_for_something_else_is_woken_with_the_reason() -> None:
    with pytest.raises(RankError, match="rank 3"), RankWatch(lambda: "rank 3 is gone"):
        threading.Event().wait(60)
        pytest.fail("it was not woken")


def test_the_rank_watch_does_not_act_while_all_ranks_live() -> None:
    """And the handler of before is back afterwards."""
    looks, before = threading.Semaphore(0), signal.getsignal(rank_watch.WAKE)
    with RankWatch(looks.release) as watch:
        assert signal.getsignal(rank_watch.WAKE) != before
        assert all(looks.acquire(timeout=30) for _ in range(3))
    assert watch.failure is None and signal.getsignal(rank_watch.WAKE) == before


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
