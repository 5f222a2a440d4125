"""N steps, a stop, and N more: the state of 2N without a stop, for what `tests/test_resume.py` does not combine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.small_runs import APEX, fit
from tests.families import each
from tests.run_comparison import assert_equal, everything

WORKERS = ["workers.logical_workers=2", "workers.envs_per_worker=2", "workers.fragment_length=8"]
IMPALA = ["policy=impala", "policy.passes=1", "policy.minibatches=1", "policy.lr=5e-4", *WORKERS]
LSTM = ["model=lstm", "model.lstm_cell_size=8"]
# A stop after 3 gradients: the second worker's turn would be next, but turns begin again where one is cut.
A3C = ["policy=a3c", *WORKERS, "policy.lr=1e-3", "data.gradients_per_iteration=3"]
FILTERED = ["policy.observation_filter=mean_std", "policy.reward_filter=clip", "policy.lr=[[0,1e-2],[400,0.0]]"]
REQUESTS = [*APEX, "data.requests_per_shard=3", "data.update_to_data_ratio=0.3"]
RUNS: dict[str, tuple[int, int, list[str]]] = {  # env steps until the stop, and in all
    "impala": (200, 400, IMPALA),
    "appo": (200, 400, [*IMPALA, "policy=appo", "policy.kl_coef=0.1", "policy.target_update_interval=3"]),
    "joined": (200, 400, [*IMPALA, "data.fragments_per_batch=3", "data.order=fixed"]),
    "replay": (200, 400, [*IMPALA, "data.replay_proportion=0.7", "data.replay_slots=4"]),
    "ahead": (200, 400, [*IMPALA, "data.num_aggregators=2", "data.order=fixed", "data.replay_proportion=0.5"]),
    "lstm": (200, 400, [*IMPALA, *LSTM, "model.max_seq_len=5"]),
    "gradients": (90, 180, A3C),
    "gradients, statistics": (90, 180, [*A3C, *FILTERED]),
    "gradients, lstm": (90, 180, [*A3C, *LSTM]),
    "apex, 64": (64, 128, REQUESTS),
    "apex, 72": (72, 128, REQUESTS),
}


@pytest.mark.parametrize("name", each(RUNS, default=("impala", "ahead", "gradients, statistics", "apex, 72")))
def test_n_steps_and_n_more_after_a_resume_equal_2n_steps(tmp_path: Path, name: str) -> None:
    half, total, overrides = RUNS[name]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    policy, _ = fit(whole, f"total_env_steps={total}", f"checkpoint.every_env_steps={half}", *overrides)
    fit(parts, f"total_env_steps={half}", *overrides)
    fit(parts, f"total_env_steps={total}", *overrides, resume=True)
    assert policy.gradient_steps > 5
    assert_equal(everything(whole), everything(parts))
