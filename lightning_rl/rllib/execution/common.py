"""The counts of an execution plan, and their names in its results."""

from lightning_rl.rllib.plans import STEPS_SAMPLED_COUNTER
from lightning_rl.rllib.plans import get_shared_metrics as _get_shared_metrics

__all__ = [
    "AGENT_STEPS_SAMPLED_COUNTER",
    "AGENT_STEPS_TRAINED_COUNTER",
    "STEPS_SAMPLED_COUNTER",
    "STEPS_TRAINED_COUNTER",
    "_get_shared_metrics",
]

STEPS_TRAINED_COUNTER = "num_steps_trained"
AGENT_STEPS_SAMPLED_COUNTER, AGENT_STEPS_TRAINED_COUNTER = "num_agent_steps_sampled", "num_agent_steps_trained"
