"""What asynchronous learning cannot do: refused before it starts."""

from __future__ import annotations

from lightning_rl.errors import ConfigError, did_you_mean

__all__ = ["ORDERS", "check_choices"]

ORDERS = ("ready", "fixed")


def check_choices(
    order: str, max_outstanding_mb: float, replay_proportion: float, replay_slots: int, num_aggregators: int
) -> None:
    """Refuse what makes no sense.

    Raises:
        ConfigError: names the key, its value and what it may be.
    """
    if order not in ORDERS:
        raise ConfigError(f"data.order={order!r} is unknown; choose ready or fixed.{did_you_mean(order, ORDERS)}")
    if max_outstanding_mb <= 0 or replay_proportion < 0 or num_aggregators < 0:
        raise ConfigError(
            f"data.max_outstanding_mb={max_outstanding_mb}, data.replay_proportion={replay_proportion}, "
            f"data.num_aggregators={num_aggregators}; expected the first above 0, the others at least 0"
        )
    if replay_proportion > 0 and replay_slots < 1:
        raise ConfigError(
            f"data.replay_slots={replay_slots} with data.replay_proportion={replay_proportion}: keep at least 1 "
            "fragment, or set the proportion to 0"
        )
