"""RLlib's functions of tensors by the module's first name."""

from lightning_rl.rllib.utils.torch_utils import *  # noqa: F403
from lightning_rl.rllib.utils.torch_utils import __all__ as __all__
