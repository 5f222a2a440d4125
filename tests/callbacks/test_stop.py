"""StopCallback: training ends after the iteration that meets a rule, or after a signal, with a checkpoint."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

from lightning_rl.callbacks import MetricsCallback, RLCheckpoint, StopCallback, StopSignals, stop
from lightning_rl.callbacks.signals import HardStop
from tests.callbacks.small_run import STEPS, At, SmallData, SmallPolicy, small_trainer
from tests.refusals import not_refused


def run(tmp_path: Path, *callbacks: Any, data: SmallData | None = None, **options: Any) -> SmallPolicy:
    policy = SmallPolicy()
    small_trainer(tmp_path, callbacks, **options).fit(policy, data or SmallData())
    return policy


def test_stops_at_the_first_iteration_that_reaches_total_env_steps(tmp_path: Path):
    """Iterations of 100, total 250: three of them, in the middle of an epoch of 4."""
    rule = StopCallback(250)
    assert run(tmp_path, rule).env_steps == 300
    assert rule.reason == "total_env_steps"


class Hung(gym.Env[Any, Any]):
    """Its step lasts until the log holds its name."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self.log = log

    def step(self, action: Any) -> Any:
        deadline = time.monotonic() + 30
        while "Hung.step" not in self.log.text and time.monotonic() < deadline:
            time.sleep(0.01)


