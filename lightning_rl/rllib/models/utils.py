"""RLlib's activations by name."""

from __future__ import annotations

from torch import nn

from lightning_rl.errors import ConfigError, did_you_mean

__all__ = ["get_activation_fn"]

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "swish": nn.SiLU, "silu": nn.SiLU}


def get_activation_fn(name: str | type[nn.Module] | None = None, framework: str = "torch") -> type[nn.Module] | None:
    """The class of an activation; `None` of "linear" and of `None`; a class as it is.

    Raises:
        ConfigError: there is no such activation.
    """
    if name is None or not isinstance(name, str):
        return name
    if name != "linear" and name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ConfigError(f"no activation {name!r}.{did_you_mean(name, ACTIVATIONS)} There are: linear, {known}")
    return ACTIVATIONS.get(name)
