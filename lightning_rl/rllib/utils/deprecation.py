"""RLlib's mark of keys without meaning."""

__all__ = ["DEPRECATED_VALUE"]

DEPRECATED_VALUE = -1
