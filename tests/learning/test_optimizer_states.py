"""Optimizer states from files: numbers of the right shapes are taken, the choice of kernels is not."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest
import torch

from lightning_rl.errors import CheckpointError
from lightning_rl.learning.optimizer_states import compatible_state
from lightning_rl.policies import PPO, Policy
from tests.envs.classic_control import CARTPOLE
from tests.refusals import not_refused
from tests.rollouts.small_worker import small_worker

INF = math.inf


class UsersOptimizer(torch.optim.SGD):
    """A user's optimizer."""


def optimizer_and_state(kind: Any, *groups: dict[str, Any], **keywords: Any) -> tuple[Any, dict[str, Any]]:
    """An optimizer of parameters `[2, 3]` after a step, and a copy of its state."""
    parameters = [torch.ones(2, 3, requires_grad=True) for _ in groups or (0,)]
    own = groups or ({},)
    optimizer = kind([{"params": [p], **group} for p, group in zip(parameters, own, strict=True)], **keywords)
    for parameter in parameters:
        parameter.grad = torch.ones(2, 3)
    optimizer.step(lambda: torch.tensor(1.0)) if kind is torch.optim.LBFGS else optimizer.step()
    return optimizer, deepcopy(optimizer.state_dict())


def loaded_options(kind: Any, file: dict[str, Any], **keywords: Any) -> dict[str, Any]:
    """Options of the first group after loading a state whose first group has these options."""
    optimizer, state = optimizer_and_state(kind, **keywords)
    state["param_groups"][0].update(file)
    optimizer.load_state_dict(compatible_state(optimizer, state))
    return optimizer.param_groups[0]


# -- options ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "name", "built", "filed"),
    [
        (torch.optim.SGD, "nesterov", False, True),
        (torch.optim.RMSprop, "centered", False, True),
        (torch.optim.AdamW, "decoupled_weight_decay", True, False),
        (torch.optim.LBFGS, "line_search_fn", None, "strong_wolfe"),
        (torch.optim.LBFGS, "line_search_fn", "strong_wolfe", None),
        (torch.optim.SGD, "maximize", True, False),
        (torch.optim.Adam, "fused", None, True),
    ],
)
def test_compatible_state_keeps_the_optimizer_s_own_switches_and_names(
    kind: Any, name: str, built: Any, filed: Any
) -> None:
    keywords = {} if name == "decoupled_weight_decay" else {name: built}
    assert loaded_options(kind, {name: filed}, **keywords)[name] is built


def test_compatible_state_takes_numbers_from_the_file() -> None:
    """An infinite one where the optimizer has one."""
    for name, filed in (
        *(("weight_decay", 0.25), ("weight_decay", 1), ("lr", torch.tensor(0.5)), ("lr", torch.tensor([0.5]))),
        *(("betas", [0.5, 0.75]), ("betas", (0, 0.75))),
    ):
        found = loaded_options(torch.optim.Adam, {name: filed})[name]
        assert list(found) == list(filed) if name == "betas" else float(found) == float(filed)
    assert loaded_options(torch.optim.Adam, {"weight_decay": INF}, weight_decay=INF)["weight_decay"] == INF


def test_compatible_state_refuses_options_that_are_no_finite_number_or_pair() -> None:
    rates = (True, None, INF, math.nan, "0.5", [0.5], torch.tensor([0.5, 0.5]))
    pairs = (0.5, "xy", (0.5,), (0.5, 0.5, 0.5), (0.5, True), (0.9, "x"), {0.5: 1, 0.25: 1})
    cases = [*(({"lr": rate}, "lr=") for rate in rates), *(({"betas": pair}, "betas=") for pair in pairs)]
    assert not_refused(lambda options: loaded_options(torch.optim.Adam, options), cases, CheckpointError) == []


def test_compatible_state_takes_unknown_options_but_not_params_every_or_lr_scale() -> None:
    group = loaded_options(torch.optim.Adam, {"noted": "x", "params": [7], "every": 3, "lr_scale": 2.0})
    assert group["noted"] == "x" and len(group["params"]) == 1 and not {"every", "lr_scale"} & set(group)


