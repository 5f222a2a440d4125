"""Scores of the defaults, without any experiment file: ours, and Stable-Baselines3's with its own, at equal env steps.

    python scripts/benchmark.py setup --venvs DIR
    python scripts/default_scores.py --venvs DIR --json scores.jsonl              # the table of docs/results.md: hours
    python scripts/default_scores.py --set checking --algorithms ppo a2c dqn sac td3 --seeds 0 1 2 --venvs DIR …
    python scripts/default_scores.py --algorithms dqn --envs CartPole-v1 --sides ours --json scores.jsonl
    python scripts/default_scores.py --set choosing --sides ours --overrides policy.target_kl=0.1 --json other.jsonl
    python scripts/default_scores.py --algorithms sac crossq --envs HalfCheetah-v5 --env-steps 100000 --sides ours …
    python scripts/default_scores.py --algorithms tqc es --seeds 0 --json scores.jsonl    # which SB3 does not have
    python scripts/default_scores.py --table --json scores.jsonl                  # of what was run so far

Defaults are chosen by the scores of the sets "table" and "choosing" only. Those of "checking" are of environments that
no one looked at while choosing: that set is run once after a change of defaults, and reported whatever it says. The
environments need mujoco, box2d, minigrid and flappy-bird-gymnasium on both sides.

Each run is its own process on one torch thread. Its score is that of the last policy: the mean return of 100
episodes with the policy's best actions. Seconds are of the CPU, so that other jobs of the machine do not count; ours
include the start of the process. What is in the JSON file already is not run again; docs/scores has the runs so far.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from recorded_runs import Run, recorded, run_missing

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Environment:
    """How both sides make an environment, and how long they learn."""

    of: str  # its set
    actions: str  # "discrete" or "continuous"
    on_policy: int  # env steps of algorithms without a replay buffer,
    replay: int  # with one,
    population: int = 0  # and of those that try whole networks
    kwargs: dict[str, Any] = field(default_factory=dict)  # of gymnasium.make
    wrappers: tuple[str, ...] = ()


FLAT_IMAGE = ("minigrid.wrappers.ImgObsWrapper", "gymnasium.wrappers.FlattenObservation")
ENVIRONMENTS = {
    "CartPole-v1": Environment("table", "discrete", 100_000, 50_000, 500_000),
    "Acrobot-v1": Environment("table", "discrete", 100_000, 100_000, 500_000),
    "LunarLander-v3": Environment("table", "discrete", 200_000, 100_000, 2_000_000),
    "Pendulum-v1": Environment("table", "continuous", 100_000, 20_000, 1_000_000),
    "LunarLanderContinuous-v3": Environment("table", "continuous", 200_000, 50_000, 2_000_000),
    "FrozenLake-v1": Environment(
        "choosing", "discrete", 100_000, 50_000, kwargs={"is_slippery": False, "map_name": "8x8"}
    ),
    "CliffWalking-v1": Environment("choosing", "discrete", 100_000, 50_000, kwargs={"max_episode_steps": 200}),
    "minigrid:MiniGrid-Empty-8x8-v0": Environment("choosing", "discrete", 100_000, 50_000, wrappers=FLAT_IMAGE),
    "MountainCarContinuous-v0": Environment("choosing", "continuous", 100_000, 20_000),
    "Swimmer-v5": Environment("choosing", "continuous", 200_000, 20_000),
    "Hopper-v5": Environment("choosing", "continuous", 200_000, 20_000),
    "HalfCheetah-v5": Environment("choosing", "continuous", 200_000, 20_000),
    "Taxi-v4": Environment("checking", "discrete", 100_000, 50_000),
    "minigrid:MiniGrid-DoorKey-5x5-v0": Environment("checking", "discrete", 100_000, 50_000, wrappers=FLAT_IMAGE),
    "flappy_bird_gymnasium:FlappyBird-v0": Environment(
        "checking", "discrete", 100_000, 50_000, kwargs={"use_lidar": False}
    ),
    "BipedalWalker-v3": Environment("checking", "continuous", 200_000, 20_000),
    "Walker2d-v5": Environment("checking", "continuous", 200_000, 20_000),
    "Reacher-v5": Environment("checking", "continuous", 100_000, 20_000),
    "InvertedDoublePendulum-v5": Environment("checking", "continuous", 100_000, 20_000),
}
SETS = list(dict.fromkeys(environment.of for environment in ENVIRONMENTS.values()))
ALGORITHMS = {  # algorithm → whose budget it has, and the actions that it takes here and in Stable-Baselines3
    "ppo": ("on_policy", "both", "both"),
    "a2c": ("on_policy", "both", "both"),
    "dqn": ("replay", "discrete", "discrete"),
    "sac": ("replay", "both", "continuous"),
    "td3": ("replay", "continuous", "continuous"),
    "ddpg": ("replay", "continuous", "continuous"),
    "tqc": ("replay", "continuous", "none"),
    "crossq": ("replay", "continuous", "none"),
    "xqc": ("replay", "continuous", "none"),
    "recurrent_sac": ("replay", "both", "none"),
    "simple_q": ("replay", "discrete", "none"),
    "rainbow": ("replay", "discrete", "none"),
    "r2d2": ("replay", "discrete", "none"),
    "apex": ("replay", "discrete", "none"),
    "pqn": ("on_policy", "discrete", "none"),
    "pg": ("on_policy", "both", "none"),
    "a3c": ("on_policy", "both", "none"),
    "ddppo": ("on_policy", "both", "none"),
    "impala": ("on_policy", "both", "none"),
    "appo": ("on_policy", "both", "none"),
    "es": ("population", "both", "none"),
    "ars": ("population", "both", "none"),
}


def takes(actions: str, env: str) -> bool:
    """Whether an algorithm that takes such actions, "both" kinds, one or "none", can learn the environment."""
    return actions in ("both", ENVIRONMENTS[env].actions)


def cases(algorithms: list[str], envs: list[str]) -> Iterator[tuple[str, str, int]]:
    """(algorithm, environment, env steps) of what our algorithms can learn."""
    for env in envs:
        for algorithm in algorithms:
            budget, actions, _ = ALGORITHMS[algorithm]
            if takes(actions, env) and (env_steps := getattr(ENVIRONMENTS[env], budget)):
                yield algorithm, env, env_steps


def ours(algorithm: str, env: str, env_steps: int, seed: int, overrides: Sequence[str] = ()) -> Run:
    """Train by the command line with no experiment file, then evaluate the last checkpoint."""
    with tempfile.TemporaryDirectory(prefix="default_scores_") as folder:
        run_dir = f"{folder}/run"
        what = [f"policy={algorithm}", "experiment=none", f"total_env_steps={env_steps}", *made_by(env), *overrides]
        before = cpu_seconds()
        command("train", *what, f"seed={seed}", f"run_dir={run_dir}", "trainer.enable_progress_bar=false")
        seconds = cpu_seconds() - before
        status = json.loads(Path(run_dir, "status.json").read_text())
        played = json.loads(command("evaluate", run_dir, "--episodes=100", f"--seed={10_000 + seed}", "--json"))
    return {
        "env_steps": status["env_steps"],
        "seconds": round(seconds, 1),
        "train": status["return"],
        "evaluate": played["mean"],
    }


def cpu_seconds() -> float:
    """Of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def made_by(env: str) -> list[str]:
    """The overrides that make the environment."""
    kwargs = dict(ENVIRONMENTS[env].kwargs)
    limit = kwargs.pop("max_episode_steps", None)
    overrides = [f"env.id='{env}'", *(f"+env.kwargs.{key}={value}" for key, value in kwargs.items())]
    overrides += [f"env.max_episode_steps={limit}"] if limit else []
    return [*overrides, f"env.wrappers=[{','.join(ENVIRONMENTS[env].wrappers)}]"]


