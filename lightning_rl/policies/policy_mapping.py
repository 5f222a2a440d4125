"""Which policy acts for which agent."""

from __future__ import annotations

import glob
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from lightning_rl.errors import ConfigError, did_you_mean, has_import_path, import_object, short_repr
from lightning_rl.policies.matches import Matches

__all__ = ["EpisodeStart", "PolicyMapping"]

TRIALS = 16  # episodes for which a function of the episode is called, to find out whether it depends on them
RNG_NAMES = ("rng", "generator", "random", "np_random")


@dataclass(frozen=True, slots=True)
class EpisodeStart:
    """The episode that a mapping function is called for, the same one for all its agents.

    Attributes:
        episode_id: a random number, another one for each episode.
        rng: the random generator of the episode.
    """

    episode_id: int
    rng: np.random.Generator


class PolicyMapping:
    """Gives every agent of an environment its policy.

    Args:
        mapping: one of

            - `None`: all agents have the only policy, or each agent the policy of its own name.
            - {agent or pattern: policy id}: the first pattern that matches an agent's name (`fnmatch`: "hunter_*")
              counts. A list of ids draws one of them, for each agent in each episode.
            - a function or its import path. `fn(agent_id)` is called once for each agent; `fn(agent_id, rng)`, with a
              NumPy generator, in each episode; `fn(agent_id, episode, worker=None, **kwargs)` as in RLlib, in each
              episode if it gives several results for 16 different `EpisodeStart`s, and otherwise once.
            - {_target_: `Matches`, a subclass, or the import path of either, **keywords}, made with the names of the
              agents and the keywords: draws the policies of all agents of an episode together.
        agents: names of all agents.
        policy_ids: the ids of all policies.

    Raises:
        ConfigError: it names a policy that does not exist, or no pattern matches an agent.

    Attributes:
        given: the argument `mapping`; for `None` what it means for these policies.
        static: whether an agent has the same policy in every episode.
    """

    def __init__(
        self,
        mapping: Mapping[str, Any] | str | Callable[..., Any] | None,
        agents: Iterable[str],
        policy_ids: Iterable[str],
    ) -> None:
        self.given: Any = mapping
        self.agents, self.policy_ids = tuple(agents), tuple(policy_ids)
        self._function: Callable[[str, EpisodeStart], str] | None = None
        self._matches: Matches | None = None
        self._allowed: dict[str, frozenset[str]] | None = None  # policy id → the agents that it can act for
        self._choices: dict[str, tuple[str, ...]]  # agent → the policies that it may have
        if mapping is None:
            self._choices = {agent: (self._default_of(agent),) for agent in self.agents}
            self.given = {glob.escape(agent): ids[0] for agent, ids in self._choices.items()}
        elif isinstance(mapping, Mapping) and "_target_" in mapping:
            self._matches = self._make_matches(dict(mapping))
            self._choices = {agent: tuple(ids) for agent, ids in self._matches.choices().items()}
            for agent, ids in self._choices.items():
                for policy_id in ids:
                    self._checked(agent, policy_id)
        elif isinstance(mapping, Mapping):
            patterns = {str(pattern): self._ids_of(str(pattern), named) for pattern, named in mapping.items()}
            self._choices = {agent: _match(agent, patterns) for agent in self.agents}
            self._check_patterns(patterns)
        else:
            self._choices = self._try_function(mapping)
        self.static = self._function is None and all(len(ids) == 1 for ids in self._choices.values())

    @property
    def portable(self) -> Any:
        """`given`; in place of a function without an import path, such as a lambda, the policy of each agent.

        A function that depends on the episode stays: no mapping stands for it.
        """
        if not self.static or not callable(self.given) or has_import_path(self.given):
            return self.given
        return {glob.escape(agent): ids[0] for agent, ids in self._choices.items()}

    def policy_of(self, agent: str) -> str:
        """The policy of an agent in every episode.

        Raises:
            ConfigError: there is no such agent, or its policy depends on the episode.
        """
        ids = self._choices.get(agent)
        if ids is None:
            raise ConfigError(f"there is no agent {agent!r}.{did_you_mean(agent, self.agents)}")
        if self._function is not None or len(ids) != 1:
            raise ConfigError(
                f"the policy of agent {agent!r} depends on the episode: use assign(rng), or name a policy_id"
            )
        return ids[0]

    def assign(self, rng: np.random.Generator) -> dict[str, str]:
        """The policy of every agent in an episode that begins.

        Args:
            rng: decides everything random; equal generators give equal policies.

        Raises:
            ConfigError: a function gives a policy that does not exist, or one with other spaces than the agent.
        """
        if self._matches is not None:
            return self._matches.assign(rng)
        if self._function is None:
            return {agent: ids[int(rng.integers(len(ids)))] for agent, ids in self._choices.items()}
        episode = _new_episode(rng)
        assigned = {agent: self._checked(agent, self._function(agent, episode)) for agent in self.agents}
        for agent, policy_id in assigned.items():
            if self._allowed is not None and agent not in self._allowed.get(policy_id, ()):
                raise ConfigError(
                    f"policy_mapping gives agent {agent!r} the policy {policy_id!r}, which has other spaces than the "
                    "agent: give it a policy of its own"
                )
        return assigned

    def agents_of(self, policy_id: str) -> list[str]:
        """The agents that may have this policy, in the order of all agents."""
        if self._function is not None and self._allowed is not None:
            return [agent for agent in self.agents if agent in self._allowed.get(policy_id, ())]
        return [agent for agent in self.agents if policy_id in self._choices[agent]]

    def restrict(self, allowed: Mapping[str, Iterable[str]]) -> None:
        """Set the agents that each policy can act for, which a function of the episode has to respect."""
        self._allowed = {policy_id: frozenset(agents) for policy_id, agents in allowed.items()}

    # -- finding the policies -----------------------------------------------------------------------------------------
    def _default_of(self, agent: str) -> str:
        if len(self.policy_ids) == 1:
            return self.policy_ids[0]
        if agent in self.policy_ids:
            return agent
        raise ConfigError(
            f"policy_mapping is missing: which of the policies {', '.join(self.policy_ids)} acts for agent {agent!r}? "
            f"Set it, such as 'policy_mapping={{{_typed(agent)}: {self.policy_ids[0]}, *: {self.policy_ids[-1]}}}'"
        )

    def _ids_of(self, pattern: str, named: Any) -> tuple[str, ...]:
        """The policies of a pattern, one or several."""
        if not isinstance(named, Sequence) or not named:
            raise ConfigError(
                f"policy_mapping[{pattern!r}]={short_repr(named)}; expected a policy id, or a list of some"
            )
        ids = (named,) if isinstance(named, str) else tuple(named)
        for policy_id in ids:
            self._check_id(f"policy_mapping[{pattern!r}]={policy_id!r}", policy_id)
        return ids[:1] if len(set(ids)) == 1 else ids

    def _check_patterns(self, patterns: Iterable[str]) -> None:
        for pattern in patterns:
            if not any(_fits(agent, pattern) for agent in self.agents):
                raise ConfigError(
                    f"policy_mapping[{pattern!r}] fits no agent of {short_repr(list(self.agents))}: leave it out."
                    f"{did_you_mean(pattern, self.agents)}"
                )

    def _try_function(self, mapping: Any) -> dict[str, tuple[str, ...]]:
        """The policies that a function gives; sets `_function` if they depend on the episode."""
        function = import_object(mapping) if isinstance(mapping, str) else mapping
        if not callable(function):
            raise ConfigError(
                f"policy_mapping={short_repr(mapping)}; expected {{agent or pattern: policy id}}, or a function of the "
                "agent's name, or its import path"
            )
        call, by_episode, by_rng = _episode_function(function, short_repr(mapping))
        found: dict[str, dict[str, None]] = {agent: {} for agent in self.agents}
        for trial in range(TRIALS if by_episode else 1):
            rng = np.random.default_rng(trial)
            episode = _new_episode(rng)
            for agent in self.agents:
                found[agent][self._checked(agent, call(agent, episode))] = None
        if by_rng or any(len(ids) > 1 for ids in found.values()):
            self._function = call
        return {agent: tuple(ids) for agent, ids in found.items()}

    def _make_matches(self, keywords: dict[str, Any]) -> Matches:
        """The object that a mapping with `_target_` describes."""
        target = keywords.pop("_target_")
        found = import_object(target) if isinstance(target, str) else target
        if not isinstance(found, type) or not issubclass(found, Matches):
            raise ConfigError(
                f"policy_mapping._target_={short_repr(target)}; expected lightning_rl.policies.Matches or a subclass"
            )
        try:
            inspect.signature(found).bind(self.agents, **keywords)
        except TypeError as error:
            raise ConfigError(f"policy_mapping: {found.__name__}: {error}") from error
        return found(self.agents, **keywords)

    def _checked(self, agent: str, policy_id: Any) -> str:
        self._check_id(f"policy_mapping gives agent {agent!r} the policy {policy_id!r}, which", policy_id)
        return policy_id

    def _check_id(self, what: str, policy_id: Any) -> None:
        if policy_id not in self.policy_ids:
            raise ConfigError(
                f"{what} is none of the policies {', '.join(map(repr, self.policy_ids))}."
                f"{did_you_mean(str(policy_id), self.policy_ids)}"
            )


