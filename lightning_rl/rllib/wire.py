"""Arrays, batches and plain data as JSON: what a policy server and its clients send, which never names code."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lightning_rl.errors import short_repr
from lightning_rl.sample_batch import Fragment, MultiAgentBatch, SampleBatch

__all__ = ["decode", "encode"]

KINDS = {"batch": SampleBatch, "fragment": Fragment}


def encode(message: Any) -> bytes:
    """A message as JSON.

    Args:
        message: numbers, text, bytes, arrays, tensors, and batches, in dicts, lists and tuples.

    Raises:
        TypeError: a part is something else.
    """
    return json.dumps(_plain(message)).encode()


def decode(text: bytes) -> Any:
    """The message that `encode` wrote, with tensors in batches and arrays elsewhere.

    Raises:
        ValueError: it is malformed.
    """
    return json.loads(text, object_hook=_part)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.Tensor):
        value = value.numpy(force=True)
    if isinstance(value, np.ndarray) and value.dtype != object:
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"=": "array", "dtype": value.dtype.str, "shape": value.shape, "data": data}
    if isinstance(value, bytes):
        return {"=": "bytes", "data": base64.b64encode(value).decode()}
    if isinstance(value, tuple):
        return {"=": "tuple", "items": [_plain(each) for each in value]}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, MultiAgentBatch):
        parts = {name: _plain(part) for name, part in value.items()}
        return {"=": "policies", "batches": parts, "env_steps": value.env_steps, "num_envs": value.num_envs}
    if isinstance(value, SampleBatch):
        kind = "fragment" if isinstance(value, Fragment) else "batch"
        return {"=": kind, "columns": {name: _plain(column) for name, column in value.items()}}
    if isinstance(value, Mapping):  # whose keys may be numbers
        return {"=": "dict", "items": [[_plain(key), _plain(each)] for key, each in value.items()]}
    raise TypeError(f"{short_repr(value)} cannot be sent: only numbers, text, arrays, and dicts and lists of these can")


def _part(found: dict[str, Any]) -> Any:
    kind = found.get("=")
    if kind == "array":
        data = np.frombuffer(base64.b64decode(found["data"]), np.dtype(found["dtype"]))
        return data.reshape(found["shape"]).copy()
    if kind == "bytes":
        return base64.b64decode(found["data"])
    if kind == "tuple":
        return tuple(found["items"])
    if kind == "dict":
        return dict(found["items"])
    if kind == "policies":
        return MultiAgentBatch(found["batches"], found["env_steps"], found["num_envs"])
    if kind in KINDS:
        return KINDS[kind](found["columns"]).map(torch.as_tensor)
    return found
