"""Explains errors of Hydra in terms of the config: the user's text, what is expected, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hydra import compose
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf

from lightning_rl.config.groups import GROUPS, PRIMARY
from lightning_rl.config.keys import dotted_keys
from lightning_rl.errors import ConfigError, did_you_mean, first_line, no_such_key

__all__ = ["ALL_GROUPS", "no_choice", "refusal"]

ALL_GROUPS = f" Groups: {', '.join(GROUPS)}"
# The key that is meant if a number is given for a group.
NUMBER_MEANS = {
    "workers": "workers.num_workers={}",
    "evaluation": "evaluation.every_env_steps={}",
    "model": "model.fcnet_hiddens=[{}]",
    "trainer": "trainer.devices={}",
}
# What is a flag of a policy here, and a name of its own elsewhere.
VARIANTS = {
    "mappo": "policy=ppo policy.central_critic=true",
    "ippo": "policy=ppo policy.central_critic=false",
    "maa2c": "policy=a2c policy.central_critic=true",
    "ia2c": "policy=a2c policy.central_critic=false",
    "ddqn": "policy=dqn",
}


def refusal(error: HydraException, overrides: Sequence[str]) -> ConfigError:
    """The error for the user, in one line: their text, what is expected, and what to write instead."""
    unknown = re.match(r"Could not (?:override|delete from config.) '([^']+)'", str(error))
    if not unknown:
        return ConfigError(_explanation(error))
    key = getattr(error.__cause__, "full_key", None) or unknown[1]  # for a mapping, the key inside it
    return ConfigError(no_key(key, [each for each in overrides if each.split("=")[0] in GROUPS]), key=key)


def _explanation(error: HydraException) -> str:
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return no_choice(group, name, error.options or [])
    if isinstance(error, OverrideParseException):
        written = (error.override or "").removeprefix("++")  # which `complete_config` may have added
        return (
            f"override {written!r} cannot be read ({first_line(error)}): write key=value, and quote a value that holds "
            "a comma, =, or spaces, but not the names in a mapping, such as {adversary_*: hunter, *: prey}"
        )
    ambiguous = re.match(r"Ambiguous value for argument '(.*)'", str(error))
    if ambiguous:
        return f"{ambiguous[1]!r} is a sweep: add -m to run every value, or write key=[a,b] for a list"
    return " ".join(line.strip() for line in str(error).splitlines() if line.strip())


def no_choice(group: str, name: str, options: Iterable[str]) -> str:
    """Message for a choice `group=name` that does not exist, with the choices that do."""
    known = sorted(options)
    if not known:
        return f"{group}={name}: no config group {group!r}.{did_you_mean(group, GROUPS)}{ALL_GROUPS}"
    advice = " (an environment without a preset: env.id=ID or env.id=my_pkg.envs:MyEnv)" if group == "env" else ""
    if group in NUMBER_MEANS and re.fullmatch(r"\d[\d_.e+]*%?", name):
        suggestion = f" Did you mean {NUMBER_MEANS[group].format(name)}?"
    elif name in ("null", "false") and "none" in known:
        suggestion = " Did you mean 'none'?"
    elif group == "policy" and name.lower() in VARIANTS:
        suggestion = f" Did you mean {VARIANTS[name.lower()]}?"
    else:
        suggestion = did_you_mean(name, known)
    return f"{group}={name}: no such {group}.{suggestion} Choices: {', '.join(known)}{advice}"


def no_key(key: str, choices: Sequence[str]) -> str:
    """Message for a key that does not exist, with the nearest key in the config for these choices."""
    return no_such_key(key, [*GROUPS, *dotted_keys(plain_of_choices(choices))], ALL_GROUPS)


def plain_of_choices(choices: Sequence[str]) -> Mapping[str, Any]:
    """The unresolved config for these group choices, or for the defaults if they cannot be composed."""
    try:
        config = compose(PRIMARY, list(choices))
    except HydraException:
        config = compose(PRIMARY)
    container: Any = OmegaConf.to_container(config)
    return container
