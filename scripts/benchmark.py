"""This project against its peers and plain torch: time to solve, throughput, workers, Atari, replay, several agents.

    python scripts/benchmark.py setup --venvs DIR           # each peer gets a virtual environment; needs pip
    python scripts/benchmark.py solve --repeats 5 --json solve.json
    python scripts/benchmark.py all

How the sides take turns and are compared is in `sides.py`. A benchmark reports; its exit code is 1 if a side has not
learned what its work allows, and then it is not compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from async_benchmark import ASYNC
from multi_agent_benchmark import MULTI_AGENT
from off_policy_benchmark import OFF_POLICY
from replay_benchmark import replay
from sides import peer

from lightning_rl.cli.benchmarks.cartpole import LEARNED, NO_EVALUATION, SAME_WORK, SOLVED, THROUGHPUT_LOOP
from lightning_rl.cli.benchmarks.sides import Learned, Side, alternate, best, failed, ours, report, torch_loop

PACKAGES = {
    "sb3": ("stable-baselines3==2.9.*", "ale-py==0.12.*", "opencv-python-headless"),
    "rllib": ("ray[rllib]",),
    "samplefactory": ("sample-factory==2.1.*", "numpy<2", "setuptools"),
    "envpool": ("envpool==1.2.*",),
    "cpprb": ("cpprb==11.*",),
    "tianshou": ("tianshou==2.*",),
    "torchrl": ("torchrl==0.14.*", "setuptools", "ninja"),
}
TORCH = "torch==2.13.0"

# RLlib's tuned example, as scripts/peers/rllib_ppo.py has it with PPOConfig's own defaults: 4000 rows in minibatches
# of 128, KL penalty.
RLLIB_WORK = (
    "experiment=none",
    "policy.reward_filter=none",
    "policy.passes=6",
    "policy.minibatches=32",
    "policy.lr=0.0003",
    "policy.gae_lambda=1.0",
    "policy.clip=0.3",
    "policy.kl_coef=0.2",
    "policy.value_coef=0.01",
    "policy.value_loss_clip=10.0",
    "policy.max_grad_norm=null",
    "model.fcnet_hiddens=[32]",
    "model.fcnet_activation=linear",
    "model.vf_share_layers=true",
    "workers.num_workers=2",
)
WORKERS_LEARNED = Learned({30_000: 60.0}, "a third of what ours and RLlib have, 163 and 178; at random it is 22")
PONG_LEARNED = Learned(
    {1_000_000: -18.0},
    "random play has −20.7, and PPO had −18.1 after 500k and −5.9 after 1M env steps (docs/results.md)",
)


def sb3(args: argparse.Namespace, *arguments: str) -> list[Side]:
    """Stable-Baselines3 with one torch thread and with as many as torch takes by itself: the faster one is the peer."""
    threads = {"1 thread": ("--threads", "1")} | ({} if args.one_thread else {"torch's threads": ()})
    return [peer(f"sb3, {name}", args.venvs, "sb3_ppo", *arguments, *more) for name, more in threads.items()]


def solve(args: argparse.Namespace) -> dict[str, object]:
    """Whole process, from its start to a mean return ≥ 475 over the last 100 training episodes."""
    peers = sb3(args, "--stop-return", "475")
    rounds = alternate([ours("ours", "stop.return=475"), *peers], args.repeats)
    fastest = best(rounds, [side.name for side in peers], "wall", lowest=True)
    return report("solve", rounds, ("wall",), [("ours", fastest, "wall")], SOLVED)


def same_work(args: argparse.Namespace) -> dict[str, object]:
    """SB3's hyperparameters and network on every side, a fixed number of env steps; only the loop is timed."""
    steps = str(args.env_steps)
    work = (*SAME_WORK, *NO_EVALUATION, f"total_env_steps={steps}")
    peers = sb3(args, "--env-steps", steps)
    sides = [
        ours("ours", *work, "workers.vectorization=sync"),
        torch_loop("torch", "--env-steps", steps),
        torch_loop("torch, plain idioms", "--env-steps", steps, "--plain"),
        ours("ours, native envs", *work, "workers.vectorization=native"),
        torch_loop("torch, native envs", "--env-steps", steps, "--native"),
    ]
    rounds = alternate([*sides, *peers], args.repeats)
    fastest = best(rounds, [side.name for side in peers], "steps_per_s")
    pairs = [("ours", fastest), ("ours", "torch"), ("ours", "torch, plain idioms"), (sides[3].name, sides[4].name)]
    return report("same_work", rounds, ("steps_per_s", "seconds"), [(*pair, "steps_per_s") for pair in pairs], LEARNED)


