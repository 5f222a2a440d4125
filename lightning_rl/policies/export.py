"""Writes a policy as one file that goes from an environment's observation to its action, and checks that file.

The exported network runs the policy's own acting code (`run_model`, the exploration strategy's best action, the
action transform) under `torch.export`, so no equation is written twice. A file gets its name only after it has given
the policy's own answers on the rows of a check.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor, nn

from lightning_rl.errors import ConfigError, did_you_mean, first_line
from lightning_rl.fast_torch import in_eval_mode
from lightning_rl.models.preprocessors import NestedPreprocessor, Preprocessor
from lightning_rl.policies.acting import run_model
from lightning_rl.sample_batch import (
    Fragment,
    SampleBatch,
    flatten_fragment,
    from_nested_batch,
    map_leaves,
    to_nested_batch,
    typed,
)
from lightning_rl.spaces import leaf_spaces, leaf_values, pack_leaves, space_to_json
from lightning_rl.version import __version__

__all__ = ["FORMATS", "ActingModule", "check_exportable", "check_format", "export_policy"]

FORMATS = {"onnx": "policy.onnx", "torchscript": "policy.pt", "torch.export": "policy.pt2"}
"""Format → the name of its file."""
DESCRIPTION = "policy.json"
TOLERANCE = 1e-5
"""Largest difference of a file's number from the policy's, of an action relative to its range; see `_difference`."""
ROUNDING = 1e-3  # smaller differences are rounding that a network has enlarged; other computations differ by more
SINGLE_ROWS, CHUNK = 16, 64  # a check asks for that many rows one by one, and for the others in batches
SAMPLES = 100  # observations of a check without recorded ones
EXAMPLE_ROWS = 3  # torch.export takes a batch of 1 for a constant


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of an exported policy, a tensor `[batch, *shape]`."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    def description(self) -> dict[str, Any]:
        """As plain data; the dtype is NumPy's name."""
        return {"name": self.name, "dtype": str(self.dtype).removeprefix("torch."), "shape": ["batch", *self.shape]}


