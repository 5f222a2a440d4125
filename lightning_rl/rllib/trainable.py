"""The methods of Ray Tune's `Trainable`, with Ray Tune and without it.

Tune accepts subclasses of its own class only, and importing that takes Ray, pandas and pyarrow (2 s). So it is a base
class where these are installed (the extra `cluster`), and what it does in a trial is left to it. A trainable that a
program makes itself behaves the same with and without them: it starts no Ray and writes only where it is asked to.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

try:
    from ray.tune import PlacementGroupFactory, register_trainable
    from ray.tune import Trainable as TuneTrainable
except ImportError:  # the extra `cluster` is not installed
    TuneTrainable, PlacementGroupFactory, register_trainable = object, None, None

from lightning_rl.errors import CheckpointError, ConfigError

__all__ = ["Trainable", "find_checkpoint", "register_by_name"]

SHOULD_CHECKPOINT, RESULT_DUPLICATE = "should_checkpoint", "__duplicate__"  # keys of a result, which end a buffer


class Trainable(TuneTrainable):  # type: ignore[misc, valid-type]
    """Something that trains by steps, and saves and restores itself.

    A subclass defines `setup`, `step`, `save_checkpoint`, `load_checkpoint` and `cleanup`.

    Args:
        config: the config of the trainable.
        logger_creator: called with the config; its result has `logdir`, where the trainable writes, and the methods
            `on_result`, which gets each result, `flush` and `close`.
        storage: where a trial's files are, if Tune calls this.

    Attributes:
        config: that of the constructor.
        iteration: calls of `train` so far.
        logdir: directory that the trainable writes to.
    """

    config: Any = None

    def __init__(
        self, config: Mapping[str, Any] | None = None, logger_creator: Any = None, storage: Any = None
    ) -> None:
        self._logger = None if logger_creator is None else logger_creator(config)
        if storage is not None:
            super().__init__(dict(config or {}), storage)
            return
        self.config, self._storage = dict(config or {}), None
        self._iteration, self._iterations_since_restore = 0, 0
        self._timesteps_since_restore, self._experiment_id = 0, uuid.uuid4().hex
        self._logdir: str | None = getattr(self._logger, "logdir", None)
        self._seconds = self._seconds_since_restore = 0.0
        self.setup(dict(self.config))

    # -- of a subclass ------------------------------------------------------------------------------------------------
    def setup(self, config: dict[str, Any]) -> None:
        """Make what is needed for training."""

    def step(self) -> dict[str, Any]:
        """One iteration; its result."""
        raise NotImplementedError  # abstract

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        """Write a checkpoint into a directory; returns the path of its file."""
        raise NotImplementedError  # abstract

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Continue from what `save_checkpoint` wrote: its file, or its directory."""
        raise NotImplementedError  # abstract

    def cleanup(self) -> None:
        """Close what `setup` made."""

    def log_result(self, result: dict[str, Any]) -> None:
        """Called with each result of `train`, which may be changed."""
        if self._logger is not None:
            self._logger.on_result(result)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Continue as a trainable with another config, if that is possible; returns whether it is."""
        return False

    # -- of a program that has made this itself -----------------------------------------------------------------------
    def train(self) -> dict[str, Any]:
        """One `step`; its result with the times and counts that Tune adds."""
        if self._storage is not None:
            return super().train()
        started = time.perf_counter()
        result = dict(self.step())
        seconds = time.perf_counter() - started
        self._iteration += 1
        self._iterations_since_restore += 1
        self._seconds += seconds
        self._seconds_since_restore += seconds
        self._timesteps_since_restore += result.get("timesteps_this_iter", 0)
        now = datetime.now()
        filled = {
            "done": False,
            "training_iteration": self._iteration,
            "time_this_iter_s": seconds,
            "time_total_s": self._seconds,
            "time_since_restore": self._seconds_since_restore,
            "iterations_since_restore": self._iterations_since_restore,
            "timesteps_since_restore": self._timesteps_since_restore,
            "date": f"{now:%Y-%m-%d_%H-%M-%S}",
            "timestamp": int(now.timestamp()),
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "node_ip": node_ip(),
            "experiment_id": self._experiment_id,
            "trial_id": "default",
            "config": self.config,
        }
        result = {**filled, **result}
        self.log_result(result)
        return result

    def train_buffered(self, buffer_time_s: float, max_buffer_length: int = 1000) -> list[dict[str, Any]]:
        """The results of at least one `train`, and of more until the time is over or one asks for a checkpoint."""
        results, end = [], time.perf_counter() + buffer_time_s
        while not results or time.perf_counter() < end:
            results.append(result := self.train())
            ends = result.get("done") or result.get(SHOULD_CHECKPOINT) or result.get(RESULT_DUPLICATE)
            if ends or len(results) >= max_buffer_length:
                break
        return results

    def save(self, checkpoint_dir: str | Path | None = None) -> Any:
        """Write a checkpoint into `checkpoint_dir`/checkpoint_000001, say; returns the path of its file.

        Args:
            checkpoint_dir: `None`: `logdir`.
        """
        if self._storage is not None:
            return super().save(checkpoint_dir)
        place = Path(checkpoint_dir or self.logdir) / f"checkpoint_{self.iteration:06d}"
        place.mkdir(parents=True, exist_ok=True)
        return self.save_checkpoint(str(place))

    def restore(self, checkpoint_path: Any) -> None:
        """Continue from a checkpoint.

        Args:
            checkpoint_path: what `save` returned, or a directory that holds it.

        Raises:
            CheckpointError: there is none.
        """
        if self._storage is not None:
            super().restore(checkpoint_path)
            return
        self.load_checkpoint(checkpoint_path)
        self._iterations_since_restore, self._seconds_since_restore, self._timesteps_since_restore = 0, 0.0, 0

    def stop(self) -> None:
        """End this trainable."""
        if self._storage is not None:
            super().stop()
            return
        self.cleanup()
        if self._logger is not None:
            self._logger.flush()
            self._logger.close()

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> Any:
        """What a trial needs: the cores and GPUs of the learner, and those of each worker.

        Args:
            config: num_workers, evaluation_num_workers, num_cpus_for_driver, num_cpus_per_worker, num_gpus,
                num_gpus_per_worker, placement_strategy; RLlib's keys.

        Raises:
            ConfigError: Ray Tune is not installed.
        """
        if PlacementGroupFactory is None:
            raise ConfigError('default_resource_request needs Ray Tune: pip install "lightning_rl[cluster]"')
        workers = (config.get("num_workers") or 0) + (config.get("evaluation_num_workers") or 0)
        learner = {"CPU": config.get("num_cpus_for_driver", 1), "GPU": config.get("num_gpus", 0)}
        worker = {"CPU": config.get("num_cpus_per_worker", 1), "GPU": config.get("num_gpus_per_worker", 0)}
        return PlacementGroupFactory(
            [learner, *[{**worker, **config.get("custom_resources_per_worker", {})}] * workers],
            strategy=config.get("placement_strategy", "PACK"),
        )

    @property
    def iteration(self) -> int:
        """How often `train` was called, before a restore as well."""
        return self._iteration

    training_iteration = iteration

    @property
    def logdir(self) -> str:
        """The directory that this writes to."""
        return str(self._logdir)


def node_ip() -> str:
    """The address that this machine has in its network; "127.0.0.1" without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 1))  # of documentation's range; UDP sends nothing here
        except OSError:  # no route: no network
            return "127.0.0.1"
        return probe.getsockname()[0]


def register_by_name(trainables: Iterable[tuple[str, type]]) -> None:
    """Let Ray Tune, where it is installed, take trainables by their names: `tune.run("PPO")`."""
    if register_trainable is not None:
        for name, trainable in trainables:
            register_trainable(name, trainable)


def find_checkpoint(path: str | Path) -> Path:
    """The file of a checkpoint.

    Args:
        path: the file itself; or a directory that holds it, or directories `checkpoint_000001` and so on, of which the
            last is taken.

    Raises:
        CheckpointError: there is none.
    """
    path = Path(path).expanduser()
    if path.is_file():
        return path
    found = [*path.glob("checkpoint-*"), *path.glob("checkpoint_*/checkpoint-*")]
    if not found:
        raise CheckpointError(f"{path} holds no checkpoint: give the file or the directory that Trainer.save wrote")
    return max(found, key=lambda each: int(each.name.removeprefix("checkpoint-")))
