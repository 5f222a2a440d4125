"""Scores of offline algorithms on data made by D4RL's recipe from our SAC, and d3rlpy's on the same files.

    python scripts/offline_scores.py data --data DIR                      # half an hour
    python scripts/offline_scores.py run --data DIR --json scores.jsonl --algorithms bc iql --sets medium
    python -m venv VENV && VENV/bin/pip install d3rlpy "gymnasium[mujoco]" h5py
    python scripts/offline_scores.py run --data DIR --json scores.jsonl --sides d3rlpy --venv VENV …
    python scripts/offline_scores.py table --data DIR --json scores.jsonl

`data` trains SAC, and records four data sets (Fu et al. 2020, arXiv:2004.07219): `expert` is played by the checkpoint
with the highest evaluated return, `medium` by the first one where the last 100 episodes of training returned a third of
it, both with sampled actions; `medium-replay` is all experience until that checkpoint, and `medium-expert` is medium
and expert together. What is there already is not made again.

`run` trains each algorithm with the published settings of its paper for locomotion on the same batches and networks on
both sides. A score is that of the last policy: the mean return of 20 episodes with its best actions, between 0 (random
play) and 100 (the expert). Seconds are of the CPU; ours include the start of the process and reading the data, and
theirs are of training alone. What is in the JSON file already is not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import tempfile
from pathlib import Path
from statistics import fmean

from default_scores import ROOT, command, cpu_seconds, output
from recorded_runs import Run, recorded, run_missing

from lightning_rl.data.offline.data_set import open_data
from lightning_rl.data.offline.shards import find_shards, read_shape
from lightning_rl.data.offline.summary import summary
from lightning_rl.intervals import confidence_interval

ENV = "Hopper-v5"
SETS = ("medium", "medium-replay", "medium-expert", "expert")
BATCH = 256
EPISODES = 20  # of an evaluation
NORMALIZED = "policy.observation_filter=mean_std"
# Overrides of our side; {beta}, {actor_bc}, and {critic_bc} depend on the data.
CLONING = ("policy=bc", "policy.minibatches=16", f"data.rows_per_iteration={16 * BATCH}", NORMALIZED)
ALGORITHMS = {
    "bc": CLONING,
    "bc_10%": (*CLONING, "data.top_fraction=0.1"),
    "td3_bc": ("policy=td3_bc", NORMALIZED),
    "awac": ("policy=awac", NORMALIZED),
    "cql": ("policy=cql", "policy.actor_lr_scale=0.333", "policy.alpha_lr_scale=0.333", NORMALIZED),
    "iql": ("policy=iql", "policy.beta={beta}", NORMALIZED),
    "rebrac": (
        *("policy=rebrac", "model.fcnet_hiddens=[256,256,256]"),
        *("policy.actor_bc_coef={actor_bc}", "policy.critic_bc_coef={critic_bc}"),
    ),
}
REBRAC = {  # β₁ and β₂ of the paper for Hopper
    "medium": (0.01, 0.001),
    "medium-replay": (0.05, 0.5),
    "medium-expert": (0.1, 0.01),
    "expert": (0.1, 0.001),
}
PEERS = tuple(name for name in ALGORITHMS if name != "bc_10%")


def make_data(data: Path, env_steps: int, rows: int, seed: int) -> None:
    """Train SAC, record the data sets, and write the returns of random play and of the expert to references.json."""
    sac, replay = data / "sac", data / "replay"
    if not sac.exists():
        command(
            *("train", "policy=sac", "experiment=none", f"env.id={ENV}", f"total_env_steps={env_steps}"),
            *("policy.lr=3e-4", "policy.optimizer_kwargs=null"),
            *(f"data.capacity={env_steps}", "data.n_step=1", f"data.output={replay}", "data.save_replay=false"),
            *(f"seed={seed}", f"run_dir={sac}"),
            *("checkpoint.every_env_steps=5%", "checkpoint.keep=100", "trainer.enable_progress_bar=false"),
            *("evaluation.every_env_steps=5%", "evaluation.max_share=null"),
        )
    with (sac / "metrics.csv").open() as file:
        evaluated = [row for row in csv.DictReader(file) if row["eval/ep_rew_mean"]]
    returns = {int(row["env_steps"]): float(row["eval/ep_rew_mean"]) for row in evaluated}
    expert = max(returns, key=returns.__getitem__)
    sampled = {int(row["env_steps"]): float(row["rollout/ep_rew_mean"]) for row in evaluated}
    medium = next(steps for steps, value in sampled.items() if value >= returns[expert] / 3)
    checkpoint = {steps: sac / "checkpoints" / f"step_{steps:09}.ckpt" for steps in (medium, expert)}

    for name, steps in (("medium", medium), ("expert", expert)):
        record(checkpoint[steps], data / name, rows)
    before = [file for file in find_shards(replay) if (read_shape(file)[0].about or {})["policy_env_steps"] <= medium]
    copy(before, data / "medium-replay")
    copy([*find_shards(data / "medium"), *find_shards(data / "expert")], data / "medium-expert")

    played = json.loads(command("evaluate", str(checkpoint[expert]), "--episodes=100", "--json"))
    command("record", "random", f"--env={ENV}", f"--out={data / 'random'}", "--episodes=100")
    references = {"random": summary(open_data(data / "random"))["returns"]["mean"], "expert": played["mean"]}
    chosen = {"medium_env_steps": medium, "expert_env_steps": expert}
    (data / "references.json").write_text(json.dumps({**references, **chosen}))


def record(checkpoint: Path, out: Path, rows: int) -> None:
    """Record episodes with sampled actions, fifty at a time, until there are enough rows."""
    found = summary(open_data(out)) if out.exists() else {"steps": 0, "episodes": 0}
    while found["steps"] < rows:
        seed = found["episodes"]
        said = command(
            "record", str(checkpoint), f"--out={out}", "--episodes=50", "--explore", f"--seed={seed}", "--json"
        )
        found = json.loads(said)


def copy(shards: list[Path], out: Path) -> None:
    """Copy shards to a directory."""
    out.mkdir(exist_ok=True)
    for shard in shards:
        shutil.copy(shard, out)


def settings(data: Path, name: str) -> dict[str, float]:
    """The settings that depend on a data set.

    IQL's paper multiplies rewards by 1000 / (highest − lowest return); its β = 3 is multiplied here instead.
    """
    quantiles = summary(open_data(data / name))["returns"]["quantiles"]
    actor_bc, critic_bc = REBRAC[name]
    return {"beta": 3000 / (quantiles[-1] - quantiles[0]), "actor_bc": actor_bc, "critic_bc": critic_bc}


def ours(data: Path, algorithm: str, name: str, updates: int, seed: int) -> Run:
    """Train by the command line, and evaluate the last checkpoint."""
    values = settings(data, name)
    overrides = [override.format_map(values) for override in ALGORITHMS[algorithm]]
    imitates = "policy=bc" in overrides  # its env steps are the rows that it reads
    with tempfile.TemporaryDirectory(prefix="offline_scores_") as folder:
        run_dir = f"{folder}/run"
        before = cpu_seconds()
        command(
            *("train", *overrides, "experiment=none", f"env.id={ENV}", "data=offline", f"data.input={data / name}"),
            *(f"data.batch_size={BATCH}", f"total_env_steps={updates * (BATCH if imitates else 1)}", f"seed={seed}"),
            *("evaluation.every_env_steps=0", f"run_dir={run_dir}", "trainer.enable_progress_bar=false"),
        )
        seconds = cpu_seconds() - before
        played = json.loads(command("evaluate", run_dir, f"--episodes={EPISODES}", f"--seed={10_000 + seed}", "--json"))
    return {"seconds": round(seconds, 1), "evaluate": played["mean"], "std": played["std"]}


def d3rlpy(python: Path, data: Path, algorithm: str, name: str, updates: int, seed: int) -> Run:
    """The same by d3rlpy."""
    file = data / f"{name}.hdf5"
    if not file.exists():
        command("data", str(data / name), "--to", str(file))
    coefficients = [
        f"--{key.replace('_', '-')}={value}" for key, value in settings(data, name).items() if key != "beta"
    ]
    arguments = [f"--updates={updates}", f"--batch={BATCH}", f"--episodes={EPISODES}", f"--seed={seed}", *coefficients]
    script = ROOT / "scripts" / "peers" / "d3rlpy_offline.py"
    return json.loads(output([str(python), str(script), algorithm, str(file), ENV, *arguments]).splitlines()[-1])


def table(runs: list[Run], references: dict[str, float]) -> str:
    """A Markdown table: normalized scores of each algorithm on each data set, their means with 95 % intervals."""
    random, expert = references["random"], references["expert"]
    columns = [name for name in SETS if any(run["set"] == name for run in runs)]
    lines = [f"| algorithm | updates | side | {' | '.join(columns)} |", "|---" * (3 + len(columns)) + "|"]
    for algorithm in ALGORITHMS:
        own = [run for run in runs if run["algorithm"] == algorithm]
        for updates, side in sorted({(run["updates"], run["side"]) for run in own}, key=lambda row: (row[0], row[1])):
            cells = []
            for name in columns:
                same = [run for run in own if (run["updates"], run["side"], run["set"]) == (updates, side, name)]
                cells.append(cell([100 * (run["evaluate"] - random) / (expert - random) for run in same]))
            lines.append(f"| {algorithm} | {updates:,} | {side} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(scores: list[float]) -> str:
    """The mean, and the interval if there are several scores."""
    if len(scores) < 2:
        return f"{scores[0]:.1f}" if scores else ""
    low, high = confidence_interval(scores)
    return f"**{fmean(scores):.1f}** ({low:.1f} … {high:.1f})"


def main() -> None:
    """Make the data, run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["data", "run", "table"])
    parser.add_argument("--data", type=Path, required=True, help="directory of the data sets")
    parser.add_argument("--env-steps", type=int, default=100_000, help="data: of SAC")
    parser.add_argument("--rows", type=int, default=100_000, help="data: minimum steps of medium and of expert")
    parser.add_argument("--json", type=Path, help="run, table: a line is added for each run")
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=50_000, help="gradient steps")
    parser.add_argument("--sides", nargs="+", default=["ours"], choices=["ours", "d3rlpy"])
    parser.add_argument("--venv", type=Path, help="the virtual environment of d3rlpy")
    args = parser.parse_args()
    if args.verb == "data":
        make_data(args.data, args.env_steps, args.rows, args.seeds[0])
        return
    if args.json is None or ("d3rlpy" in args.sides and args.venv is None):
        parser.error("--json, and --venv for d3rlpy, are missing")

    def run(side: str, algorithm: str, updates: int, seed: int, **case: str) -> Run:
        if side == "ours":
            return ours(args.data, algorithm, case["set"], updates, seed)
        return d3rlpy(args.venv / "bin" / "python", args.data, algorithm, case["set"], updates, seed)

    asked = [
        {"side": side, "algorithm": algorithm, "set": name, "updates": args.updates, "seed": seed}
        for seed in args.seeds
        for name in args.sets
        for algorithm in args.algorithms
        for side in args.sides
        if side == "ours" or algorithm in PEERS
    ]
    run_missing(args.json, asked if args.verb == "run" else [], run)
    print(table(recorded(args.json), json.loads((args.data / "references.json").read_text())))


if __name__ == "__main__":
    main()
