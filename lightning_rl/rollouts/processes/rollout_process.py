"""What a process of rollout workers does: acts with one copy of the policy, and answers its supervisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.models.catalog import ModelCatalog
from lightning_rl.rollouts.processes.limits import News
from lightning_rl.rollouts.processes.watchdog import Watchdog, WatchedEnv, resident_mb
from lightning_rl.rollouts.processes.weights import unpack
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.sample_batch import env_steps

__all__ = ["Recipe", "RolloutProcess"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What every process of a set is made of.

    Attributes:
        env: how to make the environments.
        policy_class, arguments: what acts, and the spaces and keywords that its constructor gets.
        options: keywords of `RolloutWorker`.
        registered: `ModelCatalog.registered_classes()`.
        reset_timeout_s, step_timeout_s: as `Limits`.
    """

    env: EnvCreator
    policy_class: type
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]]
    options: Mapping[str, Any]
    registered: Mapping[str, Any]
    reset_timeout_s: float | None = None
    step_timeout_s: float | None = None


class RolloutProcess:
    """The logical workers of one process, acting with one copy of the policy."""

    def perform(self, method: str, *arguments: Any) -> tuple[Any, News]:
        """What a method returns, and the news."""
        return self._performed(method, arguments), self._news()

    def perform_apart(self, method: str, *arguments: Any) -> tuple[Any, tuple[Any, News]]:
        """Of a method with two results: the first; and, a second object, the second one and the news."""
        held, told = self._performed(method, arguments)
        return held, (told, self._news())

    def start(
        self,
        recipe: Recipe,
        indices: Sequence[int],
        trace: str | None,
        states: Mapping[int, dict[str, int]],
        attempt: int,
        *acting: Any,
    ) -> None:
        """Build policy and environments; no constructor, because an error there would hide behind "the actor died".

        Args:
            recipe: of all processes.
            indices: of the workers that live here.
            trace: file for what is known when this process crashes.
            states: of these workers, as far as they have a past.
            attempt: ≥ 1: what comes next has failed before, and is begun with other seeds.
            acting: as `_take` gets it; or nothing yet.
        """
        torch.set_num_threads(1)  # the cores belong to the processes
        ModelCatalog.register_all(recipe.registered)
        self.watchdog = Watchdog(trace)
        spaces, keywords = recipe.arguments
        self.policy = recipe.policy_class(*spaces, **keywords).eval()
        self.version, self.cuts = -1, 0
        options = {**recipe.options, "wrap_env": self._watched(recipe)}
        self.workers = {
            index: RolloutWorker(recipe.env, self.policy, worker_index=index, **options) for index in indices
        }
        self._told_restarts = 0
        for index, worker in self.workers.items():
            if index in states:
                worker.load_state_dict(states[index])
            worker.restarts.attempt = attempt
        self._take(*acting)

    def sample(self, indices: Sequence[int], *acting: Any) -> list[tuple[int, Any, Any]]:
        """(worker index, fragment as arrays, metrics) of each logical worker asked for."""
        self._take(*acting)
        return [(index, self.workers[index].sample().numpy(), self.workers[index].get_metrics()) for index in indices]

    def do(self, index: int, fn: Callable[[RolloutWorker], Any], *acting: Any) -> tuple[Any, Any]:
        """`fn` of one worker, and its metrics."""
        self._take(*acting)
        worker = self.workers[index]
        return fn(worker), worker.get_metrics()

    def _take(
        self, weights: Mapping[str, Any] | None = None, version: int = -1, env_steps: int = 0, cuts: int = 0
    ) -> None:
        """Act with these weights from now on; they are unpacked once per version.

        Args:
            weights, version: of the policy; `None`: there are no new ones yet.
            env_steps: of the run so far.
            cuts: how often the run has cut its environments; at a new number they start with a seeded reset.
        """
        if weights is not None and version != self.version:
            unpack(self.policy, weights)
            self.version = version
        self.policy.env_steps = env_steps
        if cuts != self.cuts:
            for worker in self.workers.values():
                worker.cut()
            self.cuts = cuts

    def sample_apart(self, *request: Any) -> tuple[list[Any], list[tuple[int, int, int, Any]]]:
        """As `sample`: the fragments; and, a second object, (worker index, env steps, bytes, metrics) of each."""
        sampled = self.sample(*request)
        told = [(index, env_steps(fragment), fragment.nbytes, metrics) for index, fragment, metrics in sampled]
        return [fragment for _, fragment, _ in sampled], told

    def call(self, fn: Callable[[RolloutWorker], Any], *acting: Any) -> list[tuple[int, Any]]:
        """`fn` of each worker."""
        self._take(*acting)
        return [(index, fn(worker)) for index, worker in self.workers.items()]

    def _performed(self, method: str, arguments: Sequence[Any]) -> Any:
        try:
            return getattr(self, method)(*arguments)
        except RuntimeError as error:
            if "can't allocate memory" in str(error):  # what torch says on a CPU
                raise MemoryError(str(error)) from error
            raise

    def _news(self) -> News:
        restarts = sum(worker.restarts.count for worker in self.workers.values())
        new, self._told_restarts = restarts - self._told_restarts, restarts
        return News({index: worker.state_dict() for index, worker in self.workers.items()}, new, resident_mb())

    def _watched(self, recipe: Recipe) -> Callable[[Any], Any] | None:
        """What is put around the environments of a worker; `None` where they have no deadlines of their own."""
        deadlines = (recipe.reset_timeout_s, recipe.step_timeout_s)
        given = [seconds for seconds in deadlines if seconds is not None]
        if not given:
            return None
        self.watchdog.watch(min(given))
        return lambda env: WatchedEnv(env, self.watchdog, *deadlines)
