"""Handles Ctrl-C and SIGTERM: the first one ends a run after its iteration, with a checkpoint; the second one at once.

Before and after training, each of them ends the command at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any, Self

__all__ = ["INTERRUPTED", "HardStop", "Interrupts", "StopSignals"]

INTERRUPTED = 130  # exit code of a run that a signal ended: 128 + SIGINT, as in shells

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class HardStop(KeyboardInterrupt):
    """The user stops the run at once: nothing that takes time, such as saving, may be done."""


class Interrupts:
    """Context in which SIGTERM acts like Ctrl-C, and which records that a signal came.

    The interrupted code may raise another exception than KeyboardInterrupt, such as a parser's; so test `received`.
    Does nothing outside the main thread, and does not handle signals that the process was started to ignore.

    Attributes:
        received: the first signal's number; `None` if none came.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}
        self._process = os.getpid()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum in SIGNALS:
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    self._before[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a forked environment process ends normally
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
            return
        self.received = self.received or signum
        raise KeyboardInterrupt(f"stopped by {signal.Signals(signum).name}")


class StopSignals:
    """Context that catches SIGINT and SIGTERM: `with StopSignals() as signals: … StopCallback(signals=signals)`.

    While `deferring`, the first signal is only recorded (the stop callback sets it during training and reads `received`
    after each iteration). A second signal, or one outside of training, raises `HardStop` at once. Does nothing outside
    the main thread, where Python allows no handlers.

    Args:
        signals: the signals to catch.
        answer: what the first one prints while `deferring`.

    Attributes:
        received: the first signal's number; `None` if none came.
        deferring: whether the stop callback reads `received` after each iteration.
    """

    def __init__(
        self, signals: Sequence[int] = SIGNALS, answer: str = "stopping after this iteration, then saving a checkpoint"
    ) -> None:
        self.signals, self._answer = signals, f"\n{answer}; Ctrl-C again stops at once\n".encode()
        self.received: int | None = None
        self.deferring = False
        self._before: dict[int, Any] = {}
        self._process = os.getpid()

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, *error: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before = {}

    def install(self) -> None:
        """Install the handlers, also over those of Lightning and Ray, which handle SIGTERM when they start."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._process = os.getpid()
        for signum in self.signals:
            previous = signal.signal(signum, self._handle)
            if previous != self._handle:
                self._before.setdefault(signum, previous)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            self._handle_in_child(signum)
            return
        if self.received is not None or not self.deferring:
            self.received = self.received or signum
            raise HardStop(f"stopped by {signal.Signals(signum).name}")
        self.received = signum
        # os.write: print may be interrupted in the middle of its own buffer by this handler
        os.write(2, self._answer)

    def _handle_in_child(self, signum: int) -> None:
        # A forked environment process: Ctrl-C reaches the whole process group, but the current iteration still needs
        # the environments; SIGTERM comes from the process that closes them.
        if signum != signal.SIGINT:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
