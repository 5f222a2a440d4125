"""RLlib's abstract class of policies by its first name."""

from lightning_rl.rllib.torch_policy import Policy as PolicyGraph

__all__ = ["PolicyGraph"]
