"""Whether what is solved stays solved: the defaults of on-policy algorithms, for several times the env steps they need.

    python scripts/kept_scores.py --seeds 0 1 2 --json kept.jsonl
    python scripts/kept_scores.py --algorithms ppo --tasks MiniGrid-Empty-8x8 --seeds 0 --json kept.jsonl
    python scripts/kept_scores.py --table --json kept.jsonl            # of what was run so far

A run has solved its task if the mean return of its latest training episodes once reached the task's score; it has lost
it if the best actions of its last policy are below. MiniGrid needs `pip install minigrid`. docs/scores has the runs so
far.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from default_scores import command, made_by
from recorded_runs import Run, fill_table


class Task(NamedTuple):
    """What is learned, for how many env steps, and the return that solves it."""

    overrides: Sequence[str]
    env_steps: int
    solved: float


TASKS = {
    "CartPole": Task(("env=cartpole",), 200_000, 475),
    "Acrobot": Task(("env=acrobot",), 300_000, -105),
    "FrozenLake 8x8": Task(made_by("FrozenLake-v1"), 150_000, 0.95),
    "MiniGrid-Empty-8x8": Task(made_by("minigrid:MiniGrid-Empty-8x8-v0"), 150_000, 0.9),
    "RepeatAfterMe, LSTM": Task(("env=repeat_after_me", "model=lstm"), 200_000, 90),
    "TwoStepGame, two agents": Task(("env=two_step_game",), 60_000, 6.9),
    "Climbing, two agents": Task(("env=climbing",), 60_000, 100),
}
ALGORITHMS = ("ppo", "a2c", "impala", "appo", "ddppo")


def run(algorithm: str, task: str, seed: int) -> Run:
    """Train with the defaults, then play 20 episodes with the best actions of the last policy."""
    overrides, env_steps, _ = TASKS[task]
    with tempfile.TemporaryDirectory(prefix="kept_scores_") as folder:
        run_dir = f"{folder}/run"
        how = ["experiment=none", "evaluation=none", "logger=none", "trainer.enable_progress_bar=false"]
        what = [f"policy={algorithm}", *overrides, f"total_env_steps={env_steps}", f"seed={seed}"]
        command("train", *what, *how, f"run_dir={run_dir}")
        best = json.loads(Path(run_dir, "status.json").read_text())["best_return"]
        played = json.loads(command("evaluate", run_dir, "--episodes=20", f"--seed={10_000 + seed}", "--json"))
    return {"best": best, "last": played["mean"]}


def table(runs: list[Run]) -> str:
    """A Markdown table: of each task and algorithm "kept / solved / runs", and the seeds that lost it."""
    lines = [f"| kept / solved / runs | {' | '.join(ALGORITHMS)} |", f"|{'---|' * (len(ALGORITHMS) + 1)}"]
    for name, task in TASKS.items():
        cells = []
        for algorithm in ALGORITHMS:
            own = [run for run in runs if (run["algorithm"], run["task"]) == (algorithm, name)]
            solved = [run for run in own if run["best"] >= task.solved]
            lost = [run["seed"] for run in solved if run["last"] < task.solved]
            seeds = f", lost with seed {', '.join(map(str, sorted(lost)))}" if lost else ""
            cells.append(f"{len(solved) - len(lost)} / {len(solved)} / {len(own)}{seeds}" if own else "")
        lines.append(f"| {name}, {task.env_steps:,} env steps | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    fill_table(__doc__, {"task": list(TASKS), "algorithm": ALGORITHMS}, run, table)
