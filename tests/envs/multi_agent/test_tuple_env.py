"""Gymnasium environments with a part for each agent in their tuples: foraging and the warehouse."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl.envs.multi_agent import ALL, TupleEnv, as_multi_agent


class Pair(gym.Env[Any, Any]):
    """Two agents; the flags of the last step are given to the constructor."""

    n_agents = 2

    def __init__(self, ends: Any = (True, False), info: dict[str, Any] | None = None) -> None:
        self.observation_space = gym.spaces.Tuple([gym.spaces.Discrete(9)] * 2)
        self.action_space = gym.spaces.Tuple([gym.spaces.Discrete(2)] * 2)
        self.ends, self.info, self.time = ends, info or {}, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return (0, 0), self.info

    def step(self, actions: Any) -> Any:
        self.time += 1
        self.actions = actions
        return (self.time, self.time), [1.0, 2.0], self.ends, False, self.info


@pytest.mark.parametrize(
    ("package", "id", "size"), [("lbforaging", "Foraging-8x8-2p-2f-coop-v3", 12), ("rware", "rware-tiny-2ag-v2", 71)]
)
def test_real_environments_give_each_agent_its_part(package: str, id: str, size: int) -> None:
    pytest.importorskip(package, reason='needs pip install -e ".[multiagent]"')
    env = as_multi_agent(gym.make(f"{package}:{id}", disable_env_checker=True))
    assert isinstance(env, TupleEnv) and env.possible_agents == ["agent_0", "agent_1"]
    obs, _ = env.reset(seed=1)
    again, _ = env.reset(seed=1)
    for agent, space in env.observation_spaces.items():
        assert space.shape == (size,) and space.contains(obs[agent])
        np.testing.assert_array_equal(obs[agent], again[agent])
    _, rewards, terminated, truncated, _ = env.step({"agent_0": 0, "agent_1": 1})
    assert rewards == {"agent_0": 0.0, "agent_1": 0.0}
    assert terminated[ALL] is False and truncated[ALL] is False


def test_an_agent_that_ends_alone_is_left_out_until_all_have_ended_and_a_single_flag_ends_all() -> None:
    both = {"agent_0": 0, "agent_1": 1}
    env = TupleEnv(Pair(ends=True))
    env.reset()
    assert env.step(both)[2] == {"agent_0": True, "agent_1": True, ALL: True}
    pair = Pair(ends=(True, False))
    env = TupleEnv(pair)
    env.reset()
    obs, _, terminated, _, _ = env.step(both)
    assert obs == {"agent_0": 1, "agent_1": 1} and terminated == {"agent_0": True, "agent_1": False, ALL: False}
    pair.ends = (True, True)
    obs, rewards, terminated, _, _ = env.step({"agent_1": 1})
    assert pair.actions[1] == 1
    assert (obs, rewards, terminated) == ({"agent_1": 2}, {"agent_1": 2.0}, {"agent_1": True, ALL: True})


def test_masks_in_the_info_are_handed_to_their_agents() -> None:
    _, infos = TupleEnv(Pair(info={"action_mask": [[1, 0], [0, 1]]})).reset()
    assert [infos[agent]["action_mask"].tolist() for agent in ("agent_0", "agent_1")] == [[1, 0], [0, 1]]


def test_tuples_alone_are_no_agents() -> None:
    env = Pair()
    assert as_multi_agent(env) is not None
    env.n_agents = 3
    assert as_multi_agent(env) is None
