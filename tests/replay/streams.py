"""Streams of synthetic steps that are all different, and a plain list of steps to compare a ring with."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from lightning_rl.sample_batch import SampleBatch


def reward_of(action: int) -> float:
    """Something irregular that float32 holds exactly."""
    return ((action * 37) % 101 - 50) / 8


@dataclass
class Stream:
    """`num_envs` environments as a worker would record them (NEXT_STEP form). Each action is a number used once.

    Observations are `[episode, t]`, but all first ones are zero: a cut may not show in the observations.

    Args:
        longest: episode.
        masked: record masks of 3 actions, which differ from step to step.
        frames: observations are stacks of `frames` 2 × 4 images instead; `padding` "zero", "repeat" or "carry" (an
            episode's first stack still shows the end of the one before, as after a lost life).
        with_t: record the step within the episode.
        still: observations are all zero, so that only `t` shows a cut.
    """

    num_envs: int
    seed: int = 0
    longest: int = 6
    masked: bool = False
    frames: int = 0
    padding: str = "zero"
    with_t: bool = True
    still: bool = False

    def __post_init__(self) -> None:
        self.rng, self.actions, self.episodes = np.random.default_rng(self.seed), 0, 0
        self.envs: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self.cut()

    def cut(self) -> None:
        """Every environment starts an episode."""
        for env in self.envs:
            self._reset(env, carry=False)

    def _reset(self, env: dict[str, Any], carry: bool = True) -> None:
        self.episodes += 1
        length = int(self.rng.integers(1, self.longest + 1))
        env.update(episode=self.episodes, t=0, length=length, terminates=bool(self.rng.integers(2)), over=False)
        if self.frames:
            frame = self._frame()
            if self.padding == "carry" and carry and "obs" in env:
                env["obs"] = np.concatenate([env["obs"][1:], frame[None]])
            else:
                blank = frame if self.padding == "repeat" else np.zeros_like(frame)
                env["obs"] = np.stack([blank] * (self.frames - 1) + [frame])
        else:
            env["obs"] = np.zeros(2, np.float32)

    def _frame(self) -> np.ndarray:
        return self.rng.integers(0, 256, (2, 4)).astype(np.uint8)

    def _mask(self, env: dict[str, Any]) -> np.ndarray:
        return np.array([True, (env["episode"] + env["t"]) % 2 == 0, (env["episode"] + env["t"]) % 3 == 0])

    def _step(self, env: dict[str, Any]) -> dict[str, Any]:
        mask = self._mask(env)
        if env["over"]:
            self._reset(env)
            row = {"actions": 0, "rewards": 0.0, "terminated": False, "truncated": False, "valid": False, "t": 0}
            return {**row, "action_mask": mask}
        self.actions += 1
        t = env["t"]
        env["t"] += 1
        env["over"] = env["t"] == env["length"]
        if self.frames:
            env["obs"] = np.concatenate([env["obs"][1:], self._frame()[None]])
        else:
            env["obs"] = np.array([env["episode"], env["t"]], np.float32) * (not self.still)
        row = {"actions": self.actions, "rewards": reward_of(self.actions), "valid": True, "t": t, "action_mask": mask}
        row["terminated"], row["truncated"] = env["over"] and env["terminates"], env["over"] and not env["terminates"]
        return row

    def fragment(self, steps: int) -> SampleBatch:
        """The next `steps` rows of every environment."""
        obs, rows = [[env["obs"] for env in self.envs]], []
        for _ in range(steps):
            rows.append([self._step(env) for env in self.envs])
            obs.append([env["obs"] for env in self.envs])
        types = {"actions": torch.int64, "rewards": torch.float32, "t": torch.int32}
        names = [name for name in rows[0][0] if (self.masked or name != "action_mask") and (self.with_t or name != "t")]
        values = {name: np.array([[row[name] for row in line] for line in rows]) for name in names}
        columns = {name: torch.as_tensor(value, dtype=types.get(name, torch.bool)) for name, value in values.items()}
        return SampleBatch(columns, obs=torch.from_numpy(np.stack([np.stack(line) for line in obs])))


def counted(count: int, start: int = 0, **columns: Any) -> SampleBatch:
    """`count` steps of one environment that never ends; step i observes and earns i. `columns` replace these."""
    steps, flags = torch.arange(start, start + count + 1), torch.zeros(count, 1, dtype=torch.bool)
    batch = SampleBatch(obs=steps[:, None, None].float(), actions=torch.zeros(count, 1, dtype=torch.int64))
    batch["rewards"], batch["t"] = steps[:-1, None].float(), steps[:-1, None].int()
    batch["terminated"], batch["truncated"], batch["valid"] = flags, flags.clone(), ~flags
    for name, column in columns.items():
        batch[name] = column
    return batch


@dataclass
class Row:
    """A step of the model; `None` in a list of steps stands for an observation that belongs to none."""

    action: int
    reward: float
    terminated: bool
    truncated: bool
    obs: Any
    next_obs: Any
    mask: Any = None
    next_mask: Any = None
    before: Row | None = field(default=None, repr=False)


class Model:
    """What a ring should hold: for each environment a list of steps, and `None` where an observation stands alone."""

    def __init__(self, num_envs: int, capacity: int) -> None:
        self.length = -(-capacity // num_envs) + 1
        self.items: list[list[Row | None]] = [[] for _ in range(num_envs)]
        self.due = [-1] * num_envs

    def add(self, fragment: SampleBatch) -> None:
        """Row after row."""
        steps, num_envs = fragment.valid.shape
        for env in range(num_envs):
            items = self.items[env]
            for step in range(steps):
                obs = fragment.obs[step, env].numpy()
                mask = fragment.action_mask[step, env].numpy() if "action_mask" in fragment else None
                last = items[-2] if len(items) > 1 else None
                if last is not None and np.array_equal(last.next_obs, obs):
                    if not fragment.valid[step, env] and self.due[env] < 0:
                        last.next_mask = mask
                    t = fragment.t[step, env].item() if "t" in fragment else self.due[env]
                    if fragment.valid[step, env] and self.due[env] == t >= 0:
                        last.next_mask = mask
                        items.pop()
                if fragment.valid[step, env]:
                    action, reward, terminated, truncated = (
                        fragment[name][step, env].item() for name in ("actions", "rewards", "terminated", "truncated")
                    )
                    after = fragment.obs[step + 1, env].numpy()
                    items += [Row(action, reward, terminated, truncated, obs, after, mask), None]
                    t = fragment.t[step, env].item() if "t" in fragment else 0
                    self.due[env] = -1 if terminated or truncated else t + 1

    def stored(self) -> list[list[Row | None]]:
        """The newest items, as many as there are slots."""
        return [items[-self.length :] for items in self.items]

    def drawable(self, row: Row | None) -> bool:
        """Whether it is a step whose successor's mask is known, if there are masks."""
        return row is not None and (row.mask is None or row.terminated or row.next_mask is not None)

    def transitions(self, n_step: int, gamma: float) -> dict[int, dict[str, Any]]:
        """By action: what a draw should give."""
        found = {}
        for items in self.stored():
            for place, row in enumerate(items):
                if row is None or not self.drawable(row):
                    continue
                total, length, last = 0.0, 0, row
                for following in items[place : place + n_step]:
                    if following is None or not self.drawable(following):
                        break
                    total, length, last = total + gamma**length * following.reward, length + 1, following
                    if last.terminated or last.truncated:
                        break
                found[row.action] = {
                    "obs": row.obs,
                    "rewards": total,
                    "next_obs": last.next_obs,
                    "terminated": last.terminated,
                    "discounts": gamma**length,
                    "action_mask": row.mask,
                    "next_action_mask": np.ones(3, bool) if last.next_mask is None else last.next_mask,
                }
        return found


def saved_and_loaded(buffer: Any, fresh: Any) -> Any:
    """`fresh` with the state of a buffer, as a checkpoint restores it."""
    file = io.BytesIO()
    torch.save(buffer.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


def play(operations: list[Any], stream: Stream, model: Model, fresh: Callable[[], Any]) -> Iterator[Any]:
    """The buffer after each operation: so many further steps, a "cut", or a "save" and load into a fresh one.

    Fragments have states that encode the row that they precede: its observation twice.
    """
    buffer = fresh()
    for operation in operations:
        if operation == "cut":
            stream.cut()
        elif operation == "save":
            buffer = saved_and_loaded(buffer, fresh())
        else:
            fragment = stream.fragment(operation)
            fragment["state_in"] = SampleBatch({"0": torch.cat([fragment.obs.flatten(2), fragment.obs.flatten(2)], -1)})
            buffer.add(fragment)
            model.add(fragment)
        yield buffer


def compute_reward(achieved: np.ndarray, desired: np.ndarray, info: Any) -> np.ndarray:
    """0 at the goal, else −1."""
    return -(np.abs(achieved - desired).max(-1) > 1e-6).astype(np.float32)
