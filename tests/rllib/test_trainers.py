"""RLlib's trainer classes and config keys have RLlib's meaning; unknown keys are refused with the nearest."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lightning_rl import rllib
from lightning_rl.data import ReplayFeed
from lightning_rl.data.async_source import AsyncSource
from lightning_rl.data.gradient_source import GradientSource
from lightning_rl.data.population_source import PopulationSource
from lightning_rl.errors import ConfigError
from lightning_rl.exploration import Random
from lightning_rl.policies import A2C, DQN, PPO
from lightning_rl.rllib import keys
from lightning_rl.rllib.experiments import results_until
from lightning_rl.rllib.policy_configs import defaults_of
from lightning_rl.runs.algorithm import Algorithm
from tests.refusals import not_refused
from tests.rllib.classic import config, trainer, value_at
from tests.shipped_policies import policy_class
from tests.training.probes import Probe

pytestmark = pytest.mark.filterwarnings("ignore:.*no counterpart.*")
SMALL = {"num_envs_per_worker": 2, "rollout_fragment_length": 16}


# -- keys -------------------------------------------------------------------------------------------------------------
def under(section: str, **values: Any) -> dict[str, Any]:
    """Values by their path in the configuration."""
    return {f"{section}.{name}": value for name, value in values.items()}


NETWORK = {"fcnet_hiddens": [32, 32], "fcnet_activation": "tanh"}
RATES = {"actor_learning_rate": 1e-3, "critic_learning_rate": 2e-3, "entropy_learning_rate": 5e-4}
SHARDS = {"num_replay_buffer_shards": 2, "max_weight_sync_delay": 400, "debug": False}
BUFFER = {"type": "MultiAgentPrioritizedReplayBuffer", "capacity": 700, "prioritized_replay_beta": 0.5}
PLACES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "PPO",
        {"lr": 1e-5, "gamma": 0.9, "lambda": 0.8, "clip_param": 0.3, "vf_clip_param": 10.0, "vf_loss_coeff": 0.7}
        | {"entropy_coeff": 0.01, "kl_coeff": 0.2, "kl_target": 0.03, "num_sgd_iter": 3, "grad_clip": 0.4, **SMALL}
        | {"batch_mode": "complete_episodes", "observation_filter": "MeanStdFilter", "clip_rewards": True, "seed": 5}
        | {"horizon": 50, "framework": "torch", "num_gpus": 0, "model": {"fcnet_hiddens": [9], "custom_options": {}}},
        under("policy", lr=1e-5, gamma=0.9, gae_lambda=0.8, clip=0.3, value_loss_clip=10.0, value_coef=0.7, kl_coef=0.2)
        | under("policy", entropy_coef=0.01, kl_target=0.03, passes=3, max_grad_norm=0.4, observation_filter="mean_std")
        | under("workers", batch_mode="complete_episodes", fragment_length=16)
        | {"policy.reward_filter": "sign", "env.max_episode_steps": 50, "model.fcnet_hiddens": [9], "seed": 5},
    ),
    (
        "PPO",
        {"max_num_worker_restarts": 7, "restart_failed_sub_environments": False}
        | {"delay_between_worker_restarts_s": 2.5},
        under("workers", max_restarts=7, max_env_restarts=0, restart_backoff_s=2.5),
    ),
    *(
        (
            "PPO",
            {name: 1, "evaluation_parallel_to_training": True, "evaluation_duration": 3},
            under("evaluation", num_workers=1, parallel=True, episodes=3),
        )
        for name in ("evaluation_num_workers", "evaluation_num_env_runners")
    ),
    (  # fragments of 4 rows: 1/4 gradient step each env step, so a target every 500 env steps is one every 125
        "DQN",
        {"buffer_size": 5000, "learning_starts": 300, "train_batch_size": 32, "rollout_fragment_length": 4}
        | {"target_network_update_freq": 500, "prioritized_replay": True, "prioritized_replay_alpha": 0.5}
        | {"prioritized_replay_beta": 0.3, "final_prioritized_replay_beta": 1.0, "prioritized_replay_eps": 1e-5}
        | {"prioritized_replay_beta_annealing_timesteps": 20_000, "n_step": 3, "double_q": False, "dueling": True}
        | {"hiddens": [32], "noisy": True, "sigma0": 0.4, "num_atoms": 11, "v_min": -5.0, "v_max": 5.0}
        | {"adam_epsilon": 1e-8, "lr": 5e-4, "grad_clip": 40.0, "timesteps_per_iteration": 1000}
        | {"exploration_config": {"type": "EpsilonGreedy", "final_epsilon": 0.02, "epsilon_timesteps": 10_000}},
        under("data", capacity=5000, learning_starts=300, batch_size=32, n_step=3, update_to_data_ratio=0.25)
        | under("data", prioritized=True, priority_alpha=0.5, priority_eps=1e-5, fragments_per_iteration=250)
        | {"data.priority_beta": [[0, 0.3], [20_000, 1.0]], "policy.exploration.final_epsilon": 0.02}
        | under("policy", target_update_interval=125, double=False, dueling=True, hiddens=[32], noisy=True, sigma0=0.4)
        | under("policy", num_atoms=11, v_min=-5.0, v_max=5.0, optimizer_kwargs={"eps": 1e-8}, lr=5e-4)
        | {"policy.max_grad_norm": 40.0},
    ),
    (
        "DQN",
        {"replay_buffer_config": {**BUFFER, "learning_starts": 400, "replay_mode": "independent"}},
        under("data", prioritized=True, capacity=700, learning_starts=400, priority_beta=0.5),
    ),
    (
        "DQN",
        {"replay_buffer_config": {"type": "MultiAgentReplayBuffer"}, "multiagent": {}},
        {"data.prioritized": False},
    ),
    *(  # rows trained for each row sampled become gradient steps
        ("DQN", given, {"data.update_to_data_ratio": intensity})
        for given, intensity in (
            ({}, 1.0),
            ({"rollout_fragment_length": 4}, 0.25),
            ({"rollout_fragment_length": 4, "num_envs_per_worker": 2}, 0.125),
            ({"training_intensity": 64, "train_batch_size": 32}, 2.0),
            ({"training_intensity": None, "train_batch_size": 32}, 1.0),
        )
    ),
    (  # target_entropy=null there is "auto"; here it would leave the temperature alone. Random until learning starts
        "SAC",
        {"twin_q": False, "tau": 0.01, "initial_alpha": 0.5, "target_entropy": None, "optimization": RATES}
        | {"Q_model": NETWORK, "policy_model": NETWORK, "target_network_update_freq": 0, "learning_starts": 1500},
        under("policy", num_critics=1, tau=0.01, initial_alpha=0.5, target_entropy="auto", lr=1e-3)
        | under("policy", critic_lr_scale=2.0, alpha_lr_scale=0.5, optimizer_kwargs=None)
        | {**under("policy.model", **NETWORK), "exploration.random_timesteps": 1500},
    ),
    *(
        (
            "SAC",
            {name: {"fcnet_hiddens": [8]}},
            {"policy.model.fcnet_hiddens": of_actor, "policy.critic_hiddens": of_critic},
        )
        for name, of_actor, of_critic in (("policy_model", [8], [256, 256]), ("Q_model", [256, 256], [8]))
    ),
    (
        "TD3",
        {"twin_q": True, "policy_delay": 3, "smooth_target_policy": True, "target_noise": 0.1, "tau": 0.002}
        | {"target_noise_clip": 0.3, "actor_hiddens": [16], "critic_hiddens": [16], "l2_reg": 1e-6}
        | {"actor_hidden_activation": "tanh", "critic_hidden_activation": "tanh", "actor_lr": 1e-3, "critic_lr": 2e-3},
        under("policy", num_critics=2, policy_delay=3, target_noise=0.1, target_noise_clip=0.3, tau=0.002)
        | under("policy", critic_lr_scale=2.0, optimizer_kwargs={"weight_decay": 1e-6})
        | {"policy.model.fcnet_hiddens": [16]},
    ),
    ("TD3", {"smooth_target_policy": False, "target_noise": 0.1}, {"policy.target_noise": 0.0}),
    ("DDPG", {"smooth_target_policy": True}, {"policy.target_noise": 0.2}),
    (  # 640 rows in sequences of 20 are 32
        "R2D2",
        {"replay_sequence_length": 20, "burn_in": 5, "train_batch_size": 640, "use_h_function": False},
        under("data", batch_size=32, sequence_length=20, burn_in=5) | {"policy.rescale": False},
    ),
    (
        "Apex",
        {"optimizer": SHARDS, "worker_side_prioritization": False, "buffer_size": 4000, "learning_starts": 2000},
        under("data", num_shards=2, initial_priorities=False),
    ),
    (  # 10 fragments of 50 rows make 500 of the batch, over which RLlib sums: a clip of 40 is one of 0.08 of the mean
        "IMPALA",
        {"train_batch_size": 500, "vtrace_clip_rho_threshold": 1.5, "vtrace_clip_pg_rho_threshold": 2.0}
        | {"replay_proportion": 0.5, "replay_buffer_num_slots": 20, "max_sample_requests_in_flight_per_worker": 3}
        | {"num_aggregation_workers": 2, "grad_clip": 40.0, "lr": 1e-3, "entropy_coeff": 0.02, "vf_loss_coeff": 0.1}
        | {"opt_type": "rmsprop", "decay": 0.9, "momentum": 0.1, "num_sgd_iter": 2, "sgd_minibatch_size": 250}
        | {"vtrace": True, "broadcast_interval": 1, "learner_queue_size": 16, "min_iter_time_s": 10},
        under("data", fragments_per_batch=10, requests_per_worker=3, replay_proportion=0.5, replay_slots=20)
        | under("workers", fragment_length=50, envs_per_worker=1)
        | under("policy", clip_rho=1.5, clip_pg_rho=2.0, max_grad_norm=0.08, passes=2, minibatches=2, value_coef=0.1)
        | under("policy", optimizer="rmsprop", entropy_coef=0.02, lr=1e-3)
        | {"policy.optimizer_kwargs": {"alpha": 0.9, "momentum": 0.1, "eps": 0.1}, "data.num_aggregators": 2},
    ),
    *(  # its penalty is there only where it is used
        (
            "APPO",
            {"use_kl_loss": used, "kl_coeff": 0.7, "kl_target": 0.02, "clip_param": 0.3, "grad_clip": 40.0, "tau": 0.5}
            | {"lambda": 1.0},
            under("policy", kl_coef=coefficient, kl_target=0.02, clip=0.3, max_grad_norm=40.0, tau=0.5),
        )
        for used, coefficient in ((True, 0.7), (False, 0.0))
    ),
    *(  # its target moves after training steps: RLlib counts batches, which here are 3 passes of 2 minibatches
        (
            "APPO",
            {"train_batch_size": 500, "sgd_minibatch_size": 250, "num_sgd_iter": 3, "target_update_frequency": count},
            {"policy.target_update_interval": steps},
        )
        for count, steps in ((1, None), (4, 4 * 3 * 2))
    ),
    ("APPO", {}, under("policy", kl_coef=0.0, clip=0.2)),  # without keys the defaults are this package's
    ("IMPALA", {}, {"policy.max_grad_norm": 0.5}),
    (
        "A3C",
        {"lr": 1e-4, "grad_clip": 40.0, "lambda": 0.9, "vf_loss_coeff": 0.4, "entropy_coeff": 0.02}
        | {"rollout_fragment_length": 10, "num_envs_per_worker": 2},
        under("policy", lr=1e-4, max_grad_norm=40.0, gae_lambda=0.9, value_coef=0.4, entropy_coef=0.02)
        | {"workers.fragment_length": 10},
    ),
    ("A3C", {"num_workers": 0}, {"workers.logical_workers": 1}),  # one that the trainer has itself
    (  # 120 rows in parts of 40
        "A2C",
        {"train_batch_size": 120, "microbatch_size": 40, "num_envs_per_worker": 1},
        {"policy.microbatches": 3},
    ),
    ("A2C", {"microbatch_size": None}, {"policy.microbatches": 1}),
    (  # RLlib plays two episodes for each direction
        "ES",
        {"noise_stdev": 0.03, "l2_coeff": 0.001, "stepsize": 0.02, "episodes_per_batch": 51, "eval_prob": 0.1}
        | {"observation_filter": "NoFilter", "return_proc_mode": "centered_rank"},
        under("policy", sigma=0.03, weight_decay=0.001, lr=0.02, observation_filter="none")
        | under("data", directions=26, eval_prob=0.1),
    ),
    (
        "ARS",
        {"noise_stdev": 0.1, "num_rollouts": 8, "rollouts_used": 4, "sgd_stepsize": 0.05},
        under("policy", sigma=0.1, lr=0.05, top_directions=4) | {"data.directions": 8},
    ),
    (  # a batch of −1 rows is what the fragments have; 4 environments × 100 steps in minibatches of 50
        "DDPPO",
        {"train_batch_size": -1, "rollout_fragment_length": 100, "sgd_minibatch_size": 50, "num_envs_per_worker": 4}
        | {"num_sgd_iter": 6, "keep_local_weights_in_sync": True},
        under("policy", passes=6, minibatches=8) | {"workers.fragment_length": 100},
    ),
    *(  # rows become steps and minibatches; as in RLlib, a batch has at least `train_batch_size` rows
        ("PPO", given, {"workers.fragment_length": length, "policy.minibatches": minibatches})
        for given, length, minibatches in (
            ({"train_batch_size": 400, "sgd_minibatch_size": 100}, 400, 4),
            ({"train_batch_size": 400, "num_envs_per_worker": 4, "sgd_minibatch_size": 128}, 100, 3),
            ({"rollout_fragment_length": 20, "num_envs_per_worker": 4, "sgd_minibatch_size": 40}, 20, 2),
            ({**SMALL, "train_batch_size": 300, "rollout_fragment_length": 200, "sgd_minibatch_size": 100}, 200, 4),
        )
    ),
]


@pytest.mark.parametrize(("name", "given", "expected"), PLACES, ids=[f"{n}-{case[0]}" for n, case in enumerate(PLACES)])
def test_classic_keys_reach_their_places(name: str, given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = config(name, **given)
    assert {path: value_at(found, path) for path in expected} == expected


def test_fragments_shorter_than_a_batch_are_joined() -> None:
    """4000 rows are 10 fragments of 200 steps in 2 environments."""
    made = trainer(train_batch_size=4000, rollout_fragment_length=200, num_envs_per_worker=2, num_sgd_iter=1)
    sizes = made.run_config["workers"]["fragment_length"], made.run_config["data"]["fragments_per_batch"]
    assert sizes == (200, 10) and 4000 <= made.train()["timesteps_total"] <= 4010


def test_ppo_takes_every_gradient_step_that_the_config_asks_for() -> None:
    """5 passes over 4 minibatches, at a learning rate that moves the policy far from the one that acted."""
    keys = {"train_batch_size": 200, "num_envs_per_worker": 1, "lr": 0.05}
    for more in ({"num_sgd_iter": 5, "sgd_minibatch_size": 50}, {"defaults": "rllib", "num_sgd_iter": 5}):
        made = trainer(**{"sgd_minibatch_size": 50, "num_workers": 0, **keys, **more})
        steps = [made.train()["gradient_steps"] for _ in range(2)]
        made.stop()
        assert steps == [20, 40]
    assert value_at(config("PPO", **keys), "policy.target_kl") == 0.1  # as this package has it


def test_keys_without_a_meaning_or_with_another_one_are_refused() -> None:
    one = "here it can only be"
    cases = [
        ("PPO", {"train_batchsize": 4000}, "no config key 'train_batchsize'. Did you mean 'train_batch_size'"),
        ("PPO", {"framework": "tf"}, f"'framework'='tf'; {one} 'torch'"),
        ("PPO", {"observation_filter": "Mean"}, "expected 'NoFilter' or 'MeanStdFilter'"),
        ("PPO", {"model": {"fcnet_hidden": [3]}}, "no key 'model.fcnet_hidden'. Did you mean 'model.fcnet_hiddens'"),
        ("PPO", {"model": {"_disable_action_flattening": True}}, f"{one} False"),
        ("PPO", {"evaluation_config": {"gama": 0}}, "evaluation_config has no key 'gama'. Did you mean 'gamma'"),
        ("PPO", {"evaluation_config": {"input": "a.json"}}, "'input'='a.json': evaluations cannot differ in it"),
        ("PPO", {"evaluation_config": {"monitor": True}}, f"{one} False"),
        ("PPO", {"batch_mode": "whole"}, "workers.batch_mode='whole'"),
        ("PPO", {"training_intensity": 2}, "'training_intensity' is for algorithms that replay"),
        ("PPO", {"noise_stdev": 0.02}, "no key 'policy.sigma'"),
        ("TD3", {"target_network_update_freq": 100}, "the targets follow by tau after each gradient step"),
        (
            "SAC",
            {"Q_model": {"fcnet_activation": "tanh"}},
            "fcnet_activation='relu' of the actor (policy_model) and",
        ),
        ("SAC", {"use_state_preprocessor": True}, f"{one} False"),
        ("SAC", {"optimization": {"lr": 1.0}}, "optimization has no key 'lr' here. Keys: actor_learning_rate"),
        ("TD3", {"use_huber": True}, f"{one} False"),
        ("DQN", {"replay_buffer_config": {"size": 3}}, "replay_buffer_config has no key 'size' here"),
        ("DQN", {"multiagent": {"polices": {}}}, "multiagent has no key 'polices' here. Did you mean 'policies'"),
        ("DQN", {"bufer_size": 3}, "no config key 'bufer_size'. Did you mean 'buffer_size'"),
        ("DQN", {"policy_delay": 2}, "no key 'policy.policy_delay'"),
        ("IMPALA", {"vtrace": False}, "be True"),
        ("IMPALA", {"lambda": 0.9}, "be 1.0"),
        ("ES", {"return_proc_mode": "raw"}, "return_proc_mode"),
        ("ES", {"action_noise_std": 0.01}, "action_noise_std"),
        ("ARS", {"offset": 1}, "offset"),
        ("DDPPO", {"keep_local_weights_in_sync": False}, "keep_local_weights_in_sync"),
    ]
    literal = [(name, given, re.escape(message)) for name, given, message in cases]
    assert not_refused(lambda name, given: config(name, **given), literal) == []


def test_a_key_without_effect_is_warned_of() -> None:
    without = ("train_batch_size", "noise_size", "report_length")
    for name, key in (("PPO", "log_level"), *((name, key) for name in ("ES", "ARS") for key in without)):
        with pytest.warns(UserWarning, match=f"'{key}'"):
            made = config(name, **{key: "WARN" if key == "log_level" else 100})
        assert name == "PPO" or made["workers"]["fragment_length"] == 1


def test_rllib_s_workers_are_the_logical_ones() -> None:
    """Six would not be four workers in six processes."""
    found = keys.translate_keys({"num_workers": 6}, defaults_of("a3c"), {})
    assert found["workers"] == {"num_workers": 6, "logical_workers": 6}


def test_atari_keys_of_the_model_go_to_the_environment() -> None:
    out: dict[str, Any] = {}
    model = keys.model_keys({"dim": 42, "framestack": False, "fcnet_hiddens": [4]}, out, "ALE/Pong-v5")
    assert out == {"env": {"kwargs": {"dim": 42, "framestack": False}}} and model == {"fcnet_hiddens": [4]}
    assert keys.current_env("CartPole-v1") == ("CartPole-v1", None)
    with pytest.warns(UserWarning, match="retired: 'ALE/Pong-v5'"):
        assert keys.current_env("PongNoFrameskip-v4") == ("ALE/Pong-v5", None)


def test_exploration_of_another_type_drops_the_keys_of_the_first() -> None:
    given = {"type": "Random"}
    made = trainer(exploration_config=given)
    assert isinstance(made.policy.exploration, Random) and given == {"type": "Random"}


# -- trainers ---------------------------------------------------------------------------------------------------------
def test_rllib_has_a_trainer_and_a_policy_for_every_algorithm_and_no_other() -> None:
    names = "PPO A2C PG SimpleQ DQN Rainbow R2D2 Apex SAC TD3 DDPG TQC IMPALA Impala APPO A3C DDPPO ES ARS"
    for name in names.split():
        made: Any = getattr(rllib, f"{name}Trainer")
        assert issubclass(made, Algorithm) and made.__name__ == f"{name}Trainer"
        assert made is getattr(rllib, f"{name}Trainer") and made._policy_class.replace("_", "") == name.lower()
        assert issubclass(getattr(rllib, f"{name}TorchPolicy"), policy_class(made._policy_class))
    with pytest.raises(ConfigError, match=r"PPPO.*'pppo'.*'ppo'"):
        _ = rllib.PPPOTrainer
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rllib.nonsense


@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [
        *((name, {"train_batch_size": 100}, AsyncSource) for name in ("IMPALA", "Impala", "APPO")),
        ("A3C", {"rollout_fragment_length": 4, "num_envs_per_worker": 1}, GradientSource),
        ("ARS", {"num_rollouts": 2, "horizon": 10}, PopulationSource),
    ],
)
def test_a_classic_trainer_trains_on_its_kind_of_data(name: str, given: dict[str, Any], kind: type[Any]) -> None:
    made = trainer(name, model={"fcnet_hiddens": [8]}, num_workers=0, **given)
    result = made.train()
    made.stop()
    assert isinstance(made.datamodule.source, kind) and type(made.policy) is getattr(rllib, f"{name}TorchPolicy")
    assert result["timesteps_total"] >= (100 if kind is AsyncSource else 5)
    assert result["info"]["learner"]["default_policy"]["grad_norm"] >= 0


def test_a_policy_class_brings_its_replay_along() -> None:
    """Of an algorithm and of a class derived from one of two that are derived from each other."""

    class Mine(rllib.__getattr__("RainbowTorchPolicy")):
        pass

    for policy, prioritized in ((DQN, False), (Mine, True)):
        made = rllib.Trainer.with_updates("Classes", default_policy=policy)(env="CartPole-v1")
        assert isinstance(source := made.datamodule.source, ReplayFeed) and source.prioritized == prioritized


def test_a_trainer_gives_classic_results_and_restores(tmp_path: Path) -> None:
    made = trainer(seed=1, evaluation_interval=2, evaluation_duration=3, **SMALL)
    first, second = made.train(), made.train()
    assert (first["training_iteration"], second["training_iteration"]) == (1, 2)
    assert first["timesteps_total"] == first["env_steps"] and first["episode_reward_mean"] > 5
    assert "evaluation" not in first and second["evaluation"]["eval/ep_rew_mean"] > 5
    assert math.isfinite(second["info"]["learner"]["default_policy"]["policy_loss"])
    path = made.save(tmp_path / "saved.ckpt")
    other = trainer(seed=2, **SMALL)
    other.restore(path)
    obs = np.zeros(4, np.float32)
    assert other.compute_single_action(obs, explore=False) == made.compute_single_action(obs, explore=False)
    assert other.train()["training_iteration"] == 3
    made.stop()
    other.stop()


def test_both_orders_of_the_arguments_are_taken() -> None:
    """One document writes `DQNTrainer(_config, env=Env)`, the others `PPOTrainer(env=…, config=…)`."""

    class StockTradingEnv(Probe):
        """A reward of 1 a day."""

        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__()
            self.length = config["days"]

    given, make = {**SMALL, "env_config": {"days": 4}}, rllib.__getattr__("PPOTrainer")
    for made in (
        make(given, env=StockTradingEnv),
        make(StockTradingEnv, given),
        make(env=StockTradingEnv, config=given),
        make({**given, "env": StockTradingEnv}),
    ):
        assert made.train()["episode_reward_mean"] == 4.0
        made.stop()


def test_trainers_are_built_and_updated() -> None:
    chosen: list[Any] = []

    def get_policy_class(config: Any) -> Any:
        chosen.append(config["framework"])
        return A2C if config["framework"] == "torch" else None

    base = rllib.build_trainer("Base", default_policy="pg", default_config={**SMALL, "framework": "torch"})
    derived = base.with_updates("Derived", default_policy=PPO, get_policy_class=get_policy_class)
    assert issubclass(derived, base) and derived.__name__ == "Derived" and base._policy_class == "pg"
    assert isinstance(derived(env="CartPole-v1").policy, A2C) and chosen == ["torch"]
    with pytest.raises(ConfigError, match=r"'default_polcy'.*'default_policy'"):
        base.with_updates("Wrong", default_polcy=PPO)
    with pytest.raises(ConfigError, match="Empty"):
        rllib.build_trainer("Empty")(env="CartPole-v1")


def test_callbacks_are_taken_as_classes() -> None:
    class Counts(rllib.DefaultCallbacks):
        episodes = 0

        def on_episode_end(self, **_: Any) -> None:
            Counts.episodes += 1

    made = trainer(callbacks=Counts, **SMALL)
    for _ in range(5):
        made.train()
    made.stop()
    assert Counts.episodes > 0


def test_training_stops_at_a_result_and_an_unknown_one_is_named() -> None:
    made = trainer("PPO", **SMALL)
    *_, last = results_until(made, {"timesteps_total": 60})
    assert last["training_iteration"] in (2, 3)
    assert len([*results_until(made, lambda trial_id, result: result["training_iteration"] >= 5)]) in (2, 3)
    with pytest.raises(ConfigError, match=r"'training_iterations'.*'training_iteration'"):
        list(results_until(made, {"training_iterations": 1}))
    made.stop()


@pytest.mark.parametrize("bases", [(nn.Module, rllib.TorchModelV2), (rllib.TorchModelV2, nn.Module)])
@pytest.mark.parametrize("module_first", [True, False])
def test_a_classic_model_mixes_with_a_module_in_either_order(bases: Any, module_first: bool) -> None:
    def construct(self: Any, obs_space: Any, action_space: Any, num_outputs: int, model_config: Any, name: str) -> None:
        if module_first:
            nn.Module.__init__(self)
        rllib.TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        if not module_first:
            nn.Module.__init__(self)
        self.layer, self.value = nn.Linear(4, num_outputs), nn.Linear(4, 1)

    def forward(self: Any, input_dict: Any, state: Any, seq_lens: Any) -> Any:
        self.last = input_dict["obs_flat"]
        return self.layer(self.last), state

    def value_function(self: Any) -> Any:
        return self.value(self.last).squeeze(1)

    members = {"__init__": construct, "forward": forward, "value_function": value_function}
    rllib.ModelCatalog.register_custom_model("classic", type("Classic", bases, members))
    made = trainer(model={"custom_model": "classic", "custom_options": {"a": 1}}, **SMALL)
    model = made.policy.model
    assert model.name == "classic" and model.model_config["custom_model_config"] == {"a": 1}
    before = model.layer.weight.detach().clone()
    made.train()
    assert not torch.equal(before, model.layer.weight)
    made.stop()
