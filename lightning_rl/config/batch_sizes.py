"""Checks before a run starts that a training batch can be split into the configured parts, and ends with the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.config.ranks import ranks_of
from lightning_rl.errors import ConfigError
from lightning_rl.rollouts.logical_workers import logical_workers

__all__ = ["check_minibatches", "check_population"]

Config = Mapping[str, Any]


def check_minibatches(config: Config) -> None:
    """Check that every minibatch has at least two rows, even if half of the rows are resets (episodes of one step).

    Raises:
        ConfigError: there may be too few.
    """
    key, count = _minibatches(config)
    if count is None or not _is_of_rollout_rows(config):
        return
    fragments, what = _fragments(config)
    environments, steps = config["workers"]["envs_per_worker"], config["workers"]["fragment_length"]
    rows = fragments * environments * steps
    if rows < 2 * count:
        raise ConfigError(
            f"rollout has {rows} rows ({fragments} {what} × {environments} environments × {steps} steps); "
            f"policy.{key}={count} needs at least {2 * count}: raise workers.fragment_length or lower policy.{key}"
        )


def _is_of_rollout_rows(config: Config) -> bool:
    """Whether a batch consists of a rollout's rows, and not of draws, recorded data, populations or a plan's choice."""
    return config["data"].get("plan") is None and not {"batch_size", "data_sets", "directions"} & config["data"].keys()


def _minibatches(config: Config) -> tuple[str, int | None]:
    """The key with the number of parts of a batch, and that number; `None` if it is not a number."""
    policy = config["policy"]
    gradients = "gradients_per_iteration" in config["data"]  # gradients of whole fragments, or of parts that are summed
    key = "microbatches" if gradients or "microbatches" in policy else "minibatches"
    count = policy.get(key, 1)
    count = 1 if count is None else count  # `None` takes at most as many parts as rows allow
    return key, count if isinstance(count, int) else None


def _fragments(config: Config) -> tuple[int, str]:
    """The least number of fragments in a batch of one rank, and a name for them."""
    workers, data = config["workers"], config["data"]
    if "gradients_per_iteration" in data:
        return 1, "fragment"
    fragments = data.get("fragments_per_batch", 1)
    fragments = max(1, fragments) if isinstance(fragments, int) else 1
    if "requests_per_worker" in data:  # fragments of any workers, as they come
        return fragments, "fragments"
    ranks = ranks_of(config)
    count = logical_workers(workers.get("logical_workers"), workers["num_workers"], ranks) // ranks
    return fragments * count, "workers" if fragments == 1 else "fragments"


def check_population(config: Config) -> None:
    """Check that not more of the best directions are used than are tried.

    Raises:
        ConfigError: names both numbers.
    """
    top, tried = config["policy"].get("top_directions"), config["data"].get("directions")
    if isinstance(top, int) and isinstance(tried, int) and top > tried:
        raise ConfigError(
            f"policy.top_directions={top} with data.directions={tried}: no more can count than are tried; lower the "
            "one, raise the other, or null for all"
        )
