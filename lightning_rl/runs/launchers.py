"""Launchers start the ranks of a run: on this machine, or with Ray Train on the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lightning_rl.config.ranks import ranks_of
from lightning_rl.errors import ConfigError
from lightning_rl.run_directory.config_file import write_config
from lightning_rl.run_directory.provenance import record_session
from lightning_rl.runs.ranks import is_first_rank, local_ranks, start_ranks
from lightning_rl.schema.ranges import Count, NonNegative
from lightning_rl.schema.signatures import check_keywords

if TYPE_CHECKING:
    import torch

    from lightning_rl.callbacks.stop import Watch

__all__ = ["LocalLauncher", "RayTrainLauncher"]

Config = Mapping[str, Any]


class LocalLauncher:
    """Starts the ranks of this machine as processes, and sends them the config.

    If other programs (torchrun, srun) have started the ranks, on one node or several, each rank only begins to train.
    """

    def launch(self, config: Config, ckpt_path: Path | None = None, watch: Watch | None = None) -> None:
        """Train to the end, from a checkpoint if one is given.

        Raises:
            RankError: another rank died or failed; the user's own errors in a rank are raised as they are.
            ConfigError: the config has several nodes, and no program has started processes on them.
        """
        from lightning_rl.callbacks import StopSignals
        from lightning_rl.runs.run import build, fit

        run_dir = Path(config["run_dir"]).absolute()
        with StopSignals() as signals, start_ranks(local_ranks(config), run_dir) as launch:
            built = build(config, signals, ckpt_path=ckpt_path, watch=watch)
            if is_first_rank():
                record_start(config, run_dir, ckpt_path, device=device_name(built[2].strategy.root_device))
            launch(config, ckpt_path)
            fit(*built, ckpt_path)


class RayTrainLauncher:
    """Starts `trainer.devices` × `trainer.num_nodes` ranks on a Ray cluster, on any nodes with room, by Ray Train.

    The rollout processes of each rank get their own room (`workers.ray.placement`, `workers.ray.resources`). All
    nodes must see the run directory and have the package installed. Ctrl-C ends a run without a checkpoint: Ray Train
    runs ranks in threads, which receive no signals.

    Args:
        address: the address of the cluster: "auto" or host:port; "local" starts one on this machine.
        resources: resources of each rank: "CPU", "GPU", and the cluster's own; a GPU is added if the accelerator is
            one, or is "auto" and the cluster has GPUs.
        placement: the placement of the ranks: "pack" on few nodes, "spread" over many, "strict_pack", "strict_spread".
        timeout_s: seconds that the cluster may take to provide room, and that a rank waits for the others.

    Raises:
        ConfigError: a number is out of range.
    """

    @check_keywords("rank_launcher")
    def __init__(
        self,
        *,
        address: str = "auto",
        resources: Mapping[str, NonNegative] | None = None,
        placement: Literal["pack", "spread", "strict_pack", "strict_spread"] = "pack",
        timeout_s: Count = 600,
    ) -> None:
        self.address, self.placement, self.timeout_s = address, placement, timeout_s
        self.resources = {"CPU": 1, **(resources or {})}

    def launch(self, config: Config, ckpt_path: Path | None = None, watch: Watch | None = None) -> None:
        """Train to the end, from a checkpoint if one is given.

        Raises:
            RankError: a rank died or failed; the user's own errors in a rank are raised as they are.
            ConfigError: Ray Train is not installed, the cluster has no room for the ranks, or the run is watched.
        """
        if watch is not None:
            raise ConfigError(
                "rank_launcher=ray_train trains elsewhere, where no sweep or search can watch: rank_launcher=local"
            )
        from lightning_rl.rollouts.ray.train import train_on_ranks

        run_dir = Path(config["run_dir"]).absolute()
        accelerator = config["trainer"].get("accelerator", "auto")
        job = {**config, "run_dir": str(run_dir), "trainer": {**config["trainer"], "enable_progress_bar": False}}
        if config["workers"]["num_workers"]:  # else room would be reserved for ranks only, not for their workers
            job["workers"] = {**config["workers"], "ray": {"address": "auto", **config["workers"]["ray"]}}
        train_on_ranks(
            train_rank,
            {"config": job, "ckpt_path": None if ckpt_path is None else str(ckpt_path.absolute())},
            ranks_of(config),
            address=self.address,
            resources={**({"GPU": 1} if accelerator in ("gpu", "cuda") else {}), **self.resources},
            gpu_if_any=accelerator == "auto" and "GPU" not in self.resources,
            placement=self.placement,
            timeout_s=self.timeout_s,
            storage=run_dir / "ray_train",
            ready=lambda: record_start(config, run_dir, ckpt_path),
        )


def train_rank(job: Mapping[str, Any]) -> None:
    """Train as one rank, in a process that Ray Train started."""
    from lightning_rl.rollouts.ray.train import rank_trainer_keywords
    from lightning_rl.runs.run import build, fit

    path = None if job["ckpt_path"] is None else Path(job["ckpt_path"])
    fit(*build(job["config"], place=rank_trainer_keywords(), ckpt_path=path), path)


def record_start(config: Config, run_dir: Path, ckpt_path: Path | None, device: str | None = None) -> None:
    """Write the config and how this process was started to the run directory.

    Args:
        config: the config of the run.
        run_dir: the directory of the run.
        ckpt_path: the checkpoint that it continues from.
        device: on which the first rank learns, if it is known here.

    Raises:
        CheckpointError: the file is missing, damaged or no checkpoint.
    """
    from lightning_rl.run_directory.checkpoint_files import counters_in  # torch

    write_config(config, run_dir, 0 if ckpt_path is None else counters_in(ckpt_path)["env_steps"])
    record_session(run_dir, device)


def device_name(device: torch.device) -> str:
    """A device with the model of a GPU: "cpu", "cuda:0 (NVIDIA L4)"."""
    import torch

    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
