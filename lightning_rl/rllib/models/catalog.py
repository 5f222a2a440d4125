"""RLlib's catalog of models."""

from lightning_rl.models.catalog import MODEL_DEFAULTS, ModelCatalog

__all__ = ["MODEL_DEFAULTS", "ModelCatalog"]
