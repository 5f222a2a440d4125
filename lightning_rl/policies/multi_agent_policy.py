"""The policy of an environment with several agents: it holds the policies that act for them."""

from __future__ import annotations

import inspect
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gymnasium import Space, spaces
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from lightning_rl.errors import ConfigError, UnsupportedSpaceError, did_you_mean, import_object, short_repr
from lightning_rl.fast_torch import FastAttributes
from lightning_rl.learning.lightning_limits import check_lightning_methods, check_methods_among_several
from lightning_rl.learning.multi_agent_learner import MultiAgentLearner
from lightning_rl.policies.checkpoints import (
    check_finite_weights,
    check_fits,
    counters,
    load_counters_and_weights,
    load_policy,
    parts_of_checkpoint,
    repeat_changes_of,
    set_counters,
)
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.policy_mapping import PolicyMapping
from lightning_rl.policies.random_policy import RandomPolicy
from lightning_rl.policies.scripted_policy import ScriptedPolicy
from lightning_rl.run_directory.checkpoint_files import check_version, version_entry
from lightning_rl.run_directory.checkpoints import checkpoint_of
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Seed, Whole
from lightning_rl.schema.signatures import keywords_of
from lightning_rl.seeding import derive_seed
from lightning_rl.spaces import space_difference

__all__ = ["MultiAgentPolicy", "policy_seed"]

NAMED_POLICIES = {"random": RandomPolicy, "scripted": ScriptedPolicy}
LEARNING_VERBS = frozenset({"learn_on_batch", "compute_gradients"})
TAKEN_NAMES = frozenset(dir(nn.ModuleDict()))  # which `nn.ModuleDict` accepts as no key


