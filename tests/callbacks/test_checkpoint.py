"""RLCheckpoint: when it saves, which files it keeps, and resumed runs that repeat or lose no iteration."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_rl.callbacks import AtomicCheckpointIO, RLCheckpoint, StopCallback
from lightning_rl.callbacks.metrics import MetricsCallback
from lightning_rl.errors import ConfigError, NonFiniteError, SaveError
from lightning_rl.policies.checkpoints import check_finite_weights
from lightning_rl.runs import run
from tests.callbacks.small_run import STEPS, At, SmallData, SmallPolicy, small_trainer, stop


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def fit(
    directory: Path,
    total: int,
    *callbacks: Any,
    resume: str | None = None,
    data: dict[str, Any] | None = None,
    policy: SmallPolicy | None = None,
    **options: Any,
) -> tuple[SmallPolicy, SmallData, RLCheckpoint]:
    """Train to `total` iterations with a checkpoint callback in `directory`."""
    policy, module = policy or SmallPolicy(), SmallData(**(data or {}))
    checkpoint = RLCheckpoint(directory, **{"every_env_steps": None, "monitor": None, **options})
    trainer = small_trainer(directory.parent, [*callbacks, StopCallback(total * STEPS), checkpoint])
    trainer.fit(policy, module, ckpt_path=None if resume is None else str(directory / resume), weights_only=True)
    return policy, module, checkpoint


def equal(one: SmallPolicy, other: SmallPolicy) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 8])
def test_n_plus_resumed_n_equals_2n_wherever_the_epoch_is_cut(tmp_path: Path, cut: int):
    """Epochs of 4: stops in the middle (1, 3, 5) and at the end (4, 8); both runs write and cut at `cut`."""
    options = {"every_env_steps": cut * STEPS}
    whole, whole_data, _ = fit(tmp_path / "whole", 2 * cut, data={"evaluations": [1.0]}, **options)
    first, _, _ = fit(tmp_path / "parts", cut, data={"evaluations": [1.0]}, **options)
    second, second_data, _ = fit(
        tmp_path / "parts", 2 * cut, data={"evaluations": [1.0]}, resume="last.ckpt", **options
    )
    assert first.seen + second.seen == whole.seen
    assert equal(second, whole)
    assert (second.env_steps, second.iterations) == (whole.env_steps, whole.iterations)
    assert second_data.evaluation == whole_data.evaluation


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 6])
def test_every_step_file_of_an_uninterrupted_run_resumes_to_the_same_end(tmp_path: Path, cut: int):
    """Step files written in mid-epoch and at epoch ends of a run that goes on."""
    options = {"every_env_steps": STEPS, "keep": 10, "data": {"evaluations": [1.0]}}
    whole, whole_data, _ = fit(tmp_path / "run", 10, **options)
    resumed, data, _ = fit(tmp_path / "run", 10, resume=f"step_{cut * STEPS:09d}.ckpt", **options)
    assert resumed.seen == whole.seen[cut:]
    assert equal(resumed, whole)
    assert data.evaluation == whole_data.evaluation


def test_a_best_file_resumes_after_its_own_evaluation(tmp_path: Path):
    """Saved in on_validation_end of epoch 1: the evaluation is not repeated, the epoch's iterations are not either."""
    options = {"monitor": "eval/ep_rew_mean", "data": {"evaluations": [5.0, 4.0, 3.0]}}
    fit(tmp_path / "run", 12, **options)
    resumed, data, _ = fit(tmp_path / "run", 12, resume="best_000000400_5.00.ckpt", **options)
    assert [fragment for fragment, _ in resumed.seen] == list(range(4, 12))
    assert data.evaluation == 3


def test_an_epoch_end_stop_by_lightning_itself_is_saved(tmp_path: Path):
    """max_epochs is no rule of ours; the last state is written all the same, once."""
    checkpoint = RLCheckpoint(tmp_path / "run", every_seconds=None, monitor=None)
    policy = SmallPolicy()
    small_trainer(tmp_path, [checkpoint], max_epochs=2).fit(policy, SmallData())
    assert names(tmp_path / "run") == ["last.ckpt", "step_000000800.ckpt"]
    resumed, _, _ = fit(tmp_path / "run", 10, resume="last.ckpt")
    assert [fragment for fragment, _ in resumed.seen] == [8, 9]