def test_compatible_state_takes_every_option_of_a_user_s_optimizer() -> None:
    assert loaded_options(UsersOptimizer, {"lr": "as you like", "nesterov": True}, lr=0.1)["lr"] == "as you like"


# -- moments ----------------------------------------------------------------------------------------------------------
MOMENTS = {torch.optim.Adam: "exp_avg", torch.optim.AdamW: "exp_avg_sq", torch.optim.RMSprop: "square_avg"}


@pytest.mark.parametrize(("kind", "name"), MOMENTS.items())
def test_compatible_state_names_missing_moments(kind: Any, name: str) -> None:
    optimizer, state = optimizer_and_state(kind, {}, {})
    del state["state"][1][name], state["state"][1]["step"]
    with pytest.raises(CheckpointError, match=f"step and {name} of parameter 1"):
        compatible_state(optimizer, state)


def test_compatible_state_refuses_moments_of_another_shape_or_type() -> None:
    cases = [
        ("exp_avg", torch.zeros(3, 2), r"holds exp_avg of shape \[3, 2\]; expected \[2, 3\]"),
        ("exp_avg", torch.zeros(6), r"holds exp_avg of shape \[6\]; expected \[2, 3\]"),
        ("exp_avg", torch.zeros(2, 3).to_sparse(), r"of shape \[2, 3\] \(torch\.sparse_coo\); expected \[2, 3\]"),
        ("exp_avg", None, "holds exp_avg=None; expected a tensor"),
        ("exp_avg", 0.0, r"holds exp_avg=0\.0; expected a tensor"),
        ("step", torch.zeros(2), r"\[2\].*\[\]"),
        ("step", None, "holds step=None; expected a tensor"),
        ("step", torch.ones(1).to_sparse(), r"\[1\] \(torch\.sparse_coo\).*\[\]"),
    ]

    def call(name: str, value: Any) -> None:
        optimizer, state = optimizer_and_state(torch.optim.Adam)
        state["state"][0][name] = value
        compatible_state(optimizer, state)

    assert not_refused(call, cases, CheckpointError) == []


def test_compatible_state_accepts_step_counts_of_one_number_and_momentum_buffers_of_none() -> None:
    for kind, own in (
        *((torch.optim.Adam, {"step": step}) for step in (3.0, 3, torch.tensor(3.0), torch.tensor([3.0]))),
        (torch.optim.SGD, {"momentum_buffer": None}),
    ):
        optimizer, state = optimizer_and_state(kind)
        state["state"].setdefault(0, {}).update(own)
        checked = compatible_state(optimizer, state)["state"][0]
        assert all(checked[name] is value for name, value in own.items())


def test_compatible_state_copies_moments_that_are_not_contiguous() -> None:
    optimizer, state = optimizer_and_state(torch.optim.Adam)
    turned, same = torch.arange(6.0).reshape(3, 2).t(), torch.arange(6.0).reshape(2, 3)
    state["state"][0] |= {"exp_avg": turned, "exp_avg_sq": same}
    checked = compatible_state(optimizer, state)["state"][0]
    assert checked["exp_avg"].is_contiguous() and torch.equal(checked["exp_avg"], turned)
    assert checked["exp_avg_sq"] is same and state["state"][0]["exp_avg"] is turned, "the given state stays as it was"


@pytest.mark.parametrize("kind", [torch.optim.Adafactor, torch.optim.LBFGS])
def test_compatible_state_takes_the_states_of_adafactor_and_lbfgs_as_they_are(kind: Any) -> None:
    optimizer, state = optimizer_and_state(kind)
    again = compatible_state(optimizer, state)["state"]
    assert again.keys() == state["state"].keys() and again[0] is state["state"][0]


def test_compatible_state_checks_moments_of_a_user_s_optimizer_if_a_group_is_fused() -> None:
    """Fused kernels write as many numbers as the parameter has."""
    for groups, refused in (([{"fused": True}, {}], True), ([{}, {}], False)):
        optimizer, state = optimizer_and_state(UsersOptimizer, *groups, lr=0.1, momentum=0.5)
        state["state"][1]["momentum_buffer"] = torch.zeros(1)
        if refused:
            with pytest.raises(CheckpointError, match=r"holds momentum_buffer of shape \[1\]; expected \[2, 3\]"):
                compatible_state(optimizer, state)
        else:
            assert compatible_state(optimizer, state)["state"] == state["state"]


