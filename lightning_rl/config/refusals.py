"""What Hydra refuses, in the words of the config: what was written, what is expected, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hydra import compose
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf

from lightning_rl.config.groups import GROUPS, PRIMARY
from lightning_rl.config.keys import dotted, plain_keys
from lightning_rl.errors import SYNONYMS, did_you_mean, first_line, unknown_key

__all__ = ["explanation", "no_choice"]


def explanation(error: HydraException, overrides: Sequence[str]) -> str:
    """One line that names what the user wrote, what is expected, and what to write instead."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return no_choice(group, name, error.options or [])
    if isinstance(error, OverrideParseException):
        advice = "write key=value, and quote a value that holds , = or spaces"
        return f"override {error.override!r} cannot be read ({first_line(error)}): {advice}"
    ambiguous = re.match(r"Ambiguous value for argument '(.*)'", str(error))
    if ambiguous:
        return f"{ambiguous[1]!r} is a sweep: add -m to run every value, or write key=[a,b] for a list"
    unknown = re.match(r"Could not override '([^']+)'", str(error))
    if unknown:
        return no_key(unknown[1], [override for override in overrides if override.split("=")[0] in GROUPS])
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip())


def no_choice(group: str, name: str, options: Iterable[str]) -> str:
    """`group=name` does not exist; which ones do."""
    known = sorted(options)
    if not known:
        return f"{group}={name}: no config group {group!r}.{did_you_mean(group, GROUPS)} Groups: {', '.join(GROUPS)}"
    advice = " (an environment without a preset: env.id=ID or env.id=my_pkg.envs:MyEnv)" if group == "env" else ""
    return f"{group}={name}: no such {group}.{did_you_mean(name, known)} Choices: {', '.join(known)}{advice}"


def no_key(key: str, choices: Sequence[str]) -> str:
    """There is no such key; the nearest one in the config that these choices compose."""
    known = [*GROUPS, *dotted(plain_of_choices(choices))]
    section, _, name = key.rpartition(".")
    siblings = [other.rpartition(".")[2] for other in known if other.rpartition(".")[0] == section]
    if section and siblings:
        return unknown_key(section, name, [sibling for sibling in siblings if sibling != "_target_"], known)
    meant = [other for other in SYNONYMS.get(key.lower(), ()) if other in known]
    same_name = meant or [other for other in known if other.rpartition(".")[2] == key]
    suggestion = f" Did you mean {same_name[0]!r}?" if same_name else did_you_mean(key, known)
    groups = f" Groups: {', '.join(GROUPS)}"
    return f"no key {key!r}.{suggestion or groups}"


def plain_of_choices(choices: Sequence[str]) -> Mapping[str, Any]:
    """The config of these group choices alone, unresolved; of the defaults where they do not compose either."""
    try:
        config = compose(PRIMARY, list(choices))
    except HydraException:
        config = compose(PRIMARY)
    return plain_keys(OmegaConf.to_container(config))