@pytest.mark.parametrize("case", ["seconds", "signal", "far longer than the iterations before"])
def test_an_iteration_that_does_not_end_is_warned_of_once_with_its_environment(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(stop, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(stop, "LONG" if case.startswith("far") else "LONG_AT_THE_END", (0.2, 0.0))

    def hang(trainer: Any) -> None:
        if case == "signal":
            os.kill(os.getpid(), signal.SIGINT)
        Hung(caplog).step(0)

    signals = StopSignals()
    rule = StopCallback(1000, seconds=0.05 if case == "seconds" else None, signals=signals)
    with signals:
        run(tmp_path, At(2, hang, hook="on_train_batch_start"), rule)
    assert caplog.text.count("Hung.step") == 1 and "test_stop.py:" in caplog.text
    assert rule.reason == {"seconds": "seconds", "signal": "interrupted"}.get(case, "total_env_steps")


def test_a_resumed_run_with_all_its_steps_takes_no_further_step(tmp_path: Path):
    run(tmp_path, StopCallback(300), RLCheckpoint(tmp_path, every_seconds=None))
    policy = SmallPolicy()
    trainer = small_trainer(tmp_path, [StopCallback(300), RLCheckpoint(tmp_path)])
    trainer.fit(policy, SmallData(), ckpt_path=str(tmp_path / "last.ckpt"))
    assert policy.seen == [] and policy.env_steps == 300


def test_a_training_return_counts_only_over_enough_episodes(tmp_path: Path):
    """The window's mean is the iteration's number; 2 is reached at once, but believed with the 5th episode."""
    rule = StopCallback(target_return=2.0, min_episodes=5)
    assert run(tmp_path, MetricsCallback(), rule).iterations == 5
    assert rule.reason == "return"


def test_an_evaluation_return_stops_at_the_evaluation(tmp_path: Path):
    """Evaluations 1, 9, 9 after each epoch of 4: the second one is enough."""
    rule = StopCallback(target_return=8.0, metric="eval/ep_rew_mean")
    assert run(tmp_path, MetricsCallback(), rule, data=SmallData(evaluations=[1.0, 9.0, 9.0])).iterations == 8
    assert rule.reason == "return"


def test_an_old_evaluation_does_not_stop_a_resumed_run(tmp_path: Path):
    rule = StopCallback(600, target_return=8.0, metric="eval/ep_rew_mean")
    metrics = MetricsCallback()
    metrics.latest["eval/ep_rew_mean"] = 9.0
    assert run(tmp_path, metrics, rule, limit_val_batches=0).iterations == 6


def test_stops_when_the_wall_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An iteration lasts 2 s by the clock: 3 s are over after the second one."""
    now = [0.0]
    monkeypatch.setattr("lightning_rl.callbacks.stop.time.perf_counter", lambda: now[0])
    rule = StopCallback(seconds=3.0)
    waits = [At(iteration, lambda trainer: now.append(now.pop() + 2.0)) for iteration in (1, 2)]
    assert run(tmp_path, *waits, rule).iterations == 2 and rule.reason == "seconds"


def test_a_rule_stops_in_the_middle_of_an_epoch_also_with_epoch_limits(tmp_path: Path):
    """min_epochs must be None or 0 for that; max_epochs may be anything."""
    assert run(tmp_path, StopCallback(200), max_epochs=5).iterations == 2
    assert run(tmp_path, StopCallback(200), max_epochs=5, min_epochs=1).iterations == 4


def test_rules_that_cannot_be_met_are_refused():
    cases = [
        ({"total_env_steps": 0}, "total_env_steps=0"),
        ({"seconds": -1}, "stop.seconds=-1"),
        ({"metric": "rollout/rew"}, r"stop.metric='rollout/rew'"),
    ]
    assert not_refused(lambda keywords: StopCallback(**keywords), cases) == []


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_finishes_the_iteration_saves_and_stops_without_evaluating(tmp_path: Path, signum: int):
    data, checkpoint = SmallData(evaluations=[1.0]), RLCheckpoint(tmp_path, every_seconds=None)
    before = signal.getsignal(signum)
    with StopSignals() as signals:
        rule = StopCallback(10_000, signals=signals)
        sends = At(1, lambda trainer: os.kill(os.getpid(), signum), hook="on_train_batch_start")
        policy = run(tmp_path, rule, sends, checkpoint, data=data)
        assert signals.received == signum
    assert signal.getsignal(signum) == before
    assert (rule.reason, policy.iterations, data.evaluation) == ("interrupted", 2, 0)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["counters"]["iterations"] == 2


def test_a_signal_during_evaluation_stops_the_run_after_it(tmp_path: Path):
    with StopSignals() as signals:
        rule = StopCallback(10_000, signals=signals)
        sends = At(4, lambda trainer: os.kill(os.getpid(), signal.SIGINT), hook="on_validation_start")
        policy = run(tmp_path, rule, sends, data=SmallData(evaluations=[1.0]))
    assert (policy.iterations, rule.reason) == (4, "interrupted")


def test_the_second_signal_ends_the_run_at_once(tmp_path: Path):
    """Both come while the second iteration learns: it is not finished, and the files stay as they were."""

    def twice(trainer: Any) -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    checkpoint = RLCheckpoint(tmp_path, every_env_steps=STEPS, every_seconds=None)
    policy = SmallPolicy()
    with StopSignals() as signals, pytest.raises(SystemExit):
        rule = StopCallback(10_000, signals=signals)
        trainer = small_trainer(tmp_path, [rule, At(1, twice, hook="on_train_batch_start"), checkpoint])
        trainer.fit(policy, SmallData())
    assert (policy.iterations, rule.reason) == (1, "interrupted")
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["last.ckpt", "step_000000100.ckpt"]


def test_a_signal_while_nothing_trains_acts_at_once():
    with StopSignals(), pytest.raises(HardStop, match="SIGTERM"):
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("not reached")


def test_a_forked_process_ignores_ctrl_c_and_dies_of_sigterm():
    """Environments' processes get Ctrl-C too, but the iteration that is being finished still needs them."""
    with StopSignals():
        child = os.fork()
        if child == 0:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def test_signals_are_left_alone_outside_the_main_thread():
    before, seen = signal.getsignal(signal.SIGINT), []

    def enter() -> None:
        with StopSignals() as signals:
            seen.append((signals.received, signal.getsignal(signal.SIGINT) is before))

    with ThreadPoolExecutor(1) as thread:
        thread.submit(enter).result()
    assert seen == [(None, True)] and signal.getsignal(signal.SIGINT) is before
