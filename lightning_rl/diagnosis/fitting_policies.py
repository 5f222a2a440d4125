"""Which shipped policies take an environment's spaces, found by building each one for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml

from lightning_rl.config.groups import group_options, option_text
from lightning_rl.data.kinds_of_data import SERVE_SEVERAL_AGENTS
from lightning_rl.diagnosis.findings import Finding
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import ConfigError, EnvError, UnsupportedSpaceError, import_object

__all__ = ["examine_policies", "refusals"]

Pair = tuple[Any, Any]  # an observation space and an action space
FOR_ONE_AGENT = "learns from experience of one agent: use dqn, ppo or another policy for several"
FOR_GROUP = (
    "takes the parts of Tuple actions for agents: if they are, observe a Dict with a Tuple 'agents', or set the "
    "attribute n_agents beside a Tuple of observations"
)


def examine_policies(creator: EnvCreator, pairs: Sequence[Pair], several: bool) -> list[Finding]:
    """One finding with the policies that fit, and one for each reason of others.

    Args:
        creator: the creator of the environment.
        pairs: distinct (observation space, action space) of its agents.
        several: whether it has several agents.
    """
    found = refusals(pairs)
    grouped = grouped_spaces(creator)
    if not several and grouped is None:
        found |= {name: FOR_GROUP for name, reason in found.items() if not reason and acts_for_group(name)}
    if several and grouped is not None:
        of_groups = refusals([grouped], names=[name for name, reason in found.items() if "env.group_agents" in reason])
        found |= {name: reason and f"as a group: {reason}" for name, reason in of_groups.items()}
    if several:
        found |= {name: FOR_ONE_AGENT for name, reason in found.items() if not reason and learns_from_one_agent(name)}
    fitting = ", ".join(name for name, reason in found.items() if not reason)
    findings = [Finding("policies that fit", "ok", fitting)]
    if not fitting:
        findings = [Finding("policies that fit", "bad", "none", "change the model or the spaces (env.wrappers)")]
    by_reason: dict[str, list[str]] = {}
    for name, reason in found.items():
        if reason:
            by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        findings.append(Finding(f"not {', '.join(names)}", "ok", reason))
    return findings


def acts_for_group(name: str) -> bool:
    """Whether a policy's option takes the parts of actions for those of several agents."""
    target = (yaml.safe_load(option_text("policy", name)) or {}).get("_target_")
    return target is not None and getattr(import_object(target), "acts_for_group", False)


def learns_from_one_agent(name: str) -> bool:
    """Whether the pipeline of a policy's option serves environments with one agent only."""
    for entry in (yaml.safe_load(option_text("policy", name)) or {}).get("defaults", ()):
        if isinstance(entry, dict) and (chosen := entry.get("override /data@_global_.data")) is not None:
            target = yaml.safe_load(option_text("data", chosen)).get("_target_")  # `None`: a variant of `replay`
            return target is not None and target not in SERVE_SEVERAL_AGENTS
    return False


def refusals(pairs: Sequence[Pair], names: Sequence[str] | None = None) -> dict[str, str]:
    """Policy → why it does not take one of these (observation space, action space); "" if it takes all.

    Args:
        pairs: distinct spaces of agents.
        names: the names of the policies to try; `None`: all options of the group `policy`, the user's own too.
    """
    return {name: _refusal(name, pairs) for name in (group_options("policy") if names is None else names)}


def _refusal(name: str, pairs: Sequence[Pair]) -> str:
    target = (yaml.safe_load(option_text("policy", name)) or {}).get("_target_")
    if target is None:
        return ""  # a variant of another option, by its defaults list
    policy_class = import_object(target)
    try:
        for pair in pairs:
            policy_class(*pair)
    except (UnsupportedSpaceError, ConfigError) as error:
        # Names at the start are of one class of several with the same reason.
        return " ".join(str(error).split()).removeprefix(f"{policy_class.__name__} ")
    return ""


def grouped_spaces(creator: EnvCreator) -> Pair | None:
    """The spaces of the agents as one group; `None` if they cannot be one."""
    try:
        env = replace(creator, group_agents="all").make_single()
    except (ConfigError, EnvError):
        return None
    try:
        return env.observation_space, env.action_space
    finally:
        env.close()
