"""Which objects are environments with several agents."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import pytest

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent import ALL, MultiAgentEnv, PackedEnv, as_multi_agent
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


class Warehouse(gym.Env[Any, Any]):
    """One agent, with agents and Dict spaces."""

    agents = possible_agents = ("robot",)
    observation_space = action_space = gym.spaces.Dict({"robot": gym.spaces.Discrete(2)})


def test_a_multi_agent_env_is_itself_and_environments_of_one_agent_are_none() -> None:
    env = TwoStepGame()
    assert as_multi_agent(env) is env
    assert [as_multi_agent(other) for other in (gym.make("CartPole-v1"), object(), Warehouse())] == [None] * 3


class Classic(LikeRLlib):
    """The attributes of RLlib 1 and 2: a set of ids, and spaces of all agents or Dicts by agent."""

    def __init__(self, by_agent: bool) -> None:
        self._agent_ids = {"right", "left"}
        spaces = gym.spaces.Discrete(3), gym.spaces.Discrete(2)
        self.observation_space, self.action_space = (
            gym.spaces.Dict(dict.fromkeys(self._agent_ids, space)) if by_agent else space for space in spaces
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return dict.fromkeys(sorted(self._agent_ids), 0), {}


class ClassicOfOurs(MultiAgentEnv):
    """The same as a subclass of this package's class, whose agents are the present ones."""

    def __init__(self) -> None:
        self.agents = ["left", "right"]
        self.observation_space, self.action_space = gym.spaces.Discrete(3), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return dict.fromkeys(self.agents, 0), {}

    def step(self, actions: Any) -> Any:
        return LikeRLlib.step(self, actions)  # type: ignore[arg-type]


@pytest.mark.parametrize("creator", [LikeRLlib, partial(Classic, True), partial(Classic, False), ClassicOfOurs])
def test_the_attributes_of_rllibs_classes_name_agents_and_spaces_without_a_base_class(creator: Any) -> None:
    env, found = EnvCreator(lambda: creator()), LikeRLlib()
    assert env.spaces() == (gym.spaces.Dict(found.observation_spaces), gym.spaces.Dict(found.action_spaces))
    packed = env.make_single()
    assert isinstance(packed, PackedEnv) and packed.layout.agents == ("left", "right")
