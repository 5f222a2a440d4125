"""RLlib's functions of tensors by the module's first name."""

from lightning_rl.rllib.utils.torch_utils import (
    FLOAT_MAX,
    FLOAT_MIN,
    apply_grad_clipping,
    convert_to_non_torch_type,
    convert_to_torch_tensor,
    explained_variance,
    huber_loss,
    l2_loss,
    one_hot,
    reduce_mean_ignore_inf,
    sequence_mask,
)

__all__ = [
    "FLOAT_MAX",
    "FLOAT_MIN",
    "apply_grad_clipping",
    "convert_to_non_torch_type",
    "convert_to_torch_tensor",
    "explained_variance",
    "huber_loss",
    "l2_loss",
    "one_hot",
    "reduce_mean_ignore_inf",
    "sequence_mask",
]
