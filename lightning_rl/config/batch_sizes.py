"""Checks before a run starts that a training batch can be split into the configured parts, and ends with the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.config.ranks import ranks_of
from lightning_rl.errors import ConfigError
from lightning_rl.rollouts.logical_workers import logical_workers

__all__ = ["check_iteration", "check_minibatches", "check_population", "longer_than_run"]

LONG_FRAGMENT = 10_000  # steps; a shorter fragment is never refused, as it takes seconds
FEW = 1000  # fragments or gradients; iterations of up to that many are never refused, however short the run is
LARGE = 0.5  # of total_env_steps; larger iterations are warned of
Config = Mapping[str, Any]


def check_iteration(config: Config) -> None:
    """Refuse iterations that are longer than the run, which would take many times its env steps before they end.

    Raises:
        ConfigError: names the key and the length of the run.
    """
    steps, total = config["workers"]["fragment_length"], config["total_env_steps"]
    if steps > max(total, LONG_FRAGMENT):
        raise ConfigError(
            f"workers.fragment_length={steps} is longer than the run, total_env_steps={total}: the first iteration "
            f"would take {steps} steps of every environment; lower it to {total} or less, or raise total_env_steps"
        )
    for name in ("fragments_per_iteration", "gradients_per_iteration"):
        count = config["data"].get(name)
        if count is not None and count > max(FEW, total):
            raise ConfigError(
                f"data.{name}={count} makes an iteration longer than the run of total_env_steps={total}: lower it"
            )


def longer_than_run(config: Config) -> str:
    """A warning if an iteration takes at least half of the run's env steps, so that it may end late; or ""."""
    if not _is_of_rollout_rows(config):
        return ""
    fragments, _ = _fragments(config)
    environments, steps, total = (
        config["workers"]["envs_per_worker"],
        config["workers"]["fragment_length"],
        config["total_env_steps"],
    )
    rows = fragments * environments * steps * ranks_of(config)
    if rows < LARGE * total:  # resets are rows, and no env steps: the last iteration may end late by almost all of it
        return ""
    return (
        f"an iteration takes about {rows:,} env steps ({environments} environments × {steps} steps each), and the run "
        f"ends with the one that reaches total_env_steps={total:,}: up to {rows:,} later; lower "
        "workers.fragment_length or workers.envs_per_worker, or raise total_env_steps"
    )


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
    """Whether a training batch consists of a rollout's rows, and not of draws, populations or a plan's own choice."""
    return config["data"].get("plan") is None and not {"batch_size", "directions"} & config["data"].keys()


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
