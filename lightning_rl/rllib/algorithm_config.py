"""RLlib 2's builders of configs: `PPOConfig().environment("CartPole-v1").training(lr=3e-4).build()`."""

from __future__ import annotations

import copy
from collections.abc import ItemsView, KeysView, Mapping
from typing import Any, ClassVar, Self

from lightning_rl.errors import ConfigError, did_you_mean, object_at
from lightning_rl.rllib.default_configs import COMMON_CONFIG, classic_view, option_of
from lightning_rl.rllib.keys import KNOWN, over_defaults
from lightning_rl.rllib.merge import merge_configs
from lightning_rl.rllib.multi_agent_keys import NO_EFFECT, SECTION
from lightning_rl.rllib.policy_configs import defaults_of

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
AGENTS = (*SECTION, *NO_EFFECT)  # keys of the section `multiagent`


class AlgorithmConfig:
    """RLlib's keys of one algorithm, set by methods that return the config itself, or as attributes.

    The keywords of each method are keys of `docs/rllib_keys.md`, or their names in RLlib 2. A key that was not set has
    its default.

    Args:
        algo_class: the Trainer that `build` makes; `None`: that of the class, such as `PPOTrainer` of `PPOConfig`.

    Raises:
        ConfigError: a keyword or attribute is not a key.
        AttributeError: a key is set after `freeze`.
    """

    algo_class: Any = None
    _keys: dict[str, Any]
    _frozen: ClassVar[bool] = False

    def __init__(self, algo_class: Any = None) -> None:
        vars(self).update(_keys={}, **({} if algo_class is None else {"algo_class": algo_class}))

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
        """Which policies there are: policies, policy_mapping_fn, policies_to_train, count_steps_by, replay_mode."""
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

    def experimental(self, **keys: Any) -> Self:
        """Keys that begin with an underscore, such as _disable_preprocessor_api."""
        return self._update(keys)

    def python_environment(self, **keys: Any) -> Self:
        """Environment variables: extra_python_environs_for_driver, extra_python_environs_for_worker."""
        return self._update(keys)

    def api_stack(self, **enabled: bool) -> Self:
        """Leave RLlib's new API stack off; this is the classic one.

        Raises:
            ConfigError: a part of it is enabled.
        """
        if on := [name for name, value in enabled.items() if value]:
            raise ConfigError(f"api_stack({on[0]}=True): there is only RLlib's classic API here; leave it out")
        return self

    def rllib_defaults(self) -> Self:
        """Take RLlib's defaults for all other keys, in place of this package's."""
        return self._update({"defaults": "rllib"})

    def update_from_dict(self, config: Mapping[str, Any]) -> Self:
        """Set keys of a classic config."""
        return self._update(config)

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> Self:
        """A config with the keys of a classic one."""
        return cls().update_from_dict(config)

    def copy(self, copy_frozen: bool = False) -> Self:
        """Another config with the same keys, which can be set unless `copy_frozen` keeps a frozen one frozen."""
        other = copy.copy(self)
        vars(other).update(_keys=merge_configs(self._keys, {}), _frozen=self._frozen and copy_frozen)
        return other

    def freeze(self) -> None:
        """Refuse further changes."""
        vars(self)["_frozen"] = True

    def validate(self) -> None:
        """Check every key and value without building anything.

        Raises:
            ConfigError: a key or value that means nothing here.
        """
        self._algorithm()._validate_config(self._keys)

    def is_multi_agent(self) -> bool:
        """Whether several policies are named."""
        return bool(self._keys.get("multiagent", {}).get("policies"))

    def keys(self) -> KeysView[str]:
        """The keys that were set."""
        return self._keys.keys()

    def items(self) -> ItemsView[str, Any]:
        """The keys that were set, with their values."""
        return self._keys.items()

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, set or default; `default` if there is no such key."""
        try:
            return self[key]
        except KeyError:
            return default

    def to_dict(self) -> dict[str, Any]:
        """The keys that were set, as the config of a Trainer, `tune.run` or `Tuner`."""
        return dict(self._keys)

    def build(self, env: Any = None, logger_creator: Any = None, use_copy: bool = True) -> Any:
        """The Trainer.

        Args:
            env: see `environment`.
            logger_creator: see `Trainer`.
            use_copy: without effect: a Trainer never changes its config.
        """
        return self._algorithm()(config=self._keys, env=env, logger_creator=logger_creator)

    build_algo = build

    def _algorithm(self) -> Any:
        if self.algo_class is None:
            raise ConfigError(
                f"{type(self).__name__}() has no algorithm: give a Trainer, as AlgorithmConfig(PPOTrainer)"
            )
        return self.algo_class

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            try:
                return self[name]
            except KeyError:
                pass
        raise AttributeError(f"{type(self).__name__} has no key {name!r}.{did_you_mean(name, [*KNOWN, *RENAMED])}")

    def __setattr__(self, name: str, value: Any) -> None:
        key = RENAMED.get(name, name)
        self._update({"multiagent": {key: value}} if key in AGENTS else {key: value})
        (self._keys["multiagent"] if key in AGENTS else self._keys)[key] = value  # a section is replaced

    def __getitem__(self, key: str) -> Any:
        key = RENAMED.get(key, key)
        if key in AGENTS:
            return self["multiagent"].get(key)
        return self._keys[key] if key in self._keys else self._defaults()[key]

    def __contains__(self, key: str) -> bool:
        return RENAMED.get(key, key) in self._keys

    def _defaults(self) -> dict[str, Any]:
        policy = getattr(self.algo_class, "_policy_class", None)
        if policy is None:
            return COMMON_CONFIG
        composed = defaults_of(policy)
        view = classic_view(option_of(object_at(composed["policy"]["_target_"])), composed)
        return over_defaults(view, self.algo_class._own_defaults())

    def _update(self, keys: Mapping[str, Any]) -> Self:
        if self._frozen:
            raise AttributeError(f"{', '.join(keys)}: this config is frozen; change a copy()")
        named = {RENAMED.get(key, key): value for key, value in keys.items()}
        for key in named:
            if key not in KNOWN:
                near = did_you_mean(key, [*KNOWN, *RENAMED])
                raise ConfigError(f"no config key {key!r}.{near} Keys and what they are here: docs/rllib_keys.md")
        vars(self)["_keys"] = merge_configs(self._keys, named)
        return self
