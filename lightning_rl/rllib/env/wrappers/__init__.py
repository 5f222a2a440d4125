"""RLlib's wrappers of environments."""
