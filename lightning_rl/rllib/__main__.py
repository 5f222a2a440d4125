"""`python -m lightning_rl.rllib train --run=PPO --env=CartPole-v0`: RLlib's command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from lightning_rl.rllib import run


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m lightning_rl.rllib train --run=PPO --env=CartPole-v0 --config='{"train_batch_size": 4000}'`."""
    parser = argparse.ArgumentParser(prog="python -m lightning_rl.rllib", description="RLlib's command line.")
    parser.add_argument("verb", choices=["train"])
    parser.add_argument("--run", required=True)
    parser.add_argument("--env", required=True)
    parser.add_argument("--config", default="{}", type=json.loads)
    parser.add_argument("--stop", default='{"training_iteration": 100}', type=json.loads)
    given = parser.parse_args(arguments)
    print(run(given.run, stop=given.stop, config={**given.config, "env": given.env}))


if __name__ == "__main__":
    main()
