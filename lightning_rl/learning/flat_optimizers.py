"""Optimizers that step all parameters of a group as one tensor.

Steps of small networks are bound by the number of Python and torch calls, not by arithmetic: zeroing, the norm,
clipping and the step become one operation each (0.76 ms a step against 1.03 ms for 2 × [64, 64] and 256 rows).
Elementwise optimizers compute the same numbers, and their `state_dict` is that of torch's class.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from lightning_rl.errors import CheckpointError
from lightning_rl.fast_torch import ENABLED
from lightning_rl.learning.optimizer_states import SCALARS, compatible_state, mismatch_message

__all__ = [
    "FLAT_OPTIMIZERS",
    "FlatAdam",
    "FlatAdamW",
    "FlatParameters",
    "FlatRMSprop",
    "FlatSGD",
    "FlatSteps",
    "is_small",
]

SMALL = 2_000_000  # parameters of a policy that is stepped as one tensor

# Each parameter begins at a multiple of this many numbers. The last digit of a matrix product depends on the memory
# alignment of its matrices (MKL); with padding the alignment is that of separate tensors, as in a worker's network.
ALIGNED = 16


class FlatParameters:
    """All parameters of a group as views of one tensor, and their gradients of another.

    Args:
        parameters: the parameters of one device and dtype.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.sizes = [parameter.numel() for parameter in self.parameters]
        self.parameter = torch.nn.Parameter(self.join(self.parameters))
        self.gradient = torch.zeros_like(self.parameter)
        self._set_views()

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """Tensors of the parameters' shapes as one, each at a multiple of `ALIGNED`, with zeros between them."""
        flat = tensors[0].new_zeros(sum(map(_slot, self.sizes)))
        for view, tensor in zip(self.split(flat), tensors, strict=True):
            view.copy_(tensor.detach())
        return flat

    def split(self, flat: Tensor) -> list[Tensor]:
        """Views of a flat tensor with the parameters' shapes."""
        slots = flat.split([_slot(size) for size in self.sizes])
        parts = zip(slots, self.sizes, self.parameters, strict=True)
        return [slot[:size].view(parameter.shape) for slot, size, parameter in parts]

    def attach(self) -> None:
        """Make the parameters views again if one was moved (to another device and back, by `weight.data = …`).

        Gradients that were set to `None`, as Lightning does at the start of a fit, become views again as well.
        """
        if self._addresses() != self._last_addresses:
            with torch.no_grad():
                self.parameter.data = self.join(self.parameters)
            self.gradient = torch.zeros_like(self.parameter)
            self._set_views()
        elif self.parameters[0].grad is None or self.parameter.grad is None:
            self.parameter.grad = self.gradient.zero_()
            for parameter, gradient in self._gradients:
                parameter.grad = gradient

    def _set_views(self) -> None:
        self.parameter.grad = self.gradient
        views = zip(self.parameters, self.split(self.parameter.detach()), self.split(self.gradient), strict=True)
        self._gradients: list[tuple[torch.nn.Parameter, Tensor]] = []
        for parameter, values, gradient in views:
            parameter.data, parameter.grad = values, gradient
            self._gradients.append((parameter, gradient))
        self._last_addresses = self._addresses()

    def _addresses(self) -> list[int]:
        return [*map(Tensor.data_ptr, (self.parameter, *self.parameters))]


