"""RLlib's base of models, which is PyTorch's here."""

from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2 as ModelV2

__all__ = ["ModelV2"]