def test_saves_while_global_step_stands_still(tmp_path: Path):
    """Three iterations of warm-up take no gradient step; Lightning's own callback would save nothing."""
    policy, _, _ = fit(tmp_path / "run", 3, policy=SmallPolicy(warmup=10), every_env_steps=STEPS)
    assert policy.gradient_steps == 0
    assert "step_000000100.ckpt" in names(tmp_path / "run") and "last.ckpt" in names(tmp_path / "run")


def test_saves_past_each_multiple_of_env_steps_whatever_else_was_saved(tmp_path: Path):
    """Iterations of 100, multiples of 250: at 300, 500, 800, 1000; a run resumed from 700 has the same ones."""
    fit(tmp_path / "run", 7, every_env_steps=250, keep=10)
    assert names(tmp_path / "run") == ["last.ckpt", *(f"step_000000{n}.ckpt" for n in (300, 500, 700))]
    fit(tmp_path / "run", 10, every_env_steps=250, keep=10, resume="last.ckpt")
    assert names(tmp_path / "run")[-2:] == ["step_000000800.ckpt", "step_000001000.ckpt"]


def test_a_save_by_the_clock_writes_last_ckpt_and_cuts_no_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A save after each iteration; only the last one cuts."""
    monkeypatch.setattr("lightning_rl.callbacks.checkpoint.MOST_SAVING", 1e9)
    saved: list[int] = []
    note = At(3, lambda trainer: saved.append(read(tmp_path / "run")), hook="on_train_batch_start")
    policy, data, _ = fit(tmp_path / "run", 5, note, every_seconds=1e-9, keep=10)
    assert saved == [3]
    assert names(tmp_path / "run") == ["last.ckpt", "step_000000500.ckpt"]
    assert data.cuts == 1
    assert [phase for _, phase in policy.seen] == [0, 1, 2, 3, 4]


def read(directory: Path) -> int:
    return torch.load(directory / "last.ckpt", weights_only=True)["counters"]["iterations"]


def test_saves_by_the_clock_take_a_twentieth_of_the_time_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An iteration lasts a second, a save two: after the first one, the next waits for 40 s."""
    now, saved = [0.0], []
    monkeypatch.setattr("lightning_rl.callbacks.checkpoint.time.monotonic", lambda: now[0])

    class Slow(AtomicCheckpointIO):
        def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
            now[0] += 2.0
            saved.append(checkpoint["counters"]["iterations"])
            super().save_checkpoint(checkpoint, path, storage_options)

    class Ticks(SmallPolicy):
        def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            now[0] += 1.0
            super().training_step(batch, batch_idx)

    checkpoint = RLCheckpoint(tmp_path / "run", every_env_steps=None, every_seconds=10.0, monitor=None)
    trainer = small_trainer(tmp_path, [StopCallback(60 * STEPS), checkpoint], plugins=[Slow()])
    trainer.fit(Ticks(), SmallData())
    assert saved == [10, 50, 60]


def test_keeps_the_newest_k_step_files_and_last_is_the_newest(tmp_path: Path):
    policy, _, _ = fit(tmp_path / "run", 6, every_env_steps=STEPS, keep=2)
    assert names(tmp_path / "run") == ["last.ckpt", "step_000000500.ckpt", "step_000000600.ckpt"]
    assert torch.load(tmp_path / "run/last.ckpt", weights_only=True)["counters"]["iterations"] == policy.iterations


def test_keep_zero_keeps_only_last(tmp_path: Path):
    fit(tmp_path / "run", 4, every_env_steps=STEPS, keep=0, monitor="eval/ep_rew_mean", data={"evaluations": [1.0]})
    assert names(tmp_path / "run") == ["last.ckpt"]


def test_pruning_leaves_the_later_files_of_a_run_resumed_from_an_earlier_one(tmp_path: Path):
    """Resumed at 200 of 600: writing 300 must not delete itself for being the oldest."""
    fit(tmp_path / "run", 6, every_env_steps=STEPS, keep=10)
    fit(tmp_path / "run", 3, every_env_steps=STEPS, keep=1, resume="step_000000200.ckpt")
    assert names(tmp_path / "run") == ["last.ckpt", *(f"step_000000{n}.ckpt" for n in (300, 400, 500, 600))]


