"""Creates Lightning's Trainer for a run: strategy, precision, and errors in terms of the config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_rl.config.devices import on_cpu
from lightning_rl.config.ranks import ranks_of
from lightning_rl.errors import ConfigError, first_line

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

__all__ = ["make_trainer"]


def make_trainer(config: Mapping[str, Any], policy: Any, place: Mapping[str, Any], **keywords: Any) -> Trainer:
    """Create the Trainer of a run.

    Args:
        config: config with a `trainer` section.
        policy: policy to train.
        place: settings from a launcher that replace those of the section, and `plugins`.
        keywords: keywords of the Trainer that no section sets.

    Raises:
        ConfigError: Lightning refuses the section.
    """
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.pytorch import Trainer

    from lightning_rl.callbacks import AtomicCheckpointIO
    from lightning_rl.runs.precision import precision_plugin

    options = {**config["trainer"], **place}
    look = not reaches_every_parameter(policy, config["model"].get("custom_model"))
    options["strategy"] = fitting_strategy(options.get("strategy", "auto"), ranks_of(config), look=look)
    precision = precision_plugin(options.get("precision"), "cpu" if on_cpu(options) else "cuda")
    if precision is not None:
        del options["precision"]  # Lightning takes a name or a plugin
    plugins = [
        AtomicCheckpointIO(write_places(config, **keywords)),
        *options.pop("plugins", ()),
        *([precision] if precision else []),
    ]
    try:
        return Trainer(**keywords, **options, plugins=plugins)
    except (ImportError, ValueError, TypeError, RuntimeError, MisconfigurationException) as error:
        settings = " ".join(f"trainer.{key}={value}" for key, value in config["trainer"].items())
        raise ConfigError(f"Lightning's Trainer refuses {settings}: {first_line(error)}") from error


def write_places(
    config: Mapping[str, Any], callbacks: Sequence[Any] = (), logger: Any = (), **keywords: Any
) -> list[str | Path]:
    """Directories that checkpoints may be written to: the run's, and those named by callbacks and loggers.

    Names from a file have been checked: none lies outside of the run directory (`trust.py`).
    """
    named = [getattr(callback, "dirpath", None) for callback in callbacks]
    named += [getattr(each, "save_dir", None) for each in logger or ()]
    run_dir = Path(config["run_dir"]).absolute()
    # A place inside of the run directory is not a further one: it may be a link that leads elsewhere.
    outside = [place for place in named if place and not Path(place).absolute().is_relative_to(run_dir)]
    return [run_dir, *outside]


def fitting_strategy(strategy: Any, ranks: int, *, look: bool) -> Any:
    """The strategy; under DDP, one that finds parameters without a gradient if the loss may leave some out."""
    if isinstance(strategy, type):
        return strategy(find_unused_parameters=look)
    strategy = "ddp" if strategy == "auto" and ranks > 1 else strategy  # as Lightning would choose
    if strategy in ("ddp", "ddp_fork", "ddp_spawn", "ddp_notebook") and look:
        return f"{strategy}_find_unused_parameters_true"
    return strategy


def reaches_every_parameter(policy: Any, custom_model: Any) -> bool:
    """Whether every loss is known to use all parameters; DDP would wait forever for the gradient of an unused one.

    A policy declares this for its own `loss`, not for a subclass's, and only with the package's models.
    """
    known = (cls for cls in type(policy).__mro__ if {"loss", "uses_every_parameter"} & vars(cls).keys())
    says = vars(next(known)).get("uses_every_parameter", False)
    return says and custom_model is None
