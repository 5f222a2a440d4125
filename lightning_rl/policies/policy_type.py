"""How a policy is built: the one place that checks, remembers and freezes, for any class with any constructor."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from lightning_rl.errors import ConfigError, did_you_mean
from lightning_rl.schema.signatures import check_arguments

__all__ = ["PolicyType"]


class PolicyType(ABCMeta):
    """The type of policy classes: calling a class checks the arguments, builds the policy and freezes parameters."""

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        """A policy of this class.

        Workers and checkpoints build the same policy again from the arguments, which the policy keeps.

        Raises:
            ConfigError: a keyword is unknown or out of its range, or `freeze` names no parameter.
        """
        args, keywords = check_arguments("policy", cls, args, keywords)
        policy = super().__call__(*args, **keywords)
        policy.__dict__["_constructor"] = args, keywords
        if policy.frozen_names:
            freeze_parameters(policy, policy.frozen_names)
        return policy

    @property
    def __signature__(cls) -> inspect.Signature:
        """The constructor's, for `inspect.signature`, which would find that of `__call__`."""
        signature = inspect.signature(cls.__init__)
        return signature.replace(parameters=[*signature.parameters.values()][1:])


def freeze_parameters(policy: nn.Module, patterns: Sequence[str]) -> None:
    """Stop the gradients of the parameters that the patterns name.

    Raises:
        ConfigError: a pattern matches no parameter, or none is left to train.
    """
    named = {name: parameter for name, parameter in policy.named_parameters() if parameter.requires_grad}
    for pattern in patterns:
        found = [name for name in named if fnmatchcase(name, pattern)]
        if not found:
            raise ConfigError(
                f"policy.freeze: {pattern!r} matches no parameter.{did_you_mean(pattern, named)} They are "
                f"{', '.join(named)}"
            )
        for name in found:
            named[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in named.values()):
        raise ConfigError(f"policy.freeze={list(patterns)} leaves no parameter to train")
