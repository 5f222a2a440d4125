"""From a resolved config to a finished run: Trainer, precision, launchers, and the ranks that learn together."""
