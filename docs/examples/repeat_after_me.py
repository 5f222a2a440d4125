"""Memory: name the symbol that was shown two steps ago, with an LSTM, a GTrXL, and a network without memory.

Each step shows a random symbol of two; naming the one of two steps ago pays 1, the other −1; an episode of 100 steps
pays at most 98, and whoever remembers nothing gets 0 on average.

Mean return after 50k env steps of PPO (20 seconds each): `lstm` ≥ 95, `gtrxl` ≥ 95, `feed-forward` ≤ 20.
"""

from __future__ import annotations

from typing import Any

from lightning_rl import Algorithm

MEMORIES: dict[str, dict[str, Any]] = {
    "feed-forward": {"use_lstm": False},
    "lstm": {"use_lstm": True},
    "gtrxl": {
        "use_lstm": False,
        "use_attention": True,
        "attention_memory_inference": 10,
        "attention_memory_training": 10,
    },
}


def main(iterations: int = 32, seed: int = 0) -> dict[str, float]:
    """Train with each memory, and return the best actions' mean return."""
    scores = {}
    for name, model in MEMORIES.items():
        algorithm = Algorithm("ppo", env="repeat_after_me", config={"seed": seed, "model": model})
        for _ in range(iterations):
            algorithm.train()
        scores[name] = algorithm.evaluate()["eval/ep_rew_mean"]
        algorithm.stop()
    return scores


if __name__ == "__main__":
    print(main())
