"""Copies of a single-agent environment as agents."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from lightning_rl.envs import EnvContext
from lightning_rl.envs.multi_agent import ALL, Copies, make_multi_agent


def make(*limits: int) -> Copies:
    return Copies([gym.wrappers.TimeLimit(gym.make("Pendulum-v1").unwrapped, limit) for limit in limits])


def test_an_agent_whose_episode_ended_stays_out_until_all_have_ended() -> None:
    env = make(1, 2)
    obs, _ = env.reset(seed=0)
    assert obs.keys() == {"agent_0", "agent_1"}
    push = np.zeros(1, np.float32)
    obs, _, terminated, truncated, _ = env.step({"agent_0": push, "agent_1": push})
    assert obs.keys() == {"agent_0", "agent_1"}  # the final one of agent_0
    assert truncated == {"agent_0": True, "agent_1": False, ALL: False}
    obs, rewards, terminated, truncated, _ = env.step({"agent_1": push})
    assert obs.keys() == rewards.keys() == {"agent_1"}
    assert truncated[ALL] and not terminated[ALL]
    assert env.reset()[0].keys() == {"agent_0", "agent_1"}


def test_copies_differ_and_equal_seeds_give_equal_copies() -> None:
    env = make(5, 5)
    first, _ = env.reset(seed=3)
    second, _ = env.reset(seed=3)
    assert not np.array_equal(first["agent_0"], first["agent_1"])
    np.testing.assert_array_equal(first["agent_1"], second["agent_1"])


def test_make_multi_agent_takes_an_id_or_a_function_and_a_config() -> None:
    by_id = make_multi_agent("CartPole-v1")({"num_agents": 3, "render_mode": "rgb_array"})
    assert by_id.possible_agents == ["agent_0", "agent_1", "agent_2"] and by_id.render_mode == "rgb_array"
    by_function = make_multi_agent(lambda config: gym.make(config["name"]))({"name": "Pendulum-v1", "num_agents": 2})
    assert by_function.action_spaces["agent_1"].shape == (1,)


def test_functions_of_copies_get_the_place_of_the_environment() -> None:
    seen = []
    make = make_multi_agent(lambda context: seen.append(context) or gym.make(context["name"]))
    make(EnvContext({"name": "CartPole-v1", "num_agents": 2}, worker_index=3))
    assert [(context.worker_index, dict(context)) for context in seen] == [(3, {"name": "CartPole-v1"})] * 2
