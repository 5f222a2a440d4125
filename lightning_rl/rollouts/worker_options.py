"""The keys of the config section `workers`, with types and ranges.

No torch is imported here, so that a mistake in the config is found before anything heavy is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

from lightning_rl.rollouts.processes.limits import Limits
from lightning_rl.schema.ranges import Range, Whole
from lightning_rl.schema.signatures import Section

__all__ = [
    "EVALUATED_TOGETHER",
    "LONGEST_EPISODE",
    "LONGEST_UNLIMITED_EPISODE",
    "WORKERS",
    "Processes",
    "WorkerKeys",
    "WorkerOptions",
]

EVALUATED_TOGETHER = 16  # environments stepped together in an evaluation, at most
LONGEST_EPISODE = 30_000  # steps: evaluations cut longer episodes, `complete_episodes` says that it waits
LONGEST_UNLIMITED_EPISODE = 5_000  # steps, in an evaluation: of environments that declare no time limit

Processes = Annotated[int, Range(0, 4096)]


class WorkerKeys(TypedDict, total=False):
    """The keys beside those of `Limits`; `RolloutDataModule` explains them."""

    num_workers: Processes
    logical_workers: Annotated[int, Range(1, 65_536)] | None
    envs_per_worker: Annotated[int, Range(1, 131_072)]
    fragment_length: Annotated[int, Range(1, 10_000_000)]
    batch_mode: Literal["truncate_episodes", "complete_episodes"]
    count_resets: bool
    vectorization: Literal["auto", "sync", "async", "native"]
    record_logp: bool | None
    explore: bool
    act_on: Literal["cpu", "learner"]
    max_env_restarts: Whole
    ray: Mapping[str, Any]


WORKERS = Section("workers", (WorkerKeys, Limits))
WorkerOptions = Annotated[Mapping[str, Any], WORKERS]
