"""Self-play: why a league. A policy that only plays against itself chases its own tail; against its past it does not.

In rock, paper, scissors every pure strategy has an answer, and the equilibrium is a third each. A policy that plays
against its present self runs round the circle, faster than it calms down. Against a league of all its past copies
(`callbacks.SelfPlay`) it plays the answer to their mean, as in fictitious play (Brown 1951), smoothed by the entropy
bonus, and that mean comes to rest.

Largest distance of a hand's probability to a third in the last tenth of 51k env steps (20 seconds each), as the rate
falls: `league` ≤ 0.05, `alone` ≥ 0.06; and of the mean of the league's copies: `copies` ≤ 0.03.
"""

from __future__ import annotations

import math
import tempfile
from typing import Any, cast

import torch

from lightning_rl import Algorithm

SETTINGS: dict[str, Any] = {
    "env": {"kwargs": {"repetitions": 1}},  # an episode is one hand, so the observation is constant
    "model": {"fcnet_hiddens": []},
    "policy": {
        "lr": [[0, 0.05], ["100%", 0.0]],
        "gamma": 0.0,
        "passes": 4,
        "minibatches": 1,
        "entropy_coef": 0.35,
        "reward_filter": "none",
    },
    "workers": {"envs_per_worker": 64, "fragment_length": 8},
    "evaluation": {"every_env_steps": 0},
}
LEAGUE = {
    "callback": "lightning_rl.callbacks.SelfPlay",
    "every_env_steps": 512,
    "league_size": 100,
    "share_of_self": 0.0,
}


def strategy(policy: Any) -> torch.Tensor:
    """The probabilities of rock, paper and scissors."""
    return policy.compute_log_likelihoods(torch.arange(3), torch.zeros(3, 6)).exp().detach()


def distance(strategy: torch.Tensor) -> float:
    """The largest difference of a hand's probability to a third."""
    return float((strategy - 1 / 3).abs().max())


def main(env_steps: int = 51_200, seed: int = 0) -> dict[str, float]:
    """Train with and without the league; return the distances to the equilibrium."""
    scores = {}
    for name, callbacks in {"league": [LEAGUE], "alone": []}.items():
        with tempfile.TemporaryDirectory() as folder:
            config = {**SETTINGS, "callbacks": callbacks, "total_env_steps": env_steps, "seed": seed, "run_dir": folder}
            algorithm = Algorithm("ppo", "rock_paper_scissors", config=config)
            played, policy, trained = [], cast(Any, algorithm.policy), 0
            while trained < env_steps:
                trained = algorithm.train()["env_steps"]
                played.append(strategy(policy.policies["shared"]))
            scores[name] = max(map(distance, played[-math.ceil(len(played) / 10) :]))
            if name == "league":
                copies = [strategy(each) for key, each in policy.policies.items() if "past" in key]
                scores["copies"] = distance(torch.stack(copies).mean(0))
            algorithm.stop()
    return scores


if __name__ == "__main__":
    print(main())
