"""PettingZoo's environments by RLlib's names: those of agents that act in turn, and those of all at once."""

from lightning_rl.envs.multi_agent import AECAdapter as PettingZooEnv
from lightning_rl.envs.multi_agent import ParallelAdapter as ParallelPettingZooEnv

__all__ = ["ParallelPettingZooEnv", "PettingZooEnv"]
