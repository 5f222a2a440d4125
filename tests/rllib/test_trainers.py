"""RLlib's trainer classes and config keys have RLlib's meaning; unknown keys are refused with the nearest."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from lightning_rl import rllib
from lightning_rl.algorithm import Algorithm
from lightning_rl.errors import ConfigError
from lightning_rl.exploration import Random
from lightning_rl.policies import A2C, PPO
from lightning_rl.rllib import __main__ as command_line
from lightning_rl.rllib import keys

SMALL = {"num_envs_per_worker": 2, "rollout_fragment_length": 16}


@pytest.fixture(autouse=True)
def in_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trainer(name: str = "PPO", **config: Any) -> Any:
    return getattr(rllib, f"{name}Trainer")(env="CartPole-v1", config={**SMALL, **config})


# -- keys -------------------------------------------------------------------------------------------------------------
def test_classic_keys_reach_their_places() -> None:
    keys = {"lr": 1e-5, "gamma": 0.9, "lambda": 0.8, "clip_param": 0.3, "vf_clip_param": 10.0, "vf_loss_coeff": 0.7}
    keys |= {"entropy_coeff": 0.01, "kl_coeff": 0.2, "kl_target": 0.03, "num_sgd_iter": 3, "grad_clip": 0.4}
    keys |= {"batch_mode": "complete_episodes", "observation_filter": "MeanStdFilter", "clip_rewards": True, "seed": 5}
    keys |= {"horizon": 50, "framework": "torch", "num_gpus": 0, "model": {"fcnet_hiddens": [9], "custom_options": {}}}
    made = trainer(**keys)
    policy, config = made.policy, made.config
    found = (policy.learner.optimiser.lr, policy.gamma, policy.gae_lambda, policy.clip, policy.value_loss_clip)
    assert found == (1e-5, 0.9, 0.8, 0.3, 10.0)
    assert (policy.value_coef, policy.entropy_coef, policy.kl_coef.item()) == pytest.approx((0.7, 0.01, 0.2))
    assert (policy.kl_target, policy.passes, policy.learner.optimiser.max_grad_norm, policy.seed) == (0.03, 3, 0.4, 5)
    assert config["policy"]["observation_filter"] == "mean_std" and config["policy"]["reward_filter"] == "sign"
    assert config["env"]["max_episode_steps"] == 50 and config["model"]["fcnet_hiddens"] == [9]
    assert config["workers"]["batch_mode"] == "complete_episodes" and config["workers"]["fragment_length"] == 16


@pytest.mark.parametrize(
    ("given", "length", "minibatches"),
    [
        ({"train_batch_size": 400, "sgd_minibatch_size": 100}, 400, 4),
        ({"train_batch_size": 400, "num_envs_per_worker": 4, "sgd_minibatch_size": 128}, 100, 3),
        ({"rollout_fragment_length": 20, "num_envs_per_worker": 4, "sgd_minibatch_size": 40}, 20, 2),
    ],
)
def test_rows_become_steps_and_minibatches(given: dict[str, Any], length: int, minibatches: int) -> None:
    made = rllib.__getattr__("PPOTrainer")(env="CartPole-v1", config=given)
    assert made.config["workers"]["fragment_length"] == length and made.policy.minibatches == minibatches


def test_a_fragment_that_has_the_rows_of_a_batch_keeps_its_length() -> None:
    """As in RLlib, a batch has at least `train_batch_size` rows: 2 environments × 200 steps are not below 300."""
    keys = {"train_batch_size": 300, "rollout_fragment_length": 200, "num_envs_per_worker": 2}
    made = rllib.__getattr__("PPOTrainer")(env="CartPole-v1", config={**keys, "sgd_minibatch_size": 100})
    assert made.config["workers"]["fragment_length"] == 200 and made.policy.minibatches == 4


def test_fragments_shorter_than_a_batch_are_joined() -> None:
    """4000 rows are 10 fragments of 200 steps in 2 environments."""
    keys = {"train_batch_size": 4000, "rollout_fragment_length": 200, "num_envs_per_worker": 2, "num_sgd_iter": 1}
    made = rllib.__getattr__("PPOTrainer")(env="CartPole-v1", config=keys)
    sizes = made.config["workers"]["fragment_length"], made.config["data"]["fragments_per_batch"]
    assert sizes == (200, 10) and 3700 < made.train()["timesteps_total"] <= 4000


def test_a_plan_that_joins_fragments_keeps_their_length() -> None:
    def plan(workers: Any, config: Any) -> Any:
        rollouts = rllib.ParallelRollouts(workers, mode="bulk_sync")
        return rollouts.combine(rllib.ConcatBatches(min_batch_size=config["train_batch_size"]))

    keys = {"train_batch_size": 60, "rollout_fragment_length": 16, "num_envs_per_worker": 2, "sgd_minibatch_size": 30}
    planned = rllib.__getattr__("PPOTrainer").with_updates("Planned", execution_plan=plan)
    made = planned(env="CartPole-v1", config=keys)
    assert made.config["workers"]["fragment_length"] == 16 and made.policy.minibatches == 2


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"train_batchsize": 4000}, "no config key 'train_batchsize'. Did you mean 'train_batch_size'"),
        ({"framework": "tf"}, "'framework'='tf'; here it can only be 'torch'"),
        ({"observation_filter": "Mean"}, "expected 'NoFilter' or 'MeanStdFilter'"),
        ({"model": {"fcnet_hidden": [3]}}, "no key 'model.fcnet_hidden'. Did you mean 'model.fcnet_hiddens'"),
        ({"model": {"_disable_preprocessor_api": True}}, "here it can only be False"),
        ({"evaluation_config": {"lr": 0}}, "here it can only be 'explore'"),
        ({"batch_mode": "whole"}, "workers.batch_mode='whole'"),
    ],
)
def test_keys_without_a_meaning_are_refused(config: dict[str, Any], message: str) -> None:
    import re

    with pytest.raises(ConfigError, match=re.escape(message)):
        trainer(**config)


def test_keys_of_failing_workers_go_to_the_limits() -> None:
    given = {"max_num_worker_restarts": 7, "restart_failed_sub_environments": False}
    workers = trainer(delay_between_worker_restarts_s=2.5, **given).config["workers"]
    assert workers["max_restarts"] == 7 and workers["max_env_restarts"] == 0 and workers["restart_backoff_s"] == 2.5


def test_a_key_without_effect_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="'log_level'"):
        trainer(log_level="WARN")


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
def test_rllib_has_a_trainer_for_every_policy_and_no_other() -> None:
    for name in ("PPO", "A2C", "PG"):
        made = getattr(rllib, f"{name}Trainer")
        assert issubclass(made, Algorithm) and made.__name__ == f"{name}Trainer"
        assert made is getattr(rllib, f"{name}Trainer")
    assert rllib.A2CTorchPolicy is A2C and rllib.PPOTorchPolicy is PPO
    with pytest.raises(ConfigError, match=r"PPPOTrainer.*'pppo'.*'ppo'"):
        _ = rllib.PPPOTrainer
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rllib.nonsense


def test_a_trainer_gives_classic_results_and_restores(tmp_path: Path) -> None:
    made = trainer(seed=1, evaluation_interval=2, evaluation_duration=3)
    first, second = made.train(), made.train()
    assert (first["training_iteration"], second["training_iteration"]) == (1, 2)
    assert first["timesteps_total"] == first["env_steps"] and first["episode_reward_mean"] > 5
    assert "evaluation" not in first and second["evaluation"]["eval/ep_rew_mean"] > 5
    assert math.isfinite(second["info"]["learner"]["default_policy"]["policy_loss"])
    path = made.save(tmp_path / "saved.ckpt")
    other = trainer(seed=2)
    other.restore(path)
    obs = np.zeros(4, np.float32)
    assert other.compute_single_action(obs) == made.compute_single_action(obs)
    assert other.train()["training_iteration"] == 3
    made.stop()
    other.stop()


def test_both_orders_of_the_arguments_are_taken() -> None:
    """One document writes `DQNTrainer(_config, env=Env)`, the others `PPOTrainer(env=…, config=…)`."""

    class StockTradingEnv(gym.Env[np.ndarray, int]):
        observation_space = spaces.Box(-1, 1, (3,), np.float32)
        action_space = spaces.Discrete(3)

        def __init__(self, config: dict[str, Any]) -> None:
            self.days = config["days"]

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.day = 0
            return np.zeros(3, np.float32), {}

        def step(self, action: int) -> Any:
            self.day += 1
            return np.zeros(3, np.float32), 1.0, self.day == self.days, False, {}

    config = {**SMALL, "env_config": {"days": 4}}
    for made in (
        rllib.__getattr__("PPOTrainer")(config, env=StockTradingEnv),
        rllib.__getattr__("PPOTrainer")(StockTradingEnv, config),
        rllib.__getattr__("PPOTrainer")(env=StockTradingEnv, config=config),
        rllib.__getattr__("PPOTrainer")({**config, "env": StockTradingEnv}),
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
    assert issubclass(derived, base) and derived.__name__ == "Derived" and base.default_policy == "pg"
    assert isinstance(derived(env="CartPole-v1").policy, A2C) and chosen == ["torch"]
    with pytest.raises(ConfigError, match=r"'default_polcy'.*'default_policy'"):
        base.with_updates("Wrong", default_polcy=PPO)
    with pytest.raises(ConfigError, match="Empty"):
        rllib.build_trainer("Empty")(env="CartPole-v1")


def test_an_execution_plan_of_your_own_feeds_the_trainer() -> None:
    seen: list[int] = []

    def plan(workers: Any, policy: Any) -> Any:
        while True:
            workers.sync_weights(policy)
            seen.append(1)
            yield workers.sample()

    made = rllib.__getattr__("PPOTrainer").with_updates("Planned", execution_plan=plan)(env="CartPole-v1", config=SMALL)
    made.train()
    assert seen == [1]
    made.stop()


def test_callbacks_are_taken_as_classes() -> None:
    class Counts(rllib.DefaultCallbacks):
        episodes = 0

        def on_episode_end(self, **_: Any) -> None:
            Counts.episodes += 1

    made = trainer(callbacks=Counts)
    for _ in range(5):
        made.train()
    made.stop()
    assert Counts.episodes > 0


def test_run_stops_at_a_result_and_names_an_unknown_one() -> None:
    config = {**SMALL, "env": "CartPole-v1"}
    assert rllib.tune.run("PPO", stop={"timesteps_total": 60}, config=config)["training_iteration"] in (2, 3)
    with pytest.raises(ConfigError, match=r"'training_iterations'.*'training_iteration'"):
        rllib.run("PPO", stop={"training_iterations": 1}, config=config)


def test_optimizers_step_and_count() -> None:
    local = rllib.PolicyEvaluator("CartPole-v1", PPO, fragment_length=50, policy_config={"passes": 1})
    for kind in (rllib.SyncSamplesOptimizer, rllib.AsyncSamplesOptimizer):
        optimizer = kind(local, train_batch_size=120)
        before = local.policy.gradient_steps
        assert optimizer.step()["loss"] != 0 and local.policy.gradient_steps > before
        assert 120 <= optimizer.stats()["num_steps_trained"] == optimizer.stats()["num_steps_sampled"] <= 150


# -- models and distributions -----------------------------------------------------------------------------------------
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
    made = trainer(model={"custom_model": "classic", "custom_options": {"a": 1}})
    model = made.policy.model
    assert model.name == "classic" and model.model_config["custom_model_config"] == {"a": 1}
    before = model.layer.weight.detach().clone()
    made.train()
    assert not torch.equal(before, model.layer.weight)
    made.stop()


def test_a_classic_distribution_needs_three_methods_and_names_the_others() -> None:
    class Dist(rllib.ActionDistribution):
        @staticmethod
        def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
            return 7

        def __init__(self, inputs: Any, model: Any) -> None:
            super().__init__(inputs, model)
            assert model.num_outputs == 7

        def sample(self) -> Any:
            return torch.distributions.Categorical(logits=self.inputs[:, :2]).sample()

        def logp(self, actions: Any) -> Any:
            return torch.distributions.Categorical(logits=self.inputs[:, :2]).log_prob(actions)

        def entropy(self) -> Any:
            return torch.distributions.Categorical(logits=self.inputs[:, :2]).entropy()

    rllib.ModelCatalog.register_custom_action_dist("dist", Dist)
    made = trainer(model={"custom_action_dist": "dist"})
    assert abs(made.train()["train/first_kl"]) < 1e-6  # the recorded log-probability is that of what was sampled
    with pytest.raises(ConfigError, match=r"deterministic_sample\(\).*explore=False"):
        made.compute_single_action(np.zeros(4, np.float32))
    made.stop()


def test_the_classic_command_line(capsys: Any) -> None:
    config = '{"rollout_fragment_length": 16, "num_envs_per_worker": 2}'
    command_line.main(
        ["train", "--run=PPO", "--env=CartPole-v1", f"--config={config}", '--stop={"training_iteration": 2}']
    )
    assert "'training_iteration': 2" in capsys.readouterr().out
