"""A Trainer has the methods, members, results and files of RLlib's, and those of Ray Tune's Trainable."""

from __future__ import annotations

import copy
import math
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from lightning_rl import rllib
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.rllib.agents.ppo import DEFAULT_CONFIG as PPO_DEFAULTS
from lightning_rl.rllib.agents.ppo import PPOTrainer
from lightning_rl.rllib.merge import merge_configs
from lightning_rl.rllib.utils.spaces.space_utils import unsquash_action
from tests.rllib.classic import trainer
from tests.training.probes import Probe

SMALL: dict[str, Any] = {"num_envs_per_worker": 2, "rollout_fragment_length": 16, "model": {"fcnet_hiddens": [8]}}
REPLAY: dict[str, Any] = {"learning_starts": 32, "timesteps_per_iteration": 80, "min_iter_time_s": 0}
OBS = np.zeros(4, np.float32)


def test_a_batch_has_at_least_train_batch_size_steps() -> None:
    """Resets are no steps: CartPole's random episodes of 20 steps would leave 3,800 of 4,000 rows."""
    made = trainer(train_batch_size=4000, num_envs_per_worker=2, num_sgd_iter=1)
    result = made.train()
    made.stop()
    assert 4000 <= result["timesteps_total"] == result["timesteps_this_iter"] <= 4001


def test_results_have_the_names_of_rllib() -> None:
    made = trainer(**SMALL, evaluation_interval=1, evaluation_num_episodes=3, metrics_smoothing_episodes=2)
    for _ in range(3):
        result = made.train()
    made.stop()
    assert result["training_iteration"] == made.iteration == 3 and result["done"] is False
    rewards = result["hist_stats"]["episode_reward"]
    assert len(rewards) == len(result["hist_stats"]["episode_lengths"]) == 2  # the newest two
    assert result["episode_reward_min"] == min(rewards) and result["episode_reward_max"] == max(rewards)
    assert result["episode_reward_mean"] == np.mean(rewards) == result["episode_len_mean"]
    assert result["episodes_total"] >= result["episodes_this_iter"] >= 0
    assert result["info"]["num_steps_sampled"] == result["num_steps_trained"] == result["timesteps_total"]
    assert 96 <= result["timesteps_total"] <= 102  # three of two environments that take 16 steps, or some more
    learned = result["info"]["learner"]["default_policy"]
    assert learned["learner_stats"]["vf_loss"] == learned["value_loss"] and math.isfinite(learned["total_loss"])
    played = result["evaluation"]
    assert played["episode_reward_mean"] == np.mean(played["hist_stats"]["episode_reward"]) > 5
    assert played["episodes_this_iter"] == 3 and played["episode_reward_min"] <= played["episode_reward_max"]
    assert result["timers"]["sample_time_ms"] > 0 and result["time_this_iter_s"] > 0
    assert result["sampler_perf"]["mean_sample_ms"] > 0 and math.isnan(result["sampler_perf"]["mean_inference_ms"])
    assert result["timesteps_since_restore"] == result["timesteps_total"] and ip_address(result["node_ip"])
    assert len(result["experiment_id"]) == 32 and played["episode_media"] == played["policy_reward_mean"] == {}
    assert result["config"]["rollout_fragment_length"] == 16 and result["config"]["env"] == "CartPole-v1"


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        ("PPO", {}, "cur_kl_coeff cur_lr entropy entropy_coeff kl policy_loss total_loss vf_explained_var vf_loss"),
        ("A2C", {}, "cur_lr entropy_coeff policy_entropy policy_loss vf_loss"),
        ("IMPALA", {}, "cur_lr entropy entropy_coeff policy_loss total_loss var_gnorm vf_explained_var vf_loss"),
        ("DQN", REPLAY, "cur_lr max_q mean_q mean_td_error min_q"),
        ("TD3", REPLAY, "actor_loss critic_loss max_q mean_q min_q"),
        (
            "SAC",
            REPLAY,
            "actor_loss alpha_loss alpha_value critic_loss log_alpha_value max_q mean_q min_q target_entropy",
        ),
    ],
)
def test_learner_stats_have_the_names_of_rllib(name: str, keys: dict[str, Any], expected: str) -> None:
    made = trainer(name, train_batch_size=32, num_envs_per_worker=1, **keys)
    whole = made.train()["info"]["learner"]["default_policy"]
    made.stop()
    learned = whole["learner_stats"]
    assert {*expected.split()} <= learned.keys() and all(math.isfinite(learned[key]) for key in expected.split())
    assert learned.get("entropy_coeff", 0.0) == 0.0 and ("critic_loss" in learned) == (name in ("TD3", "SAC"))
    assert learned.get("min_q", 0) <= learned.get("mean_q", 0) <= learned.get("max_q", 0)
    assert ("td_error" in whole) == bool(keys) and np.shape(whole.get("td_error")) == ((32,) if keys else ())


