"""The program of every rank but the first: reads the resolved config that the first rank sends, and trains."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

import yaml

from lightning_rl.callbacks import StopSignals
from lightning_rl.run_directory.status import update_status
from lightning_rl.runs.rank_watch import RankWatch
from lightning_rl.runs.rendezvous import Store, store_of_the_run
from lightning_rl.runs.run import build, fit

__all__ = ["main"]


def main() -> None:
    """Train as one rank: `python -m lightning_rl.runs.rank_process [CHECKPOINT]`, with the config on standard input.

    The first rank sends the config after checking the names in it (`trust.py`); no file is read.
    """
    config = yaml.safe_load(sys.stdin.buffer.read())
    rank, first, run_dir = int(os.environ["LOCAL_RANK"]), os.getppid(), Path(config["run_dir"])
    store = store_of_the_run()

    def find_failure() -> str | None:
        return None if os.getppid() == first else f"rank 0 (process {first}) is gone, so rank {rank} ends"

    def report(failure: str) -> None:
        if rank == 1:  # in place of the first rank
            update_status(run_dir, state="failed", error=failure)

    watch = RankWatch(find_failure, report)
    try:
        with StopSignals() as signals, watch:
            ckpt_path = Path(sys.argv[1]) if len(sys.argv) > 1 else None
            built = build(config, signals, ckpt_path=ckpt_path)
            store.set(f"ready/{rank}", "")
            fit(*built, ckpt_path)
    except Exception as error:
        if failure := watch.wait_for_failure(1.0):
            print(f"error: {failure}", file=sys.stderr)
            report(failure)
        else:  # the first rank reports it
            report_to_first_rank(store, rank, error)
        raise SystemExit(1) from error


def report_to_first_rank(store: Store, rank: int, error: Exception) -> None:
    """Write the error to the store, unless another rank has failed before."""
    text = "".join(traceback.format_exception(error))
    failure = {"rank": rank, "error": type(error).__name__, "message": str(error), "traceback": text}
    store.compare_set("failure", "", json.dumps(failure))


if __name__ == "__main__":
    main()
