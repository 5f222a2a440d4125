"""The learning curves on the algorithms' pages, from real runs.

    python scripts/learning_curves.py --runs DIR                        # trains what is missing, then draws: hours
    python scripts/learning_curves.py --runs DIR --algorithms ppo sac   # only these
    python scripts/learning_curves.py --runs DIR --draw                 # only draws the runs that are complete

Trains `python train.py policy=X env=Y seed=S` for three seeds into DIR/X_Y/S and draws docs/curves/X_Y.svg from their
`metrics.csv`: the mean return of the last 100 training episodes (of evaluations, where training acts at random or not
at all), a thin line per seed and a thick one for their mean. Algorithms for recorded data learn from the experience of
one run, which is recorded in DIR/data/Y.
The picture is put on the algorithm's page. A pair is drawn once all its seeds have ended. Needs matplotlib
(`pip install -e '.[bench]'`).
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np

from lightning_rl.run_directory.status import read_status_or_empty

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SEEDS = (0, 1, 2)
METRICS = {"return in training": "rollout/ep_rew_mean", "return of the best actions": "eval/ep_rew_mean"}
POINTS = 200  # of a line in a picture

PAIRS: dict[tuple[str, str], list[str]] = {  # (policy, env) and further overrides; the quick ones first
    ("ppo", "cartpole"): [],
    ("pqn", "cartpole"): [],
    ("ars", "cartpole"): [],
    ("es", "cartpole"): [],
    ("impala", "cartpole"): [],
    ("appo", "cartpole"): [],
    ("a2c", "cartpole"): [],
    ("a3c", "cartpole"): [],
    ("pg", "cartpole"): [],
    ("ddppo", "cartpole"): ["trainer=ddp", "trainer.accelerator=cpu"],
    ("ppo", "pendulum"): [],
    ("dqn", "cartpole"): [],
    ("qmix", "two_step_game"): [],
    ("vdn", "two_step_game"): [],
    ("pqn_vdn", "two_step_game"): ["total_env_steps=20_000"],
    ("independent_q", "two_step_game"): [],
    ("ddpg", "pendulum"): ["total_env_steps=20_000"],
    ("td3", "pendulum"): [],
    ("sac", "pendulum"): [],
    ("simple_q", "cartpole"): ["total_env_steps=50_000"],
    ("apex", "cartpole"): [],
    ("tqc", "pendulum"): ["total_env_steps=10_000"],
    ("crossq", "pendulum"): ["total_env_steps=10_000"],
    ("xqc", "pendulum"): ["total_env_steps=10_000", "data.learning_starts=1000", "policy.gamma=0.975"],
    ("rainbow", "cartpole"): [],
    ("maddpg", "simple_speaker_listener"): [],
    ("matd3", "simple_speaker_listener"): [],
    ("r2d2", "stateless_cartpole"): [],
    ("recurrent_sac", "stateless_pendulum"): ["total_env_steps=20_000"],
}

EVALUATED = ("evaluation.every_env_steps=5%", "evaluation.max_share=null")
for imitates in ("bc", "marwil"):
    PAIRS[imitates, "cartpole"] = ["experiment=none", "data.input=data/cartpole", "total_env_steps=50_000", *EVALUATED]
for policy, env, budget in (
    ("discrete_cql", "cartpole", 10_000),
    *((policy, "pendulum", 20_000) for policy in ("iql", "awac", "td3_bc", "rebrac")),
    ("cql", "pendulum", 10_000),
):
    on_data = ["experiment=none", "data=offline", f"data.input=data/{env}"]
    PAIRS[policy, env] = [*on_data, f"total_env_steps={budget:_}", *EVALUATED]
RECORDED = {  # the runs whose experience is the data of an environment
    "cartpole": ["policy=ppo", "env=cartpole", "seed=100", "total_env_steps=40_000"],
    "pendulum": [
        *("policy=sac", "env=pendulum", "experiment=none", "policy.lr=3e-4", "policy.optimizer_kwargs=null"),
        *("seed=100", "total_env_steps=12_000"),
    ],
}

RANDOM_IN_TRAINING = ("two_step_game",)  # environments whose experiments explore by random actions to the end

Curve = tuple[np.ndarray, np.ndarray]


def command(policy: str, env: str) -> str:
    """What a reader types for a run of a pair."""
    return " ".join(["python train.py", f"policy={policy}", f"env={env}", *PAIRS[policy, env]])


def run_dir_of(runs: Path, pair: tuple[str, str], seed: int) -> Path:
    return runs / "_".join(pair) / str(seed)


def is_complete(run_dir: Path) -> bool:
    return read_status_or_empty(run_dir / "status.json").get("state") == "ok"


def learns_from_data(pair: tuple[str, str]) -> bool:
    return any(override.startswith("data.input=") for override in PAIRS[pair])


def train(runs: Path, pair: tuple[str, str], seed: int) -> None:
    """Train one seed, unless its run has ended; its data are recorded first."""
    run_dir = run_dir_of(runs, pair, seed)
    if is_complete(run_dir):
        return
    words = [*command(*pair).split()[2:], f"seed={seed}"]
    if learns_from_data(pair):
        data, recording = runs / "data" / pair[1], runs / "data" / f"{pair[1]}_run"
        if not is_complete(recording):
            start([*RECORDED[pair[1]], f"data.output={data}"], recording)
        words = [*words, f"data.input={data}"]
    start(words, run_dir)


def start(words: list[str], run_dir: Path) -> None:
    """Run `train.py` with these overrides to its end."""
    arguments = ["train.py", *words, "trainer.enable_progress_bar=false", f"run_dir={run_dir}"]
    result = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)
    print(*words, "ok" if result.returncode == 0 else result.stderr[-2000:], flush=True)


def kind_of_return(pair: tuple[str, str]) -> str:
    """The key of `METRICS` that shows what a pair learns."""
    training, evaluated = METRICS
    return evaluated if pair[1] in RANDOM_IN_TRAINING or learns_from_data(pair) else training


def kind_of_steps(pair: tuple[str, str]) -> str:
    """What the env steps of a pair count."""
    if not learns_from_data(pair):
        return "environment steps"
    return "gradient steps" if "data=offline" in PAIRS[pair] else "transitions read"


def curve_of(run_dir: Path, kind: str = "return in training") -> Curve:
    """Env steps and returns (a key of `METRICS`) of a run's `metrics.csv`, both `[rows]`, from the first value on."""
    metric = METRICS[kind]
    with (run_dir / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = [(float(row["env_steps"]), float(row[metric])) for row in csv.DictReader(file) if row.get(metric)]
    steps, returns = np.array(rows).T
    return steps, returns


def mean_curve(curves: list[Curve]) -> Curve:
    """The mean over seeds, of one or more, at `POINTS` steps where all of them have values."""
    steps = np.linspace(max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves), POINTS)
    return steps, np.mean([np.interp(steps, *curve) for curve in curves], axis=0)


