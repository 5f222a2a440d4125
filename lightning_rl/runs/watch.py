"""Lets the policy of a checkpoint play for a viewer: in a window or a terminal, or into a video file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lightning_rl.callbacks.rendering.frames import (
    FASTEST,
    SLOWEST,
    Frame,
    StopWatching,
    check_picture,
    render_modes,
    watched_workers,
)
from lightning_rl.callbacks.rendering.pictures import add_caption, as_rgb, scale_to_fit, tile
from lightning_rl.callbacks.rendering.terminal import Keyboard, Player, draw_in_terminal
from lightning_rl.callbacks.rendering.video_files import VideoFile, check_video_file, has_mp4
from lightning_rl.callbacks.rendering.window import PygameWindow
from lightning_rl.data.evaluator import longest_evaluated
from lightning_rl.errors import ConfigError, check_at_least_one
from lightning_rl.rollouts.episodes import was_cut
from lightning_rl.run_directory.regular_files import refuse_links
from lightning_rl.runs.evaluation import load_policy_and_environment, longest_episode

__all__ = ["MOST_STEPS", "RENDERERS", "has_display", "play", "record"]

RENDERERS = {"human": "human", "ansi": "ansi", "rgb": "rgb_array"}
"""Ways to show an environment → its render mode."""
MOST_STEPS = 5000  # of an episode in a video
SIDES = {".mp4": 960, ".gif": 480}  # longest side of a video, pixels
MOST_TILES = 16
PAUSE = 0.7  # seconds for which the end of an episode stands still


def play(
    checkpoint: Path,
    *,
    best: bool = False,
    env: str | None = None,
    episodes: int = 3,
    seed: int = 0,
    explore: bool = False,
    trust: str | Sequence[str] = (),
    render: str = "auto",
    fps: float | None = None,
    max_steps: int | None = None,
    say: Callable[[str], Any] = print,
) -> list[tuple[float, int]]:
    """Show whole episodes of a policy in a window or in the terminal.

    Args:
        checkpoint, best, env, seed, explore, trust: see `evaluate`.
        episodes: how many, unless the viewer quits.
        render: "human" (a window), "ansi" (the environment's text), "rgb" (its picture as colored characters), or
            "auto": the first of these that environment and machine have.
        fps: frames per second; `None`: the environment's own; 0: as fast as they come. A window is never faster than
            its environment lets it be.
        max_steps: see `evaluate`.
        say: gets a line about each episode: at once, or when the terminal has been given back.

    Returns:
        (return, length) of each episode that ended.

    Raises:
        CheckpointError, ConfigError: see `evaluate`; or environment or machine cannot show it in this way.
        EnvError: the environment cannot render.
    """
    check_at_least_one(episodes=episodes, max_steps=1 if max_steps is None else max_steps)
    if fps is not None and fps != 0 and not SLOWEST <= fps <= FASTEST:
        raise ConfigError(
            f"fps={fps}; expected {SLOWEST:g} to {FASTEST:g} frames per second, or 0: as fast as they come"
        )
    from rich.console import Console

    console = Console()
    file, policy, creator = load_policy_and_environment(checkpoint, best=best, env=env, trust=trust)
    limit = longest_evaluated(longest_episode(file, env), creator) if max_steps is None else max_steps
    modes, own_fps = render_modes(creator)
    renderer = choose_renderer(render, modes, creator.name, console.is_terminal)
    if renderer == "rgb":
        check_picture(creator, "--render rgb")
    windowed, window = renderer == "human", PygameWindow()
    takes_all = console.is_terminal and not windowed  # nothing else can be printed meanwhile
    lines: list[str] = []
    played: list[tuple[float, int]] = []
    try:
        with (
            Keyboard(window=window.read if windowed else None) as keyboard,
            console.screen(hide_cursor=True) if takes_all else nullcontext(),
        ):
            draw = window.draw if windowed else partial(draw_in_terminal, console)
            player = Player(draw, keyboard, own_fps if fps is None else fps)
            workers = watched_workers(
                creator,
                policy,
                player.show,
                render_mode=RENDERERS[renderer],
                seed=seed,
                explore=explore,
                max_episode_steps=limit,
            )
            try:
                for number in range(1, episodes + 1):
                    player.episode = number
                    played += workers.run_episodes(1)
                    player.last_episode = describe_episode(number, played[-1])
                    (lines.append if takes_all else say)(player.last_episode)
            except StopWatching:  # the viewer has seen enough
                lines.append(f"episode {player.episode}: stopped at {player.describe_position()}")
            finally:
                workers.stop()
    finally:
        for line in lines:
            say(line)
    return played


def choose_renderer(render: str, modes: Sequence[str], name: str, is_terminal: bool) -> str:
    """How to show an environment: "human", "ansi" or "rgb".

    Args:
        render: one of these, or "auto".
        modes: render modes of the environment.
        name: the name of the environment, for messages.
        is_terminal: whether the standard output is a terminal.

    Raises:
        ConfigError: environment or machine cannot show it in this way.
    """
    shown = [renderer for renderer, mode in RENDERERS.items() if mode in modes]
    usable = [each for each in shown if (has_display() if each == "human" else is_terminal or render == each)]
    chosen = usable if render == "auto" else [each for each in usable if each == render]
    if not chosen:
        raise ConfigError(
            f"--render {render}: environment {name!r} can be shown by {', '.join(shown) or 'nothing'} (its metadata "
            f"name the render_modes {[*modes]}). human needs a display (DISPLAY), ansi and rgb a terminal; "
            "`lightning-rl video` needs rgb_array and writes a file"
        )
    return chosen[0]


def has_display() -> bool:
    """Whether a window can be opened, or SDL was given its own driver."""
    named = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in named)


def describe_episode(number: int, episode: tuple[float, int]) -> str:
    """A line about an episode that ended: its return and length; with several agents, the returns by policy."""
    by_policy = getattr(episode, "by_policy", {})
    own = ", ".join(f"{name} {value:.6g}" for name, value in by_policy.items())
    cut = ", cut there (--max-steps)" if was_cut(episode) else ""
    return f"episode {number}: return {episode[0]:.6g}, length {episode[1]}" + (f" ({own})" if own else "") + cut


def record(
    checkpoint: Path,
    *,
    best: bool = False,
    env: str | None = None,
    episodes: int = 3,
    seed: int = 0,
    explore: bool = False,
    trust: str | Sequence[str] = (),
    out: Path | None = None,
    grid: bool = False,
    fps: float | None = None,
    max_steps: int = MOST_STEPS,
) -> dict[str, Any]:
    """Write whole episodes of a policy into a video, one after the other or side by side.

    Args:
        checkpoint, best, env, seed, explore, trust: see `evaluate`.
        episodes: how many; of a grid, at most 16.
        out: the file, .mp4 or .gif; `None`: "videos/…" in the run directory, MP4 if its packages are installed.
        grid: side by side: the episodes of environments with different seeds, which an evaluation of the same seed
            plays too.
        fps: frames per second; `None`: the environment's own.
        max_steps: an episode that is longer is cut there.

    Returns:
        file, checkpoint, env, returns, lengths, and cut: how many episodes were.

    Raises:
        CheckpointError, ConfigError: see `evaluate`; or the environment has no pictures, or the ending is unknown.
        EnvError: the environment cannot render.
    """
    check_at_least_one(episodes=episodes, max_steps=max_steps)
    if grid and episodes > MOST_TILES:
        raise ConfigError(f"--episodes {episodes} --grid: a picture has room for {MOST_TILES} episodes")
    if fps is not None and not SLOWEST <= fps <= FASTEST:
        raise ConfigError(f"fps={fps}; expected {SLOWEST:g} to {FASTEST:g} frames per second")
    if out is not None:
        check_video_file(out)
    checkpoint, policy, creator = load_policy_and_environment(checkpoint, best=best, env=env, trust=trust)
    own_fps = check_picture(creator, "a video")
    file = default_file(checkpoint, seed, grid) if out is None else out
    width = episodes if grid else 1
    with VideoFile(file, fps or own_fps) as video:
        recorder = Recorder(video, width, max_steps)
        workers = watched_workers(
            creator, policy, recorder.show, render_mode="rgb_array", num_envs=width, seed=seed, explore=explore
        )
        try:
            for number in range(episodes // width):
                recorder.begin()
                # Seeds follow from the number, which a cut episode would not count on.
                workers.load_state_dict({"0": {"fragment": number, "env_steps": 0}})
                with suppress(StopWatching):  # all episodes are over or cut
                    workers.run_episodes(width)
        finally:
            workers.stop()
    ended = {
        "returns": [frame.episode_return for frame in recorder.ends],
        "lengths": [frame.steps for frame in recorder.ends],
        "cut": sum(not frame.over for frame in recorder.ends),
    }
    return {"file": str(file), "checkpoint": str(checkpoint), "env": creator.name, **ended}


def default_file(checkpoint: Path, seed: int, grid: bool) -> Path:
    """A name in the directory "videos" of the checkpoint's run; of the working directory, if it has no run."""
    run_dir = checkpoint.absolute().parent.parent
    home = run_dir if (run_dir / "config.yaml").is_file() else Path()
    refuse_links(home)
    name = f"{checkpoint.stem}_seed{seed}{'_grid' if grid else ''}{'.mp4' if has_mp4() else '.gif'}"
    return home / "videos" / name


class Recorder:
    """Adds the frames of episodes, one or several side by side, to a video.

    Args:
        video: the file.
        tiles: episodes side by side.
        max_steps: at which an episode is cut.

    Attributes:
        ends: the last frame of each episode, in their order.
    """

    def __init__(self, video: VideoFile, tiles: int, max_steps: int) -> None:
        self.video, self.tiles, self.max_steps = video, tiles, max_steps
        self.side = SIDES[video.ending] // int(np.ceil(np.sqrt(tiles)))
        self.ends: list[Frame] = []
        self.begin()

    def begin(self) -> None:
        """Expect new episodes."""
        self._pictures: list[np.ndarray | None] = [None] * self.tiles
        self._ends: list[Frame | None] = [None] * self.tiles

    def show(self, frames: list[Frame]) -> None:
        """Add a picture; of an episode that is over, its end stays.

        Raises:
            StopWatching: all episodes are over or cut, and some would continue.
        """
        for index, frame in enumerate(frames):
            if self._ends[index] is None:
                picture = scale_to_fit(as_rgb(frame.rendered), self.side, self.side)
                counts = f"#{len(self.ends) + index + 1}  step {frame.steps}  return {frame.episode_return:.6g}"
                self._pictures[index] = add_caption(picture, counts)
                if frame.over or frame.steps >= self.max_steps:
                    self._ends[index] = frame
        picture = tile([each for each in self._pictures if each is not None])
        ends = [end for end in self._ends if end is not None]
        over = len(ends) == self.tiles
        for _ in range(max(1, round(PAUSE * self.video.fps)) if over else 1):
            self.video.add(picture)
        if over:
            self.ends += ends
            if not all(end.over for end in ends):
                raise StopWatching(f"longer than {self.max_steps} steps")
