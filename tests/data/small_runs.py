"""Runs of a few hundred steps: their config, and the policy and the DataModule of a finished one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lightning_rl.callbacks.metrics import latest_metrics
from lightning_rl.config import check_config, compose_config
from lightning_rl.data.replay_feed import store_and_replay
from lightning_rl.data.sharded_feed import receive_and_replay
from lightning_rl.rollouts.worker_results import SampleReference
from lightning_rl.runs import run

__all__ = ["APEX", "EVENTS", "REPLAY", "assert_ratio", "fit", "small_config"]

SMALL = ["env=cartpole", "experiment=none", "logger=none", "evaluation.every_env_steps=0", "model.fcnet_hiddens=[8]"]
REPLAY = ["policy=dqn", "data.batch_size=16", "data.learning_starts=32", "data.capacity=200"]
APEX = ["policy=apex", *REPLAY[1:], "data.num_shards=2", "data.fragments_per_iteration=1", "workers.logical_workers=2"]
APEX += ["data.update_to_data_ratio=0.25", "workers.fragment_length=8"]


def small_config(run_dir: Path, *overrides: str, callbacks: Sequence[Any] = (), check: bool = True) -> dict[str, Any]:
    composed = compose_config([*SMALL, f"run_dir={run_dir}", *overrides])
    composed["callbacks"] = [*callbacks] or composed["callbacks"]
    if check:
        check_config(composed)
    return composed


def fit(run_dir: Path, *overrides: str, resume: bool = False, **options: Any) -> tuple[Any, Any]:
    """Policy and DataModule of a finished run whose processes, if any, are gone; options as of `small_config`.

    The policy has the newest value of each metric in `reported`, and Lightning's count of steps in `lightning_steps`.
    """
    policy, datamodule, trainer = run.build(small_config(run_dir, *overrides, **options))
    run.fit(policy, datamodule, trainer, run_dir / "checkpoints" / "last.ckpt" if resume else None)
    policy.reported, policy.lightning_steps = latest_metrics(trainer), trainer.global_step  # type: ignore[assignment]
    return policy, datamodule


# -- plans that record what they give: data.plan=tests.data.small_runs:recorded_replay --------------------------------
EVENTS: list[tuple[int, int, int]] = []  # gradient steps that an item is for; env steps and gradient steps before it


def recorded(plan: Callable[..., Iterator[Any]], steps_of: Callable[[Any], int]) -> Callable[..., Iterator[Any]]:
    def recording_plan(workers: Any, policy: Any, replay: Any) -> Iterator[Any]:
        EVENTS.clear()
        for item in plan(workers, policy, replay):
            EVENTS.append((steps_of(item), policy.env_steps, policy.gradient_steps))
            yield item

    return recording_plan


recorded_replay = recorded(store_and_replay, lambda item: getattr(item, "steps", 0))
recorded_apex = recorded(receive_and_replay, lambda item: not isinstance(item, SampleReference))


def assert_ratio(total: int, intensity: float) -> None:
    """What a plan recorded: with a warm-up of 32 env steps never a gradient step too many, none missing at the end."""
    assert EVENTS[-1][1] >= total
    for steps, env_steps, taken in EVENTS:  # rows come before their gradient steps are taken
        assert taken + steps <= int(max(0, env_steps - 32) * intensity)
    assert sum(steps for steps, _, _ in EVENTS) == int((EVENTS[-1][1] - 32) * intensity)
