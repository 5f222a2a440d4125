"""Histograms of weights, gradients and actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.callbacks.histograms import action_parts, bins_of
from lightning_rl.runs.algorithm import Algorithm
from tests.callbacks.log_files import events_of


def train(tmp_path: Path, policy: str, env: str, steps: int, overrides: list[str], **keywords: Any) -> Any:
    """Train with the callback; the policy in the end."""
    entry = {"callback": "lightning_rl.callbacks.LogHistograms", **keywords}
    config = {"total_env_steps": steps, "callbacks": [entry]}
    overrides = [*overrides, "logger=tensorboard", f"run_dir={tmp_path / 'run'}"]
    algorithm = Algorithm(policy, env=env, config=config, overrides=overrides)
    while algorithm.train()["env_steps"] < steps:
        pass
    algorithm.stop()
    return algorithm.policy


def test_every_parameter_has_its_numbers_and_discrete_actions_a_bar_each(tmp_path: Path):
    overrides = ["workers.fragment_length=64", "workers.envs_per_worker=1", "policy.minibatches=2"]
    policy = train(tmp_path, "ppo", "CartPole-v1", 128, overrides, every_env_steps=64)
    events = events_of(tmp_path / "run" / "tb", "histograms")
    names = [name.replace(".", "/") for name, _ in policy.named_parameters()]
    kinds = [f"{kind}/{name}" for kind in ("weights", "gradients") for name in names]
    assert {*events.Tags()["histograms"]} == {*kinds, "actions"}
    for name, parameter in policy.named_parameters():
        first, last = events.Histograms(f"weights/{name.replace('.', '/')}")
        assert (first.step // 64, last.step // 64) == (1, 2)  # the first iterations past the multiples
        assert last.histogram_value.num == parameter.numel()
        assert last.histogram_value.sum == pytest.approx(float(parameter.double().sum()), abs=1e-4)
    taken = events.Histograms("actions")[-1].histogram_value
    assert (taken.num, taken.min, taken.max) == (last.step - first.step, 0, 1)


def test_replayed_boxes_have_a_histogram_of_each_component(tmp_path: Path):
    overrides = ["data.learning_starts=32", "data.batch_size=16", "model.fcnet_hiddens=[8]"]
    train(tmp_path, "sac", "Pendulum-v1", 64, overrides, every_env_steps=64, weights=False, gradients=False)
    assert events_of(tmp_path / "run" / "tb", "histograms").Tags()["histograms"] == ["actions"]


def test_nested_actions_are_named_by_their_parts():
    """A vector of two is divided, one of nine is not."""
    actions = {"move": torch.zeros(3, 2), "hand": torch.zeros(3, 9), "press": torch.zeros(3)}
    found = {tag: tuple(values.shape) for tag, values in action_parts("actions", actions)}
    assert found == {"actions/move/0": (3,), "actions/move/1": (3,), "actions/hand": (3, 9), "actions/press": (3,)}


def test_whole_numbers_get_bars_of_their_own():
    assert bins_of(np.array([0.0, 2.0, 2.0])).tolist() == [-0.5, 0.5, 1.5, 2.5]
    assert bins_of(np.array([0.0, 0.5])) == 64 and bins_of(np.array([0.0, 500.0])) == 64
