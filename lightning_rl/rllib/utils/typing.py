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
    "ResultDict",
    "TensorType",
    "TrainerConfigDict",
]

AgentID = Any
EnvType = Any
ModelConfigDict = dict[str, Any]
ModelGradients = Any
ModelWeights = dict[str, Any]
PolicyID = str
ResultDict = dict[str, Any]
TensorType = Any
TrainerConfigDict = dict[str, Any]
