"""PolicyOptimizer: backward, clip, step, schedules, parameter groups and hooks, alone and in a Trainer."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from torch import Tensor, nn

from lightning_rl.config import check_config, compose_config
from lightning_rl.errors import NonFiniteError
from lightning_rl.fast_torch import ENABLED
from lightning_rl.learning.policy_optimizer import PolicyOptimizer, check_optimizer, flush_denormals
from lightning_rl.policies import A2C
from lightning_rl.runs import run
from tests.refusals import not_refused
from tests.run_comparison import assert_equal_weights

LISTED = "torch.optim:SGD"  # an optimizer given by import path steps a list of tensors, one given by name a flat tensor
BOTH = pytest.mark.parametrize("name", ["sgd", LISTED])


class TwoParameters(nn.Module):
    """Two parameters, and what PolicyOptimizer reads of a policy; each has a group, or both have one (`together`)."""

    in_trainer = False

    def __init__(self, *groups: dict[str, Any], together: bool = False) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
        self.groups, self.together = groups or ({}, {}), together
        self.env_steps = self.gradient_steps = 0

    def parameter_groups(self) -> list[dict[str, Any]]:
        if self.together:
            return [{"params": [self.a, self.b]}]
        return [{"params": [one], **group} for one, group in zip((self.a, self.b), self.groups, strict=True)]


def policy_and_optimizer(
    name: str, policy: Any = None, keywords: Any = None, lr: Any = 1.0, clip: Any = None
) -> tuple[Any, Any]:
    policy = TwoParameters() if policy is None else policy
    optimizer = PolicyOptimizer(policy, name, keywords or {}, lr, clip)
    optimizer.set_lr(policy.env_steps)
    return policy, optimizer


def loss_with_gradients(policy: TwoParameters, a: Any, b: float | None) -> Tensor:
    """A loss whose gradients are `a` and `b`."""
    loss = (torch.tensor(a) * policy.a).sum()
    return loss if b is None else loss + b * policy.b.sum()


def values_of(policy: TwoParameters) -> list[float]:
    return [*policy.a.tolist(), *policy.b.tolist()]


def take_steps(policy: Any, optimizer: Any, *gradients: tuple[float, float, float | None]) -> list[list[float]]:
    """The gradient's norm and the values after a step by each of these gradients of a and b."""
    found = []
    for *a, b in gradients:
        optimizer.backward(loss_with_gradients(policy, a, b))
        norm = optimizer.step(torch.tensor(0.0)).item()
        policy.gradient_steps += 1
        found.append([norm, *values_of(policy)])
    return found


# -- stepping ---------------------------------------------------------------------------------------------------------
@BOTH
@pytest.mark.parametrize("together", [True, False], ids=["one group", "two groups"])
def test_step_descends_the_gradient_of_the_last_backward_only(name: str, together: bool) -> None:
    policy, optimizer = policy_and_optimizer(name, TwoParameters(together=together), lr=0.5)
    found = take_steps(policy, optimizer, (3.0, 4.0, 12.0), (3.0, 4.0, 12.0))
    assert found == [pytest.approx([13.0, -1.5, -2.0, -6.0]), pytest.approx([13.0, -3.0, -4.0, -12.0])]