class ActingModule(nn.Module):
    """A policy's best action as one network, from named tensors `[B, *]` to named tensors.

    Inputs are the leaves of the environment's observation ("obs", or "obs.PATH" of each), "action_mask" and "reward"
    (of the step before) if it reads them, and its memory; outputs are the leaves of the environment's action ("action",
    or "action.PATH"), "action_dist_inputs" (logits, Q-values, or means and deviations), and the memory after the step:
    input X is output "next_X". Memory is the recurrent state ("state.0", …), and the earlier actions and rewards that
    the model reads ("prev_actions", "prev_rewards").

    Args:
        policy: on the CPU, in eval mode; its weights are shared.
        mask_size: width of "action_mask"; 0: there is none beside the observation.
    """

    def __init__(self, policy: Any, mask_size: int = 0) -> None:
        super().__init__()
        self.model, self.exploration = policy.model, policy.exploration
        object.__setattr__(self, "policy", policy)  # no submodule: files need neither critics nor target networks
        self.memory: dict[str, Tensor] = {}
        """Input → its value at an episode's start, `[*]`."""
        for number, part in enumerate(policy.get_initial_state(1)):
            self.memory[f"state.{number}"] = part[0]
        before = policy.initial_previous_step(1)
        self.action_names = _names("prev_actions", policy.action_space) if "prev_actions" in before else []
        if self.action_names:
            first = leaf_values(policy.action_space, before["prev_actions"])
            self.memory |= {name: leaf[0] for name, leaf in zip(self.action_names, first, strict=True)}
        self.reads_reward = "prev_rewards" in before
        if policy.prev_rewards > 1:
            self.memory["prev_rewards"] = before["prev_rewards"][0]
        self.inputs = [
            *(
                Port(name, _dtype(leaf), tuple(leaf.shape or ()))
                for name, (_, leaf) in zip(
                    _names("obs", policy.observation_space), leaf_spaces(policy.observation_space), strict=True
                )
            ),
            *([Port("action_mask", torch.bool, (mask_size,))] if mask_size else []),
            *([Port("reward", torch.float32, ())] if self.reads_reward else []),
            *(Port(name, value.dtype, tuple(value.shape)) for name, value in self.memory.items()),
        ]

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The action, the outputs behind it and the next memory, for `inputs` by name."""
        policy: Any = self.policy
        obs, state, before, mask = self.arguments(inputs)
        how = self.best_action
        dist, outputs, state_out = run_model(policy, obs, state, before, mask, how)
        actions = policy.exploration.get_action(dist, **how)
        names = _names("action", policy.action_space)
        answer = dict(zip(names, policy.action_transform.to_env_tensors(actions), strict=True))
        answer["action_dist_inputs"] = outputs
        answer |= {f"next_state.{number}": part for number, part in enumerate(state_out)}
        for name, leaf in zip(self.action_names, leaf_values(policy.action_space, actions), strict=False):
            leaf = leaf.to(inputs[name].dtype)
            shifted = torch.cat([inputs[name][:, 1:], leaf.unsqueeze(1)], dim=1) if policy.prev_actions > 1 else leaf
            answer[f"next_{name}"] = shifted
        if policy.prev_rewards > 1:
            answer["next_prev_rewards"] = before["prev_rewards"]
        # A file's outputs must not be its inputs, nor each other.
        return {name: value.clone() for name, value in answer.items()}

    @property
    def best_action(self) -> dict[str, Any]:
        """The arguments by which an exploration strategy gives the best action."""
        policy: Any = self.policy
        return {"timestep": policy.env_steps, "explore": False, "generator": None}

    def arguments(self, inputs: Mapping[str, Tensor]) -> tuple[Any, list[Tensor], dict[str, Any], Tensor | None]:
        """The observation, state, "prev_actions" and "prev_rewards", and mask of `run_model`."""
        policy: Any = self.policy
        leaves = iter([inputs[name] for name in _names("obs", policy.observation_space)])
        state = [inputs[name] for name in self.memory if name.startswith("state.")]
        before: dict[str, Any] = {"prev_actions": None, "prev_rewards": None}
        if self.action_names:
            taken = iter([inputs[name] for name in self.action_names])
            before["prev_actions"] = to_nested_batch(pack_leaves(policy.action_space, taken))
        if self.reads_reward:
            before["prev_rewards"] = inputs["reward"]
        if policy.prev_rewards > 1:
            before["prev_rewards"] = torch.cat([inputs["prev_rewards"][:, 1:], inputs["reward"].unsqueeze(1)], dim=1)
        return pack_leaves(policy.observation_space, leaves), state, before, inputs.get("action_mask")

    def inputs_of(self, rows: SampleBatch) -> dict[str, Tensor]:
        """The inputs of recorded rows `[N, …]`: "obs", and "action_mask", "state_in", "prev_…" as far as it reads them.

        Columns of the memory that the rows lack are those of an episode's start.
        """
        policy: Any = self.policy
        count = rows.count
        obs = leaf_values(policy.observation_space, from_nested_batch(policy.observation_space, rows.obs))
        given = dict(zip(_names("obs", policy.observation_space), obs, strict=True))
        if "action_mask" in rows:
            given["action_mask"] = rows.action_mask
        given |= {f"state.{number}": part for number, part in rows.get("state_in", {}).items()}
        if self.action_names and "prev_actions" in rows:
            given |= zip(self.action_names, leaf_values(policy.action_space, rows.prev_actions), strict=True)
        if "prev_rewards" in rows:
            several = policy.prev_rewards > 1
            given["reward"] = rows.prev_rewards[:, -1] if several else rows.prev_rewards
            if several:  # the window before its newest entry came in; the oldest entry of all is not read
                given["prev_rewards"] = rows.prev_rewards.roll(1, 1)
        for name, value in self.memory.items():
            given.setdefault(name, value.expand(count, *value.shape))
        if self.reads_reward:
            given.setdefault("reward", torch.zeros(count))
        return {port.name: torch.as_tensor(given[port.name]).to(port.dtype).contiguous() for port in self.inputs}

    def answers_of_policy(self, inputs: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        """What the policy itself answers: actions of `compute_actions` and `env_actions`, outputs, and next states."""
        policy: Any = self.policy
        obs, state, before, mask = self.arguments(inputs)
        actions, state_out, _ = policy.act(obs, state, **before, action_mask=mask, explore=False)
        taken = leaf_values(policy.action_space, policy.env_actions(actions))
        with torch.no_grad():
            outputs = run_model(policy, obs, state, before, mask, self.best_action)[1]
        return {
            **{
                name: np.asarray(value)
                for name, value in zip(_names("action", policy.action_space), taken, strict=True)
            },
            "action_dist_inputs": outputs.numpy(),
            **{f"next_state.{number}": part.numpy() for number, part in enumerate(state_out)},
        }


# -- what can be exported ----------------------------------------------------------------------------------------------
def check_format(format: str) -> None:
    """Check that there is a format of this name, and that its packages are installed.

    Raises:
        ConfigError: there is no such format, or a package is missing.
    """
    if format not in FORMATS:
        raise ConfigError(f"format={format!r}; expected one of {', '.join(FORMATS)}.{did_you_mean(format, FORMATS)}")
    if format == "onnx":
        try:
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
            import onnxscript  # noqa: F401
        except ImportError as error:
            raise ConfigError(f'format onnx needs the package {error.name}: pip install -e ".[export]"') from error


def check_exportable(policy: Any) -> None:
    """Check that a policy acts by operations of torch that a file can hold.

    Raises:
        ConfigError: it does not; names the reason and the next step.
    """
    name = type(policy).__name__
    if not policy.has_model:
        raise ConfigError(f"{name} has no model: only policies that act by a network can be exported")
    if policy.prev_obs:
        raise ConfigError(
            f"{name}: its model reads {policy.prev_obs} earlier observations, which files do not keep: stack "
            "observations by the environment wrapper gymnasium.wrappers:FrameStackObservation, or use a recurrent model"
        )
    own = sorted({"compute_actions", "env_actions"} & policy.overridden)
    if own:
        raise ConfigError(
            f"{name} acts by a {own[0]} of its own, which no file can hold: leave the acting to the model and the "
            "action distribution"
        )
    parts = (
        policy.preprocessor.parts if isinstance(policy.preprocessor, NestedPreprocessor) else {"": policy.preprocessor}
    )
    for part in parts.values():
        if type(part).transform_batch is Preprocessor.transform_batch:
            raise ConfigError(
                f"preprocessor {type(part).__name__} computes in NumPy, which no file can hold: define "
                "transform_batch(obs) with torch's operations instead of transform(obs)"
            )


# -- writing and checking ----------------------------------------------------------------------------------------------
def export_policy(
    policy: Any,
    export_dir: str | Path,
    rows: SampleBatch | None = None,
    *,
    format: str = "onnx",
    source: str = "recorded observations",
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write `policy.onnx` (`.pt`, `.pt2`) and `policy.json` into a directory, after a check on `rows`.

    Args:
        policy: any that `check_exportable` takes.
        export_dir: is created; a policy that was exported into it before is replaced.
        rows: a fragment or rows `[N, …]`, N ≥ 3, with the observations of the check: "obs", perhaps "action_mask" (the
            file then has such an input), and what models with memory read: "state_in", "prev_actions", "prev_rewards".
            `None`: samples of the observation space.
        format: "onnx", "torchscript" or "torch.export".
        source: description of the rows, for the result of the check.
        about: further entries of policy.json, such as the environment's name.

    Returns:
        The contents of policy.json.

    Raises:
        ConfigError: the policy or the format cannot be exported, there are too few rows, or the file's answers differ
            from the policy's; the directory then holds no policy.
    """
    check_format(format)
    check_exportable(policy)
    if rows is None:
        rows, source = _sampled_rows(policy.observation_space), "samples of the observation space"
    rows = flatten_fragment(rows) if isinstance(typed(rows), Fragment) else rows
    if rows.count < EXAMPLE_ROWS:
        raise ConfigError(f"rows: {rows.count} observations to check the file on; expected at least {EXAMPLE_ROWS}")
    policy = policy if policy.device.type == "cpu" else policy.copy_for_acting()
    folder, name = Path(export_dir), FORMATS[format]
    mask = rows.get("action_mask")
    with in_eval_mode(policy):
        module = ActingModule(policy, 0 if mask is None else mask.shape[-1]).eval()
        inputs = module.inputs_of(rows.to("cpu"))
        expected = [module.answers_of_policy(batch) for batch in _batches(inputs)]
        folder.mkdir(parents=True, exist_ok=True)
        _remove_export(folder)
        staging = Path(tempfile.mkdtemp(prefix=".export_", dir=folder))
        try:
            with torch.no_grad(), _quiet():
                outputs = _write(format, module, inputs, staging / name)
            run = _runner(format, staging / name)
            differences = _compare(run, inputs, expected, _action_units(policy.action_space))
            _check_agreement(differences, format, source)
            check = {"rows": rows.count, "source": source, "differences": differences}
            written = _description(policy, format, staging / name, module, outputs, mask, check)
            description = _strict({**(about or {}), **written})
            (staging / DESCRIPTION).write_text(json.dumps(description, indent=1, allow_nan=False) + "\n")
            for file in (name, DESCRIPTION):  # the description last: it says that the file is good
                os.replace(staging / file, folder / file)
        finally:
            shutil.rmtree(staging)
    return description


