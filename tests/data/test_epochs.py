"""Epochs: evaluations at multiples of environment steps, whatever the length of an iteration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch import Callback, Trainer

import lightning_rl.data.epochs as epochs_module
from lightning_rl.callbacks import RLCheckpoint, StopCallback
from lightning_rl.config import check_config, compose_config
from lightning_rl.data.datamodule import EpisodeWindow, RolloutDataModule
from lightning_rl.data.epochs import Epochs
from lightning_rl.data.evaluator import Evaluator, evaluation_workers
from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker
from tests.callbacks.small_run import SmallData, SmallPolicy, small_trainer
from tests.data.small_runs import APEX, REPLAY, fit
from tests.envs.classic_control import CARTPOLE
from tests.families import each
from tests.refusals import not_refused

EVERY = "evaluation.every_env_steps=5%"  # the default
EVALUATED = ("evaluation.episodes=1", "evaluation.max_share=null")
SHORT = ("workers.envs_per_worker=2", "workers.fragment_length=16")
PIPELINES = {
    "on_policy": ("policy=ppo", *SHORT),
    "replay": REPLAY,
    "async": ("policy=impala", "policy.minibatches=1", *SHORT),
    "gradients": ("policy=a3c", "data.gradients_per_iteration=1", *SHORT),
    "population": ("policy=es", "data.directions=2", "env.max_episode_steps=10", "workers.logical_workers=1"),
    "apex": APEX,
}


class Diary(Callback):
    """At which environment steps iterations, evaluations and epochs ended."""

    def __init__(self) -> None:
        self.iterations: list[int] = []
        self.evaluations: list[int] = []
        self.epochs: list[int] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.iterations.append(pl_module.env_steps)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.evaluations.append(pl_module.env_steps)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.epochs.append(pl_module.env_steps)


def after_multiples(iterations: list[int], every: int) -> list[int]:
    """The env steps of the iterations that passed a multiple of `every`."""
    pairs = zip([0, *iterations], iterations, strict=False)
    return [after for before, after in pairs if after // every > before // every]


def diary_of(run_dir: Path, *overrides: str) -> Diary:
    fit(run_dir, *EVALUATED, *overrides, callbacks=[diary := Diary()])
    return diary


@pytest.mark.parametrize("pipeline", each(PIPELINES, default=("on_policy", "async", "gradients", "population")))
def test_evaluations_come_after_multiples_of_env_steps_in_every_pipeline(tmp_path: Path, pipeline: str) -> None:
    diary = diary_of(tmp_path, *PIPELINES[pipeline], "total_env_steps=500", "evaluation.every_env_steps=110")
    expected = after_multiples(diary.iterations, 110)
    assert len(expected) >= 3
    assert diary.evaluations == [*expected, *([] if expected[-1] == diary.iterations[-1] else [diary.iterations[-1]])]
    assert diary.epochs == diary.evaluations


def test_every_env_steps_as_a_share_is_a_share_of_the_run(tmp_path: Path) -> None:
    """5 % of 640 are 32 env steps, half an iteration."""
    diary = diary_of(tmp_path, *PIPELINES["on_policy"], "total_env_steps=640", "workers.fragment_length=32", EVERY)
    assert diary.evaluations == diary.iterations
    assert len(diary.iterations) >= 10


@pytest.mark.slow
def test_a_run_logs_about_2000_rows_whatever_an_iteration_is(tmp_path: Path) -> None:
    """8,000 iterations of an env step each, before learning starts; 0.05 % are four of them."""
    fit(tmp_path, "policy=dqn", "logger=csv", "total_env_steps=8000", "data.learning_starts=8000")
    steps = [int(line.split(",")[0]) for line in (tmp_path / "metrics.csv").read_text().splitlines()[1:]]
    assert 1900 <= len(steps) <= 2001
    assert steps[-1] >= 8000


def test_an_episode_window_is_restored_as_it_was() -> None:
    """Lengths are whole numbers, before and after; also those of a file in which they are not."""
    saved = EpisodeWindow()
    saved.add([1.5, 2.0], [3, 4], {"a": [0.5]})
    for lengths in ([3, 4], [3.0, 4.0]):
        restored = EpisodeWindow()
        restored.load_state_dict({**saved.state_dict(), "lengths": lengths})
        assert repr(restored.state_dict()) == repr(saved.state_dict())


def test_without_evaluation_a_run_ends_at_its_steps(tmp_path: Path) -> None:
    diary = diary_of(tmp_path, *PIPELINES["on_policy"], "total_env_steps=200", "evaluation.every_env_steps=0")
    assert diary.evaluations == []
    assert 200 <= diary.iterations[-1] < 232


def test_a_hand_made_trainer_counts_epochs_the_same_way() -> None:
    """Without a run 5 % of an assumed 100,000 env steps; here 100 env steps are set."""
    diary = Diary()
    assert RolloutDataModule(CARTPOLE).epochs.every_env_steps == 5000
    workers = {"envs_per_worker": 2, "fragment_length": 16}
    module = RolloutDataModule(CARTPOLE, workers, {"every_env_steps": 100, "episodes": 1})
    trainer = L.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[diary],
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(PPO(*CARTPOLE.spaces(), model={"fcnet_hiddens": [8]}), datamodule=module)
    assert diary.evaluations == diary.epochs == after_multiples(diary.iterations, 100)
    assert len(diary.epochs) == 2


class TimedData(SmallData):
    """An iteration of 100 env steps lasts a second, an evaluation three."""

    def __init__(self, epochs: Epochs, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(evaluations=[1.0], epochs=epochs)
        self.now = 0.0
        monkeypatch.setattr(epochs_module.time, "perf_counter", lambda: self.now)

    def fragments(self) -> Iterator[torch.Tensor]:
        for item in super().fragments():
            self.now += 1.0
            yield item

    def evaluate(self) -> Iterator[torch.Tensor]:
        self.now += 3.0
        yield from super().evaluate()


def run_with_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, total: int, resume: bool = False, **options: Any
) -> tuple[Diary, Epochs]:
    diary, epochs = Diary(), Epochs(400, **options)
    data = TimedData(epochs, monkeypatch)
    checkpoint = RLCheckpoint(tmp_path, every_env_steps=None, every_seconds=None, monitor=None)
    trainer = small_trainer(tmp_path, [StopCallback(total), diary, checkpoint])
    trainer.fit(SmallPolicy(), data, ckpt_path=str(tmp_path / "last.ckpt") if resume else None)
    return diary, epochs


def test_evaluations_take_no_more_than_their_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 4 and 8 s, 3 more would be above a fifth; after 12, 3 of 15 are not; then 6 of 22, 26 and, at last, 30.

    The one at the end of the run is not postponed.
    """
    diary, epochs = run_with_clock(monkeypatch, tmp_path, 2800, max_share=0.2, expected_seconds=lambda: 3.0)
    assert diary.evaluations == diary.epochs == [1200, 2400, 2800]
    assert (epochs.done, epochs.postponed, epochs.seconds, epochs.total_seconds) == (3, 4, 9.0, 37.0)


