"""Each broken promise of the multi-agent API is one clear error before training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent import ALL, MultiAgentEnv
from lightning_rl.errors import EnvError


class Fine(MultiAgentEnv):
    """Keeps the API; the others break one promise each."""

    def __init__(self) -> None:
        self.possible_agents = ["a", "b"]
        self.observation_spaces = dict.fromkeys(self.possible_agents, spaces.Box(-1, 1, (2,), np.float32))
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return self.observe(), {}

    def observe(self) -> Any:
        return {agent: np.zeros(2, np.float32) for agent in self.possible_agents}

    def step(self, actions: Any) -> Any:
        self.time += 1
        return self.observe(), dict.fromkeys(actions, 0.0), {ALL: self.time > 4}, {ALL: False}, {}


class NoAgents(Fine):
    def __init__(self) -> None:
        self.observation_spaces = self.action_spaces = {}


class NoSpaces(Fine):
    def __init__(self) -> None:
        super().__init__()
        del self.observation_spaces


class MissingSpace(Fine):
    def __init__(self) -> None:
        super().__init__()
        del self.action_spaces["b"]  # type: ignore[attr-defined]


class Numbered(Fine):
    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = [0, 1]  # type: ignore[list-item]


class OldReset(Fine):
    def reset(self) -> Any:  # type: ignore[override]
        return self.observe()


class OnlyObs(Fine):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observe()


class Stranger(Fine):
    def observe(self) -> Any:
        return {**super().observe(), "c": np.zeros(2, np.float32)}


class Outside(Fine):
    def observe(self) -> Any:
        return {"a": np.full(2, 3.0, np.float32)}


class Unseeded(Fine):
    def observe(self) -> Any:
        return {"a": np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)}


class OldStep(Fine):
    def step(self, actions: Any) -> Any:
        return super().step(actions)[:4]


class NoAll(Fine):
    def step(self, actions: Any) -> Any:
        obs, rewards, _, truncated, infos = super().step(actions)
        return obs, rewards, {"a": False}, truncated, infos


class NaNReward(Fine):
    def step(self, actions: Any) -> Any:
        obs, _, *others = super().step(actions)
        return obs, {"b": float("nan")}, *others


class BackFromTheDead(Fine):
    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, infos = super().step(actions)
        return obs, rewards, {**terminated, "a": self.time == 1}, truncated, infos


class ChangingSpaces(Fine):
    def step(self, actions: Any) -> Any:
        self.observation_spaces = dict.fromkeys(self.possible_agents, spaces.Box(-2, 2, (2,), np.float32))
        return super().step(actions)


class WrongState(Fine):
    def __init__(self) -> None:
        super().__init__()
        self.state_space = spaces.Box(0, 1, (3,), np.float32)

    def state(self) -> np.ndarray:
        return np.zeros(2, np.float32)


class Raises(Fine):
    def step(self, actions: Any) -> Any:
        raise ZeroDivisionError("no wheels")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (NoAgents, "has possible_agents=None; expected a list of names"),
        (NoSpaces, "has observation_spaces=None; expected a dict with a space for each agent"),
        (MissingSpace, r"has action_spaces\['b'\]=None"),
        (Numbered, r"has the agent 0 in possible_agents; expected names \(str\)"),
        (OldReset, r"expected reset\(self, \*, seed=None, options=None\)"),
        (OnlyObs, r"reset returned dict; expected two dicts keyed by agent"),
        (Stranger, r"obs of reset has the agent 'c', which is not in possible_agents=\['a', 'b'\]"),
        (Outside, r"observation of reset, agent 'a' is outside its observation_space"),
        (Unseeded, r"different observations for reset\(seed=0\) twice"),
        (OldStep, "step returned 4; expected 5 dicts keyed by agent"),
        (NoAll, 'terminated of step 0 has no "__all__"'),
        (NaNReward, r"reward of step 0 is nan; expected one finite number \(agent 'b'\)"),
        (BackFromTheDead, "obs of step 1 has 'a', whose episode has ended"),
        (ChangingSpaces, "changed the spaces of 'a'"),
        (WrongState, r"state\(\) after reset is outside its state_space"),
        (Raises, r"raised ZeroDivisionError in step 0 after actions .*no wheels"),
    ],
)
def test_each_broken_promise_is_one_clear_error(broken: type, message: str) -> None:
    with pytest.raises(EnvError, match=message) as error:
        EnvCreator(broken).spaces()
    assert "\n" not in str(error.value) and broken.__name__ in str(error.value)


def test_a_good_environment_raises_no_false_alarm() -> None:
    observed, acted = EnvCreator(Fine).spaces()
    assert observed == spaces.Dict(Fine().observation_spaces) and acted == spaces.Dict(Fine().action_spaces)


def test_the_check_can_be_turned_off() -> None:
    EnvCreator(NaNReward, check=False).spaces()
