"""Lightning's messages that are no news to somebody who trains an RL policy with this package."""

from __future__ import annotations

import logging
import warnings

__all__ = ["filter_lightning_messages"]

# Each filter names one message and why it does not apply.
WARNINGS = (
    # A rollout loader has nothing to rewind: what comes next is in the DataModule's state, which is always restored.
    r"You're resuming from a checkpoint that ended before the epoch ended",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # between Lightning and torch, once a run
    r"`LightningModule.configure_optimizers` returned `None`",  # a policy written from scratch steps by itself
    r"Found \d+ module\(s\) in eval mode",  # the last evaluation left them there; every iteration starts in train mode
    r"You called `self.log\('eval/",  # without a logger the number is still in what validation returns
)
MESSAGES = (
    "Tip: For seamless cloud",  # advertisements of litlogger and litmodels
    "GPU available:",  # the summary of hardware that is not used; a CPU is the right device for small networks
    "TPU available:",
    "`Trainer.fit` stopped:",  # the stop rule is reported by the run itself
    "Restoring states from the checkpoint path at",  # so is the resume
    "Restored all states from the checkpoint at",
)


class Unwanted(logging.Filter):
    """Drops records whose message holds one of `MESSAGES`."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is shown."""
        text = record.getMessage()
        return not any(message in text for message in MESSAGES)


def filter_lightning_messages() -> None:
    """Silence exactly the messages listed above; safe to call again."""
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.rank_zero"):
        logger = logging.getLogger(name)
        if not any(isinstance(old, Unwanted) for old in logger.filters):
            logger.addFilter(Unwanted())
