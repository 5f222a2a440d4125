"""RLlib's errors."""

from lightning_rl.errors import EnvError
from lightning_rl.errors import UnsupportedSpaceError as UnsupportedSpaceException

__all__ = ["EnvError", "UnsupportedSpaceException"]
