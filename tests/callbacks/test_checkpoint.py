"""RLCheckpoint: when it saves, which files it keeps, and resumed runs that repeat or lose no iteration."""

from __future__ import annotations

import errno
import logging
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_rl.callbacks import AtomicCheckpointIO, MetricsCallback, RLCheckpoint, StopCallback
from lightning_rl.errors import NonFiniteError, SaveError
from lightning_rl.policies.checkpoints import check_finite_weights
from lightning_rl.runs import run
from tests.callbacks.small_run import STEPS, At, SmallData, SmallPolicy, small_trainer, stop
from tests.refusals import not_refused
from tests.run_comparison import assert_equal

MONITORED = {"monitor": "eval/ep_rew_mean"}


def names(directory: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in directory.glob(pattern))


def steps(*numbers: int) -> list[str]:
    """last.ckpt, and the files of these env steps."""
    return ["last.ckpt", *(f"step_{number:09d}.ckpt" for number in numbers)]


def saved(directory: Path) -> int:
    """The iterations in last.ckpt."""
    return torch.load(directory / "last.ckpt", weights_only=True)["counters"]["iterations"]


def fit(
    directory: Path,
    total: int | None,
    *callbacks: Any,
    resume: str | None = None,
    data: SmallData | Sequence[float] = (),
    policy: SmallPolicy | None = None,
    io: AtomicCheckpointIO | None = None,
    max_epochs: int = -1,
    **options: Any,
) -> tuple[SmallPolicy, SmallData, RLCheckpoint]:
    """Train to `total` iterations with a checkpoint callback in `directory`; `data` or the returns of evaluations."""
    policy, module = policy or SmallPolicy(), data if isinstance(data, SmallData) else SmallData(evaluations=data)
    checkpoint = RLCheckpoint(directory, **{"every_env_steps": None, "monitor": None, **options})
    rules = [] if total is None else [StopCallback(total * STEPS)]
    how = {"max_epochs": max_epochs, "plugins": [io or AtomicCheckpointIO()]}
    trainer = small_trainer(directory.parent, [*callbacks, *rules, checkpoint], **how)
    trainer.fit(policy, module, ckpt_path=None if resume is None else str(directory / resume), weights_only=True)
    return policy, module, checkpoint


def fragments(policy: SmallPolicy) -> list[int]:
    return [fragment for fragment, _ in policy.seen]


# -- resuming ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cut", [1, 3, 4, 5, 8])
def test_n_plus_resumed_n_equals_2n_wherever_the_epoch_is_cut(tmp_path: Path, cut: int):
    """Epochs of 4: stops in the middle (1, 3, 5) and at the end (4, 8); both runs write and cut at `cut`."""
    options: dict[str, Any] = {"every_env_steps": cut * STEPS, "data": [1.0]}
    whole, whole_data, _ = fit(tmp_path / "whole", 2 * cut, **options)
    first, _, _ = fit(tmp_path / "parts", cut, **options)
    second, second_data, _ = fit(tmp_path / "parts", 2 * cut, resume="last.ckpt", **options)
    assert first.seen + second.seen == whole.seen
    assert_equal(second.state_dict(), whole.state_dict())
    assert (second.env_steps, second.iterations) == (whole.env_steps, whole.iterations)
    assert second_data.evaluation == whole_data.evaluation


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 6])
def test_every_step_file_of_an_uninterrupted_run_resumes_to_the_same_end(tmp_path: Path, cut: int):
    """Step files written in mid-epoch and at epoch ends of a run that goes on."""
    options: dict[str, Any] = {"every_env_steps": STEPS, "keep": 10, "data": [1.0]}
    whole, whole_data, _ = fit(tmp_path / "run", 10, **options)
    resumed, data, _ = fit(tmp_path / "run", 10, resume=steps(cut * STEPS)[1], **options)
    assert resumed.seen == whole.seen[cut:] and data.evaluation == whole_data.evaluation
    assert_equal(resumed.state_dict(), whole.state_dict())


def test_a_best_file_resumes_after_its_own_evaluation(tmp_path: Path):
    """Saved in on_validation_end of epoch 1: the evaluation is not repeated, the epoch's iterations are not either."""
    options: dict[str, Any] = {"data": [5.0, 4.0, 3.0], **MONITORED}
    fit(tmp_path / "run", 12, **options)
    resumed, data, _ = fit(tmp_path / "run", 12, resume="best_000000400_5.00.ckpt", **options)
    assert fragments(resumed) == list(range(4, 12)) and data.evaluation == 3


