"""RLlib's batches of experience."""

from lightning_rl.rllib.sample_batch import MultiAgentBatch, SampleBatch

__all__ = ["MultiAgentBatch", "SampleBatch"]
