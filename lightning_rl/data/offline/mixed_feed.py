"""Learning online with recorded data beside: each batch has rows of both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightning_rl.data.offline.source import OfflineSource
from lightning_rl.data.replay_feed import ReplayFeed
from lightning_rl.errors import ConfigError
from lightning_rl.sample_batch import SampleBatch, concat_samples
from lightning_rl.schema.ranges import Portion
from lightning_rl.schema.signatures import check_fields

__all__ = ["MixedReplayFeed"]

SAMPLER = "sampler"  # RLlib's word for the workers' own experience


@check_fields("data")
@dataclass(kw_only=True, eq=False)
class MixedReplayFeed(ReplayFeed):
    """Replay in which fixed shares of every batch are recorded data.

    With half of the rows from each, SAC on it is RLPD (Ball et al. 2023, arXiv:2302.02948) without its network of many
    critics.

    Args:
        input: what `OfflineSource` takes → its share of each batch; and "sampler" → the share of the rows that the
            workers collect. The shares sum to 1, and are whole numbers of rows.
        columns: columns of a file, as in `OfflineSource`.
        prioritized: must be false.
        other keywords: as `ReplayFeed`.

    Raises:
        ConfigError: a number is out of range, or the shares do not fit.
    """

    input: Mapping[str, Portion] | None = None
    columns: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Divide the batch.

        Raises:
            ConfigError: the shares do not sum to 1, give no whole rows, or there are priorities.
        """
        super().__post_init__()
        shares = dict(self.input or {})
        if len(shares) < 2 or SAMPLER not in shares or not math.isclose(sum(shares.values()), 1.0, abs_tol=1e-6):
            raise ConfigError(
                f"data.input={shares}; expected shares that sum to 1, such as {{DIR: 0.5, sampler: 0.5}}; data alone "
                "are data=offline"
            )
        if self.prioritized:
            raise ConfigError("data.prioritized=true: recorded rows have no priorities; set it to false")
        self._shares, self._data = shares, dict[str, OfflineSource]()

    def prepare(self, policy: Any) -> None:
        """Make the buffer of what is collected, and read the data, once.

        Raises:
            ConfigError: as `ReplayFeed` and `OfflineSource`; or a share of the batch is no whole number of rows.
        """
        super().prepare(policy)
        for name, share in self._shares.items():
            if not math.isclose(rows := share * self.batch_size / self.ranks, round(rows)) or round(rows) < 1:
                raise ConfigError(
                    f"data.input: {name}: {share} of data.batch_size={self.batch_size} on {self.ranks} ranks are "
                    f"{rows:g} rows on each; expected a whole number"
                )
            if name == SAMPLER or name in self._data:
                continue
            data = OfflineSource(
                input=name,
                columns=self.columns,
                batch_size=round(share * self.batch_size),
                n_step=self.n_step,
                storage=self.storage,
            )
            data.attach(self.datamodule)
            data.prepare(policy)
            self._data[name] = data

    def draw(self, steps: int = 1) -> SampleBatch:
        """Draw the rows of so many gradient steps: of each step the collected ones first, then those of each input."""
        self.ratio.record_steps(steps)
        parts = []
        for name in (SAMPLER, *self._data):
            buffer = self.buffer if name == SAMPLER else self._data[name].buffer
            rows = round(self._shares[name] * self.batch_size / self.ranks)
            drawn = buffer.sample(steps * rows, self._generator).without("batch_indexes")
            parts.append(drawn.map(lambda column, rows=rows: column.reshape(steps, rows, *column.shape[1:])))
        return concat_samples(parts, 1).map(lambda column: column.flatten(0, 1))
