"""Builds the policies of several agents from the entries of `policies`."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gymnasium import Space, spaces
from torch import nn

from lightning_rl.errors import ConfigError, UnsupportedSpaceError, did_you_mean, import_object, short_repr
from lightning_rl.learning.lightning_limits import check_methods_among_several
from lightning_rl.policies.checkpoints import load_policy
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.policy_mapping import PolicyMapping
from lightning_rl.policies.random_policy import RandomPolicy
from lightning_rl.policies.scripted_policy import ScriptedPolicy
from lightning_rl.run_directory.checkpoints import checkpoint_of
from lightning_rl.schema.signatures import keywords_of
from lightning_rl.seeding import derive_seed

__all__ = [
    "TAKEN_NAMES",
    "AgentSpaces",
    "agent_with_spaces",
    "as_mapping",
    "build_policy",
    "check_policy_id",
    "id_number",
    "policy_seed",
    "spaces_by_agent",
    "trained_ids",
]

NAMED_POLICIES = {"random": RandomPolicy, "scripted": ScriptedPolicy}
LEARNING_VERBS = frozenset({"learn_on_batch", "compute_gradients"})
TAKEN_NAMES = frozenset(dir(nn.ModuleDict()))  # which `nn.ModuleDict` accepts as no key
AgentSpaces = Mapping[str, tuple[Space[Any], Space[Any]]]  # agent → its observation space and its action space


def build_policy(
    policy_id: str, entry: dict[str, Any], own_spaces: tuple[Space[Any], Space[Any]], **of_set: int
) -> Policy:
    """The policy of an entry.

    Args:
        policy_id: its id.
        entry: what `as_mapping` gives, without `spaces_of`.
        own_spaces: observation space and action space of its agents.
        of_set: "seed" and "central_size" of the set, for policies without a seed, and with a central critic.

    Raises:
        ConfigError, UnsupportedSpaceError: the entry cannot work; names its id.
    """
    key = f"policies.{policy_id}"
    try:
        policy = _build(key, policy_id, entry, own_spaces, **of_set)
        check_methods_among_several(policy)
    except (ConfigError, UnsupportedSpaceError) as error:
        if not str(error).startswith(key):
            error.args = (f"{key}: {error}",)
        raise
    return policy


def _build(
    key: str,
    policy_id: str,
    entry: dict[str, Any],
    own_spaces: tuple[Space[Any], Space[Any]],
    seed: int,
    central_size: int,
) -> Policy:
    if "checkpoint" in entry:
        if unknown := sorted(entry.keys() - {"checkpoint", "policy_id"}):
            raise ConfigError(f"{key}.{unknown[0]} beside checkpoint: the file holds the policy's keywords")
        path = Path(entry["checkpoint"])
        policy = load_policy(checkpoint_of(path) if path.is_dir() else path, policy_id=entry.get("policy_id"))
        if not isinstance(policy, Policy):
            raise ConfigError(f"{key} holds several policies itself; name one by policy_id: {listed(policy.policies)}")
        return policy
    target = entry.pop("_target_")
    if isinstance(target, Policy):
        if entry:
            raise ConfigError(f"{key}: a policy that is built already takes no keywords ({', '.join(entry)})")
        return target
    found = NAMED_POLICIES.get(target, target) if isinstance(target, str) else target
    found = import_object(found) if isinstance(found, str) else found
    if not isinstance(found, type) and callable(found):
        found, entry = ScriptedPolicy, {"function": target, **entry}
    if not isinstance(found, type) or not issubclass(found, Policy):
        raise ConfigError(
            f"{key}._target_={short_repr(target)}; expected a policy class, a function of an observation, the "
            "import path of one of them, or random"
        )
    known = keywords_of(found)
    if "seed" in known and entry.get("seed") is None:
        entry["seed"] = policy_seed(seed, policy_id)
    if "central_obs_size" in known and not entry.get("central_obs_size"):
        entry["central_obs_size"] = central_size
    if _needs_config(found) and "config" not in entry:
        entry = {"config": entry}
    try:
        inspect.signature(found).bind(*own_spaces, **entry)
    except TypeError as error:
        raise ConfigError(f"{key}: {found.__name__}: {error}") from error
    return found(*own_spaces, **entry)


def agent_with_spaces(
    policy_id: str, named: str | None, entry: Mapping[str, Any], mapping: PolicyMapping, agent_spaces: AgentSpaces
) -> str:
    """An agent with the spaces of this policy: of those that it acts for, or the named one.

    Raises:
        ConfigError: there is none, or the agents that it acts for have different spaces.
    """
    agents = [*mapping.agents_of(policy_id)]
    if named is not None:
        if named not in agent_spaces:
            raise ConfigError(
                f"policies.{policy_id}.spaces_of={named!r} is not an agent.{did_you_mean(named, agent_spaces)}"
            )
        agents.append(named)
    if not agents and isinstance(entry.get("_target_"), Policy):
        own = entry["_target_"].observation_space, entry["_target_"].action_space
        agents = [name for name, pair in agent_spaces.items() if pair == own]
    if not agents and not mapping.static and _are_equal(agent_spaces):
        agents = [*agent_spaces]
    if not agents:
        raise ConfigError(
            f"policies.{policy_id}: no agent has this policy by policy_mapping={short_repr(mapping.given)} "
            f"(agents: {listed(agent_spaces)}): map one to it, leave the policy out, or name an agent with "
            f"its spaces: policies.{policy_id}.spaces_of={next(iter(agent_spaces))!r}"
        )
    for other in agents[1:]:
        for name, first, second in zip(
            ("observation", "action"), agent_spaces[agents[0]], agent_spaces[other], strict=True
        ):
            if first != second:
                raise ConfigError(
                    f"policy {policy_id!r} cannot act for both {agents[0]!r} and {other!r}: their {name} spaces "
                    f"are {first} and {second}. Map them to two policies, or make the spaces equal by a wrapper"
                )
    return agents[0]


def trained_ids(given: Sequence[str] | None, policies: Mapping[str, Policy], entries: Mapping[str, Any]) -> list[str]:
    """The ids of the policies that learn; `None`: all that can and whose entry names no checkpoint.

    Raises:
        ConfigError: an id is unknown or there twice, or its policy cannot learn.
    """
    if given is None:
        fixed = [name for name, entry in entries.items() if isinstance(entry, Mapping) and "checkpoint" in entry]
        return [name for name, policy in policies.items() if _can_learn(policy) and name not in fixed]
    for position, policy_id in enumerate(given):
        if policy_id not in policies:
            raise ConfigError(
                f"policies_to_train names {policy_id!r}, which is none of the policies {listed(policies)}."
                f"{did_you_mean(policy_id, policies)}"
            )
        if policy_id in given[:position]:
            raise ConfigError(f"policies_to_train names {policy_id!r} twice")
        if not _can_learn(policy := policies[policy_id]):
            reason = "learns from whole populations, not from an agent's steps" if policy.evolves else "never learns"
            raise ConfigError(
                f"policies_to_train names {policy_id!r}, a {type(policy).__name__}, which {reason}: leave it out, or "
                "choose another policy"
            )
    return list(given)


def _can_learn(policy: Policy) -> bool:
    """Whether a policy can learn from an agent's steps: by a loss, or by its own method."""
    return not policy.evolves and (policy.has_loss or not policy.overridden.isdisjoint(LEARNING_VERBS))


