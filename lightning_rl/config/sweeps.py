"""Runs every combination of several values, through Hydra's sweeper and launcher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from lightning_rl.config.compose import complete_config, key_of, plain
from lightning_rl.config.groups import PRIMARY, hydra_ready
from lightning_rl.config.hydra_errors import refusal
from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.config_file import CONFIG_FILE, changes, read_config, relocate

__all__ = ["check_continuation", "sweep", "sweep_jobs"]

ANOTHER = "give another run_dir, or the command that began that sweep"


def sweep(overrides: Sequence[str], run: Callable[[dict[str, Any]], float]) -> Path:
    """Call `run(config)` for every combination, through Hydra's sweeper and launcher.

    Args:
        overrides: some of them with several values: "seed=1,2,3", "policy.lr=range(1,5)".
        run: a module-level function (launchers may pickle it); its result is the objective of an optimizing sweeper.

    Returns:
        The sweep's directory, which holds one directory per job.

    Raises:
        ConfigError: an override cannot be read, or a job does not compose.
    """
    given = directory_overrides(overrides)
    named = given[-1].split("=", 1)[1] if given else f"runs/{datetime.now():%Y-%m-%d/%H-%M-%S}_sweep"
    directory = Path(named).absolute()
    kept = [override for override in complete_config(overrides) if override not in given]
    with hydra_ready() as hydra:
        try:
            hydra.multirun(PRIMARY, partial(run_job, run=run), [*kept, f"hydra.sweep.dir='{directory}'"])
        except HydraException as error:
            raise refusal(error, kept) from error
    return directory


def directory_overrides(overrides: Sequence[str]) -> list[str]:
    """The overrides that say where a sweep is; the last one counts."""
    return [override for override in overrides if key_of(override) in ("run_dir", "hydra.sweep.dir")]


def check_continuation(overrides: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a directory that holds jobs of another sweep.

    Args:
        overrides: the overrides of the sweep.
        configs: the configs of its jobs, in order.

    Raises:
        ConfigError: names a job there and the keys in which it differs.
    """
    for given in directory_overrides(overrides)[-1:]:
        for folder in sorted(Path(given.split("=", 1)[1]).absolute().glob("*_*")):
            number = folder.name.split("_")[0]
            if not number.isdigit() or not (folder / CONFIG_FILE).is_file():
                continue
            if int(number) >= len(configs):
                raise ConfigError(f"{folder} is not a job of this sweep, which has {len(configs)}: {ANOTHER}")
            began = read_config(folder)
            # Hydra's sweeper writes the same overrides in other words: the values that they give are compared.
            config = {**configs[int(number)], "overrides": began.get("overrides", [])}
            found = changes(began, relocate(config, folder), folder)
            if found:
                shown = ", ".join(f"{key}={before!r} (now {after!r})" for key, (before, after) in found.items())
                raise ConfigError(f"{folder} holds another job, with {shown}: {ANOTHER}")


def run_job(config: DictConfig, run: Callable[[dict[str, Any]], float]) -> float:
    """Run one job of a sweep, in the run directory that Hydra created for it."""
    OmegaConf.update(config, "run_dir", HydraConfig.get().runtime.output_dir)
    return run(plain(config))


def sweep_jobs(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of every job of a sweep; empty with a sweeper that chooses values adaptively.

    Raises:
        ConfigError: an override cannot be read.
    """
    if any(key_of(override) == "hydra/sweeper" for override in overrides):
        return []
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    try:
        parsed = OverridesParser.create().parse_overrides(complete_config(overrides))
        return BasicSweeper.split_arguments(parsed, None)[0]
    except HydraException as error:
        raise refusal(error, overrides) from error
