"""Adds memory behind a model: the `use_lstm`, `use_gru` and `use_attention` keys of a model config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from lightning_rl.errors import ConfigError
from lightning_rl.models.attention import TransformerNetwork
from lightning_rl.models.model import Model
from lightning_rl.models.recurrent import PreviousSteps, RecurrentModel, RecurrentNetwork
from lightning_rl.schema.ranges import Range, Width

__all__ = ["MemoryConfig", "add_memory", "memory_kind"]

Cells = Annotated[int, Range(1, 8192)]
Steps = Annotated[int, Range(0, 65_536)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """The keys of a model config that put memory behind a model."""

    use_lstm: bool = False  # an LSTM behind the model, custom ones too
    use_gru: bool = False  # a GRU behind the model; the lstm_ keys apply to it as well
    max_seq_len: Width = 20  # length of sequences in learning: the number of steps a gradient flows back
    lstm_cell_size: Cells = 256
    lstm_use_prev_action: bool = False  # input the previous action (one-hot if discrete)
    lstm_use_prev_reward: bool = False
    _time_major: bool = False  # recurrent models get [L, S, F] instead of [S, L, F]
    use_attention: bool = False  # GTrXL behind the model
    attention_num_transformer_units: Annotated[int, Range(1, 256)] = 1
    attention_dim: Cells = 64
    attention_num_heads: Annotated[int, Range(1, 256)] = 1
    attention_head_dim: Cells = 32
    attention_memory_inference: Steps = 50  # earlier steps that acting attends to
    attention_memory_training: Steps = 50  # the same for learning
    attention_position_wise_mlp_dim: Cells = 32
    attention_init_gru_gate_bias: float = 2.0
    attention_use_n_prev_actions: Steps = 0
    attention_use_n_prev_rewards: Steps = 0


def memory_kind(config: Mapping[str, Any]) -> str | None:
    """The memory that a model config chooses: "lstm", "gru", "attention" or `None`.

    Raises:
        ConfigError: more than one.
    """
    chosen = [key for key in ("use_lstm", "use_gru", "use_attention") if config[key]]
    if len(chosen) > 1:
        raise ConfigError(f"model.{chosen[0]} and model.{chosen[1]} exclude each other: set one of them to false")
    return chosen[0].removeprefix("use_") if chosen else None


def add_memory(config: Mapping[str, Any], wrapped: Model, num_outputs: int, free: Mapping[str, Any]) -> Model:
    """Build the memory that `config` chooses, behind `wrapped`, whose outputs are the features.

    Args:
        config: a whole model config.
        wrapped: the model in front, without its own memory.
        num_outputs: number of inputs of the action distribution.
        free: "free_columns" and "free_init" of `ActionHead`, or nothing.

    Raises:
        ConfigError: the wrapped model has state.
    """
    kind = memory_kind(config)
    if isinstance(wrapped, RecurrentModel) or wrapped.get_initial_state():
        raise ConfigError(
            f"model.use_{kind}=true puts memory behind {type(wrapped).__name__}, which has its own: set it to false"
        )
    heads: dict[str, Any] = {"initializer": config["fcnet_weights_initializer"], **free}
    if kind == "attention":
        before = (config["attention_use_n_prev_actions"], config["attention_use_n_prev_rewards"])
        own = {
            key.removeprefix("attention_"): value
            for key, value in config.items()
            if key.startswith("attention_") and not key.startswith("attention_use_")
        }
        return TransformerNetwork(wrapped, num_outputs, PreviousSteps(wrapped.action_space, *before), **own, **heads)
    before = (int(config["lstm_use_prev_action"]), int(config["lstm_use_prev_reward"]))
    return RecurrentNetwork(
        wrapped,
        num_outputs,
        PreviousSteps(wrapped.action_space, *before),
        cell=str(kind),
        cell_size=config["lstm_cell_size"],
        time_major=config["_time_major"],
        **heads,
    )
