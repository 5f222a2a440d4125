"""This project against its peers and against plain torch: time to solve, same work, throughput, workers.

    python scripts/benchmark.py setup --venvs DIR           # peers go to virtual environments of their own; needs pip
    python scripts/benchmark.py solve --repeats 5 --json solve.json
    python scripts/benchmark.py all

The sides of a scenario run one after the other, A B A B, so that a machine whose speed drifts is unfair to nobody.
Ratios are taken pair by pair, within a round; their median says more than the ratio of medians. Nothing is asserted
here: a benchmark reports.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "scripts" / "peers"
PACKAGES = {"sb3": "stable-baselines3==2.9.*", "rllib": "ray[rllib]"}
TORCH = "torch==2.13.0"

Numbers = dict[str, float]
Round = dict[str, Numbers]

# rl-zoo's tuned PPO for CartPole-v1, as scripts/peers/sb3_ppo.py has it.
SAME_WORK = (
    "experiment=none",
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
# RLlib's tuned example, as scripts/peers/rllib_ppo.py has it with PPOConfig's own defaults: 4000 rows in minibatches
# of 128, KL penalty.
RLLIB_WORK = (
    "experiment=none",
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
NO_EVALUATION = ("evaluation.interval=0", "stop.return=null")
THROUGHPUT_LOOP = ("--native", "--no-schedule", "--envs=64", "--fragment=128", "--passes=4", "--minibatches=4")


@dataclass(frozen=True, slots=True)
class Side:
    """One competitor: a command that prints a JSON object last, or our own, which writes a run directory."""

    name: str
    command: tuple[str, ...]
    overrides: tuple[str, ...] | None = None  # ours: `train.py` with these

    def run(self, seed: int) -> Numbers:
        """Numbers of one run, and `wall`: seconds from before the process starts until it has ended.

        Raises:
            RuntimeError: the command failed; its last lines are in the message.
        """
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
            run_dir = Path(folder) / "run"
            command = [*self.command, f"--seed={seed}"]
            if self.overrides is not None:
                command = [*self.command, *self.overrides, f"seed={seed}", f"run_dir={run_dir}"]
            start = time.perf_counter()
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
            wall = time.perf_counter() - start
            if done.returncode != 0:
                tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
                raise RuntimeError(f"{self.name}: exit code {done.returncode} of {' '.join(command)}; it ends:\n{tail}")
            if self.overrides is not None:
                return {**run_dir_numbers(run_dir), "wall": wall}
            return {**json.loads(done.stdout.strip().splitlines()[-1]), "wall": wall}


def run_dir_numbers(run_dir: Path) -> Numbers:
    """Env steps, return and rates of one of our runs.

    `steps_per_s` is of the whole loop (imports and start-up are not in it), `steady_steps_per_s` leaves the first
    report out, in which worker processes start.
    """
    status = json.loads((run_dir / "status.json").read_text())
    env_steps = status["env_steps"]
    numbers = {"env_steps": env_steps, "return": status.get("return") or 0.0, "seconds": status["seconds"]}
    with (run_dir / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("time/total_s")]
    if rows:
        numbers["seconds"] = float(rows[-1]["time/total_s"])
        axis = "env_steps" if "env_steps" in rows[0] else "step"
        steps, seconds = (float(rows[-1][column]) - float(rows[0][column]) for column in (axis, "time/total_s"))
        if seconds > 0:
            numbers["steady_steps_per_s"] = steps / seconds
    return {**numbers, "steps_per_s": env_steps / numbers["seconds"]}


def ours(name: str, *overrides: str) -> Side:
    """`python train.py policy=ppo env=cartpole` with overrides."""
    return Side(name, (sys.executable, str(ROOT / "train.py"), "policy=ppo", "env=cartpole"), overrides)


def loop(name: str, *arguments: str) -> Side:
    """The hand-written loop, in the interpreter that runs this script."""
    return Side(name, (sys.executable, str(PEERS / "torch_loop.py"), *arguments))


def peer(name: str, venvs: Path, program: str, *arguments: str) -> Side:
    """A peer in its virtual environment.

    Raises:
        FileNotFoundError: it is not there.
    """
    python = venvs / program.split("_")[0] / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError(f"no {python}: run `python scripts/benchmark.py setup --venvs {venvs}` first")
    return Side(name, (str(python), str(PEERS / f"{program}.py"), *arguments))


def sb3(args: argparse.Namespace, *arguments: str) -> list[Side]:
    """Stable-Baselines3 with one torch thread and with as many as torch takes by itself: the faster one is the peer."""
    threads = {"1 thread": ("--threads", "1")} | ({} if args.one_thread else {"torch's threads": ()})
    return [peer(f"sb3, {name}", args.venvs, "sb3_ppo", *arguments, *more) for name, more in threads.items()]


def alternate(sides: Sequence[Side], repeats: int) -> list[Round]:
    """Each side once a round, in order, all with the round's number as their seed."""
    rounds = []
    for number in range(repeats):
        results = {}
        for side in sides:
            print(f"round {number + 1}/{repeats}: {side.name} …", file=sys.stderr, flush=True)
            results[side.name] = side.run(seed=number)
        rounds.append(results)
    return rounds


