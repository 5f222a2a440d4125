"""The returns of the last and the best policy that a run reports, and which checkpoint a command takes."""

from __future__ import annotations

SHORT = ("env=cartpole", "experiment=none", "total_env_steps=600", "workers.fragment_length=32")
WHOLE = ("evaluation.every_env_steps=200", "evaluation.episodes=2", "evaluation.max_share=null")
