"""RLlib's names of types."""

from __future__ import annotations

from typing import Any

__all__ = [
    "AgentID",
    "EnvType",
    "ModelConfigDict",
    "ModelGradients",
    "ModelWeights",
    "PolicyID",
    "PolicyState",
    "ResultDict",
    "TensorStructType",
    "TensorType",
    "TrainerConfigDict",
]

AgentID = Any
EnvType = Any
ModelConfigDict = dict[str, Any]
ModelGradients = Any
ModelWeights = dict[str, Any]
PolicyID = str
PolicyState = dict[str, Any]
ResultDict = dict[str, Any]
TensorStructType = Any
TensorType = Any
TrainerConfigDict = dict[str, Any]
