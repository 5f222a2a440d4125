"""Signals before, during and after a command: exit code 130 and one word."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence

import pytest

from lightning_rl import cli
from lightning_rl.callbacks.signals import Interrupts
from lightning_rl.errors import ConfigError
from tests.cli.conftest import Command


@pytest.fixture(autouse=True)
def from_a_terminal() -> Iterator[None]:
    """A shell starts what goes to the background with Ctrl-C ignored: the tests are of a command in the foreground."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_training_ends_with_130_and_a_word(
    monkeypatch: pytest.MonkeyPatch, command: Command, signum: signal.Signals
):
    def composes(arguments: Sequence[str]) -> int:
        os.kill(os.getpid(), signum)
        raise AssertionError("not reached")

    before = signal.getsignal(signum)
    monkeypatch.setitem(cli.VERBS, "train", composes)  # type: ignore[arg-type]
    outcome = command("train")
    assert (outcome.code, outcome.err) == (130, f"interrupted: stopped by {signum.name}\n")
    assert signal.getsignal(signum) is before


def test_an_interrupt_that_comes_out_as_another_error_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, command: Command
):
    """A parser may turn an interrupt into its own error about the text."""

    def composes(arguments: Sequence[str]) -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException as error:
            raise ConfigError("") from error
        return 0

    monkeypatch.setitem(cli.VERBS, "train", composes)  # type: ignore[arg-type]
    outcome = command("train")
    assert (outcome.code, outcome.err) == (130, "interrupted: ended at once, nothing was saved by this\n")


def test_a_signal_that_the_process_was_started_to_ignore_stays_ignored():
    """`nohup` and a shell's `&` let programs ignore them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.received is None
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_forked_process_ends_by_the_signal_as_any_other():
    with Interrupts():
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
