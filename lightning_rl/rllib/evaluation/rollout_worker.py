"""RLlib's rollout worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.envs.registry import EnvContext
from lightning_rl.errors import ConfigError, short_repr
from lightning_rl.policies.policy_set import PolicySet
from lightning_rl.rllib.callbacks import DefaultCallbacks, EpisodeCallbacks
from lightning_rl.rllib.env_api import current_api
from lightning_rl.rllib.episode_records import reads_episodes
from lightning_rl.rllib.external_lanes import ExternalCreator
from lightning_rl.rllib.external_sampler import ExternalSampler
from lightning_rl.rllib.keys import policy_keywords
from lightning_rl.rllib.multi_agent_keys import multi_agent_keys
from lightning_rl.rllib.sample_batch import classic_batch
from lightning_rl.rllib.workers import WorkerMethods
from lightning_rl.rollouts import rollout_worker
from lightning_rl.schema.signatures import call_with_accepted_args

__all__ = ["RolloutWorker", "build_policies", "constructor_keywords", "creator_of"]

NO_EFFECT = ("tf_session_creator", "preprocessor_pref", "sample_async", "compress_observations", "remote_worker_envs")
NO_EFFECT += ("remote_env_batch_wait_ms", "log_dir", "log_level", "monitor_path", "extra_python_environs", "spaces")


class RolloutWorker(WorkerMethods, rollout_worker.RolloutWorker):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Acts in environments; `sample` returns postprocessed rows under RLlib's names.

    Args:
        env_creator: called with an `EnvContext`; or an id.
        policy: a class, built of the environment's spaces and the config, or a policy, whose samples stay fragments; of
            several agents, policies as in the key `multiagent`.
        policy_mapping_fn, policies_to_train: see the key `multiagent`.
        policy_spec: another name of `policy`.
        rollout_fragment_length: steps of each environment in a sample.
        batch_steps, fragment_length: other names of it.
        episode_horizon: the longest episode; `None`: as the environment says.
        validate_env: called with an environment and its context.
        env_config: keywords of the environment.
        policy_config: RLlib's keys of the policy.
        model_config: its key "model".
        observation_filter, clip_rewards: its keys of these names.
        callbacks: RLlib's callbacks, or a list of this package's.
        seed: the worker's seed; `None`: 0.
        num_workers: workers of the run.
        keywords: arguments of `lightning_rl.RolloutWorker`, such as num_envs, batch_mode and worker_index; others of
            RLlib have no effect.

    Raises:
        ConfigError: there is no policy.
    """

    def __init__(
        self,
        env_creator: Any,
        policy: Any = None,
        policy_mapping_fn: Any = None,
        policies_to_train: Any = None,
        *,
        policy_spec: Any = None,
        rollout_fragment_length: int = 100,
        batch_steps: int | None = None,
        fragment_length: int | None = None,
        episode_horizon: int | None = None,
        validate_env: Callable[..., Any] | None = None,
        env_config: Mapping[str, Any] | None = None,
        policy_config: Mapping[str, Any] | None = None,
        model_config: Mapping[str, Any] | None = None,
        observation_filter: str | None = None,
        clip_rewards: bool | float | None = None,
        callbacks: Any = None,
        seed: int | None = None,
        num_workers: int = 0,
        **keywords: Any,
    ) -> None:
        policy = policy_spec if policy is None else policy
        section = {"policies": policy} if isinstance(policy, Mapping) else {}
        section |= {"policy_mapping_fn": policy_mapping_fn, "policies_to_train": policies_to_train}
        env, section = creator_of(env_creator, env_config, section, episode_horizon, validate_env)
        own = {"model": model_config, "observation_filter": observation_filter, "clip_rewards": clip_rewards}
        config = {**(policy_config or {}), **{key: value for key, value in own.items() if value is not None}}
        built = build_policies(env, policy, config, section)
        if callbacks is None and any(map(reads_episodes, built.policies.values())):
            callbacks = DefaultCallbacks
        callbacks = [] if callbacks is None else callbacks
        super().__init__(
            env,
            built,
            fragment_length=fragment_length or batch_steps or rollout_fragment_length,
            callbacks=callbacks if isinstance(callbacks, list | tuple) else [EpisodeCallbacks.adapt(callbacks)],
            seed=seed or 0,
            logical_workers=max(1, num_workers),
            postprocess=isinstance(policy, type | Mapping),
            **{"count_resets": False, **{name: keywords[name] for name in keywords if name not in NO_EFFECT}},
        )

        external = self.env_creator.id
        self._external = ExternalSampler(external.first, self) if isinstance(external, ExternalCreator) else None

    @property
    def worker(self) -> RolloutWorker:  # type: ignore[override]
        """This one."""
        return self

    def sample(self) -> Any:
        """One sample, under RLlib's names."""
        return classic_batch(super().sample() if self._external is None else self._external.next())


def creator_of(
    env_creator: Any,
    env_config: Mapping[str, Any] | None,
    section: Mapping[str, Any],
    horizon: int | None = None,
    validate_env: Callable[..., Any] | None = None,
) -> tuple[EnvCreator, Mapping[str, Any]]:
    """How the environments are made, and the section `multiagent` with a mapping of their agents.

    Args:
        env_creator, env_config, validate_env: see `RolloutWorker`.
        section: `multiagent`.
        horizon: the longest episode.
    """
    env = env_creator
    if not isinstance(env, EnvCreator):
        adapted, section, _ = current_api(env_creator, env_config or {}, section)
        external = isinstance(adapted, ExternalCreator)
        env = EnvCreator(adapted, kwargs=dict(env_config or {}), max_episode_steps=horizon, check=not external)
    if validate_env is not None:
        made = env.make_single()
        call_with_accepted_args(validate_env, made, EnvContext(env.kwargs))
        made.close()
    return env, section


def build_policies(env: EnvCreator, policy: Any, config: Mapping[str, Any], section: Mapping[str, Any]) -> Any:
    """The policy of a class, or the policies of several agents; a policy that is built stays as it is.

    Args:
        env: gives the spaces.
        policy: see `RolloutWorker`.
        config: RLlib's keys.
        section: `multiagent`, where there are several.

    Raises:
        ConfigError: there is no policy, or no class of one.
    """
    if policy is None:
        raise ConfigError("policy=None: give the class of the policy, or the policy")
    if not isinstance(policy, type | Mapping):
        return policy
    section = {**section, "policies": policy} if isinstance(policy, Mapping) else section
    if isinstance(policy, type) and not section.get("policies"):
        return policy(*env.spaces(), **constructor_keywords(policy, config))

    def entry_of(policy_class: Any, own: Mapping[str, Any]) -> dict[str, Any]:
        chosen = policy if policy_class is None else policy_class
        if not isinstance(chosen, type):
            raise ConfigError(f"policy={short_repr(chosen)}: expected a class, because there is no trainer's")
        return {"_target_": chosen, **constructor_keywords(chosen, {**config, **own})}

    keys = multi_agent_keys(section, entry_of)
    entries = {name: {k: entry[k] for k in entry if k != "policy"} for name, entry in keys.pop("policies").items()}
    return PolicySet(*env.spaces(), policies=entries, **keys)


def constructor_keywords(policy_class: type, config: Mapping[str, Any]) -> dict[str, Any]:
    """RLlib's keys as keywords of a policy's constructor: the whole of them, if it has a parameter `config`."""
    takes_config = "config" in inspect.signature(policy_class).parameters
    return {"config": dict(config)} if takes_config else policy_keywords(policy_class, config)
