"""Every key of RLlib's default configs is known: as it is, in another unit, fixed with a reason, or without effect."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl.config.groups import group_options
from lightning_rl.errors import ConfigError
from lightning_rl.exploration import EpsilonGreedy
from lightning_rl.rllib.agents.ppo import DEFAULT_CONFIG, PPOTrainer
from lightning_rl.rllib.agents.trainer import with_common_config
from lightning_rl.rllib.agents.trainer_template import build_trainer
from lightning_rl.rllib.default_configs import ALGORITHMS, COMMON_CONFIG, own_defaults
from lightning_rl.rllib.keys import DEPRECATED, FIXED, KEYS, KNOWN, NO_EFFECT, SPECIAL, model_keys, translate_keys
from lightning_rl.rllib.models import MODEL_DEFAULTS
from lightning_rl.rllib.policy.torch_policy_template import build_torch_policy
from lightning_rl.rllib.policy_configs import defaults_of
from lightning_rl.schedules import schedule_value
from tests.rllib.classic import config, trainer, value_at

PAIRS = (
    ("Q_model", "policy_model"),
    ("actor_hiddens", "critic_hiddens"),
    ("actor_lr", "critic_lr"),
    ("actor_hidden_activation", "critic_hidden_activation"),
)
pytestmark = pytest.mark.filterwarnings("ignore:.*no counterpart.*")


def translated(option: str, **keys: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return translate_keys(keys, defaults_of(option), {})


def test_each_algorithm_of_the_table_is_one_of_this_package() -> None:
    assert set(ALGORITHMS) <= set(group_options("policy"))


def test_every_key_of_rllib_has_one_meaning() -> None:
    """Each is in exactly one table; a fixed key has its reason, and another value than the fixed one is refused."""
    for keys in (COMMON_CONFIG, *(own for _, own in ALGORITHMS.values())):
        for key in keys:
            tables = [name for name, table in enumerate((KEYS, FIXED, NO_EFFECT, SPECIAL)) if key in table]
            assert len(tables) == 1, key
    for key, (_, reason) in FIXED.items():
        assert reason
        with pytest.raises(ConfigError, match=f"'{key}'"):
            translated("dqn", **{key: "another"})


@pytest.mark.parametrize("option", ALGORITHMS)
def test_every_default_of_an_algorithm_is_taken_or_refused_with_its_reason(option: str) -> None:
    """Layers of the actor and of the critic are given together, for both have the same here."""
    own = own_defaults(option)
    for key, value in own.items():
        together = next((pair for pair in PAIRS if key in pair), (key,))
        if key in FIXED and value not in (FIXED[key][0], DEPRECATED):
            with pytest.raises(ConfigError, match=f"'{key}'"):
                translated(option, **{key: value})
        else:
            translated(option, **{name: own[name] for name in together})


def test_every_key_of_the_common_config_is_taken_with_its_default() -> None:
    for key, value in COMMON_CONFIG.items():
        translated("ppo", **{key: value})


def test_keys_of_rllib_1_10_to_1_13_are_taken_with_their_defaults() -> None:
    later: dict[str, Any] = {
        "evaluation_duration_unit": "episodes",
        "min_train_timesteps_per_reporting": 0,
        "keep_per_episode_custom_metrics": False,
        "always_attach_evaluation_results": False,
        "num_consecutive_worker_failures_tolerance": 100,
        "_disable_execution_plan_api": True,
        "_disable_action_flattening": False,
        "enable_tf1_exec_eagerly": False,
        "sampler_perf_stats_ema_coef": None,
    }
    of_maddpg = {"good_policy": "maddpg", "adv_policy": "maddpg", "use_local_critic": False, "agent_id": None}
    for key, value in {**later, **of_maddpg}.items():
        assert translated("ppo", **{key: value}).keys() <= {"workers"}, key
    with pytest.raises(ConfigError, match="'evaluation_duration_unit'='steps'; expected 'episodes' or 'timesteps'"):
        translated("ppo", evaluation_duration_unit="steps")


def test_every_key_of_the_model_is_taken_with_its_default() -> None:
    known = defaults_of("ppo")["model"]
    assert set(model_keys(MODEL_DEFAULTS, {}, "CartPole-v1")) <= {*known, "custom_model_config", "custom_action_dist"}


@pytest.mark.parametrize("option", [*ALGORITHMS])
def test_rllib_s_defaults_can_be_asked_for(option: str) -> None:
    """Together they pass the checks of a run; nothing is built that needs workers in other processes."""
    if option == "qmix":
        pytest.skip("it has several agents")
    name = {"simple_q": "SimpleQ", "recurrent_sac": "RecurrentSAC"}.get(option, option.upper())
    env = "Pendulum-v1" if option in ("ddpg", "td3", "recurrent_sac", "cql") else "CartPole-v1"
    made = trainer(name, env=env, defaults="rllib", num_workers=0)
    found = made.run_config
    made.stop()
    assert found["policy"].get("gamma", 0.99) == own_defaults(option).get("gamma", 0.99)
    assert made.config["num_workers"] == 0 and "defaults" not in made.config


def test_rllib_s_ppo_is_another_than_this_package_s() -> None:
    found = config("PPO", defaults="rllib", num_workers=0, lr=3e-4)
    expected = {"policy.lr": 3e-4, "policy.passes": 30, "policy.clip": 0.3, "policy.kl_coef": 0.2}
    expected |= {"model.fcnet_hiddens": [256, 256], "model.fcnet_activation": "tanh", "policy.gae_lambda": 1.0}
    expected |= {"workers.fragment_length": 200, "data.fragments_per_batch": 20, "policy.max_grad_norm": None}
    expected |= {"policy.minibatches": 31, "evaluation.explore": True, "model.vf_share_layers": False}
    assert {path: value_at(found, path) for path in expected} == expected
    with pytest.raises(ConfigError, match="'defaults'='rlib'"):
        config("PPO", defaults="rlib")


def test_keys_of_evaluations_environments_and_workers_reach_their_places() -> None:
    given = {"env_config": {"max_episode_steps": 90}, "explore": False, "remote_worker_envs": True}
    section = {"explore": True, "horizon": 30, "env_config": {"max_episode_steps": 50}}
    found = config("PPO", evaluation_config=section, disable_env_checking=True, vf_share_layers=True, **given)
    expected = {"workers.explore": False, "workers.vectorization": "async", "env.check": False}
    expected |= {"evaluation.explore": True, "evaluation.max_episode_steps": 30, "model.vf_share_layers": True}
    expected |= {"evaluation.env": {"id": "CartPole-v1", "kwargs": {"max_episode_steps": 50}}}
    assert {path: value_at(found, path) for path in expected} == expected


def evaluated(**section: Any) -> tuple[Any, list[list[float]]]:
    """The exploration strategy of a DQN policy, and the returns of two evaluations that it plays untrained."""
    made = trainer("DQN", evaluation_num_episodes=3, evaluation_config=section)
    played = [made.evaluate()["evaluation"]["hist_stats"]["episode_reward"] for _ in range(2)]
    made.stop()
    return made.get_policy().exploration, played


def test_evaluations_have_their_own_seed_and_exploration() -> None:
    _, greedy = evaluated()
    never = {"type": "EpsilonGreedy", "initial_epsilon": 0.0, "final_epsilon": 0.0}
    strategy, played = evaluated(exploration_config=never)
    assert played == greedy and strategy.epsilon(0) == 1  # the policy has its own again
    assert evaluated(exploration_config={"type": "Random"})[1] != greedy != evaluated(seed=5)[1]
    unused = {"gamma": 0.5, "lr": 1, "model": {}, "batch_mode": "complete_episodes", "num_gpus": 0, "render_env": False}
    assert evaluated(**unused, rollout_fragment_length=10, multiagent={}, num_envs_per_worker=2)[1] == greedy


def test_evaluations_explore_where_rllib_s_do() -> None:
    """As training does, unless `evaluation_config` or that of the algorithm says otherwise."""
    given: list[tuple[str, dict[str, Any], bool]] = [
        ("PPO", {}, True),
        ("PPO", {"defaults": "rllib", "num_workers": 0}, True),
        ("PPO", {"explore": False}, False),
        ("PPO", {"explore": False, "defaults": "rllib", "num_workers": 0}, False),
        ("PPO", {"explore": False, "evaluation_config": {"explore": True}}, True),
        ("PPO", {"evaluation_config": {"explore": False}}, False),
        ("SAC", {}, True),
        ("DQN", {}, False),
        ("DQN", {"explore": True}, False),
        ("TD3", {}, False),
        ("ES", {}, False),
    ]
    for name, keys, explores in given:
        assert value_at(config(name, **keys), "evaluation.explore") is explores, (name, keys)


class Changes(gym.Env[Any, Any]):
    """All observations are the same, so a greedy policy always acts alike: 1 for each action unlike the one before."""

    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.actions: list[int] = []
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(int(action))
        return np.zeros(1, np.float32), float(len({*self.actions[-2:]}) == 2), False, len(self.actions) == 50, {}


@pytest.mark.process
@pytest.mark.ray
@pytest.mark.parametrize(("training", "parallel"), [(False, False), (True, True)])
def test_evaluations_explore_by_their_own_config_in_other_processes(training: bool, parallel: bool) -> None:
    """50 greedy actions change never, and random ones 25 times in the mean."""
    never = {"type": "EpsilonGreedy", "initial_epsilon": 0.0, "final_epsilon": 0.0}
    keys = {"explore": training, "evaluation_interval": 1, "evaluation_num_episodes": 4, "evaluation_num_workers": 1}
    keys |= {"evaluation_parallel_to_training": parallel, "rollout_fragment_length": 20}
    for section, explores in (
        ({"explore": True}, True),
        ({"explore": False}, False),
        ({"explore": True, "exploration_config": never}, False),
    ):
        made = trainer("DQN", env=Changes, evaluation_config=section, **keys)
        played = [made.train()["evaluation"]["episode_reward_mean"] for _ in range(2)]
        made.stop()
        assert all(15 < reward < 35 for reward in played) if explores else played == [0, 0]


class OwnStrategy(EpsilonGreedy):
    """As a user's, at the top level of a module."""


