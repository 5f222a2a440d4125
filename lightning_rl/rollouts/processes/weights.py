"""A policy's state in the form in which it is sent to worker processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["pack", "unpack"]


def pack(policy: Any) -> dict[str, Any]:
    """The policy's state as one flat float32 array and the few tensors of other types: one object, one copy.

    For a policy written from scratch, what its `get_weights` returns; for several policies, one such object each, and
    what was added to them since they were built.
    """
    if policy.agents:
        parts = {policy_id: pack(part) for policy_id, part in policy.policies.items()}
        steps = {policy_id: part.env_steps for policy_id, part in policy.policies.items()}
        return {"parts": parts, "env_steps": steps, "additions": policy.additions}
    if not policy.has_model:
        return {"own": policy.get_weights()}
    state = {name: as_numpy_dtype(tensor) for name, tensor in policy.state_dict().items()}
    floats = [tensor.detach().cpu().numpy().ravel() for tensor in state.values() if tensor.dtype == torch.float32]
    others = {
        name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items() if tensor.dtype != torch.float32
    }
    return {"flat": np.concatenate(floats) if floats else np.empty(0, np.float32), "others": others}


def unpack(policy: Any, packed: Mapping[str, Any]) -> None:
    """Copy the result of `pack` into a policy of the same class and arguments; add the policies that it lacks."""
    if "parts" in packed:
        if packed["additions"]:
            policy.add_policies(**packed["additions"])
        for policy_id, part in packed["parts"].items():
            unpack(policy.policies[policy_id], part)
            policy.policies[policy_id].env_steps = packed["env_steps"][policy_id]  # frozen ones have their own
        return
    if "own" in packed:
        policy.set_weights(packed["own"])
        return
    start = 0
    with torch.no_grad():
        for name, tensor in policy.state_dict().items():
            if tensor.dtype == torch.float32:
                part = packed["flat"][start : start + tensor.numel()]
                tensor.copy_(torch.from_numpy(part.copy()).view_as(tensor))
                start += tensor.numel()
            else:
                tensor.copy_(torch.from_numpy(np.array(packed["others"][name])).view_as(tensor))


def as_numpy_dtype(tensor: torch.Tensor) -> torch.Tensor:
    """Half-precision weights as float32, in which the copies act; numpy has no bfloat16."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
