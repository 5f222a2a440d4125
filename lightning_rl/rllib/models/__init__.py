"""RLlib's models, preprocessors and action distributions."""

from lightning_rl.rllib.models.action_dist import ActionDistribution
from lightning_rl.rllib.models.catalog import MODEL_DEFAULTS, ModelCatalog
from lightning_rl.rllib.models.modelv2 import ModelV2
from lightning_rl.rllib.models.preprocessors import Preprocessor

__all__ = ["MODEL_DEFAULTS", "ActionDistribution", "ModelCatalog", "ModelV2", "Preprocessor"]