def test_a_strategy_may_be_given_as_a_class_and_is_saved(tmp_path: Path) -> None:
    made = trainer("DQN", exploration_config={"type": OwnStrategy, "final_epsilon": 0.3}, learning_starts=10**6)
    made.restore(made.save(tmp_path))
    strategy = made.get_policy().exploration
    made.stop()
    assert isinstance(strategy, OwnStrategy) and strategy.epsilon(10**9) == 0.3


def test_the_lr_of_curiosity_has_no_effect() -> None:
    strategy = {"type": "Curiosity", "lr": 0.1, "eta": 0.5, "sub_exploration": {"type": "StochasticSampling"}}
    with pytest.warns(UserWarning, match="'lr' has no effect"):
        found = config("PPO", exploration_config=strategy)
    assert found["exploration"]["eta"] == 0.5 and "lr" not in found["exploration"]


def test_training_without_exploration_takes_the_best_actions() -> None:
    made = trainer("DQN", explore=False, exploration_config={"type": "Random"}, learning_starts=10**6)
    workers = made.workers
    samples = [workers.sample() for _ in range(30)]
    best = [made.policy.compute_actions(each["obs"], explore=False)[0].tolist() for each in samples]
    assert best == [each["actions"].tolist() for each in samples] and sum(map(len, best)) > 20
    made.stop()


