"""RLlib's set of rollout workers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.envs.registry import EnvContext
from lightning_rl.errors import ConfigError
from lightning_rl.rllib.env_api import current_api
from lightning_rl.rllib.keys import policy_keywords
from lightning_rl.rllib.workers import Workers
from lightning_rl.rollouts.worker_set import make_worker_set
from lightning_rl.schema.signatures import call_with_accepted_args

__all__ = ["WorkerSet"]

WORKER_KEYS = {
    "num_envs_per_worker": "num_envs",
    "rollout_fragment_length": "fragment_length",
    "batch_mode": "batch_mode",
    "explore": "explore",
}
"""RLlib's keys of a worker → the keyword of `RolloutWorker`."""


class WorkerSet(Workers):
    """A set of rollout workers, made by hand.

    Args:
        env_creator: called with an `EnvContext`; or an id.
        validate_env: called with an environment and its context.
        policy_class: built of the environment's spaces and the config; or a policy, which is used as it is.
        trainer_config: env_config, num_envs_per_worker, rollout_fragment_length, batch_mode, explore and seed; and the
            keys of the policy.
        num_workers: Ray processes; 0: one worker in this one.
        logdir: without effect: workers write nothing.

    Raises:
        ConfigError: there is no policy.
    """

    def __init__(
        self,
        *,
        env_creator: Any,
        validate_env: Callable[..., Any] | None = None,
        policy_class: Any = None,
        trainer_config: Mapping[str, Any] | None = None,
        num_workers: int = 0,
        logdir: str | None = None,
    ) -> None:
        config = dict(trainer_config or {})
        if isinstance(env_creator, EnvCreator):
            env = env_creator
        else:
            adapted, *_ = current_api(env_creator, config.get("env_config") or {}, {})
            env = EnvCreator(adapted, kwargs=dict(config.get("env_config") or {}))
        if validate_env is not None:
            made = env.make_single()
            call_with_accepted_args(validate_env, made, EnvContext(env.kwargs))
            made.close()
        if policy_class is None:
            raise ConfigError("WorkerSet(policy_class=None): give the class of the policy, or the policy")
        policy = policy_class
        if isinstance(policy_class, type):
            takes_config = "config" in inspect.signature(policy_class).parameters
            keywords = {"config": config} if takes_config else policy_keywords(policy_class, config)
            policy = policy_class(*env.spaces(), **keywords)
        workers = make_worker_set(
            env,
            policy,
            num_workers=num_workers,
            worker_indices=range(max(1, num_workers)),
            logical_workers=max(1, num_workers),
            seed=config.get("seed") or 0,
            **{name: config[key] for key, name in WORKER_KEYS.items() if key in config},
        )
        super().__init__(workers, policy)
