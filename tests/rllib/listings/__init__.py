"""The programs of RLlib's documents, with `ray.rllib` spelled `lightning_rl.rllib` and the ends of loops added."""
