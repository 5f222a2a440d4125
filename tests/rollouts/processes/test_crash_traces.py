from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from lightning_rl.rollouts.processes.crash_traces import LONGEST, CrashTraces, crash_summary

CRASH = """
import ctypes, faulthandler, sys, threading, time
import numpy.linalg, numpy.random, torch
faulthandler.enable(open(sys.argv[1], "w"))
for _ in range(40):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
def broken_environment(depth):
    return broken_environment(depth - 1) if depth else ctypes.string_at(0)
broken_environment(20)
"""


@pytest.fixture
def traces() -> Iterator[CrashTraces]:
    traces = CrashTraces()
    yield traces
    traces.remove()


def test_a_crash_keeps_the_error_and_the_calls_of_the_crashed_thread(traces: CrashTraces) -> None:
    file = traces.file(0)
    subprocess.run([sys.executable, "-c", CRASH, str(file)], check=False, timeout=60)
    written = file.read_text()
    assert len(written) > LONGEST and "Extension modules" in written  # else the test shows nothing
    shown = traces.take(0)
    assert shown.startswith("\nFatal Python error: Segmentation fault\n")
    assert shown.count("in broken_environment") == 21 and "string_at" in shown
    assert "Extension modules" not in shown and "threading.py" not in shown
    assert traces.take(0) == "" and not file.exists()


def test_a_timeout_keeps_the_innermost_call_of_a_long_traceback() -> None:
    text = "its environments took more than 2 s; it was here:\n" + "  a call\n" * LONGEST + "  the innermost call\n"
    assert crash_summary(text).endswith("the innermost call") and len(crash_summary(text)) <= LONGEST


def test_a_fatal_error_without_threads_is_shown_as_it_is() -> None:
    assert crash_summary("Fatal Python error: Aborted\n") == "Fatal Python error: Aborted"
