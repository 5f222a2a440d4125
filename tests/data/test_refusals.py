"""What a DataModule cannot feed is refused before training, whatever the kind, with the key that helps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_rl.data import AsyncSource, GradientSource, RolloutDataModule, ShardedReplayFeed, SyncSource
from lightning_rl.data.plans import parallel_rollouts
from lightning_rl.errors import ConfigError
from lightning_rl.policies import PPO
from lightning_rl.policies.apex import ApexDQN
from tests.data.small_runs import APEX, REPLAY, fit
from tests.envs.classic_control import CARTPOLE
from tests.refusals import not_refused

TWO_WORKERS = ["workers.logical_workers=2", "total_env_steps=60"]


def test_runs_that_cannot_be_are_refused(tmp_path: Path) -> None:
    cases = [
        # A worker's gradient is taken where π = π_old, so the KL that would steer the coefficient is 0.
        (
            ["policy=ppo", "data=gradients", "policy.kl_coef=0.2"],
            r"policy\.kl_coef penalizes .*PPO.*: set policy\.kl_coef=0",
        ),
        # Fragments of several workers, and old ones, do not continue each other.
        (
            ["policy=impala", "policy.minibatches=1", "exploration=curiosity"],
            r"Curiosity .*data=async .*set exploration\.normalize=false",
        ),
        (["policy=a3c", "exploration=rnd"], r"RND .*set workers\.logical_workers=null"),
        ([*APEX, "exploration=rnd"], r"RND .* of 2 workers .*set exploration\.normalize=false"),
        ([*REPLAY, "data.capacity=1_000_000_000_000"], r"GiB.*data\.capacity to \d+"),
        (
            [*APEX, "policy=r2d2", "data=apex", "data.sequence_length=4", "data.batch_size=4"],
            r"sequences.* set data\.initial_priorities=false",
        ),
        (["policy=r2d2", "env=bit_flipping", "data=hindsight"], "R2D2"),
        (["policy=es", "data.directions=1"], r"data\.directions=1 for 2 workers"),
        (["policy=ppo", "workers.act_on=learner", "workers.num_workers=2"], r"workers.act_on=.* workers.num_workers=0"),
    ]
    assert not_refused(lambda overrides: fit(tmp_path, *TWO_WORKERS, *overrides), cases) == []
    assert not list(tmp_path.glob("checkpoints/*"))
    raw = ["policy=impala", "policy.minibatches=1", "exploration=curiosity", "exploration.normalize=false"]
    assert fit(tmp_path, *TWO_WORKERS, *raw)[0].gradient_steps > 0


def test_arguments_that_exclude_each_other_are_refused() -> None:
    cases = [
        (AsyncSource, {"replay_proportion": 0.5, "replay_slots": 0}, r"data\.replay_slots=0"),
        (
            SyncSource,
            {"plan": parallel_rollouts, "fragments_per_batch": 2},
            r"data\.fragments_per_batch=2 with data\.plan",
        ),
    ]
    assert not_refused(lambda kind, keywords: kind(**keywords), cases) == []


@pytest.mark.parametrize(
    ("kind", "trainer", "message"),
    [
        (ShardedReplayFeed, {"world_size": 2}, r"trainer\.devices=1"),
        (GradientSource, {"world_size": 2, "precision_plugin": None}, r"trainer\.devices=1"),
        (
            GradientSource,
            {"world_size": 1, "precision_plugin": SimpleNamespace(scaler="s")},
            "16-mixed scales losses",
        ),
    ],
)
def test_several_ranks_and_scaled_losses_are_refused(kind: Any, trainer: dict[str, Any], message: str) -> None:
    source = kind()
    RolloutDataModule(CARTPOLE, None, None, source).trainer = SimpleNamespace(**trainer)  # type: ignore[assignment]
    policy = ApexDQN(*CARTPOLE.spaces()) if kind is ShardedReplayFeed else PPO(*CARTPOLE.spaces())
    with pytest.raises(ConfigError, match=message):
        source.prepare(policy)


@pytest.mark.parametrize("policy", ["impala", "a3c"])
def test_a_fragment_of_resets_only_is_not_learned_from(tmp_path: Path, policy: str) -> None:
    """One step of one environment: when an episode has ended, that is the reset."""
    tiny = ["workers.fragment_length=1", "workers.envs_per_worker=1", "workers.logical_workers=1"]
    tiny += ["policy.minibatches=1", "policy.passes=1"] if policy == "impala" else []
    learner, _ = fit(tmp_path, f"policy={policy}", *tiny, "total_env_steps=100", check=False)  # which refuses one row
    assert learner.gradient_steps == learner.env_steps == 100
