"""RLlib's models in PyTorch."""
