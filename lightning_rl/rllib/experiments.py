"""Experiments as RLlib's command line and its tuned examples describe them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from lightning_rl.errors import ConfigError, did_you_mean
from lightning_rl.rllib.merge import merge_configs

__all__ = ["Experiment", "read_experiments", "results_until", "variants"]

Stop = Mapping[str, float] | Callable[[str, dict[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Experiment:
    """Trainings of one algorithm; `grid_search` in its config makes several.

    Args:
        name: the name of the experiment.
        run: the algorithm, "PPO".
        env: see the config's key `env`.
        stop: names of a result, "a/b" for a nested one → the number at which training ends.
        config: RLlib's keys.
        checkpoint_freq: results between two checkpoints; 0: none.
        keep_checkpoints_num: newest checkpoints that are kept; `None` or 0: all.
        checkpoint_at_end: whether the last result has one.
        local_dir: directory of the runs; `None`: this package's own, `runs`.
        num_samples: trainings of each variant, which differ by their seeds.
        restore: a checkpoint from which training continues.
    """

    name: str
    run: str
    env: Any = None
    stop: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    checkpoint_freq: int = 0
    keep_checkpoints_num: int | None = None
    checkpoint_at_end: bool = False
    local_dir: str | None = None
    num_samples: int = 1
    restore: str | None = None

    def trainings(self) -> Iterator[dict[str, Any]]:
        """The config of each training."""
        base = merge_configs(self.config, {} if self.env is None else {"env": self.env})
        for index, config in itertools.product(range(self.num_samples), variants(base)):
            yield config if index == 0 else {**config, "seed": (config.get("seed") or 0) + index}


def read_experiments(path: str | Path) -> list[Experiment]:
    """The experiments of a YAML file: {name: {run, env, stop, config, …}}.

    Raises:
        ConfigError: there is no such file; names the experiment and the key.
    """
    content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    known = [each.name for each in fields(Experiment)][1:]
    if not isinstance(content, Mapping) or not all(isinstance(entry, Mapping) for entry in content.values()):
        raise ConfigError(f"{path} describes no experiments; expected {{name: {{{', '.join(known)}}}}}")
    for name, entry in content.items():
        if "run" not in entry:
            raise ConfigError(f"{path}: experiment {name!r} has no key 'run', the algorithm")
        for key in entry:
            if key not in known:
                raise ConfigError(f"{path}: experiment {name!r} has no key {key!r}.{did_you_mean(key, known)}")
    return [Experiment(name, **entry) for name, entry in content.items()]


def variants(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The configs of a grid: one for each combination of the values in `{"grid_search": [values]}`, at any depth."""
    found: list[list[tuple[str, Any]]] = []
    for key, value in config.items():
        if isinstance(value, Mapping):
            choices = value["grid_search"] if set(value) == {"grid_search"} else variants(value)
            found.append([(key, choice) for choice in choices])
        else:
            found.append([(key, value)])
    return (dict(pairs) for pairs in itertools.product(*found))


def results_until(trainer: Any, stop: Stop) -> Iterator[dict[str, Any]]:
    """The results of a trainer until one reaches a number of `stop`, or until a function of (trial id, result) says so.

    Raises:
        ConfigError: `stop` has a name that no result has.
    """
    while True:
        result = trainer.train()
        yield result
        if callable(stop):
            if stop(result["trial_id"], result):
                return
            continue
        values = {name: _value_of(result, name) for name in stop}
        if result["done"] or any(values[name] is not None and values[name] >= number for name, number in stop.items()):
            return


def _value_of(result: Mapping[str, Any], name: str) -> Any:
    """The value at "a/b"; `None` in an "evaluation" that this result has none of."""
    value: Any = result
    if name in result:
        return result[name]
    first, *rest = name.split("/")
    if first == "evaluation" and first not in result:
        return None
    for part in (first, *rest):
        if not isinstance(value, Mapping) or part not in value:
            raise ConfigError(f"stop: no result {name!r}.{did_you_mean(name, result)}")
        value = value[part]
    return value


def as_json(value: Any) -> str:
    """A config or a result on one line; what JSON does not have is text."""
    return json.dumps(value, default=repr)
