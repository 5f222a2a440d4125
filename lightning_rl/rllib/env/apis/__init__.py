"""RLlib's interfaces that environments may have beside the usual one."""
