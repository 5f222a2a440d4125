"""PettingZoo's environments as `MultiAgentEnv`: all agents at once, and in turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl.envs.multi_agent import ALL, AECAdapter, ParallelAdapter, as_multi_agent

pytest.importorskip("mpe2", reason='needs pip install -e ".[multiagent]"')
pytest.importorskip("pettingzoo", reason='needs pip install -e ".[multiagent]"')
pytestmark = pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")


def parallel(**keywords: Any) -> Any:
    from mpe2 import simple_speaker_listener_v4

    return simple_speaker_listener_v4.parallel_env(**keywords)


def aec_connect_four() -> AECAdapter:
    from pettingzoo.classic import connect_four_v3

    env = as_multi_agent(connect_four_v3.env())
    assert isinstance(env, AECAdapter)
    return env


def test_a_parallel_environment_gives_what_pettingzoo_gives() -> None:
    theirs, ours = parallel(), as_multi_agent(parallel())
    assert isinstance(ours, ParallelAdapter)
    assert ours.possible_agents == ["speaker_0", "listener_0"]
    expected, _ = theirs.reset(seed=4)
    obs, _ = ours.reset(seed=4)
    for _ in range(3):
        actions = {agent: theirs.action_space(agent).sample() for agent in theirs.agents}
        for agent in theirs.agents:
            np.testing.assert_array_equal(obs[agent], expected[agent])
        expected, their_rewards, *_ = theirs.step(actions)
        obs, rewards, *_ = ours.step(actions)
        assert rewards == their_rewards
    np.testing.assert_array_equal(ours.state(), theirs.state())
    assert ours.state_space == theirs.state_space


def test_the_time_limit_of_a_parallel_environment_truncates_all() -> None:
    env: Any = as_multi_agent(parallel(max_cycles=2))
    env.reset(seed=0)
    actions = dict.fromkeys(env.possible_agents, 0)
    assert not env.step(actions)[3][ALL]
    obs, _, terminated, truncated, _ = env.step(actions)
    assert truncated == {**dict.fromkeys(actions, True), ALL: True}
    assert not any(terminated.values()) and obs.keys() == actions.keys()


class ThreeTurns:
    """An `AECEnv` without PettingZoo: a, b, c in turns; step t pays t + 1 to all; "b" ends with its first turn."""

    possible_agents = ("a", "b", "c")
    metadata: dict[str, Any] = {}  # noqa: RUF012

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(100)

    action_space = observation_space

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.time, self.actions = ["a", "b", "c"], 0, []
        self.agent_selection = "a"
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}

    def observe(self, agent: str) -> int:
        return self.time

    def step(self, action: Any) -> None:
        turn = self.agent_selection
        index = self.agents.index(turn)
        self.actions.append((turn, action))
        following = self.agents[(index + 1) % len(self.agents)]
        if self.terminations[turn] or self.truncations[turn]:
            assert action is None
            self.agents.remove(turn)
            for part in (self.rewards, self.terminations, self.truncations, self.infos):
                del part[turn]
            self.rewards = dict.fromkeys(self.agents, 0.0)
        else:
            self.time += 1
            self.rewards = dict.fromkeys(self.agents, float(self.time))
            if turn == "b":
                self.terminations["b"] = True
            if self.time == 5:
                self.truncations = {agent: not self.terminations[agent] for agent in self.agents}
        self.agent_selection = following

    def agent_iter(self) -> Any:
        raise NotImplementedError


def test_an_agent_that_ended_is_stepped_with_none_inside_and_its_final_observation_comes_at_once() -> None:
    """Turns a b c a: step 1 ends b; PettingZoo would step it with None when its turn comes, after c and a."""
    theirs = ThreeTurns()
    env: Any = as_multi_agent(theirs)
    assert env.reset(seed=0)[0] == {"a": 0}
    obs, rewards, terminated, _, _ = env.step({"a": 7})
    assert (obs, rewards, terminated["a"]) == ({"b": 1}, {"a": 1.0, "b": 1.0, "c": 1.0}, False)
    obs, rewards, terminated, _, _ = env.step({"b": 8})
    assert (obs, terminated) == ({"b": 2, "c": 2}, {"a": False, "b": True, "c": False, ALL: False})
    assert rewards["b"] == 2.0
    obs, rewards, terminated, _, _ = env.step({"c": 9})
    assert (obs, rewards, "b" in terminated) == ({"a": 3}, {"a": 3.0, "c": 3.0}, False)
    obs, *_ = env.step({"a": 1})
    assert obs == {"c": 4} and theirs.actions[-1] == ("b", None)
    obs, rewards, terminated, truncated, _ = env.step({"c": 2})
    assert obs == {"a": 5, "c": 5} and truncated == {"a": True, "c": True, ALL: True} and not terminated[ALL]
    assert rewards == {"a": 5.0, "c": 5.0} and theirs.agents == []


def test_connect_four_alternates_and_ends_with_zero_sum_rewards_and_final_observations() -> None:
    """The first player fills column 0, the second column 1: four in a row in the seventh move."""
    env = aec_connect_four()
    obs, _ = env.reset(seed=0)
    for move in range(7):
        (agent,) = obs
        assert agent == f"player_{move % 2}"
        assert obs[agent]["action_mask"].all() and isinstance(env.observation_spaces[agent], spaces.Dict)
        obs, rewards, terminated, truncated, _ = env.step({agent: move % 2})
    assert rewards == {"player_0": 1, "player_1": -1}
    assert terminated == {"player_0": True, "player_1": True, ALL: True} and not any(truncated.values())
    assert obs.keys() == {"player_0", "player_1"}
    assert obs["player_0"]["observation"][..., 0].sum() == 4 == obs["player_1"]["observation"][..., 1].sum()


def test_an_illegal_move_ends_the_game_at_once() -> None:
    env = aec_connect_four()
    obs, _ = env.reset(seed=0)
    for move in range(7):  # into column 0, which is full after six
        (agent,) = obs
        assert obs[agent]["action_mask"][0] == (move < 6)
        obs, rewards, terminated, truncated, _ = env.step({agent: 0})
    assert rewards[agent] == -1 and (terminated[ALL] or truncated[ALL])
