"""Environments with several agents that follow a script, and containers of policies that act in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent import ALL, MultiAgentEnv
from tests.rollouts.counting import Alternating

NUMBER = spaces.Box(-1e6, 1e6, (2,), np.float32)
DISCRETE = spaces.Discrete(2)


@dataclass(frozen=True)
class Moment:
    """What the environment gives in a step.

    Attributes:
        acts: agents that act next.
        rewards: by agent.
        terminated, truncated: agents that end; "__all__" ends the episode.
    """

    acts: str = ""
    rewards: Mapping[str, float] = field(default_factory=dict)
    terminated: Sequence[str] = ()
    truncated: Sequence[str] = ()


TURNS = [
    Moment("a"),
    Moment("b"),
    Moment("a", {"a": 1.0, "b": -1.0}),
    Moment("b"),
    Moment("", {"a": -2.0, "b": 2.0}, terminated=(ALL,)),
]
"""a and b move in turn; the move of b at step 3 ends the game, which is a's end too."""


class Scripted(MultiAgentEnv):
    """Follows scripts, one an episode, again and again; agents are letters. An observation is (episode, step).

    Agents that end see a final observation. Reading a script costs nothing but the step; actions are recorded.
    """

    def __init__(self, scripts: Sequence[Sequence[Moment]], agents: str = "ab", central: bool = False) -> None:
        self.scripts, self.possible_agents = scripts, list(agents)
        self.observation_spaces = dict.fromkeys(agents, NUMBER)
        self.action_spaces = dict.fromkeys(agents, DISCRETE)
        self.state_space = spaces.Box(-1e6, 1e6, (1,), np.float32) if central else None
        self.episode = -1
        self.taken: list[dict[str, Any]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode, self.count = (0 if seed is not None else self.episode + 1), 0
        self.script = self.scripts[self.episode % len(self.scripts)]
        return {agent: self._obs() for agent in self.script[0].acts}, {}

    def step(self, actions: Any) -> Any:
        self.taken.append(dict(actions))
        assert sorted(actions) == sorted(self.script[self.count].acts), "the worker let the wrong agents act"
        self.count += 1
        now = self.script[self.count]
        ended = {agent for agent in (*now.terminated, *now.truncated) if agent != ALL}
        obs = {agent: self._obs() for agent in (*now.acts, *ended)}
        flags = ({agent: True for agent in names} for names in (now.terminated, now.truncated))
        return obs, dict(now.rewards), *flags, {}

    def state(self) -> np.ndarray:
        return np.array([100 * self.episode + self.count], np.float32)

    def _obs(self) -> np.ndarray:
        return np.array([self.episode, self.count], np.float32)


class OneAgent(MultiAgentEnv):
    """A single-agent environment as the only agent, "agent"."""

    def __init__(self, make: Callable[[], gym.Env[Any, Any]]) -> None:
        self.env, self.possible_agents = make(), ["agent"]
        self.observation_spaces = {"agent": self.env.observation_space}
        self.action_spaces = {"agent": self.env.action_space}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return {"agent": self.env.reset(seed=seed)[0]}, {}

    def step(self, actions: Any) -> Any:
        obs, reward, over, cut, _ = self.env.step(actions["agent"])
        flags = {"agent": over, ALL: over}, {"agent": cut, ALL: cut and not over}
        return {"agent": obs}, {"agent": reward}, *flags, {}


@dataclass
class Fixed:
    """A mapping of agents to policies that never changes."""

    ids: Mapping[str, str]
    static: bool = True

    @property
    def agents(self) -> Sequence[str]:
        return [*self.ids]

    def policy_of(self, agent: str) -> str:
        return self.ids[agent]

    def assign(self, generator: np.random.Generator) -> dict[str, str]:
        return dict(self.ids)


@dataclass
class Drawn:
    """A mapping that gives the agents the policies in an order drawn for each episode."""

    agents: Sequence[str]
    ids: Sequence[str]
    static: bool = False

    def assign(self, generator: np.random.Generator) -> dict[str, str]:
        order = generator.permutation(len(self.ids))
        return {agent: self.ids[index] for agent, index in zip(self.agents, order, strict=False)}


class Policies(torch.nn.Module):
    """A container of policies; those that are modules are trained with it."""

    has_model = True
    gradient_steps = 0
    additions = None  # no policies were added since it was made

    def __init__(self, policies: Mapping[str, Any], mapping: Any) -> None:
        super().__init__()
        self.policies = dict(policies)
        self.modules_by_id = torch.nn.ModuleDict({k: p for k, p in policies.items() if isinstance(p, torch.nn.Module)})
        self.mapping, self.agents, self.env_steps = mapping, mapping.agents, 0

    def constructor_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.policies, self.mapping), {}

    def seed_exploration(self, seed: int) -> None:
        for policy in self.policies.values():
            policy.seed_exploration(seed)


def shared(policy: Any, *agents: str) -> Policies:
    """All agents have one policy."""
    return Policies({"shared": policy}, Fixed(dict.fromkeys(agents, "shared")))


def own(**policies: Any) -> Policies:
    """Each agent has a policy of its own, named as it is."""
    return Policies(policies, Fixed({agent: agent for agent in policies}))


class ByObs(Alternating):
    """Acts by the last number of its observation."""

    def compute_actions(self, obs: Any, state: Any, **_: Any) -> Any:
        actions = torch.from_numpy(obs[:, -1].astype(np.int64) % 2)
        return actions, [], {"action_logp": torch.from_numpy(-obs[:, -1])}


def packed(make: Callable[[], MultiAgentEnv]) -> EnvCreator:
    """The creator of such environments."""
    return EnvCreator(make, check=False)


def scripted(scripts: Sequence[Sequence[Moment]], agents: str = "ab", **options: Any) -> EnvCreator:
    """The creator of an environment that follows scripts."""
    return packed(lambda: Scripted(scripts, agents, **options))
