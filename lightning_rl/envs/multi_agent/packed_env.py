"""A multi-agent environment as one Gymnasium environment over arrays, which every vector environment can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, create_empty_array

from lightning_rl.envs.multi_agent.agent_layout import AgentLayout
from lightning_rl.envs.multi_agent.check import check_agents, reset_with_seed
from lightning_rl.envs.multi_agent.multi_agent_env import ALL, MultiAgentEnv
from lightning_rl.errors import EnvError, short_repr

__all__ = ["PackedEnv"]

FLAGS = ("acts", "terminated", "truncated", "present")


class PackedEnv(gym.Env[Any, Any]):
    """Writes what the agents of an environment see into arrays, and takes their actions from arrays.

    An observation is a dict: "obs" (kind → its agents' observations `[n, *]`; an agent that is not there keeps its last
    one), "acts" (0 or 1 `[A]`, whose actions the next step takes), "rewards" (float64 `[A]`, of the last step),
    "terminated" and "truncated" (0 or 1 `[A]`, which agents ended in the last step), "present" (0 or 1 `[A]`, agents
    that have appeared in this episode and had not ended before the last step: their rows of "obs" count), "masks" (kind
    → 0 or 1 `[n, actions]`, for Discrete actions; only if the environment gives masks in infos), "state" (only if it
    has one). `A` counts all agents, `n` those of a kind; kinds are named by their index, "0", "1", …. Actions are a
    dict kind → `[n, *]`.

    At the end of the whole episode, every agent that is still there ends too.

    Args:
        env: the environment.
        name: of the environment, for messages.

    Attributes:
        layout: where each agent lies in the arrays.
        arrays: the present observation; each step overwrites it.
        infos: of the last reset or step, by agent.

    Raises:
        EnvError: an agent has no space, or the first reset fails.
    """

    def __init__(self, env: MultiAgentEnv, name: str | None = None) -> None:
        self.env, self.name = env, type(env.unwrapped).__name__ if name is None else name
        self.metadata, self.render_mode = dict(env.metadata), env.render_mode
        check_agents(env, self.name)
        agents = [*env.possible_agents]
        _, infos = reset_with_seed(env, self.name)
        masked = any("action_mask" in info for info in infos.values() if isinstance(info, Mapping))
        self.layout = AgentLayout.from_spaces(
            agents, env.observation_spaces, env.action_spaces, env.state_space, masked
        )
        self._slots = {agent: slot for slot, agent in enumerate(agents)}
        count, kinds = len(agents), self.layout.kinds
        named = [(str(index), kind, len(kind.slots)) for index, kind in enumerate(kinds)]
        parts: dict[str, spaces.Space[Any]] = {
            "obs": spaces.Dict({key: batch_space(kind.observation_space, n) for key, kind, n in named}),
            "rewards": spaces.Box(-np.inf, np.inf, (count,), np.float64),
            **{name: spaces.MultiBinary(count) for name in FLAGS},
        }
        if masked:
            actions = {key: (n, kind.action_space) for key, kind, n in named}
            sizes = {key: (n, int(a.n)) for key, (n, a) in actions.items() if isinstance(a, spaces.Discrete)}
            parts["masks"] = spaces.Dict({key: spaces.MultiBinary(size) for key, size in sizes.items()})
        if env.state_space is not None:
            parts["state"] = env.state_space
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Dict({key: batch_space(kind.action_space, n) for key, kind, n in named})
        self._discrete = [isinstance(kind.action_space, spaces.Discrete) for kind in kinds]
        self.infos: dict[str, Any] = {}
        self._present = np.zeros(count, dtype=bool)  # agents that have appeared and not ended
        self.bind(create_empty_array(self.observation_space, 1, fn=np.zeros), 0)

    def bind(self, arrays: Any, row: int) -> None:
        """Write observations into row `row` of these batched arrays from now on."""
        self.arrays = _views(arrays, row)
        self._acts, self._terminated, self._truncated, self._shown = (
            self.arrays[name].view(np.bool_) for name in FLAGS
        )
        self._obs = [self.arrays["obs"][str(index)] for index in range(len(self.layout.kinds))]
        self._masks = self.arrays.get("masks", {})

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the result is a copy of `arrays`."""
        self.reset_in_place(seed=seed, options=options)
        return _copy(self.arrays), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step with the actions of the agents whose turn it is; the observation is a copy of `arrays`."""
        reward, terminated, truncated = self.step_in_place(action)
        return _copy(self.arrays), reward, terminated, truncated, {}

    def reset_in_place(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """As `reset`, without the copy."""
        obs, self.infos = self.env.reset(seed=seed, options=options)
        self._present[:] = False
        self.arrays["rewards"][:] = 0
        self._terminated[:] = self._truncated[:] = False
        self._write(obs)
        self._shown[:] = self._present

    def step_in_place(self, action: Mapping[str, Any]) -> tuple[float, bool, bool]:
        """As `step`, without the copy.

        Returns:
            The sum of the agents' rewards; whether the whole episode terminated; whether it was truncated.

        Raises:
            EnvError: the environment names an agent that is not among its possible agents, or one that has ended.
        """
        agents, places = self.layout.agents, self.layout.places
        actions = {}
        for slot in np.flatnonzero(self._acts).tolist():
            kind, row = places[slot]
            chosen = _row(action[str(kind)], row)
            actions[agents[slot]] = int(chosen) if self._discrete[kind] else chosen
        obs, rewards, terminated, truncated, self.infos = self.env.step(actions)
        return self._take(obs, rewards, terminated, truncated)

    def _take(self, obs: Any, rewards: Any, terminated: Any, truncated: Any) -> tuple[float, bool, bool]:
        present, numbers = self._present, self.arrays["rewards"]
        over, cut = bool(terminated.get(ALL, False)), bool(truncated.get(ALL, False))
        total = 0.0
        numbers[:] = 0
        for agent, reward in rewards.items():
            numbers[self._slot(agent, "rewards")] = reward
            total += reward
        for name, flags, ended in (
            ("terminated", self._terminated, terminated),
            ("truncated", self._truncated, truncated),
        ):
            flags[:] = False
            for agent, value in ended.items():
                if value and agent != ALL:
                    flags[self._slot(agent, name)] = True
        ends = self._terminated | self._truncated
        self._write(obs, ends)
        self._shown[:] = present
        ends &= present
        if over or cut:
            (self._terminated if over else self._truncated)[present & ~ends] = True
            self._acts[:] = False
            present[:] = False
        else:
            present &= ~ends
        return total, over, cut and not over

    def _write(self, obs: Mapping[str, Any], ended: np.ndarray | None = None) -> None:
        """Write observations and masks, and whose turn it is."""
        acts, present = self._acts, self._present
        acts[:] = False
        for agent, value in obs.items():
            slot = self._slot(agent, "obs")
            kind, row = self.layout.places[slot]
            _put(self._obs[kind], row, value)
            if ended is None or not ended[slot]:
                acts[slot] = True
                present[slot] = True
            if self._masks:
                self._write_mask(agent, kind, row)
        if "state" in self.arrays:
            self.arrays["state"][...] = self.env.state()

    def _write_mask(self, agent: str, kind: int, row: int) -> None:
        masks = self._masks.get(str(kind))
        if masks is not None:
            masks[row] = self.infos.get(agent, {}).get("action_mask", True)

    def _slot(self, agent: str, where: str) -> int:
        slot = self._slots.get(agent)
        if slot is None:
            raise EnvError(
                f"environment {self.name!r} has the agent {short_repr(agent)} in its {where}, and possible_agents does "
                f"not: {short_repr(list(self.layout.agents))}"
            )
        return slot

    def render(self) -> Any:
        """As the environment renders."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _views(arrays: Any, row: int) -> Any:
    if isinstance(arrays, Mapping):
        return {name: _views(child, row) for name, child in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(_views(child, row) for child in arrays)
    return arrays[row]


def _copy(arrays: Any) -> Any:
    if isinstance(arrays, Mapping):
        return {name: _copy(child) for name, child in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(_copy(child) for child in arrays)
    return np.array(arrays)


def _put(target: Any, row: int, value: Any) -> None:
    """Write one agent's (nested) observation into its row."""
    if isinstance(target, dict):
        for name, child in target.items():
            _put(child, row, value[name])
    elif isinstance(target, tuple):
        for child, part in zip(target, value, strict=True):
            _put(child, row, part)
    else:
        if np.shape(value) != target.shape[1:]:  # assigning it would broadcast it silently
            raise EnvError(f"an observation of shape {np.shape(value)}; its space has {target.shape[1:]}")
        target[row] = value


def _row(value: Any, row: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _row(child, row) for name, child in value.items()}
    if isinstance(value, tuple):
        return tuple(_row(child, row) for child in value)
    return value[row]
