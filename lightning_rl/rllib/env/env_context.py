"""The keywords of an environment, with the worker that it runs in."""

from lightning_rl.envs import EnvContext

__all__ = ["EnvContext"]
