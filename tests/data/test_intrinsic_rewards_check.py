"""Intrinsic rewards divided by the deviation of returns need consecutive fragments of each environment."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lightning_rl.models.filters import RewardFilter
from lightning_rl.sample_batch import SampleBatch
from tests.data.small_runs import APEX, REPLAY, fit
from tests.families import each

TWO_WORKERS = ["workers.logical_workers=2", "workers.envs_per_worker=2", "workers.fragment_length=8"]
TWO_WORKERS += ["policy.reward_filter=return_std", "policy.gamma=1.0", "total_env_steps=300"]
PIPELINES = {
    "on_policy": ["policy=ppo", "policy.minibatches=2"],
    "gradients": ["policy=a3c"],
    "async": ["policy=impala", "policy.minibatches=2", "data.order=fixed"],
    "async_replay": ["policy=impala", "policy.minibatches=2", "data.replay_proportion=1.0", "data.replay_slots=4"],
    "replay": [*REPLAY, "data.update_to_data_ratio=0.25"],
    "apex": APEX,
}


@pytest.mark.parametrize("pipeline", each(PIPELINES, default=("on_policy", "async_replay", "replay")))
def test_each_environment_has_its_own_return(pipeline: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CartPole pays 1 a step: with γ = 1 the return so far is the number of steps so far, t + 1."""
    seen: list[torch.Tensor] = []
    update = RewardFilter.update

    def record(self: RewardFilter, fragment: SampleBatch) -> None:
        new = fragment.valid & ~fragment["replayed"] if "replayed" in fragment else fragment.valid
        assert torch.equal(fragment["running_returns"][fragment.valid], fragment.t[fragment.valid] + 1.0)
        seen.append(fragment["running_returns"][new])
        update(self, fragment)

    monkeypatch.setattr(RewardFilter, "update", record)
    policy, _ = fit(tmp_path, *PIPELINES[pipeline], *TWO_WORKERS)
    returns, moments = torch.cat(seen).double(), policy.reward_filter.normalizer.moments
    assert returns.max() > 16  # episodes went on over several fragments
    if pipeline != "gradients":  # a gradient that came too late is left out
        assert float(moments.count) == len(returns) == policy.env_steps
        assert float(moments.variance) == pytest.approx(float(returns.var(correction=0)), rel=1e-9)
