"""Transfer of batches to the learner's device; a GPU is replaced by a record of the calls made for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from lightning_rl.config import check_config, compose_config
from lightning_rl.data import RolloutDataModule
from lightning_rl.data.device_transfer import to_device
from lightning_rl.errors import ConfigError
from lightning_rl.policies import PPO
from lightning_rl.sample_batch import SampleBatch

GPU = torch.device("cuda", 0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The calls that a GPU would need: pinned memory and copies."""
    made: list[tuple[str, Any]] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        made.append(("pin", tensor.shape))
        return tensor

    def to(batch: SampleBatch, device: torch.device, non_blocking: bool = False) -> SampleBatch:
        made.append(("to", (device, non_blocking)))
        return batch

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: False)
    monkeypatch.setattr(SampleBatch, "to", to)
    return made


def batch() -> SampleBatch:
    return SampleBatch(obs=SampleBatch(x=torch.ones(3, 2)), rewards=np.ones(3, np.float32))


def test_a_gpu_copies_every_column_from_pinned_memory_without_blocking(calls: list[tuple[str, Any]]) -> None:
    to_device(batch(), GPU)
    assert calls == [("pin", (3, 2)), ("pin", (3,)), ("to", (GPU, True))]


def test_on_a_cpu_nothing_is_pinned_or_copied() -> None:
    before = batch()
    after = to_device(before, torch.device("cpu"))
    assert after.obs.x.data_ptr() == before.obs.x.data_ptr()


def test_lightning_moves_batches_through_to_device(calls: list[tuple[str, Any]]) -> None:
    data = RolloutDataModule({"id": "CartPole-v1"})
    data.transfer_batch_to_device(batch(), GPU, 0)
    assert calls[-1] == ("to", (GPU, True))
    assert torch.equal(data.transfer_batch_to_device(torch.ones(2), torch.device("cpu"), 0), torch.ones(2))


@pytest.mark.parametrize(
    ("device", "act_on", "precision", "itself"),
    [
        ("cpu", "cpu", "32-true", True),
        ("cuda", "cpu", "32-true", False),
        ("cuda", "learner", "32-true", True),
        ("cuda", "learner", "bf16-true", False),  # actions would be rounded
    ],
)
def test_act_on_decides_which_policy_acts_on_which_device(
    device: str, act_on: str, precision: str, itself: bool
) -> None:
    env = gym.make("CartPole-v1")
    policy = PPO(env.observation_space, env.action_space, model={"fcnet_hiddens": [8]})
    data = RolloutDataModule({"id": "CartPole-v1"}, {"act_on": act_on})
    data.trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device(device)), precision=precision)  # pyright: ignore
    actor = data.acting_policy(policy)
    assert (actor is policy) == itself
    assert actor.device.type == "cpu"


def test_act_on_learner_is_refused_with_worker_processes() -> None:
    with pytest.raises(ConfigError, match=r"workers.act_on=learner with num_workers=2: .* workers.num_workers=0"):
        check_config(compose_config(["workers.act_on=learner", "workers.num_workers=2"]))
