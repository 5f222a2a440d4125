"""RLlib's base of models, which is PyTorch's here."""

from typing import Any

from gymnasium import Space
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.models.preprocessors import make_preprocessor
from lightning_rl.rllib.models.torch.torch_modelv2 import TorchModelV2 as ModelV2

__all__ = ["ModelV2", "restore_original_dimensions"]


def restore_original_dimensions(obs: Tensor, obs_space: Space[Any], tensorlib: Any = "torch") -> Any:
    """Preprocessed observations `[N, F]` in the structure of the environment's space.

    Args:
        obs: vectors, such as those of a file.
        obs_space: the observation space of a model; without `original_space` the observations stay as they are.
        tensorlib: can only be "torch".

    Raises:
        ConfigError: another `tensorlib`.
    """
    if tensorlib != "torch" and getattr(tensorlib, "__name__", "") != "torch":
        raise ConfigError(f"tensorlib={tensorlib!r}; here it can only be 'torch'")
    original = getattr(obs_space, "original_space", None)
    return obs if original is None else make_preprocessor(original).restore(obs)
