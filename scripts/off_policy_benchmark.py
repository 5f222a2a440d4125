"""Scenarios of `benchmark.py` for algorithms that learn from replay: DQN on CartPole, SAC on Pendulum."""

from __future__ import annotations

import argparse
import os

from sides import loop, peer

from lightning_rl.cli.benchmarks.cartpole import SOLVED
from lightning_rl.cli.benchmarks.sides import Learned, Side, alternate, best, ours, report

__all__ = ["OFF_POLICY"]

DQN_STARTS, DQN_INTENSITY = 1_000, 0.5
# rl-zoo's tuned DQN for CartPole-v1, as scripts/peers/sb3_dqn.py has it. Its target network is copied every 10 env
# steps, that is: as often as the network changes, once before the 128 updates that follow each 256 env steps.
DQN_WORK = (
    "experiment=none",
    f"data.learning_starts={DQN_STARTS}",
    f"data.update_to_data_ratio={DQN_INTENSITY}",
    "data.capacity=100_000",
    "data.batch_size=64",
    "data.n_step=1",
    "workers.envs_per_worker=1",
    "workers.fragment_length=256",
    "policy.double=false",
    "policy.lr=0.0023",
    "policy.gamma=0.99",
    "policy.target_update_interval=128",
    "policy.max_grad_norm=10",
    "exploration.final_epsilon=0.04",
    "exploration.epsilon_timesteps=8000",
    "model.fcnet_hiddens=[256,256]",
    "model.fcnet_activation=relu",
    "model.fcnet_weights_initializer=default",
)
SAC_STARTS = 256  # a batch
SAC_WORK = (
    "experiment=none",
    f"data.learning_starts={SAC_STARTS}",
    "data.update_to_data_ratio=1",
    "data.capacity=100_000",
    "data.batch_size=256",
    "data.fragments_per_iteration=100",  # 100 env steps and updates, one by one, in a Lightning batch
    "data.n_step=1",
    "workers.envs_per_worker=1",
    "workers.fragment_length=1",
    "policy.lr=0.0003",
    "policy.gamma=0.99",
    "model.fcnet_hiddens=[256,256]",
    "model.fcnet_activation=relu",
    "model.fcnet_weights_initializer=default",
)
NO_EVALUATION = ("evaluation.every_env_steps=0", "stop.return=null")
TUNED = ("policy.lr=[[0,2.3e-3],[50_000,0]]", "exploration.epsilon_timesteps=8000")  # for 50,000 env steps
DQN_LEARNED = Learned({15_000: 45.0}, "half of what the bare loop and ours have, 99 to 102; at random it is 22")
SAC_LEARNED = Learned({5_000: -1050.0}, "the bare loop has −734 in its last 20 episodes of 25; at random it is −1,200")
SOLVE_STEPS = 200_000  # who has not solved it by then is not compared: its `wall` is a lower bound


def threads(args: argparse.Namespace) -> list[int]:
    """One torch thread, and one per core."""
    return [1] if args.one_thread else sorted({1, os.cpu_count() or 1})


def sb3_dqn(args: argparse.Namespace, *arguments: str) -> list[Side]:
    """Stable-Baselines3 by torch threads: the fastest is the peer."""
    counts = {f"sb3, {count}": ("--threads", str(count)) for count in threads(args)}
    return [peer(name, args.venvs, "sb3_dqn", *arguments, *count) for name, count in counts.items()]


def dqn(args: argparse.Namespace) -> dict[str, object]:
    """Gradient updates a second at SB3's hyperparameters over a fixed number of env steps; only the loop is timed."""
    steps = ("--env-steps", str(args.env_steps))
    peers = sb3_dqn(args, *steps)
    sides = [
        ours("ours", *DQN_WORK, *NO_EVALUATION, f"total_env_steps={args.env_steps}", policy="dqn"),
        loop("torch", *steps, program="dqn_loop"),
        loop("torch, bare", *steps, "--bare", program="dqn_loop"),
        peer("cleanrl", args.venvs, "sb3_cleanrl_dqn", *steps),
        peer("rllib", args.venvs, "rllib_dqn", *steps, "--same-work"),
    ]
    rounds = alternate([*sides, *peers], args.repeats)
    for results in rounds:
        numbers = results["ours"]  # the ratio is held exactly, so the updates follow from the env steps
        numbers["updates"] = int((numbers["env_steps"] - DQN_STARTS) * DQN_INTENSITY)
        numbers["updates_per_s"] = numbers["updates"] / numbers["seconds"]
    fastest = best(rounds, [side.name for side in peers], "updates_per_s")
    pairs = [("ours", other, "updates_per_s") for other in (fastest, "cleanrl", "torch", "rllib", "torch, bare")]
    return report("dqn", rounds, ("updates_per_s", "steps_per_s", "seconds"), pairs, DQN_LEARNED)


def dqn_solve(args: argparse.Namespace) -> dict[str, object]:
    """Whole process, from its start to a mean return ≥ 475 over the last 100 training episodes."""
    goal = ("--env-steps", str(SOLVE_STEPS), "--stop-return", "475")
    peers = [
        *sb3_dqn(args, *goal),
        loop("torch", *goal, program="dqn_loop"),
        peer("rllib", args.venvs, "rllib_dqn", *goal),
    ]
    own = ours(
        "ours",
        "stop.return=475",
        f"total_env_steps={SOLVE_STEPS}",
        "evaluation.every_env_steps=0",
        *TUNED,
        policy="dqn",
    )
    rounds = alternate([own, *peers], args.repeats)
    pairs = [("ours", side.name, "wall") for side in peers]
    return report("dqn_solve", rounds, ("wall",), pairs, SOLVED)


def sac(args: argparse.Namespace) -> dict[str, object]:
    """Steps a second on Pendulum at one update an env step; a sixth of `--env-steps`. Only the loop is timed."""
    steps = args.env_steps // 6
    work = ("--env-steps", str(steps), "--learning-starts", str(SAC_STARTS))
    own = (*SAC_WORK, *NO_EVALUATION, f"total_env_steps={steps}")
    names: dict[str, list[str]] = {"ours": [], "sb3": [], "torch": [], "bare": []}
    sides: list[Side] = []
    for count in threads(args):
        shared = (*work, "--threads", str(count))
        sides += [
            ours(f"ours, {count}", *own, f"torch_threads={count}", policy="sac", env="pendulum"),
            loop(f"bare, {count}", *shared, "--bare", program="sac_loop"),
            loop(f"torch, {count}", *shared, program="sac_loop"),
            peer(f"sb3, {count}", args.venvs, "sb3_sac", *shared),
        ]
    for side in sides:
        names[side.name.split(",")[0]].append(side.name)
    rounds = alternate(sides, args.repeats)
    fastest, *others = (best(rounds, of_one, "steps_per_s") for of_one in names.values())
    pairs = [(fastest, other, "steps_per_s") for other in others]
    return report("sac", rounds, ("steps_per_s", "seconds"), pairs, SAC_LEARNED)


OFF_POLICY = {"dqn": dqn, "dqn_solve": dqn_solve, "sac": sac}
