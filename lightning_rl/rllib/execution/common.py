"""RLlib's names of the counts in a result of an execution plan."""

__all__ = [
    "AGENT_STEPS_SAMPLED_COUNTER",
    "AGENT_STEPS_TRAINED_COUNTER",
    "STEPS_SAMPLED_COUNTER",
    "STEPS_TRAINED_COUNTER",
]

STEPS_SAMPLED_COUNTER, STEPS_TRAINED_COUNTER = "num_steps_sampled", "num_steps_trained"
AGENT_STEPS_SAMPLED_COUNTER, AGENT_STEPS_TRAINED_COUNTER = "num_agent_steps_sampled", "num_agent_steps_trained"
