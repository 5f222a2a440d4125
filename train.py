"""Train a policy: `python train.py policy=ppo env=cartpole`; the same as `lightning-rl train`."""

import sys

from lightning_rl.cli import run_verb

if __name__ == "__main__":
    sys.exit(run_verb("train", sys.argv[1:]))
