"""Memory: an LSTM and a GTrXL on CartPole without velocities, against a network that sees one step at a time.

`use_lstm`, `use_gru` or `use_attention` put a memory behind any model; state, sequences and padding take care of
themselves. The tuned values are those of conf/experiment/ppo_stateless_cartpole.yaml.

Mean return of 500 after 300k env steps of PPO (each 2 minutes): `lstm` ≥ 350 and `feed-forward` ≤ 150; `main` takes
the names of those to train, and "gtrxl" is one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning_rl import Algorithm

MEMORIES: dict[str, dict[str, Any]] = {
    "feed-forward": {"use_lstm": False},
    "lstm": {"use_lstm": True},
    "gtrxl": {
        "use_lstm": False,
        "use_attention": True,
        "attention_memory_inference": 16,
        "attention_memory_training": 16,
    },
}


def main(iterations: int = 293, seed: int = 0, names: Sequence[str] = ("feed-forward", "lstm")) -> dict[str, float]:
    """Train with each memory, and return the best actions' mean return."""
    scores = {}
    for name in names:
        algorithm = Algorithm("ppo", env="stateless_cartpole", config={"seed": seed, "model": MEMORIES[name]})
        for _ in range(iterations):
            algorithm.train()
        scores[name] = algorithm.evaluate()["eval/ep_rew_mean"]
        algorithm.stop()
    return scores


if __name__ == "__main__":
    print(main())
