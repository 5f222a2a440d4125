"""RLlib's readers and writers of experience."""

from lightning_rl.rllib.offline.d4rl_reader import D4RLReader
from lightning_rl.rllib.offline.dataset_reader import DatasetReader
from lightning_rl.rllib.offline.input_reader import InputReader
from lightning_rl.rllib.offline.io_context import IOContext
from lightning_rl.rllib.offline.json_reader import JsonReader
from lightning_rl.rllib.offline.json_writer import JsonWriter
from lightning_rl.rllib.offline.mixed_input import MixedInput
from lightning_rl.rllib.offline.output_writer import NoopOutput, OutputWriter
from lightning_rl.rllib.offline.shuffled_input import ShuffledInput

__all__ = [
    "D4RLReader",
    "DatasetReader",
    "IOContext",
    "InputReader",
    "JsonReader",
    "JsonWriter",
    "MixedInput",
    "NoopOutput",
    "OutputWriter",
    "ShuffledInput",
]
