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
    """Context in which SIGINT and SIGTERM raise KeyboardInterrupt, and which records that one came.

    The interrupted code may raise another exception than KeyboardInterrupt, such as a parser's; so test `received`.
    Does nothing outside the main thread, where Python allows no handlers.

    Args:
        signals: the signals to catch.

    Attributes:
        received: the first signal's number; `None` if none came.
        catches_ignored: whether it also handles signals that the process was started to ignore (a shell's &).
    """

    catches_ignored = False

    def __init__(self, signals: Sequence[int] = SIGNALS) -> None:
        self.signals = signals
        self.received: int | None = None
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
            previous = signal.getsignal(signum)
            if previous != self._handle and (self.catches_ignored or previous is not signal.SIG_IGN):
                signal.signal(signum, self._handle)
                self._before.setdefault(signum, previous)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            self._end_child(signum)
            return
        self.received, before = self.received or signum, self.received
        self._interrupt(signum, before)

    def _end_child(self, signum: int) -> None:
        """End a forked environment process as without a handler."""
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)

    def _interrupt(self, signum: int, before: int | None) -> None:
        raise KeyboardInterrupt(f"stopped by {signal.Signals(signum).name}")


class StopSignals(Interrupts):
    """Context of a run: `with StopSignals() as signals: … StopCallback(signals=signals)`.

    While `deferring`, the first signal is only recorded (the stop callback sets it during training and reads `received`
    after each iteration). A second signal, or one outside of training, raises `HardStop` at once.

    Args:
        signals: the signals to catch.
        answer: what the first one prints while `deferring`.

    Attributes:
        deferring: whether the stop callback reads `received` after each iteration.
    """

    catches_ignored = True

    def __init__(
        self, signals: Sequence[int] = SIGNALS, answer: str = "stopping after this iteration, then saving a checkpoint"
    ) -> None:
        super().__init__(signals)
        self._answer = f"\n{answer}; Ctrl-C again stops at once\n".encode()
        self.deferring = False

    def _end_child(self, signum: int) -> None:
        # Ctrl-C reaches the whole process group, but the current iteration still needs the environments; SIGTERM comes
        # from the process that closes them.
        if signum != signal.SIGINT:
            super()._end_child(signum)

    def _interrupt(self, signum: int, before: int | None) -> None:
        if before is not None or not self.deferring:
            raise HardStop(f"stopped by {signal.Signals(signum).name}")
        # os.write: print may be interrupted in the middle of its own buffer by this handler
        os.write(2, self._answer)
