"""Prints the package's warnings as lines of a command's output, without the place in the source that gave them."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning_rl.errors import printable

__all__ = ["as_lines"]

PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


@contextmanager
def as_lines() -> Iterator[None]:
    """Context in which a warning that this package gives is one line on stderr, "warning: …"; others are as before."""
    with warnings.catch_warnings():
        before = warnings.showwarning

        def show(message: Any, category: Any, filename: str, *place: Any) -> None:
            if filename.startswith(PACKAGE):
                print(f"warning: {printable(str(message))}", file=sys.stderr)
            else:
                before(message, category, filename, *place)

        warnings.showwarning = show
        yield
