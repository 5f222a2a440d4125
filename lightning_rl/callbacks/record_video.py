"""Episodes of the policy in training as pictures that move: in TensorBoard's Images tab, and in files."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import Callback, Trainer

from lightning_rl.callbacks.loggers import has_tensorboard, log_summary
from lightning_rl.callbacks.metrics import leave_out_seconds
from lightning_rl.callbacks.rendering.frames import Frame, StopWatching, check_picture, watched_workers
from lightning_rl.callbacks.rendering.pictures import add_caption, as_rgb, scale_to_fit
from lightning_rl.callbacks.rendering.video_files import VideoFile, check_video_file, encode_gif
from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.atomic import write_atomically
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import Count, CountEnvSteps, Positive
from lightning_rl.schema.signatures import check_keywords

__all__ = ["RecordVideo"]

TAG = "episode"
SMOOTH = 30  # frames per second that are enough; rendering takes most of the time


class RecordVideo(Callback):
    """Plays an episode at the first iteration past each multiple of `every_env_steps`, and records it.

    `callbacks=[{callback: lightning_rl.callbacks.RecordVideo, every_env_steps: 20%, file: mp4}]`. The episode is one of
    the evaluation's environment, with the best actions, and always begins in the same state. TensorBoard shows it as a
    GIF under Images. Training is the same as without, and waits meanwhile; `time/fps` leaves that time out.

    Args:
        every_env_steps: may be a share of the run such as "10%".
        max_steps: a longer episode is cut.
        file: "gif" or "mp4" (the extra `video`): each recording is a file as well: videos/step_<env steps> in the
            directory of the run. `None`: no files.
        side: longest side of the picture, pixels.
        fps: frames per second; `None`: the environment's own. Of more than 30, steps are left out.
        seed: the seed of the environment's reset.

    Raises:
        ConfigError: a value is out of range, the environment has no pictures, or there is neither a TensorBoard logger
            nor a `file`.
    """

    @check_keywords("RecordVideo")
    def __init__(
        self,
        every_env_steps: CountEnvSteps = "10%",  # type: ignore[assignment]  # pyright: ignore
        *,
        max_steps: Count = 1000,
        file: Literal["gif", "mp4"] | None = None,
        side: Count = 320,
        fps: Positive | None = None,
        seed: int = 0,
    ) -> None:
        self.every_env_steps, self.max_steps = to_env_steps(every_env_steps), max_steps
        self.file, self.side, self.fps, self.seed = file, side, fps, seed
        self._workers: Any = None
        self._every = 0  # steps between two frames
        self._frames_per_second = 0.0
        self._env_steps = 0
        self._pictures: list[Any] = []

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Check that there is something to record, and somewhere to write it."""
        datamodule: Any = getattr(trainer, "datamodule", None)
        if stage != "fit" or not trainer.is_global_zero:
            return
        if not hasattr(datamodule, "evaluation_env"):
            raise ConfigError("RecordVideo plays in the environment of a RolloutDataModule: fit(policy, datamodule)")
        if self.file is None and not has_tensorboard(trainer.loggers):
            raise ConfigError("RecordVideo has nowhere to write: add a TensorBoard logger, or set file: gif")
        if self.file is not None:
            check_video_file(Path(f"step.{self.file}"))
        if not self._every:
            own = check_picture(datamodule.evaluation_env, "RecordVideo")
            self._every = math.ceil((self.fps or own) / SMOOTH)
            self._frames_per_second = (self.fps or own) / self._every

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Count from the env steps of a resumed run."""
        self._env_steps = int(pl_module.env_steps)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Record an episode if one is due."""
        before, self._env_steps = self._env_steps, int(pl_module.env_steps)
        if self._env_steps // self.every_env_steps == before // self.every_env_steps or not trainer.is_global_zero:
            return
        started = time.perf_counter()
        self._record(trainer, pl_module)
        leave_out_seconds(trainer, time.perf_counter() - started)

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Close the environment."""
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Close the environment, because Lightning runs no teardown after an exception."""
        self._close()

    def _close(self) -> None:
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.stop()

    def _record(self, trainer: Trainer, policy: Any) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        datamodule: Any = trainer.datamodule  # pyright: ignore[reportAttributeAccessIssue]
        if self._workers is None:
            actor = datamodule.acting_policy(policy)
            self._workers = watched_workers(
                datamodule.evaluation_env,
                actor,
                self._show,
                render_mode="rgb_array",
                seed=self.seed,
                every=self._every,
            )
        self._workers.sync_weights(policy)
        self._workers.load_state_dict({"0": {"fragment": 0, "env_steps": 0}})  # the same beginning each time
        self._pictures = []
        with suppress(StopWatching):  # it is longer than max_steps
            self._workers.run_episodes(1)
        pictures, self._pictures = self._pictures, []
        fps, shows = self._frames_per_second, has_tensorboard(trainer.loggers)
        gif = encode_gif(pictures, fps) if shows or self.file == "gif" else b""
        if shows:
            high, wide = pictures[0].shape[:2]
            image = Summary.Image(height=high, width=wide, colorspace=3, encoded_image_string=gif)
            log_summary(trainer, Summary(value=[Summary.Value(tag=TAG, image=image)]), self._env_steps)
        if self.file is None:
            return
        file = Path(trainer.default_root_dir) / "videos" / f"step_{self._env_steps:09d}.{self.file}"
        if self.file == "gif":
            write_atomically(file, gif, durable=False)
            return
        with VideoFile(file, fps) as video:
            for picture in pictures:
                video.add(picture)

    def _show(self, frames: list[Frame]) -> None:
        (frame,) = frames
        picture = scale_to_fit(as_rgb(frame.rendered), self.side, self.side)
        self._pictures.append(add_caption(picture, f"step {frame.steps}  return {frame.episode_return:.6g}"))
        if frame.steps >= self.max_steps and not frame.over:
            raise StopWatching(f"longer than {self.max_steps} steps")
