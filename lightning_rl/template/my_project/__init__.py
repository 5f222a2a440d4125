"""An environment, a network and a metric of one's own for lightning_rl."""
