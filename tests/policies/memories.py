"""Configs of small models with memory."""

from __future__ import annotations

from typing import Any

SMALL = {"fcnet_hiddens": [8], "lstm_cell_size": 6, "max_seq_len": 5}

MEMORIES: dict[str, dict[str, Any]] = {
    "lstm": {"use_lstm": True, **SMALL},
    "gru": {"use_gru": True, **SMALL},
    "time-major": {"use_lstm": True, "_time_major": True, **SMALL},
    "previous": {"use_lstm": True, "lstm_use_prev_action": True, "lstm_use_prev_reward": True, **SMALL},
    "attention": {
        "use_attention": True,
        "attention_num_transformer_units": 2,
        "attention_dim": 6,
        "attention_num_heads": 2,
        "attention_memory_inference": 7,
        "attention_memory_training": 7,
        "attention_use_n_prev_actions": 3,
        "attention_use_n_prev_rewards": 2,
        **SMALL,
    },
}