def test_kl_is_the_exact_one_where_a_penalty_is_on_it() -> None:
    made = trainer(train_batch_size=64, kl_coeff=0.5, num_sgd_iter=3, lr=0.01)
    result = made.train()
    made.stop()
    stats = result["info"]["learner"]["default_policy"]["learner_stats"]
    assert stats["kl"] == result["train/kl"] != result["train/approx_kl"]


@pytest.mark.parametrize(("name", "freq", "updates", "last"), [("DQN", 20, 2, 72), ("TD3", 0, 12, 80)])
def test_results_count_updates_of_target_networks(name: str, freq: int, updates: int, last: int) -> None:
    """Learning starts at 32; 12 steps follow, one for every 4 env steps, the last at 80.

    With a freq of 20 env steps, targets are those of the 5th and 10th step, at 52 and 72.
    """
    made = trainer(name, train_batch_size=16, rollout_fragment_length=4, target_network_update_freq=freq, **REPLAY)
    result = made.train()
    made.stop()
    assert result["timesteps_total"] == 80 and made.get_policy().gradient_steps == 12
    assert (result["info"]["num_target_updates"], result["info"]["last_target_update_ts"]) == (updates, last)


def test_an_iteration_lasts_as_many_steps_as_the_config_asks_for() -> None:
    made = trainer(**SMALL, timesteps_per_iteration=100)
    first, second = made.train(), made.train()
    made.stop()
    assert second["training_iteration"] == 2 and second["iterations_since_restore"] == 2
    assert 100 <= first["timesteps_total"] < 132 and second["timesteps_this_iter"] >= 100


def test_a_checkpoint_is_a_directory_and_counts_go_on_from_it(tmp_path: Path) -> None:
    made = trainer(**SMALL, timesteps_per_iteration=40)
    made.train()
    path = made.save(tmp_path)
    assert path == str(tmp_path / "checkpoint_000001" / "checkpoint-1") and Path(path).is_file()
    for place in (path, Path(path).parent, tmp_path):
        other = trainer(**SMALL, timesteps_per_iteration=40)
        other.restore(place)
        assert other.iteration == other.training_iteration == 1
        result = other.train()
        other.stop()
        assert result["training_iteration"] == 2 and result["iterations_since_restore"] == 1
        assert result["timesteps_since_restore"] == result["timesteps_this_iter"] < result["timesteps_total"]
        assert result["timesteps_total"] > 40
    inside = Path(made.save())
    assert inside == Path(made.logdir) / "checkpoint_000001" / "checkpoint-1" and inside.is_file()
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        made.restore(tmp_path / "elsewhere")
    made.stop()


def log_likelihood(made: Any) -> float:
    """log π(0|s) of a state with other logits for other weights."""
    return float(made.get_policy().compute_log_likelihoods(np.zeros(1, int), OBS[None] + 1))


def test_weights_are_imported_from_what_was_exported(tmp_path: Path) -> None:
    made, other = trainer(**SMALL), trainer(**SMALL, seed=3)
    found = made.export_model(["checkpoint", "model"], tmp_path)
    assert set(found) == {"checkpoint", "model"} and any(Path(found["model"]).iterdir())
    exported, before = (log_likelihood(each) for each in (made, other))
    other.import_model(found["checkpoint"])
    assert log_likelihood(other) == exported != before
    with pytest.raises(ConfigError, match="'h5'; expected checkpoint, model or onnx"):
        made.export_model("h5", tmp_path)
    made.stop(), other.stop()


