"""Examines a machine or an environment, and says what to fix: the checks of `lightning-rl doctor` and `check-env`."""
