"""Ctrl-C and SIGTERM end a run between two iterations, with a checkpoint; the second one ends it at once.

Before and after training, either ends the command at once.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, Self

__all__ = ["INTERRUPTED", "HardStop", "Interrupts", "StopSignals"]

INTERRUPTED = 130  # exit code of a run that a signal ended: 128 + SIGINT, as shells have it

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class HardStop(KeyboardInterrupt):
    """The user wants out now: nothing that takes time, such as saving, is done any more."""


class Interrupts:
    """Lets SIGTERM do what Ctrl-C does while it is entered, and remembers that a signal came.

    An interrupt may come out as another exception of the code that it hits, such as a parser's; `received` tells.
    Does nothing outside the main thread, and leaves signals alone that the process was started to ignore.

    Attributes:
        received: the first signal's number; `None` so far.
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
        if os.getpid() != self._process:  # an environment's process, forked from this one, ends as others do
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
            return
        self.received = self.received or signum
        raise KeyboardInterrupt(f"stopped by {signal.Signals(signum).name}")


class StopSignals:
    """Catches SIGINT and SIGTERM while it is entered: `with StopSignals() as signals: … StopCallback(signals=signals)`.

    The first signal is only noted while `deferring` (the stop callback turns it on during training and looks at
    `received` after each iteration); a second one, or one that comes when nothing is training, raises `HardStop` at
    once. Does nothing outside the main thread, where Python allows no handlers.

    Attributes:
        received: the first signal's number; `None` so far.
        deferring: whether somebody will look at `received` soon.
    """

    def __init__(self) -> None:
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
        """Take the signals, also when somebody else took them since: Lightning and Ray take SIGTERM when they start."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._process = os.getpid()
        for signum in SIGNALS:
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
        # os.write: print may be interrupted in the middle of its own buffer by this very handler
        os.write(2, b"\nstopping after this iteration, then saving a checkpoint; Ctrl-C again stops at once\n")

    def _handle_in_child(self, signum: int) -> None:
        # An environment's process, forked from this one: Ctrl-C reaches the whole process group, but the iteration that
        # is to be finished still needs the environments; SIGTERM comes from whoever closes them.
        if signum != signal.SIGINT:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
