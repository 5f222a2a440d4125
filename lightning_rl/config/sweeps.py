"""Runs every combination of several values, through Hydra's sweeper and launcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from lightning_rl.config.hydra_errors import explanation
from lightning_rl.errors import ConfigError

__all__ = ["sweep", "sweep_jobs"]


def sweep(overrides: Sequence[str], run: Callable[[dict[str, Any]], float]) -> Path:
    """Call `run(config)` for every combination, through Hydra's sweeper and launcher.

    Args:
        overrides: some of them with several values: "seed=1,2,3", "policy.lr=range(1,5)".
        run: a module-level function (launchers may pickle it); its result is the objective of an optimising sweeper.

    Returns:
        The sweep's directory, which holds one directory per job.

    Raises:
        ConfigError: an override cannot be read, or a job does not compose.
    """
    given = [override for override in overrides if key_of(override) in ("run_dir", "hydra.sweep.dir")]
    named = given[-1].split("=", 1)[1] if given else f"runs/{datetime.now():%Y-%m-%d/%H-%M-%S}_sweep"
    directory = Path(named).absolute()
    kept = [override for override in complete_config(overrides) if override not in given]
    with hydra_ready() as hydra:
        try:
            hydra.multirun(PRIMARY, partial(run_job, run=run), [*kept, f"hydra.sweep.dir='{directory}'"])
        except HydraException as error:
            raise ConfigError(explanation(error, kept)) from error
    return directory


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
        raise ConfigError(explanation(error, overrides)) from error
