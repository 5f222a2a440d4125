"""Pictures uint8 `[H, W, 3]`: their form, their size, a line of text below, several side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from lightning_rl.errors import EnvError, short_repr

__all__ = ["add_caption", "as_rgb", "scale_to_fit", "tile"]

GAP = 4  # pixels between pictures
CAPTION, FONT = 18, 12  # height of the caption and of its text, pixels
BACKGROUND, FOREGROUND = (24, 24, 27), (228, 228, 231)


def as_rgb(rendered: Any) -> np.ndarray:
    """What an environment rendered as a picture uint8 `[H, W, 3]`.

    Args:
        rendered: uint8 `[H, W, 3]`, `[H, W, 4]` (the last channel is dropped) or `[H, W]` (gray).

    Raises:
        EnvError: it is none of these.
    """
    picture = rendered if isinstance(rendered, np.ndarray) else None
    if picture is not None and picture.dtype == np.uint8 and picture.size:
        if picture.ndim == 2:
            return np.repeat(picture[:, :, None], 3, axis=2)
        if picture.ndim == 3 and picture.shape[2] in (3, 4):
            return picture[:, :, :3]
    found = short_repr(rendered) if picture is None else f"an array {picture.dtype} {[*picture.shape]}"
    raise EnvError(f"render() gave {found}; expected a picture uint8 [height, width, 3]")


def scale_to_fit(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    """The picture in the largest size within `width` × `height` pixels, at least one pixel each way.

    It shrinks to any size, and grows by whole factors only, so that pixels stay sharp.
    """
    high, wide = picture.shape[:2]
    factor = min(width / wide, height / high)
    if factor >= 1:
        return picture.repeat(int(factor), axis=0).repeat(int(factor), axis=1)
    size = max(1, round(wide * factor)), max(1, round(high * factor))
    return np.asarray(Image.fromarray(np.ascontiguousarray(picture)).resize(size, Image.Resampling.BOX))


def add_caption(picture: np.ndarray, text: str) -> np.ndarray:
    """The picture with a line of text below; text that is too long is cut."""
    high, wide = picture.shape[:2]
    canvas = Image.new("RGB", (wide, high + CAPTION), BACKGROUND)
    canvas.paste(Image.fromarray(np.ascontiguousarray(picture)), (0, 0))
    ImageDraw.Draw(canvas).text((5, high + 2), text, fill=FOREGROUND, font=caption_font())
    return np.asarray(canvas)


@cache
def caption_font() -> Any:
    """Pillow's own font, which takes a millisecond to load."""
    return ImageFont.load_default(FONT)


def tile(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Pictures of one size side by side, in as many rows as columns or one less; free places stay dark."""
    columns = math.ceil(math.sqrt(len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    high, wide = pictures[0].shape[:2]
    canvas = np.empty((rows * (high + GAP) - GAP, columns * (wide + GAP) - GAP, 3), dtype=np.uint8)
    canvas[:] = BACKGROUND
    for index, picture in enumerate(pictures):
        top, left = index // columns * (high + GAP), index % columns * (wide + GAP)
        canvas[top : top + high, left : left + wide] = picture
    return canvas
