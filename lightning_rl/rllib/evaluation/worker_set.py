"""RLlib's set of rollout workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lightning_rl.rllib.callbacks import DefaultCallbacks, EpisodeCallbacks
from lightning_rl.rllib.episode_records import reads_episodes
from lightning_rl.rllib.evaluation.rollout_worker import build_policies, creator_of
from lightning_rl.rllib.workers import NumberedFromOne, RowIds, Workers
from lightning_rl.rollouts.worker_placement import make_worker_set

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
        policy: another name of `policy_class`.
        trainer_config: env_config, num_envs_per_worker, rollout_fragment_length, batch_mode, explore, seed,
            callbacks and multiagent; and the keys of the policy.
        num_workers: Ray processes; 0: one worker in this one.
        logdir: without effect: workers write nothing.

    Raises:
        ConfigError: there is no policy.
    """

    def __init__(
        self,
        env_creator: Any = None,
        validate_env: Callable[..., Any] | None = None,
        policy_class: Any = None,
        trainer_config: Mapping[str, Any] | None = None,
        num_workers: int = 0,
        logdir: str | None = None,
        *,
        policy: Any = None,
    ) -> None:
        config = dict(trainer_config or {})
        policy = policy_class if policy is None else policy
        env, section = creator_of(
            env_creator, config.get("env_config"), config.get("multiagent") or {}, validate_env=validate_env
        )
        policy = build_policies(env, policy, config, section)
        callbacks = config.get("callbacks")
        if callbacks is None and any(map(reads_episodes, policy.policies.values())):
            callbacks = DefaultCallbacks
        adapted = [RowIds(), *([] if callbacks is None else [EpisodeCallbacks.adapt(callbacks)])]
        for each in adapted:
            if isinstance(each, EpisodeCallbacks):
                each.learns(policy)
        workers = make_worker_set(
            NumberedFromOne.of(env) if num_workers else env,
            policy,
            num_workers=num_workers,
            worker_indices=range(max(1, num_workers)),
            logical_workers=max(1, num_workers),
            seed=config.get("seed") or 0,
            callbacks=adapted,
            **{name: config[key] for key, name in WORKER_KEYS.items() if key in config},
        )
        super().__init__(workers, policy)
