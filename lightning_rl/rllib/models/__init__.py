"""RLlib's models, preprocessors and action distributions."""

from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.models.preprocessors import Preprocessor
from lightning_rl.rllib.models.action_dist import ActionDistribution
from lightning_rl.rllib.models.catalog import MODEL_DEFAULTS
from lightning_rl.rllib.models.modelv2 import ModelV2

__all__ = ["MODEL_DEFAULTS", "ActionDistribution", "ModelCatalog", "ModelV2", "Preprocessor"]
