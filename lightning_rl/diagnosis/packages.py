"""Compares installed packages with what this package needs, by its own metadata; nothing is imported for that."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement  # a dependency of Lightning

from lightning_rl.diagnosis.findings import Finding
from lightning_rl.run_directory.provenance import installed_version
from lightning_rl.version import __version__

__all__ = ["NOT_INSTALLED", "examine_extras", "examine_packages", "unmet"]

NAME = "lightning_rl"
NOT_INSTALLED = "not installed"
FOR_DEVELOPERS = ("all", "bench", "dev", "docs", "test")  # extras that no verb of a user needs


def examine_packages() -> list[Finding]:
    """Versions of this package, of Python and of every package that is needed."""
    if installed_version(NAME) is None:
        return [Finding(NAME, "bad", "runs from a folder and is not installed", "pip install -e . in the checkout")]
    python = platform.python_version()
    needed = metadata.metadata(NAME)["Requires-Python"]
    fits = Requirement(f"python{needed}").specifier.contains(python)
    found = [
        Finding(NAME, "ok", __version__),
        Finding("python", "ok" if fits else "bad", f"{python} ({sys.executable})", "" if fits else f"use {needed}"),
    ]
    for line in metadata.requires(NAME) or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found.append(examine_package(requirement))
    return found


def examine_package(requirement: Requirement) -> Finding:
    """Whether one package is installed, in a version that this package works with."""
    name, install = requirement.name, f'pip install "{requirement.name}{requirement.specifier}"'
    version = installed_version(name)
    if version is None:
        return Finding(name, "bad", NOT_INSTALLED, install)
    if not requirement.specifier.contains(version, prereleases=True):
        return Finding(name, "bad", f"{version}; {requirement.specifier} is needed", install)
    return Finding(name, "ok", version)


def examine_extras() -> list[Finding]:
    """Which extras are installed, and the command for each other one."""
    found = []
    provided = [] if installed_version(NAME) is None else metadata.metadata(NAME).get_all("Provides-Extra")
    for extra in provided or []:
        if extra in FOR_DEVELOPERS:
            continue
        missing = list(dict.fromkeys(unmet(NAME, extra)))
        if not missing:
            found.append(Finding(f"extra {extra}", "ok", "installed"))
        else:
            fix = f'pip install "{NAME}[{extra}]" (in a checkout: pip install -e ".[{extra}]"), if you need it'
            found.append(Finding(f"extra {extra}", "ok", f"not installed: {', '.join(missing)}", fix))
    return found


def unmet(name: str, extra: str) -> Iterator[str]:
    """Packages that an extra of a package needs and that are missing or of another version, extras of extras too."""
    for line in metadata.requires(name) or []:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": extra}):
            continue
        version = installed_version(requirement.name)
        if version is None:
            yield requirement.name
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            yield f"{requirement.name}{requirement.specifier} (is {version})"
        for inner in requirement.extras:
            yield from unmet(requirement.name, inner)
