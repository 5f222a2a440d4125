"""The policies of an environment with several agents, which learn side by side."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal, Self

from gymnasium import Space
from torch import nn

from lightning_rl.distributed import all_gather_objects, sum_over_ranks
from lightning_rl.errors import ConfigError, NonFiniteError, count_in_file
from lightning_rl.learning.gradients import GradientUpdates
from lightning_rl.learning.lightning_limits import check_lightning_methods, check_methods_among_several
from lightning_rl.policies.checkpoints import load_as, parts_of_checkpoint, repeat_changes_of
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.policy_entries import (
    agent_with_spaces,
    as_mapping,
    build_policy,
    check_policy_id,
    id_number,
    spaces_by_agent,
    trained_ids,
)
from lightning_rl.policies.policy_mapping import PolicyMapping
from lightning_rl.policies.policy_module import PolicyModule
from lightning_rl.sample_batch import Fragment, MultiAgentBatch, SampleBatch, env_steps, other_agent_batches, typed
from lightning_rl.schema.ranges import Seed, Whole
from lightning_rl.schema.signatures import keywords_of
from lightning_rl.seeding import derive_seed
from lightning_rl.spaces import space_difference

__all__ = ["PolicySet"]


class PolicySet(PolicyModule):
    """Holds the policies of several agents; each acts and learns by itself, and has its own optimizer and counters.

    Args:
        observation_space, action_space: Dict spaces, agent → its space.
        policies: policy id → one of

            - `{_target_: class or import path, **keywords}`. Without `seed`, or with the same one as here, the policy's
              seed is derived from its id, so that no two policies are equal. `central_obs_size` is set, if the class
              has that keyword. `_target_` may be "random"; `{_target_: scripted, function: …}` acts by a function
              (`ScriptedPolicy`).
            - a class, a function of an observation, or the import path of either;
            - `{checkpoint: path, policy_id: id in that file}`: a trained policy, of a run directory its last.ckpt; it
              stays as it is unless `policies_to_train` names it; further keywords are not allowed;
            - a policy that is built already.

            A policy that no agent has yet names an agent of the same spaces: `spaces_of: agent`.
        policy_mapping: which policy acts for which agent; see `PolicyMapping`.
        policies_to_train: policy ids; `None`: all that can learn and do not come from a checkpoint. The others never
            change, including their filters.
        count_steps_by: whether `env_steps`, which schedules and the run follow, counts steps of the environment or
            actions of its agents.
        central_size: width of the central observation, for policies with a central critic; 0: the environment has none.
        seed: seed of the policies that do not have one.

    Raises:
        ConfigError: an id, a policy's keywords, the mapping or the list of trained policies cannot work; or agents of
            different spaces have the same policy.

    Attributes:
        policies: policy id → policy.
        mapping: a `PolicyMapping`.
        env_steps: the number of env steps of the environments, or actions of agents; trained policies have the same
            number.
        steps_by_unit: the steps so far in either unit, "env_steps" and "agent_steps".
        gradient_steps: the gradient steps of all policies in this object.
    """

    has_model: ClassVar[bool] = False  # of its own

    policies: Any  # an `nn.ModuleDict` of policies
    mapping: PolicyMapping

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        *,
        policies: Mapping[str, Any],
        policy_mapping: Any = None,
        policies_to_train: Sequence[str] | None = None,
        count_steps_by: Literal["env_steps", "agent_steps"] = "env_steps",
        central_size: Whole = 0,
        seed: Seed = 0,
    ) -> None:
        super().__init__(observation_space, action_space, seed)
        self.policies, self.policies_to_train = nn.ModuleDict(), []
        self._in_iteration = False  # in which the trained policies stay the same
        self._trained_next: list[str] | None = None  # in place of these, when the iteration of learning has ended
        check_lightning_methods(self)
        self.count_steps_by, self.central_size = count_steps_by, central_size
        self.steps_by_unit = {"env_steps": 0, "agent_steps": 0}
        self._agent_spaces = spaces_by_agent(observation_space, action_space)
        self.agents = list(self._agent_spaces)
        self._spaces_of: dict[str, str] = {}  # policy id → an agent of its spaces
        self._added: list[str] = []  # ids of policies that the constructor did not build
        self._removed: set[str] = set()
        if not policies:
            raise ConfigError("policies={}; expected at least one: {id: {_target_: import path, **keywords}}")
        for policy_id in policies:
            check_policy_id(policy_id)
        self.mapping = PolicyMapping(policy_mapping, self._agent_spaces, policies)
        for policy_id, entry in policies.items():
            self._add(policy_id, entry)
        self._restrict_mapping()
        self.policies_to_train = trained_ids(policies_to_train, self.policies, policies)
        self.env_steps = 0  # of those that are built already as well

    # -- the policies -------------------------------------------------------------------------------------------------
    def _add(self, policy_id: str, entry: Any) -> None:
        """Build the policy of an entry and add it.

        Raises:
            ConfigError: the entry cannot work; names its id.
        """
        entry = as_mapping(f"policies.{policy_id}", entry)
        named = entry.pop("spaces_of", None)
        agent = agent_with_spaces(policy_id, named, entry, self.mapping, self._agent_spaces)
        if any(entry.get("_target_") is other for other in self.policies.values()):
            raise ConfigError(
                f"policies.{policy_id} is the same object as another policy: map the agents of both to one id"
            )
        own_spaces = self._agent_spaces[agent]
        policy = build_policy(policy_id, entry, own_spaces, seed=self.seed, central_size=self.central_size)
        for name, mine in zip(("observation_space", "action_space"), own_spaces, strict=True):
            if difference := space_difference(getattr(policy, name), mine):
                raise ConfigError(f"policies.{policy_id}: its {name} is not that of agent {agent!r}: {difference}")
        policy.policy_id, policy.learner.counts_env_steps = policy_id, False
        self.policies[policy_id] = policy
        self._spaces_of[policy_id] = agent

    def _restrict_mapping(self) -> None:
        """Let a function of the episode give an agent only policies with the agent's spaces."""
        names = {
            policy_id: [name for name, pair in self._agent_spaces.items() if pair == self._agent_spaces[agent]]
            for policy_id, agent in self._spaces_of.items()
        }
        self.mapping.restrict(names)

    def agents_of(self, policy_id: str) -> list[str]:
        """The agents that may have this policy, in the order of the spaces."""
        return self.mapping.agents_of(policy_id)

    @property
    def env_steps(self) -> int:
        """Environment steps, or actions of agents, so far; trained policies have the same number."""
        return self.progress.env_steps

    @env_steps.setter
    def env_steps(self, steps: int) -> None:
        self.progress.env_steps = steps
        for policy_id in self.policies_to_train:
            self.policies[policy_id].env_steps = steps

    def seed_exploration(self, seed: int) -> None:
        """Seed the actions of every policy, each by a seed derived from `seed` and its id."""
        for policy_id, policy in self.policies.items():
            policy.seed_exploration(derive_seed(seed, "rollout", id_number(policy_id)))

    # -- changes during a run -----------------------------------------------------------------------------------------
    def add_policy(
        self,
        policy_id: str,
        policy: Any,
        *,
        trained: bool = False,
        policy_mapping: Any = None,
        spaces_of: str | None = None,
    ) -> Policy:
        """Add a policy, also between two iterations of a run; workers and checkpoints have it from then on.

        Args:
            policy_id: a new one.
            policy: an entry as in `policies`, or a policy, which is used as it is: give a copy of one in training
                (`copy_for_acting()`).
            trained: whether it learns.
            policy_mapping: the mapping from now on; `None` keeps the present one.
            spaces_of: an agent with the policy's spaces, if the mapping gives the policy to no agent.

        Returns:
            The policy.

        Raises:
            ConfigError: see the constructor; or a policy to train is added while several ranks train.
        """
        check_policy_id(policy_id)
        if policy_id in self.policies:
            raise ConfigError(f"add_policy: there is a policy {policy_id!r} already")
        if policy_id in self._removed:
            raise ConfigError(f"add_policy: {policy_id!r} was the id of a policy that was removed: choose another id")
        if trained and self.in_trainer and self.trainer.world_size > 1:
            raise ConfigError(
                f"add_policy({policy_id!r}, trained=True): with several ranks, add policies to train before fit"
            )
        entry = as_mapping(f"policies.{policy_id}", policy)
        if spaces_of is not None:
            entry["spaces_of"] = spaces_of
        mapping = self.mapping.given if policy_mapping is None else policy_mapping
        learning = self.policies_to_train if self._trained_next is None else self._trained_next
        self._extend({policy_id: entry}, mapping, [*learning, policy_id] if trained else None)
        return self.policies[policy_id]

    def set_policy_mapping(self, policy_mapping: Any) -> None:
        """Use another mapping from the next episodes on.

        Raises:
            ConfigError: see the constructor.
        """
        self._extend({}, policy_mapping)

    def set_policies_to_train(self, policy_ids: Sequence[str]) -> None:
        """Train these policies from now on, or after the iteration that is in progress; the others stay as they are.

        Raises:
            ConfigError: see the constructor.
        """
        self._extend({}, self.mapping.given, policy_ids)

    def remove_policy(self, policy_id: str, *, policy_mapping: Any = None) -> None:
        """Forget a policy between two iterations of a run; checkpoints do not have it from then on.

        Copies in worker processes keep it and give it no agent, so that its id cannot be that of another policy.

        Args:
            policy_id: whose policy it is.
            policy_mapping: the mapping from now on; `None` keeps the present one.

        Raises:
            ConfigError: there is no such policy, or the mapping may give it an agent.
        """
        self.get_policy(policy_id)
        mapping = self.mapping.given if policy_mapping is None else policy_mapping
        kept = [name for name in self.policies if name != policy_id]
        PolicyMapping(mapping, self._agent_spaces, kept)  # which checks it, before anything changes
        if policy_id in self.policies_to_train:
            self.set_policies_to_train([name for name in self.policies_to_train if name != policy_id])
        del self.policies[policy_id], self._spaces_of[policy_id]
        self._added = [name for name in self._added if name != policy_id]
        self._removed.add(policy_id)
        self._extend({}, mapping)

    @property
    def additions(self) -> dict[str, Any]:
        """Keywords of `add_policies` with which a copy follows what has changed since the constructor; {}: nothing."""
        if not self.generation:
            return {}
        keywords = self.constructor_arguments()[1]
        added = {policy_id: keywords["policies"][policy_id] for policy_id in self._added}
        names = ("policy_mapping", "policies_to_train")
        return {"policies": added, **{name: keywords[name] for name in names}, "generation": self.generation}

    def add_policies(
        self,
        policies: Mapping[str, Any],
        policy_mapping: Any,
        policies_to_train: Sequence[str] | None = None,
        generation: int | None = None,
    ) -> None:
        """Follow the `additions` of another such set; policies that are here already stay as they are.

        Raises:
            ConfigError: see the constructor.
        """
        if generation == self.generation:
            return
        missing = {policy_id: entry for policy_id, entry in policies.items() if policy_id not in self.policies}
        for policy_id in missing:
            check_policy_id(policy_id)
        self._extend(missing, policy_mapping, policies_to_train)
        self.generation = self.generation if generation is None else generation

    def _extend(
        self, entries: Mapping[str, Any], policy_mapping: Any, policies_to_train: Sequence[str] | None = None
    ) -> None:
        """Add policies, change the mapping and (unless `None`) what is trained; on an error nothing changes."""
        before = self.mapping
        self.mapping = PolicyMapping(policy_mapping, self._agent_spaces, [*self.policies, *entries])
        try:
            for policy_id, agent in self._spaces_of.items():
                agent_with_spaces(policy_id, agent, {}, self.mapping, self._agent_spaces)
            for policy_id, entry in entries.items():
                self._add(policy_id, entry)
            trained = None if policies_to_train is None else trained_ids(policies_to_train, self.policies, {})
        except Exception:
            self.mapping = before
            for policy_id in entries.keys() & self.policies.keys():
                del self.policies[policy_id], self._spaces_of[policy_id]
            raise
        for policy_id in entries:
            policy = self.policies[policy_id]
            policy.to(self.device).train(self.training)
            policy.trainer = self._trainer
        self._added += entries
        self._restrict_mapping()
        self.generation += 1
        if trained is not None:
            self._trained_next = trained
            if not self._in_iteration:
                self._train_chosen()

    def _train_chosen(self) -> None:
        """Train the policies that were chosen since the iteration began, if any."""
        trained, self._trained_next = self._trained_next, None
        if trained is None or trained == self.policies_to_train:
            return
        self.generation += 1  # workers may have followed the change that waited
        self.policies_to_train = trained
        self.env_steps = self.env_steps  # of the new ones as well
        if self.in_trainer:
            strategy: Any = self.trainer.strategy
            strategy.optimizers = self.configure_optimizers() or []

    # -- learning -----------------------------------------------------------------------------------------------------
    def training_step(self, batch: Any, batch_idx: int = 0) -> None:
        """One iteration, `learn_on_batch`; or a plan's own function, which is called."""
        if callable(batch):
            batch()
        else:
            self.learn_on_batch(batch)

    def learn_on_batch(self, batch: MultiAgentBatch | GradientUpdates) -> dict[str, float]:
        """One iteration: every trained policy that has experience learns, in the order of training.

        A policy that has no experience on some rank is skipped on all of them, because ranks have to take equally many
        steps.

        Args:
            batch: each policy's fragment `[T, L, …]`, rows `[N, …]`, or draws from a replay buffer
                (`Learner.update`); or gradient updates of workers, each of which is an iteration of its policies.

        Returns:
            "<policy id>/<name>" → mean of each metric over the policy's gradient steps.

        Raises:
            ConfigError: the batch is of one agent, or names a policy that does not exist.
            NonFiniteError: a loss or gradient is NaN or infinite; names the policy. That step was not taken.
        """
        found: dict[str, list[float]] = {}
        self.learn_seconds, self._in_iteration = 0.0, True
        try:  # a change of the trained policies waits: the Trainer has the optimizers of all of them
            for policy_id, experience, others in self._shares(batch):
                policy = self.policies[policy_id]
                before = policy.gradient_steps
                try:
                    with policy.learner.beside(others):
                        policy.training_step(experience)
                except NonFiniteError as error:
                    raise NonFiniteError(f"policy {policy_id!r}: {error}") from error
                self.gradient_steps += policy.gradient_steps - before
                self.learn_seconds += policy.learn_seconds
                for name, value in policy.iteration_metrics.items():
                    found.setdefault(f"{policy_id}/{name}", []).append(value)
        finally:
            self._in_iteration = False
            self._train_chosen()
        self.iteration_metrics = {name: fmean(values) for name, values in found.items()}
        self.iterations += 1
        return self.iteration_metrics

    def _shares(self, batch: Any) -> Iterator[tuple[str, Any, Mapping[str, tuple[Policy, SampleBatch]] | None]]:
        """The policies that learn from a batch, each with its part and `other_agent_batches`; steps are counted."""
        if isinstance(batch, GradientUpdates):
            for worker, contribution, fresh in batch.updates:
                self._count_steps(contribution, int)
                for policy_id, update in contribution.updates.items():
                    yield policy_id, GradientUpdates([(worker, update, fresh)]), None
            return
        self._check_batch(batch)
        if not any(isinstance(part, SampleBatch) and "batch_indexes" in part for _, part in batch.items()):
            self._count_steps(batch)  # else `take_experience` has counted them
        fragments = {name: part for name, part in batch.fragments.items() if isinstance(typed(part), Fragment)}
        beside = MultiAgentBatch(fragments, batch.env_steps, batch.num_envs)
        for policy_id in self._with_experience(batch):
            part, others = batch[policy_id], {}
            if isinstance(part, SampleBatch):  # not draws
                others = other_agent_batches(beside, self.policies, policy_id)
            yield policy_id, part, others

    def take_experience(self, batch: MultiAgentBatch) -> MultiAgentBatch:
        """A batch with each trained policy's fragment in the form for a replay buffer (`Learner.take_experience`).

        Its steps are counted here; draws from the buffer, rows `[N, …]` with "batch_indexes", count none.
        """
        self._check_batch(batch)
        self._count_steps(batch)
        parts = dict(batch.policy_batches)
        for policy_id in self._with_experience(batch):
            parts[policy_id] = self.policies[policy_id].learner.take_experience(parts[policy_id])
        return MultiAgentBatch(parts, batch.env_steps, batch.num_envs)

    def compute_gradients(self, batch: MultiAgentBatch) -> tuple[dict[str, Any], dict[str, float]]:
        """Gradients of one minibatch of each trained policy, by policy id, and metrics, "<policy id>/<name>"."""
        self._check_batch(batch)
        found = {name: self.policies[name].compute_gradients(batch[name]) for name in self._with_experience(batch)}
        metrics = {f"{name}/{key}": value for name, (_, own) in found.items() for key, value in own.items()}
        return {name: gradients for name, (gradients, _) in found.items()}, metrics

    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Step each policy with its gradients from `compute_gradients`."""
        for policy_id, own in gradients.items():
            policy = self.get_policy(policy_id)
            before = policy.gradient_steps
            policy.apply_gradients(own)
            self.gradient_steps += policy.gradient_steps - before

    def _count_steps(self, experience: Any, over_ranks: Callable[[int], int] = sum_over_ranks) -> None:
        new = {unit: over_ranks(getattr(experience, unit)) for unit in self.steps_by_unit}
        self.steps_by_unit = {unit: self.steps_by_unit[unit] + count for unit, count in new.items()}
        self.env_steps += new[self.count_steps_by]

    def _check_batch(self, batch: Any) -> None:
        if not isinstance(batch, MultiAgentBatch):
            raise ConfigError(
                f"{type(self).__name__} learns from a MultiAgentBatch, and got a {type(batch).__name__}: sample "
                "with the workers of an environment with several agents"
            )
        for policy_id in batch.policy_batches:
            self.get_policy(policy_id)

    def _with_experience(self, batch: MultiAgentBatch) -> list[str]:
        """The trained policies that have experience in the batches of all ranks, in the order of training."""
        own = [name for name in self.policies_to_train if name in batch and _has_experience(batch[name])]
        everywhere = set.intersection(*map(set, all_gather_objects(own)))
        return [name for name in own if name in everywhere]

    # -- Lightning ----------------------------------------------------------------------------------------------------
    def setup(self, stage: str) -> None:
        """As `PolicyModule`; every policy has the same Trainer."""
        super().setup(stage)
        for policy in self.policies.values():
            policy.trainer = self._trainer

    def on_fit_start(self) -> None:
        """Warn if no policy learns, and as `PolicyModule`.

        Raises:
            ConfigError: a method was assigned to this object, or to one of the policies, that is not called.
        """
        for policy in self.policies.values():
            check_methods_among_several(policy)
        if not self.policies_to_train:
            warnings.warn(
                "no policy learns: the agents only act. Name some in policies_to_train, or evaluate instead",
                stacklevel=2,
            )
        super().on_fit_start()

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Any:
        """The best actions for {policy id: observations `[B, *]`}, by policy id, as the environment takes them."""
        return {policy_id: self.get_policy(policy_id).predict_step(obs) for policy_id, obs in batch.items()}

    # -- weights and checkpoints --------------------------------------------------------------------------------------
    def get_weights(self) -> dict[str, Any]:
        """The weights of every policy, by policy id."""
        return {policy_id: policy.get_weights() for policy_id, policy in self.policies.items()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Act with these weights from now on; policies that are not named keep theirs.

        Raises:
            ConfigError: there is no such policy.
            RuntimeError: the names or shapes are those of another policy.
        """
        for policy_id, own in weights.items():
            self.get_policy(policy_id).set_weights(own)

    def constructor_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The spaces and keywords with which another such set is built, policies that were added included."""
        return (self.observation_space, self.action_space), {
            "policies": {policy_id: self.entry_of(policy_id) for policy_id in self.policies},
            "policy_mapping": self.mapping.portable,
            "policies_to_train": list(self.policies_to_train),
            "count_steps_by": self.count_steps_by,
            "central_size": self.central_size,
            "seed": self.seed,
        }

    def entry_of(self, policy_id: str) -> dict[str, Any]:
        """The entry of `policies` that builds this policy: its class, its keywords, and an agent of its spaces."""
        policy = self.get_policy(policy_id)
        keywords = policy.constructor_arguments()[1]
        if "seed" in keywords_of(type(policy)):
            keywords = {"seed": policy.seed, **keywords}
        return {"_target_": type(policy), **keywords, "spaces_of": self._spaces_of[policy_id]}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """As `PolicyModule`, with each policy's spaces and counters, and whether the run changed its policies.

        Raises:
            NonFiniteError: a weight is NaN or infinite; names it.
            CheckpointError: a keyword, the mapping or own weights of a policy have no plain form.
        """
        checkpoint["policies"] = parts_of_checkpoint(self.policies)
        checkpoint["policies_changed"] = self.generation > 0
        checkpoint["steps_by_unit"] = dict(self.steps_by_unit)
        super().on_save_checkpoint(checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Repeat what the run changed of its policies; refuse a checkpoint of others; then load counters and weights.

        The states of the optimizers are given to the policies by their ids; a policy that had none begins with a new
        one.
        """
        repeat_changes_of(checkpoint, self)
        super().on_load_checkpoint(checkpoint)
        for unit, count in checkpoint.get("steps_by_unit", {}).items():  # an older file has none
            self.steps_by_unit[unit] = count_in_file(f"steps_by_unit.{unit}", count)
        if "optimizer_states" in checkpoint:
            held = [
                name for name in checkpoint["policy"]["kwargs"]["policies_to_train"] if self.policies[name].has_model
            ]
            states = dict(zip(held, checkpoint["optimizer_states"], strict=False))
            trained = {name: self.policies[name] for name in self.policies_to_train if self.policies[name].has_model}
            checkpoint["optimizer_states"] = [
                states[name] if name in states else policy.learner.optimizer.torch_optimizer.state_dict()
                for name, policy in trained.items()
            ]

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]
        cls, checkpoint_path: str | Path, *, trust: str | Sequence[str] = (), **kwargs: Any
    ) -> Self:
        """The policies in a checkpoint, as `Policy.load` gives them.

        Args:
            checkpoint_path: the file.
            trust: packages that the file may name, as `Policy.load`.
            kwargs: constructor's keywords that replace those in the file.

        Raises:
            CheckpointError, ConfigError: see `Policy.load_from_checkpoint`.
        """
        return load_as(cls, checkpoint_path, kwargs, trust=trust)


def _has_experience(part: Any) -> bool:
    """Whether there is anything to learn from in a part of a batch; draws are looked at only when they are taken."""
    return not isinstance(part, SampleBatch) or env_steps(part) > 0
