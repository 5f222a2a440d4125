"""PPO on CartPole against the same work in plain torch: time to solve, equal work, throughput.

A benchmark reports; that a side has not learned what its work allows is an error. `python scripts/benchmark.py` of the
source checkout compares with other packages as well.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning_rl.cli.benchmarks.sides import Learned, alternate, ours, report, torch_loop

__all__ = ["LEARNED", "NO_EVALUATION", "SAME_WORK", "SCENARIOS", "SOLVED", "THROUGHPUT_LOOP", "machine", "measure"]

# rl-zoo's tuned PPO for CartPole-v1, which torch_loop.py has as its defaults.
SAME_WORK = (
    "experiment=none",
    "policy.reward_filter=none",
    "policy.passes=20",
    "policy.minibatches=1",
    "policy.gamma=0.98",
    "policy.gae_lambda=0.8",
    "policy.entropy_coef=0.0",
    "policy.value_coef=0.5",
    "policy.max_grad_norm=0.5",
    "policy.lr=[[0,0.001],[100000,0.0]]",
    "policy.clip=[[0,0.2],[100000,0.0]]",
    "+policy.optimizer_kwargs.eps=1e-5",
    "model.fcnet_hiddens=[64,64]",
    "model.fcnet_activation=tanh",
    "workers.envs_per_worker=8",
    "workers.fragment_length=32",
)
NO_EVALUATION = ("evaluation.every_env_steps=0", "stop.return=null")
LEARNED = Learned(
    {10_000: 40.0, 20_000: 65.0, 30_000: 95.0, 300_000: 120.0},
    "half of the lowest return of torch_loop.py with seeds 0 to 2, after 300k env steps with 0; at random it is 22",
)
SOLVED = Learned({0: 475.0}, "the goal; at its limit of env steps or time, it has not solved the task")
THROUGHPUT_LOOP = ("--native", "--no-schedule", "--envs=64", "--fragment=128", "--passes=4", "--minibatches=4")


def solve(repeats: int, env_steps: int) -> dict[str, Any]:
    """Whole process, from its start to a mean return of 475 over the last 100 training episodes."""
    del env_steps
    rounds = alternate([ours("ours", "stop.return=475", "evaluation=none")], repeats)
    return report("solve", rounds, ("wall",), [], SOLVED)


def same_work(repeats: int, env_steps: int) -> dict[str, Any]:
    """rl-zoo's hyperparameters on every side, a fixed number of env steps; only the loop is timed."""
    steps = str(env_steps)
    work = (*SAME_WORK, *NO_EVALUATION, f"total_env_steps={steps}")
    sides = [
        ours("ours", *work, "workers.vectorization=sync"),
        torch_loop("torch", "--env-steps", steps),
        torch_loop("torch, plain idioms", "--env-steps", steps, "--plain"),
    ]
    rounds = alternate(sides, repeats)
    pairs = [("ours", "torch", "steps_per_s"), ("ours", "torch, plain idioms", "steps_per_s")]
    return report("same_work", rounds, ("steps_per_s", "seconds"), pairs, LEARNED)


def throughput(repeats: int, env_steps: int) -> dict[str, Any]:
    """The throughput preset against what environment, forwards and gradient steps alone would allow."""
    steps = str(10 * env_steps)
    sides = [
        ours("ours", "experiment=cartpole_throughput", *NO_EVALUATION, f"total_env_steps={steps}"),
        torch_loop("bound", *THROUGHPUT_LOOP, "--measure-bound"),
        torch_loop("torch", *THROUGHPUT_LOOP, "--env-steps", steps),
    ]
    rounds = alternate(sides, repeats)
    pairs = [("ours", "bound", "steps_per_s"), ("ours", "torch", "steps_per_s")]
    return report("throughput", rounds, ("steps_per_s",), pairs, LEARNED, idle=["bound"])


SCENARIOS: Mapping[str, Callable[[int, int], dict[str, Any]]] = {
    "solve": solve,
    "same_work": same_work,
    "throughput": throughput,
}


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}


def measure(names: Sequence[str], repeats: int, env_steps: int, file: Path | None = None) -> dict[str, Any]:
    """Measure scenarios one after the other, and print a table for each.

    Args:
        names: some of `SCENARIOS`.
        repeats: rounds of each; a side runs once a round, with the round's number as its seed.
        env_steps: the number of env steps of a side in same_work; ten times as many in throughput.
        file: JSON with all numbers, written after each scenario: a later one that fails loses nothing.
    """
    output: dict[str, Any] = {"machine": machine(), "repeats": repeats, "scenarios": []}
    for name in names:
        output["scenarios"].append(SCENARIOS[name](repeats, env_steps))
        if file is not None:
            file.write_text(json.dumps(output, indent=2), encoding="utf-8")
    return output
