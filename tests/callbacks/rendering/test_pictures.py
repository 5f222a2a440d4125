"""Pictures: their form, size, caption, and several side by side."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from lightning_rl.callbacks.rendering.pictures import CAPTION, GAP, add_caption, as_rgb, scale_to_fit, tile
from lightning_rl.callbacks.rendering.video_files import VideoFile, encode_gif, has_mp4
from lightning_rl.errors import ConfigError, EnvError
from tests.refusals import not_refused


def plain(height: int, width: int, color: tuple[int, int, int]) -> np.ndarray:
    return np.full((height, width, 3), color, np.uint8)


def test_gray_and_transparent_pictures_become_rgb():
    gray = as_rgb(np.array([[7, 9]], np.uint8))
    assert gray.tolist() == [[[7, 7, 7], [9, 9, 9]]]
    assert as_rgb(np.zeros((2, 3, 4), np.uint8)).shape == (2, 3, 3)


def test_what_is_no_picture_is_named():
    cases = [(None, "None"), ("text", "'text'"), (np.zeros(0, np.uint8), "uint8")]
    cases.append((np.zeros((2, 2, 3)), r"float64 \[2, 2, 3\]"))
    assert not_refused(as_rgb, cases, EnvError) == []


def test_a_picture_grows_by_whole_factors_and_shrinks_to_fit():
    """2 × 3 pixels within 10 × 10: factor 3; 200 × 100 within 50 × 50: a quarter."""
    assert scale_to_fit(plain(2, 3, (1, 2, 3)), 10, 10).shape == (6, 9, 3)
    assert scale_to_fit(plain(200, 100, (1, 2, 3)), 50, 50).shape == (50, 25, 3)
    assert scale_to_fit(plain(1, 900, (1, 2, 3)), 9, 9).shape == (1, 9, 3)


def test_a_caption_is_written_below_the_picture():
    captioned = add_caption(plain(40, 100, (200, 0, 0)), "step 3")
    assert captioned.shape == (40 + CAPTION, 100, 3)
    assert (captioned[:40] == (200, 0, 0)).all()
    assert captioned[40:].max() > 200  # the letters


def test_three_pictures_stand_in_two_columns():
    colors = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    grid = tile([plain(4, 6, color) for color in colors])
    assert grid.shape == (8 + GAP, 12 + GAP, 3)
    places = [(0, 0), (0, 6 + GAP), (4 + GAP, 0)]
    assert [tuple(grid[place].tolist()) for place in places] == colors
    assert tuple(grid[-1, -1]) not in colors


def test_a_gif_shows_its_pictures_at_their_pace_and_repeats():
    shades = [plain(8, 8, (shade, 0, 0)) for shade in (10, 90, 170, 250)]
    gif = Image.open(io.BytesIO(encode_gif(shades, fps=10)))
    assert (gif.n_frames, gif.info["duration"], gif.info["loop"]) == (4, 100, 0)
    gif.seek(2)
    assert gif.convert("RGB").getpixel((3, 3)) == (170, 0, 0)


def test_a_fast_gif_leaves_pictures_out_but_never_the_last():
    """100 frames per second: every second of 6 pictures, and the last; 2 / 100 s are 20 ms each."""
    shades = [plain(8, 8, (40 * step, 0, 0)) for step in range(6)]
    gif = Image.open(io.BytesIO(encode_gif(shades, fps=100)))
    shown = []
    for frame in range(gif.n_frames):
        gif.seek(frame)
        shown.append(gif.convert("RGB").getpixel((0, 0))[0] // 40)
    assert (shown, gif.info["duration"]) == ([0, 2, 4, 5], 20)


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"episode\.avi.*\.mp4"):
        VideoFile(tmp_path / "episode.avi", 10)


def test_an_error_leaves_no_file(tmp_path):
    with pytest.raises(LookupError), VideoFile(tmp_path / "episode.gif", 10) as video:
        video.add(plain(8, 8, (1, 2, 3)))
        raise LookupError
    assert [*tmp_path.iterdir()] == []


def test_mp4_without_its_packages_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr("lightning_rl.callbacks.rendering.video_files.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'"\.\[video\]"'):
        VideoFile(tmp_path / "episode.mp4", 10)


@pytest.mark.skipif(not has_mp4(), reason='pip install -e ".[video]"')
def test_an_mp4_holds_every_picture_at_its_pace(tmp_path):
    """Sides are odd, which H.264 as browsers play it cannot have: a row and a column are added."""
    import imageio.v2 as imageio

    file = tmp_path / "videos" / "episode.mp4"
    with VideoFile(file, 20) as video:
        for shade in range(0, 250, 10):
            video.add(plain(51, 33, (shade, 0, 0)))
    with imageio.get_reader(file) as reader:
        meta, pictures = reader.get_meta_data(), [np.asarray(each) for each in reader]
    assert (meta["fps"], meta["size"], len(pictures)) == (20, (34, 52), 25)
    assert pictures[20][25, 16, 0] == pytest.approx(200, abs=12)
    assert [path.name for path in file.parent.iterdir()] == ["episode.mp4"]

    with pytest.raises(LookupError), VideoFile(tmp_path / "broken" / "episode.mp4", 20) as video:
        video.add(plain(16, 16, (1, 2, 3)))
        raise LookupError
    assert [*(tmp_path / "broken").iterdir()] == []
