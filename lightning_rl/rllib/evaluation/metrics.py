"""Statistics of episodes that workers have played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lightning_rl.rllib.results import episode_statistics

__all__ = ["RolloutMetrics", "collect_episodes", "collect_metrics", "summarize_episodes"]


class RolloutMetrics(NamedTuple):
    """Steps and return of an episode."""

    episode_length: int
    episode_reward: float


def collect_episodes(
    local_worker: Any = None,
    remote_workers: Sequence[Any] = (),
    to_be_collected: Sequence[Any] = (),
    timeout_seconds: float = 180,
    workers: Any = None,
) -> tuple[list[RolloutMetrics], list[Any]]:
    """The episodes that ended since the last call, and no requests that are still to be collected.

    Args:
        local_worker: the local worker of this process.
        remote_workers: Ray's actors of workers.
        to_be_collected: not read: requests are waited for.
        timeout_seconds: how long for.
        workers: a worker set, in place of these.
    """
    if workers is not None:
        found = [workers.get_metrics()]
    else:
        found = [] if local_worker is None else [local_worker.get_metrics()]
        found += [worker.get_metrics.remote().future().result(timeout_seconds) for worker in remote_workers]
    return [
        RolloutMetrics(int(length), float(gain))
        for part in found
        for length, gain in zip(part["episode_lengths"], part["episode_returns"], strict=True)
    ], []


def summarize_episodes(episodes: Sequence[RolloutMetrics], *_: Any) -> dict[str, Any]:
    """Mean, least and greatest return, mean length and number of these episodes, by RLlib's names."""
    returns, lengths = [each.episode_reward for each in episodes], [each.episode_length for each in episodes]
    return {**episode_statistics(returns, lengths, {}), "episodes_this_iter": len(episodes), "custom_metrics": {}}


def collect_metrics(
    local_worker: Any = None, remote_workers: Sequence[Any] = (), timeout_seconds: float = 180
) -> dict[str, Any]:
    """`summarize_episodes` of `collect_episodes`."""
    episodes, _ = collect_episodes(local_worker, remote_workers, timeout_seconds=timeout_seconds)
    return summarize_episodes(episodes)
