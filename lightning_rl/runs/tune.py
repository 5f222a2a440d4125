"""Runs as trials of Ray Tune, whose searches, early stopping and population based training then work with any policy.

A trial is a run with its own directory, as `lightning-rl train` writes it. It trains in a thread that waits after
each evaluation, once the checkpoint of that moment is written, until Tune lets the trial continue. A trial that
continues from a checkpoint, its own after a pause or another trial's, continues as `lightning-rl resume` does.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_rl.config.compose import check_choices
from lightning_rl.config.ranks import ranks_of
from lightning_rl.config.search_spaces import spell
from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.config_file import leaves
from lightning_rl.runs import run
from lightning_rl.runs.job_processes import (
    EVALUATED,
    evaluated_config,
    record_overrides,
    train_or_continue,
    with_defaults,
)

if TYPE_CHECKING:
    from ray.tune import Trainable

__all__ = ["TrialRun", "trainable"]

OWN_TO_A_TRIAL = ("seed", "overrides")  # keys in which a trial may differ from the one whose checkpoint it takes
GPU = ("gpu", "cuda")  # with "auto" a trial gets no GPU, and computes on the CPU
DEFAULTS = (*EVALUATED, "checkpoint.keep=0", "trainer.enable_progress_bar=false")  # Tune keeps the older checkpoints


def trainable(
    policy: str = "ppo", env: str | None = None, *, overrides: Sequence[str] = (), run_dir: str | Path | None = None
) -> type[Trainable]:
    """A trainable for `ray.tune.Tuner`; its `param_space` has dotted keys of the config, or nested ones.

    A trial reports after each evaluation, by default at each tenth of its run: every metric by its name
    (`eval/ep_rew_mean`, `rollout/ep_rew_mean`, …) and `env_steps`; Tune's `training_iteration` counts evaluations.
    Population based training can change the keys that a resumed run can (`policy.lr`, `policy.clip`,
    `policy.entropy_coef`, exploration).

    Args:
        policy: a name ("ppo") or an import path ("my_pkg.policies:Mine").
        env: a preset ("cartpole"); `None`: that of `overrides`, or the default.
        overrides: the same in all trials, as on the command line: ["total_env_steps=50_000"].
        run_dir: directory for the runs of the trials, RUN_DIR/TRIAL_ID; `None`: one with the time in its name.

    Raises:
        ConfigError: Ray Tune is not installed, or a run with these overrides cannot work.
    """
    try:
        from ray import tune
    except ImportError as error:
        raise ConfigError(f"trials of Ray Tune need pip install 'lightning_rl[cluster]' ({error})") from error
    folder = Path(run_dir or f"runs/{datetime.now():%Y-%m-%d/%H-%M-%S}_ray_tune").absolute()
    fixed = [f"policy={policy}", *([] if env is None else [f"env={env}"]), *overrides]
    check_choices(fixed)
    trial_config(fixed, folder)
    home = Path.cwd()

    class Trial(tune.Trainable):
        """One run; Tune calls its methods in a process of the trial's own."""

        run: TrialRun

        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> Any:
            """A core for the learner, one for each worker process, and a GPU if the config names one."""
            composed = trial_config([*fixed, *trial_overrides(config)], folder)
            workers: list[dict[str, float]] = [{"CPU": 1}] * composed["workers"]["num_workers"]
            gpus = {"GPU": 1} if composed["trainer"].get("accelerator") in GPU else {}
            learner: dict[str, float] = {"CPU": 1, **gpus}
            return tune.PlacementGroupFactory([learner, *workers])

        def setup(self, config: dict[str, Any]) -> None:
            os.chdir(home)  # Tune changed to its own directory, from which ./conf and relative paths are not found
            self.run = TrialRun([*fixed, *trial_overrides(config)], folder / self.trial_id)

        def step(self) -> dict[str, Any]:
            return self.run.next_evaluation()

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self.run.save(checkpoint_in(Path(checkpoint_dir), self.iteration))

        def load_checkpoint(self, checkpoint: Any) -> None:
            self.run.load(checkpoint_in(Path(checkpoint), self.iteration))

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.run.stop()
            self.setup(new_config)
            return True

        def cleanup(self) -> None:
            self.run.stop()

    Trial.__name__ = Trial.__qualname__ = re.split(r"[.:]", policy)[-1]  # of Tune's tables and directories
    return Trial


