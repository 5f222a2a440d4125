"""`lightning-rl play`: shows a policy in its environment."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_rl.cli.parser import Parser, add_policy_arguments, whole_number

__all__ = ["play"]


def play(arguments: Sequence[str]) -> int:
    """Watch a policy in a window or in the terminal: play RUN_DIR [--best] [--episodes 3] [--render rgb]."""
    parser = Parser(prog="lightning-rl play", description=play.__doc__)
    add_policy_arguments(parser, episodes=3)
    ways = (
        "human: a window; ansi: the environment's text; rgb: frames as colored characters; auto: the first that works"
    )
    parser.add_argument("--render", choices=("auto", "human", "ansi", "rgb"), default="auto", help=ways)
    parser.add_argument("--fps", type=float, help="frames per second; 0: no limit; default: the environment's rate")
    limit = "maximum episode length; default: the run's evaluation.max_episode_steps"
    parser.add_argument("--max-steps", type=whole_number, help=limit)
    parser.epilog = "Keys in the window or the terminal: space pauses, n steps while paused, q quits."
    options = parser.parse_args(arguments)
    from lightning_rl.runs import watch  # torch

    watch.play(**vars(options))
    return 0
