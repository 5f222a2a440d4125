"""Rollout workers in processes that a supervisor starts, watches and restarts; nothing here imports Ray."""