def ratios(rounds: Sequence[Round], one: str, other: str, number: str) -> list[float]:
    """`one` over `other`, pair by pair."""
    return [results[one][number] / results[other][number] for results in rounds]


def best(rounds: Sequence[Round], names: Sequence[str], number: str, lowest: bool = False) -> str:
    """Which side has the best median."""
    medians = {name: median(results[name][number] for results in rounds) for name in names}
    return (min if lowest else max)(names, key=lambda name: medians[name])


def report(
    scenario: str, rounds: list[Round], columns: Sequence[str], compared: Sequence[tuple[str, str, str]]
) -> dict[str, object]:
    """Print the table and the ratios; the same numbers come back for the JSON file."""
    medians: dict[str, Numbers] = {}
    width = max(len(name) for name in rounds[0])
    print(f"\n{scenario}: medians of {len(rounds)}\n{'':{width}} " + " ".join(f"{column:>20}" for column in columns))
    for name in rounds[0]:
        medians[name] = {c: median(results[name].get(c, float("nan")) for results in rounds) for c in columns}
        print(f"{name:{width}} " + " ".join(f"{medians[name][column]:>20,.1f}" for column in columns))
    pairs = []
    for one, other, number in compared:
        values = ratios(rounds, one, other, number)
        pairs.append({"of": number, "one": one, "other": other, "median": median(values), "each": values})
        each = ", ".join(f"{value:.2f}" for value in values)
        print(f"{number}: {one} / {other} = {median(values):.2f} (each round: {each})")
    return {"scenario": scenario, "rounds": rounds, "medians": medians, "ratios": pairs}


def solve(args: argparse.Namespace) -> dict[str, object]:
    """Whole process, from its start to a mean return ≥ 475 over the last 100 training episodes."""
    peers = sb3(args, "--stop-return", "475")
    rounds = alternate([ours("ours", "stop.return=475"), *peers], args.repeats)
    fastest = best(rounds, [side.name for side in peers], "wall", lowest=True)
    return report("solve", rounds, ("wall", "env_steps", "return"), [("ours", fastest, "wall")])


def same_work(args: argparse.Namespace) -> dict[str, object]:
    """SB3's hyperparameters and network on every side, a fixed number of env steps; only the loop is timed."""
    steps = str(args.env_steps)
    work = (*SAME_WORK, *NO_EVALUATION, f"total_env_steps={steps}")
    peers = sb3(args, "--env-steps", steps)
    sides = [
        ours("ours", *work, "workers.vectorization=sync"),
        loop("torch", "--env-steps", steps),
        loop("torch, plain idioms", "--env-steps", steps, "--plain"),
        ours("ours, native envs", *work, "workers.vectorization=native"),
        loop("torch, native envs", "--env-steps", steps, "--native"),
    ]
    rounds = alternate([*sides, *peers], args.repeats)
    fastest = best(rounds, [side.name for side in peers], "steps_per_s")
    pairs = [("ours", fastest), ("ours", "torch"), ("ours", "torch, plain idioms"), (sides[3].name, sides[4].name)]
    return report("same_work", rounds, ("steps_per_s", "seconds", "return"), [(*pair, "steps_per_s") for pair in pairs])


def throughput(args: argparse.Namespace) -> dict[str, object]:
    """The throughput preset against SB3 and against what environment, forwards and gradient steps alone would allow."""
    steps = str(10 * args.env_steps)
    peers = sb3(args, "--env-steps", str(args.env_steps))
    sides = [
        ours("ours", "experiment=cartpole_throughput", *NO_EVALUATION, f"total_env_steps={steps}"),
        loop("bound", *THROUGHPUT_LOOP, "--measure-bound"),
        loop("torch", *THROUGHPUT_LOOP, "--env-steps", steps),
    ]
    rounds = alternate([*sides, *peers], args.repeats)
    fastest = best(rounds, [side.name for side in peers], "steps_per_s")
    pairs = [("ours", fastest), ("ours", "bound"), ("ours", "torch")]
    return report("throughput", rounds, ("steps_per_s", "return"), [(*pair, "steps_per_s") for pair in pairs])


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
    return report("workers", rounds, ("steady_steps_per_s", "seconds", "wall", "return"), compared)


SCENARIOS = {"solve": solve, "same_work": same_work, "throughput": throughput, "workers": workers}


def setup(venvs: Path, peers: Sequence[str]) -> None:
    """One virtual environment a peer, with the torch that is compared."""
    for name in peers:
        folder = venvs / name
        python = str(folder / "bin" / "python")
        if not Path(python).exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        for packages in ([TORCH, "numpy"], [PACKAGES[name]]):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        print(f"{name}: {folder}")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=["setup", *SCENARIOS, "all"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--env-steps", type=int, default=30_000, help="throughput takes ten times as many")
    parser.add_argument("--venvs", type=Path, default=Path.home() / ".cache" / "lightning_rl" / "peers")
    parser.add_argument("--one-thread", action="store_true", help="SB3 with one torch thread only: for a busy machine")
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


if __name__ == "__main__":
    main()
