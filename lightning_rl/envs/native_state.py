"""The state of a native vector environment whose attributes are plain: CartPole's are arrays and a generator."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

__all__ = ["load_native_state", "native_state"]

CONSTANT = (Space, EnvSpec, type(None), Mapping)  # attributes that no step changes


def native_state(env: VectorEnv[Any, Any, Any]) -> dict[str, Any] | None:
    """The attributes that steps may change, as copies; `None` if there are some of other kinds than are known here.

    Numbers are arrays without dimensions, and a generator is the state of its bit generator.
    """
    state: dict[str, Any] = {}
    for name, value in vars(env.unwrapped).items():
        if isinstance(value, np.random.Generator):
            state[name] = value.bit_generator.state
        elif isinstance(value, str):
            state[name] = value
        elif isinstance(value, bool | int | float | np.number | np.bool_ | np.ndarray):
            if np.asarray(value).dtype.kind not in "biuf":
                return None
            state[name] = np.array(value)
        elif not isinstance(value, CONSTANT):
            return None
    return state


def load_native_state(env: VectorEnv[Any, Any, Any], state: Mapping[str, Any]) -> bool:
    """Continue where `native_state` was taken; returns whether the environment has those attributes.

    The environment has been reset, so that its generator exists.
    """
    attributes = vars(env.unwrapped)
    if (present := native_state(env)) is None or present.keys() != state.keys():
        return False
    for name, value in state.items():
        own = attributes[name]
        if isinstance(own, np.random.Generator):
            own.bit_generator.state = copy.deepcopy(value)
        elif isinstance(own, np.ndarray):
            attributes[name] = np.array(value, own.dtype)
        else:
            attributes[name] = value if isinstance(own, str) else type(own)(value.item())
    return True
