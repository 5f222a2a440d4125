"""PPO solves a task with intrinsic rewards that it does not solve alone, with other seeds than docs/examples."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "curiosity_frozen_lake.py"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [2, 3])
def test_ppo_reaches_the_far_corner_with_intrinsic_rewards_only(seed: int) -> None:
    spec = importlib.util.spec_from_file_location("curiosity_frozen_lake", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    scores = module.main(seed=seed)
    assert scores["alone"] == 0.0
    assert scores["curiosity"] >= 0.95 and scores["rnd"] >= 0.95, scores
