"""An environment, a network and your own metric for lightning_rl."""
