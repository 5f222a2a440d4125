"""Which objects are environments with several agents."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent import ALL, PackedEnv, as_multi_agent
from lightning_rl.envs.multi_agent.toy_games import TwoStepGame


class LikeRLlib(gym.Env[Any, Any]):
    """The attributes of RLlib's MultiAgentEnv, without its class."""

    def __init__(self) -> None:
        self.possible_agents = ["left", "right"]
        self.observation_spaces = {agent: gym.spaces.Discrete(3) for agent in self.possible_agents}
        self.action_spaces = {agent: gym.spaces.Discrete(2) for agent in self.possible_agents}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return dict.fromkeys(self.possible_agents, 0), {}

    def step(self, actions: Any) -> Any:
        return dict.fromkeys(actions, 1), dict.fromkeys(actions, 1.0), {ALL: True}, {ALL: False}, {}


def test_a_single_agent_environment_is_none() -> None:
    assert as_multi_agent(gym.make("CartPole-v1")) is None
    assert as_multi_agent(object()) is None


def test_a_multi_agent_env_is_itself() -> None:
    env = TwoStepGame()
    assert as_multi_agent(env) is env


def test_a_class_with_the_attributes_of_rllibs_needs_no_base_class() -> None:
    env = EnvCreator(LikeRLlib).make_single()
    assert isinstance(env, PackedEnv) and env.layout.agents == ("left", "right")
    EnvCreator(LikeRLlib).spaces()
