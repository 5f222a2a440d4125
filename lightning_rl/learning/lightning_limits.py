"""Refuses what of Lightning's a policy cannot do: methods that are never called, precisions that do not fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lightning.pytorch.callbacks import (
    BaseFinetuning,
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    SpikeDetection,
    StochasticWeightAveraging,
)
from lightning.pytorch.core.hooks import CheckpointHooks, DataHooks, ModelHooks
from lightning.pytorch.plugins import DoublePrecision, HalfPrecision, TransformerEnginePrecision

from lightning_rl.errors import ConfigError

__all__ = ["check_callbacks", "check_lightning_methods", "check_methods_among_several", "check_precision"]

# Method → what to use instead. A learner takes all steps of an iteration within one `training_step`, by an optimizer
# that it builds from the constructor's keywords; under manual optimization Lightning calls none of the others.
REPLACED = {
    "configure_optimizers": (
        "give optimizer=, optimizer_kwargs= and lr= (a number or a schedule over env steps) to the constructor; "
        "override parameter_groups for groups with rates of their own"
    ),
    "optimizer_step": "override apply_gradients or after_step, or use on_before_optimizer_step",
    "optimizer_zero_grad": "override compute_gradients, or use on_before_zero_grad",
    "lr_scheduler_step": "give lr= a schedule over env steps",
    "configure_gradient_clipping": "give max_grad_norm= to the constructor, or use on_before_optimizer_step",
}
# Methods that Lightning calls of the module in its Trainer only, which holds the policies of several agents.
OF_THE_MODULE = (
    *(name for hooks in (ModelHooks, DataHooks, CheckpointHooks) for name in vars(hooks) if not name.startswith("_")),
    *("configure_callbacks", "backward", "validation_step", "test_step"),
)
# Callback → why it would have no effect, or a wrong one, and what to use instead.
REFUSED_CALLBACKS = {
    BaseFinetuning: "the learner's optimizer has its parameters from the start: use freeze=, or lr_scale in "
    "parameter_groups",
    BatchSizeFinder: "the size of a batch is a part of the algorithm: set minibatches, or batch_size of the data",
    GradientAccumulationScheduler: "the learner takes the steps: use fewer minibatches, or microbatches of A2C",
    LearningRateFinder: "the learner sets the rate from lr=: search for it with lightning-rl tune",
    SpikeDetection: "a training_step is an iteration of many losses: a loss that is not finite ends training anyway",
    StochasticWeightAveraging: "the learner sets the rate from lr=: use EMAWeightAveraging or WeightAveraging",
}
LIBRARIES = ("lightning", "lightning_rl")  # packages whose methods are not a user's


def check_lightning_methods(policy: Any) -> None:
    """Refuse a user's method, of the policy's class or assigned to the object, in whose place the learner acts.

    Raises:
        ConfigError: names the method and what to use instead.
    """
    for name in own_methods(policy, REPLACED):
        raise ConfigError(
            f"{type(policy).__name__}.{name} would be ignored, because the policy's learner takes the steps: "
            f"{REPLACED[name]}"
        )


def check_methods_among_several(policy: Any) -> None:
    """Refuse a user's method that Lightning does not call of a policy of several agents.

    Raises:
        ConfigError: names the method and what to use instead.
    """
    for name in own_methods(policy, (*REPLACED, *OF_THE_MODULE)):
        way = "make and step the optimizer in the methods that learn" if name in REPLACED else "use a callback"
        raise ConfigError(
            f"{type(policy).__name__}.{name} is not called for one of several policies, of which Lightning knows only "
            f"what holds them: {way}"
        )


def own_methods(policy: Any, names: Iterable[str]) -> list[str]:
    """Those of the methods that a user's class defines, or that were assigned to the object."""
    return [name for name in names if getattr(policy, name).__module__.partition(".")[0] not in LIBRARIES]


def check_callbacks(callbacks: Iterable[Any]) -> None:
    """Refuse callbacks of Lightning's that would change a learner's steps, which it takes alone.

    Raises:
        ConfigError: names the callback and what to use instead.
    """
    for each in callbacks:
        for refused, reason in REFUSED_CALLBACKS.items():
            if isinstance(each, refused):
                raise ConfigError(f"callback {type(each).__name__}: {reason}")


def check_precision(plugin: Any) -> None:
    """Refuse Lightning's plugins that convert the whole policy, whose observations and statistics stay as they are.

    Raises:
        ConfigError: names the precision and what to use instead.
    """
    if type(plugin) in (DoublePrecision, HalfPrecision, TransformerEnginePrecision):
        raise ConfigError(
            f"precision={plugin.precision!r} converts the weights, and observations, replay and running statistics are "
            "float32: use 32-true or bf16-mixed (bf16-true in a run of train.py or an Algorithm, which have a plugin "
            "for it)"
        )
