"""QModel: Q-values in every form of the DQN family."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.models.noisy import resample_noise
from lightning_rl.models.q_model import QModel

OBS, ACTIONS = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)


def q_model(**keywords: object) -> QModel:
    torch.manual_seed(0)
    wrapped = ModelCatalog.get_model(OBS, ACTIONS, 0, {"fcnet_hiddens": [8]})
    return QModel(wrapped, 4, **keywords)  # type: ignore[arg-type]


def q_values(model: QModel, rows: int = 5) -> torch.Tensor:
    return model({"obs_flat": torch.linspace(-1, 1, 3 * rows).view(rows, 3)})[0]


def test_a_dueling_network_is_value_plus_centered_advantages() -> None:
    model = q_model(dueling=True, hiddens=[6])
    q = q_values(model)
    features = model.wrapped({"obs_flat": torch.linspace(-1, 1, 15).view(5, 3)})[0]
    assert model.state_value is not None
    assert_close(q.mean(1), model.state_value(features).squeeze(1))
    assert q.std(1).min() > 0


def test_c51_gives_the_mean_of_its_distribution() -> None:
    support = torch.linspace(-2.0, 2.0, 5)
    model = q_model(atoms=5, support=support, dueling=True)
    q = q_values(model)
    logits = model.head_outputs()
    assert logits.shape == (5, 4, 5)
    assert_close(q, (logits.softmax(-1) * support).sum(-1))


def test_quantiles_give_their_mean() -> None:
    model = q_model(atoms=7)
    q = q_values(model)
    assert_close(q, model.head_outputs().mean(-1))
    assert_close(model.value_function(), q.amax(1))


@pytest.mark.parametrize("training", [True, False])
def test_noise_that_is_drawn_again_changes_values_while_training_only(training: bool) -> None:
    model = q_model(sigma=0.5, hiddens=[6]).train(training)
    first = q_values(model)
    resample_noise(model)
    assert torch.equal(first, q_values(model)) is not training


@pytest.mark.parametrize("keywords", [{"dueling": True}, {"atoms": 3}, {"sigma": 0.5}])
def test_every_part_learns(keywords: dict[str, object]) -> None:
    model = q_model(hiddens=[6], **keywords)
    q_values(model).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.parameters())