def _check_agreement(differences: Mapping[str, float], format: str, source: str) -> None:
    """Check that the file's answers are the policy's; `source` describes the observations.

    Raises:
        ConfigError: the largest difference is not within the tolerance.
    """
    worst = max(differences, key=lambda each: (math.isnan(differences[each]), differences[each]))
    found = differences[worst]
    if not found <= TOLERANCE:  # NaN as well
        reason = (
            "float32 rounds otherwise there, and the network enlarges the difference"
            if found < ROUNDING
            else "a model or distribution that depends on the values or the number of its rows cannot be exported"
        )
        raise ConfigError(
            f"the exported {format} file differs from the policy by {found:.3g} in {worst!r}, relative to the range of "
            f"an action or the size of an output ({source}; expected at most {TOLERANCE:g}): nothing was written; "
            f"{reason}: try another --format"
        )


def _description(
    policy: Any,
    format: str,
    file: Path,
    module: ActingModule,
    outputs: list[Port],
    mask: Any,
    check: Mapping[str, Any],
) -> dict[str, Any]:
    """The entries of policy.json: what who loads the file must know."""
    return {
        "format_version": 1,
        "format": format,
        "file": file.name,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "algorithm": type(policy).__name__,
        "policy_id": policy.policy_id,
        "env_steps": policy.env_steps,
        "observation_space": space_to_json(policy.observation_space),
        "action_space": space_to_json(policy.action_space),
        "inputs": [port.description() for port in module.inputs],
        "outputs": [port.description() for port in outputs],
        "memory": [
            {"input": key, "output": f"next_{key}", "initial": _compact(value)} for key, value in module.memory.items()
        ],
        "action_mask": _mask_place(policy, mask),
        "check": {**check, "tolerance": TOLERANCE, "largest_difference": max(check["differences"].values())},
        "versions": _versions(format),
    }


