"""custom_input_api: a reader of the program's own, registered under a name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from lightning_rl.rllib.agents.cql import CQLTrainer
from lightning_rl.rllib.offline.input_reader import InputReader
from lightning_rl.rllib.offline.io_context import IOContext
from lightning_rl.rllib.offline.json_reader import JsonReader
from lightning_rl.rllib.offline.registry import register_input
from lightning_rl.rllib.policy.sample_batch import SampleBatch


class CustomJsonReader(JsonReader):
    """Reads a log that calls columns otherwise: one step a line."""

    def __init__(self, ioctx: IOContext) -> None:
        super().__init__(ioctx.input_config["input_files"], ioctx)
        self.rows = [json.loads(line) for file in self.files for line in file.read_text().splitlines()]
        self.generator = np.random.default_rng(0)

    def next(self) -> SampleBatch:
        drawn = [self.rows[index] for index in self.generator.integers(len(self.rows), size=256)]
        columns = {name: np.array([row[key] for row in drawn], np.float32) for name, key in COLUMNS.items()}
        return SampleBatch({**columns, "dones": np.array([row["over"] for row in drawn])})


COLUMNS = {"obs": "seen", "new_obs": "seen_next", "actions": "torque", "rewards": "gain"}


def write_log(file: Path, steps: int) -> None:
    """Pendulum under torques that swing it up more often than not, in [−1, 1] as policies act."""
    env, generator = gym.make("Pendulum-v1"), np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    with file.open("w") as log:
        for _ in range(steps):
            torque = float(np.clip(np.sign(obs[2]) * 0.5 + generator.normal(0.0, 0.4), -1.0, 1.0))
            new_obs, gain, terminated, truncated, _ = env.step(np.array([2.0 * torque], np.float32))
            row = {"seen": obs.tolist(), "seen_next": new_obs.tolist(), "torque": [torque], "gain": float(gain)}
            log.write(json.dumps({**row, "over": terminated}) + "\n")
            obs = env.reset()[0] if terminated or truncated else new_obs


def test_cql_learns_from_what_the_reader_gives(tmp_path: Path) -> None:
    write_log(tmp_path / "log.json", 1000)
    made: list[IOContext] = []

    def input_creator(ioctx: IOContext) -> InputReader:
        made.append(ioctx)
        return CustomJsonReader(ioctx)

    register_input("custom_input", input_creator)
    config = {
        "input": "custom_input",
        "input_config": {"input_files": [str(tmp_path / "log.json")]},
        "actions_in_input_normalized": True,
        "clip_actions": True,
        "input_evaluation": [],
        "evaluation_interval": 20,
        "evaluation_num_episodes": 2,
        "evaluation_config": {"input": "sampler", "explore": False},
        "bc_iters": 1000,
        "training_intensity": 4,
        "train_batch_size": 64,
        "learning_starts": 256,
        "model": {"fcnet_hiddens": [32]},
        "optimization": {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "entropy_learning_rate": 1e-3},
    }
    trainer: Any = CQLTrainer(env="Pendulum-v1", config=config)
    results = [trainer.train() for _ in range(20)]
    policy = trainer.policy
    seen = np.array([json.loads(line)["seen"] for line in (tmp_path / "log.json").read_text().splitlines()], np.float32)
    acted = policy.compute_actions(seen, explore=False)[0]
    trainer.stop()
    assert len(made) == 1 and made[0].input_config["input_files"] and results[-1]["timesteps_total"] == 20 * 256
    assert results[-1]["gradient_steps"] == 4 * (20 * 256 - 256) // 64, "rows before learning_starts do not count"
    assert results[-1]["evaluation"]["episode_len_mean"] == 200
    swing = np.corrcoef(np.asarray(acted)[:, 0], np.sign(seen[:, 2]))[0, 1]
    assert swing > 0.7, "in its first steps CQL clones the log"
