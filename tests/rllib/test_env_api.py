"""Environments with the API of RLlib 1.x train as they are: unseeded resets, four values of a step, several agents."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl import rllib
from lightning_rl.errors import EnvError
from lightning_rl.rllib.env_api import ClassicEnv, ClassicMultiAgentEnv, current_api, gymnasium_space
from tests.rllib.classic import trainer

SMALL: dict[str, Any] = {"num_envs_per_worker": 2, "rollout_fragment_length": 16, "model": {"fcnet_hiddens": [8]}}
CLASSIC = "has the API of Gym before 0.26"


class SimpleCorridor(gym.Env):
    """Walk right to the end, as an env class of RLlib's examples was written: float lists and ints, no seed."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.end, self.limit = config["corridor_length"], config.get("limit", 100)
        self.action_space = gym.spaces.Discrete(2)
        self.observation_space = gym.spaces.Box(0.0, self.end, shape=(1,), dtype=np.float32)
        self.seeds: list[int] = []

    def seed(self, seed: int | None = None) -> None:
        self.seeds.append(seed or 0)

    def reset(self) -> Any:  # type: ignore[override]
        self.pos = self.steps = 0
        return [self.pos]

    def step(self, action: int) -> Any:  # type: ignore[override]
        self.pos = max(0, self.pos + (1 if action else -1))
        self.steps += 1
        cut = self.steps >= self.limit
        done = self.pos >= self.end or cut
        return [self.pos], 1.0 if self.pos >= self.end else -0.1, done, {"TimeLimit.truncated": cut}


class NoGymClass:
    """Of no base class of Gymnasium's, with spaces that only look like Gym's."""

    def __init__(self) -> None:
        self.observation_space = Discrete(3)
        self.action_space = Tuple((Discrete(2), Discrete(2)))

    def reset(self) -> int:
        self.t = 0
        return 0

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.t % 3, float(action[0]), self.t >= 4, {}


class Discrete(SimpleNamespace):
    def __init__(self, n: int) -> None:
        super().__init__(n=n)


class Tuple(SimpleNamespace):
    def __init__(self, parts: Any) -> None:
        super().__init__(spaces=parts)


class Pair(rllib.MultiAgentEnv):
    """Two numbered agents that name neither themselves nor their spaces; the second leaves after two steps."""

    def __init__(self, config: Any = None) -> None:
        pass

    def reset(self) -> Any:  # type: ignore[override]
        self.t = 0
        return {0: np.zeros(2), 1: np.ones(2)}

    def step(self, actions: Any) -> Any:
        self.t += 1
        obs = {agent: np.full(2, self.t) for agent in actions}
        rewards = {agent: float(action) for agent, action in actions.items()}
        dones = {agent: agent == 1 and self.t == 2 for agent in actions}
        return obs, rewards, {**dones, "__all__": self.t >= 5}, {}


BOX, TWO = gym.spaces.Box(-10.0, 10.0, (2,), np.float32), gym.spaces.Discrete(2)
POLICIES = {"even": (None, BOX, TWO, {}), "odd": (None, BOX, TWO, {"gamma": 0.5})}


def test_ends_become_terminations_and_truncations() -> None:
    env = ClassicEnv(SimpleCorridor({"corridor_length": 2, "limit": 3}))
    obs, info = env.reset(seed=5)
    assert obs.dtype == np.float32 and obs.tolist() == [0.0] and info == {} and env.env.seeds == [5]
    assert env.step(1)[1:4] == (-0.1, False, False) and env.step(1)[1:4] == (1.0, True, False)
    env.reset()
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    assert env.env.seeds == [5] and env.pos == 0  # attributes of the environment are reached


@pytest.mark.parametrize("how", ["class", "function", "registered name"])
def test_a_class_without_seeds_trains_with_a_warning(how: str) -> None:
    env: Any = SimpleCorridor
    if how == "function":
        env = lambda config: SimpleCorridor(config)  # noqa: E731
    elif how == "registered name":
        rllib.register_env("corridor of 1.x", lambda config: SimpleCorridor(config))
        env = "corridor of 1.x"
    with pytest.warns(UserWarning, match=f"SimpleCorridor {CLASSIC}"):
        made = trainer(env=env, env_config={"corridor_length": 3}, horizon=20, **SMALL)
    result = made.train()
    made.stop()
    assert 3 <= result["episode_len_mean"] <= 20 and made.policy.observation_space.shape == (1,)