def _sampled_rows(space: Space[Any]) -> SampleBatch:
    """Random observations, the same in each call."""
    space = deepcopy(space)
    space.seed(0)
    empty = create_empty_array(space, SAMPLES, fn=np.zeros)
    drawn = concatenate(space, [space.sample() for _ in range(SAMPLES)], empty)
    return SampleBatch(obs=map_leaves(torch.as_tensor, drawn))


def _remove_export(folder: Path) -> None:
    for file in (DESCRIPTION, *FORMATS.values()):
        (folder / file).unlink(missing_ok=True)


def _write(format: str, module: ActingModule, inputs: Mapping[str, Tensor], path: Path) -> list[Port]:
    """Write the file; returns its outputs."""
    example = {name: value[:EXAMPLE_ROWS].clone() for name, value in inputs.items()}
    # Once without tracing: bounds and columns are cached as tensors at their first use.
    outputs = module(dict(example))
    names = list(outputs)
    try:
        if format == "torchscript":
            torch.jit.save(torch.jit.trace(module, (example,), strict=False, check_trace=False), str(path))
        else:
            batch = torch.export.Dim("batch")
            shapes = ({name: {0: batch} for name in example},)
            # Not strict, as from torch 2.7 on: Dynamo could not trace what Python makes of the spaces.
            program = torch.export.export(module, (example,), dynamic_shapes=shapes, strict=False)
            if format == "torch.export":
                torch.export.save(program, path)
            else:
                found: Any = torch.onnx.export(
                    program, dynamo=True, verbose=False, input_names=list(example), output_names=names
                )
                found.save(str(path))
    except Exception as error:  # whatever a user's model raises when torch traces it
        raise ConfigError(
            f"torch cannot write {type(module.model).__name__} as {format}: {type(error).__name__}: "
            f"{first_line(error).rstrip('.')}. Models, preprocessors and distributions of your own need operations "
            "that hold for any number of rows, such as x.shape[0] instead of len(x), and no .item() or NumPy"
        ) from error
    return [Port(name, value.dtype, tuple(value.shape[1:])) for name, value in outputs.items()]


def _runner(format: str, path: Path) -> Callable[[dict[str, Tensor]], Mapping[str, Any]]:
    """A function that runs the written file on named inputs."""
    if format == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        read, names = {each.name for each in session.get_inputs()}, [each.name for each in session.get_outputs()]

        def run(inputs: dict[str, Tensor]) -> Mapping[str, Any]:
            given = {name: value.numpy() for name, value in inputs.items() if name in read}
            return dict(zip(names, session.run(None, given), strict=True))

        return run
    module: Any = torch.jit.load(str(path)) if format == "torchscript" else torch.export.load(path).module()

    def run_module(inputs: dict[str, Tensor]) -> Mapping[str, Any]:
        with torch.no_grad():
            return {name: value.numpy() for name, value in module(inputs).items()}

    return run_module


