"""Pictures as a video: GIF by Pillow, which TensorBoard brings; MP4 by imageio and its ffmpeg (the extra `video`)."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
from PIL import Image

from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.atomic import check_writable, write_atomically

__all__ = ["ENDINGS", "VideoFile", "check_video_file", "encode_gif", "has_mp4"]

ENDINGS = (".mp4", ".gif")
GIF_FPS = 50  # browsers show faster ones at 10 frames per second
COLORS = 256


def has_mp4() -> bool:
    """Whether this machine can write MP4: the extra `video` is installed."""
    return find_spec("imageio") is not None and find_spec("imageio_ffmpeg") is not None


def encode_gif(pictures: Sequence[Any], fps: float) -> bytes:
    """An animated GIF that repeats without end.

    Args:
        pictures: uint8 `[H, W, 3]`, or images of Pillow with a palette.
        fps: pictures per second. GIF counts hundredths of a second, and takes no more than 50 pictures in one: of
            faster videos, some pictures are left out.
    """
    stride = max(1, math.ceil(fps / GIF_FPS))
    chosen = [*pictures[::stride]]
    if (len(pictures) - 1) % stride:
        chosen.append(pictures[-1])  # how it ended
    images = [with_palette(each) for each in chosen]
    file = io.BytesIO()
    milliseconds = max(2, round(100 * stride / fps)) * 10
    images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=milliseconds, loop=0)
    return file.getvalue()


def with_palette(picture: Any) -> Image.Image:
    """A picture with its own 256 colors, a third of its size."""
    if isinstance(picture, Image.Image):
        return picture
    image = Image.fromarray(np.ascontiguousarray(picture))
    return image.quantize(COLORS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)


def check_video_file(file: Path) -> None:
    """Check that a video of this name can be written.

    Raises:
        ConfigError: the ending is not .mp4 or .gif, there is no place for the file, or MP4 needs packages that are not
            installed.
    """
    ending = file.suffix.lower()
    if ending not in ENDINGS:
        raise ConfigError(f"{file}: a video ends with {' or '.join(ENDINGS)}")
    if file.is_dir():
        raise ConfigError(f"{file} is a directory: give a file")
    check_writable(str(file), file.parent)
    if ending == ".mp4" and not has_mp4():
        raise ConfigError(
            f'{file}: MP4 needs imageio and imageio-ffmpeg: pip install -e ".[video]"; .gif needs nothing more'
        )


class VideoFile:
    """Writes pictures of one size into a video, a GIF or an MP4 by the file's ending; a context.

    The file is there when the context has ended without an error.

    Args:
        file: its directory is made.
        fps: pictures per second.

    Raises:
        ConfigError: see `check_video_file`.
    """

    def __init__(self, file: Path, fps: float) -> None:
        self.file, self.fps, self.ending = file, fps, file.suffix.lower()
        check_video_file(file)
        self._images: list[Image.Image] = []
        self._writer: Any = None
        self._partial = file.with_name(f".{file.stem}.partial{self.ending}")

    def add(self, picture: np.ndarray) -> None:
        """Add a picture uint8 `[H, W, 3]`."""
        if self.ending == ".gif":
            self._images.append(with_palette(picture))
            return
        if self._writer is None:
            import imageio.v2 as imageio

            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._partial.unlink(missing_ok=True)  # ffmpeg would write through a link
            # H.264 as browsers play it has even sides, which `add` sees to; imageio would resize to multiples of 16.
            self._writer = imageio.get_writer(self._partial, format="FFMPEG", fps=self.fps, macro_block_size=2)  # type: ignore[arg-type]
        sides = [(0, size % 2) for size in picture.shape[:2]]
        self._writer.append_data(np.pad(picture, [*sides, (0, 0)], mode="edge"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()
            if kind is None:
                self._partial.replace(self.file)
            else:
                self._partial.unlink(missing_ok=True)
        elif kind is None and self._images:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.file, encode_gif(self._images, self.fps), durable=False)
