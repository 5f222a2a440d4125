"""What learners of other policies' fragments share: rows in traces, and V-trace on them.

A trace is a sequence of rows of one episode: it ends with the episode, the fragment or, for models with memory, after
`max_seq_len` rows. Traces stay whole in minibatches, so their targets can be computed anew in every gradient step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_rl.losses.returns import vtrace
from lightning_rl.policies.policy import Policy
from lightning_rl.sample_batch import STEP_INPUTS, SampleBatch
from lightning_rl.sequences import in_sequences

__all__ = ["following_values", "in_traces", "vtrace_rows"]


def in_traces(fragment: SampleBatch, max_seq_len: int | None) -> SampleBatch:
    """The experience of a fragment `[T, B, …]` as rows `[N, …]`, one trace after the other.

    Args:
        fragment: `STEP_INPUTS` `[T+1, B, …]`, everything else `[T, B, …]`.
        max_seq_len: rows of a trace, at most; `None`: any number.

    Returns:
        Rows with `seq_lens [S]` and `following [S, …]`, what the policy would read after each trace's last row.
    """
    steps, envs = fragment.valid.shape
    placed = fragment.copy()
    placed["place"] = torch.arange(steps * envs, device=fragment.valid.device).view(steps, envs)
    rows = in_sequences(placed, max_seq_len)
    after = rows["place"][rows.seq_lens.cumsum(0) - 1] + envs  # of T + 1 rows each
    inputs = fragment.select(*(name for name in STEP_INPUTS if name in fragment))
    rows["following"] = inputs.map(lambda column: column.flatten(0, 1)[after])
    return rows.without("place")


def following_values(policy: Policy, batch: SampleBatch) -> Tensor:
    """V `[S]` of what follows each trace, by the policy of now from the recorded state; without a gradient.

    To be asked before `policy.evaluate(batch)`: what a model remembers of its last forward must be the batch's.
    """
    inputs = batch.following.map(lambda column: column.unsqueeze(0))
    return policy.values(inputs.obs, inputs)[0]


@torch.no_grad()
def vtrace_rows(
    batch: SampleBatch, log_rhos: Tensor, values: Tensor, following: Tensor, gamma: float, **clips: float
) -> tuple[Tensor, Tensor]:
    """V-trace targets and advantages `[N]` of rows in traces; no gradient flows through them.

    Args:
        batch: rows of `in_traces`.
        log_rhos: log π(a|s) − log μ(a|s) of each row, `[N]`.
        values: V(s) of each row, `[N]`.
        following: V of what follows each trace, `[S]`.
        gamma: discount per step.
        clips: `clip_rho`, `clip_c`, `clip_pg_rho` and `lam` of `vtrace`.
    """
    lengths: Tensor = batch.seq_lens
    ends = lengths.cumsum(0)
    traces = torch.arange(len(lengths), device=lengths.device)
    # One column with a row more behind each trace, which is not experience and has the value that follows.
    kept = torch.arange(len(values), device=lengths.device) + traces.repeat_interleave(lengths)

    def spread(column: Tensor) -> Tensor:
        return column.new_zeros(len(values) + len(lengths)).index_copy_(0, kept, column)

    all_values = spread(values).index_copy_(0, ends + traces, following.to(values.dtype))
    targets, advantages = vtrace(
        spread(log_rhos).unsqueeze(1),
        spread(batch.rewards).unsqueeze(1),
        torch.cat([all_values, all_values[-1:]]).unsqueeze(1),
        terminated=spread(batch.terminated).unsqueeze(1),
        truncated=spread(batch.truncated).unsqueeze(1),
        valid=spread(torch.ones_like(batch.terminated)).unsqueeze(1),
        gamma=gamma,
        **clips,
    )
    return targets[kept, 0], advantages[kept, 0]
