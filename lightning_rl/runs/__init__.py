"""From a resolved config to a finished run: the Trainer, its devices and precision, and the ranks that learn together."""
