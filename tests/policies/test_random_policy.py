"""Random play is recorded with the probability of each action, so that it gives importance weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from lightning_rl import RandomPolicy
from lightning_rl.data.offline.data_set import open_data
from lightning_rl.data.offline.steps import episodes_for
from lightning_rl.envs import EnvCreator
from lightning_rl.policies import SAC
from tests.data.offline.recorded import record

OBS = spaces.Box(-1.0, 1.0, (2,))
BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32))
LOGP = {
    "discrete": (spaces.Discrete(4, start=1), -math.log(4)),
    "several": (spaces.MultiDiscrete([2, 3]), -math.log(6)),
    "box": (BOX, -math.log(4 * 0.5)),
    "integers": (spaces.Box(0, 2, (2,), np.int64), -math.log(9)),
    "nested": (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple((BOX,))}), -math.log(2 * 4 * 0.5)),
}


@pytest.mark.parametrize("name", LOGP)
def test_an_action_s_density_is_one_over_the_volume_of_the_space(name: str) -> None:
    space, expected = LOGP[name]
    _, _, columns = RandomPolicy(OBS, space).act(torch.zeros(3, 2))
    assert columns["action_logp"].dtype == torch.float32
    assert columns["action_logp"].tolist() == pytest.approx([expected] * 3)
    assert not RandomPolicy(OBS, space).act(torch.zeros(3, 2), logp=False)[2]


def test_an_unbounded_action_has_no_density() -> None:
    assert not RandomPolicy(OBS, spaces.Box(-np.inf, np.inf, (1,))).act(torch.zeros(3, 2))[2]


def test_only_allowed_alternatives_share_the_probability() -> None:
    """Two choices, of 2 and 3 alternatives: 1 · 3 are allowed, then 2 · 1; without any allowed all count: 2 · 3."""
    policy: Any = RandomPolicy(OBS, spaces.MultiDiscrete([2, 3]))
    mask = np.array([[1, 0, 1, 1, 1], [1, 1, 0, 1, 0], [0, 0, 1, 1, 1]], bool)
    _, _, columns = policy.act(torch.zeros(3, 2), action_mask=mask)
    assert columns["action_logp"].exp().tolist() == pytest.approx([1 / 3, 1 / 2, 1 / 6])
    single: Any = RandomPolicy(OBS, spaces.Discrete(3))
    _, _, columns = single.act(torch.zeros(2, 2), action_mask=np.array([[1, 0, 1], [0, 1, 0]]))
    assert columns["action_logp"].exp().tolist() == pytest.approx([1 / 2, 1.0])


def test_recorded_densities_are_those_of_the_policy_s_own_units(tmp_path: Path) -> None:
    """Pendulum's torque is in [−2, 2], density ¼; the action of a policy in [−1, 1], ½."""
    env = EnvCreator("Pendulum-v1")
    record(tmp_path, env, 4, RandomPolicy(*env.spaces()))
    data = open_data(tmp_path)
    for normalize, density in ((True, 0.5), (False, 0.25)):
        policy = SAC(*env.spaces(), normalize_actions=normalize, model={"fcnet_hiddens": [8]})
        fragment = episodes_for(policy, data.read(), "data")
        recorded = fragment.action_logp[fragment.valid].exp()
        assert len(recorded) > 100 and torch.allclose(recorded, torch.tensor(density))
