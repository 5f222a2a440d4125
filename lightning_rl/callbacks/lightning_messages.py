"""Filters Lightning's messages that do not apply to training an RL policy with this package."""

from __future__ import annotations

import logging
import warnings

__all__ = ["filter_lightning_messages"]

# Each filter names one message and why it does not apply.
WARNINGS = (
    # A rollout loader needs no rewind: its position is in the DataModule's state, which is always restored.
    r"You're resuming from a checkpoint that ended before the epoch ended",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # between Lightning and torch, once a run
    r"`LightningModule.configure_optimizers` returned `None`",  # a policy written from scratch has no optimizer
    r"Found \d+ module\(s\) in eval mode",  # the last evaluation left them there; every iteration starts in train mode
    r"You called `self.log\('eval/",  # without a logger, validation still returns the number
)
MESSAGES = (
    "Tip: For seamless cloud",  # advertisements of litlogger and litmodels
    "GPU available:",  # the summary of hardware that is not used; a CPU is the right device for small networks
    "TPU available:",
    "`Trainer.fit` stopped:",  # the stop rule is reported by the run itself
    "Restoring states from the checkpoint path at",  # so is the resume
    "Restored all states from the checkpoint at",
    "`weights_only` was not set",  # `AtomicCheckpointIO` reads plain data, whatever Lightning asks for
)


SPEAKERS = (
    "lightning.pytorch.utilities.rank_zero",
    "lightning.fabric.utilities.rank_zero",
    "lightning.pytorch.trainer.connectors.checkpoint_connector",
)


def is_wanted(record: logging.LogRecord) -> bool:
    """Whether the message of a record holds none of `MESSAGES`."""
    text = record.getMessage()
    return not any(message in text for message in MESSAGES)


def filter_lightning_messages() -> None:
    """Filter the messages listed above; may be called repeatedly."""
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    for name in SPEAKERS:
        logging.getLogger(name).addFilter(is_wanted)  # once: a logger has no filter twice