def test_actions_are_computed_by_positional_arguments_too() -> None:
    made = trainer("TD3")
    obs = np.zeros(3, np.float32)
    action, state, _ = made.compute_action(obs, [], np.zeros(1, np.float32), 0.0, {}, "default_policy", True, False)
    assert state == [] and action == made.compute_action(obs, explore=False, unsquash_action=True, clip_action=None)
    by_agent = made.compute_actions({"a": obs}, None, None, None, None, None, False, False, unsquash_actions=True)
    assert by_agent == {"a": action}
    policy = made.get_policy()
    chosen, *_ = policy.compute_single_action(obs, [], np.zeros(1, np.float32), 0.0, {}, explore=False)
    assert chosen == policy.compute_actions(obs[None], explore=False)[0][0] and -1 < chosen < 1
    unsquashed = unsquash_action(chosen, policy.action_space_struct)
    assert action == policy.env_action(chosen) == pytest.approx(unsquashed, rel=1e-5)
    with pytest.raises(ConfigError, match="unsquash_action=False"):
        made.compute_action(obs, unsquash_action=False)
    with pytest.raises(TypeError, match="squash"):
        made.compute_action(obs, squash=False)
    made.stop()
    discrete = trainer(**SMALL)
    assert discrete.compute_action(OBS, unsquash_action=False, clip_action=False) in (0, 1)
    discrete.stop()