def test_every_known_key_is_in_one_table() -> None:
    assert len(KNOWN) == sum(map(len, (KEYS, FIXED, NO_EFFECT, SPECIAL)))


def test_a_trainer_s_config_has_rllib_s_keys_with_the_values_of_the_run() -> None:
    made = trainer("PPO", lr=1e-3, num_envs_per_worker=2, rollout_fragment_length=16)
    found, run = made.config, made.run_config
    made.stop()
    assert set(COMMON_CONFIG) | set(own_defaults("ppo")) <= set(found)
    assert (found["lr"], found["env"], found["observation_filter"]) == (1e-3, "CartPole-v1", "NoFilter")
    assert found["clip_param"] == run["policy"]["clip"] and found["num_sgd_iter"] == run["policy"]["passes"]
    assert found["train_batch_size"] == 32 and found["num_workers"] == 0
    assert found["model"]["fcnet_hiddens"] == run["model"]["fcnet_hiddens"] and found["model"]["max_seq_len"] == 20


FALLS = [[0, 0.001], [100_000, 0.0]]  # the learning rate of this package's PPO


@pytest.mark.parametrize(
    ("given", "copied", "expected"),
    [
        ({}, False, (0.001, FALLS)),
        ({}, True, (0.001, FALLS)),
        ({"lr": 0.5}, False, (0.5, None)),
        ({"lr": 0.5}, True, (0.5, None)),
        ({"lr_schedule": None}, True, (0.001, None)),
        ({"lr": 0.5, "lr_schedule": None}, True, (0.5, None)),
        ({"lr_schedule": [[0, 0.1], [9, 0.2]], "lr": 0.1}, False, (0.1, [[0, 0.1], [9, 0.2]])),
        ({"lr_schedule": [[0, 0.1], [9, 0.2]]}, True, (0.1, [[0, 0.1], [9, 0.2]])),
    ],
)
def test_a_schedule_is_under_its_own_key_and_gives_way_to_a_number(given: Any, copied: bool, expected: Any) -> None:
    """Also in a changed copy of DEFAULT_CONFIG, in which the schedule of the default is still there."""
    keys = {**(DEFAULT_CONFIG if copied else {}), "env": "CartPole-v1", "train_batch_size": 32, **given}
    trainer: Any = PPOTrainer(config=keys)
    for found in (trainer.config, trainer.get_policy().config):
        assert (found["lr"], found["lr_schedule"]) == expected
        assert (found["entropy_coeff"], found["entropy_coeff_schedule"]) == (0.0, None)
    number, schedule = expected
    result = trainer.train()
    assert result["train/lr"] == pytest.approx(schedule_value(schedule or number, result["timesteps_total"]))
    trainer.stop()