def test_compatible_state_refuses_another_number_of_groups() -> None:
    optimizer, state = optimizer_and_state(torch.optim.Adam, {}, {})
    state["param_groups"].pop()
    with pytest.raises(CheckpointError, match="parameter groups"):
        compatible_state(optimizer, state)


# -- in a policy ------------------------------------------------------------------------------------------------------
def policy_and_file(optimizer: str, **keywords: Any) -> tuple[Policy, dict[str, Any]]:
    """A policy after one iteration, and a copy of its optimizer's state."""
    policy = PPO(*CARTPOLE.spaces(), optimizer=optimizer, optimizer_kwargs=keywords)
    policy.learn_on_batch(small_worker(policy).sample())
    return policy, deepcopy(policy.learner.optimizer.torch_optimizer.state_dict())


def load_state(policy: Policy, filed: dict[str, Any]) -> torch.optim.Optimizer:
    optimizer = policy.learner.optimizer.torch_optimizer
    optimizer.load_state_dict(filed)
    return optimizer


OPTIMIZER_CLASSES = {
    **{"adam": {}, "torch.optim:Adam": {}, "torch.optim:RMSprop": {}, "torch.optim:NAdam": {}},
    **{"sgd": {"momentum": 0.9}, "torch.optim:SGD": {"momentum": 0.9}, "torch.optim:Adagrad": {"fused": True}},
}


@pytest.mark.parametrize("optimizer", OPTIMIZER_CLASSES)
def test_load_state_dict_refuses_moments_and_step_counts_of_another_size(optimizer: str) -> None:
    """Torch's fused kernels would read and write past their end."""
    policy, filed = policy_and_file(optimizer, **OPTIMIZER_CLASSES[optimizer])
    sizes, one = [torch.ones(5), torch.ones(0), "x"], [torch.tensor(0.0), torch.ones(1), 0.5]
    for name in set(filed["state"][0]) - {"mu_product"}:
        for wrong in sizes if name == "step" else sizes + one:
            spoilt = deepcopy(filed)
            spoilt["state"][0][name] = wrong
            with pytest.raises(CheckpointError, match=f"holds {name}"):
                load_state(policy, spoilt)
    load_state(policy, filed)


@pytest.mark.parametrize("optimizer", ["adam", "torch.optim:Adam", "torch.optim:Adagrad", "torch.optim:RMSprop"])
def test_load_state_dict_keeps_the_optimizer_s_kernels_groups_and_parameters(optimizer: str) -> None:
    policy, filed = policy_and_file(optimizer)
    before = deepcopy(policy.learner.optimizer.torch_optimizer.state_dict()["param_groups"])
    switches = ("fused", "foreach", "capturable", "amsgrad", "differentiable", "maximize")
    filed["param_groups"][0] |= {**dict.fromkeys(switches, True), "every": "x", "lr_scale": "x", "params": ["x"]}
    assert load_state(policy, filed).state_dict()["param_groups"] == before


class RowMeans(torch.optim.SGD):
    """A user's optimizer, whose state of a parameter has another shape than the parameter."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            for parameter in group["params"]:
                self.state[parameter]["mean"] = parameter.detach().mean()


def test_load_state_dict_restores_all_of_a_user_s_optimizer_except_its_choice_of_kernels() -> None:
    policy, filed = policy_and_file(f"{__name__}:RowMeans")
    filed["param_groups"][0] |= {"fused": True, "foreach": True}
    optimizer = load_state(policy, filed)
    assert optimizer.param_groups[0]["steps"] == filed["param_groups"][0]["steps"] > 0
    assert not optimizer.param_groups[0]["fused"] and not optimizer.param_groups[0]["foreach"]
    assert optimizer.state_dict()["state"] == filed["state"]
