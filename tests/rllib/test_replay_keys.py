"""RLlib's keys of off-policy algorithms: what each means here, and what is refused."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from lightning_rl import rllib
from lightning_rl.config.groups import group_options
from lightning_rl.data.replay_datamodule import ReplayDataModule
from lightning_rl.errors import ConfigError
from lightning_rl.policies import DQN

pytestmark = pytest.mark.filterwarnings("ignore:.*no counterpart.*")


@pytest.fixture(autouse=True)
def in_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(name: str, **given: Any) -> dict[str, Any]:
    """The configuration that a classic trainer makes of these keys."""
    env = "Pendulum-v1" if name in ("SAC", "TD3", "DDPG", "TQC") else "CartPole-v1"
    return getattr(rllib, f"{name}Trainer")(env=env, config=given).config


@pytest.mark.parametrize("name", ["SimpleQ", "DQN", "Rainbow", "R2D2", "Apex", "SAC", "TD3", "DDPG", "TQC"])
def test_rllib_has_a_trainer_for_every_off_policy_algorithm(name: str) -> None:
    made = getattr(rllib, f"{name}Trainer")
    assert made.__name__ == f"{name}Trainer" and made.default_policy.replace("_", "") == name.lower()
    assert made.default_policy in group_options("policy")
    assert issubclass(getattr(rllib, f"{name}TorchPolicy"), rllib.TorchPolicy)


def test_a_policy_class_brings_its_replay_along() -> None:
    """Of an algorithm and of a class derived from one of two that are derived from each other."""

    class Mine(rllib.__getattr__("RainbowTorchPolicy")):
        pass

    for policy, prioritized in ((DQN, False), (Mine, True)):
        trainer = rllib.Trainer.with_updates("Classes", default_policy=policy)(env="CartPole-v1")
        assert isinstance(trainer.datamodule, ReplayDataModule) and trainer.datamodule.prioritized == prioritized


def test_the_keys_of_dqn_reach_their_places() -> None:
    """Fragments of 4 rows: 1/4 gradient step each env step, so a target every 500 env steps is one every 125."""
    keys = {"buffer_size": 5000, "learning_starts": 300, "train_batch_size": 32, "rollout_fragment_length": 4}
    keys |= {"target_network_update_freq": 500, "prioritized_replay": True, "prioritized_replay_alpha": 0.5}
    keys |= {"prioritized_replay_beta": 0.3, "final_prioritized_replay_beta": 1.0, "prioritized_replay_eps": 1e-5}
    keys |= {"prioritized_replay_beta_annealing_timesteps": 20_000, "n_step": 3, "double_q": False, "dueling": True}
    keys |= {"hiddens": [32], "noisy": True, "sigma0": 0.4, "num_atoms": 11, "v_min": -5.0, "v_max": 5.0}
    keys |= {"adam_epsilon": 1e-8, "lr": 5e-4, "grad_clip": 40.0, "timesteps_per_iteration": 1000}
    keys |= {"exploration_config": {"type": "EpsilonGreedy", "final_epsilon": 0.02, "epsilon_timesteps": 10_000}}
    made = config("DQN", **keys)
    data, policy = made["data"], made["policy"]
    assert (data["capacity"], data["learning_starts"], data["batch_size"], data["n_step"]) == (5000, 300, 32, 3)
    assert (data["training_intensity"], policy["target_update_interval"]) == (0.25, 125)
    assert (data["prioritized"], data["priority_alpha"], data["priority_eps"]) == (True, 0.5, 1e-5)
    assert data["priority_beta"] == [[0, 0.3], [20_000, 1.0]] and data["fragments_per_iteration"] == 250
    assert (policy["double"], policy["dueling"], policy["hiddens"], policy["noisy"]) == (False, True, [32], True)
    assert (policy["sigma0"], policy["num_atoms"], policy["v_min"], policy["v_max"]) == (0.4, 11, -5.0, 5.0)
    assert policy["optimizer_kwargs"] == {"eps": 1e-8} and policy["lr"] == 5e-4 and policy["max_grad_norm"] == 40.0
    assert policy["exploration"]["final_epsilon"] == 0.02


def test_the_section_of_the_replay_buffer_means_the_same() -> None:
    section = {"type": "MultiAgentPrioritizedReplayBuffer", "capacity": 700, "prioritized_replay_beta": 0.5}
    data = config("DQN", replay_buffer_config={**section, "learning_starts": 400, "replay_mode": "independent"})["data"]
    assert (data["prioritized"], data["capacity"], data["learning_starts"]) == (True, 700, 400)
    assert data["priority_beta"] == 0.5
    plain = config("DQN", replay_buffer_config={"type": "MultiAgentReplayBuffer"}, multiagent={})["data"]
    assert plain["prioritized"] is False


@pytest.mark.parametrize(
    ("given", "intensity"),
    [
        ({}, 1.0),
        ({"rollout_fragment_length": 4}, 0.25),
        ({"rollout_fragment_length": 4, "num_envs_per_worker": 2}, 0.125),
        ({"training_intensity": 64, "train_batch_size": 32}, 2.0),
        ({"training_intensity": None, "train_batch_size": 32}, 1.0),
    ],
)
def test_rows_trained_for_each_row_sampled_become_gradient_steps(given: dict[str, Any], intensity: float) -> None:
    assert config("DQN", **given)["data"]["training_intensity"] == intensity


def test_the_keys_of_sac_reach_their_places() -> None:
    network = {"fcnet_hiddens": [32, 32], "fcnet_activation": "tanh"}
    rates = {"actor_learning_rate": 1e-3, "critic_learning_rate": 2e-3, "entropy_learning_rate": 5e-4}
    keys = {"twin_q": False, "tau": 0.01, "initial_alpha": 0.5, "target_entropy": None, "optimization": rates}
    keys |= {"Q_model": network, "policy_model": network, "target_network_update_freq": 0, "learning_starts": 1500}
    made = config("SAC", **keys)
    policy = made["policy"]
    assert (policy["num_critics"], policy["tau"], policy["initial_alpha"]) == (1, 0.01, 0.5)
    assert policy["target_entropy"] == "auto"  # null there, which would leave the temperature alone here
    assert (policy["lr"], policy["critic_lr_scale"], policy["alpha_lr_scale"]) == (1e-3, 2.0, 0.5)
    assert policy["model"]["fcnet_hiddens"] == [32, 32] and policy["model"]["fcnet_activation"] == "tanh"
    assert made["exploration"]["random_timesteps"] == 1500  # until learning starts


def test_the_keys_of_td3_reach_their_places() -> None:
    keys = {"twin_q": True, "policy_delay": 3, "smooth_target_policy": True, "target_noise": 0.1, "tau": 0.002}
    keys |= {"target_noise_clip": 0.3, "actor_hiddens": [16], "critic_hiddens": [16], "l2_reg": 1e-6}
    keys |= {"actor_hidden_activation": "tanh", "critic_hidden_activation": "tanh", "actor_lr": 1e-3, "critic_lr": 2e-3}
    policy = config("TD3", **keys)["policy"]
    assert (policy["num_critics"], policy["policy_delay"], policy["target_noise"]) == (2, 3, 0.1)
    assert (policy["target_noise_clip"], policy["tau"], policy["critic_lr_scale"]) == (0.3, 0.002, 2.0)
    assert policy["model"]["fcnet_hiddens"] == [16] and policy["optimizer_kwargs"] == {"weight_decay": 1e-6}
    assert config("TD3", smooth_target_policy=False, target_noise=0.1)["policy"]["target_noise"] == 0.0
    assert config("DDPG", smooth_target_policy=True)["policy"]["target_noise"] == 0.2


def test_r2d2_counts_sequences_and_ape_x_shards() -> None:
    """640 rows in sequences of 20 are 32."""
    made = config("R2D2", replay_sequence_length=20, burn_in=5, train_batch_size=640, use_h_function=False)
    assert (made["data"]["batch_size"], made["data"]["sequence_length"], made["data"]["burn_in"]) == (32, 20, 5)
    assert made["policy"]["rescale"] is False
    given = {"optimizer": {"num_replay_buffer_shards": 2, "max_weight_sync_delay": 400, "debug": False}}
    apex = config("Apex", **given, worker_side_prioritization=False, buffer_size=4000, learning_starts=2000)["data"]
    assert (apex["num_shards"], apex["initial_priorities"]) == (2, False)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("SAC", {"target_network_update_freq": 100}, "the targets follow by tau after each gradient step"),
        ("SAC", {"Q_model": {"fcnet_hiddens": [8]}}, "fcnet_hiddens=[256, 256] of the actor (policy_model) and [8]"),
        ("SAC", {"use_state_preprocessor": True}, "here it can only be False"),
        ("SAC", {"optimization": {"lr": 1.0}}, "optimization has no key 'lr' here. Keys: actor_learning_rate"),
        ("TD3", {"use_huber": True}, "here it can only be False"),
        ("DQN", {"replay_buffer_config": {"size": 3}}, "replay_buffer_config has no key 'size' here"),
        (
            "DQN",
            {"multiagent": {"polices": {"a": None}}},
            "multiagent has no key 'polices' here. Did you mean 'policies'",
        ),
        ("DQN", {"bufer_size": 3}, "no config key 'bufer_size'. Did you mean 'buffer_size'"),
        ("DQN", {"policy_delay": 2}, "no key 'policy.policy_delay'"),
        ("PPO", {"training_intensity": 2}, "'training_intensity' is for algorithms that replay"),
    ],
)
def test_keys_without_a_meaning_are_refused(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        config(name, **given)


def test_classic_keys_train_at_the_configured_rate(tmp_path: Path) -> None:
    """A gradient step for every 4 env steps after the first 40."""
    keys = {"rollout_fragment_length": 4, "learning_starts": 40, "train_batch_size": 16, "timesteps_per_iteration": 60}
    trainer = rllib.__getattr__("DQNTrainer")(env="CartPole-v1", config=keys)
    result = trainer.train()
    assert result["timesteps_total"] >= 45 and result["gradient_steps"] == (result["timesteps_total"] - 40) // 4
    trainer.stop()


def small_plan(workers: Any, config: Any) -> Any:
    """The least plan that stores and learns."""
    buffer = rllib.LocalReplayBuffer(learning_starts=config["learning_starts"], replay_batch_size=8)
    store = rllib.ParallelRollouts(workers).for_each(rllib.StoreToReplayBuffer(local_buffer=buffer))
    learn = rllib.Replay(local_buffer=buffer).for_each(rllib.TrainOneStep(workers))
    return rllib.StandardMetricsReporting(rllib.Concurrently([store, learn], output_indexes=[1]), workers, config)


@pytest.mark.parametrize(
    ("name", "env"), [("DQN", "CartPole-v1"), pytest.param("SAC", "Pendulum-v1", marks=pytest.mark.every)]
)
def test_a_trainer_with_a_plan_saves_restores_and_evaluates(tmp_path: Path, name: str, env: str) -> None:
    """Its buffer is the plan's: the restored run fills one again before it learns on."""
    keys = {"learning_starts": 20, "timesteps_per_iteration": 40, "evaluation_interval": 2, "evaluation_duration": 2}
    made = getattr(rllib, f"{name}Trainer").with_updates("Planned", execution_plan=small_plan)
    first = made(env=env, config=keys)
    results = [first.train() for _ in range(2)]
    assert "evaluation" not in results[0] and "eval/ep_rew_mean" in results[1]["evaluation"]
    path = first.save(tmp_path / "saved.ckpt")
    first.stop()
    second = made(env=env, config={**keys, "seed": 3})
    second.restore(path)
    assert (second.policy.env_steps, second.policy.gradient_steps) == (
        results[1]["env_steps"],
        results[1]["gradient_steps"],
    )
    result = second.train()
    assert result["training_iteration"] == 3 and result["env_steps"] >= results[1]["env_steps"] + 40
    gained = result["gradient_steps"] - results[1]["gradient_steps"]
    assert 0 < gained <= result["env_steps"] - results[1]["env_steps"] - 20 + 1
    second.stop()