def policy_seed(seed: int, policy_id: str) -> int:
    """The seed of a policy that has no seed of its own, from that of all policies and its id."""
    return derive_seed(seed, "init", id_number(policy_id)) % 2**32


def id_number(policy_id: str) -> int:
    """A number for an id, the same in every process."""
    return zlib.crc32(policy_id.encode())


def check_policy_id(policy_id: Any) -> None:
    """Refuse an id that cannot be part of the names of modules and metrics.

    Raises:
        ConfigError: says why.
    """
    if not isinstance(policy_id, str) or not policy_id.strip() or not policy_id.isprintable():
        raise ConfigError(f"policies: the id {policy_id!r} is not a name; expected text such as 'hunter'")
    if any(mark in policy_id for mark in "./"):
        raise ConfigError(
            f"policies: the id {policy_id!r} has a '.' or a '/', which divide names of weights and metrics"
        )
    if policy_id in TAKEN_NAMES:
        raise ConfigError(f"policies: the id {policy_id!r} is a name that torch needs itself: add to it, {policy_id}_1")


def _needs_config(policy_class: type[Policy]) -> bool:
    """Whether the constructor has a parameter `config` without a default, as those of RLlib's policies."""
    parameters = inspect.signature(policy_class).parameters
    return "config" in parameters and parameters["config"].default is inspect.Parameter.empty


def as_mapping(key: str, entry: Any) -> dict[str, Any]:
    """An entry of `policies` as its own mapping.

    Raises:
        ConfigError: it is none, and cannot become one.
    """
    if isinstance(entry, Mapping):
        found = dict(entry)
        if ("_target_" in found) == ("checkpoint" in found):
            raise ConfigError(
                f"{key}={short_repr(entry)}; expected _target_ (a class or an import path) or checkpoint (a file)"
            )
        return found
    if isinstance(entry, str | Policy) or callable(entry):
        return {"_target_": entry}
    raise ConfigError(f"{key}={short_repr(entry)}; expected {{_target_: class or import path, **keywords}}")


def spaces_by_agent(observation_space: Space[Any], action_space: Space[Any]) -> AgentSpaces:
    """Agent → its observation space and its action space.

    Raises:
        ConfigError: one is not a Dict space, or the agents differ.
    """
    for name, space in (("observation_space", observation_space), ("action_space", action_space)):
        if not isinstance(space, spaces.Dict) or not space.spaces:
            raise ConfigError(
                f"{name}={short_repr(space)}; the policy of several agents expects a Dict space, agent → its space"
            )
    assert isinstance(observation_space, spaces.Dict) and isinstance(action_space, spaces.Dict)
    odd = sorted(observation_space.spaces.keys() ^ action_space.spaces.keys())
    if odd:
        raise ConfigError(f"agent {odd[0]!r} has only one of an observation space and an action space: give it both")
    return {agent: (space, action_space.spaces[agent]) for agent, space in observation_space.spaces.items()}


def _are_equal(agent_spaces: AgentSpaces) -> bool:
    """Whether all agents have the same spaces."""
    first, *others = agent_spaces.values()
    return all(pair == first for pair in others)


def listed(names: Iterable[str]) -> str:
    """Names in quotes, for messages."""
    return ", ".join(map(repr, names))