def throughput(args: argparse.Namespace) -> dict[str, object]:
    """The throughput preset against SB3 and against what environment, forwards and gradient steps alone would allow."""
    steps = str(10 * args.env_steps)
    peers = sb3(args, "--env-steps", str(args.env_steps))
    sides = [
        ours("ours", "experiment=cartpole_throughput", *NO_EVALUATION, f"total_env_steps={steps}"),
        torch_loop("bound", *THROUGHPUT_LOOP, "--measure-bound"),
        torch_loop("torch", *THROUGHPUT_LOOP, "--env-steps", steps),
    ]
    rounds = alternate([*sides, *peers], args.repeats)
    fastest = best(rounds, [side.name for side in peers], "steps_per_s")
    pairs = [("ours", fastest), ("ours", "bound"), ("ours", "torch")]
    compared = [(*pair, "steps_per_s") for pair in pairs]
    return report("throughput", rounds, ("steps_per_s",), compared, LEARNED, idle=["bound"])


def workers(args: argparse.Namespace) -> dict[str, object]:
    """Two worker processes against RLlib's PPO with two env runners; the first iteration is not counted."""
    steps, total = str(args.env_steps), f"total_env_steps={args.env_steps + 4000}"
    sides = []
    for envs, rows in ((1, 2000), (8, 250)):
        shape = (f"workers.envs_per_worker={envs}", f"workers.fragment_length={rows}")
        sides.append(ours(f"ours, {envs} envs", *RLLIB_WORK, *NO_EVALUATION, *shape, total))
        sides.append(peer(f"rllib, {envs} envs", args.venvs, "rllib_ppo", "--env-steps", steps, "--envs", str(envs)))
    rounds = alternate(sides, args.repeats)
    for results in rounds:
        for numbers in results.values():
            numbers.setdefault("steady_steps_per_s", numbers["steps_per_s"])
    pairs = [("ours, 1 envs", "rllib, 1 envs"), ("ours, 8 envs", "rllib, 8 envs")]
    compared = [(*pair, "steady_steps_per_s") for pair in pairs]
    return report("workers", rounds, ("steady_steps_per_s", "seconds", "wall"), compared, WORKERS_LEARNED)


def atari(args: argparse.Namespace) -> dict[str, object]:
    """PPO on Pong with equal hyperparameters and network, each with one torch thread and with one per core."""
    steps = str(args.env_steps // 3)
    threads = [1] if args.one_thread else sorted({1, os.cpu_count() or 1})
    names: dict[str, list[str]] = {"ours": [], "sb3": [], "envpool": []}
    sides: list[Side] = []
    for count in threads:
        shared = ("--env-steps", steps, "--threads", str(count))
        sides += [
            ours(f"ours, {count}", *NO_EVALUATION, f"torch_threads={count}", f"total_env_steps={steps}", env="pong"),
            peer(f"sb3, {count}", args.venvs, "sb3_atari", *shared),
            peer(f"envpool, {count}", args.venvs, "envpool_atari", *shared),
        ]
    for side in sides:
        names[side.name.split(",")[0]].append(side.name)
    rounds = alternate(sides, args.repeats)
    own, *peers = (best(rounds, of_one, "steps_per_s") for of_one in names.values())
    compared = [(own, other, "steps_per_s") for other in peers]
    return report("atari", rounds, ("steps_per_s", "seconds"), compared, PONG_LEARNED)


SCENARIOS = {"solve": solve, "same_work": same_work, "throughput": throughput, "workers": workers, "atari": atari}
SCENARIOS |= {**OFF_POLICY, "replay": replay, **ASYNC, **MULTI_AGENT}


def setup(venvs: Path, peers: Sequence[str]) -> None:
    """One virtual environment a peer, with the torch that is compared."""
    for name in peers:
        folder = venvs / name
        python = str(folder / "bin" / "python")
        if not Path(python).exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        for packages in ((TORCH, "numpy"), PACKAGES[name]):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        print(f"{name}: {folder}")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=["setup", *SCENARIOS, "all"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--env-steps", type=int, default=30_000, help="throughput: ten times as many; atari: a third; sac: a sixth"
    )
    parser.add_argument("--venvs", type=Path, default=Path.home() / ".cache" / "lightning_rl" / "peers")
    parser.add_argument(
        "--one-thread", action="store_true", help="peers with one torch thread only: for a busy machine"
    )
    parser.add_argument("--peers", nargs="+", choices=list(PACKAGES), default=list(PACKAGES), help="of setup")
    parser.add_argument("--json", type=Path, help="write all numbers here")
    return parser.parse_args()


def main() -> None:
    """Run what was asked for, print tables, write JSON."""
    args = arguments()
    args.venvs = args.venvs.expanduser().absolute()
    if args.scenario == "setup":
        setup(args.venvs, args.peers)
        return
    names = list(SCENARIOS) if args.scenario == "all" else [args.scenario]
    machine = {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
    output = {"machine": machine, "repeats": args.repeats, "scenarios": []}
    for name in names:
        output["scenarios"].append(SCENARIOS[name](args))
        if args.json:  # after each scenario: a later one that fails loses nothing
            args.json.write_text(json.dumps(output, indent=2))
    if failed(output["scenarios"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