def _slot(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def is_small(groups: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the groups are small enough for flat parameters, and of one device, dtype and layout."""
    kinds = {(p.device, p.dtype, p.layout, type(p)) for group in groups for p in group["params"]}
    size = sum(p.numel() for group in groups for p in group["params"])
    return len(kinds) == 1 and size <= SMALL and all(group["params"] for group in groups)


class FlatSteps(torch.optim.Optimizer):
    """Put before one of torch's elementwise optimizers, it steps one flat tensor per parameter group.

    `state_dict` gives and `load_state_dict` takes the state of each parameter, as torch's class does, so that either
    loads what the other saved.

    Args:
        groups: parameter groups, for which `is_small` is true.
        keywords: the keywords of torch's class.

    Attributes:
        flat: the parameters and gradients of each group.
    """

    def __init__(self, groups: Iterable[Mapping[str, Any]], **keywords: Any) -> None:
        groups = list(groups)
        self.flat = [FlatParameters(group["params"]) for group in groups]
        pairs = zip(groups, self.flat, strict=True)
        super().__init__([{**group, "params": [flat.parameter]} for group, flat in pairs], **keywords)

    def __getstate__(self) -> dict[str, Any]:
        """With the flat parameters, so that a copy steps its own."""
        return {**super().__getstate__(), "flat": self.flat}

    def attach(self) -> None:
        """Make parameters and gradients that were replaced since the last call views of the flat tensors again."""
        for flat in self.flat:
            flat.attach()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients to zero; never to `None`, because they are views."""
        for flat in self.flat:
            flat.gradient.zero_()
            if flat.parameter.grad is not flat.gradient:  # the group was skipped, or a hook replaced it
                flat.parameter.grad = flat.gradient

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """As torch's class; without hooks also without its profiler record, a third of a small step's time."""
        is_fast = ENABLED and not (self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks)
        with torch.no_grad():
            if is_fast and closure is None and self._step_by_kernel():
                return None
            step: Any = inspect.unwrap(super().step)
            return (step if is_fast else self.profile_hook_step(step))(self, closure)

    step.hooked = True  # type: ignore[attr-defined]  # or torch would wrap the class's `step` in record and hooks

    def _step_by_kernel(self) -> bool:
        """Step by calls of torch's kernel alone, if the options allow it; returns whether it stepped."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """The state of each parameter, as torch's class gives it."""
        packed = super().state_dict()
        groups: list[dict[str, Any]] = []
        states: dict[int, dict[str, Any]] = {}
        for flat, group in zip(self.flat, packed["param_groups"], strict=True):
            first = sum(len(before["params"]) for before in groups)
            groups.append({**group, "params": list(range(first, first + len(flat.parameters)))})
            for name, value in packed["state"].get(group["params"][0], {}).items():
                if name in SCALARS or value is None:  # a copy for each: their own optimizer would count in place
                    values = [deepcopy(value) for _ in flat.parameters]
                else:
                    values = flat.split(value)
                for index, part in enumerate(values, first):
                    states.setdefault(index, {})[name] = part
        return {**packed, "state": states, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state of each parameter.

        Raises:
            CheckpointError: it is that of other parameters or of another optimizer, or the parameters of a group were
                not stepped equally often.
        """
        checked = compatible_state(self, state_dict, [own for flat in self.flat for own in flat.parameters])
        groups: list[dict[str, Any]] = []
        states: dict[int, dict[str, Any]] = {}
        for place, (flat, group) in enumerate(zip(self.flat, checked["param_groups"], strict=True)):
            groups.append({**group, "params": [place]})
            each = [checked["state"].get(index, {}) for index in group["params"]]
            alike = {tuple((name, type(value)) for name, value in sorted(state.items())) for state in each}
            if len(alike) > 1 or len({float(state["step"]) for state in each if "step" in state}) > 1:
                raise CheckpointError(mismatch_message(f"has not stepped group {place} as one"))
            for name, value in each[0].items():
                is_moment = name not in SCALARS and value is not None
                joined = flat.join([state[name] for state in each]) if is_moment else value
                states.setdefault(place, {})[name] = joined
        super().load_state_dict({**checked, "state": states, "param_groups": groups})


class FlatAdam(FlatSteps, torch.optim.Adam):
    """Adam on one flat tensor per parameter group."""

    def _step_by_kernel(self) -> bool:
        """Step by the fused kernel; not before the moments exist, and not within a float16 scaler's step."""
        stepped: list[tuple[Any, ...]] = []
        for group in self.param_groups:
            (parameter,) = group["params"]
            if parameter.grad is None:
                continue
            state = self.state.get(parameter)
            is_plain = group["fused"] and not (group["amsgrad"] or group["capturable"] or group["maximize"])
            if not state or not is_plain or hasattr(self, "found_inf"):
                return False
            stepped.append((group, parameter, state))
        for group, parameter, state in stepped:
            state["step"] += 1
            decoupled = group.get("decoupled_weight_decay", isinstance(self, torch.optim.AdamW))
            kernel: Any = torch._fused_adamw_ if decoupled else torch._fused_adam_  # type: ignore[attr-defined]
            beta1, beta2 = group["betas"]
            kernel(
                [parameter], [parameter.grad], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"]],
                lr=group["lr"], beta1=beta1, beta2=beta2, weight_decay=group["weight_decay"], eps=group["eps"],
                amsgrad=False, maximize=False,
            )  # fmt: skip
        return True


class FlatAdamW(FlatSteps, torch.optim.AdamW):
    """AdamW on one flat tensor per parameter group."""

    _step_by_kernel = FlatAdam._step_by_kernel  # type: ignore[assignment]


class FlatRMSprop(FlatSteps, torch.optim.RMSprop):
    """RMSprop on one flat tensor per parameter group."""


class FlatSGD(FlatSteps, torch.optim.SGD):
    """SGD on one flat tensor per parameter group."""


FLAT_OPTIMIZERS = {"adam": FlatAdam, "adamw": FlatAdamW, "rmsprop": FlatRMSprop, "sgd": FlatSGD}
