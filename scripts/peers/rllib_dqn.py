"""RLlib's DQN on CartPole-v1 as its tuned example sets it; the last line printed is a JSON object.

`--same-work` gives it the hyperparameters of `sb3_dqn.py`. Runs in its own environment:
`python scripts/benchmark.py setup`.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import ray
import torch
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    LEARNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
)

BIASES = {"fcnet_bias_initializer": "zeros_", "head_fcnet_bias_initializer": "zeros_"}


def tuned() -> DQNConfig:
    """Double, dueling, prioritized, 2 to 5 steps; an update every 5 env steps."""
    model = DefaultModelConfig(fcnet_hiddens=[256], fcnet_activation="tanh", head_fcnet_hiddens=[256], **BIASES)
    replay = {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 50_000, "alpha": 0.6, "beta": 0.4}
    config = DQNConfig().rl_module(model_config=model)
    return config.training(
        lr=5e-4,
        train_batch_size_per_learner=32,
        replay_buffer_config=replay,
        n_step=(2, 5),
        double_q=True,
        dueling=True,
        epsilon=[(0, 1.0), (10_000, 0.02)],
    )


def same_work() -> DQNConfig:
    """rl-zoo's values: 128 updates after every 256 env steps, uniform replay."""
    # The head's one layer is the second of 256; an empty head would leave the network with one.
    model = DefaultModelConfig(fcnet_hiddens=[256], fcnet_activation="relu", head_fcnet_hiddens=[256], **BIASES)
    config = DQNConfig().rl_module(model_config=model).env_runners(rollout_fragment_length=256)
    return config.training(
        lr=2.3e-3,
        train_batch_size_per_learner=64,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 100_000},
        num_steps_sampled_before_learning_starts=1_000,
        training_intensity=32,  # rows replayed for each env step: 64 × 128 / 256
        target_network_update_freq=10,
        grad_clip=10.0,
        gamma=0.99,
        n_step=1,
        double_q=False,
        dueling=False,
        epsilon=[(0, 1.0), (8_000, 0.04)],
    )


def updates_of(result: dict[str, Any], batch_size: int) -> int:
    """Gradient steps so far; the learner counts rows."""
    learner = result.get(LEARNER_RESULTS, {}).get(DEFAULT_MODULE_ID, {})
    return int(learner.get(NUM_MODULE_STEPS_TRAINED_LIFETIME, 0)) // batch_size


def train(args: argparse.Namespace) -> dict[str, float | bool]:
    """Learn; `seconds` is the time inside `train`."""
    config = same_work() if args.same_work else tuned()
    config.environment("CartPole-v1").debugging(seed=args.seed, log_level="ERROR")
    config.reporting(min_sample_timesteps_per_iteration=256)  # how often the return is looked at
    algorithm = config.build_algo()
    env_steps, updates, mean, solved = 0, 0, 0.0, False
    start = time.perf_counter()
    while env_steps < args.env_steps and not solved:
        result = algorithm.train()
        runners = result[ENV_RUNNER_RESULTS]
        env_steps, mean = int(runners[NUM_ENV_STEPS_SAMPLED_LIFETIME]), float(runners.get("episode_return_mean", 0.0))
        updates = updates_of(result, config.total_train_batch_size) or updates
        episodes = int(runners.get("num_episodes_lifetime", 0))
        solved = args.stop_return is not None and episodes >= 100 and mean >= args.stop_return
    seconds = time.perf_counter() - start
    algorithm.stop()
    rates = {"updates_per_s": updates / seconds, "steps_per_s": env_steps / seconds}
    return {"env_steps": env_steps, "updates": updates, "seconds": seconds, **rates, "return": mean, "solved": solved}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env-steps", type=int, default=50_000)
    parser.add_argument("--stop-return", type=float, help="stop once the mean of the last 100 episodes reaches this")
    parser.add_argument("--same-work", action="store_true", help="the hyperparameters of sb3_dqn.py")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=1)
    numbers = train(options)
    ray.shutdown()
    print(json.dumps(numbers))
