"""From Trainable to Trainer: which method calls which, and what a trainer holds."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl.rllib.agents.callbacks import DefaultCallbacks
from lightning_rl.rllib.agents.dqn import DQNTrainer
from lightning_rl.rllib.agents.trainer import COMMON_CONFIG, Trainer, with_common_config
from lightning_rl.rllib.agents.trainer_template import build_trainer
from lightning_rl.rllib.evaluation.worker_set import WorkerSet
from lightning_rl.rllib.utils import add_mixins

SMALL: dict[str, Any] = {"num_envs_per_worker": 2, "rollout_fragment_length": 16, "num_workers": 0}


class Walk(Trainer):
    """A mixin that notes which methods of the trainer are called."""

    def setup(self, config):
        self.calls = ["setup"]
        super().setup(config)

    def step(self):
        self.calls.append("step")
        return super().step()

    def save_checkpoint(self, checkpoint_dir):
        self.calls.append("save_checkpoint")
        return super().save_checkpoint(checkpoint_dir)

    def load_checkpoint(self, checkpoint):
        self.calls.append("load_checkpoint")
        super().load_checkpoint(checkpoint)

    def cleanup(self):
        self.calls.append("cleanup")
        super().cleanup()

    @classmethod
    def _validate_config(cls, config, trainer_obj_or_none=None):
        if trainer_obj_or_none is not None:
            trainer_obj_or_none.calls.append("_validate_config")
        super()._validate_config(config, trainer_obj_or_none=trainer_obj_or_none)


WalkedTrainer = build_trainer(
    name="WalkedTrainer", default_policy="dqn", default_config={"gamma": 0.9, "lr": 0.5}, mixins=[Walk]
)


def test_a_trainable_s_methods_call_those_that_a_trainer_defines(tmp_path: Any) -> None:
    """train calls step; save and restore call save_checkpoint and load_checkpoint; stop calls cleanup."""
    trainer: Any = WalkedTrainer(env="CartPole-v1", config={**SMALL, "lr": 1e-3})
    assert trainer.calls == ["setup", "_validate_config"]
    result = trainer.train()
    assert result["training_iteration"] == 1 and result["done"] is False and trainer.calls.pop() == "step"
    results = trainer.train_buffered(60.0, max_buffer_length=3)
    assert [each["training_iteration"] for each in results] == [2, 3, 4]
    assert trainer.train_buffered(0.0)[0]["training_iteration"] == 5  # at least one, whatever the time
    trainer.restore(trainer.save(tmp_path))
    trainer.stop()
    assert trainer.calls[2:] == ["step"] * 4 + ["save_checkpoint", "load_checkpoint", "cleanup", "cleanup"]


def test_the_default_resource_request_follows_the_config() -> None:
    pytest.importorskip("ray.tune", exc_type=ImportError)
    request = WalkedTrainer.default_resource_request({"num_workers": 2, "num_gpus": 1})
    assert request.bundles == [{"CPU": 1, "GPU": 1}, {"CPU": 1}, {"CPU": 1}]


class Fails(gym.Wrapper):
    """CartPole that breaks down in its 40th step."""

    steps = 0

    def step(self, action):
        Fails.steps += 1
        if Fails.steps == 40:
            raise OSError("the connection is lost")
        return super().step(action)


@pytest.mark.filterwarnings("ignore:.*the connection is lost")
def test_train_tries_again_when_sampling_fails() -> None:
    def env_creator(env_config):
        return Fails(gym.make("CartPole-v1"))

    keys = {**SMALL, "rollout_fragment_length": 64, "restart_failed_sub_environments": True}
    trainer = WalkedTrainer(env=env_creator, config=keys)
    assert trainer.train()["timesteps_total"] > 40 < Fails.steps
    trainer.stop()


class MyCallbacks(DefaultCallbacks):
    def on_train_result(self, *, trainer, result, **kwargs):
        result["seen"] = True


def test_setup_makes_the_environment_the_config_and_the_callbacks() -> None:
    user_config = {**SMALL, "lr": 1e-3, "callbacks": MyCallbacks}
    trainer: Any = WalkedTrainer(config=user_config, env="CartPole-v1")
    assert trainer._env_id == "CartPole-v1" and trainer._name == "WalkedTrainer"
    assert trainer.env_creator({}).spec.id == "CartPole-v1"
    assert trainer.raw_user_config == {**user_config, "env": "CartPole-v1"}
    merged = Trainer.merge_trainer_configs(trainer._default_config, user_config)
    assert merged.items() <= trainer.config.items() and (merged["gamma"], merged["lr"]) == (0.9, 1e-3)
    assert type(trainer.callbacks) is MyCallbacks and trainer.train()["seen"]
    assert trainer.logdir == trainer.run_config["run_dir"]
    trainer.stop()


def test_workers_are_a_set_and_take_the_weights_that_are_sent() -> None:
    trainer = DQNTrainer(env="CartPole-v1", config={**SMALL, "evaluation_num_episodes": 2})
    workers = trainer._make_workers(
        env_creator=lambda config: gym.make("CartPole-v1"),
        validate_env=lambda env, context: None,
        policy_class=type(trainer.get_policy()),
        config=trainer.config,
        num_workers=0,
    )
    assert isinstance(workers, WorkerSet) and workers.remote_workers() == []
    assert workers.local_worker().sample()["new_obs"].shape[1:] == (4,)
    weights = trainer.workers.local_worker().save()
    before = workers.foreach_worker(lambda w: w.get_weights()["default_policy"])[0]
    workers.foreach_worker(lambda w: w.restore(weights))
    after, sent = workers.local_worker().get_weights()["default_policy"], trainer.get_weights()["default_policy"]
    assert all((after[name] == sent[name]).all() for name in sent)
    assert any((before[name] != sent[name]).any() for name in sent)
    trainer._sync_weights_to_workers(worker_set=workers)
    assert trainer.evaluate()["evaluation"]["episodes_this_iter"] == 2
    assert trainer.evaluation_workers.remote_workers() == []
    workers.stop()
    trainer.stop()


def test_actions_go_through_the_worker_s_preprocessor_and_the_policy() -> None:
    trainer: Any = DQNTrainer(env="FrozenLake-v1", config=SMALL)
    preprocessor = trainer.workers.local_worker().preprocessors["default_policy"]
    assert preprocessor.transform(3).tolist() == [0.0] * 3 + [1.0] + [0.0] * 12
    action = trainer.compute_single_action(3, explore=False)
    assert action == trainer.get_policy("default_policy").compute_single_action(3, explore=False)[0]
    actions, states, infos = trainer.compute_actions({"a": 3, "b": 0}, explore=False, full_fetch=True)
    assert actions["a"] == action and states == {"a": [], "b": []} and infos["a"].keys() == infos["b"].keys()
    trainer.stop()


class PlaysAtRandom(Trainer):
    """A trainer without a policy: it has `_init` and `step` of its own."""

    _name = "PlaysAtRandom"
    _default_config = with_common_config({"rollouts_per_iteration": 3})

    def _init(self, config, env_creator):
        self.env = env_creator(config["env_config"])

    def step(self):
        rewards, steps = [], 0
        for _ in range(self.config["rollouts_per_iteration"]):
            self.env.reset()
            done, total = False, 0.0
            while not done:
                _, reward, terminated, truncated, _ = self.env.step(self.env.action_space.sample())
                total, steps, done = total + reward, steps + 1, terminated or truncated
            rewards.append(total)
        return {"episode_reward_mean": float(np.mean(rewards)), "timesteps_this_iter": steps}


def test_init_and_step_of_a_trainer_are_enough() -> None:
    trainer = PlaysAtRandom(env="CartPole-v1", config={"rollouts_per_iteration": 20, "gamma": 0.5})
    assert trainer.config["gamma"] == 0.5 and trainer.config["train_batch_size"] == COMMON_CONFIG["train_batch_size"]
    result = trainer.train()
    trainer.stop()
    assert 12 < result["episode_reward_mean"] < 40 and result["training_iteration"] == 1
    assert result["timesteps_this_iter"] == 20 * result["episode_reward_mean"]


def test_a_trainer_of_build_trainer_steps_through_its_execution_plan() -> None:
    """step is the next item of train_exec_impl; mixins come before the Trainer."""

    class Doubles(Trainer):
        def step(self):
            next(self.train_exec_impl)
            return next(self.train_exec_impl)

    base = add_mixins(Trainer, [Doubles])
    assert issubclass(base, Trainer)
    trainer = base.with_updates("Twice", default_policy="pg")(env="CartPole-v1", config=SMALL)
    assert trainer.train()["info"]["num_steps_sampled"] > 32 and trainer.iteration == 1
    trainer.stop()