def test_keeps_the_k_best_evaluations(tmp_path: Path):
    """Of 1, 7, 3, 7, 9, 2 the best two are 9 and the first 7: an equal one does not replace."""
    options = {"monitor": "eval/ep_rew_mean", "keep": 2}
    _, _, checkpoint = fit(tmp_path / "run", 24, data={"evaluations": [1.0, 7.0, 3.0, 7.0, 9.0, 2.0]}, **options)
    assert [name for name in names(tmp_path / "run") if "best" in name] == [
        "best_000000800_7.00.ckpt",
        "best_000002000_9.00.ckpt",
    ]
    assert checkpoint.best_model_path.endswith("best_000002000_9.00.ckpt")
    assert torch.load(checkpoint.best_model_path, weights_only=True)["counters"]["env_steps"] == 2000


def test_the_best_are_remembered_across_a_resume(tmp_path: Path):
    """5 and 4 before, 4.5 after: 5 and 4.5 stay."""
    options = {"monitor": "eval/ep_rew_mean", "keep": 2, "data": {"evaluations": [5.0, 4.0, 4.5]}}
    fit(tmp_path / "run", 8, **options)
    fit(tmp_path / "run", 12, resume="last.ckpt", **options)
    assert [name for name in names(tmp_path / "run") if "best" in name] == [
        "best_000000400_5.00.ckpt",
        "best_000001200_4.50.ckpt",
    ]


def test_nan_is_never_the_best(tmp_path: Path):
    options = {"monitor": "eval/ep_rew_mean", "data": {"evaluations": [float("nan")]}}
    fit(tmp_path / "run", 4, **options)
    assert not list((tmp_path / "run").glob("best_*"))


def test_a_best_file_does_not_cut_environments(tmp_path: Path):
    """Evaluating must not change what training sees: only the end cuts."""
    options = {"monitor": "eval/ep_rew_mean", "data": {"evaluations": [1.0, 2.0]}}
    policy, data, _ = fit(tmp_path / "run", 8, **options)
    assert data.cuts == 1
    assert [phase for _, phase in policy.seen] == list(range(8))


def test_a_resumed_run_knows_the_evaluation_that_followed_its_last_save(tmp_path: Path):
    """The last evaluation of a run comes after last.ckpt: only the name of its best file tells of it."""
    options = {"monitor": "eval/ep_rew_mean", "data": {"evaluations": [2.0]}}
    fit(tmp_path / "run", 4, MetricsCallback(), **options)
    (tmp_path / "run" / "best_000000400_2.00.ckpt").rename(tmp_path / "run" / "best_000000400_7.00.ckpt")
    metrics = MetricsCallback()
    fit(tmp_path / "run", 8, metrics, resume="last.ckpt", **options)
    assert metrics.best_return == 7.0


def test_every_file_loads_with_weights_only(tmp_path: Path):
    fit(tmp_path / "run", 9, every_env_steps=300, monitor="eval/ep_rew_mean", data={"evaluations": [1.0, 2.0]})
    files = list((tmp_path / "run").iterdir())
    assert len(files) >= 5
    for path in files:
        assert torch.load(path, weights_only=True)["counters"]["env_steps"] > 0
        assert "=" not in path.name


def test_an_exception_between_iterations_leaves_a_checkpoint_of_all_iterations(tmp_path: Path):
    """The environment breaks while the third fragment is collected."""

    class Breaks(SmallData):
        def fragments(self):
            for item in super().fragments():
                if self.fragment == 3:
                    raise RuntimeError("the environment broke")
                yield item

    checkpoint = RLCheckpoint(tmp_path / "run", every_seconds=None)
    with pytest.raises(RuntimeError, match="the environment broke"):
        small_trainer(tmp_path, [checkpoint]).fit(SmallPolicy(), Breaks())
    assert torch.load(tmp_path / "run/last.ckpt", weights_only=True)["counters"]["iterations"] == 2
    resumed, _, _ = fit(tmp_path / "run", 4, resume="last.ckpt")
    assert resumed.iterations == 4
    assert len(resumed.seen) == 2


def test_an_exception_within_an_iteration_leaves_the_files_alone(tmp_path: Path):
    """Half an iteration has been learned: that state is in no file."""

    class Breaks(SmallPolicy):
        def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            if self.iterations == 2:
                raise FloatingPointError("loss is nan")
            super().training_step(batch, batch_idx)

    checkpoint = RLCheckpoint(tmp_path / "run", every_env_steps=STEPS, every_seconds=None)
    with pytest.raises(FloatingPointError):
        small_trainer(tmp_path, [checkpoint]).fit(Breaks(), SmallData())
    assert torch.load(tmp_path / "run/last.ckpt", weights_only=True)["counters"]["iterations"] == 2
    assert names(tmp_path / "run") == ["last.ckpt", "step_000000100.ckpt", "step_000000200.ckpt"]


