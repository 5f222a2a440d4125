"""What a model remembers of its last forward is that of the batch, also where values beside it are asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_rl.models import Model
from lightning_rl.policies import A2C, A3C, APPO, IMPALA, PG, PPO, Policy
from lightning_rl.rollouts import WorkerSet
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE


class Remembering(Model):
    """Its own loss and metrics are of the features of the last forward."""

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, **keywords: Any) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.body, self.heads = nn.Linear(4, 8), nn.Linear(8, num_outputs + 1)
        self.seen: list[tuple[int, int, bool]] = []

    def forward(self, input_dict: dict[str, Any], state: Any, seq_lens: Any) -> tuple[Tensor, Any]:
        self.features = torch.tanh(self.body(input_dict["obs_flat"]))
        outputs = self.heads(self.features)
        self.values = outputs[:, -1]
        return outputs[:, :-1], state

    def value_function(self) -> Tensor:
        return self.values

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor:
        self.seen.append((loss_inputs.count, len(self.features), self.features.requires_grad))
        return policy_loss + self.features.square().mean()

    def metrics(self) -> dict[str, Any]:
        return {"features": float(len(self.features))}


@pytest.mark.parametrize("algorithm", [PG, A2C, A3C, PPO, IMPALA, APPO], ids=lambda algorithm: algorithm.__name__)
def test_a_model_s_own_loss_finds_the_features_of_the_batch(algorithm: type[Policy]) -> None:
    policy: Any = algorithm(*CARTPOLE.spaces(), model={"custom_model": Remembering}, seed=0)
    policy.passes, policy.minibatches = 2, 1
    workers = WorkerSet(CARTPOLE, policy, [0], num_envs=2, fragment_length=30)
    fragment = workers.sample()
    told = policy.learn_on_batch(fragment)
    rows = int(fragment.valid.sum())
    assert policy.model.seen == [(rows, rows, True)] * len(policy.model.seen) and policy.model.seen
    assert told["model/features"] == rows
