"""RLlib 2's builders of configs: `PPOConfig().environment("CartPole-v1").training(lr=3e-4).build()`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

from lightning_rl.errors import ConfigError, did_you_mean
from lightning_rl.rllib.keys import KNOWN
from lightning_rl.rllib.merge import merge_configs

__all__ = ["AlgorithmConfig"]

# Keywords of the methods that have another name as a key of a config.
RENAMED = {
    "num_rollout_workers": "num_workers",
    "num_env_runners": "num_workers",
    "num_envs_per_env_runner": "num_envs_per_worker",
    "lambda_": "lambda",
    "train_batch_size_per_learner": "train_batch_size",
    "minibatch_size": "sgd_minibatch_size",
    "num_epochs": "num_sgd_iter",
    "evaluation_duration": "evaluation_num_episodes",
    "evaluation_num_env_runners": "evaluation_num_workers",
    "callbacks_class": "callbacks",
    "num_cpus_for_local_worker": "num_cpus_for_driver",
    "input_": "input",
}
AGENTS = ("policies", "policy_mapping_fn", "policies_to_train", "count_steps_by")  # keys of the section `multiagent`


class AlgorithmConfig:
    """RLlib's keys of one algorithm, set by methods that return the config itself.

    The keywords of each method are keys of `docs/rllib_keys.md`, or their names in RLlib 2.

    Args:
        trainer_class: that `build` makes.

    Raises:
        ConfigError: a keyword is not a key.
    """

    def __init__(self, trainer_class: Any) -> None:
        self.trainer_class = trainer_class
        self._keys: dict[str, Any] = {}

    def environment(self, env: Any = None, **keys: Any) -> Self:
        """The environment: env, env_config, clip_rewards, normalize_actions, disable_env_checking, …."""
        return self._update(keys if env is None else {"env": env, **keys})

    def framework(self, framework: str = "torch", **keys: Any) -> Self:
        """The framework, which can only be "torch"."""
        return self._update({"framework": framework, **keys})

    def rollouts(self, **keys: Any) -> Self:
        """How experience is sampled: num_rollout_workers, num_envs_per_worker, rollout_fragment_length, …."""
        return self._update(keys)

    def env_runners(self, **keys: Any) -> Self:
        """As `rollouts`."""
        return self._update(keys)

    def training(self, **keys: Any) -> Self:
        """How the algorithm learns: lr, gamma, train_batch_size, model and the algorithm's own keys."""
        return self._update(keys)

    def exploration(self, **keys: Any) -> Self:
        """How it explores: explore, exploration_config."""
        return self._update(keys)

    def evaluation(self, **keys: Any) -> Self:
        """How it is evaluated: evaluation_interval, evaluation_duration, evaluation_config, …."""
        return self._update(keys)

    def offline_data(self, **keys: Any) -> Self:
        """Experience in files: input_, input_config, output, actions_in_input_normalized, shuffle_buffer_size, …."""
        return self._update(keys)

    def multi_agent(self, **keys: Any) -> Self:
        """Which policies there are: policies, policy_mapping_fn, policies_to_train, count_steps_by."""
        if unknown := [key for key in keys if key not in AGENTS]:
            raise ConfigError(f"multi_agent({unknown[0]}=…): no such key.{did_you_mean(unknown[0], AGENTS)}")
        return self._update({"multiagent": keys})

    def callbacks(self, callbacks_class: Any) -> Self:
        """A class of callbacks."""
        return self._update({"callbacks": callbacks_class})

    def resources(self, **keys: Any) -> Self:
        """What a trial needs: num_gpus, num_cpus_per_worker, …."""
        return self._update(keys)

    def reporting(self, **keys: Any) -> Self:
        """What a result is: metrics_num_episodes_for_smoothing, min_time_s_per_iteration, …."""
        smoothing = keys.pop("metrics_num_episodes_for_smoothing", None)
        return self._update(keys if smoothing is None else {"metrics_smoothing_episodes": smoothing, **keys})

    def debugging(self, **keys: Any) -> Self:
        """The seed, and log_level."""
        return self._update(keys)

    def fault_tolerance(self, **keys: Any) -> Self:
        """What happens when a worker dies: max_num_worker_restarts, restart_failed_sub_environments, …."""
        return self._update(keys)

    def rllib_defaults(self) -> Self:
        """Take RLlib's defaults for all other keys, in place of this package's."""
        return self._update({"defaults": "rllib"})

    def update_from_dict(self, config: Mapping[str, Any]) -> Self:
        """Set keys of a classic config."""
        return self._update(config)

    def copy(self) -> Self:
        """Another config with the same keys."""
        other = copy.copy(self)
        other._keys = merge_configs(self._keys, {})
        return other

    def to_dict(self) -> dict[str, Any]:
        """The keys that were set, as the config of a Trainer, `tune.run` or `Tuner`."""
        return dict(self._keys)

    def build(self, env: Any = None, **keywords: Any) -> Any:
        """The Trainer.

        Args:
            env: see `environment`.
            keywords: the keywords of the Trainer: logger_creator.
        """
        return self.trainer_class(config=self._keys, env=env, **keywords)

    build_algo = build

    def __getattr__(self, name: str) -> Any:
        key = RENAMED.get(name, name)
        if name.startswith("_") or key not in self._keys:
            raise AttributeError(f"{name!r} was not set; known here: {', '.join(self.__dict__.get('_keys', {}))}")
        return self._keys[key]

    def __getitem__(self, key: str) -> Any:
        return self._keys[key]

    def _update(self, keys: Mapping[str, Any]) -> Self:
        named = {RENAMED.get(key, key): value for key, value in keys.items()}
        for key in named:
            if key not in KNOWN:
                near = did_you_mean(key, [*KNOWN, *RENAMED])
                raise ConfigError(f"no config key {key!r}.{near} Keys and what they are here: docs/rllib_keys.md")
        self._keys = merge_configs(self._keys, named)
        return self
