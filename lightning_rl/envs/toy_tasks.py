"""Small tasks that need one ability each, such as memory, for presets, examples and tests; learned in minutes."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

__all__ = [
    "BitFlipping",
    "HiddenCoin",
    "ParametricActionsCartPole",
    "PointReach",
    "RepeatAfterMe",
    "StatelessCartPole",
    "StatelessPendulum",
]


class StatelessCartPole(gym.ObservationWrapper[np.ndarray, Any, np.ndarray]):
    """CartPole that shows positions but no velocities: a policy needs memory.

    Args:
        env: CartPole; `None` creates CartPole-v1.
        render_mode: the render mode of the CartPole that is created.
    """

    env_id, shown = "CartPole-v1", [0, 2]

    def __init__(self, env: gym.Env[np.ndarray, Any] | None = None, render_mode: str | None = None) -> None:
        super().__init__(gym.make(self.env_id, render_mode=render_mode) if env is None else env)
        box = self.env.observation_space
        assert isinstance(box, spaces.Box)
        self.observation_space = spaces.Box(box.low[self.shown], box.high[self.shown], dtype=np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Cart position and pole angle."""
        return observation[self.shown]


class StatelessPendulum(StatelessCartPole):
    """Pendulum that shows the cosine and sine of its angle but no velocity: a policy needs memory.

    Args:
        env: Pendulum; `None` creates Pendulum-v1.
        render_mode: the render mode of the Pendulum that is created.
    """

    env_id, shown = "Pendulum-v1", [0, 1]


