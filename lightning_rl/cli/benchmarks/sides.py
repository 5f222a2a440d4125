"""Who competes in a benchmark, in which order they run, and how their numbers are compared.

The sides of a scenario run one after the other, A B A B, so that a machine whose speed drifts slows all sides.
Ratios are taken pair by pair, within a round; their median says more than the ratio of medians. A policy that has
collapsed is fast, or slow, for other reasons than its program: sides are compared only if each has learned what its
work allows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from lightning_rl.reports.run_records import read_run
from lightning_rl.reports.time_split import split_of

__all__ = [
    "Learned",
    "Numbers",
    "Round",
    "Side",
    "alternate",
    "best",
    "failed",
    "not_learned",
    "ours",
    "report",
    "torch_loop",
]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

Numbers = dict[str, float]
Round = dict[str, Numbers]


@dataclass(frozen=True, slots=True)
class Side:
    """One competitor: a command that prints a JSON object last, or our own, which writes a run directory."""

    name: str
    command: tuple[str, ...]
    overrides: tuple[str, ...] | None = None  # ours: `lightning-rl train` with these

    def run(self, seed: int) -> Numbers:
        """Numbers of one run, and `wall`: seconds from before the process starts until it has ended.

        Raises:
            RuntimeError: the command failed; its last lines are in the message.
        """
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        # The package is found from other folders too, if it is not installed.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
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
    report out, in which worker processes start, and `collecting_steps_per_s`, of runs whose workers are in their own
    process, is of the seconds of collecting alone.
    """
    run = read_run(run_dir)
    env_steps, total = run.status["env_steps"], run.curve("time/total_s")
    numbers: Numbers = {"env_steps": env_steps, "seconds": run.status["seconds"] if total is None else total.last}
    if run.status["return"] is not None:
        numbers["return"] = run.status["return"]
    if total is not None and (seconds := total.last - total.values[0]) > 0:
        numbers["steady_steps_per_s"] = float((total.steps[-1] - total.steps[0]) / seconds)
    if collecting := split_of(run).get("collect"):
        numbers["collecting_steps_per_s"] = env_steps / collecting
    return {**numbers, "steps_per_s": env_steps / numbers["seconds"]}


def ours(name: str, *overrides: str, policy: str = "ppo", env: str = "cartpole") -> Side:
    """`lightning-rl train policy=… env=…` with overrides."""
    return Side(name, (sys.executable, "-m", "lightning_rl", "train", f"policy={policy}", f"env={env}"), overrides)


def torch_loop(name: str, *arguments: str) -> Side:
    """PPO on CartPole in plain torch (`torch_loop.py`), in this interpreter."""
    return Side(name, (sys.executable, str(HERE / "torch_loop.py"), *arguments))


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


def best(rounds: Sequence[Round], names: Sequence[str], number: str, lowest: bool = False) -> str:
    """Which side has the best median."""
    medians = {name: median(results[name][number] for results in rounds) for name in names}
    return (min if lowest else max)(names, key=lambda name: medians[name])


@dataclass(frozen=True, slots=True)
class Learned:
    """The return that shows that a side has learned what its work allows.

    Args:
        marks: env steps → least mean return of the last training episodes; below the first mark nothing is asked.
        reason: where the numbers are from.
    """

    marks: Mapping[int, float]
    reason: str

    def least(self, env_steps: float) -> float | None:
        """The return of the last mark that this number of env steps reaches; `None` before the first."""
        return next((value for mark, value in sorted(self.marks.items(), reverse=True) if env_steps >= mark), None)


def report(
    scenario: str,
    rounds: list[Round],
    columns: Sequence[str],
    compared: Sequence[tuple[str, str, str]],
    learned: Learned | None,
    idle: Sequence[str] = (),
) -> dict[str, object]:
    """Print the table, and the ratios unless a side has not learned; the same numbers come back for the JSON file.

    Args:
        scenario: its name.
        rounds: numbers of the sides.
        columns: the columns of the table, beside the return.
        compared: pairs of sides, and the number that they are compared by.
        learned: what each side has to have learned, by the medians of its return and env steps; `None`: none learns.
        idle: sides that do not learn.
    """
    shown = columns if learned is None else (*columns, "env_steps", "return")
    medians: dict[str, Numbers] = {}
    width = max(len(name) for name in rounds[0])
    print(f"\n{scenario}: medians of {len(rounds)}\n{'':{width}} " + " ".join(f"{column:>20}" for column in shown))
    for name in rounds[0]:
        medians[name] = {c: median(results[name].get(c, float("nan")) for results in rounds) for c in shown}
        print(f"{name:{width}} " + " ".join(f"{medians[name][column]:>20,.1f}" for column in shown))
    learning = {name: numbers for name, numbers in medians.items() if name not in idle}
    missing = [] if learned is None else not_learned(learning, learned)
    pairs = []
    for one, other, number in () if missing else compared:
        values = [results[one][number] / results[other][number] for results in rounds]
        pairs.append({"of": number, "one": one, "other": other, "median": median(values), "each": values})
        each = ", ".join(f"{value:.2f}" for value in values)
        print(f"{number}: {one} / {other} = {median(values):.2f} (each round: {each})")
    for line in missing:
        print(f"not compared: {line}")
    return {"scenario": scenario, "rounds": rounds, "medians": medians, "ratios": pairs, "not_learned": missing}


def not_learned(medians: Mapping[str, Numbers], learned: Learned) -> list[str]:
    """A line for each side whose return is lower than its env steps allow, or unknown."""
    lines = []
    for name, numbers in medians.items():
        least = learned.least(numbers["env_steps"])
        if least is None:
            print(f"{name}: {numbers['env_steps']:,.0f} env steps are too few to see whether it learns")
        elif not numbers["return"] >= least:
            lines.append(
                f"{name} has a return of {numbers['return']:,.1f} after {numbers['env_steps']:,.0f} env steps; "
                f"expected at least {least:g}: {learned.reason}"
            )
    return lines


def failed(scenarios: Sequence[Mapping[str, object]]) -> bool:
    """Whether a side of a scenario has not learned; says so."""
    names = [str(scenario["scenario"]) for scenario in scenarios if scenario["not_learned"]]
    if names:
        print(f"error: not compared: {', '.join(names)}, where a side has not learned (above)", file=sys.stderr)
    return bool(names)