class TrialRun:
    """A run that waits after each evaluation.

    Args:
        overrides: see `lightning-rl train`, without run_dir.
        run_dir: the directory of the run; what it holds of the same run is continued.

    Raises:
        ConfigError: a key or value cannot work.
    """

    def __init__(self, overrides: Sequence[str], run_dir: Path) -> None:
        self.config, self.run_dir = trial_config(overrides, run_dir), run_dir
        self.overrides = overrides
        self._checkpoint: Path | None = None  # to begin from
        self._thread: threading.Thread | None = None
        self._reports: queue.Queue[dict[str, Any] | BaseException] = queue.Queue()
        self._goes_on = threading.Semaphore(0)
        self._ending = False
        self._evaluation: dict[str, Any] | None = None  # reported once its checkpoint is written

    def next_evaluation(self) -> dict[str, Any]:
        """Train until the next evaluation.

        Returns:
            The newest value of every metric, `env_steps`, and `done`.

        Raises:
            Exception: the error that ended the run.
        """
        if self._thread is None:
            record_overrides(self.overrides, self.run_dir)
            self._thread = threading.Thread(target=self._train, name=str(self.run_dir), daemon=True)
            self._thread.start()
        else:
            self._goes_on.release()
        report = self._reports.get()
        if isinstance(report, BaseException):
            raise report
        return report

    def save(self, file: Path) -> None:
        """Copy the checkpoint of the last evaluation."""
        shutil.copyfile(self.run_dir / "checkpoints" / "last.ckpt", file)

    def load(self, file: Path) -> None:
        """Begin from the checkpoint of this trial, or of another one.

        Raises:
            ConfigError: the other's config differs in keys that a resumed run cannot change.
        """
        checkpoints = self.run_dir / "checkpoints"
        checkpoints.mkdir(parents=True, exist_ok=True)
        for later in checkpoints.glob("*.ckpt"):  # of the policy that this trial gives up
            later.unlink()
        self._checkpoint = checkpoints / "last.ckpt"
        shutil.copyfile(file, self._checkpoint)
        try:
            run.check_same_run(self.config, self._checkpoint, OWN_TO_A_TRIAL)
        except ConfigError as error:
            raise ConfigError(
                f"{error}. A trial that continues from another's checkpoint can change {', '.join(run.RESUMABLE)}"
            ) from error

    def stop(self) -> None:
        """End the run as a signal does, with a checkpoint, and wait for that."""
        self._ending = True
        self._goes_on.release()
        if self._thread is not None:
            self._thread.join()

    # -- in the thread -------------------------------------------------------------------------------------------------
    def _train(self) -> None:
        try:
            if self._checkpoint is None:
                status = train_or_continue(self.config, self._watch)
            else:
                status = run.train(self.config, self._checkpoint, self._watch)
        except BaseException as error:
            self._reports.put(error)
            return
        # A run that has all its steps already makes no evaluation.
        known = {"eval/ep_rew_mean": status["evaluation"], "rollout/ep_rew_mean": status["return"]}
        last = self._evaluation or {**known, "env_steps": status["env_steps"]}
        self._reports.put({**last, "done": True})

    def _watch(self, env_steps: int, metrics: Mapping[str, float], evaluated: bool) -> bool:
        """Called after each evaluation and each iteration; whether the run is to end now."""
        if evaluated:
            self._evaluation = {**metrics, "env_steps": env_steps}
        elif self._evaluation is not None:  # an iteration later, so that the checkpoint is there
            self._reports.put({**self._evaluation, "done": False})
            self._evaluation = None
            self._goes_on.acquire()
        return self._ending


def checkpoint_in(directory: Path, evaluation: int) -> Path:
    """The file of a trial's `evaluation`-th evaluation in a checkpoint directory of Tune's.

    The name has the evaluation: Tune forgets a save that it asked for while it paused the trial, and writes the next
    one into the same directory, which another trial may be about to continue from.
    """
    return directory / f"evaluation_{evaluation}.ckpt"


def trial_config(overrides: Sequence[str], run_dir: Path) -> dict[str, Any]:
    """The config of a trial, which is evaluated and saved at the same env steps.

    Raises:
        ConfigError: a key or value cannot work, or not in a trial.
    """
    config = evaluated_config([*with_defaults(overrides, DEFAULTS), f"run_dir='{run_dir}'"])
    if config["evaluation"]["parallel"] or ranks_of(config) > 1:
        raise ConfigError(
            "a trial of Ray Tune has one rank and waits for its evaluations: set trainer.devices=1 and "
            "evaluation.parallel=false"
        )
    config["checkpoint"]["every_env_steps"] = config["evaluation"]["every_env_steps"]
    return config


def trial_overrides(config: Mapping[str, Any]) -> list[str]:
    """The overrides that Tune's config of a trial stands for: {"policy.lr": 1e-3} or {"policy": {"lr": 1e-3}}."""
    return [f"{key}={spell(value)}" for key, value in leaves(config)]
