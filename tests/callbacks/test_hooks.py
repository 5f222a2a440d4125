"""Hooks of users' callbacks: only overridden ones are called, and little is sent to worker processes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback

from lightning_rl.callbacks import RLCallback
from lightning_rl.callbacks.hooks import LEARNER_HOOKS, WORKER_HOOKS, overridden_hooks, worker_hooks
from lightning_rl.errors import ConfigError
from tests.callbacks.small_run import At, SmallData, SmallPolicy, small_trainer, stop


class Counts(RLCallback):
    def __init__(self) -> None:
        self.episodes = 0

    def on_episode_end(self, **arguments: Any) -> None:
        self.episodes += 1

    def on_train_result(self, **arguments: Any) -> None:
        pass


class Unrelated:
    def on_sample_end(self, **arguments: Any) -> None:
        pass


def test_overridden_hooks_are_found_on_any_object():
    assert overridden_hooks(Counts()) == ["on_episode_end", "on_train_result"]
    assert overridden_hooks(Unrelated()) == ["on_sample_end"]
    assert overridden_hooks(RLCallback()) == overridden_hooks(Callback()) == []


def test_workers_get_the_overridden_worker_hooks_only():
    counts = Counts()
    hooks = worker_hooks([counts, RLCallback(), Unrelated()])
    assert [sorted(vars(entry)) for entry in hooks] == [["on_episode_end"], ["on_sample_end"]]
    hooks[0].on_episode_end(worker=None, env_index=0, episode_return=1.0, episode_length=1)
    assert counts.episodes == 1  # in the same process it is the same callback


class Classic(RLCallback):
    def on_episode_start(self, *, worker: Any, base_env: Any, episode: Any = None, **arguments: Any) -> None:  # type: ignore[override]  # pyright: ignore
        pass


def test_a_hook_that_needs_arguments_of_rllib_is_refused_before_a_worker_starts():
    with pytest.raises(ConfigError, match=r"Classic.on_episode_start.*base_env.*env_"):
        worker_hooks([Classic()])


def test_a_callback_attached_to_a_trainer_goes_to_a_worker_without_policy_and_trainer(tmp_path: Path):
    """Lightning sets `log`, a bound method of the policy, on every callback; pickling it would take the model along."""
    counts = Counts()
    small_trainer(tmp_path, [counts, At(1, stop)]).fit(SmallPolicy(), SmallData())
    assert "log" in vars(counts)
    [hooks] = worker_hooks([counts])
    content = pickle.dumps(hooks)
    assert b"SmallPolicy" not in content and len(content) < 1000
    pickle.loads(content).on_episode_end(worker=None)


def test_every_hook_is_documented():
    assert all(getattr(RLCallback, name).__doc__ for name in (*WORKER_HOOKS, *LEARNER_HOOKS))
