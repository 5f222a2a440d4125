"""custom_logger: a logger of the program's own gets each result."""

from __future__ import annotations

from typing import Any

from lightning_rl.rllib.agents.ppo import PPOTrainer

printed: list[str] = []


class MyPrintLogger:
    """As a subclass of Ray Tune's `Logger`, whose constructor this is."""

    def __init__(self, config: dict[str, Any], logdir: str, trial: Any = None) -> None:
        self.config, self.logdir, self.trial = config, logdir, trial
        self._init()

    def _init(self):
        self.prefix = self.config.get("prefix")

    def on_result(self, result: dict):
        printed.append(f"{self.prefix}: {result['training_iteration']}")

    def close(self):
        printed.append("Closing")

    def flush(self):
        printed.append("Flushing ;)")


def test_each_result_is_printed(tmp_path) -> None:
    config = {
        "env": "CartPole-v1",
        "framework": "torch",
        "train_batch_size": 200,
        "logger_config": {"type": MyPrintLogger, "prefix": "ABC", "logdir": str(tmp_path)},
    }
    trainer = PPOTrainer(config=config)
    assert trainer.logdir == str(tmp_path)
    for _ in range(2):
        trainer.train()
    trainer.stop()
    assert printed == ["ABC: 1", "ABC: 2", "Flushing ;)", "Closing"]
