"""Runs a resolved config: builds the Trainer, chooses devices and precision, and starts the other ranks."""
