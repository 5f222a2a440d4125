"""RLlib's PPO on CartPole-v1 as its tuned example sets it; the last line printed is a JSON object.

Runs in its own environment: `python scripts/benchmark.py setup`.
"""

from __future__ import annotations

import argparse
import json
import time

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME


def train(args: argparse.Namespace) -> dict[str, float]:
    """Learn for `args.env_steps` after a first iteration that is not counted (it waits for the processes to start)."""
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=args.workers, num_envs_per_env_runner=args.envs)
        .training(lr=0.0003, num_epochs=6, vf_loss_coeff=0.01)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[32], fcnet_activation="linear", vf_share_layers=True))
        .debugging(seed=args.seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    result = algorithm.train()
    first = result[ENV_RUNNER_RESULTS][NUM_ENV_STEPS_SAMPLED_LIFETIME]
    start, env_steps = time.perf_counter(), first
    while env_steps - first < args.env_steps:
        result = algorithm.train()
        env_steps = result[ENV_RUNNER_RESULTS][NUM_ENV_STEPS_SAMPLED_LIFETIME]
    seconds = time.perf_counter() - start
    mean = float(result[ENV_RUNNER_RESULTS].get("episode_return_mean", 0.0))
    algorithm.stop()
    counted = int(env_steps - first)
    return {"env_steps": counted, "seconds": seconds, "steps_per_s": counted / seconds, "return": mean}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env-steps", type=int, default=30_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--envs", type=int, default=1, help="environments in each env runner")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # the learner's: 2 to 4 × as many steps a second on 2 cores as with torch's own number
    ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=options.workers + 1)
    numbers = train(options)
    ray.shutdown()
    print(json.dumps(numbers))