def _batches(inputs: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The rows: the first ones one by one, as in one environment, the others in batches."""
    count = len(next(iter(inputs.values())))
    singles = min(SINGLE_ROWS, count)
    edges = [*range(singles + 1), *range(singles + CHUNK, count, CHUNK)]
    edges += [count] if edges[-1] < count else []
    for start, stop in pairwise(edges):
        yield {name: value[start:stop] for name, value in inputs.items()}


def _compare(
    run: Callable[[dict[str, Tensor]], Mapping[str, Any]],
    inputs: Mapping[str, Tensor],
    expected: list[dict[str, np.ndarray]],
    units: Mapping[str, np.ndarray],
) -> dict[str, float]:
    """The largest difference of each output over all rows; `units` are those of the actions."""
    differences = dict.fromkeys(expected[0], 0.0)
    for batch, answers in zip(_batches(inputs), expected, strict=True):
        given = run(batch)
        for name, answer in answers.items():
            found = _difference(np.asarray(given[name]), answer, units.get(name))
            differences[name] = float(np.maximum(differences[name], found))  # NaN stays
    return differences


def _action_units(space: Space[Any]) -> dict[str, np.ndarray]:
    """Half the range of each entry of an action, by the name of the output; 1 where it has no bounds."""
    leaves = zip(_names("action", space), (leaf for _, leaf in leaf_spaces(space)), strict=True)
    halves = {name: leaf.high / 2.0 - leaf.low / 2.0 for name, leaf in leaves if isinstance(leaf, Box)}
    return {name: np.where(np.isfinite(half) & (half > 0), half, 1.0) for name, half in halves.items()}


def _difference(given: np.ndarray, expected: np.ndarray, unit: np.ndarray | float | None = None) -> float:
    """Largest |a − b| / max(unit, |b|); infinite for another shape or dtype, and where integers are not equal.

    An action's unit is half its range, and |b| its entry itself. Outputs and memories of a row (unit `None`) are
    compared as vectors, by max(1, their largest entry): float32 rounds a small entry by as much as the large ones that
    it is computed with.
    """
    if given.shape != expected.shape or given.dtype != expected.dtype:
        return math.inf
    unequal = given != expected
    if not unequal.any():
        return 0.0
    if expected.dtype.kind != "f":
        return math.inf
    ours, theirs = given.astype(np.float64), expected.astype(np.float64)
    size = np.abs(np.where(np.isfinite(theirs), theirs, 0.0))
    if unit is None:
        size = size.max(axis=tuple(range(1, size.ndim)), keepdims=True)
    distances = np.zeros_like(theirs)
    np.subtract(ours, theirs, out=distances, where=unequal)  # not where both are infinite
    return float(np.max(np.abs(distances) / np.maximum(1.0 if unit is None else unit, size)))


# -- the description ---------------------------------------------------------------------------------------------------
def _names(first: str, space: Any) -> list[str]:
    """The name of each leaf: "obs", or "obs.PATH" in a Dict or Tuple."""
    return [f"{first}.{path}" if path else first for path, _ in leaf_spaces(space)]


def _dtype(leaf: Any) -> torch.dtype:
    return torch.from_numpy(np.empty(0, leaf.dtype)).dtype


def _mask_place(policy: Any, column: Any) -> str | None:
    """Where the file reads the allowed actions: its own input, a part of the observation, or nowhere."""
    if column is not None:
        return "action_mask"
    paths = [path for path, _ in leaf_spaces(policy.observation_space)]
    masks = [path for path in paths if path.split(".")[0] in ("action_mask", "action_masks")]
    return f"obs.{masks[0]}" if masks else None


def _compact(value: Tensor) -> Any:
    """A single number if all entries are equal, else a flat list."""
    flat = value.flatten().tolist()
    return flat[0] if all(each == flat[0] for each in flat) else flat


def _strict(value: Any) -> Any:
    """The same data with infinite numbers as text ("inf", "-inf"), which JSON has no numbers for."""
    if isinstance(value, Mapping):
        return {name: _strict(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(child) for child in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _versions(format: str) -> dict[str, str]:
    packages = ("onnx", "onnxruntime", "onnxscript") if format == "onnx" else ()
    return {"lightning_rl": __version__, "torch": torch.__version__, **{name: version(name) for name in packages}}


@contextmanager
def _quiet() -> Iterator[None]:
    """Context without the exporters' warnings, which name parts of torch that a policy does not use."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
