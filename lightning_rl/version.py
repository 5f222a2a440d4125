"""The version of this package, which checkpoints record."""

__all__ = ["__version__"]

__version__ = "0.1.0"
