"""RLlib's IMPALA or APPO on CartPole-v1 with the values of its examples; the last line printed is a JSON object.

IMPALA's batch has 512 rows instead of 500, so that whole fragments make it up. Runs in its own environment:
`python scripts/benchmark.py setup`.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import ray
import torch
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME

ROWS = 512


def impala(envs: int) -> IMPALAConfig:
    """One network of 2 × 256 with two heads; a gradient step per batch."""
    config = IMPALAConfig().rl_module(model_config=DefaultModelConfig(vf_share_layers=True))
    config.env_runners(rollout_fragment_length=ROWS // envs)
    return config.training(
        train_batch_size_per_learner=ROWS,
        lr=5e-4,
        grad_clip=40.0,
        grad_clip_by="global_norm",
        vf_loss_coeff=0.05,
        entropy_coeff=0.0,
    )


def appo(envs: int) -> APPOConfig:
    """Two sweeps over 1000 rows in minibatches of 250."""
    config = APPOConfig().rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[32]))
    return config.training(
        train_batch_size_per_learner=1000,
        num_epochs=2,
        minibatch_size=250,
        lr=7.5e-4,
        vf_loss_coeff=0.05,
        entropy_coeff=0.01,
    )


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Learn; `seconds` is counted after a first iteration, which waits for the processes to start."""
    config = {"impala": impala, "appo": appo}[args.algorithm](args.envs)
    config.environment("CartPole-v1").debugging(seed=args.seed, log_level="ERROR")
    config.env_runners(num_env_runners=args.workers, num_envs_per_env_runner=args.envs)
    config.reporting(min_time_s_per_iteration=1)
    algorithm = config.build_algo()
    begun = start = time.perf_counter()
    first, env_steps, mean, solved = None, 0, 0.0, False
    while (first is None or env_steps - first < args.env_steps) and not solved:
        result = algorithm.train()[ENV_RUNNER_RESULTS]
        env_steps = int(result.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))
        if first is None and env_steps:
            first, start = env_steps, time.perf_counter()
        mean, episodes = float(result.get("episode_return_mean", 0.0)), int(result.get("num_episodes_lifetime", 0))
        solved = args.stop_return is not None and episodes >= 100 and mean >= args.stop_return
        if time.perf_counter() - begun > args.seconds:
            break
    seconds = time.perf_counter() - start
    algorithm.stop()
    counted = env_steps - (first or 0)
    rate = counted / seconds
    return {"env_steps": env_steps, "seconds": seconds, "steps_per_s": rate, "return": mean, "solved": solved}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("algorithm", choices=["impala", "appo"])
    parser.add_argument("--env-steps", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after this time")
    parser.add_argument("--stop-return", type=float, help="stop once the mean of the last 100 episodes reaches this")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--envs", type=int, default=8, help="environments in each env runner")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # RLlib's aggregators and learner are actors, too.
    ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=options.workers + 3)
    numbers = train(options)
    ray.shutdown()
    print(json.dumps(numbers))
