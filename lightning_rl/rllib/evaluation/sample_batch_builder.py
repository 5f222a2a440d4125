"""RLlib's builders of batches."""

from lightning_rl.rllib.batch_builders import MultiAgentSampleBatchBuilder, SampleBatchBuilder

__all__ = ["MultiAgentSampleBatchBuilder", "SampleBatchBuilder"]
