"""Sources: one of a user's own, and the keywords that a DataModule hands to its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lightning_rl.data import AsyncSource, RolloutDataModule, SyncSource
from lightning_rl.errors import ConfigError
from lightning_rl.schema.ranges import Count
from lightning_rl.schema.signatures import check_fields
from tests.data.small_runs import fit
from tests.envs.classic_control import CARTPOLE
from tests.refusals import not_refused

OWN = ["policy=pg", f"data._target_={__name__}:Repeated", "workers.fragment_length=8", "workers.envs_per_worker=2"]


@check_fields("data")
@dataclass(kw_only=True, eq=False)
class Repeated(SyncSource):
    """Gives each fragment to `times` iterations."""

    given: ClassVar[list[Any]] = []

    times: Count = 2

    def iterations(self, policy: Any) -> Iterator[Any]:
        """The same fragment again and again, then the next."""
        for fragment in super().iterations(policy):
            for _ in range(self.times):
                self.given.append(fragment)
                yield fragment


def test_the_fields_of_a_user_s_own_source_are_keys_of_data(tmp_path: Path) -> None:
    policy, _ = fit(tmp_path / "run", *OWN, "+data.times=3", "total_env_steps=270")
    given = Repeated.given
    assert policy.iterations == len(given) > 3 and given[0] is given[1] is given[2] is not given[3]
    with pytest.raises(ConfigError, match=r"data\.times=0"):
        fit(tmp_path / "refused", *OWN, "+data.times=0")


def test_keywords_of_a_source_are_refused_by_their_names() -> None:
    cases = [
        ({"fragments_per_batch": 0}, r"data\.fragments_per_batch=0"),
        ({"fragments_per_batches": 2}, r"fragments_per_batch"),
        ({"source": AsyncSource(), "fragments_per_batch": 2}, r"data\.fragments_per_batch .*AsyncSource"),
    ]
    assert not_refused(lambda keywords: RolloutDataModule(CARTPOLE, **keywords), cases) == []
