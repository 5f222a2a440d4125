"""Policies of several agents whose spaces are those of CartPole and of Pendulum, and fragments of each policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from lightning_rl import MultiAgentBatch, Policy, PolicySet, RolloutWorker
from lightning_rl.envs import EnvCreator
from lightning_rl.sample_batch import SampleBatch, env_steps
from tests.envs.classic_control import CARTPOLE, PENDULUM

__all__ = [
    "DQN_ENTRY", "FIRST_AND_SECOND", "PPO_ENTRY", "SMALL", "agent_spaces", "fragment_of", "ppo_and_dqn", "sample",
    "several", "two_ppo",
]  # fmt: skip

SMALL: dict[str, Any] = {"fcnet_hiddens": [8]}
PPO_ENTRY: dict[str, Any] = {"_target_": "lightning_rl.policies.PPO", "model": SMALL, "passes": 2, "minibatches": 2}
DQN_ENTRY: dict[str, Any] = {"_target_": "lightning_rl.policies:DQN", "model": SMALL}
FIRST_AND_SECOND = {"cart_0": "first", "cart_1": "second"}


def agent_spaces(carts: int = 2, pendulums: int = 0) -> tuple[spaces.Dict, spaces.Dict]:
    """The spaces of agents cart_0, cart_1, … and pendulum_0, …."""
    pairs = {f"cart_{i}": CARTPOLE.spaces() for i in range(carts)}
    pairs |= {f"pendulum_{i}": PENDULUM.spaces() for i in range(pendulums)}
    observations = {agent: pair[0] for agent, pair in pairs.items()}
    return spaces.Dict(observations), spaces.Dict({agent: pair[1] for agent, pair in pairs.items()})


def several(
    policies: Mapping[str, Any], mapping: Any = None, *, carts: int = 2, pendulums: int = 0, **keywords: Any
) -> PolicySet:
    """A policy that holds these policies."""
    spaces_of_agents = agent_spaces(carts, pendulums)
    return PolicySet(*spaces_of_agents, policies=policies, policy_mapping=mapping, **keywords)


def ppo_and_dqn(**keywords: Any) -> PolicySet:
    """Policies of two algorithms, one for each of two agents."""
    return several({"first": PPO_ENTRY, "second": DQN_ENTRY}, FIRST_AND_SECOND, **keywords)


def two_ppo(**keywords: Any) -> PolicySet:
    """Two policies of one algorithm, one for each of two agents."""
    return several({"first": PPO_ENTRY, "second": PPO_ENTRY}, FIRST_AND_SECOND, **keywords)


def fragment_of(policy: Policy, *, length: int = 16, lanes: int = 2, seed: int = 0) -> SampleBatch:
    """A fragment of a policy that acts in CartPole or Pendulum."""
    env: EnvCreator = CARTPOLE if policy.observation_space == CARTPOLE.spaces()[0] else PENDULUM
    return RolloutWorker(env, policy, num_envs=lanes, fragment_length=length, seed=seed).sample()


def sample(policy: PolicySet, *policy_ids: str, **keywords: Any) -> MultiAgentBatch:
    """A fragment of each of these policies (all of them, if none is named); env steps: the most of any policy."""
    parts = {name: fragment_of(policy.get_policy(name), **keywords) for name in policy_ids or policy.policies}
    return MultiAgentBatch(parts, max(map(env_steps, parts.values())))


def states_of(policy: PolicySet) -> dict[str, Any]:
    """Weights, optimizer state and counters of each policy."""
    return {name: part.get_state() for name, part in policy.policies.items()}
