"""Experience in files."""

from __future__ import annotations

from lightning_rl.data.offline.json_files import JsonReader, JsonWriter

__all__ = ["JsonReader", "JsonWriter"]