class Paying(Probe):
    """A reward of `pay(t)` a step."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.pay, self.length = config["pay"], 4

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, self.pay(1), *rest


def test_restore_keeps_the_environment_of_the_trainer_that_restores() -> None:
    """Its env_config holds a function, which no file can."""
    keys = {**SMALL, "env_config": {"pay": lambda _: 100.0}}
    first = trainer(env=Paying, **keys)
    first.train()
    path = first.save()
    first.stop()
    other = trainer(env=Paying, **{**keys, "env_config": {"pay": lambda _: 7.0}})
    other.restore(path)
    for _ in range(60):  # until the window holds this trainer's episodes only
        result = other.train()
    other.stop()
    assert result["episode_reward_mean"] == 28.0


def test_a_subclass_may_define_the_methods_of_a_trainable(tmp_path: Path) -> None:
    class Mine(rllib.__getattr__("PGTrainer")):
        def setup(self, config: dict[str, Any]) -> None:
            super().setup({**config, "lr": 0.01})
            self.calls = ["setup"]

        def step(self) -> dict[str, Any]:
            self.calls.append("step")
            return {**super().step(), "should_checkpoint": len(self.calls) == 3}

        def save_checkpoint(self, checkpoint_dir: Any) -> Any:
            self.calls.append("save_checkpoint")
            return super().save_checkpoint(checkpoint_dir)

        def load_checkpoint(self, checkpoint: Any) -> None:
            self.calls.append("load_checkpoint")
            super().load_checkpoint(checkpoint)

        def cleanup(self) -> None:
            self.calls.append("cleanup")
            super().cleanup()

    made = Mine(config={"env": "CartPole-v1", "num_envs_per_worker": 2})
    assert made.config["lr"] == 0.01
    assert len(made.train_buffered(buffer_time_s=60.0)) == 2  # the second asks for a checkpoint
    assert len(made.train_buffered(buffer_time_s=60.0, max_buffer_length=1)) == 1
    made.restore(made.save(tmp_path))
    made.stop()
    expected = ["setup", "step", "step", "step", "save_checkpoint", "load_checkpoint", "cleanup", "cleanup"]
    assert made.calls == expected


def test_actions_weights_and_policies_are_reached_as_in_rllib(tmp_path: Path) -> None:
    made = trainer(**SMALL, seed=3)
    sampled = {made.compute_action(OBS) for _ in range(50)}
    assert sampled == {0, 1} and len({made.compute_single_action(OBS, explore=False) for _ in range(20)}) == 1
    action, state, extra = made.compute_single_action(observation=OBS, full_fetch=True)
    assert action in (0, 1) and state == [] and "action_logp" in extra
    assert made.compute_single_action(input_dict={"obs": OBS}, explore=False) in (0, 1)
    assert made.compute_actions({"a": OBS, "b": OBS + 1}).keys() == {"a", "b"}
    actions, states, extras = made.compute_actions({"a": OBS}, full_fetch=True)
    assert actions["a"] in (0, 1) and states == {"a": []} and "action_logp" in extras["a"]
    weights = made.get_weights(["default_policy"])
    assert weights.keys() == {"default_policy"} and made.get_policy("default_policy") is made.policy
    zeroed = {name: value * 0 for name, value in weights["default_policy"].items()}
    made.set_weights({"default_policy": zeroed})
    assert all(not np.any(np.asarray(value)) for value in made.get_weights()["default_policy"].values())
    local = made.workers.local_worker()
    assert local.get_policy() is made.policy and made.workers.remote_workers() == []
    assert made.workers.foreach_worker(lambda worker: worker.num_envs) == [2]
    assert made.evaluation_workers.foreach_worker(lambda worker: worker.explore) == [True]
    other = made._make_workers(policy_class=None, config={"num_envs_per_worker": 3})
    assert other.sample().count > 300
    other.stop()
    made._sync_weights_to_workers(workers=[local])
    assert made.env_creator({}).reset(seed=0)[0].shape == (4,)
    assert {file.name for file in Path(made.export_policy_model(tmp_path, onnx=None)["file"]).parent.iterdir()}
    with pytest.raises(ConfigError, match="use set_weights"):
        made.import_policy_model_from_h5("weights.h5")
    made.stop()


def test_a_recurrent_policy_is_asked_with_its_state() -> None:
    made = trainer(**{**SMALL, "model": {"use_lstm": True, "lstm_cell_size": 4}})
    state: Any = [np.zeros(4, np.float32), np.zeros(4, np.float32)]
    _, first, _ = made.compute_single_action(OBS + 1, state, explore=False)
    _, second, _ = made.compute_single_action(OBS + 1, first, explore=False)
    made.stop()
    assert first[0].shape == (4,) and not np.allclose(first[0], second[0])


def test_configs_are_merged_as_in_rllib() -> None:
    base = {"model": {"fcnet_hiddens": [4], "dim": 84}, "exploration_config": {"type": "EpsilonGreedy", "epsilon": 1}}
    merged = merge_configs(base, {"model": {"dim": 42}, "exploration_config": {"epsilon": 2}, "lr": 1})
    assert merged["model"] == {"fcnet_hiddens": [4], "dim": 42} and merged["lr"] == 1
    assert merged["exploration_config"] == {"type": "EpsilonGreedy", "epsilon": 2}
    assert merge_configs(base, {"exploration_config": {"type": "Random"}})["exploration_config"] == {"type": "Random"}
    assert base["model"]["dim"] == 84
    made = rllib.build_trainer("Base", default_policy="pg", default_config={"model": {"fcnet_hiddens": [4]}})
    assert made.merge_trainer_configs(made._default_config, {"model": {"dim": 1}})["model"]["fcnet_hiddens"] == [4]
    made._validate_config({"lr": 0.1})
    with pytest.raises(ConfigError, match="'lrr'"):
        made._validate_config({"lrr": 0.1})


def test_build_trainer_takes_mixins_and_functions() -> None:
    calls: list[Any] = []

    class Says:
        def evaluate(self) -> Any:
            return {**super().evaluate(), "said": True}  # type: ignore[misc]

    def validate_env(env: Any, context: Any) -> None:
        calls.append((env.action_space.n, dict(context)))

    made = rllib.build_trainer(
        "Mixed",
        default_policy="pg",
        default_config={"num_envs_per_worker": 2, "evaluation_num_episodes": 1},
        before_init=lambda trainer: calls.append(("before", hasattr(trainer, "policy"))),
        after_init=lambda trainer: calls.append(("after", hasattr(trainer, "policy"))),
        before_evaluate_fn=lambda trainer: calls.append("evaluates"),
        validate_env=validate_env,
        mixins=[Says],
    )(env="CartPole-v1")
    assert made.evaluate()["said"] is True
    made.stop()
    assert calls == [("before", False), (2, {}), ("after", True), "evaluates"]


def test_a_logger_gets_the_results_and_says_where_to_write(tmp_path: Path) -> None:
    class Logger:
        def __init__(self, config: dict[str, Any]) -> None:
            self.config, self.logdir, self.results = config, str(tmp_path / "logs"), []

        def on_result(self, result: dict[str, Any]) -> None:
            self.results.append(result["training_iteration"])

        def flush(self) -> None:
            self.results.append("flush")

        def close(self) -> None:
            self.results.append("close")

    loggers: list[Logger] = []

    def logger_creator(config: dict[str, Any]) -> Logger:
        loggers.append(Logger(config))
        return loggers[0]

    made = rllib.__getattr__("PGTrainer")({"num_envs_per_worker": 2}, "CartPole-v1", logger_creator=logger_creator)
    made.train()
    path = Path(made.save())
    made.stop()
    assert loggers[0].results == [1, "flush", "close"] and loggers[0].config["env"] == "CartPole-v1"
    assert path == tmp_path / "logs" / "checkpoint_000001" / "checkpoint-1" and made.logdir == loggers[0].logdir


def test_a_config_is_built_by_methods() -> None:
    config = (
        rllib.__getattr__("PPOConfig")()
        .environment("CartPole-v1", env_config={"max_episode_steps": 30})
        .framework("torch")
        .rollouts(num_rollout_workers=0, num_envs_per_worker=2, rollout_fragment_length=16)
        .training(lambda_=0.9, gamma=0.95, num_epochs=2, model={"fcnet_hiddens": [8]})
        .training(model={"fcnet_activation": "relu"})
        .evaluation(evaluation_interval=1, evaluation_duration=2)
        .reporting(metrics_num_episodes_for_smoothing=3)
        .debugging(seed=4)
    )
    other = config.copy().training(gamma=0.5)
    assert config.gamma == config["gamma"] == 0.95 and other.num_env_runners == 0 and other["lambda"] == 0.9
    made = config.build()
    result = made.train()
    made.stop()
    assert result["evaluation"]["episodes_this_iter"] == 2 and result["evaluation"]["episode_len_mean"] <= 30
    found = made.run_config
    assert (found["seed"], found["policy"]["passes"], found["policy"]["gae_lambda"]) == (4, 2, 0.9)
    assert found["model"]["fcnet_hiddens"] == [8] and found["model"]["fcnet_activation"] == "relu"
    for wrong in (lambda: config.training(gama=1), lambda: config.multi_agent(polices={})):
        with pytest.raises(ConfigError, match=r"Did you mean '(gamma|policies)'"):
            wrong()


class QuickConfig(rllib.__getattr__("PPOConfig")):
    """A config with defaults of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.train_batch_size, self.num_epochs = 32, 1