def test_of_two_names_for_one_key_that_counts_which_was_changed_in_a_copy_of_the_defaults() -> None:
    keys = {**DEFAULT_CONFIG, "env": "CartPole-v1", "grad_clip": 7.0, "train_batch_size": 32}
    trainer: Any = PPOTrainer(config=keys)
    assert trainer.run_config["policy"]["max_grad_norm"] == trainer.config["grad_norm_clipping"] == 7.0
    trainer.stop()


@pytest.mark.parametrize(("option", "sizes", "batch"), [("dqn", {"train_batch_size": 32}, 32), ("sac", {}, 256)])
def test_learning_starts_with_a_whole_batch(option: str, sizes: dict[str, Any], batch: int) -> None:
    with pytest.warns(UserWarning, match=f"'learning_starts'=10.*{batch} steps"):
        changes = translate_keys({"learning_starts": 10, **sizes}, defaults_of(option), {})
    assert changes["data"]["learning_starts"] == batch
    planned = translate_keys({"learning_starts": 10, **sizes}, defaults_of(option), {}, has_buffers=True)
    assert planned["data"]["learning_starts"] == 10  # the plan's buffer waits by itself


def test_keys_of_a_trainer_have_their_effect_where_the_policy_s_default_config_lists_them_too() -> None:
    def loss(policy, model, dist_class, train_batch):
        logits, _ = model.from_batch(train_batch)
        return -dist_class(logits, model).logp(train_batch["actions"]).mean()

    policy_class = build_torch_policy("Common", loss_fn=loss, get_default_config=lambda: with_common_config({"my": 3}))
    made = build_trainer(name="OfCommon", default_policy=policy_class)(
        env="CartPole-v1", config={"rollout_fragment_length": 20, "num_envs_per_worker": 2, "train_batch_size": 40}
    )
    workers, config = made.run_config["workers"], made.get_policy().config
    made.stop()
    assert (workers["fragment_length"], workers["envs_per_worker"]) == (20, 2)
    assert (config["my"], config["rollout_fragment_length"]) == (3, 20)
