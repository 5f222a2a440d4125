"""Checks before a run starts that a training batch has a sensible length and can be split into the configured parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.config.ranks import ranks_of
from lightning_rl.errors import ConfigError
from lightning_rl.rollouts.logical_workers import logical_workers

__all__ = ["check_fragment_length", "check_minibatches", "check_population"]

LONG_FRAGMENT = 10_000  # steps; a shorter fragment is never refused, because it takes seconds

Config = Mapping[str, Any]


def check_fragment_length(config: Config) -> None:
    """Check that the first iteration does not take far more steps than the whole run.

    Raises:
        ConfigError: names the key and the length of the run.
    """
    steps, total = config["workers"]["fragment_length"], config["total_env_steps"]
    if steps > max(total, LONG_FRAGMENT):
        raise ConfigError(
            f"workers.fragment_length={steps} is longer than the run, total_env_steps={total}: the first iteration "
            f"would take {steps} steps of every environment; lower it, or raise total_env_steps"
        )


def check_minibatches(config: Config) -> None:
    """Check that every minibatch has at least two rows, even if half of the rows are resets (episodes of one step).

    Only of batches that consist of a rollout's rows: draws, populations and custom plans have sizes of their own.

    Raises:
        ConfigError: there may be too few.
    """
    policy, workers, data = config["policy"], config["workers"], config["data"]
    if data.get("plan") is not None or {"batch_size", "data_sets", "directions"} & data.keys():
        return
    gradients = "gradients_per_iteration" in data  # gradients of whole fragments, or of parts that are summed
    key = "microbatches" if gradients or "microbatches" in policy else "minibatches"
    count = policy.get(key, 1)
    fragments = 1 if gradients else data.get("fragments_per_batch", 1)
    if not gradients and "requests_per_worker" not in data:  # a fragment of each worker, not of those that are ready
        ranks = ranks_of(config)
        fragments *= logical_workers(workers.get("logical_workers"), workers["num_workers"], ranks) // ranks
    environments, steps = workers["envs_per_worker"], workers["fragment_length"]
    rows = fragments * environments * steps
    if isinstance(count, int) and rows < 2 * count:  # `None` takes at most as many parts as rows allow
        raise ConfigError(
            f"rollout has {rows} rows (fragments: {fragments}, environments: {environments}, steps: {steps}); "
            f"policy.{key}={count} needs at least {2 * count}: raise workers.fragment_length or lower policy.{key}"
        )


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
