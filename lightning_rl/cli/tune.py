"""`lightning-rl tune`: searches hyperparameters."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from lightning_rl.cli.parser import EXIT_CODES, Parser, whole_number
from lightning_rl.config import descriptions
from lightning_rl.config.compose import check_choices, parse_overrides
from lightning_rl.errors import check_at_least_one, printable
from lightning_rl.runs.search import PRUNERS, SAMPLERS, TABLE, Search, short
from lightning_rl.runs.sweep_tables import write_csv

__all__ = ["tune"]


def tune(arguments: Sequence[str]) -> int:
    """Search hyperparameters: tune policy=ppo env=cartpole [policy.gamma=choice(0.9,0.99) …] --trials 50."""
    parser = Parser(
        prog="lightning-rl tune",
        description=tune.__doc__,
        epilog="To continue a search, repeat the command with the same run_dir=… or --study. See docs/tuning.md.",
    )
    parser.add_argument("overrides", nargs="*", help="the same as for train; keys with several values are searched")
    parser.add_argument(
        "--trials",
        type=whole_number,
        default=50,
        help="total number of trials in the study, including trials from earlier invocations; default 50",
    )
    parser.add_argument("--jobs", type=whole_number, default=1, help="parallel trials, each in its own process")
    parser.add_argument("--seeds", type=whole_number, default=1, help="runs per trial; its value is their mean")
    parser.add_argument("--sampler", choices=SAMPLERS, default="tpe", help="Optuna's sampler; default tpe")
    parser.add_argument("--pruner", choices=PRUNERS, default="median", help="stops unpromising trials early")
    parser.add_argument("--study", metavar="FILE.db", help="SQLite file or Optuna URL; default RUN_DIR/study.db")
    parser.add_argument("--space", type=Path, metavar="FILE.yaml", help="search space; default conf/search/POLICY.yaml")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="start no new trials after this time")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_intermixed_args(arguments)
    check_at_least_one("--", trials=options.trials, jobs=options.jobs, seeds=options.seeds)
    check_choices(options.overrides)
    search = Search(
        [override for override in options.overrides if not override.startswith("run_dir=")],
        search_directory(options.overrides, options.study),
        storage=options.study,
        space=options.space,
        seeds=options.seeds,
        sampler=options.sampler,
        pruner=options.pruner,
    )
    print(f"{len(search.dimensions)} keys are searched in {search.directory}: ", end="")
    print(", ".join(each.key for each in search.dimensions), flush=True)
    try:
        search.run(options.trials, options.jobs, options.timeout)
    except KeyboardInterrupt as interrupt:
        report(search, as_json=False)
        goes_on = f"the same command with run_dir={search.directory} continues"
        raise KeyboardInterrupt(f"{interrupt}; {search.ended} trials are in the study; {goes_on}") from interrupt
    return report(search, options.json)


def search_directory(overrides: Sequence[str], study: str | None) -> Path:
    """Where the runs are: run_dir=…, or beside the study's file, or a directory with the time in its name."""
    named = parse_overrides([override for override in overrides if override.startswith("run_dir=")])
    if named:
        return Path(str(named["run_dir"]))
    if study is not None and "://" not in study:
        return Path(study).with_suffix("")
    return Path(f"runs/{datetime.now():%Y-%m-%d/%H-%M-%S}_tune")


def report(search: Search, as_json: bool) -> int:
    """Write and print the trials, the importance of each key, and the best trial; 1 if no trial has a value."""
    rows, best = search.rows(), search.best_overrides()
    write_csv(search.directory / TABLE, rows)
    file, importances = None if best is None else search.write_best(), search.importances()
    if as_json:
        value = None if best is None else search.study.best_value
        found = {"best": best, "value": value, "experiment": None if file is None else str(file)}
        print(json.dumps({**found, "importances": importances, "trials": rows, "directory": str(search.directory)}))
    else:
        shown = [
            {key.split(".")[-1]: short(value) if "." in key else value for key, value in row.items() if key != "error"}
            for row in rows
        ]
        print(f"\n{descriptions.table(shown)}")
        for row in rows:
            if row["error"]:
                print(f"trial {row['trial']} failed: {printable(str(row['error']))}")
        if importances:
            parts = (f"{key} {share:.0%}" for key, share in importances.items() if share >= 0.01)
            print(f"importance (PED-ANOVA): {', '.join(parts)}")
        if best is None:
            print(f"no trial has a value yet: {search.directory}")
        else:
            print(f"best: trial {search.study.best_trial.number}, mean evaluation return {search.study.best_value:.1f}")
            print(f"  lightning-rl train {printable(shlex.join(best))}")
            print(f"  {file}  (copied to ./conf/experiment/NAME.yaml: experiment=NAME)")
    return EXIT_CODES["failed" if best is None else "ok"]
