"""What a process of rollout workers does: acts with one copy of the policy, and answers `RayWorkerSet`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.rollouts.envs import EnvCreator
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.rollouts.weights import unpack

__all__ = ["RolloutProcess"]


class RolloutProcess:
    """The logical workers of one process, acting with one copy of the policy."""

    def start(
        self,
        env: EnvCreator,
        policy_class: type,
        arguments: Mapping[str, Any],
        indices: Sequence[int],
        options: Mapping[str, Any],
        registered: Mapping[str, Any],
    ) -> None:
        """Build policy and environments; no constructor, because an error there would hide behind "the actor died"."""
        torch.set_num_threads(1)  # the cores belong to the processes
        ModelCatalog.register_all(registered)
        self.policy = policy_class(**arguments).eval()
        self.version = -1
        self.workers = {index: RolloutWorker(env, self.policy, worker_index=index, **options) for index in indices}

    def sample(
        self, indices: Sequence[int], weights: Mapping[str, Any], version: int, env_steps: int
    ) -> list[tuple[int, Any, Any]]:
        """(worker index, fragment as arrays, metrics) of each logical worker asked for."""
        if version != self.version:
            unpack(self.policy, weights)
            self.version = version
        self.policy.env_steps = env_steps
        return [(index, self.workers[index].sample().numpy(), self.workers[index].get_metrics()) for index in indices]

    def sample_apart(self, *request: Any) -> tuple[list[Any], list[tuple[int, int, Any]]]:
        """As `sample`: the fragments; and, a second object, (worker index, environment steps, metrics) of each."""
        sampled = self.sample(*request)
        told = [(index, int(fragment.valid.sum()), metrics) for index, fragment, metrics in sampled]
        return [fragment for _, fragment, _ in sampled], told

    def call(self, fn: Callable[[RolloutWorker], Any]) -> list[tuple[int, Any]]:
        """`fn` of each worker."""
        return [(index, fn(worker)) for index, worker in self.workers.items()]
