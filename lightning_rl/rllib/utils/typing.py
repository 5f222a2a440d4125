"""RLlib's names of types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "AgentID",
    "AlgorithmConfigDict",
    "EnvActionType",
    "EnvConfigDict",
    "EnvCreator",
    "EnvID",
    "EnvInfoDict",
    "EnvObsType",
    "EnvType",
    "EpisodeID",
    "FileType",
    "FromConfigSpec",
    "GradInfoDict",
    "LearnerStatsDict",
    "LocalOptimizer",
    "ModelConfigDict",
    "ModelGradients",
    "ModelWeights",
    "MultiAgentDict",
    "MultiAgentPolicyConfigDict",
    "MultiEnvDict",
    "PartialAlgorithmConfigDict",
    "PartialTrainerConfigDict",
    "PolicyID",
    "PolicyState",
    "ResultDict",
    "SampleBatchType",
    "SpaceStruct",
    "TensorShape",
    "TensorStructType",
    "TensorType",
    "TrainerConfigDict",
    "UnrollID",
]

AgentID = EnvID = EpisodeID = UnrollID = Any
EnvType = EnvObsType = EnvActionType = Any
EnvCreator = Callable[[Any], Any]
ModelGradients = SampleBatchType = SpaceStruct = TensorShape = TensorStructType = TensorType = Any
FileType = FromConfigSpec = LocalOptimizer = Any
PolicyID = str
ModelWeights = PolicyState = ResultDict = GradInfoDict = LearnerStatsDict = dict[str, Any]
ModelConfigDict = TrainerConfigDict = AlgorithmConfigDict = EnvConfigDict = EnvInfoDict = dict[str, Any]
PartialTrainerConfigDict = PartialAlgorithmConfigDict = MultiAgentPolicyConfigDict = dict[str, Any]
MultiAgentDict = dict[AgentID, Any]
MultiEnvDict = dict[EnvID, MultiAgentDict]
