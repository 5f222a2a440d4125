"""From a plain config to a finished run: builds the policy, the data and the Trainer, fits, and keeps the run directory.

Torch and Lightning are imported where they are needed, so that a mistake in the config costs no import.
"""

from __future__ import annotations

import json
import logging
import math
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lightning_rl.config_check import value_at
from lightning_rl.errors import CheckpointError, ConfigError, did_you_mean, import_object

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from lightning_rl.data.datamodule import RolloutDataModule
    from lightning_rl.policies import Policy

__all__ = ["RESUMABLE", "build", "evaluate", "recorded", "resumed_config", "train"]

# What may change when a run goes on; all else would make it another run.
RESUMABLE = ("total_env_steps", "stop.*", "checkpoint.*", "evaluation.*", "logger.*", "trainer.max_time", "torch_threads")


def build(config: Mapping[str, Any]) -> tuple[Policy, RolloutDataModule, Trainer]:
    """The three objects of a run, ready for `trainer.fit(policy, datamodule=datamodule)`; nothing is written yet.

    Args:
        config: plain containers that passed `check_config`.

    Raises:
        ConfigError: a constructor refuses its keywords.
        EnvError: the environment cannot be made or breaks the Gymnasium API.
        UnsupportedSpaceError: the policy cannot take the environment's spaces.
    """
    import torch
    from lightning.pytorch import Trainer, seed_everything

    from lightning_rl.data.datamodule import RolloutDataModule
    from lightning_rl.rollouts.envs import EnvCreator

    torch.set_num_threads(config["torch_threads"])
    seed_everything(config["seed"], verbose=False)  # for users' code; the package's own randomness is derived
    env = EnvCreator(**config["env"])
    observation_space, action_space = env.spaces()
    keywords = dict(config["policy"])
    policy = import_object(keywords.pop("_target_"))(observation_space, action_space, **keywords)
    callbacks = built_callbacks(config, env)
    datamodule = RolloutDataModule(
        env,
        config["workers"],
        {key: value for key, value in config["evaluation"].items() if key != "interval"},
        seed=config["seed"],
        callbacks=callbacks,
        **config["data"],
    )
    trainer = Trainer(
        max_epochs=-1,
        logger=built_loggers(config),
        callbacks=callbacks,
        default_root_dir=config["run_dir"],
        check_val_every_n_epoch=max(1, config["evaluation"]["interval"]),
        limit_val_batches=1.0 if config["evaluation"]["interval"] else 0,
        num_sanity_val_steps=0,
        enable_checkpointing=True,
        enable_model_summary=False,
        use_distributed_sampler=False,
        **config["trainer"],
    )
    return policy, datamodule, trainer


def train(config: Mapping[str, Any], ckpt_path: Path | None = None) -> dict[str, Any]:
    """Run a config to its end, an interrupt, or an error.

    Args:
        config: plain containers that passed `check_config`.
        ckpt_path: a checkpoint of this run to go on from.

    Returns:
        What status.json holds: state ("ok" or "interrupted"), env_steps, return, best_return, seconds.

    Raises:
        ConfigError: `run_dir` holds a run already.
        Exception: what stopped the run; its traceback is in RUN_DIR/train.log, and status.json says "failed".
    """
    raise AssertionError


@contextmanager
def recorded(run_dir: str | Path) -> Iterator[None]:
    """Leave the traceback of what goes wrong in RUN_DIR/train.log, and "failed" in its status.json."""
    yield


def resumed_config(run_dir: Path, changes: Mapping[str, Any]) -> dict[str, Any]:
    return {}


def evaluate(checkpoint, *, env, episodes, seed, explore):
    return {}
