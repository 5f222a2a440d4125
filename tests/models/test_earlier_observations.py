"""Models that read earlier observations get the same ones in acting and in learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from lightning_rl import PPO
from lightning_rl.errors import ConfigError
from lightning_rl.models import Model
from lightning_rl.policies import DQN
from lightning_rl.rollouts import RolloutWorker


class Counter(gym.Env[Any, Any]):
    """Observes 1, 2, 3, … in an episode of four steps."""

    observation_space = spaces.Dict({"n": spaces.Box(0.0, 9.0, (1,))})
    action_space = spaces.Discrete(2)

    def reset(self, **keywords: Any) -> Any:
        super().reset(**keywords)
        self.n = 1
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.n += 1
        return self._obs(), 0.0, self.n == 5, False, {}

    def _obs(self) -> Any:
        return {"n": np.array([self.n], np.float32)}


class Windows(Model):
    """Outputs that are sums over the newest observation and the two before it, with powers of ten as weights."""

    prev_obs = 2

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__(obs_space, action_space, num_outputs)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, input_dict: Mapping[str, Any], state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Any]]:
        before = input_dict["prev_obs"]["n"]
        total = 100 * before[:, 0] + 10 * before[:, 1] + input_dict["obs"]["n"]
        self.read = total[:, 0]
        return self.scale * total.expand(-1, self.num_outputs), []

    def value_function(self) -> Tensor:
        return self.read * self.scale


@pytest.mark.parametrize("mode", [gym.vector.AutoresetMode.NEXT_STEP, gym.vector.AutoresetMode.SAME_STEP])
def test_windows_begin_anew_with_each_episode_and_go_on_in_the_next_fragment(mode: Any) -> None:
    """1, 12, 123, 234, and 345 of the final observation; the second fragment begins in the middle of an episode."""
    policy = PPO(Counter.observation_space, Counter.action_space, model={"custom_model": Windows})
    worker = RolloutWorker(Counter, policy, fragment_length=6, vectorization="sync", mode=mode)
    read: list[float] = []
    for _ in range(2):
        fragment = worker.sample()
        rows = policy.postprocess_trajectory(fragment)
        policy.outputs_of(rows)
        read += policy.model.read.tolist()
        ended = fragment.terminated[:, 0].nonzero().flatten()
        finals = policy.values(fragment.obs, fragment)[1:, 0][ended]
        assert finals.tolist() == [345.0] * len(ended)
    assert read[:8] == [1.0, 12.0, 123.0, 234.0] * 2


def test_replayed_rows_have_the_earlier_observations_of_both_steps() -> None:
    """Rows (1, 12), (12, 123), (123, 234), (234, 345)."""
    policy = DQN(Counter.observation_space, Counter.action_space, model={"custom_model": Windows})
    fragment = RolloutWorker(Counter, policy, fragment_length=4).sample()
    rows = policy.postprocess_trajectory(fragment)
    found = [
        policy.inputs_of(rows, following=following)["prev_obs"]["n"][:, :, 0].tolist() for following in (False, True)
    ]
    assert found == [[[0, 0], [0, 1], [1, 2], [2, 3]], [[0, 1], [1, 2], [2, 3], [3, 4]]]


def test_a_policy_whose_model_reads_earlier_observations_is_not_exported(tmp_path: Any) -> None:
    policy = PPO(Counter.observation_space, Counter.action_space, model={"custom_model": Windows})
    with pytest.raises(ConfigError, match="2 earlier observations"):
        policy.export_model(tmp_path, format="torchscript")
