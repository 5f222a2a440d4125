"""Ctrl-C (Stop in a notebook) in an Algorithm raises KeyboardInterrupt; saving and training go on afterwards."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_rl import Algorithm, Policy, RLCallback
from lightning_rl.rllib import PPOTrainer

SMALL = ["experiment=none", "workers.envs_per_worker=2", "workers.fragment_length=32", "policy.passes=1"]


class Interrupting(RLCallback):
    """Sends Ctrl-C `times` times, once, when the hook of this name is called."""

    def __init__(self, hook: str, times: int = 1) -> None:
        self.hook, self.times = hook, times

    def interrupt(self, hook: str) -> None:
        if hook == self.hook:
            times, self.times = self.times, 0
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    def on_episode_step(self, **_: Any) -> None:
        self.interrupt("on_episode_step")

    def on_sample_end(self, **_: Any) -> None:
        self.interrupt("on_sample_end")

    def on_postprocess_trajectory(self, **_: Any) -> None:
        self.interrupt("on_postprocess_trajectory")

    def on_learn_on_batch(self, **_: Any) -> None:
        self.interrupt("on_learn_on_batch")

    def on_validation_start(self, *_: Any) -> None:
        self.interrupt("on_validation_start")


def algorithm(directory: Path, *callbacks: Any, overrides: Any = ()) -> Algorithm:
    own = {"run_dir": str(directory), "callbacks": list(callbacks), "evaluation": {"episodes": 2}}
    return Algorithm("ppo", "CartPole-v1", overrides=[*SMALL, *overrides], config=own)


def goes_on(interrupted: Algorithm, directory: Path) -> None:
    """Saving, training, evaluating and restoring work, and so does the next Ctrl-C."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    before = interrupted.policy.env_steps
    path = interrupted.save(directory / "saved.ckpt")
    assert interrupted.train()["env_steps"] > before and "eval/ep_rew_mean" in interrupted.evaluate()
    assert Policy.load(path).env_steps == before
    interrupted.stop()


@pytest.mark.parametrize("hook", ["on_learn_on_batch", "on_sample_end", "on_episode_step"])
def test_the_first_ctrl_c_is_raised_after_the_iteration(hook: str, tmp_path: Path) -> None:
    interrupted = algorithm(tmp_path, Interrupting(hook))
    with pytest.raises(KeyboardInterrupt):
        interrupted.train()
    assert interrupted.policy.iterations == 1 and interrupted.datamodule.workers is not None
    goes_on(interrupted, tmp_path)


@pytest.mark.parametrize("hook", ["on_postprocess_trajectory", "on_episode_step"])
def test_a_second_ctrl_c_is_raised_at_once(hook: str, tmp_path: Path) -> None:
    interrupted = algorithm(tmp_path, Interrupting(hook, times=2))
    with pytest.raises(KeyboardInterrupt):
        interrupted.train()
    assert interrupted.policy.iterations == 0
    goes_on(interrupted, tmp_path)


def test_ctrl_c_ends_an_evaluation_at_once(tmp_path: Path) -> None:
    interrupted = algorithm(tmp_path, Interrupting("on_validation_start"))
    interrupted.train()
    with pytest.raises(KeyboardInterrupt):
        interrupted.evaluate()
    goes_on(interrupted, tmp_path)


def test_new_workers_after_an_interrupt_do_not_repeat_the_episodes_of_the_first_ones(tmp_path: Path) -> None:
    """Ctrl-C twice stops the workers in the second iteration; the third one's fragment is not the first one again."""
    seen: list[torch.Tensor] = []

    class Observations(Interrupting):
        def on_sample_end(self, *, samples: Any, **_: Any) -> None:
            seen.append(samples.obs.clone())
            if len(seen) == 2:
                self.interrupt(self.hook)

    interrupted = algorithm(tmp_path, Observations("second sample", times=2))
    interrupted.train()
    with pytest.raises(KeyboardInterrupt):
        interrupted.train()
    interrupted.train()
    interrupted.stop()
    assert len(seen) == 3 and not torch.equal(seen[2], seen[0])


def test_a_program_that_handles_ctrl_c_itself_keeps_its_handler(tmp_path: Path) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        trained = algorithm(tmp_path, Interrupting("on_learn_on_batch"))
        assert trained.train()["training_iteration"] == 1 and received == [signal.SIGINT]
        trained.stop()
    finally:
        signal.signal(signal.SIGINT, before)


def test_rllib_s_trainer_is_interrupted_like_an_algorithm(tmp_path: Path) -> None:
    trainer = PPOTrainer({"env": "CartPole-v1", "train_batch_size": 64, "callbacks": Interrupting("on_learn_on_batch")})
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert trainer.save(str(tmp_path / "saved.ckpt")) and trainer.train()["time/iterations"] == 2
    trainer.stop()


@pytest.mark.ray
def test_ctrl_c_with_rollouts_of_processes(tmp_path: Path) -> None:
    interrupting = Interrupting("on_postprocess_trajectory", times=2)
    interrupted = algorithm(tmp_path, interrupting, overrides=["workers.num_workers=2"])
    with pytest.raises(KeyboardInterrupt):
        interrupted.train()
    goes_on(interrupted, tmp_path)
