"""Scenarios of `benchmark.py` for asynchronous learning: IMPALA's env steps a second, APPO's time to solve CartPole."""

from __future__ import annotations

import argparse

from sides import peer

from lightning_rl.cli.benchmarks.cartpole import SOLVED
from lightning_rl.cli.benchmarks.sides import Learned, Side, alternate, best, ours, report

__all__ = ["ASYNC"]

ROWS = 512  # of a training batch, as scripts/peers/rllib_async.py has it
# RLlib's example for CartPole-v1: one network of 2 × 256 with two heads, a gradient step per batch. Its loss has means
# over the batch and half of the squared value error; advantages are as they are.
IMPALA_WORK = (
    "experiment=none",
    "policy.reward_filter=none",
    "model.fcnet_hiddens=[256,256]",
    "model.vf_share_layers=true",
    "policy.lr=5e-4",
    "policy.value_coef=0.025",
    "policy.standardize_advantages=false",
    "policy.entropy_coef=0.0",
    "policy.passes=1",
    "policy.minibatches=1",
    "policy.max_grad_norm=40",
)
NO_EVALUATION = ("evaluation.every_env_steps=0", "stop.return=null")
IMPALA_LEARNED = Learned(
    {30_000: 32.0, 90_000: 65.0},
    "at random it is 22, collapsed 9; the lowest of both sides have 53 after 30k and 138 after 90k env steps",
)
SOLVE_STEPS = 1_000_000  # who has not solved it by then is not compared: its `wall` is a lower bound
SOLVE_SECONDS = 400


def impala(args: argparse.Namespace) -> dict[str, object]:
    """One remote worker with 8 and with 32 environments, equal network, losses and batches; start-up is not counted."""
    sides, pairs, steps = [], [], 3 * args.env_steps
    for envs in (8, 32):
        shape = ("workers.num_workers=1", f"workers.envs_per_worker={envs}", f"workers.fragment_length={ROWS // envs}")
        work = (*IMPALA_WORK, *NO_EVALUATION, *shape, f"total_env_steps={steps}")
        own = ours(f"ours, {envs} envs", *work, policy="impala")
        arguments = ("impala", "--env-steps", str(steps), "--envs", str(envs))
        other = peer(f"rllib, {envs} envs", args.venvs, "rllib_async", *arguments)
        sides += [own, other]
        pairs.append((own.name, other.name, "steady_steps_per_s"))
    rounds = alternate(sides, args.repeats)
    for results in rounds:
        for numbers in results.values():
            numbers.setdefault("steady_steps_per_s", numbers["steps_per_s"])
    return report("impala", rounds, ("steady_steps_per_s", "seconds"), pairs, IMPALA_LEARNED)


def appo_solve(args: argparse.Namespace) -> dict[str, object]:
    """Whole process, from its start to a mean return ≥ 475 over the last 100 training episodes."""
    goal = ("--env-steps", str(SOLVE_STEPS), "--stop-return", "475", "--seconds", str(SOLVE_SECONDS))
    own = ("stop.return=475", "evaluation.every_env_steps=0")
    sides = [
        ours("ours", *own, policy="appo"),
        ours("ours, 1 worker", *own, "workers.num_workers=1", policy="appo"),
        peer("rllib, 1 × 8 envs", args.venvs, "rllib_async", "appo", *goal),
        peer("rllib, 2 × 1 env", args.venvs, "rllib_async", "appo", "--workers", "2", "--envs", "1", *goal),
        *sample_factory(args, *goal),
    ]
    rounds = alternate(sides, args.repeats)
    others = [side.name for side in sides[2:]]
    fastest = best(rounds, others, "wall", lowest=True)
    pairs = [(own.name, fastest, "wall") for own in sides[:2]]
    return report("appo_solve", rounds, ("wall",), pairs, SOLVED)


def sample_factory(args: argparse.Namespace, *arguments: str) -> list[Side]:
    """Sample Factory, where it could be installed."""
    if not (args.venvs / "samplefactory" / "bin" / "python").exists():
        return []
    return [peer("sample factory", args.venvs, "samplefactory_appo", *arguments)]


ASYNC = {"impala": impala, "appo_solve": appo_solve}
