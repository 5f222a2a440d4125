"""Acts with an exported policy: NumPy and onnxruntime, without torch and without the rest of this package.

    from lightning_rl.deploy import load

    policy = load("export_dir")
    action = policy.act(observation)

`lightning-rl export RUN` writes the directory. This file imports nothing of the package, so that a machine without
torch needs it alone: copy it, or `pip install --no-deps lightning_rl`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["DeployedPolicy", "DeploymentError", "load"]

FORMAT_VERSION = 1


class DeploymentError(ValueError):
    """An exported policy cannot be loaded, or was given an observation that is not of its space."""


def load(export_dir: str | os.PathLike[str], *, threads: int = 1) -> DeployedPolicy:
    """The policy that `lightning-rl export --format onnx` wrote into a directory.

    Args:
        export_dir: the directory that holds `policy.json` and `policy.onnx`.
        threads: the number of threads of onnxruntime, ≥ 1; one is the fastest for small networks.

    Raises:
        DeploymentError: the directory holds no exported policy, one in another format or of a newer version, or the
            two files do not belong together, or one is damaged.
        ImportError: onnxruntime is missing; names the command that installs it.
    """
    folder = Path(export_dir)
    try:
        description = json.loads(_read(folder, "policy.json"))
        content = _read(folder, description["file"])
    except OSError as error:
        raise DeploymentError(
            f"{folder} holds no exported policy ({error}): write one with lightning-rl export RUN --out {folder}"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(folder, error) from error
    if description.get("format_version") != FORMAT_VERSION:
        raise DeploymentError(
            f"{folder / 'policy.json'} has format_version {description.get('format_version')!r}; this file reads "
            f"{FORMAT_VERSION}: take the lightning_rl/deploy.py of the version that exported the policy"
        )
    if description.get("format") != "onnx":
        raise DeploymentError(
            f"{folder} holds a policy in the format {description.get('format')!r}, which needs torch; this module "
            "runs ONNX: lightning-rl export RUN --format onnx"
        )
    if hashlib.sha256(content).hexdigest() != description.get("sha256"):
        raise DeploymentError(
            f"{folder}: {description['file']} is not the file that policy.json describes; export again"
        )
    try:
        return DeployedPolicy(description, content, threads=threads)
    except (DeploymentError, ImportError):
        raise
    except Exception as error:  # onnxruntime has its own type for each kind of damage
        raise _damaged(folder, error) from error


def _read(folder: Path, name: str) -> bytes:
    """The content of a file in the directory, which may be someone else's: a device would be read without end.

    Raises:
        OSError: there is no such file.
        ValueError: the name leads out of the directory.
    """
    if Path(name).name != name:
        raise ValueError(f"its file is {name!r}, which is not a name in this directory")
    file = folder / name
    if not file.is_file():
        raise FileNotFoundError(f"{name} is not a file")
    return file.read_bytes()


def _damaged(folder: Path, error: Exception) -> DeploymentError:
    reason = " ".join(repr(error).split())[:300]
    return DeploymentError(f"{folder / 'policy.json'} is damaged ({reason}): export the policy again")


class DeployedPolicy:
    """Acts in one environment, or in a batch of them, and remembers what its model does from step to step.

    Args:
        description: contents of policy.json.
        model: bytes of the ONNX file.
        threads: see `load`.

    Attributes:
        description: spaces, inputs and outputs, algorithm, versions, and the result of the check, as given.
    """

    def __init__(self, description: Mapping[str, Any], model: bytes, *, threads: int = 1) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError("lightning_rl.deploy needs onnxruntime: pip install onnxruntime") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.description = description
        self._session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._read = {each.name for each in self._session.get_inputs()}
        self._outputs = [each.name for each in self._session.get_outputs()]
        self._leaves = [_Leaf(path, leaf) for path, leaf in _leaves(description["observation_space"])]
        actions = [path for path, _ in _leaves(description["action_space"])]
        self._actions = [self._outputs.index(f"action.{path}" if path else "action") for path in actions]
        self._memory = [_Memory(each, description["inputs"], self._outputs) for each in description["memory"]]
        shapes = {each["name"]: each["shape"] for each in description["inputs"]}
        self._mask_size = int(shapes["action_mask"][1]) if "action_mask" in shapes else 0
        self._reads_reward = "reward" in shapes
        self._state: list[np.ndarray] | None = None
        self._take_trial_step()

    def act(self, obs: Any, *, mask: Any = None, reward: Any = 0.0) -> Any:
        """The best action for what the environment shows: what `env.step` takes.

        Args:
            obs: one observation as the environment gave it (nested dicts and tuples, numbers), or a batch of them
                `[B, *]`, as a vector environment gives it.
            mask: allowed actions, `[n]` or `[B, n]`, of environments that give them beside the observation (as
                `info["action_mask"]`), or a tuple of such arrays for each choice of the action; `None`: all.
            reward: the reward of the step before, for models that read it: a number or `[B]`; 0 at an episode's start.

        Raises:
            DeploymentError: the observation is not of the policy's space; names the part, and what was expected. Or
                there are more or fewer environments than in the step before, without a `reset`.
        """
        arrays = [leaf.array(value) for leaf, value in zip(self._leaves, self._collect(obs), strict=True)]
        single = arrays[0].ndim == len(self._leaves[0].shape)
        inputs = {leaf.name: leaf.batch(array, single) for leaf, array in zip(self._leaves, arrays, strict=True)}
        rows = len(inputs[self._leaves[0].name])
        for leaf in self._leaves[1:]:
            if len(inputs[leaf.name]) != rows:
                raise DeploymentError(
                    f"{leaf.name} has {len(inputs[leaf.name])} rows, {self._leaves[0].name} {rows}: expected equal ones"
                )
        if self._mask_size:
            inputs["action_mask"] = self._mask(mask, rows, single)
        elif mask is not None:
            raise DeploymentError(
                "mask: this policy was exported without an input for it; it reads "
                f"{self.description.get('action_mask') or 'no action mask'}"
            )
        if self._reads_reward:
            inputs["reward"] = np.broadcast_to(np.asarray(reward, np.float32), rows).copy()
        if self._memory:
            self._add_memory(inputs, rows)
        answers = self._session.run(None, {name: value for name, value in inputs.items() if name in self._read})
        if self._memory:
            self._state = [answers[memory.position] for memory in self._memory]
        actions = [answers[position] for position in self._actions]
        return _pack(self.description["action_space"], iter([each[0] for each in actions] if single else actions))

    def reset(self, ended: Any = None) -> None:
        """Forget what the model remembers: call it when an episode starts.

        Args:
            ended: bool `[B]`, in which environments of a batch; `None`: in all of them.
        """
        if ended is None or self._state is None:
            self._state = None
            return
        starting = np.asarray(ended, dtype=bool)
        for memory, value in zip(self._memory, self._state, strict=True):
            value[starting] = memory.initial

    def copy(self) -> DeployedPolicy:
        """Another policy with the same network and its own memory, for another environment."""
        twin = copy.copy(self)
        twin.reset()
        return twin

    def _take_trial_step(self) -> None:
        """Act once, so that a description that does not fit the model is found here and not in the first episode."""
        inputs = {leaf.name: np.full((1, *leaf.shape), leaf.low, leaf.dtype) for leaf in self._leaves}
        inputs |= {memory.name: memory.at_start(1) for memory in self._memory}
        inputs |= {"action_mask": self._mask(None, 1, single=True)} if self._mask_size else {}
        inputs |= {"reward": np.zeros(1, np.float32)} if self._reads_reward else {}
        answers = self._session.run(None, {name: value for name, value in inputs.items() if name in self._read})
        _pack(self.description["action_space"], iter([answers[position][0] for position in self._actions]))

    def _collect(self, obs: Any) -> list[Any]:
        return list(_values(self.description["observation_space"], obs, ""))

    def _mask(self, mask: Any, rows: int, single: bool) -> np.ndarray:
        expected = (self._mask_size,) if single else (rows, self._mask_size)
        if mask is None:
            return np.ones((rows, self._mask_size), dtype=bool)
        if isinstance(mask, tuple):  # an array for each choice, as MultiDiscrete.sample(mask) takes them
            parts = [np.ravel(part) if single else np.asarray(part) for part in mask]
            mask = np.concatenate(parts, axis=-1)
        allowed = np.asarray(mask).astype(bool)
        if allowed.shape != expected:
            raise DeploymentError(f"mask has shape {list(allowed.shape)}; expected {list(expected)}")
        return allowed.reshape(rows, self._mask_size)

    def _add_memory(self, inputs: dict[str, np.ndarray], rows: int) -> None:
        if self._state is None:
            self._state = [memory.at_start(rows) for memory in self._memory]
        if len(self._state[0]) != rows:
            raise DeploymentError(
                f"{rows} observations after {len(self._state[0])} in the step before: call reset() first, or use a "
                "copy() for each environment"
            )
        inputs.update({memory.name: value for memory, value in zip(self._memory, self._state, strict=True)})


class _Leaf:
    """A part of the observation: its name, shape and dtype; converts values into arrays of them."""

    def __init__(self, path: str, space: Mapping[str, Any]) -> None:
        self.name = f"obs.{path}" if path else "obs"
        self.shape, self.dtype = tuple(map(int, space["shape"])), np.dtype(space["dtype"])
        if self.dtype.kind not in "fiub":
            raise DeploymentError(
                f"{self.name} has dtype {space['dtype']!r}; expected numbers: export the policy again"
            )
        self.space = space
        self.counted = space["type"] in ("Discrete", "MultiDiscrete")
        self.low: Any = 0
        if self.counted:
            self.low = np.asarray(space["start"]).reshape(self.shape if np.ndim(space["start"]) else ())
            count = np.asarray(space["n"] if space["type"] == "Discrete" else space["nvec"])
            self.high = self.low + count.reshape(self.shape if count.ndim else ()) - 1

    def array(self, value: Any) -> np.ndarray:
        """The value as an array `[*]` or `[B, *]` of the space's dtype."""
        try:
            array = np.asarray(value)
        except ValueError as error:  # lists of unequal lengths
            raise DeploymentError(f"{self.name} is not an array ({error}); expected {self._expected()}") from error
        if array.dtype != self.dtype:
            array = self._cast(array)
        if array.shape[-len(self.shape) or array.ndim :] != self.shape or array.ndim - len(self.shape) not in (0, 1):
            raise DeploymentError(f"{self.name} has shape {list(array.shape)}; expected {self._expected()}")
        if self.counted and (np.any(array < self.low) or np.any(array > self.high)):
            bounds = f"{self.low.tolist()} to {self.high.tolist()}"
            raise DeploymentError(f"{self.name} is {array.tolist()}; expected whole numbers from {bounds}")
        return array

    def batch(self, array: np.ndarray, single: bool) -> np.ndarray:
        """The array as `[B, *]`."""
        if (array.ndim == len(self.shape)) != single:
            kind = "one observation" if single else "a batch"
            raise DeploymentError(
                f"{self.name} has shape {list(array.shape)}, and the part before it is that of {kind}"
            )
        return array[None] if single else array

    def _cast(self, array: np.ndarray) -> np.ndarray:
        """Convert if no value changes but by rounding to the space's precision."""
        kinds = {"f": "fiub", "i": "iub", "u": "iub", "b": "iub"}[self.dtype.kind]
        if array.dtype.kind not in kinds:
            raise DeploymentError(f"{self.name} has dtype {array.dtype}; expected {self._expected()}")
        found = array.astype(self.dtype)
        if self.dtype.kind != "f" and np.any(found != array):
            raise DeploymentError(f"{self.name} holds values that {self.dtype} cannot; expected {self._expected()}")
        return found

    def _expected(self) -> str:
        shape = list(self.shape)
        return f"{self.space['type']} {shape} of {self.dtype}, or a batch [B{''.join(f', {side}' for side in shape)}]"


