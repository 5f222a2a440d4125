"""This project's off-policy learning and the hand-written loops, in one process and by turns.

    python scripts/in_turns.py dqn --env-steps 15000
    python scripts/in_turns.py sac --env-steps 3000 --loops bare

Each iteration of ours is followed by as many env steps of each loop, with equal hyperparameters and networks: what
slows the machine down meets all of them alike. The first iterations, without gradient steps, are not counted. A side
that has not learned what its env steps allow is an error, as in `benchmark.py`.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from lightning.pytorch import Callback
from off_policy_benchmark import (
    DQN_LEARNED,
    DQN_STARTS,
    DQN_WORK,
    NO_EVALUATION,
    SAC_LEARNED,
    SAC_STARTS,
    SAC_WORK,
)

from lightning_rl.cli.benchmarks.sides import not_learned
from lightning_rl.config import check_config, compose_config
from lightning_rl.runs.run import build, fit

sys.path.append(str(Path(__file__).parent / "peers"))
import dqn_loop
import sac_loop

CASES: dict[str, Any] = {
    "dqn": (dqn_loop, "cartpole", DQN_WORK, ("--learning-starts", str(DQN_STARTS)), DQN_STARTS, DQN_LEARNED),
    "sac": (sac_loop, "pendulum", SAC_WORK, ("--learning-starts", str(SAC_STARTS)), SAC_STARTS, SAC_LEARNED),
}


class Turns(Callback):
    """Lets each loop do what our iteration just did, and keeps the seconds.

    Args:
        loops: by name; those named "bare" count denormal numbers as zero.
        starts: env steps before the first gradient step, which are not counted.
    """

    def __init__(self, loops: dict[str, Any], starts: int) -> None:
        self.loops, self.starts = loops, starts
        self.seconds: dict[str, list[float]] = {name: [] for name in ("ours", *loops)}
        self.env_steps = 0

    def on_train_batch_start(self, trainer: Any, policy: Any, batch: Any, batch_idx: int) -> None:
        self.env_steps, self.began = policy.env_steps, time.perf_counter()

    def on_train_batch_end(self, trainer: Any, policy: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        taken = {"ours": time.perf_counter() - self.began}
        for name, loop in self.loops.items():
            torch.set_flush_denormal(name == "bare")
            began = time.perf_counter()
            loop.advance(policy.env_steps - self.env_steps)
            taken[name] = time.perf_counter() - began
        torch.set_flush_denormal(False)
        if self.env_steps > self.starts:
            for name, seconds in taken.items():
                self.seconds[name].append(seconds)


def main() -> None:
    """Run, and print how many times as fast ours is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--env-steps", type=int, default=15_000)
    parser.add_argument("--loops", nargs="+", choices=["bare", "plain"], default=["bare", "plain"])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    program, env, work, given, starts, learned = CASES[args.case]
    torch.set_num_threads(1)
    options = program.arguments([*given, f"--seed={args.seed}"])
    loops = {name: program.Loop(options, getattr(program, name.capitalize())) for name in args.loops}
    turns = Turns(loops, starts)
    with tempfile.TemporaryDirectory(prefix="in_turns_") as folder:
        overrides = (f"policy={args.case}", f"env={env}", *work, *NO_EVALUATION, f"total_env_steps={args.env_steps}")
        more = (f"seed={args.seed}", "torch_threads=1", f"run_dir={folder}/run")
        config = compose_config([*overrides, *more])
        check_config(config)
        policy, datamodule, trainer = build(config)
        trainer.callbacks.append(turns)  # type: ignore[attr-defined]
        fit(policy, datamodule, trainer)
    returns = {"ours": datamodule.episode_window.returns, **{name: loop.env.returns for name, loop in loops.items()}}
    numbers = {n: {"env_steps": args.env_steps, "return": mean(own or [math.nan])} for n, own in returns.items()}
    print("return: " + ", ".join(f"{name} {each['return']:.1f}" for name, each in numbers.items()))
    if missing := not_learned(numbers, learned):
        raise SystemExit("\n".join(f"error: not compared: {line}" for line in missing))
    own = turns.seconds.pop("ours")
    for name, seconds in turns.seconds.items():
        each = sorted(theirs / ours for ours, theirs in zip(own, seconds, strict=True))
        middle = f"half of the turns between {each[len(each) // 4]:.2f} and {each[-len(each) // 4]:.2f}"
        print(f"{args.case}: {median(each):.3f} x {name}, {sum(seconds) / sum(own):.3f} x in total; {middle}")


if __name__ == "__main__":
    main()
