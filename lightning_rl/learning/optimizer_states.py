"""Checks the state of an optimizer in a checkpoint file before the optimizer loads it.

Torch's fused kernels compute as many numbers of each moment as the parameter has, whatever the size of the moment, so
they write past the end of a moment that is too small in the file. And the file would choose the kernel, because
`Optimizer.load_state_dict` replaces all options by those of the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_rl.errors import CheckpointError, short_repr

__all__ = ["SCALARS", "compatible_state", "mismatch_message"]

SCALARS = ("step", "eta", "mu", "mu_product")  # one number per parameter; all other entries have the parameter's shape
OTHER_SHAPES = tuple(getattr(torch.optim, name) for name in ("Adafactor", "LBFGS") if hasattr(torch.optim, name))
KEPT = {  # entries of every parameter that was stepped; other classes' entries depend on their options
    torch.optim.Adam: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.RMSprop: ("step", "square_avg"),
}
NAMES = ("params", "param_names")  # keys of a parameter group that name its parameters
# Options that decide how and when to step; they are never taken from a file.
OURS = ("fused", "foreach", "capturable", "amsgrad", "differentiable", "maximize", "every", "lr_scale")


def compatible_state(
    optimizer: torch.optim.Optimizer, state: Mapping[str, Any], parameters: Sequence[Tensor] | None = None
) -> dict[str, Any]:
    """A state that is safe for `optimizer.load_state_dict`, from the state in a file.

    Moments and options that are numbers come from the file. The options `OURS` and the parameters of each group stay
    those of the built optimizer. Classes that are neither torch's nor this package's are not checked further.

    Args:
        optimizer: the built optimizer.
        state: the optimizer's state in the file.
        parameters: the parameters of the state's entries, in their order; `None`: those of the optimizer's groups.

    Raises:
        CheckpointError: an entry has another shape or type than in this optimizer; names it.
    """
    built, theirs = optimizer.state_dict()["param_groups"], state["param_groups"]
    if len(built) != len(theirs):
        raise CheckpointError(mismatch_message(f"has {len(theirs)} parameter groups, and not {len(built)}"))
    is_torchs = type(optimizer).__module__.startswith(("torch.optim.", "lightning_rl."))
    groups = [_options(own, given, check=is_torchs) for own, given in zip(built, theirs, strict=True)]
    states = dict(state["state"])
    is_fused = any(group.get("fused") for group in built)
    if is_fused or (is_torchs and not isinstance(optimizer, OTHER_SHAPES)):
        parameters = parameters or [parameter for group in optimizer.param_groups for parameter in group["params"]]
        expected = next((names for kind, names in KEPT.items() if is_torchs and isinstance(optimizer, kind)), ())
        for index, kept in states.items():
            if missing := [name for name in expected if name not in kept]:
                raise CheckpointError(mismatch_message(f"lacks {' and '.join(missing)} of parameter {index}"))
            states[index] = _moments(kept, parameters[index])
    return {**state, "state": states, "param_groups": groups}


def _options(built: Mapping[str, Any], given: Mapping[str, Any], *, check: bool) -> dict[str, Any]:
    """A parameter group of the built optimizer with the numbers of a given one."""
    options = {**built, **{name: value for name, value in given.items() if name not in (*OURS, *NAMES)}}
    for name, own in built.items() if check else ():
        if own is None or isinstance(own, bool | str):
            options[name] = own
        elif name not in NAMES and not _is_alike(options[name], own):
            raise CheckpointError(
                mismatch_message(f"has {name}={short_repr(options[name])}; expected the like of {short_repr(own)}")
            )
    return options


def _is_alike(value: Any, own: Any) -> bool:
    if isinstance(own, tuple | list):
        return isinstance(value, tuple | list) and len(value) == len(own) and all(map(_is_alike, value, own))
    if isinstance(value, Tensor):
        return value.numel() == 1
    return own is value or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value))


def _moments(kept: Mapping[str, Any], parameter: Tensor) -> dict[str, Any]:
    """The entries of a parameter, with the parameter's memory layout."""
    moments = {}
    for name, value in kept.items():
        if isinstance(value, Tensor):
            _check_shape(name, value, () if name in SCALARS else parameter.shape)
            if value.stride() != parameter.stride() and name not in SCALARS:
                value = torch.empty_like(parameter).copy_(value)
        elif not (isinstance(value, int | float) if name in SCALARS else name == "momentum_buffer" and value is None):
            raise CheckpointError(mismatch_message(f"holds {name}={short_repr(value)}; expected a tensor"))
        moments[name] = value
    return moments


def _check_shape(name: str, values: Tensor, shape: Sequence[int]) -> None:
    """Refuse a moment that does not have its parameter's shape, or (for an empty shape) is not one number."""
    fits = values.shape == tuple(shape) if shape else values.numel() == 1
    if not fits or values.layout != torch.strided:
        kind = "" if values.layout == torch.strided else f" ({values.layout})"
        raise CheckpointError(
            mismatch_message(f"holds {name} of shape {list(values.shape)}{kind}; expected {list(shape)}")
        )


def mismatch_message(what: str) -> str:
    """The error for a state in a file that is not this optimizer's."""
    return f"the checkpoint's optimizer {what}: it was changed, or is another policy's; use another one"
