"""Groups of agents that act as one agent, and a group of all as a single-agent environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent import ALL, GroupedAgents, MultiAgentEnv, SingleAgentEnv
from lightning_rl.envs.multi_agent.toy_games import TwoStepGame
from lightning_rl.errors import ConfigError, EnvError
from tests.envs.scripted_turns import ScriptedTurns
from tests.refusals import not_refused


class Masked(TwoStepGame):
    """Infos forbid action 1 to the first agent."""

    def reset(self, **keywords: Any) -> Any:
        return super().reset(**keywords)[0], {"agent_0": {"action_mask": np.array([1, 0])}}


def test_a_group_observes_its_members_and_the_state_and_earns_the_sum() -> None:
    env = TwoStepGame().with_agent_groups({"team": ["agent_0", "agent_1"]})
    assert isinstance(env, GroupedAgents) and env.possible_agents == ["team"]
    assert env.action_spaces["team"] == spaces.Tuple([spaces.Discrete(2)] * 2)
    obs, _ = env.reset(seed=0)
    assert env.observation_spaces["team"].contains(obs["team"])
    assert obs["team"]["present"].tolist() == [1, 1] and obs["team"]["state"].tolist() == [1, 0, 0]
    env.step({"team": (1, 0)})
    obs, rewards, terminated, truncated, infos = env.step({"team": (1, 1)})
    assert rewards == {"team": 8.0} and infos["team"]["group_rewards"] == [4.0, 4.0]
    assert terminated[ALL] and not truncated[ALL] and obs["team"]["state"].tolist() == [0, 0, 1]


def test_actions_of_members_that_do_not_act_are_ignored_and_absent_members_are_zeros() -> None:
    """a acts first, then a and b, then b alone; a ends in step 1. An observation is [time, slot]."""
    script = ScriptedTurns(turns=[["a"], ["a", "b"], ["b"]], ends={"a": 1}, truncate=True)
    env = GroupedAgents(script, "all")
    obs, _ = env.reset()
    seen, rewards = [obs["all"]], []
    for time in range(3):
        obs, reward, terminated, truncated, _ = env.step({"all": (time % 2, 1)})
        seen.append(obs["all"])
        rewards.append(reward["all"])
        assert (truncated["all"], truncated[ALL], terminated["all"]) == (False, time == 2, False)
    assert script.actions == [{"a": 0}, {"a": 1, "b": 1}, {"b": 1}]
    # [2, 0] is the final observation of a
    parts = [[[0, 0], [0, 0]], [[1, 0], [1, 1]], [[2, 0], [2, 1]], [[0, 0], [3, 1]]]
    assert [[part.tolist() for part in step["agents"]] for step in seen] == parts
    assert [step["present"].tolist() for step in seen] == [[1, 0], [1, 1], [0, 1], [0, 1]]
    assert rewards == [1.0, 2.0 + 102.0, 103.0]


def test_a_member_that_terminated_is_not_present_in_the_last_observation() -> None:
    env = GroupedAgents(ScriptedTurns(turns=[["a", "b"]], ends={"a": 0, "b": 0}), "all")
    env.reset()
    obs, _, terminated, _, _ = env.step({"all": (0, 0)})
    assert terminated == {"all": True, ALL: True} and obs["all"]["present"].tolist() == [0, 0]


def test_groups_stand_beside_agents_in_none_and_act_only_if_a_member_does() -> None:
    script = ScriptedTurns(turns=[["a", "c"], ["b"], ["c"]])
    env = GroupedAgents(script, {"pair": ["a", "c"]})
    assert env.possible_agents == ["pair", "b"] == [*env.observation_spaces]
    obs, _ = env.reset()
    assert obs.keys() == {"pair"}
    obs, *_ = env.step({"pair": (1, 0)})
    assert obs.keys() == {"b"}
    obs, rewards, *_ = env.step({"b": 1})
    assert obs.keys() == {"pair"} and obs["pair"]["present"].tolist() == [0, 1]
    assert rewards == {"b": 102.0, "pair": 2.0 + 202.0}


def test_a_group_ends_when_its_last_member_has_ended() -> None:
    script = ScriptedTurns(turns=[["a", "b", "c"], ["b", "c"], ["c"], ["c"]], ends={"a": 0, "b": 1})
    env = GroupedAgents(script, {"pair": ["a", "b"]})
    env.reset()
    ends = []
    for _ in range(4):
        _, _, terminated, _, _ = env.step({"pair": (0, 0), "c": 0})
        ends.append(terminated.get("pair"))
    assert ends == [False, True, None, None]


def test_masks_of_infos_become_part_of_the_observation() -> None:
    env = GroupedAgents(Masked(), "all")
    obs, _ = env.reset()
    assert [mask.tolist() for mask in obs["all"]["action_masks"]] == [[1, 0], [1, 1]]
    assert env.observation_spaces["all"].contains(obs["all"])


def test_a_tuple_space_of_rllibs_makes_the_observation_the_tuple_of_the_members() -> None:
    script = ScriptedTurns(turns=[["a", "b"], ["a", "b"], ["a"]])
    members = [script.observation_spaces[agent] for agent in ("a", "b")]
    env = script.with_agent_groups({"pair": ["a", "b"]}, obs_space=spaces.Tuple(members))
    obs, _ = env.reset()
    assert isinstance(obs["pair"], tuple) and env.observation_spaces["pair"].contains(obs["pair"])
    obs, rewards, *_ = env.step({"pair": (1, 0)})
    assert [part.tolist() for part in obs["pair"]] == [[1, 0], [1, 1]] and rewards == {"pair": 1.0 + 101.0}


def test_groups_that_cannot_be_formed_are_one_clear_error() -> None:
    cases: list[Any] = [
        ({"team": ["agent_7"]}, r"'team'.*'agent_7'.*'agent_[01]'"),
        ({"x": ["agent_0"], "y": ["agent_*"]}, r"'agent_0'.*'x'.*'y'"),
        ({"agent_1": ["agent_0"]}, "'agent_1'"),
    ]
    cases.append(("al", r"env\.group_agents='al'"))
    errors = (ConfigError, EnvError)
    assert not_refused(lambda groups: EnvCreator(TwoStepGame, group_agents=groups).make_single(), cases, errors) == []
    with pytest.raises(EnvError, match="'CartPole-v1'"):
        EnvCreator("CartPole-v1", group_agents="all").make_single()


def test_a_group_of_all_is_a_plain_environment_for_single_agent_algorithms() -> None:
    creator = EnvCreator(TwoStepGame, group_agents="all")
    observed, acted = creator.spaces()
    assert creator.layout() is None
    assert isinstance(observed, spaces.Dict) and set(observed.spaces) == {"agents", "present", "state"}
    assert acted == spaces.Tuple([spaces.Discrete(2)] * 2)
    env = creator.make(2)
    obs, _ = env.reset(seed=0)
    assert obs["agents"][1].shape == (2, 3) and obs["state"].shape == (2, 3)
    _, rewards, terminated, _, _ = env.step((np.array([1, 0]), np.array([0, 0])))
    assert rewards.tolist() == [0.0, 0.0] and not terminated.any()
    _, rewards, terminated, _, _ = env.step((np.array([1, 0]), np.array([1, 1])))
    assert rewards.tolist() == [8.0, 7.0] and terminated.all()
    assert isinstance(EnvCreator("CartPole-v1", agents=2, group_agents="all").make_single(), gym.Env)


def test_steps_in_which_the_only_agent_waits_pass_by_and_their_rewards_are_summed() -> None:
    class OneOfTwo(MultiAgentEnv):
        """Shows only agent "a" of the script; "b" plays by itself."""

        def __init__(self) -> None:
            self.script = ScriptedTurns(turns=[["b"], ["a"], ["b"], ["b"], ["a"]])
            self.possible_agents = ["a"]
            self.observation_spaces, self.action_spaces = self.script.observation_spaces, self.script.action_spaces

        def reset(self, **keywords: Any) -> Any:
            return self.only(self.script.reset())

        def step(self, actions: dict[str, Any]) -> Any:
            return self.only(self.script.step(actions))

        def only(self, parts: Any) -> Any:
            return tuple({key: part[key] for key in ("a", ALL) if key in part} for part in parts)

    env = SingleAgentEnv(OneOfTwo())
    obs, _ = env.reset()
    assert obs.tolist() == [1, 0]
    for seen, paid, over in (([4, 0], 2 + 3 + 4, False), ([5, 0], 5, True)):
        obs, reward, terminated, truncated, _ = env.step(0)
        assert (obs.tolist(), reward, terminated, truncated) == (seen, paid, over, False)
