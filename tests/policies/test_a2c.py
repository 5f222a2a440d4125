"""Gaussian actions of A2C and PPO: what `model.free_log_std=null` means there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from lightning_rl import A2C, APPO, PPO
from lightning_rl.errors import ConfigError

OBS = spaces.Box(-1, 1, (3,), np.float32)
BOX = spaces.Box(-1, 1, (2,), np.float32)
SMALL = {"fcnet_hiddens": [8]}


def log_std_varies(policy: Any) -> bool:
    """Whether log σ of some action differs between observations."""
    with torch.no_grad():
        outputs, _ = policy.model({"obs_flat": torch.linspace(-1, 1, 12).view(4, 3)}, [], None)
    return not torch.equal(outputs[:, 2:], outputs[:1, 2:].expand(4, -1))


@pytest.mark.parametrize(
    ("kind", "asked", "varies"),
    [
        (A2C, None, False),
        (A2C, True, False),
        (A2C, False, True),
        (PPO, None, False),
        (PPO, False, True),
        (APPO, None, True),
    ],
)
def test_deviations_are_parameters_by_default_with_a2c_and_ppo(kind, asked, varies):
    assert log_std_varies(kind(OBS, BOX, model={**SMALL, "free_log_std": asked})) is varies
    if asked is None:
        assert log_std_varies(kind(OBS, BOX, model=SMALL)) is varies


@pytest.mark.parametrize(
    ("action_space", "model", "free"),
    [
        (spaces.Discrete(2), {}, 0),
        (BOX, {"custom_action_dist": "Beta"}, 0),
        (BOX, {"use_gru": True, "lstm_cell_size": 4}, 2),
        (spaces.Dict(move=BOX, jump=spaces.Discrete(2)), {}, 2),
    ],
)
def test_the_default_fits_every_action_space_and_distribution(action_space, model, free):
    policy = A2C(OBS, action_space, model={**SMALL, **model})
    state = [torch.as_tensor(part).expand(2, *part.shape) for part in policy.model.get_initial_state()]
    policy.compute_actions(np.zeros((2, 3), np.float32), state)
    parameters = dict(policy.model.named_parameters())
    assert sum(parameter.numel() for name, parameter in parameters.items() if name.endswith("free")) == free


def test_gsde_replaces_the_default_and_refuses_what_was_asked_for():
    policy = A2C(OBS, BOX, model=SMALL, exploration={"type": "gsde"}, seed=1)
    usual = A2C(OBS, BOX, model={**SMALL, "free_log_std": False}, exploration={"type": "gsde"}, seed=1)
    assert policy.model.head.mean.weight.shape == usual.model.head.mean.weight.shape == (2, 8)
    assert policy.model.head.log_std.shape == (8, 2)
    with pytest.raises(ConfigError, match=r"set model\.free_log_std=false"):
        A2C(OBS, BOX, model={**SMALL, "free_log_std": True}, exploration={"type": "gsde"})
