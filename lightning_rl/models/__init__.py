"""Models, preprocessors, filters and action distributions, and the catalog that picks them by space."""

from lightning_rl.models.catalog import MODEL_DEFAULTS, ModelCatalog, model_config
from lightning_rl.models.complex_input import ComplexInputNetwork
from lightning_rl.models.fully_connected import FullyConnectedNetwork
from lightning_rl.models.model import Model
from lightning_rl.models.preprocessors import Preprocessor
from lightning_rl.models.vision import VisionNetwork

__all__ = [
    "MODEL_DEFAULTS",
    "ComplexInputNetwork",
    "FullyConnectedNetwork",
    "Model",
    "ModelCatalog",
    "Preprocessor",
    "VisionNetwork",
    "model_config",
]
