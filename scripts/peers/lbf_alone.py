"""Level-based foraging alone: random actions, no learning; prints its steps per second as JSON.

python scripts/peers/lbf_alone.py --env-steps 20000
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import gymnasium as gym


def main() -> None:
    """Step one environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    env = gym.make("lbforaging:Foraging-8x8-2p-2f-coop-v3", disable_env_checker=True)
    env.action_space.seed(args.seed)
    env.reset(seed=args.seed)
    actions = [env.action_space.sample() for _ in range(1000)]
    started = time.perf_counter()
    for step in range(args.env_steps):
        _, _, terminated, truncated, _ = env.step(actions[step % 1000])
        if terminated or truncated:
            env.reset()
    seconds = time.perf_counter() - started
    rate = args.env_steps / seconds
    rates = {"steps_per_s": rate, "collecting_steps_per_s": rate}  # it only collects
    print(json.dumps({"env_steps": args.env_steps, "seconds": seconds, **rates}))


if __name__ == "__main__":
    main()