def test_the_share_counts_the_time_before_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's times are of before the last evaluation, which it counts: 6 of 34 s. Then 9 of 41 s are too much, and
    9 of 45 are not; 12 of 52 and of 56 s are, of 60 not.
    """
    how: dict[str, Any] = {"max_share": 0.2, "expected_seconds": lambda: 3.0}
    run_with_clock(monkeypatch, tmp_path, 2800, **how)
    diary, epochs = run_with_clock(monkeypatch, tmp_path, 4900, resume=True, **how)
    assert diary.evaluations == [3600, 4800, 4900]
    assert (epochs.done, epochs.postponed, epochs.seconds) == (6, 7, 15.0)


def test_the_first_evaluation_waits_until_a_training_episode_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected: Iterator[float | None] = iter([None, None, None, 1.0])
    diary, _ = run_with_clock(monkeypatch, tmp_path, 3000, max_share=1.0, expected_seconds=lambda: next(expected))
    assert diary.evaluations == [1600, 2000, 2400, 2800, 3000]


def test_without_a_bound_no_evaluation_is_postponed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diary, epochs = run_with_clock(monkeypatch, tmp_path, 1600, max_share=None)
    assert diary.evaluations == [400, 800, 1200, 1600]
    assert epochs.postponed == 0


def test_the_first_evaluation_is_expected_to_last_as_its_own_steps_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 episodes in 16 environments are two rounds of the longest training episode: 2 × 50 steps of 0.1 s."""
    module, learner = RolloutDataModule(CARTPOLE), PPO(*CARTPOLE.spaces(), model={"fcnet_hiddens": [8]})
    module.trainer = SimpleNamespace(lightning_module=learner)  # type: ignore[assignment]
    options = {**module.evaluation, "episodes": 20}
    workers, share = evaluation_workers(CARTPOLE, learner, options, {}, seed=0, rank=0, ranks=1)
    monkeypatch.setattr(RolloutWorker, "seconds_per_step", lambda worker: 0.1)
    module.evaluator = Evaluator(workers, share)
    assert module.expected_evaluation_seconds() is None
    module.episode_window.add([1.0, 1.0], [30, 50])
    assert module.expected_evaluation_seconds() == pytest.approx(10.0)
    module.evaluator = Evaluator(workers, share, parallel=True)
    assert module.expected_evaluation_seconds() == 0.0


def test_every_env_steps_that_is_no_number_is_refused() -> None:
    config = compose_config(["env=cartpole"])

    def check(value: Any) -> None:
        config["evaluation"]["every_env_steps"] = value
        check_config(config)

    values = ("5", "5 percent", "-5%", True, 1.5, -1)
    assert not_refused(check, [(value, r"evaluation.every_env_steps=") for value in values]) == []
