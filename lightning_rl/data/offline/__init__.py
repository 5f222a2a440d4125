"""Experience in files: recording it, reading it in many formats, and learning from it without workers."""

from __future__ import annotations

from lightning_rl.data.offline.data_set import DataSet, open_data
from lightning_rl.data.offline.json_files import JsonReader, JsonWriter
from lightning_rl.data.offline.mixed_feed import MixedReplayFeed
from lightning_rl.data.offline.recorder import Recorder
from lightning_rl.data.offline.shards import ShardError, read_shard, write_shard
from lightning_rl.data.offline.source import OfflineSource
from lightning_rl.data.offline.steps import DataSpec, Steps
from lightning_rl.data.offline.summary import summary

__all__ = [
    "DataSet",
    "DataSpec",
    "JsonReader",
    "JsonWriter",
    "MixedReplayFeed",
    "OfflineSource",
    "Recorder",
    "ShardError",
    "Steps",
    "open_data",
    "read_shard",
    "summary",
    "write_shard",
]