def command(verb: str, *arguments: str) -> str:
    """What `lightning-rl VERB …` prints."""
    return output([sys.executable, "-m", "lightning_rl", verb, *arguments])


def sb3(python: Path, algorithm: str, env: str, env_steps: int, seed: int) -> Run:
    """The same by Stable-Baselines3."""
    script = ROOT / "scripts" / "peers" / "sb3_defaults.py"
    made = {"kwargs": ENVIRONMENTS[env].kwargs, "wrappers": ENVIRONMENTS[env].wrappers}
    arguments = [algorithm, env, f"--env-steps={env_steps}", f"--seed={seed}", f"--made-by={json.dumps(made)}"]
    return json.loads(output([str(python), str(script), *arguments]).strip().splitlines()[-1])


def output(arguments: list[str]) -> str:
    """What a command prints.

    Raises:
        RuntimeError: it failed; its last lines are in the message.
    """
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RuntimeError(f"exit code {done.returncode} of {' '.join(arguments)}; it ends:\n{tail}")
    return done.stdout


def table(runs: list[Run]) -> str:
    """A Markdown table: scores of all seeds after their mean, and seconds of training."""
    lines = [
        "| environment | algorithm | env steps | ours | Stable-Baselines3 | seconds |",
        "|---|---|---|---|---|---|",
    ]
    known = {(run["algorithm"], run["env"], run["budget"]) for run in runs}
    places = {name: place for names in (ALGORITHMS, ENVIRONMENTS) for place, name in enumerate(names)}
    for algorithm, env, env_steps in sorted(known, key=lambda key: (places[key[1]], places[key[0]], key[2])):
        cells, seconds, scores = [], [], {}
        for side in ("ours", "sb3"):
            same = (algorithm, env, env_steps, side)
            found = [run for run in runs if (run["algorithm"], run["env"], run["budget"], run["side"]) == same]
            own = scores[side] = [run["evaluate"] for run in sorted(found, key=lambda run: run["seed"])]
            cells.append(f"**{number(fmean(own))}** ({' '.join(map(number, own))})" if own else "")
            seconds.append(f"{fmean(run['seconds'] for run in found):.0f}" if found else "–")
        if all(scores.values()) and max(scores["ours"]) < min(scores["sb3"]):
            cells[0] += " below"  # each of our seeds is below each of theirs
        lines.append(f"| {env} | {algorithm} | {env_steps:,} | {' | '.join(cells)} | {' : '.join(seconds)} |")
    return "\n".join(lines)


