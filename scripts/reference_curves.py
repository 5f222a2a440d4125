"""Reference curves of experiments for `lightning-rl verify`: trains several seeds of each, and writes conf/reference.

    python scripts/reference_curves.py ppo_cartpole sac_pendulum --seeds 0 1 2 3 4
    python scripts/reference_curves.py cartpole_throughput --overrides policy=ppo env=cartpole

An experiment POLICY_ENV is the one of `policy=POLICY env=ENV`; others need --overrides. Runs are kept below --runs:
a call that was stopped continues with the first run that has not ended.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from lightning_rl.config import compose_config
from lightning_rl.config.groups import group_options, shipped_conf
from lightning_rl.reports.reference import EVALUATION, ReferenceCurves, curve_at_marks
from lightning_rl.reports.run_records import read_run
from lightning_rl.run_directory.status import STATUS_FILE, read_status_or_empty

PACKAGES = ("lightning_rl", "torch", "gymnasium", "numpy")


def overrides_of(experiment: str, given: list[str]) -> list[str]:
    """The overrides that choose an experiment."""
    if given:
        return [*given, f"experiment={experiment}"]
    policies = sorted(group_options("policy"), key=len, reverse=True)
    policy = next(name for name in policies if experiment.startswith(f"{name}_"))
    return [f"policy={policy}", f"env={experiment.removeprefix(f'{policy}_')}"]


def train(overrides: list[str], seed: int, run_dir: Path) -> None:
    """One run in its own process, unless it is there already; one that was killed begins again."""
    if read_status_or_empty(run_dir / STATUS_FILE).get("state") == "ok":
        return
    shutil.rmtree(run_dir, ignore_errors=True)
    more = (*EVALUATION, f"seed={seed}", f"run_dir={run_dir}", "trainer.enable_progress_bar=false", "logger=csv")
    subprocess.run([sys.executable, "-m", "lightning_rl", "train", *overrides, *more], check=True)


def main() -> None:
    """Train what is asked for, and write a file for each experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--overrides", nargs="+", default=[])
    parser.add_argument("--runs", type=Path, default=Path("runs/reference"))
    args = parser.parse_args()
    for experiment in args.experiments:
        overrides = overrides_of(experiment, args.overrides)
        total = compose_config(overrides)["total_env_steps"]
        folders = [args.runs / f"{experiment}_{seed}" for seed in args.seeds]
        for seed, run_dir in zip(args.seeds, folders, strict=True):
            train(overrides, seed, run_dir)
        returns = [curve_at_marks(read_run(run_dir), total) for run_dir in folders]
        versions = {package: version(package) for package in PACKAGES}
        reference = ReferenceCurves(overrides, total, args.seeds, returns, versions)
        reference.save(shipped_conf() / "reference" / f"{experiment}.json")
        print(f"{experiment}: last evaluations {' '.join(f'{run[-1]:.4g}' for run in returns)}", flush=True)


if __name__ == "__main__":
    main()
