"""Learning online with recorded data beside: each batch has rows of both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_rl.data.offline.source import OfflineSource
from lightning_rl.data.replay_feed import ReplayFeed
from lightning_rl.errors import ConfigError
from lightning_rl.sample_batch import SampleBatch, concat_samples
from lightning_rl.schedules import schedule_points, schedule_value
from lightning_rl.schema.ranges import Portion, ProbabilitySchedule
from lightning_rl.schema.signatures import check_fields

__all__ = ["MixedReplayFeed"]

SAMPLER = "sampler"  # RLlib's word for the workers' own experience


@check_fields("data")
@dataclass(kw_only=True, eq=False)
class MixedReplayFeed(ReplayFeed):
    """Replay in which a fraction of every batch is recorded data, which may change with the env steps.

    With half of the rows from each, SAC on it is RLPD (Ball et al. 2023, arXiv:2302.02948) without its network of many
    critics. With a fraction of recorded rows that falls to 0, a run goes from offline to online learning.

    Args:
        input: what `OfflineSource` takes → its fraction of each batch; and "sampler" → the fraction of the rows that
            the workers collect. The fractions sum to 1, and are whole numbers of rows.
        sampler_share: the fraction of the workers' rows as a schedule over env steps, rounded to whole rows; `input`
            then has no "sampler", and its fractions, which sum to 1, divide the other rows. `None`: as `input` says.
        columns, actions_normalized, skip_damaged: keys of every input, as in `OfflineSource`.
        prioritized: must be false.
        other keywords: see `ReplayFeed`.

    Raises:
        ConfigError: a number is out of range, or the fractions do not fit.
    """

    input: Mapping[str, Portion] | None = None
    sampler_share: ProbabilitySchedule | None = None
    columns: Mapping[str, Any] | None = None
    actions_normalized: bool = False
    skip_damaged: bool = False

    def __post_init__(self) -> None:
        """Divide the batch.

        Raises:
            ConfigError: the fractions do not sum to 1, or there are priorities.
        """
        super().__post_init__()
        shares = dict(self.input or {})
        total, of_sampler = sum(shares.values()), shares.pop(SAMPLER, None)
        said_once = (of_sampler is None) != (self.sampler_share is None)
        if not (said_once and shares and math.isclose(total, 1.0, abs_tol=1e-6)):
            raise ConfigError(
                f"data.input={dict(self.input or {})}; expected shares that sum to 1, such as {{DIR: 0.5, sampler: "
                "0.5}, or {DIR: 1.0} with data.sampler_share; data alone are data=offline"
            )
        if self.prioritized:
            raise ConfigError("data.prioritized=true: recorded rows have no priorities; set it to false")
        self._sampler_share: Any = self.sampler_share if of_sampler is None else of_sampler
        rest = sum(shares.values())
        self._shares = {name: share / rest for name, share in shares.items()}  # of the recorded rows
        self._data: dict[str, OfflineSource] = {}

    def prepare(self, policy: Any) -> None:
        """Make the buffer of what is collected, and read the data, once.

        Raises:
            ConfigError: see `ReplayFeed` and `OfflineSource`; or a share of the batch is not a whole number of rows.
        """
        super().prepare(policy)
        for name, share in (self.input or {}).items() if self.sampler_share is None else ():
            if not math.isclose(rows := share * self.batch_size / self.ranks, round(rows)) or round(rows) < 1:
                raise ConfigError(
                    f"data.input: {name}: {share} of data.batch_size={self.batch_size} on {self.ranks} ranks are "
                    f"{rows:g} rows on each; expected a whole number"
                )
        recorded = (1 - min(schedule_points(self._sampler_share))) * self.batch_size / self.ranks  # at most
        for name, share in self._shares.items():
            if name in self._data:
                continue
            data = OfflineSource(
                input=name,
                columns=self.columns,
                actions_normalized=self.actions_normalized,
                skip_damaged=self.skip_damaged,
                batch_size=max(1, round(share * recorded)) * self.ranks,
                n_step=self.n_step,
                storage=self.storage,
            )
            data.attach(self.datamodule)
            data.prepare(policy)
            self._data[name] = data

    def draw(self, steps: int = 1) -> SampleBatch:
        """Draw the rows of several gradient steps: of each step the collected ones first, then those of each input."""
        self.ratio.record_steps(steps)
        collected = schedule_value(self._sampler_share, self.policy.env_steps)
        shares = [collected, *((1 - collected) * share for share in self._shares.values())]
        ends = np.rint(np.cumsum(shares) * (self.batch_size // self.ranks)).astype(int)
        buffers = [self.buffer, *(data.buffer for data in self._data.values())]
        parts = []
        for buffer, rows in zip(buffers, np.diff(ends, prepend=0).tolist(), strict=True):
            if rows:
                drawn = buffer.sample(steps * rows, self._generator).without("batch_indexes")
                parts.append(drawn.map(lambda column, rows=rows: column.reshape(steps, rows, *column.shape[1:])))
        return concat_samples(parts, 1).map(lambda column: column.flatten(0, 1))