def test_keys_of_a_config_are_attributes_with_defaults() -> None:
    base, config = rllib.__getattr__("PPOConfig"), QuickConfig()
    assert isinstance(config, base) and issubclass(base, rllib.AlgorithmConfig)
    assert [*config.keys()] == ["train_batch_size", "num_sgd_iter"] and config.num_sgd_iter == 1
    assert (config.lr, config.lr_schedule, config.kl_coeff) == (0.001, [[0, 0.001], [100_000, 0]], 0.0)
    assert config.get("gamma") == 0.99 and config.get("gama", 7) == 7
    config.lr, config.gamma, config.model = 0.5, 0.25, {"fcnet_hiddens": [8]}
    config.multi_agent(policies={"a": None})
    config.policies, config.count_steps_by = {"b": None}, "agent_steps"
    assert config.is_multi_agent() and not base().is_multi_agent()
    assert config.multiagent == {"policies": {"b": None}, "count_steps_by": "agent_steps"}
    config.multiagent = {}
    config.experimental(_disable_preprocessor_api=False).api_stack(enable_rl_module_and_learner=False)
    config.environment("CartPole-v1").validate()
    config.freeze()
    made: Any = PPOTrainer(config=config)
    policy = made.get_policy()
    made.stop()
    assert (policy.gamma, policy.passes, policy.learner.optimizer.lr) == (0.25, 1, 0.5)
    for frozen in (config, config.copy(copy_frozen=True)):
        with pytest.raises(AttributeError, match="frozen"):
            frozen.lr = 1.0
    again = base.from_dict({**config.copy()})
    again.lr = 1.0
    assert (again.lr, config.lr, again.gamma) == (1.0, 0.5, 0.25)
    for wrong in (lambda: setattr(again, "gama", 1), lambda: again.api_stack(enable_rl_module_and_learner=True)):
        with pytest.raises(ConfigError, match=r"gamma|classic"):
            wrong()
    with pytest.raises(AttributeError, match="Did you mean 'gamma'"):
        _ = again.gama
    again.clip_param = -1.0
    with pytest.raises(ConfigError):
        again.build()
    with pytest.raises(ConfigError, match="has no algorithm"):
        rllib.AlgorithmConfig().build()