class _Memory:
    """A part of the memory: its value at an episode's start, and the output that is its next value."""

    def __init__(self, entry: Mapping[str, Any], inputs: list[Mapping[str, Any]], outputs: list[str]) -> None:
        self.name, self.position = entry["input"], outputs.index(entry["output"])
        port = next(each for each in inputs if each["name"] == self.name)
        shape, dtype = tuple(port["shape"][1:]), np.dtype(port["dtype"])
        initial = entry["initial"]
        self.initial = np.array(initial, dtype).reshape(shape) if np.ndim(initial) else np.full(shape, initial, dtype)

    def at_start(self, rows: int) -> np.ndarray:
        return np.repeat(self.initial[None], rows, axis=0)


def _leaves(space: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path, space) of every leaf, in the order of `lightning_rl.spaces.leaf_spaces`."""
    if space["type"] not in ("Dict", "Tuple"):
        yield path, space
        return
    for name, child in _children(space):
        yield from _leaves(child, f"{path}.{name}" if path else str(name))


def _children(space: Mapping[str, Any]) -> list[tuple[Any, Mapping[str, Any]]]:
    return space["spaces"] if space["type"] == "Dict" else list(enumerate(space["spaces"]))


def _values(space: Mapping[str, Any], value: Any, path: str) -> Iterator[Any]:
    """The leaves of a nested value."""
    kind, where = space["type"], f"obs{path}"
    if kind not in ("Dict", "Tuple"):
        yield value
        return
    children = _children(space)
    if kind == "Dict" and not (isinstance(value, Mapping) and {name for name, _ in children} <= value.keys()):
        given = f"the keys {sorted(map(str, value))}" if isinstance(value, Mapping) else type(value).__name__
        raise DeploymentError(f"{where} is {given}; expected a dict with the keys {[name for name, _ in children]}")
    if kind == "Tuple" and not (isinstance(value, tuple | list) and len(value) == len(children)):
        given = f"{len(value)} parts" if isinstance(value, tuple | list) else type(value).__name__
        raise DeploymentError(f"{where} is {given}; expected a tuple of {len(children)} parts")
    for name, child in children:
        yield from _values(child, value[name], f"{path}.{name}")


def _pack(space: Mapping[str, Any], leaves: Iterator[Any]) -> Any:
    """The inverse of `_values`."""
    if space["type"] == "Dict":
        return {name: _pack(child, leaves) for name, child in _children(space)}
    if space["type"] == "Tuple":
        return tuple(_pack(child, leaves) for _, child in _children(space))
    return next(leaves)
