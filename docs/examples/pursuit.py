"""Pursuit: three slow hunters and one fast prey, a policy for each kind, that learn against each other.

The agents have different observations and opposite interests (`mpe2.simple_tag_v3`: a catch pays each hunter 10 and
costs the prey 10). `policies` names the two policies, `policy_mapping` says who acts for whom; both learn by PPO, from
the same episodes. Then hunters and prey play against each other and against random opponents.

A hunter's return in an episode of 25 steps, mean of 200 episodes, after 100k env steps (90 seconds): against a random
prey, `hunters` ≥ 20 where random ones reach `random hunters` ≤ 8; against the trained prey `hunters and prey` ≤ 26.
"""

from __future__ import annotations

import tempfile
from typing import Any, cast

from lightning_rl import Algorithm, PolicySet
from lightning_rl.envs import EnvCreator
from lightning_rl.rollouts import RolloutWorker

MAPPING = {"adversary_*": "hunter", "agent_0": "prey"}
SETTINGS: dict[str, Any] = {
    "policies": {"hunter": {}, "prey": {}},
    "policy_mapping": MAPPING,
    "policy": {"lr": 1e-3, "passes": 4, "minibatches": 8, "entropy_coef": 0.01},
    "workers": {"envs_per_worker": 32, "fragment_length": 64},  # 2,048 env steps an iteration
    "evaluation": {"every_env_steps": 0},
}


def play(env: EnvCreator, hunter: Any, prey: Any, seed: int) -> float:
    """Mean return of a hunter."""
    policies = {"hunter": {"_target_": hunter}, "prey": {"_target_": prey}}
    together = PolicySet(*env.spaces(), policies=policies, policy_mapping=MAPPING, seed=seed)
    worker = RolloutWorker(env, together, num_envs=16, seed=seed)
    played: Any = worker.run_episodes(200)
    worker.stop()
    return sum(each.by_policy["hunter"] for each in played) / len(played)


def main(iterations: int = 49, seed: int = 0) -> dict[str, float]:
    """Train both policies, and return what hunters reach against a random prey and against the trained one."""
    with tempfile.TemporaryDirectory() as folder:
        algorithm = Algorithm("ppo", "simple_tag", config={**SETTINGS, "seed": seed, "run_dir": folder})
        for _ in range(iterations):
            algorithm.train()
        env, policies = algorithm.datamodule.env, cast(Any, algorithm.policy).policies
        scores = {
            "hunters": play(env, policies["hunter"], "random", seed),
            "random hunters": play(env, "random", "random", seed),
            "hunters and prey": play(env, policies["hunter"], policies["prey"], seed),
        }
        algorithm.stop()
    return scores


if __name__ == "__main__":
    print(main())