def test_an_epoch_end_stop_by_lightning_itself_is_saved(tmp_path: Path):
    """max_epochs is no rule of ours; the last state is written all the same, once."""
    fit(tmp_path / "run", None, max_epochs=2, every_env_steps=10_000)
    assert names(tmp_path / "run") == steps(800)
    assert fragments(fit(tmp_path / "run", 10, resume="last.ckpt")[0]) == [8, 9]


def test_a_resumed_run_knows_the_evaluation_that_followed_its_last_save(tmp_path: Path):
    """The last evaluation of a run comes after last.ckpt: only the name of its best file tells of it."""
    fit(tmp_path / "run", 4, MetricsCallback(), data=[2.0], **MONITORED)
    (tmp_path / "run" / "best_000000400_2.00.ckpt").rename(tmp_path / "run" / "best_000000400_7.00.ckpt")
    metrics = MetricsCallback()
    fit(tmp_path / "run", 8, metrics, resume="last.ckpt", data=[2.0], **MONITORED)
    assert metrics.best_return == 7.0


# -- when it saves -----------------------------------------------------------------------------------------------------
def test_saves_while_global_step_stands_still(tmp_path: Path):
    """Three iterations of warm-up take no gradient step; Lightning's own callback would save nothing."""
    policy, _, _ = fit(tmp_path / "run", 3, policy=SmallPolicy(warmup=10), every_env_steps=STEPS)
    assert policy.gradient_steps == 0 and {*steps(100)} <= {*names(tmp_path / "run")}


def test_saves_past_each_multiple_of_env_steps_whatever_else_was_saved(tmp_path: Path):
    """Iterations of 100, multiples of 250: at 300, 500, 800, 1000; a run resumed from 700 has the same ones."""
    fit(tmp_path / "run", 7, every_env_steps=250, keep=10)
    assert names(tmp_path / "run") == steps(300, 500, 700)
    fit(tmp_path / "run", 10, every_env_steps=250, keep=10, resume="last.ckpt")
    assert names(tmp_path / "run") == steps(300, 500, 700, 800, 1000)


def test_a_save_by_the_clock_writes_last_ckpt_and_cuts_no_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lightning_rl.callbacks.checkpoint.MOST_SAVING", 1e9)
    seen: list[int] = []
    note = At(3, lambda trainer: seen.append(saved(tmp_path / "run")), hook="on_train_batch_start")
    policy, _, _ = fit(tmp_path / "run", 5, note, every_seconds=1e-9, keep=10)
    assert seen == [3] and names(tmp_path / "run") == steps(500)
    assert [phase for _, phase in policy.seen] == [0, 1, 2, 3, 4]