def test_a_failing_save_after_an_exception_does_not_hide_the_exception(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    class Breaks(SmallData):
        def fragments(self):
            yield from [torch.tensor([0, 0])]
            raise RuntimeError("the environment broke")

        def prepare_save(self, final: bool = False) -> None:
            raise ConnectionError("the worker is dead")

    with pytest.raises(RuntimeError, match="the environment broke"), caplog.at_level(logging.ERROR):
        small_trainer(tmp_path, [RLCheckpoint(tmp_path / "run")]).fit(SmallPolicy(), Breaks())
    assert "no checkpoint after RuntimeError" in caplog.text


class FullDisk(AtomicCheckpointIO):
    """Cannot write in iterations `failing`."""

    failing: tuple[int, ...] = ()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        if checkpoint["counters"]["iterations"] in self.failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().save_checkpoint(checkpoint, path, storage_options)


def test_a_failed_write_is_logged_and_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    io = FullDisk()
    io.failing = (2, 3)
    checkpoint = RLCheckpoint(tmp_path / "run", every_env_steps=STEPS, every_seconds=None, keep=9)
    trainer = small_trainer(tmp_path, [StopCallback(5 * STEPS), checkpoint], plugins=[io])
    with caplog.at_level(logging.ERROR):
        trainer.fit(SmallPolicy(), SmallData())
    assert names(tmp_path / "run") == ["last.ckpt", *(f"step_000000{n}.ckpt" for n in (100, 400, 500))]
    assert caplog.text.count("No space left on device") == 2


def test_three_failed_writes_in_a_row_end_the_run_and_keep_the_old_file(tmp_path: Path):
    io = FullDisk()
    io.failing = (2, 3, 4)
    checkpoint = RLCheckpoint(tmp_path / "run", every_env_steps=STEPS, every_seconds=None)
    with pytest.raises(SaveError, match=r"last.ckpt \(100 env steps\)"):
        small_trainer(tmp_path, [checkpoint], plugins=[io]).fit(SmallPolicy(), SmallData())
    assert torch.load(tmp_path / "run/last.ckpt", weights_only=True)["counters"]["iterations"] == 1


class FullFor(AtomicCheckpointIO):
    """Cannot write the first `attempts` times after iteration `iterations`."""

    def __init__(self, iterations: int, attempts: int) -> None:
        super().__init__()
        self.iterations, self.attempts = iterations, attempts

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        if checkpoint["counters"]["iterations"] >= self.iterations and self.attempts > 0:
            self.attempts -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        super().save_checkpoint(checkpoint, path, storage_options)


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The lengths of the waits between attempts, which are skipped."""
    waits: list[float] = []
    monkeypatch.setattr("lightning_rl.callbacks.checkpoint.time.sleep", waits.append)
    return waits


@pytest.mark.parametrize("iterations", [4, 6, 7], ids=["epoch-end", "mid-epoch", "one more"])
def test_the_last_checkpoint_is_tried_again_and_resumes_as_any_other(
    tmp_path: Path, sleeps: list[float], iterations: int
):
    """The disk is full for three attempts; the fourth one is in time."""
    checkpoint = RLCheckpoint(tmp_path / "run", every_env_steps=None, monitor=None)
    trainer = small_trainer(tmp_path, [StopCallback(iterations * STEPS), checkpoint], plugins=[FullFor(iterations, 3)])
    trainer.fit(SmallPolicy(), SmallData(evaluations=[1.0]))
    assert sleeps == [0.5, 1.0, 2.0]
    resumed, _, _ = fit(tmp_path / "run", 9, resume="last.ckpt", data={"evaluations": [1.0]})
    assert [fragment for fragment, _ in resumed.seen] == list(range(iterations, 9))


@pytest.mark.parametrize("rule", [StopCallback(6 * STEPS), At(6, stop)], ids=["steps", "signal"])
@pytest.mark.usefixtures("sleeps")
def test_a_run_without_its_last_checkpoint_fails_and_names_the_newest_file(tmp_path: Path, rule: Any):
    checkpoint = RLCheckpoint(tmp_path / "run", every_env_steps=4 * STEPS)
    trainer = small_trainer(tmp_path, [rule, checkpoint], plugins=[FullFor(5, 99)])
    with pytest.raises(SaveError) as failed:
        trainer.fit(SmallPolicy(), SmallData())
    assert str(failed.value) == (
        f"{tmp_path}/run/last.ckpt could not be written (No space left on device; 4 attempts): what was learned in "
        f"the last 200 env steps is lost, the newest checkpoint is {tmp_path}/run/last.ckpt (400 env steps); free some "
        f"space there, then `lightning-rl resume {tmp_path}`"
    )


@pytest.mark.usefixtures("sleeps")
def test_a_run_that_wrote_no_checkpoint_ends_with_a_save_error(tmp_path: Path):
    trainer = small_trainer(tmp_path, [RLCheckpoint(tmp_path / "run")], max_epochs=1, plugins=[FullFor(1, 99)])
    with pytest.raises(SaveError, match="no checkpoint"):
        trainer.fit(SmallPolicy(), SmallData())


@pytest.mark.usefixtures("sleeps")
def test_a_failed_save_at_an_interrupt_is_reported_to_the_caller(tmp_path: Path):
    """An interrupt ends a run by an exception; the callback keeps the SaveError."""

    def interrupt(trainer: object) -> None:
        raise KeyboardInterrupt

    checkpoint = RLCheckpoint(tmp_path / "run")
    trainer = small_trainer(tmp_path, [At(2, interrupt, "on_train_batch_start"), checkpoint], plugins=[FullFor(1, 99)])
    with pytest.raises(SaveError, match="no checkpoint"):
        run.fit(SmallPolicy(), Stoppable(), trainer)  # type: ignore[arg-type]


class Stoppable(SmallData):
    def stop(self) -> None:
        """There is no process."""


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_replace_no_checkpoint(tmp_path: Path, bad: float):
    """A callback of the user's spoils a weight after the step of iteration 3; the one of iteration 2 stays."""

    def spoil(trainer: Any) -> None:
        with torch.no_grad():
            trainer.lightning_module.layer.bias.fill_(bad)

    class Checked(SmallPolicy):
        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            super().on_save_checkpoint(checkpoint)
            check_finite_weights(self)  # type: ignore[arg-type]

    checkpoint = RLCheckpoint(tmp_path / "run", every_env_steps=STEPS, keep=0)
    with pytest.raises(NonFiniteError, match=r"layer.bias.*NaN"):
        small_trainer(tmp_path, [At(3, spoil), checkpoint]).fit(Checked(), SmallData())
    assert torch.load(tmp_path / "run/last.ckpt", weights_only=True)["counters"]["iterations"] == 2
    assert names(tmp_path / "run") == ["last.ckpt"]


def test_a_failed_best_write_forgets_the_entry_and_keeps_the_old_best(tmp_path: Path):
    io = FullDisk()
    io.failing = (8,)
    checkpoint = RLCheckpoint(tmp_path / "run", every_seconds=None, keep=1)
    trainer = small_trainer(tmp_path, [StopCallback(12 * STEPS), checkpoint], plugins=[io])
    trainer.fit(SmallPolicy(), SmallData(evaluations=[1.0, 3.0, 2.0]))
    assert [name for name in names(tmp_path / "run") if "best" in name] == ["best_000001200_2.00.ckpt"]


def test_should_stop_ends_the_run_after_the_running_iteration(tmp_path: Path):
    """Iteration 2 of an epoch of 4: no third one, and the state is saved."""
    checkpoint = RLCheckpoint(tmp_path / "run", every_seconds=None)
    policy = SmallPolicy()
    small_trainer(tmp_path, [At(2, stop), checkpoint]).fit(policy, SmallData())
    assert policy.iterations == 2
    assert torch.load(tmp_path / "run/last.ckpt", weights_only=True)["counters"]["iterations"] == 2


@pytest.mark.parametrize("bad", [{"every_env_steps": 0}, {"every_seconds": -1}, {"keep": -1}, {"mode": "best"}])
def test_numbers_out_of_range_are_refused(tmp_path: Path, bad: dict[str, Any]):
    with pytest.raises(ConfigError, match=f"checkpoint.{next(iter(bad))}"):
        RLCheckpoint(tmp_path, **bad)


def test_an_unknown_monitor_is_refused_with_the_nearest_name(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"checkpoint.monitor='eval/ep_rew_maen'.*'eval/ep_rew_mean'"):
        RLCheckpoint(tmp_path, monitor="eval/ep_rew_maen")
