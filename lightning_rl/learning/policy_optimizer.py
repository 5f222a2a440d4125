"""One gradient step: zero the gradients, backward, clip, refuse numbers that are not finite, step.

Inside a Trainer the backward and the step go through Lightning (strategy, precision, its own step counter); without
one they are plain torch, so that a policy can learn alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.plugins import Precision
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor

from lightning_rl.errors import (
    ConfigError,
    NonFiniteError,
    did_you_mean,
    first_line,
    import_object,
    short_repr,
    unknown_key,
)
from lightning_rl.fast_torch import ENABLED
from lightning_rl.learning.flat_optimizers import FLAT_OPTIMIZERS, FlatSteps, is_small
from lightning_rl.learning.optimizer_states import compatible_state
from lightning_rl.schedules import Schedule, schedule_value
from lightning_rl.schema.signatures import ImportPath, coerce, coerce_keywords, hints_of

__all__ = ["OPTIMIZERS", "PolicyOptimizer", "check_optimizer", "flush_denormals"]

OPTIMIZERS = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}


class PolicyOptimizer:
    """The optimizer of a policy, with its learning-rate schedule and its gradient clipping.

    Args:
        policy: the owner of the parameters.
        name: "adam", "adamw", "rmsprop", "sgd", or the import path of a `torch.optim.Optimizer`.
        keywords: arguments of its constructor, without `lr`.
        lr: learning rate, a schedule over env steps.
        max_grad_norm: clip the gradients' global 2-norm to this; `None` measures the norm only.

    Attributes:
        info: metrics that the user's `extra_grad_process_fn` returned for the last step's gradients.
        rate: the current learning rate, set by `set_lr`.

    Raises:
        ConfigError: the name or a keyword is unknown, or a keyword is out of range.
    """

    def __init__(
        self, policy: Any, name: str, keywords: Mapping[str, Any], lr: Schedule, max_grad_norm: float | None
    ) -> None:
        check_optimizer(name, keywords)
        self.policy, self.name, self.keywords = policy, name, dict(keywords)
        self.lr, self.max_grad_norm = lr, max_grad_norm
        self.info: dict[str, Any] = {}
        self.rate = 0.0
        self._has_delayed_groups = False  # whether some group steps only at every n-th gradient step
        self._direct = True  # whether a step is made by plain torch calls
        self._lightning_optimizer: Any = None
        self._scaler: Any = None
        # The precision in which losses are computed.
        self.loss_context: Callable[[], AbstractContextManager[Any]] = nullcontext

    @cached_property
    def torch_optimizer(self) -> torch.optim.Optimizer:
        """The torch optimizer, built on first use, when the parameters are on their device."""
        optimizer = self.make()
        self._has_delayed_groups = any("every" in group for group in optimizer.param_groups)
        if not isinstance(optimizer, FlatSteps):  # which checks what it loads itself
            optimizer.register_load_state_dict_pre_hook(compatible_state)
        return optimizer

    def make(self) -> torch.optim.Optimizer:
        """A new optimizer of the policy's parameters, with the learning rate of its env steps."""
        groups = [group for group in self.policy.parameter_groups() if group["params"]]  # else all of it is frozen
        torch_class: Any = OPTIMIZERS.get(self.name) or import_object(self.name)
        cls: Any = FLAT_OPTIMIZERS[self.name] if self.name in FLAT_OPTIMIZERS and is_small(groups) else torch_class
        keywords = _fused_keywords(torch_class, self.keywords)
        try:
            return cls(groups, lr=schedule_value(self.lr, self.policy.env_steps), **keywords)
        except (ValueError, TypeError) as error:
            message = f"policy.optimizer={self.name} with policy.optimizer_kwargs: {error}"
            raise ConfigError(message, key="policy.optimizer_kwargs", value=keywords) from error

    def set_lr(self, env_steps: int) -> float:
        """Set the schedule's learning rate in every parameter group, times the group's `lr_scale`."""
        rate = self.rate = schedule_value(self.lr, env_steps)
        optimizer = self.torch_optimizer
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        if isinstance(optimizer, FlatSteps):
            optimizer.attach()
        self._read_trainer()
        return rate

    def _read_trainer(self) -> None:
        """Look up once an iteration whether a Trainer runs the steps, and which hooks there are: both cost much."""
        trainer: Any = self.policy.trainer if self.policy.in_trainer else None
        self._lightning_optimizer = None if trainer is None else self._find_lightning_optimizer()
        self._scaler = None if trainer is None else getattr(trainer.precision_plugin, "scaler", None)
        self.loss_context = getattr(getattr(trainer, "precision_plugin", None), "loss_context", nullcontext)
        self._direct = trainer is None or (ENABLED and _can_call_torch_directly(self.policy))

    def _find_lightning_optimizer(self) -> Any:
        """The Trainer's wrapper of this optimizer; the Trainer of several policies has one for each."""
        wrappers: Any = self.policy.optimizers()
        if not isinstance(wrappers, list):
            return wrappers
        return next((each for each in wrappers if each.optimizer is self.torch_optimizer), None)

    def step(self, loss: Tensor, parts: Mapping[str, Tensor] | None = None) -> Tensor:
        """Step once with the gradients that `backward` left.

        Args:
            loss: the loss of these gradients, for the check and its message.
            parts: terms of the loss and other metrics, for the message.

        Returns:
            The gradients' 2-norm before clipping.

        Raises:
            NonFiniteError: the loss or a gradient is NaN or infinite; no parameter was changed.
        """
        if self._has_delayed_groups:
            self.drop_delayed_gradients()
        norm = self.clip()
        # A scaler skips a step whose float16 gradients overflowed, and scales the next ones less.
        if norm.is_cpu and self._scaler is None:  # on a CPU two reads are cheaper than one addition
            finite = math.isfinite(loss.item()) and math.isfinite(norm.item())
        else:
            finite = math.isfinite((loss.detach() + norm if self._scaler is None else loss.detach()).item())
        if not finite:
            raise NonFiniteError(self._non_finite_message(loss, parts or {}))
        self.apply()
        return norm

    def backward(self, loss: Tensor, fresh: bool = True) -> None:
        """Compute the gradients of `loss`; `fresh=False` adds them to the present ones."""
        if fresh:
            self.zero_grad()
        if self._direct:
            loss.backward()
        else:
            self.policy.manual_backward(loss)

    def zero_grad(self) -> None:
        """Set the gradients to zero or to `None`, as the optimizer does."""
        optimizer = self.torch_optimizer  # builds the optimizer, if there is none yet
        if not self._direct:  # Lightning leaves this hook to manual optimization
            trainer: Any = self.policy.trainer
            for callback in trainer.callbacks:
                callback.on_before_zero_grad(trainer, trainer.lightning_module, optimizer)
            trainer.lightning_module.on_before_zero_grad(optimizer)
        optimizer.zero_grad()

    def drop_delayed_gradients(self) -> None:
        """Set the gradients of groups whose `every` does not divide this step to `None`, so that their moments stay."""
        for group in self.torch_optimizer.param_groups:
            if (self.policy.gradient_steps + 1) % group.get("every", 1):
                for parameter in group["params"]:
                    parameter.grad = None

    def clip(self) -> Tensor:
        """Clip the gradients to `max_grad_norm`; returns their 2-norm before clipping."""
        if self._scaler is not None:
            self._scaler.unscale_(self.torch_optimizer)
        parameters = [p for group in self.torch_optimizer.param_groups for p in group["params"] if p.grad is not None]
        if len(parameters) != 1:
            norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
            if self.max_grad_norm is not None:
                torch.nn.utils.clip_grads_with_norm_(parameters, self.max_grad_norm, norm)
            return norm
        gradient = parameters[0].grad
        norm = torch.linalg.vector_norm(gradient)
        if self.max_grad_norm is not None and norm.device.type != "cpu":
            gradient.mul_((self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        elif self.max_grad_norm is not None and (size := norm.item()) > self.max_grad_norm:  # on a CPU `item` is free
            gradient.mul_(self.max_grad_norm / (size + 1e-6))
        return norm

    def apply(self) -> None:
        """Step with the present gradients."""
        lightning = self._lightning_optimizer
        if lightning is None:
            self.torch_optimizer.step()
        elif not self._direct:
            lightning.step()
        else:  # without hooks nothing of `lightning.step` is left but counting `global_step`
            lightning._on_before_step()
            self.torch_optimizer.step()
            lightning._on_after_step()

    def set_gradients(self, gradients: Sequence[Tensor | None]) -> None:
        """Set the gradients of the next `apply`, in the order of the policy's `parameters()`."""
        self.zero_grad()
        for parameter, gradient in zip(self.policy.parameters(), gradients, strict=True):
            if gradient is not None and parameter.grad is not None:
                parameter.grad.copy_(gradient)
            elif gradient is not None:
                parameter.grad = gradient.to(parameter.device, parameter.dtype, copy=True)

    def _non_finite_message(self, loss: Tensor, parts: Mapping[str, Tensor]) -> str:
        bad = [
            name
            for name, p in self.policy.named_parameters()
            if p.grad is not None and not bool(torch.isfinite(p.grad).all())
        ]
        where = f"; gradients not finite: {', '.join(bad[:5])}" if bad else ""
        values = {name: float(part.detach()) for name, part in parts.items() if name != "loss"}
        odd = [f"{name} {value}" for name, value in values.items() if not math.isfinite(value)]
        of = f" ({', '.join(odd)})" if odd else ""
        size, steps = float(loss.detach()), self.policy.gradient_steps
        weights = "lower policy.lr, set policy.max_grad_norm"
        if not math.isinf(size):
            advice = f"{weights}, or look for NaN in observations and rewards"
        else:  # before the first step no learning rate can be to blame
            advice = "look for infinite rewards, and for actions that one distribution allows and another excludes " + (
                f"(action masks), or {weights}" if steps else "(action masks)"
            )
        return f"loss is {size}{of} in gradient step {steps}{where}. Nothing was stepped: {advice}"


def check_optimizer(name: str, keywords: Mapping[str, Any] | None) -> None:
    """Refuse an unknown optimizer, and keywords that a built-in one does not take.

    Raises:
        ConfigError: names the keyword.
    """
    if name not in OPTIMIZERS:
        if "." not in name and ":" not in name:
            raise ConfigError(
                f"policy.optimizer={short_repr(name)} is unknown.{did_you_mean(name[:100], OPTIMIZERS)} "
                f"Use {', '.join(OPTIMIZERS)} or an import path",
                key="policy.optimizer",
                value=name,
            )
        coerce("policy.optimizer", name, ImportPath)
        return
    cls: Any = OPTIMIZERS[name]
    hints = hints_of(cls, without=("params", "lr"))
    for key, value in (keywords or {}).items():
        if key not in hints:  # often the policy's default, for Adam
            place = "policy.optimizer_kwargs"
            message = f"policy.optimizer={name}: {unknown_key(place, key, hints)}; {place}=null removes all of them"
            raise ConfigError(message, key=f"{place}.{key}", value=value)
    given = coerce_keywords("policy.optimizer_kwargs", keywords or {}, hints)
    try:
        _try_optimizer(cls, given)
    except ConfigError:
        for key, value in given.items():  # name the one keyword that is wrong, if it is one
            _try_optimizer(cls, {key: value})
        raise


def _fused_keywords(cls: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords, with `fused=True` if the optimizer has that form: 1.3 × the rows/s at batch 256 on a CPU."""
    is_fused = cls in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD) and not keywords.get("foreach")
    return {"fused": True, **keywords} if is_fused else dict(keywords)


def _try_optimizer(cls: Any, keywords: Mapping[str, Any]) -> None:
    """Build the optimizer once, so that torch refuses wrong keywords before training begins."""
    try:
        cls([torch.zeros(1, requires_grad=True)], lr=1e-3, **_fused_keywords(cls, keywords))
    except (ValueError, TypeError, RuntimeError, IndexError) as error:
        named = ", ".join(f"policy.optimizer_kwargs.{key}={short_repr(value)}" for key, value in keywords.items())
        raise ConfigError(f"{named}: {first_line(error)}", key="policy.optimizer_kwargs", value=keywords) from error


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Context in which numbers below 1e-38 are 0, on this thread of a CPU and those that it starts.

    Adam's moments of dead units shrink until they are denormal, and a CPU computes ten times as long with denormal
    numbers: a fifth of DQN's time on CartPole.
    """
    before = float(torch.tensor(1e-40) * 1.0) == 0.0  # torch has no function for it
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


STEP_HOOKS = ("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step")
MODULE_HOOKS = (*STEP_HOOKS, "backward")


def _can_call_torch_directly(policy: Any) -> bool:
    """Whether one device learns in plain precision and no class overrides a hook around a gradient step.

    Lightning calls each hook of every callback, which costs a small network's step a tenth of its time. If all of them
    are empty, the optimizer makes the same torch calls directly.
    """
    trainer = policy.trainer
    if type(trainer.strategy) is not SingleDeviceStrategy or type(trainer.precision_plugin) is not Precision:
        return False
    modules = {type(policy), type(trainer.lightning_module)}  # of one policy, and of what holds several
    if any(getattr(cls, hook) is not getattr(LightningModule, hook) for cls in modules for hook in MODULE_HOOKS):
        return False
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return not any(
        getattr(type(each), hook) is not getattr(Callback, hook) for each in callbacks for hook in STEP_HOOKS
    )