def test_a_class_that_is_no_gymnasium_env_has_its_spaces_converted() -> None:
    with pytest.warns(UserWarning, match=CLASSIC):
        made = trainer("PG", env=NoGymClass, num_envs_per_worker=2)
    result = made.train()
    made.stop()
    assert result["episode_len_mean"] == 4 and made.policy.action_space == gym.spaces.Tuple([TWO, TWO])
    nested = SimpleNamespace(spaces={"a": Discrete(2)})
    assert gymnasium_space(type("Dict", (SimpleNamespace,), {})(**vars(nested))) == gym.spaces.Dict({"a": TWO})
    with pytest.raises(EnvError, match="Graph"):
        gymnasium_space(type("Graph", (), {})())


def test_environments_with_today_s_api_and_ids_stay_as_they_are() -> None:
    class Modern(gym.Env):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return 0, {}

    for env in (Modern, "CartPole-v1", None):
        assert current_api(env, {}, {}) == (env, {}, False)


@pytest.mark.parametrize("env_config", [{}, {"limit": 7}])
def test_a_class_gets_its_context_in_an_argument_of_any_name(env_config: dict[str, Any]) -> None:
    class Modern(gym.Env):
        observation_space, action_space = BOX, TWO

        def __init__(self, game: Any) -> None:
            self.given = (dict(game), game.vector_index)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> Any:
            return np.zeros(2, np.float32), 1.0, True, False, {}

    class Several(Pair):
        def __init__(self, game: Any) -> None:
            self.given = (dict(game), game.vector_index)
            self.observation_space, self.action_space = BOX, TWO

    made = trainer("PG", env=Modern, env_config=env_config, num_envs_per_worker=2)
    assert made.workers.foreach_env(lambda env: env.given) == [[(env_config, 0), (env_config, 1)]]
    made.stop()
    with pytest.warns(UserWarning, match=f"Several {CLASSIC}"):
        made = trainer("PG", env=Several, env_config=env_config, num_envs_per_worker=1)
    assert made.workers.foreach_env(lambda env: env.given) == [[(env_config, 0)]]
    made.stop()


def test_agents_that_are_numbers_without_spaces_get_those_of_their_policies() -> None:
    asked: list[Any] = []

    def policy_mapping_fn(agent_id: int) -> str:
        asked.append(agent_id)
        return "even" if agent_id % 2 == 0 else "odd"

    section = {"policies": POLICIES, "policy_mapping_fn": policy_mapping_fn}
    with pytest.warns(UserWarning, match=f"Pair {CLASSIC}"):
        made = trainer(env=Pair, multiagent=section, **SMALL)
    result = made.train()
    made.stop()
    assert set(asked) == {0, 1} and set(result["policy_reward_mean"]) == {"even", "odd"}
    assert result["episode_len_mean"] == 5 and made.get_policy("odd").gamma == 0.5
    with pytest.raises(EnvError, match="no action_space of agent 0"):
        ClassicMultiAgentEnv(Pair(), {}, None).reset()


def test_an_agent_s_time_limit_is_a_truncation() -> None:
    class Limited(Pair):
        def step(self, actions: Any) -> Any:
            obs, rewards, dones, _ = super().step(actions)
            return obs, rewards, dones, {0: {"TimeLimit.truncated": dones["__all__"]}}

    env = ClassicMultiAgentEnv(Limited(), POLICIES, lambda agent: "even")
    env.reset()
    for _ in range(5):
        _, _, terminated, truncated, _ = env.step({0: 1})
    assert terminated == {0: False, "__all__": False} and truncated == {0: False, "__all__": True}


def test_an_environment_with_several_agents_samples_their_spaces() -> None:
    env = Pair()
    env.observation_space, env.action_space = BOX, TWO
    assert env.get_agent_ids() == {0, 1}
    observations, actions = env.observation_space_sample([1]), env.action_space_sample()
    assert list(observations) == [1] and list(actions) == [0, 1]
    assert env.observation_space_contains(observations) and env.action_space_contains(actions)
    assert not env.action_space_contains({0: 2}) and not env.observation_space_contains({0: np.zeros(3)})
