"""Environments that fail in the training process are replaced, and their fragment is sampled again."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError, EnvError
from lightning_rl.policies import PPO
from lightning_rl.rollouts import RolloutWorker
from tests.envs.classic_control import CARTPOLE
from tests.rollouts import crashing


def worker(crash: dict[str, Any] | None = None, **options: Any) -> RolloutWorker:
    """Two environments, fragments of 64 steps; both count their own steps."""
    env = EnvCreator(crashing.CrashingCartPole, crash or {}, check=False)
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    keywords: dict[str, Any] = {"num_envs": 2, "fragment_length": 64, "vectorization": "sync", "seed": 3, **options}
    return RolloutWorker(env, policy, **keywords)


def once(tmp_path: Path, how: str, at: int) -> dict[str, Any]:
    return {"how": how, "at": at, "once": str(tmp_path / f"{how}_{at}")}


@pytest.mark.parametrize("how", ["raise", "nan"])
def test_a_fragment_with_a_failing_environment_is_begun_again_with_a_reset(how: str, tmp_path: Path) -> None:
    """The second fragment fails in row 36 (step 100 of 64 + 64); the third follows as without a failure."""
    failing, calm = worker(once(tmp_path, how, 100)), worker()
    assert torch.equal(failing.sample().obs, calm.sample().obs)
    again, other = failing.sample(), calm.sample()
    assert again.valid.shape == other.valid.shape == (64, 2)
    assert not again.t[0].any() and other.t[0].any()  # begun with a reset; the calm one goes on with its episodes
    assert failing.restarts.count == 1 and failing.fragment == 2 and failing.restarts.attempt == 0
    third = failing.sample()
    assert torch.equal(third.obs[0], again.obs[-1])
    parts = (worker().sample(), again, third)
    assert failing.env_steps == sum(int(part.valid.sum()) for part in parts)


def test_episodes_of_a_dropped_fragment_are_not_counted(tmp_path: Path) -> None:
    """NaN is found when the fragment is complete: by then, episodes have ended in it."""
    failing = worker(once(tmp_path, "nan", 60), fragment_length=256)
    fragment = failing.sample()
    ended = int((fragment.terminated | fragment.truncated).sum())
    metrics = failing.get_metrics()
    assert len(metrics["episode_returns"]) == ended > 3
    assert all(torch.isfinite(torch.tensor(metrics["episode_returns"])))


def test_each_attempt_has_its_own_seeds_and_is_repeatable(tmp_path: Path) -> None:
    """A fragment that fails because of its seeds would fail again with them."""
    calm = worker().sample()
    first, second = (worker(once(tmp_path, "raise", at)).sample() for at in (10, 11))
    assert torch.equal(first.obs, second.obs) and torch.equal(first.actions, second.actions)
    assert not torch.equal(first.obs[0], calm.obs[0]) and not torch.equal(first.actions, calm.actions)


def test_after_max_env_restarts_the_first_failure_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    always = worker({"how": "raise", "at": 10}, max_env_restarts=2)
    with caplog.at_level(logging.WARNING), pytest.raises(EnvError, match=r"worker 0 \(fragment 0, seed 3\)") as error:
        always.sample()
    assert isinstance(error.value.__cause__, ArithmeticError)
    assert always.restarts.count == 2 and caplog.text.count("begun again") == 2
    assert caplog.text.count("Traceback") <= 2  # of the first failure only (and its cause)
    with pytest.raises(ConfigError, match="max_env_restarts=-1"):
        worker(max_env_restarts=-1)


def test_evaluation_episodes_of_a_failed_environment_are_played_again(tmp_path: Path) -> None:
    failing = worker(once(tmp_path, "raise", 15))
    played = failing.run_episodes(6)
    assert len(played) == 6 and failing.restarts.count == 1 and failing.fragment == 1
    assert all(length > 1 and ret == length for ret, length in played)


def test_an_environment_whose_close_raises_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crashing.CrashingCartPole, "close", Mock(side_effect=OSError("the handle is invalid")))
    assert len(worker(once(tmp_path, "raise", 15)).sample().rewards) == 64
