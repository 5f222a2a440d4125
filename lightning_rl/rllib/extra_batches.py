"""Experience that callbacks add to the sample of a worker: `episode.add_extra_batch(batch)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lightning_rl.errors import ConfigError
from lightning_rl.models.filters import RunningReturns
from lightning_rl.rllib.row_fragments import fragment_of_rows, steps_of_episodes
from lightning_rl.sample_batch import DEFAULT_POLICY, STEP_INPUTS, MultiAgentBatch, SampleBatch, map_leaves

__all__ = ["append_batches"]


def append_batches(fragment: SampleBatch, batches: Sequence[Any], gamma: float) -> None:
    """Append batches of rows `[N, …]` to the first environment of a fragment `[T, B, …]`, in place.

    The row in between is not valid; the other environments have no valid row there.

    Args:
        fragment: a fragment of a policy with one agent.
        batches: rows with the columns of the fragment, by RLlib's names or this package's; "t" may be left out. Others
            are dropped.
        gamma: the policy's discount.

    Raises:
        ConfigError: a batch lacks a column, or is of several policies.
    """
    for batch in batches:
        if isinstance(batch, MultiAgentBatch):
            if [*batch.policy_batches] != [DEFAULT_POLICY]:
                raise ConfigError(
                    f"add_extra_batch got rows of the policies {[*batch.policy_batches]}; expected those of "
                    f"{DEFAULT_POLICY!r}: rows of several agents cannot be added"
                )
            batch = batch[DEFAULT_POLICY]
        extra = fragment_of_rows(batch)
        if "t" not in extra:
            extra["t"] = steps_of_episodes(extra)
        for name in ("eps_id", "unroll_id"):
            if name in fragment and name not in extra:
                extra[name] = torch.full_like(extra.t, -1)  # of no episode that was played
        if "running_returns" in fragment:
            extra["running_returns"] = RunningReturns(gamma).update(extra.rewards, extra.valid, extra.t)
        if missing := [name for name in fragment if name not in extra]:
            raise ConfigError(
                f"the batch of add_extra_batch lacks {', '.join(missing)}, which this policy's samples have: give "
                "add_values all of them"
            )
        for name in [*fragment]:
            fragment[name] = _appended(name, fragment[name], extra[name])


def _appended(name: str, column: Any, extra: Any) -> Any:
    if isinstance(column, SampleBatch):
        parts = {key: _appended(name, part, extra[key]) for key, part in column.items()}
        return SampleBatch(parts)
    more = map_leaves(lambda leaf: leaf.to(column.dtype).expand(-1, *column.shape[1:]), extra)
    if name == "valid":
        more = more & (torch.arange(column.shape[1]) == 0)
    return torch.cat([column, more] if name in STEP_INPUTS else [column, torch.zeros_like(column[-1:]), more])
