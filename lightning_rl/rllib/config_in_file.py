"""RLlib's keys in a checkpoint, so that `Trainer.from_checkpoint` can make the trainer again.

The file holds data: a space is described, and a class or function is there by its import path, which is looked up if
this user's run wrote the file, or if the user trusts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym

from lightning_rl.errors import CheckpointError, ConfigError, import_path, named_here, object_at
from lightning_rl.policies.checkpoints import read_checkpoint
from lightning_rl.run_directory.checkpoint_files import from_plain, not_saved, to_plain
from lightning_rl.run_directory.signature import is_signed, sign
from lightning_rl.schema.trust import trusted_prefixes
from lightning_rl.spaces import space_from_json, space_to_json

__all__ = ["describe_trainer", "trainer_in"]

CODE, SPACE = "__code__", "__space__"


def describe_trainer(trainer: Any) -> dict[str, Any]:
    """The class and config of a trainer as plain data, which is signed."""
    described = {"trainer": _plain(type(trainer)), "config": _plain(trainer.raw_user_config)}
    return {**described, "signature": sign(described)}


def trainer_in(path: Path, trust: str | Sequence[str], base: type) -> tuple[Any, dict[str, Any]]:
    """The class of the trainer that wrote a checkpoint (`None`: it has no import path), and RLlib's keys.

    A `policy_mapping_fn` that the file could not hold is there by its results.

    Args:
        path: the file.
        trust: import prefixes of code that the file may name, beside the trainers here.
        base: the class from which those derive.

    Raises:
        CheckpointError: it is of no trainer, or names code that is not trusted, or a value is missing in it.
    """
    checkpoint = read_checkpoint(path)
    state = checkpoint.get("callbacks", {}).get("ClassicState", {})
    if "config" not in state:
        raise CheckpointError(f"checkpoint {path} was written by no trainer of this version: build one and restore it")
    described = {name: state[name] for name in ("trainer", "config")}
    own, prefixes = is_signed(described, state.get("signature")), trusted_prefixes(trust)

    def look_up(name: str, homes: Sequence[str] = ()) -> Any:
        dotted = name.replace(":", ".")
        trusted = any(f"{dotted}.".startswith(f"{each}.") for each in (*prefixes, *homes))
        if not own and not trusted and dotted not in named_here:
            top = name.partition(":")[0].partition(".")[0]
            raise CheckpointError(
                f"checkpoint {path} names code that you have not trusted: {name}; if you trust who wrote it: "
                f"from_checkpoint(…, trust={top!r})"
            )
        return object_at(name)

    config = described["config"]
    by_agent = checkpoint["config"].get("policy_mapping")
    if isinstance(by_agent, Mapping) and not_saved((config.get("multiagent") or {}).get("policy_mapping_fn")):
        mapping = partial(_policy_of, by_agent=dict(by_agent))
        config = {**config, "multiagent": {**config["multiagent"], "policy_mapping_fn": mapping}}
    if lost := not_saved(config):
        missing = ", ".join(f"{key} ({what})" for key, what in lost.items())
        raise CheckpointError(
            f"checkpoint {path} could not hold {missing}: build the trainer with it, and restore the file"
        )
    found = _read(described["trainer"], partial(look_up, homes=["lightning_rl.rllib"]))
    is_trainer = isinstance(found, type) and issubclass(found, base)
    return found if is_trainer else None, _read(config, look_up)


def _plain(value: Any) -> Any:
    if isinstance(value, gym.Space):
        return {SPACE: space_to_json(value)}
    if isinstance(value, Mapping) and all(isinstance(key, str | int) for key in value):
        return {key: _plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):  # a PolicySpec as the tuple that it is
        return [*map(_plain, value)] if isinstance(value, list) else tuple(map(_plain, value))
    path = _path_of(value)
    return to_plain(value) if path is None else {CODE: path}


def _path_of(value: Any) -> str | None:
    """The import path of a class or function, also of the running script; `None`: it has none, or is neither."""
    if not hasattr(value, "__qualname__") or "<" in value.__qualname__:
        return None
    try:
        return path if object_at(path := import_path(value)) is value else None
    except ConfigError:
        return None


def _read(value: Any, look_up: Callable[[str], Any]) -> Any:
    if isinstance(value, Mapping):
        if value.keys() == {CODE}:
            return look_up(value[CODE])
        if value.keys() == {SPACE}:
            return space_from_json(value[SPACE])
        plain = from_plain(value)
        return {key: _read(child, look_up) for key, child in value.items()} if isinstance(plain, Mapping) else plain
    return type(value)(_read(child, look_up) for child in value) if isinstance(value, list | tuple) else value


def _policy_of(agent_id: Any, *_: Any, by_agent: Mapping[str, str], **__: Any) -> str:
    """The policy of an agent, which may be called 3 for "agent_3"."""
    return by_agent[agent_id if agent_id in by_agent else f"agent_{agent_id}"]
