"""RLlib's episode that runs in an environment."""

from lightning_rl.rllib.callbacks import Episode
from lightning_rl.rllib.callbacks import Episode as MultiAgentEpisode

__all__ = ["Episode", "MultiAgentEpisode"]