def draw(
    curves: list[Curve],
    title: str,
    path: Path,
    kind: str = "return in training",
    kind_of_steps: str = "environment steps",
) -> None:
    """Write one picture; its colors are legible on white and on black."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "lightning_rl", "path.simplify_threshold": 0.5})
    import matplotlib.pyplot as plt

    ink, line = "#808890", "#3d7fd6"
    figure, axes = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
    for curve in curves:
        axes.plot(*mean_curve([curve]), color=line, linewidth=0.8, alpha=0.45)
    axes.plot(*mean_curve(curves), color=line, linewidth=2.2)
    axes.set_title(textwrap.fill(title, 74), color=ink, fontsize=10, loc="left")
    axes.set_xlabel(kind_of_steps, color=ink, fontsize=9)
    axes.set_ylabel(kind, color=ink, fontsize=9)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")
    axes.tick_params(colors=ink, labelsize=8)
    axes.grid(color=ink, alpha=0.2, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(ink)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(figure)


def show_on_page(pair: tuple[str, str]) -> None:
    """Put the picture on the algorithm's page, before the first table or at the end, unless it is there."""
    page, picture = DOCS / "algorithms" / f"{pair[0]}.md", f"{'_'.join(pair)}.svg"
    parts = page.read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    if not any(f"/{picture}" in part for part in parts):
        at = next((index for index, part in enumerate(parts) if part.startswith("|")), len(parts))
        parts.insert(at, f"![Learning curves of three seeds](../curves/{picture})")
        page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="directory of the runs; what is complete there stays")
    parser.add_argument("--algorithms", nargs="+", choices=sorted({policy for policy, _ in PAIRS}), metavar="NAME")
    parser.add_argument("--draw", action="store_true", help="train nothing")
    options = parser.parse_args()
    runs = options.runs.resolve()
    for pair in PAIRS:
        if options.algorithms and pair[0] not in options.algorithms:
            continue
        if not options.draw:
            for seed in SEEDS:
                train(runs, pair, seed)
        run_dirs = [run_dir_of(runs, pair, seed) for seed in SEEDS]
        if all(map(is_complete, run_dirs)):
            kind = kind_of_return(pair)
            curves = [curve_of(run_dir, kind) for run_dir in run_dirs]
            picture = DOCS / "curves" / f"{'_'.join(pair)}.svg"
            draw(curves, command(*pair), picture, kind, kind_of_steps(pair))
            show_on_page(pair)
        else:
            print(f"{'_'.join(pair)}: not drawn, as not all of the seeds {SEEDS} have ended in {runs}")


if __name__ == "__main__":
    main()