@BOTH
@pytest.mark.parametrize(
    ("groups", "settings", "gradients", "expected"),
    [
        # b steps at every third step; its gradients of the steps between are dropped.
        (
            [{}, {"every": 3}],
            {},
            [(1.0, 0.0, 10.0**number) for number in range(7)],
            [[-1.0 - n, 0.0, (0.0, -1e2, -100_100.0)[(n + 1) // 3]] for n in range(7)],
        ),
        ([{"every": 2}, {"every": 3}], {}, [(1.0, 0.0, 1.0)] * 3, [[0.0] * 3, [-1.0, 0.0, 0.0], [-1.0, 0.0, -1.0]]),
        # SGD with momentum ½: b moves by 1 at step 2 and by 1½ at step 4, not at steps 1, 3 and 5.
        (
            [{}, {"every": 2}],
            {"keywords": {"momentum": 0.5}},
            [(0.0, 0.0, 1.0)] * 5,
            [[0.0, 0.0, b] for b in (0.0, -1.0, -1.0, -2.5, -2.5)],
        ),
        ([{}, {"every": 2}], {"clip": 1.0}, [(3.0, 4.0, 12.0)], [[5.0, -0.6, -0.8, 0.0]]),  # with the norm
    ],
    ids=["newest gradient", "no group steps", "momentum", "clipping"],
)
def test_a_group_with_every_n_steps_at_every_nth_step(
    name: str, groups: Any, settings: Any, gradients: Any, expected: list[list[float]]
) -> None:
    policy, optimizer = policy_and_optimizer(name, TwoParameters(*groups), **settings)
    found = take_steps(policy, optimizer, *gradients)
    for row, values in zip(found, expected, strict=True):
        assert row[-len(values) :] == pytest.approx(values, rel=1e-5)


def test_step_of_a_list_leaves_parameters_without_gradient_as_they_are() -> None:
    """With momentum, a gradient of 0 would move them further."""
    policy, optimizer = policy_and_optimizer(LISTED, keywords={"momentum": 0.9})
    _, (_, a, _, b) = take_steps(policy, optimizer, (1.0, 1.0, 1.0), (1.0, 1.0, None))
    assert b == -1.0 and a == pytest.approx(-1.0 - 1.9)


@BOTH
def test_backward_with_fresh_false_adds_to_the_gradient(name: str) -> None:
    policy, optimizer = policy_and_optimizer(name)
    optimizer.backward(loss_with_gradients(policy, (1.0, 2.0), 3.0))
    optimizer.backward(loss_with_gradients(policy, (1.0, 1.0), 1.0), fresh=False)
    optimizer.apply()
    assert values_of(policy) == [-2.0, -3.0, -4.0]


@BOTH
def test_set_lr_gives_each_group_the_scheduled_rate_times_its_lr_scale(name: str) -> None:
    policy, optimizer = policy_and_optimizer(name, TwoParameters({"lr_scale": 3.0}, {}), lr=[[0, 1.0], [100, 0.0]])
    rates = []
    for steps in (0, 50):
        rates.append((optimizer.set_lr(steps), *(group["lr"] for group in optimizer.torch_optimizer.param_groups)))
    assert rates == [(1.0, 3.0, 1.0), (0.5, 1.5, 0.5)]
    policy.env_steps = 25
    fresh = PolicyOptimizer(policy, name, {}, [[0, 1.0], [100, 0.0]], None)
    assert [group["lr"] for group in fresh.torch_optimizer.param_groups] == [0.75, 0.75]


# -- clipping ---------------------------------------------------------------------------------------------------------
@BOTH
@pytest.mark.parametrize("together", [True, False], ids=["one group", "two groups"])
@pytest.mark.parametrize(("clip", "scale"), [(None, 1.0), (14.0, 1.0), (6.5, 0.5), (1.3, 0.1)])
def test_clip_scales_a_gradient_of_norm_13_down_to_max_grad_norm(
    name: str, together: bool, clip: float | None, scale: float
) -> None:
    policy, optimizer = policy_and_optimizer(name, TwoParameters(together=together), clip=clip)
    expected = [13.0, -3.0 * scale, -4.0 * scale, -12.0 * scale]
    assert take_steps(policy, optimizer, (3.0, 4.0, 12.0)) == [pytest.approx(expected, rel=1e-5)]


def test_clip_leaves_a_gradient_at_max_grad_norm_as_it_is() -> None:
    policy, optimizer = policy_and_optimizer("sgd", TwoParameters(together=True), clip=13.0)
    assert take_steps(policy, optimizer, (3.0, 4.0, 12.0)) == [[13.0, -3.0, -4.0, -12.0]]


@pytest.mark.parametrize("together", [True, False], ids=["one group", "two groups"])
def test_clip_adds_1e_6_to_the_norm_that_it_divides_by(together: bool) -> None:
    """A norm of 3e-6 and a limit of 1e-6 give the factor 1e-6 / (3e-6 + 1e-6) = ¼."""
    policy, optimizer = policy_and_optimizer("sgd", TwoParameters(together=together), clip=1e-6)
    ((_, _, a, _),) = take_steps(policy, optimizer, (0.0, 3e-6, 0.0))
    assert a == pytest.approx(-0.75e-6, rel=1e-3)


@BOTH
def test_clip_measures_gradients_after_the_float16_scaler_s_unscaling(name: str) -> None:
    """A scaler doubled the loss and halves the gradients again: their norm is 13, clipped to 6½."""
    policy, optimizer = policy_and_optimizer(name, clip=6.5)

    def halve(optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad /= 2.0

    optimizer._scaler = SimpleNamespace(unscale_=halve)
    optimizer.backward(2.0 * loss_with_gradients(policy, (3.0, 4.0), 12.0))
    assert optimizer.step(torch.tensor(0.0)).item() == 13.0
    assert values_of(policy) == pytest.approx([-1.5, -2.0, -6.0], rel=1e-5)


# -- what is not finite -----------------------------------------------------------------------------------------------
INF, NAN = float("inf"), float("nan")


@BOTH
def test_step_refuses_a_loss_or_gradient_that_is_not_finite_and_names_it(name: str) -> None:
    """But no parameter without a gradient."""
    cases: list[tuple[Any, ...]] = [
        (1.0, (1.0, 1.0, NAN), 3, r"step 3; gradients not finite: b\."),
        (1.0, (1.0, 1.0, INF), 0, r"step 0; gradients not finite: b\."),
        (1.0, (NAN, 1.0, None), 0, r"gradients not finite: a\." if name == LISTED else "not finite: a"),
        (NAN, (1.0, 1.0, 1.0), 0, r"^loss is nan.*max_grad_norm"),
        (INF, (1.0, 1.0, 1.0), 0, r"^loss is inf.*infinite rewards.*action masks"),
        (INF, (1.0, 1.0, 1.0), 1, r"^loss is inf.*action masks.*policy\.max_grad_norm$"),
    ]

    def step(loss: float, gradient: Any, steps: int) -> None:
        policy, optimizer = policy_and_optimizer(name)
        policy.gradient_steps = steps
        optimizer.backward(loss_with_gradients(policy, gradient[:2], gradient[2]))
        try:
            optimizer.step(torch.tensor(loss))
        finally:
            assert values_of(policy) == [0.0, 0.0, 0.0]

    assert not_refused(step, cases, NonFiniteError) == []


def test_the_error_for_a_loss_that_is_not_finite_names_its_parts_that_are_not_finite() -> None:
    policy, optimizer = policy_and_optimizer("sgd")
    optimizer.backward(loss_with_gradients(policy, (1.0, 1.0), 1.0))
    found = {"loss": NAN, "value_loss": NAN, "entropy": 1.0, "kl": INF}
    parts = {name: torch.tensor(value, requires_grad=True) for name, value in found.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns on converting a tensor that requires a gradient to a number
        with pytest.raises(NonFiniteError, match=r"^loss is nan \(value_loss nan, kl inf\)"):
            optimizer.step(parts["loss"], parts)


def test_the_error_for_gradients_that_are_not_finite_names_five_of_many() -> None:
    policy = nn.ParameterList([nn.Parameter(torch.zeros(2)) for _ in range(7)])
    policy.in_trainer, policy.env_steps, policy.gradient_steps = False, 0, 0  # type: ignore[assignment]
    policy.parameter_groups = lambda: [{"params": list(policy)}]  # type: ignore[assignment]
    _, optimizer = policy_and_optimizer("sgd", policy)
    optimizer.backward(sum(p[0] * (NAN if number else 1.0) for number, p in enumerate(policy)))  # type: ignore[arg-type]
    with pytest.raises(NonFiniteError, match=r"not finite: 1, 2, 3, 4, 5\."):
        optimizer.step(torch.tensor(1.0))


# -- gradients from elsewhere -----------------------------------------------------------------------------------------
@BOTH
def test_set_gradients_copies_its_tensors_and_replaces_all_gradients(name: str) -> None:
    policy, optimizer = policy_and_optimizer(name)
    optimizer.backward(loss_with_gradients(policy, (9.0, 9.0), 9.0))
    given = torch.tensor([1.0, 2.0], dtype=torch.float64)
    optimizer.set_gradients([given, None])
    given.fill_(7.0)
    optimizer.apply()
    assert values_of(policy) == [-1.0, -2.0, 0.0]
    kept = torch.tensor([1.0, 2.0])
    optimizer.set_gradients([kept, torch.tensor([4.0])])
    kept.fill_(7.0)
    optimizer.apply()
    assert values_of(policy) == [-2.0, -4.0, -4.0]


# -- hooks ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("hook", ["pre", "post"])
@pytest.mark.parametrize("name", ["adam", "sgd", "rmsprop", LISTED])
def test_step_calls_the_torch_optimizer_s_hooks_and_steps_as_without_them(name: str, hook: str) -> None:
    (policy, optimizer), (plain, other) = policy_and_optimizer(name), policy_and_optimizer(name)
    seen: list[str] = []
    getattr(optimizer.torch_optimizer, f"register_step_{hook}_hook")(lambda *_: seen.append(hook))
    optimizer.set_lr(0)
    gradients = [(1.0, 2.0, 3.0)] * 3
    assert take_steps(policy, optimizer, *gradients) == take_steps(plain, other, *gradients)
    assert seen == [hook] * 3


# -- torch's optimizer ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "keywords", "fused", "flat"),
    [
        ("adam", {}, True, True),
        ("adamw", {}, True, True),
        ("sgd", {}, True, True),
        ("adam", {"fused": False}, False, True),
        ("rmsprop", {}, None, True),
        ("torch.optim:Adam", {}, True, False),
        ("torch.optim.SGD", {}, True, False),
        ("torch.optim:RMSprop", {}, None, False),
    ],
)
def test_optimizers_given_by_name_step_one_flat_tensor_and_have_fused_kernels_if_torch_does(
    name: str, keywords: dict[str, Any], fused: bool | None, flat: bool
) -> None:
    _, optimizer = policy_and_optimizer(name, TwoParameters(together=True), keywords)
    (group,) = optimizer.torch_optimizer.param_groups
    assert group.get("fused") is fused and len(group["params"]) == (1 if flat else 2)
    assert optimizer.torch_optimizer is optimizer.torch_optimizer, "built once"


def test_parameters_of_two_dtypes_are_stepped_as_a_list() -> None:
    policy = TwoParameters()
    policy.b.data = policy.b.data.double()
    _, optimizer = policy_and_optimizer("adam", policy)
    ((_, *values),) = take_steps(policy, optimizer, (1.0, -1.0, 1.0))
    assert type(optimizer.torch_optimizer) is torch.optim.Adam and values == pytest.approx([-1.0, 1.0, -1.0])


def test_step_uses_the_schedule_s_first_rate_and_calls_hooks_before_any_set_lr() -> None:
    policy, seen = TwoParameters(), list[Any]()
    optimizer = PolicyOptimizer(policy, "sgd", {}, [[0, 1.0], [100, 0.0]], None)  # type: ignore[arg-type]
    optimizer.torch_optimizer.register_step_post_hook(lambda *_: seen.append(values_of(policy)))
    take_steps(policy, optimizer, (1.0, 2.0, 3.0))
    assert seen == [[-1.0, -2.0, -3.0]]


def test_keywords_that_an_imported_optimizer_refuses_are_named_when_it_is_built() -> None:
    def build(keywords: Any) -> None:
        PolicyOptimizer(TwoParameters(), LISTED, keywords, 1.0, None).set_lr(0)  # type: ignore[arg-type]

    refused = r"policy\.optimizer=torch\.optim:SGD with policy\.optimizer_kwargs: .*momentun"
    cases = [({"momentun": 0.9}, refused), ({"momentum": -1.0}, r"policy\.optimizer_kwargs")]
    assert not_refused(build, cases) == []


def test_check_optimizer_refuses_unknown_names_and_keywords_that_torch_refuses() -> None:
    cases = [
        ("adm", {}, r"policy\.optimizer='adm'.*'adam'"),
        ("torch.optim", {}, r"policy.optimizer='torch.optim'"),
        ("torch:Nothing", {}, r"policy\.optimizer.*'torch:Nothing'.*'torch'.*'Nothing'"),
        ("adam", {"eps": -1.0}, r"policy\.optimizer_kwargs\.eps=-1\.0: Invalid epsilon"),
        ("adam", {"amsgrad": True, "eps": -1.0}, r"^policy\.optimizer_kwargs\.eps=-1\.0: Invalid epsilon"),
        ("sgd", {"fused": True, "foreach": True}, r"kwargs\.fused=True, .*\.foreach=True: `fused`"),
        ("sgd", {"nesterov": True}, r"^policy\.optimizer_kwargs\.nesterov=True"),
    ]
    assert not_refused(check_optimizer, cases) == []
    for name, keywords in (
        ("torch.optim:Adam", {"anything": "is looked at later"}),
        ("sgd", {"momentum": 0.9, "nesterov": True}),
        ("adam", {"foreach": True}),
        ("adam", {"fused": False, "foreach": True}),
        ("rmsprop", {"foreach": True, "differentiable": True}),
        ("rmsprop", {"alpha": 0.9, "momentum": 0.5}),
        ("adam", None),
    ):
        check_optimizer(name, keywords)


# -- numbers near zero ------------------------------------------------------------------------------------------------
def is_flushed() -> bool:
    return float(torch.tensor(1e-40) * 1.0) == 0.0


def test_flush_denormals_holds_inside_only_and_may_be_nested() -> None:
    assert not is_flushed()
    with pytest.raises(KeyError), flush_denormals():
        assert is_flushed()
        with flush_denormals():
            assert is_flushed()
        assert is_flushed()
        raise KeyError
    assert not is_flushed()


# -- in a Trainer -----------------------------------------------------------------------------------------------------
SMALL = (
    *("policy=a2c", "env=cartpole", "experiment=none", "logger=none", "evaluation=none", "model.fcnet_hiddens=[4]"),
    *("trainer.enable_progress_bar=false", "total_env_steps=192", "workers.fragment_length=8", "policy.seed=1"),
)


def fit(tmp_path: Path, callback: Callback | None = None, policy_class: type[A2C] = A2C) -> Any:
    config = compose_config([*SMALL, f"run_dir={tmp_path}"])
    check_config(config)
    policy, data, trainer = run.build(config)
    if policy_class is not A2C:
        policy.__class__ = policy_class
    if callback is not None:
        trainer.callbacks.append(callback)  # type: ignore[attr-defined]
    run.fit(policy, data, trainer)
    steps = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress.total
    assert policy.gradient_steps == trainer.global_step == steps.ready == steps.completed > 2
    return policy


@pytest.fixture(scope="module")
def policy_without_hooks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The policy after a run without hooks."""
    return fit(tmp_path_factory.mktemp("policy_without_hooks"))


HOOKS = ("on_before_backward", "on_after_backward", "on_before_optimizer_step")


@pytest.mark.parametrize(
    ("base", "hook"), [(A2C, "backward"), *((base, hook) for base in (A2C, Callback) for hook in HOOKS)]
)
def test_hooks_are_called_at_every_gradient_step_and_change_no_weight(
    base: type[Any], hook: str, policy_without_hooks: Any, tmp_path: Path
) -> None:
    calls = []

    def counting(self: Any, *arguments: Any, **keywords: Any) -> Any:
        calls.append(hook)
        return getattr(base, hook)(self, *arguments, **keywords)

    own = type("Own", (base,), {hook: counting})
    policy = fit(tmp_path, own()) if base is Callback else fit(tmp_path, policy_class=own)
    assert len(calls) == policy.gradient_steps and policy_without_hooks.learner.optimizer._direct is ENABLED
    assert not policy.learner.optimizer._direct
    assert_equal_weights(policy, policy_without_hooks)