def _new_episode(rng: np.random.Generator) -> EpisodeStart:
    return EpisodeStart(int(rng.integers(2**62)), rng)


def _typed(agent: str) -> str:
    """A pattern that matches an agent's name, and that the command line takes as a key: "?" for other characters."""
    return re.sub(r"[^A-Za-z0-9_./ @+-]", "?", agent)


def _fits(agent: str, pattern: str) -> bool:
    return pattern == agent or fnmatchcase(agent, pattern)


def _match(agent: str, patterns: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The policies of the first pattern that matches."""
    for pattern, ids in patterns.items():
        if _fits(agent, pattern):
            return ids
    listed = ", ".join(map(repr, patterns)) or "none"
    raise ConfigError(
        f"no pattern of policy_mapping matches agent {agent!r} (patterns: {listed}): add one, such as '*'"
    )


def _episode_function(function: Callable[..., Any], name: str) -> tuple[Callable[[str, EpisodeStart], Any], bool, bool]:
    """A mapping function as one of (agent, episode); whether it takes the episode in any form; whether a generator.

    Args:
        function: the function of the agent's name, and more.
        name: the name of the function, for messages.

    Raises:
        ConfigError: it needs an argument that nothing here can give.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a built-in function
        parameters = []
    named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    others = list(enumerate(named))[1:]
    by_rng = any(each.name in RNG_NAMES for _, each in others)
    by_episode = by_rng or any(_takes_episode(*each) for each in others)
    for position, each in others:
        needs_more = each.default is each.empty and each.name not in ("worker", *RNG_NAMES)
        if needs_more and not _takes_episode(position, each):
            raise ConfigError(
                f"policy_mapping: {function!r} needs the argument {each.name!r}; expected a function of (agent_id), "
                "(agent_id, rng) or (agent_id, episode, worker=None, **kwargs)"
            )

    def call(agent: str, episode: EpisodeStart) -> Any:
        placed: list[Any] = [agent]
        keywords: dict[str, Any] = {}
        for position, each in others:
            if each.name in RNG_NAMES:
                value: Any = episode.rng
            elif _takes_episode(position, each):
                value = episode
            elif each.default is each.empty:  # "worker"
                value = None
            else:
                continue
            if _is_placed(each) and position == len(placed):
                placed.append(value)
            else:
                keywords[each.name] = value
        try:
            return function(*placed, **keywords)
        except Exception as error:
            raise ConfigError(
                f"policy_mapping={name} raised {type(error).__name__} for agent {agent!r}: {error}; expected the id of "
                "a policy"
            ) from error

    return call, by_episode, by_rng


def _takes_episode(position: int, parameter: inspect.Parameter) -> bool:
    return parameter.name == "episode" or (position == 1 and parameter.name != "worker" and _is_placed(parameter))


def _is_placed(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
