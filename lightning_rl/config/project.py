"""Creates a project folder from the template that the package ships."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.util import find_spec
from pathlib import Path

from lightning_rl.errors import ConfigError

__all__ = ["create_project", "shipped_template"]

NAME = "my_project"  # of the template's package, replaced by the new folder's name in paths and texts


def shipped_template() -> Path:
    """The directory of the template."""
    return Path(__file__).parents[1] / "template"


def create_project(folder: Path) -> list[Path]:
    """Copy the template to a new folder, with the folder's name for the package's; returns the files.

    Raises:
        ConfigError: the name is not a name of a Python package, or is that of a module, or the folder is there already.
    """
    name = folder.name
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        raise ConfigError(f"init {folder}: {name!r} is not a name of a Python package; use letters, digits and _")
    spec = find_spec(name)  # the search imports nothing; a mere folder has no origin
    if name in sys.stdlib_module_names or name in ("conf", "tests") or (spec is not None and spec.origin is not None):
        raise ConfigError(f"init {folder}: a module of that name is there already; choose another name")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"init {folder}: it is there already; give a new folder")
    written = []
    template = shipped_template()
    for source in sorted(template.rglob("*")):
        inner = source.relative_to(template)
        if not source.is_file() or any(part.startswith((".", "__pycache__")) for part in inner.parts):
            continue  # caches of tools
        target = folder / re.sub(rf"\b{NAME}\b|(?<=test_){NAME}", name, str(inner))
        text = re.sub(rf"\b{NAME}\b", name, source.read_text(encoding="utf-8"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        written.append(target)
    return written
