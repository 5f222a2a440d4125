"""Starts the other ranks of a run on several devices, from the resolved config that the first rank sends.

Lightning would start them with the command line of this process, which would compose the config again: with another
time stamp, hence another run directory, and under `-m` the whole sweep in every rank.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning_rl.config.ranks import devices_of
from lightning_rl.errors import ConfigError
from lightning_rl.runs.rank_processes import RankProcesses
from lightning_rl.runs.rank_watch import RankWatch
from lightning_rl.runs.rendezvous import environment, leave_group, loopback_store

__all__ = ["Launch", "is_first_rank", "local_ranks", "start_ranks"]

Launch = Callable[[Mapping[str, Any], Path | None], None]

# Set by torchrun, SLURM and the like: then these programs have started the processes.
STARTED_ELSEWHERE = ("LOCAL_RANK", "TORCHELASTIC_RUN_ID", "SLURM_PROCID")
GLOBAL_RANK = ("RANK", "SLURM_PROCID", "LOCAL_RANK")


def local_ranks(config: Mapping[str, Any]) -> int:
    """Number of processes to run on this machine; 1 if another program, such as torchrun, starts them.

    Raises:
        ConfigError: the config has several nodes, and no program has started processes on them.
    """
    if any(name in os.environ for name in STARTED_ELSEWHERE):
        return 1
    nodes = int(config["trainer"].get("num_nodes", 1))
    if nodes > 1:
        raise ConfigError(
            f"trainer.num_nodes={nodes}, and this process was started on one of them alone: start it on each with "
            "torchrun or srun, or let Ray do so with rank_launcher=ray_train"
        )
    return devices_of(config)


def is_first_rank() -> bool:
    """Whether this process writes the run directory: the only rank, or the first one."""
    return next((os.environ[name] for name in GLOBAL_RANK if name in os.environ), "0") == "0"


@contextmanager
def start_ranks(ranks: int, run_dir: Path) -> Iterator[Launch]:
    """Context in which this process is rank 0 of `ranks`; a Trainer built inside waits for the others (1: no effect).

    Args:
        ranks: processes of the run, all on this machine.
        run_dir: the directory of the run, for messages.

    Yields:
        `launch(config, ckpt_path)` starts the others, once the config is checked and written. When the context ends,
        they have ended: by themselves after success, killed after an error.

    Raises:
        RankError: a rank died, or failed with an error that the user cannot fix.
        ConfigError, EnvError, CheckpointError, NonFiniteError, UnsupportedSpaceError: another rank's.
    """
    if ranks == 1:
        yield lambda config, ckpt_path: None
        return
    others = RankProcesses(ranks, run_dir)
    with loopback_store() as store, environment(WORLD_SIZE=str(ranks), LOCAL_RANK="0"):
        watch = RankWatch(lambda: others.find_failure(store), others.report_and_end)
        try:
            with watch:
                yield lambda config, ckpt_path: others.start(config, ckpt_path, store)
            others.wait()
        except Exception as error:
            others.raise_original(error, store, watch)
            raise
        finally:
            leave_group()  # closes the connections, so that ranks that wait for this one fail
            others.end()