def number(score: float) -> str:
    """Three digits, or whole numbers above a hundred."""
    return f"{score:.0f}" if abs(score) >= 100 else f"{score:.3g}"


def main() -> None:
    """Run what is missing, seed by seed and side by side, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--set", default="table", choices=SETS)
    parser.add_argument("--envs", nargs="+", choices=list(ENVIRONMENTS), help="instead of all of the set")
    parser.add_argument("--env-steps", type=int, help="of every algorithm, instead of its own")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--overrides", nargs="+", default=[], help="of our side, in their own JSON file")
    parser.add_argument("--sides", nargs="+", default=["ours", "sb3"], choices=["ours", "sb3"])
    parser.add_argument("--venvs", type=Path, help="where `benchmark.py setup` made sb3/")
    parser.add_argument("--json", type=Path, required=True, help="a line is added for each run")
    parser.add_argument("--table", action="store_true", help="run nothing")
    args = parser.parse_args()
    envs = args.envs or [env for env, environment in ENVIRONMENTS.items() if environment.of == args.set]
    asked = [
        {"side": side, "algorithm": algorithm, "env": env, "budget": args.env_steps or env_steps, "seed": seed}
        for seed in args.seeds
        for algorithm, env, env_steps in cases(args.algorithms, envs)
        for side in args.sides
        if side == "ours" or takes(ALGORITHMS[algorithm][2], env)
    ]

    def run(side: str, algorithm: str, env: str, budget: int, seed: int) -> Run:
        if side == "ours":
            return ours(algorithm, env, budget, seed, args.overrides)
        return sb3(args.venvs / "sb3" / "bin" / "python", algorithm, env, budget, seed)

    run_missing(args.json, [] if args.table else asked, run)
    print(table(recorded(args.json)))


if __name__ == "__main__":
    main()