class RepeatAfterMe(gym.Env[Any, Any]):
    """Shows a random symbol each step; reward 1 for repeating the one of `delay` steps ago, −1 for another.

    Guessing earns 2 · (1 / symbols) − 1 a step on average; the most is `length − delay`.

    Args:
        delay: ≥ 0, number of steps back.
        symbols: number of different symbols.
        length: steps of an episode, which is then terminated, not truncated.
    """

    def __init__(self, delay: int = 2, symbols: int = 2, length: int = 100) -> None:
        self.observation_space, self.action_space = spaces.Discrete(symbols), spaces.Discrete(symbols)
        self.delay, self.length = delay, length
        self.shown: deque[int] = deque(maxlen=delay + 1)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """The first symbol."""
        super().reset(seed=seed)
        self.shown.clear()
        self.steps = 0
        return self._next(), {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Reward for the symbol of `delay` steps ago, 0 if there is none yet; and the next symbol."""
        known = len(self.shown) > self.delay
        reward = (1.0 if action == self.shown[0] else -1.0) if known else 0.0
        self.steps += 1
        return self._next(), reward, self.steps >= self.length, False, {}

    def _next(self) -> int:
        symbol = int(self.np_random.integers(int(self.action_space.n)))  # type: ignore[attr-defined]
        self.shown.append(symbol)
        return symbol


class HiddenCoin(gym.Env[Any, Any]):
    """Hide a coin in one of two hands (first part of the action), point to a hand (second part); nothing is observed.

    A step pays [pointed to the coin] − [the opponent guessed the coin's hand] + ½, divided by `length`: the return is
    the mean pay. The opponent guesses the hand that held the coin more often so far in the episode.

    Independent parts cannot do it. Without memory they hide with a fixed probability p in one hand and point with a
    fixed probability q to it: right with pq + (1 − p)(1 − q) ≤ max(p, 1 − p). The opponent is right with max(p, 1 − p)
    as soon as its count shows which hand that is. Its losses until then are all that the parts can gain above ½: at 100
    steps never more than 0.027, whatever p and q. A second part that depends on the first hides at random and points to
    the coin: 1 − ½ + ½ = 1, the maximum without memory. (With memory, alternating hands beats the opponent.)

    Args:
        length: steps of an episode.
    """

    def __init__(self, length: int = 100) -> None:
        self.observation_space = spaces.Discrete(1)
        self.action_space = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))
        self.length = length
        self.hidden = [0, 0]
        """Number of times that each hand held the coin."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Reset the opponent's counts."""
        super().reset(seed=seed)
        self.hidden = [0, 0]
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Reward for (hand of the coin, hand pointed to)."""
        coin, pointed = int(action[0]), int(action[1])
        left, right = self.hidden
        guess = int(self.np_random.integers(2)) if left == right else int(right > left)
        self.hidden[coin] += 1
        pay = float(pointed == coin) - float(guess == coin) + 0.5
        return 0, pay / self.length, sum(self.hidden) >= self.length, False, {}


class BitFlipping(gym.Env[Any, Any]):
    """Make a row of bits equal to a goal: each action flips one bit. Andrychowicz et al. 2017, section 3.1.

    Every step costs 1, except the one that reaches the goal and ends the episode. From 13 bits on, random actions never
    reach it. The interface is that of gymnasium-robotics.

    Args:
        bits: number of bits, and of steps after which an episode is truncated.
    """

    def __init__(self, bits: int = 16) -> None:
        parts = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict({part: spaces.MultiBinary(bits) for part in parts})
        self.action_space = spaces.Discrete(bits)
        self.bits, self.goal = np.zeros((2, bits), np.int8)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A random row and a different random goal."""
        super().reset(seed=seed)
        self.steps = 0
        self.bits, self.goal = self.np_random.integers(2, size=(2, len(self.bits)), dtype=np.int8)
        if (self.bits == self.goal).all():
            self.bits[self.np_random.integers(len(self.bits))] ^= 1
        return self._observation(), {"is_success": False}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Flip a bit."""
        self.bits[action] ^= 1
        self.steps += 1
        obs = self._observation()
        reached = bool(self.compute_terminated(obs["achieved_goal"], obs["desired_goal"], {}))
        truncated = self.steps >= len(self.bits) and not reached
        return obs, float(reached) - 1.0, reached, truncated, {"is_success": reached}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """0 if the goal is reached, else −1; for one step or many."""
        return self.compute_terminated(achieved_goal, desired_goal, info) - np.float32(1.0)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Whether the goal is reached; for one step or many."""
        return (np.asarray(achieved_goal) == np.asarray(desired_goal)).all(-1)

    def _observation(self) -> dict[str, np.ndarray]:
        return {"observation": self.bits.copy(), "achieved_goal": self.bits.copy(), "desired_goal": self.goal.copy()}


class PointReach(gym.Env[Any, np.ndarray]):
    """Move a mass in the unit square to a point and stay there: actions are forces; each step away from it costs 1.

    Episodes end only by truncation. The interface is that of gymnasium-robotics.

    Args:
        radius: distance within which the goal is reached.
        length: steps after which an episode is truncated.
    """

    FORCE, FRICTION = 0.02, 0.1  # largest velocity that a step adds, and the share of velocity that it removes

    def __init__(self, radius: float = 0.05, length: int = 50) -> None:
        place = spaces.Box(-1.0, 1.0, (2,), np.float32)
        seen = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.observation_space = spaces.Dict(observation=seen, achieved_goal=place, desired_goal=place)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.radius, self.length, self.steps = radius, length, 0
        self.place, self.velocity, self.goal = np.zeros((3, 2), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start at rest at a random place, with a random goal."""
        super().reset(seed=seed)
        self.steps = 0
        self.place, self.goal = self.np_random.uniform(-1.0, 1.0, (2, 2)).astype(np.float32)
        self.velocity = np.zeros(2, np.float32)
        return self._observation(), {"is_success": False}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Apply the force; walls stop the mass."""
        force = self.FORCE * np.clip(action, -1.0, 1.0)
        self.velocity = ((1.0 - self.FRICTION) * self.velocity + force).astype(np.float32)
        wanted = self.place + self.velocity
        self.place = np.clip(wanted, -1.0, 1.0)
        self.velocity[self.place != wanted] = 0.0
        self.steps += 1
        obs = self._observation()
        reward = float(self.compute_reward(obs["achieved_goal"], obs["desired_goal"], {}))
        return obs, reward, False, self.steps >= self.length, {"is_success": reward == 0.0}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """0 within the radius of the goal, else −1; for one step or many."""
        distance = np.linalg.norm(np.asarray(achieved_goal) - np.asarray(desired_goal), axis=-1)
        return -(distance > self.radius).astype(np.float32)

    def _observation(self) -> dict[str, np.ndarray]:
        place = self.place.copy()
        seen = np.concatenate([place, self.velocity / (self.FORCE / self.FRICTION)])
        return {"observation": seen.astype(np.float32), "achieved_goal": place, "desired_goal": self.goal.copy()}


class ParametricActionsCartPole(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole with `slots` actions, of which a changing subset is legal; an illegal one ends the episode.

    Observations: "cart" (CartPole's), "action_mask" `[slots]` (1: legal), "avail_actions" `[slots, 2]` (an embedding of
    each slot's direction; zeros: illegal).

    Args:
        slots: number of actions, at least 2.
        varying: a random number of slots from 2 to all is legal at each step, instead of 2. Both directions are always
            legal.
        embeddings: show "avail_actions", and assign directions to slots again at each step. Without, even slots push
            left and odd ones right.
        mask: show "action_mask".
        env: CartPole; `None` creates CartPole-v1.
        render_mode: the render mode of the CartPole that is created.
    """

    EMBEDDINGS = np.array([[0.8, -0.6], [0.6, 0.8]], np.float32)
    """Embeddings of left and right."""

    def __init__(
        self,
        slots: int = 10,
        *,
        varying: bool = False,
        embeddings: bool = True,
        mask: bool = True,
        env: gym.Env[np.ndarray, int] | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(gym.make("CartPole-v1", render_mode=render_mode) if env is None else env)
        self.slots, self.varying, self.embeddings, self.mask = slots, varying, embeddings, mask
        parts: dict[str, gym.Space[Any]] = {"cart": self.env.observation_space}
        if mask:
            parts["action_mask"] = spaces.MultiBinary(slots)
        if embeddings:
            parts["avail_actions"] = spaces.Box(-1.0, 1.0, (slots, 2), np.float32)
        self.observation_space, self.action_space = spaces.Dict(parts), spaces.Discrete(slots)
        self.directions = np.arange(slots) % 2
        """Direction of each slot in this step."""
        self.legal = np.zeros(slots, bool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset CartPole, and choose the first legal actions."""
        cart, info = self.env.reset(seed=seed, options=options)
        return self._observation(cart), info

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Push in the slot's direction; an illegal slot pushes too, has reward 0 and ends the episode."""
        legal = bool(self.legal[action])
        cart, reward, terminated, truncated, info = self.env.step(int(self.directions[action]))
        return self._observation(cart), float(reward) * legal, terminated or not legal, truncated, info

    def _observation(self, cart: np.ndarray) -> dict[str, np.ndarray]:
        """The observation, with new legal actions."""
        random = self.np_random
        if self.embeddings:
            self.directions = random.permutation(np.arange(self.slots) % 2)
        count = int(random.integers(2, self.slots + 1)) if self.varying else 2
        order = random.permutation(self.slots)
        left, right = (order[self.directions[order] == direction] for direction in (0, 1))
        others = order[(order != left[0]) & (order != right[0])]
        self.legal = np.isin(np.arange(self.slots), [left[0], right[0], *others[: count - 2]])
        shown = {"cart": cart}
        if self.mask:
            shown["action_mask"] = self.legal.astype(np.int8)
        if self.embeddings:
            shown["avail_actions"] = self.EMBEDDINGS[self.directions] * self.legal[:, None].astype(np.float32)
        return shown