def test_a_policy_with_rllib_s_constructor_gets_the_trainer_s_config() -> None:
    class CustomPolicy(rllib.Policy):
        def __init__(self, observation_space: Any, action_space: Any, config: dict[str, Any]) -> None:
            super().__init__(observation_space, action_space, config)
            self.seen, self.learned = config, 0

        def compute_actions(self, obs_batch: Any, state_batches: Any, **kwargs: Any) -> Any:  # type: ignore[override]
            return [self.action_space.sample() for _ in obs_batch], [], {}

        def learn_on_batch(self, samples: Any) -> Any:
            self.learned += 1
            return {"learned": self.learned}

    made = rllib.build_trainer("Custom", default_policy=CustomPolicy, default_config={"gamma": 0.9, "mine": [1]})(
        env="CartPole-v1", config={"train_batch_size": 40, "lr": 0.1, "num_envs_per_worker": 2}
    )
    result = made.train()
    made.stop()
    assert {"gamma": 0.9, "mine": [1], "lr": 0.1, "train_batch_size": 40}.items() <= made.policy.seen.items()
    assert result["info"]["learner"]["default_policy"]["learned"] == 1 and result["timesteps_total"] >= 40


class Configured(PPOTrainer):
    """Its defaults and checks are methods."""

    @classmethod
    def get_default_config(cls):
        return {**PPOTrainer.get_default_config(), "lr": 0.5, "sgd_minibatch_size": 20}

    def validate_config(self, config):
        super().validate_config(config)
        if config["gamma"] > 1:
            raise ValueError("gamma")
        config["lambda"] = config["gamma"]


def test_a_trainer_s_own_get_default_config_and_validate_config_count() -> None:
    made: Any = Configured(env="CartPole-v1", config={"train_batch_size": 60, "gamma": 0.25})
    policy = made.get_policy()
    made.stop()
    found = [made.config[key] for key in ("lr", "lr_schedule", "sgd_minibatch_size", "lambda", "vf_loss_coeff")]
    assert found == [0.5, None, 20, 0.25, 0.5] and made.run_config["policy"]["lr"] == 0.5
    assert (policy.minibatches, policy.gae_lambda) == (3, 0.25)
    made.validate_config(checked := {"gamma": 0.75})
    assert checked["lambda"] == 0.75
    with pytest.raises(ValueError, match="gamma"):
        Configured(env="CartPole-v1", config={"gamma": 2.0})
    derived: Any = Configured.with_updates("Derived", default_config={"lr": 0.125}, validate_config=None)
    made = derived(env="CartPole-v1", config={"train_batch_size": 60})
    made.validate_config({"gamma": 2.0})
    made.stop()
    assert (made.config["lr"], made.config["sgd_minibatch_size"]) == (0.125, 20)


def test_the_sizes_of_batches_are_read_from_default_configs_and_count_where_they_are_set() -> None:
    config = PPO_DEFAULTS.copy()
    assert (config["train_batch_size"], config["sgd_minibatch_size"], config["framework"]) == (1024, 64, "torch")
    assert "train_batch_size" not in config and type(copy.deepcopy(config)) is type(config)
    with pytest.raises(KeyError, match="training_batch_size"):
        config["training_batch_size"]
    plain: Any = PPOTrainer(env="CartPole-v1")
    unchanged: Any = PPOTrainer(env="CartPole-v1", config=copy.deepcopy(config))
    config["train_batch_size"] //= 2
    halved: Any = PPOTrainer(env="CartPole-v1", config=config)
    plain.stop(), unchanged.stop(), halved.stop()
    assert unchanged.run_config["workers"] == plain.run_config["workers"]
    assert halved.config["train_batch_size"] == 512 and PPO_DEFAULTS["train_batch_size"] == 1024


