"""Environments with several agents that bend PettingZoo's rules, and are taken all the same."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent import ALL, as_multi_agent
from lightning_rl.runs.algorithm import Algorithm


class Stays:
    """A ParallelEnv whose agents are numbers; it keeps them in `agents` and gives no infos. Agent 0 ends first."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        self.possible_agents = [0, 1]
        self.agents = [0, 1]

    def observation_space(self, agent: int) -> spaces.Space[Any]:
        return spaces.Discrete(5)

    def action_space(self, agent: int) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return {agent: 0 for agent in self.agents}, None

    def step(self, actions: dict[int, int]) -> Any:
        assert all(agent in (0, 1) for agent in actions)
        self.steps += 1
        flags = {0: self.steps >= 2, 1: self.steps >= 4}
        obs = dict.fromkeys(self.agents, self.steps)
        return obs, dict.fromkeys(self.agents, 1.0), flags, dict.fromkeys(self.agents, False), None

    def render(self) -> None:
        return None

    def close(self) -> None:
        return None


def test_an_agent_that_has_ended_has_left_although_the_environment_keeps_it() -> None:
    env = as_multi_agent(Stays())
    assert env is not None and env.possible_agents == ["agent_0", "agent_1"]
    env.reset(seed=1)
    rewards, terminated = [], {}
    for _ in range(4):
        _, given, terminated, _, _ = env.step({"agent_0": 0, "agent_1": 1})
        rewards.append(set(given))
    assert rewards == [{"agent_0", "agent_1"}] * 2 + [{"agent_1"}] * 2
    assert terminated == {"agent_1": True, ALL: True}
    obs, _ = env.reset(seed=1)
    assert set(obs) == {"agent_0", "agent_1"}


def test_a_run_trains_agents_that_are_numbers(tmp_path: Any) -> None:
    creator: Any = Stays
    observed, _ = EnvCreator(creator).spaces()
    assert [*observed.spaces] == ["agent_0", "agent_1"]  # type: ignore[attr-defined]
    overrides = [f"run_dir={tmp_path / 'run'}", "workers.envs_per_worker=2", "workers.fragment_length=20"]
    algorithm = Algorithm("ppo", creator, overrides=[*overrides, "policy.minibatches=2", "evaluation=none"])
    algorithm.train()
    assert algorithm.policy.env_steps > 0
