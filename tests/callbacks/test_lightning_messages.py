"""filter_lightning_messages: which messages of Lightning a run and its resume do not show."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

from lightning_rl.callbacks import filter_lightning_messages

PROGRAM = """
    from pathlib import Path
    from lightning_rl.callbacks import *
    from tests.callbacks.small_run import SmallData, SmallPolicy, small_trainer
    filter_lightning_messages()
    for total, resume in ((600, None), (1000, "checkpoints/last.ckpt")):
        metrics, rule = MetricsCallback({"seed": 1}), StopCallback(total)
        callbacks = [metrics, rule, StatusCallback("status.json", metrics, rule), RLCheckpoint("checkpoints")]
        trainer = small_trainer(Path("."), callbacks, [TensorBoardLogger("tb"), CSVLogger("metrics.csv")])
        trainer.fit(SmallPolicy(), SmallData(evaluations=[1.0]), ckpt_path=resume)
"""


@pytest.mark.process
def test_a_run_and_its_resume_print_no_warning(tmp_path: Path):
    """With every warning shown, also the ones that Python hides by default."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-W", "default", "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    output = done.stdout + done.stderr
    assert not [line for line in output.splitlines() if "lightning" in line.lower() or "Warning" in line], output


def test_messages_of_lightning_that_are_not_filtered_are_shown(caplog):
    with warnings.catch_warnings():
        filter_lightning_messages()
    logger = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    with caplog.at_level(logging.INFO, logger.name):
        logger.info("GPU available: False, used: False")
        logger.info("`Trainer(val_check_interval=1.0)` was configured")
    assert "val_check_interval" in caplog.text and "GPU available" not in caplog.text