def test_workers_are_made_of_the_trainer_s_default_policy_class() -> None:
    made: Any = PPOTrainer(env="CartPole-v1", config={"train_batch_size": 32})
    cls = made.get_default_policy_class(made.config)
    assert issubclass(cls, rllib.__getattr__("PPOTorchPolicy")) and isinstance(made.get_policy(), cls)
    workers = made._make_workers(
        env_creator=made.env_creator, validate_env=None, policy_class=cls, config=made.config, num_workers=0
    )
    assert workers.local_worker().sample().count > 0
    made.stop()


def test_results_of_replay_have_the_steps_that_they_were_asked_for() -> None:
    """Each reset would leave out a step of 100, and a whole second iteration would follow."""
    made = trainer("DQN", timesteps_per_iteration=100, rollout_fragment_length=5, num_envs_per_worker=2)
    steps = [made.train()["timesteps_this_iter"] for _ in range(3)]
    made.stop()
    assert all(100 <= each <= 110 for each in steps)


# -- how long evaluations last ----------------------------------------------------------------------------------------
def test_evaluations_in_timesteps_play_episodes_until_they_have_as_many() -> None:
    made = trainer(evaluation_duration=100, evaluation_duration_unit="timesteps")
    played = made.evaluate()["evaluation"]
    lengths = played["hist_stats"]["episode_lengths"]
    assert sum(lengths) == played["num_env_steps_sampled_this_iter"] >= 100 > sum(lengths[:-1])
    assert made.evaluation_metrics["evaluation"] is played
    made.stop()


def test_a_duration_fn_is_asked_what_is_left_after_each_round() -> None:
    made, asked = trainer(**SMALL, evaluation_duration=3), []

    def left(done: int) -> int:
        asked.append(done)
        return 7 - done

    assert made.evaluate(duration_fn=left)["evaluation"]["episodes_this_iter"] == 7 and asked == [0, 3, 6, 7]
    assert made.evaluate()["evaluation"]["episodes_this_iter"] == 3
    made.stop()


@pytest.mark.parametrize("attached", [False, True])
def test_results_without_an_evaluation_may_have_the_last_one(attached: bool) -> None:
    made = trainer(**SMALL, evaluation_interval=2, evaluation_duration=1, always_attach_evaluation_results=attached)
    results = [made.train() for _ in range(3)]
    made.stop()
    assert ["evaluation" in result for result in results] == [False, True, attached]
    assert not attached or results[2]["evaluation"] is results[1]["evaluation"]


def test_a_result_may_wait_for_steps_that_are_learned_from() -> None:
    """16 rows a gradient step: 80 are 5 steps, of which one is due for every 4 env steps."""
    keys = {**REPLAY, "timesteps_per_iteration": 4, "min_train_timesteps_per_reporting": 80}
    made = trainer("DQN", train_batch_size=16, rollout_fragment_length=4, **keys)
    for _ in range(2):
        assert made.train()["num_env_steps_trained_this_iter"] in range(80, 97)
    made.stop()


class Order(rllib.DefaultCallbacks):
    """The order of evaluations and learning."""

    seen: ClassVar[list[str]] = []

    def on_evaluate_start(self, *, trainer, **kwargs):
        self.seen.append("start")

    def on_evaluate_end(self, *, trainer, evaluation_metrics, **kwargs):
        self.seen.append("end")

    def on_learn_on_batch(self, *, policy, train_batch, result, **kwargs):
        self.seen.append("learn")


@pytest.mark.process
def test_evaluations_in_parallel_to_training_are_of_the_weights_before_it() -> None:
    """They begin before the policy learns, and give what an evaluation before training gives."""
    keys = {"evaluation_interval": 1, "evaluation_num_workers": 1, "evaluation_duration": 4, "callbacks": Order}
    made = trainer(**SMALL, **keys, lr=0.1, seed=3, evaluation_parallel_to_training=True)
    Order.seen.clear()
    first, _ = made.train(), made.train()
    assert Order.seen == ["start", "learn", "end"] * 2
    made.stop()
    fresh = trainer(**SMALL, **keys, lr=0.1, seed=3)
    before = fresh.evaluate()["evaluation"]["hist_stats"]
    assert first["evaluation"]["hist_stats"]["episode_reward"] == before["episode_reward"]
    after = fresh.train()["evaluation"]["hist_stats"]
    fresh.stop()
    assert after["episode_reward"] != before["episode_reward"] and Order.seen[-3:] == ["learn", "start", "end"]
