"""Transfer of batches to the learner's device; a GPU is replaced by a record of the calls made for it."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import ANY, Mock, call

import numpy as np
import pytest
import torch

from lightning_rl.data import RolloutDataModule
from lightning_rl.policies import PPO
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE

GPU = torch.device("cuda", 0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The calls that a GPU would need: pinned memory and copies."""
    made = Mock()
    made.pin.side_effect = made.to.side_effect = lambda given, *_, **__: given
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: made.pin(tensor))
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: False)
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *how, **keywords: made.to(tensor, *how, **keywords))
    return made


def batch() -> SampleBatch:
    return SampleBatch(obs=SampleBatch(x=torch.ones(3, 2)), rewards=np.ones(3, np.float32))


def test_a_gpu_copies_every_column_from_pinned_memory_without_blocking(calls: Mock) -> None:
    RolloutDataModule({"id": "CartPole-v1"}).transfer_batch_to_device(batch(), GPU, 0)
    assert [tuple(pinned.args[0].shape) for pinned in calls.pin.mock_calls] == [(3, 2), (3,)]
    assert calls.to.mock_calls == [call(ANY, GPU, non_blocking=True)] * 2
    assert [name for name, *_ in calls.mock_calls] == ["pin", "to", "pin", "to"]


def test_on_a_cpu_nothing_is_pinned_or_copied() -> None:
    before = batch()
    after = before.to("cpu")
    assert after.obs.x.data_ptr() == before.obs.x.data_ptr()


def test_lightning_moves_other_things_itself() -> None:
    data = RolloutDataModule({"id": "CartPole-v1"})
    assert torch.equal(data.transfer_batch_to_device(torch.ones(2), torch.device("cpu"), 0), torch.ones(2))


@pytest.mark.parametrize(
    ("where", "itself"),  # in half precision actions would be rounded
    [
        ("cpu cpu 32-true", True),
        ("cuda cpu 32-true", False),
        ("cuda learner 32-true", True),
        ("cuda learner bf16-true", False),
    ],
)
def test_act_on_decides_which_policy_acts_on_which_device(where: str, itself: bool) -> None:
    device, act_on, precision = where.split()
    policy = PPO(*CARTPOLE.spaces(), model={"fcnet_hiddens": [8]})
    data = RolloutDataModule({"id": "CartPole-v1"}, {"act_on": act_on})
    data.trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device(device)), precision=precision)  # pyright: ignore
    actor = data.acting_policy(policy)
    assert (actor is policy) == itself
    assert actor.device.type == "cpu"