def test_saves_by_the_clock_take_a_twentieth_of_the_time_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An iteration lasts a second, a save two: after the first one, the next waits for 40 s."""
    now, saves = [0.0], []
    monkeypatch.setattr("lightning_rl.callbacks.checkpoint.time.monotonic", lambda: now[0])

    class Slow(AtomicCheckpointIO):
        def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
            now[0] += 2.0
            saves.append(checkpoint["counters"]["iterations"])
            super().save_checkpoint(checkpoint, path, storage_options)

    class Ticks(SmallPolicy):
        def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            now[0] += 1.0
            super().training_step(batch, batch_idx)

    fit(tmp_path / "run", 60, policy=Ticks(), io=Slow(), every_seconds=10.0)
    assert saves == [10, 50, 60]


# -- which files it keeps ----------------------------------------------------------------------------------------------
def test_keeps_the_newest_k_step_files_and_last_is_the_newest(tmp_path: Path):
    policy, _, _ = fit(tmp_path / "run", 6, every_env_steps=STEPS, keep=2)
    assert names(tmp_path / "run") == steps(500, 600) and saved(tmp_path / "run") == policy.iterations
    fit(tmp_path / "none", 4, every_env_steps=STEPS, keep=0, data=[1.0], **MONITORED)
    assert names(tmp_path / "none") == ["last.ckpt"]


def test_pruning_leaves_the_later_files_of_a_run_resumed_from_an_earlier_one(tmp_path: Path):
    """Resumed at 200 of 600: writing 300 must not delete itself for being the oldest."""
    fit(tmp_path / "run", 6, every_env_steps=STEPS, keep=10)
    fit(tmp_path / "run", 3, every_env_steps=STEPS, keep=1, resume="step_000000200.ckpt")
    assert names(tmp_path / "run") == steps(300, 400, 500, 600)


def test_keeps_the_k_best_evaluations(tmp_path: Path):
    """Of 1, 7, 3, 7, 9, 2 the best two are 9 and the first 7: an equal one does not replace."""
    _, _, checkpoint = fit(tmp_path / "run", 24, data=[1.0, 7.0, 3.0, 7.0, 9.0, 2.0], keep=2, **MONITORED)
    best = ["best_000000800_7.00.ckpt", "best_000002000_9.00.ckpt"]
    assert names(tmp_path / "run", "best*") == best and checkpoint.best_model_path.endswith(best[1])
    assert torch.load(checkpoint.best_model_path, weights_only=True)["counters"]["env_steps"] == 2000


def test_the_best_are_remembered_across_a_resume(tmp_path: Path):
    """5 and 4 before, 4.5 after: 5 and 4.5 stay."""
    for total, resumed in ((8, None), (12, "last.ckpt")):
        fit(tmp_path / "run", total, resume=resumed, keep=2, data=[5.0, 4.0, 4.5], **MONITORED)
    assert names(tmp_path / "run", "best*") == ["best_000000400_5.00.ckpt", "best_000001200_4.50.ckpt"]


def test_nan_is_never_the_best(tmp_path: Path):
    fit(tmp_path / "run", 4, data=[float("nan")], **MONITORED)
    assert names(tmp_path / "run", "best*") == []


def test_a_best_file_does_not_cut_environments(tmp_path: Path):
    policy, _, _ = fit(tmp_path / "run", 8, data=[1.0, 2.0], **MONITORED)
    assert [phase for _, phase in policy.seen] == list(range(8))


def test_every_file_loads_with_weights_only(tmp_path: Path):
    fit(tmp_path / "run", 9, every_env_steps=300, data=[1.0, 2.0], **MONITORED)
    files = list((tmp_path / "run").iterdir())
    assert len(files) >= 5 and not any("=" in path.name for path in files)
    assert all(torch.load(path, weights_only=True)["counters"]["env_steps"] > 0 for path in files)


# -- errors ------------------------------------------------------------------------------------------------------------
def test_an_exception_between_iterations_leaves_a_checkpoint_of_all_iterations(tmp_path: Path):
    """The environment breaks while the third fragment is collected."""

    class Breaks(SmallData):
        def fragments(self) -> Iterator[torch.Tensor]:
            for item in super().fragments():
                if self.fragment == 3:
                    raise RuntimeError("the environment broke")
                yield item

    with pytest.raises(RuntimeError, match="the environment broke"):
        fit(tmp_path / "run", None, data=Breaks())
    assert saved(tmp_path / "run") == 2
    resumed, _, _ = fit(tmp_path / "run", 4, resume="last.ckpt")
    assert (resumed.iterations, len(resumed.seen)) == (4, 2)


def test_an_exception_within_an_iteration_leaves_the_files_alone(tmp_path: Path):
    """Half an iteration has been learned: that state is in no file."""

    class Breaks(SmallPolicy):
        def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            if self.iterations == 2:
                raise FloatingPointError("loss is nan")
            super().training_step(batch, batch_idx)

    with pytest.raises(FloatingPointError):
        fit(tmp_path / "run", None, policy=Breaks(), every_env_steps=STEPS)
    assert saved(tmp_path / "run") == 2 and names(tmp_path / "run") == steps(100, 200)


def test_a_failing_save_after_an_exception_does_not_hide_the_exception(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    class Breaks(SmallData):
        def fragments(self) -> Iterator[torch.Tensor]:
            yield torch.tensor([0, 0])
            raise RuntimeError("the environment broke")

        def state_dict(self) -> dict[str, Any]:
            raise ValueError("the worker is dead")

    with pytest.raises(RuntimeError, match="the environment broke"), caplog.at_level(logging.ERROR):
        fit(tmp_path / "run", None, data=Breaks())
    assert "no checkpoint after RuntimeError" in caplog.text


class FullDisk(AtomicCheckpointIO):
    """Cannot write in iterations `failing`, for `attempts` times."""

    def __init__(self, failing: Container[int], attempts: int = 99) -> None:
        super().__init__()
        self.failing, self.attempts = failing, attempts

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        if checkpoint["counters"]["iterations"] in self.failing and self.attempts > 0:
            self.attempts -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        super().save_checkpoint(checkpoint, path, storage_options)


def test_a_failed_write_is_logged_and_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.ERROR):
        fit(tmp_path / "run", 5, io=FullDisk((2, 3)), every_env_steps=STEPS, keep=9)
    assert names(tmp_path / "run") == steps(100, 400, 500)
    assert caplog.text.count("No space left on device") == 2


def test_three_failed_writes_in_a_row_end_the_run_and_keep_the_old_file(tmp_path: Path):
    with pytest.raises(SaveError, match=r"last.ckpt \(100 env steps\)"):
        fit(tmp_path / "run", None, io=FullDisk((2, 3, 4)), every_env_steps=STEPS)
    assert saved(tmp_path / "run") == 1


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
    fit(tmp_path / "run", iterations, data=[1.0], io=FullDisk({iterations}, attempts=3))
    assert sleeps == [0.5, 1.0, 2.0]
    resumed, _, _ = fit(tmp_path / "run", 9, resume="last.ckpt", data=[1.0])
    assert fragments(resumed) == list(range(iterations, 9))


@pytest.mark.parametrize("rule", [StopCallback(6 * STEPS), At(6, stop)], ids=["steps", "signal"])
@pytest.mark.usefixtures("sleeps")
def test_a_run_without_its_last_checkpoint_fails_and_names_the_newest_file(tmp_path: Path, rule: Any):
    with pytest.raises(SaveError) as failed:
        fit(tmp_path / "run", None, rule, io=FullDisk(range(5, 99)), every_env_steps=4 * STEPS)
    assert str(failed.value) == (
        f"{tmp_path}/run/last.ckpt could not be written (No space left on device; 4 attempts): what was learned in "
        f"the last 200 env steps is lost, the newest checkpoint is {tmp_path}/run/last.ckpt (400 env steps); free some "
        f"space there, then `lightning-rl resume {tmp_path}`"
    )


@pytest.mark.usefixtures("sleeps")
def test_a_run_that_wrote_no_checkpoint_ends_with_a_save_error(tmp_path: Path):
    with pytest.raises(SaveError, match="no checkpoint"):
        fit(tmp_path / "run", None, max_epochs=1, io=FullDisk(range(1, 99)))


@pytest.mark.usefixtures("sleeps")
def test_a_failed_save_at_an_interrupt_is_reported_to_the_caller(tmp_path: Path):
    """An interrupt ends a run by an exception; the callback keeps the SaveError."""

    class Stoppable(SmallData):
        def stop(self) -> None:
            """There is no process."""

    def interrupt(trainer: object) -> None:
        raise KeyboardInterrupt

    callbacks = [At(2, interrupt, "on_train_batch_start"), RLCheckpoint(tmp_path / "run")]
    with pytest.raises(SaveError, match="no checkpoint"):
        run.fit(SmallPolicy(), Stoppable(), small_trainer(tmp_path, callbacks, plugins=[FullDisk(range(1, 99))]))  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_replace_no_checkpoint(tmp_path: Path, bad: float):
    """A callback of the user's spoils a weight after the step of iteration 3; the one of iteration 2 stays."""

    def spoil(trainer: Any) -> None:
        with torch.no_grad():
            trainer.lightning_module.layer.bias.fill_(bad)

    class Checked(SmallPolicy):
        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            super().on_save_checkpoint(checkpoint)
            check_finite_weights(self, checkpoint)  # type: ignore[arg-type]

    with pytest.raises(NonFiniteError, match=r"layer.bias.*NaN"):
        fit(tmp_path / "run", None, At(3, spoil), policy=Checked(), every_env_steps=STEPS, keep=0)
    assert saved(tmp_path / "run") == 2 and names(tmp_path / "run") == ["last.ckpt"]


def test_a_failed_best_write_forgets_the_entry_and_keeps_the_old_best(tmp_path: Path):
    fit(tmp_path / "run", 12, io=FullDisk({8}), keep=1, data=[1.0, 3.0, 2.0], **MONITORED)
    assert names(tmp_path / "run", "best*") == ["best_000001200_2.00.ckpt"]


def test_options_out_of_range_are_refused(tmp_path: Path):
    cases = [
        ({"every_env_steps": 0}, "checkpoint.every_env_steps"),
        ({"every_seconds": -1}, "checkpoint.every_seconds"),
        ({"keep": -1}, "checkpoint.keep"),
        ({"mode": "best"}, "checkpoint.mode"),
        ({"monitor": "eval/ep_rew_maen"}, r"checkpoint.monitor='eval/ep_rew_maen'.*'eval/ep_rew_mean'"),
    ]
    assert not_refused(lambda options: RLCheckpoint(tmp_path, **options), cases) == []