class MultiAgentPolicy(Policy):
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
        policies_to_train: ids of the policies that learn, in the order of training.
        env_steps: of the environments, or actions of agents; trained policies have the same number.
        gradient_steps: of all policies in this object.
        generation: how often policies, mapping or trained policies were changed after the constructor.
    """

    has_model: ClassVar[bool] = False  # of its own

    policies: Any  # an `nn.ModuleDict` of policies
    mapping: PolicyMapping
    learner: Any

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
        super(FastAttributes, self).__init__()
        self.policies = nn.ModuleDict()
        self.policies_to_train: list[str] = []
        self._trained_next: list[str] | None = None  # in place of these, when the iteration of learning has ended
        self._set_basic_attributes(observation_space, action_space, 1.0, seed)
        check_lightning_methods(self)
        self.count_steps_by, self.central_size = count_steps_by, central_size
        self._agent_spaces = _spaces_by_agent(observation_space, action_space)
        self._spaces_of: dict[str, str] = {}  # policy id → an agent of its spaces
        self._added: list[str] = []  # ids of policies that the constructor did not build
        self.generation = 0
        self.learner = MultiAgentLearner(self)
        if not policies:
            raise ConfigError("policies={}; expected at least one: {id: {_target_: import path, **keywords}}")
        for policy_id in policies:
            check_policy_id(policy_id)
        self.mapping = PolicyMapping(policy_mapping, self._agent_spaces, policies)
        for policy_id, entry in policies.items():
            self._add(policy_id, entry)
        self._restrict_mapping()
        self.policies_to_train = self._trained_ids(policies_to_train, policies)
        self.env_steps = self.env_steps  # of the trained policies, too

    # -- building the policies ----------------------------------------------------------------------------------------
    def _add(self, policy_id: str, entry: Any) -> None:
        """Build the policy of an entry and add it.

        Raises:
            ConfigError: the entry cannot work; names its id.
        """
        key = f"policies.{policy_id}"
        entry = _as_mapping(key, entry)
        agent = self._agent_with_spaces(policy_id, entry.pop("spaces_of", None), entry)
        try:
            policy = self._build(policy_id, entry, self._agent_spaces[agent])
            check_methods_among_several(policy)
        except (ConfigError, UnsupportedSpaceError) as error:
            if not str(error).startswith(key):
                error.args = (f"{key}: {error}",)
            raise
        if isinstance(policy, MultiAgentPolicy):
            raise ConfigError(f"{key} holds several policies itself; name one by policy_id: {_listed(policy.policies)}")
        for name, mine in zip(("observation_space", "action_space"), self._agent_spaces[agent], strict=True):
            difference = space_difference(getattr(policy, name), mine)
            if difference:
                raise ConfigError(f"{key}: its {name} is not that of agent {agent!r}: {difference}")
        policy.policy_id, policy.learner.counts_env_steps = policy_id, False
        self.policies[policy_id] = policy
        self._spaces_of[policy_id] = agent

    def _build(self, policy_id: str, entry: dict[str, Any], spaces_of_agent: tuple[Space[Any], Space[Any]]) -> Policy:
        key = f"policies.{policy_id}"
        if "checkpoint" in entry:
            unknown = sorted(entry.keys() - {"checkpoint", "policy_id"})
            if unknown:
                raise ConfigError(f"{key}.{unknown[0]} beside checkpoint: the file holds the policy's keywords")
            path = Path(entry["checkpoint"])
            return load_policy(checkpoint_of(path) if path.is_dir() else path, policy_id=entry.get("policy_id"))
        target = entry.pop("_target_", None)
        if isinstance(target, Policy):
            if entry:
                raise ConfigError(f"{key}: a policy that is built already takes no keywords ({', '.join(entry)})")
            if any(target is other for other in self.policies.values()):
                raise ConfigError(f"{key} is the same object as another policy: map the agents of both to one id")
            return target
        found = NAMED_POLICIES.get(target, target) if isinstance(target, str) else target
        found = import_object(found) if isinstance(found, str) else found
        if not isinstance(found, type) and callable(found):
            found, entry = ScriptedPolicy, {"function": target, **entry}
        if not isinstance(found, type) or not issubclass(found, Policy):
            raise ConfigError(
                f"{key}._target_={short_repr(target)}; expected a policy class, a function of an observation, the "
                "import path of one of them, or random"
            )
        known = keywords_of(found)
        if "seed" in known and entry.get("seed") is None:
            entry["seed"] = policy_seed(self.seed, policy_id)
        if "central_obs_size" in known and not entry.get("central_obs_size"):
            entry["central_obs_size"] = self.central_size
        if _needs_config(found) and "config" not in entry:
            entry = {"config": entry}
        try:
            inspect.signature(found).bind(*spaces_of_agent, **entry)
        except TypeError as error:
            raise ConfigError(f"{key}: {found.__name__}: {error}") from error
        return found(*spaces_of_agent, **entry)

    def _agent_with_spaces(self, policy_id: str, named: str | None, entry: Mapping[str, Any]) -> str:
        """An agent with the spaces of this policy: of those that it acts for, or the named one.

        Raises:
            ConfigError: there is none, or the agents that it acts for have different spaces.
        """
        agents = [*self.mapping.agents_of(policy_id)]
        if named is not None:
            if named not in self._agent_spaces:
                raise ConfigError(
                    f"policies.{policy_id}.spaces_of={named!r} is no agent.{did_you_mean(named, self._agent_spaces)}"
                )
            agents.append(named)
        if not agents and isinstance(entry.get("_target_"), Policy):
            own = entry["_target_"]
            agents = [
                name for name, pair in self._agent_spaces.items() if pair == (own.observation_space, own.action_space)
            ]
        if not agents and not self.mapping.static and self._spaces_are_equal:
            agents = [*self._agent_spaces]
        if not agents:
            raise ConfigError(
                f"policies.{policy_id}: no agent has this policy by policy_mapping={short_repr(self.mapping.given)} "
                f"(agents: {_listed(self._agent_spaces)}): map one to it, leave the policy out, or name an agent with "
                f"its spaces: policies.{policy_id}.spaces_of={next(iter(self._agent_spaces))!r}"
            )
        for other in agents[1:]:
            for name, first, second in zip(
                ("observation", "action"), self._agent_spaces[agents[0]], self._agent_spaces[other], strict=True
            ):
                if first != second:
                    raise ConfigError(
                        f"policy {policy_id!r} cannot act for both {agents[0]!r} and {other!r}: their {name} spaces "
                        f"are {first} and {second}. Map them to two policies, or make the spaces equal by a wrapper"
                    )
        return agents[0]

    @property
    def _spaces_are_equal(self) -> bool:
        first, *others = self._agent_spaces.values()
        return all(pair == first for pair in others)

    def _restrict_mapping(self) -> None:
        """Let a function of the episode give an agent only policies with the agent's spaces."""
        names = {
            policy_id: [name for name, pair in self._agent_spaces.items() if pair == self._agent_spaces[agent]]
            for policy_id, agent in self._spaces_of.items()
        }
        self.mapping.restrict(names)

    def _trained_ids(self, given: Sequence[str] | None, entries: Mapping[str, Any]) -> list[str]:
        if given is None:
            fixed = [name for name, entry in entries.items() if isinstance(entry, Mapping) and "checkpoint" in entry]
            return [name for name, policy in self.policies.items() if can_learn(policy) and name not in fixed]
        for position, policy_id in enumerate(given):
            if policy_id not in self.policies:
                raise ConfigError(
                    f"policies_to_train names {policy_id!r}, which is none of the policies {_listed(self.policies)}."
                    f"{did_you_mean(policy_id, self.policies)}"
                )
            if policy_id in given[:position]:
                raise ConfigError(f"policies_to_train names {policy_id!r} twice")
            self._check_learns(policy_id)
        return list(given)

    def _check_learns(self, policy_id: str) -> None:
        policy = self.policies[policy_id]
        if can_learn(policy):
            return
        reason = "learns from whole populations, not from an agent's steps" if policy.evolves else "never learns"
        raise ConfigError(
            f"policies_to_train names {policy_id!r}, a {type(policy).__name__}, which {reason}: leave it out, or "
            "choose another policy"
        )

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
            ConfigError: as the constructor; or a policy to train is added while several ranks train.
        """
        check_policy_id(policy_id)
        if policy_id in self.policies:
            raise ConfigError(f"add_policy: there is a policy {policy_id!r} already")
        if trained and self.in_trainer and self.trainer.world_size > 1:
            raise ConfigError(
                f"add_policy({policy_id!r}, trained=True): with several ranks, add policies to train before fit"
            )
        entry = _as_mapping(f"policies.{policy_id}", policy)
        if spaces_of is not None:
            entry["spaces_of"] = spaces_of
        mapping = self.mapping.given if policy_mapping is None else policy_mapping
        learning = self.policies_to_train if self._trained_next is None else self._trained_next
        trained_ids = [*learning, policy_id] if trained else None
        self._extend({policy_id: entry}, mapping, trained_ids)
        return self.get_policy(policy_id)

    def set_policy_mapping(self, policy_mapping: Any) -> None:
        """Use another mapping from the next episodes on.

        Raises:
            ConfigError: as the constructor.
        """
        self._extend({}, policy_mapping)

    def set_policies_to_train(self, policy_ids: Sequence[str]) -> None:
        """Train these policies from now on, or after the iteration that is going on; the others stay as they are.

        Raises:
            ConfigError: as the constructor.
        """
        self._extend({}, self.mapping.given, policy_ids)

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
        """Follow the `additions` of another such policy; policies that are here already stay as they are.

        Raises:
            ConfigError: as the constructor.
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
                self._agent_with_spaces(policy_id, agent, {})
            for policy_id, entry in entries.items():
                self._add(policy_id, entry)
            trained = None if policies_to_train is None else self._trained_ids(policies_to_train, {})
        except Exception:
            self.mapping = before
            for policy_id in entries.keys() & self.policies.keys():
                del self.policies[policy_id], self._spaces_of[policy_id]
            raise
        for policy_id in entries:
            policy = self.get_policy(policy_id)
            policy.to(self.device).train(self.training)
            policy.trainer = self._trainer
        self._added += entries
        self._restrict_mapping()
        self.generation += 1
        if trained is not None:
            self._trained_next = trained
            if not self.learner.in_iteration:
                self.train_chosen()

    def train_chosen(self) -> None:
        """Train the policies that were chosen since the iteration began, if any; called when it has ended."""
        trained, self._trained_next = self._trained_next, None
        if trained is None or trained == self.policies_to_train:
            return
        self.generation += 1  # workers may have followed the change that waited
        self.policies_to_train = trained
        self.env_steps = self.env_steps  # of the new ones, too
        if self.in_trainer:
            strategy: Any = self.trainer.strategy
            strategy.optimizers = self.configure_optimizers() or []

    # -- the policies -------------------------------------------------------------------------------------------------
    def get_policy(self, policy_id: str | None = None) -> Policy:
        """The policy with this id; `None`: the only one.

        Raises:
            ConfigError: there is no such policy, or there are several and none is named.
        """
        if policy_id is None and len(self.policies) == 1:
            return next(iter(self.policies.values()))
        if policy_id is None:
            raise ConfigError(f"which policy? Name one by policy_id: {_listed(self.policies)}")
        if policy_id not in self.policies:
            raise ConfigError(
                f"there is no policy {policy_id!r}.{did_you_mean(policy_id, self.policies)} "
                f"Policies: {_listed(self.policies)}"
            )
        return self.policies[policy_id]

    def agents_of(self, policy_id: str) -> list[str]:
        """The agents that may have this policy, in the order of the spaces."""
        return self.mapping.agents_of(policy_id)

    @property
    def agents(self) -> list[str]:
        """The names of all agents."""
        return list(self._agent_spaces)

    @property
    def is_recurrent(self) -> bool:
        """Whether any policy has a state."""
        return any(policy.is_recurrent for policy in self.policies.values())

    @property
    def central_obs_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Width of the central observation if any policy reads it, else 0."""
        return max(policy.central_obs_size for policy in self.policies.values())

    @property
    def env_steps(self) -> int:
        """Environment steps, or actions of agents, so far; trained policies have the same number."""
        return self.progress.env_steps

    @env_steps.setter
    def env_steps(self, steps: int) -> None:
        self.progress.env_steps = steps
        for policy_id in self.policies_to_train:
            self.policies[policy_id].env_steps = steps

    @property
    def trainer(self) -> Any:
        """The Trainer; every policy has the same one."""
        return LightningModule.trainer.fget(self)  # type: ignore[attr-defined]

    @trainer.setter
    def trainer(self, trainer: Any) -> None:
        LightningModule.trainer.fset(self, trainer)  # type: ignore[attr-defined]
        for policy in self.policies.values():
            policy.trainer = trainer

    # -- acting -------------------------------------------------------------------------------------------------------
    def compute_actions(
        self, obs: Any, state: Sequence[Tensor] = (), *, policy_id: str | None = None, **arguments: Any
    ) -> tuple[Any, list[Tensor], dict[str, Tensor]]:
        """Actions of one policy for a batch of observations.

        Args:
            obs, state, arguments: as `Policy.compute_actions`.
            policy_id: `None`: the only policy.

        Raises:
            ConfigError: there is no such policy.
        """
        return self.get_policy(policy_id).act(obs, state, **arguments)

    def compute_single_action(
        self, obs: Any, state: Sequence[Tensor] | None = None, *, policy_id: str | None = None, **arguments: Any
    ) -> Any:
        """The action of one policy for one observation, ready for the environment; see `Policy`."""
        return self.get_policy(policy_id).compute_single_action(obs, state, **arguments)

    def compute_log_likelihoods(
        self, actions: Any, obs: Any, state: Sequence[Tensor] = (), *, policy_id: str | None = None, **arguments: Any
    ) -> Tensor:
        """Log π(a|s), `[B]`, of one policy; see `Policy`."""
        return self.get_policy(policy_id).compute_log_likelihoods(actions, obs, state, **arguments)

    def env_actions(self, actions: Any, policy_id: str | None = None) -> Any:
        """Actions of one policy as numpy arrays in the environment's space and structure."""
        return self.get_policy(policy_id).env_actions(actions)

    def get_initial_state(self, batch_size: int, policy_id: str | None = None) -> list[Tensor]:
        """The state of one policy's model at an episode's start, `[B, …]` each."""
        return self.get_policy(policy_id).get_initial_state(batch_size)

    def act(self, obs: Any, state: Sequence[Tensor] = (), **arguments: Any) -> tuple[Any, list[Tensor], dict[str, Any]]:
        """As `compute_actions`."""
        return self.compute_actions(obs, state, **arguments)

    def seed_exploration(self, seed: int) -> None:
        """Seed the actions of every policy, each by a seed derived from `seed` and its id."""
        for policy_id, policy in self.policies.items():
            policy.seed_exploration(derive_seed(seed, "rollout", _number_of(policy_id)))

    if TYPE_CHECKING:  # the learner of several policies takes the batches of all of them

        def learn_on_batch(self, batch: Any) -> dict[str, float]:
            """Learn from a `MultiAgentBatch`; returns means of the metrics, "<policy id>/<name>"."""
            ...

        def compute_gradients(self, batch: Any) -> tuple[Any, dict[str, float]]:
            """Gradients of each trained policy, by policy id, and all metrics."""
            ...

    # -- Lightning ----------------------------------------------------------------------------------------------------
    def configure_optimizers(self) -> Any:
        """The optimizers of the trained policies, in the order of training."""
        return [policy.learner.optimiser.torch_optimizer for policy in self._with_optimizers().values()] or None

    def _with_optimizers(self) -> dict[str, Policy]:
        trained = {policy_id: self.policies[policy_id] for policy_id in self.policies_to_train}
        return {policy_id: policy for policy_id, policy in trained.items() if policy.has_model}

    def on_fit_start(self) -> None:
        """Warn if no policy learns, and as `Policy`.

        Raises:
            ConfigError: a method was assigned to this object, or to one of the policies, that is not called.
        """
        check_lightning_methods(self)
        for policy in self.policies.values():
            check_methods_among_several(policy)
        if not self.policies_to_train:
            warnings.warn(
                "no policy learns: the agents only act. Name some in policies_to_train, or evaluate instead",
                stacklevel=2,
            )
        super().on_fit_start()

    def validation_step(self, batch: SampleBatch, batch_idx: int = 0) -> None:
        """As `Policy`; and the mean return of each policy's agents, columns "policy_returns.<id>" `[E]`, if given."""
        super().validation_step(batch, batch_idx)
        alone = self.trainer.state.fn != "fit"
        for policy_id in self.policies:
            returns = batch.get(f"policy_returns.{policy_id}")
            if returns is not None:
                self.log(
                    f"eval/{policy_id}/ep_rew_mean",
                    returns.double().nanmean(),
                    on_epoch=True,
                    logger=alone,
                    batch_size=len(returns),
                    sync_dist=True,
                )

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Any:
        """The best actions for {policy id: observations `[B, *]`}, by policy id, as the environment takes them."""
        return {policy_id: self.get_policy(policy_id).predict_step(obs) for policy_id, obs in batch.items()}

    # -- weights and state --------------------------------------------------------------------------------------------
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

    def get_state(self) -> dict[str, Any]:
        """Copies of the counters, and of every policy's weights, optimizer state and counters."""
        return {
            "counters": counters(self),
            "policies": {policy_id: policy.get_state() for policy_id, policy in self.policies.items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set what the `get_state` of another such policy returned."""
        set_counters(self, state["counters"])
        for policy_id, own in state["policies"].items():
            self.get_policy(policy_id).set_state(own)

    # -- checkpoints --------------------------------------------------------------------------------------------------
    def constructor_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The spaces and keywords with which another such policy is built, policies that were added included."""
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

    def copy_for_acting(self) -> MultiAgentPolicy:
        """Another such policy with the same weights, on the CPU."""
        spaces_, keywords = self.constructor_arguments()
        twin = type(self)(*spaces_, **keywords)
        twin.set_weights(self.get_weights())
        set_counters(twin, counters(self))
        for policy_id, policy in self.policies.items():
            set_counters(twin.policies[policy_id], counters(policy))
        return twin.eval()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """As `Policy`, with each policy's spaces and counters, and whether the run changed its policies.

        Raises:
            NonFiniteError: a weight is NaN or infinite; names it.
            CheckpointError: a keyword, the mapping or own weights of a policy have no plain form.
        """
        checkpoint.update(version_entry())
        checkpoint["policy"] = self.spec()
        checkpoint["counters"] = counters(self)
        checkpoint["policies"] = parts_of_checkpoint(self.policies)
        checkpoint["policies_changed"] = self.generation > 0
        check_finite_weights(self, {name: part.get("weights") for name, part in checkpoint["policies"].items()})

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Repeat what the run changed of its policies; refuse a checkpoint of others; then load counters and weights.

        The states of the optimizers are given to the policies by their ids; a policy that had none begins with a new
        one.
        """
        check_version(checkpoint, "(the one to load)")
        repeat_changes_of(checkpoint, self)
        check_fits(self, checkpoint)
        load_counters_and_weights(self, checkpoint)
        if "optimizer_states" in checkpoint:
            held = [
                name for name in checkpoint["policy"]["kwargs"]["policies_to_train"] if self.policies[name].has_model
            ]
            states = dict(zip(held, checkpoint["optimizer_states"], strict=False))
            checkpoint["optimizer_states"] = [
                states[policy_id] if policy_id in states else policy.learner.optimiser.torch_optimizer.state_dict()
                for policy_id, policy in self._with_optimizers().items()
            ]


def can_learn(policy: Policy) -> bool:
    """Whether a policy can learn from an agent's steps: by a loss, or by a method of its own."""
    return not policy.evolves and (policy.has_loss or not policy.overridden.isdisjoint(LEARNING_VERBS))


def policy_seed(seed: int, policy_id: str) -> int:
    """The seed of a policy that has no seed of its own, from that of all policies and its id."""
    return derive_seed(seed, "init", _number_of(policy_id)) % 2**32


def check_policy_id(policy_id: Any) -> None:
    """Refuse an id that cannot be part of the names of modules and metrics.

    Raises:
        ConfigError: says why.
    """
    if not isinstance(policy_id, str) or not policy_id.strip() or not policy_id.isprintable():
        raise ConfigError(f"policies: the id {policy_id!r} is no name; expected text such as 'hunter'")
    if any(mark in policy_id for mark in "./"):
        raise ConfigError(
            f"policies: the id {policy_id!r} has a '.' or a '/', which divide names of weights and metrics"
        )
    if policy_id in TAKEN_NAMES:
        raise ConfigError(f"policies: the id {policy_id!r} is a name that torch needs itself: add to it, {policy_id}_1")


def _number_of(policy_id: str) -> int:
    return zlib.crc32(policy_id.encode())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _needs_config(policy_class: type[Policy]) -> bool:
    """Whether the constructor has a parameter `config` without a default, as those of RLlib's policies."""
    parameters = inspect.signature(policy_class).parameters
    return "config" in parameters and parameters["config"].default is inspect.Parameter.empty


def _as_mapping(key: str, entry: Any) -> dict[str, Any]:
    """An entry of `policies` as a mapping of its own.

    Raises:
        ConfigError: it is none, and cannot become one.
    """
    if isinstance(entry, Mapping):
        found = dict(entry)
        if ("_target_" in found) == ("checkpoint" in found):
            raise ConfigError(
                f"{key}={short_repr(entry)}; expected _target_ (a class or an import path) or checkpoint (a file)"
            )
        return found
    if isinstance(entry, str | Policy) or callable(entry):
        return {"_target_": entry}
    raise ConfigError(f"{key}={short_repr(entry)}; expected {{_target_: class or import path, **keywords}}")


def _spaces_by_agent(
    observation_space: Space[Any], action_space: Space[Any]
) -> dict[str, tuple[Space[Any], Space[Any]]]:
    """Agent → its observation space and its action space.

    Raises:
        ConfigError: one is no Dict space, or the agents differ.
    """
    for name, space in (("observation_space", observation_space), ("action_space", action_space)):
        if not isinstance(space, spaces.Dict) or not space.spaces:
            raise ConfigError(
                f"{name}={short_repr(space)}; the policy of several agents expects a Dict space, agent → its space"
            )
    assert isinstance(observation_space, spaces.Dict) and isinstance(action_space, spaces.Dict)
    odd = sorted(observation_space.spaces.keys() ^ action_space.spaces.keys())
    if odd:
        raise ConfigError(f"agent {odd[0]!r} has only one of an observation space and an action space: give it both")
    return {agent: (space, action_space.spaces[agent]) for agent, space in observation_space.spaces.items()}
