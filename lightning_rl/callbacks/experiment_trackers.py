"""Loggers for Weights & Biases and MLflow that continue the tracked run when a run is resumed.

Lightning's loggers begin another tracked run in each process. These keep its id in the run directory.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import MLFlowLogger as LightningMLFlowLogger
from lightning.pytorch.loggers import WandbLogger as LightningWandbLogger
from lightning.pytorch.utilities import rank_zero_only

from lightning_rl.callbacks.loggers import by_dotted_key
from lightning_rl.run_directory.atomic import write_atomically
from lightning_rl.run_directory.regular_files import read_text

__all__ = ["MLFlowLogger", "WandbLogger"]

RUN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")

_begun: set[str] = set()  # ids of runs of Weights & Biases that loggers of this process began


class WandbLogger(LightningWandbLogger):
    """Lightning's logger for Weights & Biases, whose x-axis `trainer/global_step` counts environment steps.

    Args:
        directory: the directory of the run; a resumed run continues the tracked one, whose id is in DIRECTORY/wandb.id.
        project: the project of Weights & Biases.
        name: the name of the tracked run; `None`: the directory's name.
        offline: whether nothing leaves this machine until `wandb sync DIRECTORY/wandb/offline-run-*`.
        keywords: more keywords of Lightning's logger, and of `wandb.init`.

    Raises:
        ModuleNotFoundError: wandb is not installed.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        project: str = "lightning_rl",
        name: str | None = None,
        offline: bool = False,
        **keywords: Any,
    ) -> None:
        self._id_file = Path(directory) / "wandb.id"
        keywords = {"version": read_id(self._id_file), **keywords}
        name = name or Path(directory).name
        super().__init__(project=project, name=name, save_dir=directory, offline=offline, **keywords)

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The run of Weights & Biases; the first use begins or continues it."""
        if self._experiment is not None:
            return self._experiment
        import wandb  # pyright: ignore[reportMissingImports]

        if wandb.run is not None and wandb.run.id in _begun:
            wandb.finish()  # that of the previous job of a sweep, into which Lightning's logger would continue writing
        tracked: Any = super().experiment
        _begun.add(tracked.id)
        write_id(self._id_file, tracked.id)
        return tracked


class MLFlowLogger(LightningMLFlowLogger):
    """Lightning's logger for MLflow; steps of metrics are environment steps.

    MLflow only adds: what a killed run logged after the checkpoint from which it is resumed stays there. Parameters
    cannot change, so the new values of a resumed run become tags `changed/KEY`.

    Args:
        directory: the directory of the run; a resumed run continues the tracked one, whose id is in
            DIRECTORY/mlflow.id.
        experiment_name: the name of MLflow, which groups runs by it.
        run_name: the name of the tracked run; `None`: the directory's name.
        tracking_uri: the address of the store or server; `None`: that of MLFLOW_TRACKING_URI, or else
            DIRECTORY/mlflow.db.
        keywords: more keywords of Lightning's logger.

    Raises:
        ModuleNotFoundError: mlflow is not installed.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        experiment_name: str = "lightning_rl",
        run_name: str | None = None,
        tracking_uri: str | None = None,
        **keywords: Any,
    ) -> None:
        directory = Path(directory).absolute()
        self._id_file = directory / "mlflow.id"
        uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        # Without a location MLflow writes artifacts into the current directory.
        own = {} if uri else {"artifact_location": (directory / "mlartifacts").as_uri()}
        directory.mkdir(parents=True, exist_ok=True)  # the client creates its file at once
        super().__init__(
            experiment_name=experiment_name,
            run_name=run_name or directory.name,
            tracking_uri=uri or f"sqlite:///{directory / 'mlflow.db'}",
            **{"run_id": read_id(self._id_file), **own, **keywords},
        )

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The client of MLflow; the first use begins or continues the tracked run."""
        begins = not self._initialized
        client: Any = super().experiment
        if begins:
            write_id(self._id_file, str(self._run_id))
            client.update_run(self._run_id, status="RUNNING")
        return client

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **keywords: Any) -> None:
        """Log the parameters that the tracked run does not have, and tag it with those that have changed."""
        client, run_id = self.experiment, str(self._run_id)
        known, new = client.get_run(run_id).data.params, by_dotted_key(params)
        super().log_hyperparams({name: value for name, value in new.items() if name not in known})
        for name, value in new.items():
            if known.get(name, str(value)[:250]) != str(value)[:250]:  # as long as Lightning makes them
                client.set_tag(run_id, f"changed/{name}", str(value))


def read_id(file: Path) -> str | None:
    """The id of the tracked run in a file; `None` without one."""
    try:
        text = read_text(file, most=2**10).strip()
    except (OSError, ValueError):
        return None
    return text if RUN_ID.fullmatch(text) else None


def write_id(file: Path, run_id: str) -> None:
    """Keep the id of the tracked run."""
    if read_id(file) != run_id:
        write_atomically(file, f"{run_id}\n".encode(), durable=False)
