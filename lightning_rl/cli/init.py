"""`lightning-rl init`: creates a project folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from lightning_rl.cli.parser import Parser
from lightning_rl.config.project import create_project

__all__ = ["init"]


def init(arguments: Sequence[str]) -> int:
    """Create a project folder with conf/, an environment, a network, a metric and a test: init my_project."""
    parser = Parser(prog="lightning-rl init", description=init.__doc__)
    parser.add_argument("folder", type=Path, help="folder to create; its name becomes the name of the Python package")
    folder = parser.parse_args(arguments).folder
    for file in create_project(folder):
        print(file)
    print(f"\ncd {shlex.quote(str(folder))}\nlightning-rl train policy=my_ppo env=corridor\npython -m pytest")
    return 0
