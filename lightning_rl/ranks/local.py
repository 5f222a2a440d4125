"""Starts the other processes of a run on several devices, each from the resolved config, which the first one sends.

Lightning would start them with the command line of this process, and a command line composes anew: another time stamp,
hence another run directory, and under `-m` the whole sweep in every rank.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from lightning_rl.errors import ConfigError
from lightning_rl.ranks.others import OtherRanks, report_failure
from lightning_rl.ranks.rendezvous import Store, environment, leave_group, loopback_store, store_of_the_run
from lightning_rl.ranks.watch import Watch

__all__ = ["Launch", "devices_of", "is_first_rank", "local_ranks", "main", "meeting", "ranks_of"]

Launch = Callable[[Mapping[str, Any], Path | None], None]

# Set by torchrun, SLURM and the like: then the processes are there already.
STARTED_ELSEWHERE = ("LOCAL_RANK", "TORCHELASTIC_RUN_ID", "SLURM_PROCID")
GLOBAL_RANK = ("RANK", "SLURM_PROCID", "LOCAL_RANK")


def devices_of(config: Mapping[str, Any]) -> int:
    """Devices, hence processes, on each node."""
    devices, accelerator = config["trainer"].get("devices", 1), config["trainer"].get("accelerator", "cpu")
    if isinstance(devices, list):
        return len(devices)
    if isinstance(devices, str) and devices.isdigit():
        return int(devices)
    if isinstance(devices, int) and devices >= 0:
        return max(1, devices)
    import torch

    return max(1, torch.cuda.device_count()) if accelerator in ("gpu", "cuda", "auto") else 1


def ranks_of(config: Mapping[str, Any]) -> int:
    """Processes of the whole run, on all nodes."""
    return devices_of(config) * int(config["trainer"].get("num_nodes", 1))


def local_ranks(config: Mapping[str, Any]) -> int:
    """How many processes this machine is to run; 1 if somebody else starts them.

    Raises:
        ConfigError: there are several nodes, and nobody has started processes on them.
    """
    if any(name in os.environ for name in STARTED_ELSEWHERE):
        return 1
    nodes = int(config["trainer"].get("num_nodes", 1))
    if nodes > 1:
        raise ConfigError(
            f"trainer.num_nodes={nodes}, and this process was started on one of them alone: start it on each with "
            "torchrun or srun, or let Ray do so with launcher=ray_train"
        )
    return devices_of(config)


def is_first_rank() -> bool:
    """Whether this process writes the run directory: the only one, or the first of those that somebody started."""
    return next((os.environ[name] for name in GLOBAL_RANK if name in os.environ), "0") == "0"


@contextmanager
def meeting(ranks: int, run_dir: Path) -> Iterator[Launch]:
    """Make this process rank 0 of `ranks` (1 changes nothing): a Trainer built inside waits for the others to join.

    Args:
        ranks: processes of the run, all on this machine.
        run_dir: of the run, for messages.

    Yields:
        `launch(config, ckpt_path)` starts the others, once the config is known to be good and written. They are
        gone when the context ends: left alone to finish if it ended well, ended if not.

    Raises:
        RankError: a rank died, or failed with something that is no mistake of the user's.
        ConfigError, EnvError, CheckpointError, NonFiniteError, UnsupportedSpaceError: another rank's.
    """
    if ranks == 1:
        yield lambda config, ckpt_path: None
        return
    others = OtherRanks(ranks, run_dir)
    with loopback_store() as store, environment(WORLD_SIZE=str(ranks), LOCAL_RANK="0"):
        watch = Watch(lambda: others.gone(store), others.last_words)
        try:
            with watch:
                yield lambda config, ckpt_path: others.start(config, ckpt_path, store)
            others.wait()
        except Exception as error:
            others.blame(error, store, watch)
            raise
        finally:
            leave_group()  # closes the connections: a rank that waits for this one hears of it
            others.end()


def main() -> None:
    """One rank but the first: `python -m lightning_rl.ranks.local [CHECKPOINT]`, with its config on standard input.

    The config comes from the first rank, which has looked at what it names (`trust.py`), and not from a file.
    """
    from lightning_rl.callbacks import StopSignals
    from lightning_rl.run import build, fit

    config = yaml.safe_load(sys.stdin.buffer.read())
    rank, first, run_dir = int(os.environ["LOCAL_RANK"]), os.getppid(), Path(config["run_dir"])
    store = store_of_the_run()

    def gone() -> str | None:
        return None if os.getppid() == first else f"rank 0 (process {first}) is gone, so rank {rank} ends"

    def report(found: str) -> None:
        if rank == 1:  # in place of the first one
            report_failure(run_dir, found)

    watch = Watch(gone, report)
    try:
        with StopSignals() as signals, watch:
            built = build(config, signals)
            store.set(f"ready/{rank}", "")
            fit(*built, Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    except Exception as error:
        if found := watch.look(within=1.0):
            print(f"error: {found}", file=sys.stderr)
            report(found)
        else:  # the first rank says it
            tell(store, rank, error)
        raise SystemExit(1) from error


def tell(store: Store, rank: int, error: Exception) -> None:
    """Leave in the store what went wrong, unless another rank, which failed before, has done so."""
    text = "".join(traceback.format_exception(error))
    told = {"rank": rank, "error": type(error).__name__, "message": str(error), "traceback": text}
    store.compare_set("failure", "", json.dumps(told))


if __name__ == "__main__":
    main()
