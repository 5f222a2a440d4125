"""RLlib's functions of spaces."""
