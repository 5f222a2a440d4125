"""Sample Factory's APPO on CartPole-v1 with the values of its own example; the last line printed is a JSON object.

Runs in its own environment: `python scripts/benchmark.py setup`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from statistics import fmean
from typing import Any

import gymnasium as gym
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

EXAMPLE = (
    "--algo=APPO",
    "--env=CartPole-v1",
    "--use_rnn=False",
    "--num_envs_per_worker=20",
    "--policy_workers_per_policy=2",
    "--recurrence=1",
    "--with_vtrace=False",
    "--batch_size=512",
    "--reward_scale=0.1",
    "--stats_avg=100",
    "--device=cpu",
)


class Watch(AlgoObserver):
    """Ends the run when the mean of the last 100 episodes, whose length is their return, is high enough; or in time."""

    def __init__(self, goal: float | None, seconds: float) -> None:
        self.goal, self.mean, self.solved = goal, 0.0, False
        self.deadline = time.perf_counter() + seconds

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        lengths = runner.policy_avg_stats.get("len", [[]])[0]
        if len(lengths) >= 100:
            self.mean = fmean(map(float, lengths))
            self.solved = self.goal is not None and self.mean >= self.goal
        if self.solved or time.perf_counter() > self.deadline:
            runner.cfg.train_for_env_steps = 0


def made(name: str, cfg: Any = None, env_config: Any = None, render_mode: Any = None) -> gym.Env[Any, Any]:
    return gym.make(name)


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Learn until the goal, the steps or the time."""
    register_env("CartPole-v1", made)
    with tempfile.TemporaryDirectory() as folder:
        limits = (f"--train_for_env_steps={args.env_steps}",)
        workers = (f"--num_workers={args.workers}", f"--seed={args.seed}", f"--train_dir={folder}")
        argv = [*EXAMPLE, *limits, *workers, "--experiment=cartpole"]
        parser, _ = parse_sf_args(argv=argv)
        _, runner = make_runner(parse_full_cfg(parser, argv))
        watch = Watch(args.stop_return, args.seconds)
        runner.register_observer(watch)
        start = time.perf_counter()
        runner.init()
        runner.run()
        seconds = time.perf_counter() - start
        env_steps = int(sum(runner.env_steps.values()))
    rate = env_steps / seconds
    return {
        "env_steps": env_steps,
        "seconds": seconds,
        "steps_per_s": rate,
        "return": watch.mean,
        "solved": watch.solved,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("algorithm", nargs="?", choices=["appo"], default="appo")
    parser.add_argument("--env-steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=600.0, help="stop after this time")
    parser.add_argument("--stop-return", type=float, help="stop once the mean of the last 100 episodes reaches this")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    numbers = train(parser.parse_args())
    print(json.dumps(numbers))
