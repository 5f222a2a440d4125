"""`lightning-rl video`: records episodes of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning_rl.cli.parser import Parser, add_policy_arguments, whole_number
from lightning_rl.config import descriptions

__all__ = ["video"]


def video(arguments: Sequence[str]) -> int:
    """Record episodes of a policy: video RUN_DIR [--best] [--episodes 3] [--grid] [--out FILE.mp4|FILE.gif]."""
    parser = Parser(prog="lightning-rl video", description=video.__doc__)
    add_policy_arguments(parser, episodes=3)
    parser.add_argument("--out", type=Path, help="default: RUN_DIR/videos/CHECKPOINT_seedN.mp4, or .gif without ffmpeg")
    parser.add_argument("--grid", action="store_true", help="show the episodes side by side, not in sequence")
    parser.add_argument("--fps", type=float, help="frames per second; default: the environment's rate")
    parser.add_argument("--max-steps", type=whole_number, default=5000, help="maximum episode length; default 5000")
    options = vars(parser.options(arguments))
    from lightning_rl.runs import watch  # torch

    result = watch.record(**options)
    parser.show(result, descriptions.recording(result))
    return 0
