"""The fast ways through torch compute what the plain ones compute, and are taken with tested versions only."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lightning_rl import Algorithm, fast_torch
from lightning_rl.fast_torch import FastAttributes, is_tested
from lightning_rl.learning import flat_optimizers, policy_optimizer
from tests.families import each


def test_is_tested_accepts_versions_in_the_tested_range_only() -> None:
    tested = [("torch", "2.13.0+cpu"), ("torch", "2.6.1"), ("lightning", "2.6.6")]
    others = [("torch", "2.5.1"), ("torch", "3.0.0"), ("torch", "2.99.0"), ("lightning", "2.7.0")]
    assert [each for each in tested + others if is_tested(*each)] == tested


RUNS = {
    "ppo": ("cartpole", "workers.fragment_length=16", "workers.envs_per_worker=4"),
    "dqn": ("cartpole", "data.learning_starts=64", "data.batch_size=32"),
    "td3": ("pendulum", "data.learning_starts=64", "data.batch_size=32"),
}


@pytest.mark.parametrize("policy", each(RUNS, default=("ppo", "dqn")))
def test_fast_and_plain_steps_give_equal_weights(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bitwise equal after three iterations."""
    env, *overrides = RUNS[policy]
    weights: list[dict[str, Any]] = []
    for enabled in (True, False):
        for module in (fast_torch, flat_optimizers, policy_optimizer):
            monkeypatch.setattr(module, "ENABLED", enabled)
        algorithm = Algorithm(policy, env, overrides=[f"run_dir={tmp_path / str(enabled)}", *overrides])
        for _ in range(3):
            algorithm.train()
        assert algorithm.policy.gradient_steps > 0
        assert (algorithm.policy.learner.optimizer._direct, algorithm.trainer.global_step > 0) == (enabled, True)
        weights.append({name: value.clone() for name, value in algorithm.policy.state_dict().items()})
        algorithm.stop()
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


# -- submodules as ordinary attributes --------------------------------------------------------------------------------
class Pair(FastAttributes):
    """Two layers, one of which may be missing, and a number."""

    def __init__(self) -> None:
        self.count: Any = 1  # before nn.Module is ready, as classes of this house set what their base class asks for
        super().__init__()
        self.first: nn.Module = nn.Linear(2, 2)
        self.second: nn.Module | None = nn.Linear(2, 2)


def same(pair: Pair) -> bool:
    """Whether attribute and registry agree."""
    return all(vars(pair)[name] is module for name, module in pair._modules.items())


@pytest.mark.parametrize("change", [lambda p: p, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_hold_their_own_modules(change: Any) -> None:
    pair = change(Pair())
    assert same(pair) and pair.first is not pair.second
    pair.first.weight.data.fill_(3.0)
    assert torch.equal(pair.state_dict()["first.weight"], torch.full((2, 2), 3.0))


def test_a_module_is_replaced_by_another_and_by_none() -> None:
    pair = Pair()
    pair.first, pair.second = other, _ = nn.Tanh(), None
    assert pair.first is other and pair.second is None and same(pair)
    assert [name for name, _ in pair.named_children()] == ["first"]


def test_a_deleted_module_is_gone() -> None:
    pair = Pair()
    del pair.first
    assert not hasattr(pair, "first") and "first" not in pair.state_dict()


def test_a_module_takes_the_place_of_a_number_and_a_number_not_that_of_a_module() -> None:
    pair = Pair()
    pair.count = nn.Linear(1, 1)
    assert "count.weight" in pair.state_dict() and same(pair)
    with pytest.raises(TypeError, match="cannot assign"):
        pair.first = 3  # type: ignore[assignment]


def test_a_module_that_is_added_takes_the_place_of_the_old_one() -> None:
    pair, other = Pair(), nn.Linear(3, 3)
    pair.register_module("first", other)
    assert pair.first is other and same(pair)
