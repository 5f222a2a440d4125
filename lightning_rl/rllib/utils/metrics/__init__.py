"""RLlib's names of the counts in a result."""

__all__ = [
    "NUM_AGENT_STEPS_SAMPLED",
    "NUM_AGENT_STEPS_TRAINED",
    "NUM_ENV_STEPS_SAMPLED",
    "NUM_ENV_STEPS_TRAINED",
]

NUM_ENV_STEPS_SAMPLED, NUM_ENV_STEPS_TRAINED = "num_env_steps_sampled", "num_env_steps_trained"
NUM_AGENT_STEPS_SAMPLED, NUM_AGENT_STEPS_TRAINED = "num_agent_steps_sampled", "num_agent_steps_trained"