def test_a_plan_with_an_on_policy_algorithm_learns_from_joined_batches() -> None:
    def plan(workers: Any, config: Any) -> Any:
        rollouts = rllib.ParallelRollouts(workers, mode="bulk_sync")
        learn = rollouts.combine(rllib.ConcatBatches(min_batch_size=config["train_batch_size"]))
        return rllib.StandardMetricsReporting(learn.for_each(rllib.TrainOneStep(workers)), workers, config)

    keys = {"rollout_fragment_length": 16, "train_batch_size": 60, "num_sgd_iter": 1, "num_envs_per_worker": 2}
    trainer = rllib.__getattr__("PPOTrainer").with_updates("Planned", execution_plan=plan)(
        env="CartPole-v1", config=keys
    )
    result = trainer.train()
    assert result["env_steps"] >= 60 and math.isfinite(result["info"]["learner"]["default_policy"]["policy_loss"])
    trainer.stop()


def test_a_plan_cannot_move_targets_that_follow_by_themselves() -> None:
    def plan(workers: Any, config: Any) -> Any:
        return rllib.ParallelRollouts(workers).for_each(rllib.UpdateTargetNetwork(workers, 100))

    trainer = rllib.__getattr__("SACTrainer").with_updates("Planned", execution_plan=plan)(env="Pendulum-v1")
    with pytest.raises(ConfigError, match="SAC"):
        trainer.train()
    trainer.stop()
