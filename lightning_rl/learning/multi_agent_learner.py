"""The iteration of learning of several policies in the same environments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from lightning_rl.distributed import all_gather_objects, sum_over_ranks
from lightning_rl.errors import ConfigError, NonFiniteError
from lightning_rl.learning.gradients import GradientUpdates, MultiAgentGradientUpdate
from lightning_rl.sample_batch import MultiAgentBatch, SampleBatch, env_steps, is_fragment, other_agent_batches

__all__ = ["MultiAgentLearner"]


class MultiAgentLearner:
    """Lets each trained policy learn from its own part of a `MultiAgentBatch`, by its own `Learner`.

    Args:
        policy: a `MultiAgentPolicy`.

    Attributes:
        in_iteration: whether an iteration is going on, in which the trained policies stay the same.
    """

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.in_iteration = False

    def update(self, experience: Any) -> dict[str, float]:
        """One iteration on a `MultiAgentBatch`, on `GradientUpdates` of workers, or by a plan's own function."""
        if callable(experience):
            experience()
            return self.policy.iteration_metrics
        if isinstance(experience, GradientUpdates):
            return self._learn_on_updates(experience.updates)
        return self.learn_on_batch(experience)

    def learn_on_batch(self, batch: MultiAgentBatch) -> dict[str, float]:
        """One iteration: every trained policy that has experience in the batch learns, in the order of training.

        A part is a fragment `[T, L, …]`, rows `[N, …]`, or draws from a replay buffer (`Learner.update`). A
        policy that has no experience on some rank is skipped on all of them, because ranks have to take equally many
        steps.

        Returns:
            "<policy id>/<name>" → mean of each metric over the policy's gradient steps.

        Raises:
            ConfigError: the batch is of one agent, or names a policy that does not exist.
            NonFiniteError: a loss or gradient is NaN or infinite; names the policy. That step was not taken.
        """
        policy = self.policy
        self._check_batch(batch)
        if not any(map(_is_replayed, batch.policy_batches.values())):  # else `take_experience` has counted its steps
            self._count_steps(batch)
        metrics: dict[str, float] = {}
        policy.learn_seconds = 0.0
        with self._same_policies():
            for policy_id in self._with_experience(batch):
                part = policy.policies[policy_id]
                with part.learner.beside(self._other_batches(batch, policy_id)):
                    metrics |= self._let_learn(policy_id, part.training_step, batch.policy_batches[policy_id])
        return self._end_iteration(metrics)

    def take_experience(self, batch: MultiAgentBatch) -> MultiAgentBatch:
        """A batch with each trained policy's fragment in the form for a replay buffer (`Learner.take_experience`).

        Its steps are counted here; draws from the buffer, rows `[N, …]` with "batch_indexes", count none.
        """
        self._check_batch(batch)
        self._count_steps(batch)
        parts = dict(batch.policy_batches)
        for policy_id in self._with_experience(batch):
            parts[policy_id] = self.policy.policies[policy_id].learner.take_experience(parts[policy_id])
        return MultiAgentBatch(parts, batch.env_steps, batch.num_envs)

    def _count_steps(self, batch: MultiAgentBatch) -> None:
        by_env_steps = self.policy.count_steps_by == "env_steps"
        self.policy.env_steps += sum_over_ranks(batch.env_steps if by_env_steps else batch.agent_steps)

    def _learn_on_updates(self, updates: Iterable[tuple[int, MultiAgentGradientUpdate, bool]]) -> dict[str, float]:
        """One iteration on gradient updates of workers; each is an iteration of every policy that it is for.

        Returns:
            "<policy id>/<name>" → mean of each metric over the updates.

        Raises:
            NonFiniteError: a gradient is NaN or infinite; names policy and worker. That step was not taken.
        """
        policy, by_env_steps = self.policy, self.policy.count_steps_by == "env_steps"
        found: dict[str, list[float]] = {}
        policy.learn_seconds = 0.0
        with self._same_policies():
            for worker, contribution, fresh in updates:
                policy.env_steps += contribution.env_steps if by_env_steps else contribution.agent_steps
                for policy_id, update in contribution.updates.items():
                    learn, one = policy.policies[policy_id].learner.update, GradientUpdates([(worker, update, fresh)])
                    for name, value in self._let_learn(policy_id, learn, one).items():
                        found.setdefault(name, []).append(value)
        return self._end_iteration({name: fmean(values) for name, values in found.items()})

    @contextmanager
    def _same_policies(self) -> Iterator[None]:
        """Context in which a change of the trained policies waits: the Trainer has the optimizers of all of them."""
        self.in_iteration = True
        try:
            yield
        finally:
            self.in_iteration = False
            self.policy.train_chosen()

    def _let_learn(self, policy_id: str, learn: Callable[[Any], Any], experience: Any) -> dict[str, float]:
        """One iteration of a policy by a method of its own; its metrics by "<policy id>/<name>"."""
        policy, part = self.policy, self.policy.policies[policy_id]
        before = part.gradient_steps
        try:
            learn(experience)
        except NonFiniteError as error:
            raise NonFiniteError(f"policy {policy_id!r}: {error}") from error
        policy.gradient_steps += part.gradient_steps - before
        policy.learn_seconds += part.learn_seconds
        return {f"{policy_id}/{name}": value for name, value in part.iteration_metrics.items()}

    def _end_iteration(self, metrics: dict[str, float]) -> dict[str, float]:
        self.policy.iteration_metrics = metrics
        self.policy.after_iteration(metrics)
        self.policy.iterations += 1
        return metrics

    def compute_gradients(self, batch: MultiAgentBatch) -> tuple[dict[str, Any], dict[str, float]]:
        """Gradients of one minibatch for each trained policy, by policy id, and all metrics."""
        self._check_batch(batch)
        gradients: dict[str, Any] = {}
        metrics: dict[str, float] = {}
        for policy_id in self._with_experience(batch):
            found = self.policy.policies[policy_id].compute_gradients(batch.policy_batches[policy_id])
            gradients[policy_id] = found[0]
            metrics |= {f"{policy_id}/{name}": value for name, value in found[1].items()}
        return gradients, metrics

    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Step each policy with its gradients from `compute_gradients`."""
        for policy_id, own in gradients.items():
            part = self.policy.get_policy(policy_id)
            before = part.gradient_steps
            part.apply_gradients(own)
            self.policy.gradient_steps += part.gradient_steps - before

    @property
    def needs_every_fragment(self) -> bool:
        """Whether `Learner.needs_every_fragment` is true of a trained policy."""
        return any(self.policy.policies[name].learner.needs_every_fragment for name in self.policy.policies_to_train)

    @property
    def experience_changes_acting(self) -> bool:
        """Whether `Learner.experience_changes_acting` is true of a trained policy."""
        trained = self.policy.policies_to_train
        return any(self.policy.policies[name].learner.experience_changes_acting for name in trained)

    def _check_batch(self, batch: Any) -> None:
        if not isinstance(batch, MultiAgentBatch):
            raise ConfigError(
                f"{type(self.policy).__name__} learns from a MultiAgentBatch, and got a {type(batch).__name__}: sample "
                "with the workers of an environment with several agents"
            )
        for policy_id in batch.policy_batches:
            self.policy.get_policy(policy_id)

    def _with_experience(self, batch: MultiAgentBatch) -> list[str]:
        """The trained policies that have experience in the batches of all ranks, in the order of training."""
        own = [name for name in self.policy.policies_to_train if _has_experience(batch.policy_batches.get(name))]
        everywhere = set.intersection(*map(set, all_gather_objects(own)))
        return [name for name in own if name in everywhere]

    def _other_batches(self, batch: MultiAgentBatch, policy_id: str) -> dict[str, tuple[Any, SampleBatch]]:
        """The `other_agent_batches` that are fragments, if the policy learns from one and not from draws."""
        if not isinstance(batch.policy_batches[policy_id], SampleBatch):
            return {}
        others = other_agent_batches(batch.fragments, self.policy.policies, policy_id)
        return {
            name: (policy, part)
            for name, (policy, part) in others.items()
            if isinstance(part, SampleBatch) and is_fragment(part)
        }


def _is_replayed(part: Any) -> bool:
    """Whether a part of a batch was drawn from a replay buffer by the caller."""
    return isinstance(part, SampleBatch) and "batch_indexes" in part


def _has_experience(part: Any) -> bool:
    """Whether there is anything to learn from in a part of a batch; draws are looked at only when they are taken."""
    return part is not None and (not isinstance(part, SampleBatch) or env_steps(part) > 0)
