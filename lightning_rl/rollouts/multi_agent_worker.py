"""Acts with several policies in environments with several agents, and records a fragment for each policy.

At each step of the environments a policy is asked once for all its lanes (agent, environment), or for those whose turn
it is where few are; lanes that wait get an action that nothing reads. The records become rows in each agent's own time
at the fragment's end (`lanes.py`, `own_time.py`), so a step costs the same for any number of agents of a policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.envs.multi_agent import AgentLayout
from lightning_rl.errors import ConfigError, EnvError, did_you_mean
from lightning_rl.exploration import Actor
from lightning_rl.learning.gradients import MultiAgentGradientUpdate
from lightning_rl.rollouts.episodes import AgentEpisodeTracker, MultiAgentEpisode
from lightning_rl.rollouts.fragments import concat_steps
from lightning_rl.rollouts.lanes import AgentSteps, PolicyLanes
from lightning_rl.rollouts.obs_bounds_check import ObsBoundsCheck
from lightning_rl.rollouts.rollout_worker import (
    RolloutWorker,
    has_experience,
    has_several_policies,
    instantiate_policy,
    rows_of,
)
from lightning_rl.sample_batch import MultiAgentBatch, SampleBatch, other_agent_batches
from lightning_rl.seeding import derive_seed

__all__ = ["MultiAgentRolloutWorker", "make_rollout_worker"]


class MultiAgentRolloutWorker(RolloutWorker):
    """Several policies acting in `num_envs` environments with several agents.

    Args:
        env: how to make the environments, vectors of `PackedEnv`s.
        policy: a container: `policies` (id → policy, each as `RolloutWorker` takes it), `mapping` with
            `policy_of(agent) -> id`, `static` (whether that never changes) and `assign(generator) -> {agent: id}` for
            an episode; `env_steps`, `seed_exploration(seed)`. A mapping that is not static may have `agents_of(id)`,
            the agents that a policy may get.
        options: as `RolloutWorker`. `fragment_length` counts steps of the environments. `mode` must be NEXT_STEP.

    Raises:
        ConfigError: the mapping names an unknown policy, gives one policy agents with different spaces, or a policy
            agents with other spaces than its own.
        EnvError: the environments do not have several agents, or another autoreset mode.
    """

    def _prepare_acting(self, logical_workers: int) -> None:
        if not has_several_policies(self.policy):
            raise ConfigError(f"{type(self.policy).__name__} has no `policies` and `mapping`: use RolloutWorker")
        if self.same_step:
            raise EnvError(f"{self._where()} resets in the step that ends an episode; several agents need NEXT_STEP")
        self.layout = layout_of(self.env, self._where())
        self._owners: np.ndarray | None = None  # the number of each agent's policy `[B, A]`; `None`: it is fixed
        self._actor = Actor(self.worker_index, logical_workers, self.num_envs, self.stream)
        self.episodes = AgentEpisodeTracker(self.num_envs, self.hooks, self, len(self.layout.agents))
        self._action_spaces = {
            str(index): batch_space(batch_space(kind.action_space, len(kind.slots)), self.num_envs)
            for index, kind in enumerate(self.layout.kinds)
        }
        self._make_lanes()

    def _make_lanes(self) -> None:
        """The lanes of the container's present policies and mapping."""
        self._policies, self._mapping = dict(self.policy.policies.items()), self.policy.mapping
        self._fixed = bool(self._mapping.static)
        self._number = {policy_id: index for index, policy_id in enumerate(self._policies)}
        slots = self._fixed_slots() if self._fixed else self._possible_slots()
        self.lanes = [
            PolicyLanes(
                policy_id,
                self._policies[policy_id],
                index=self._number[policy_id],
                layout=self.layout,
                slots=own,
                fixed=self._fixed,
                actor=self._actor,
                env_name=self.env_creator.name,
            )
            for policy_id, own in slots.items()
        ]
        self._lanes_of = {lanes.policy_id: lanes for lanes in self.lanes}
        if self._fixed:
            self._owner_ids = [self._mapping.policy_of(agent) for agent in self.layout.agents]
        self._reads_central_obs = any(lanes.reads_central_obs for lanes in self.lanes)
        self._asks_always = len(self.lanes) == 1
        self._bounds_checks = [
            ObsBoundsCheck(lanes.space, f"environment {self.env_creator.name!r} of worker {self.worker_index}", name)
            for lanes, name in ((each, each.name_lane) for each in self.lanes)
        ]

    def _fixed_slots(self) -> dict[str, tuple[int, ...]]:
        """The agents of each policy, by policy in order of the first agent."""
        found: dict[str, list[int]] = {}
        for slot, agent in enumerate(self.layout.agents):
            policy_id = self._mapping.policy_of(agent)
            self._check_assignment(agent, slot, policy_id)
            found.setdefault(policy_id, []).append(slot)
        for policy_id, own in found.items():
            kinds = {self.layout.places[slot][0]: slot for slot in own}
            if len(kinds) > 1:
                names = " and ".join(repr(self.layout.agents[slot]) for slot in kinds.values())
                raise ConfigError(
                    f"policy_mapping gives policy {policy_id!r} the agents {names}, whose spaces differ: give each of "
                    "them a policy of its own, or bring their spaces to one form with a wrapper"
                )
        return {policy_id: tuple(own) for policy_id, own in found.items()}

    def _possible_slots(self) -> dict[str, tuple[int, ...]]:
        """The agents that each policy may get in some episode: those whose spaces are the policy's."""
        found = {}
        agents_of = getattr(self._mapping, "agents_of", lambda policy_id: self.layout.agents)
        for policy_id, policy in self._policies.items():
            agents = set(agents_of(policy_id))
            own = [
                tuple(slot for slot in kind.slots if self.layout.agents[slot] in agents)
                for kind in self.layout.kinds
                if fits(policy, kind.observation_space, kind.action_space)
            ]
            own = [slots for slots in own if slots]
            if len(own) > 1:
                raise ConfigError(
                    f"policy {policy_id!r} does not say which spaces it acts in, and agents have different ones: give "
                    "it the attributes observation_space and action_space"
                )
            if own:
                found[policy_id] = own[0]
        return found

    def _check_assignment(self, agent: str, slot: int, policy_id: str) -> None:
        if policy_id not in self._policies:
            raise ConfigError(
                f"policy_mapping gives agent {agent!r} the policy {policy_id!r}, which does not exist."
                f"{did_you_mean(policy_id, self._policies)} Policies: {', '.join(self._policies)}"
            )
        kind = self.layout.kinds[self.layout.places[slot][0]]
        if not fits(self._policies[policy_id], kind.observation_space, kind.action_space):
            policy = self._policies[policy_id]
            raise ConfigError(
                f"policy_mapping gives agent {agent!r} the policy {policy_id!r}, which acts in "
                f"{policy.observation_space} and {policy.action_space}; the agent has {kind.observation_space} and "
                f"{kind.action_space}"
            )

    # -- sampling -----------------------------------------------------------------------------------------------------
    def _check_bounds(self) -> None:
        for lanes, check in zip(self.lanes, self._bounds_checks, strict=True):
            if self.env_steps >= check.due:
                check.check(*self._observed(lanes), env_steps=self.env_steps)

    def _describe_outside(self) -> str:
        checks = zip(self.lanes, self._bounds_checks, strict=True)
        return next((problem for lanes, check in checks if (problem := check.describe(*self._observed(lanes)))), "")

    def _observed(self, lanes: PolicyLanes) -> tuple[Any, np.ndarray]:
        """The latest observations of lanes, and which of them act."""
        return lanes.observe(self._obs, None)[0], lanes.acting(self._obs["acts"].view(np.bool_), self._owners)

    def _add_running_returns(self, fragment: MultiAgentBatch) -> None:
        for lanes in self.lanes:
            lanes.add_running_returns(fragment[lanes.policy_id])

    def _postprocess(self, fragment: MultiAgentBatch) -> MultiAgentBatch:
        """The rows that each policy learns from."""
        rows = {
            policy_id: rows_of(
                self._policies[policy_id], part, other_agent_batches(fragment, self._policies, policy_id)
            )
            for policy_id, part in fragment.items()
        }
        return MultiAgentBatch(rows, fragment.env_steps)

    def get_metrics(self) -> dict[str, Any]:
        """Returns and lengths of the episodes that ended since the last call, and what their agents received.

        "policy_returns": policy id → mean return of its agents, an entry for each episode in which it acted;
        "agent_returns": agent → (its policy, its return), for each episode; "numbers": what callbacks recorded.
        """
        episodes = [episode for _, episode in self.episodes.pop_finished()]
        by_policy: dict[str, list[float]] = {}
        by_agent: list[dict[str, tuple[str, float]]] = []
        for episode in episodes:
            if isinstance(episode, MultiAgentEpisode):
                by_agent.append(episode.by_agent)
                for policy_id, value in episode.by_policy.items():
                    by_policy.setdefault(policy_id, []).append(value)
        return {
            "episode_returns": [episode[0] for episode in episodes],
            "episode_lengths": [episode[1] for episode in episodes],
            "policy_returns": by_policy,
            "agent_returns": by_agent,
            **self._pop_numbers(),
        }

    # -- weights, gradients -------------------------------------------------------------------------------------------
    def get_policy(self, policy_id: str | None = None) -> Any:
        """The policy of that id; `None`: the container of all.

        Raises:
            ConfigError: the worker has no policy of that id.
        """
        if policy_id is None:
            return self.policy
        if policy_id not in self.policy.policies:
            known = [*self.policy.policies]
            raise ConfigError(f"no policy {policy_id!r}.{did_you_mean(policy_id, known)} Policies: {', '.join(known)}")
        return self.policy.policies[policy_id]

    def get_weights(self) -> dict[str, Any]:
        """The weights by policy id."""
        return {policy_id: policy.get_weights() for policy_id, policy in self.policy.policies.items()}

    def contribute(self) -> Any:
        """Sample, and compute the gradients on the sample.

        Returns:
            A `MultiAgentGradientUpdate` with `gradient_update` of each policy that learns and has experience.
        """
        samples = self.sample()
        while not has_experience(samples):
            samples = self.sample()
        updates, hooks = {}, self.hooks["on_postprocess_trajectory"]
        trained = getattr(self.policy, "policies_to_train", self._policies)
        for policy_id, part in samples.items():
            if policy_id in trained and has_experience(part):
                learner = self._policies[policy_id].learner
                with learner.beside(other_agent_batches(samples, self._policies, policy_id)):
                    updates[policy_id] = learner.gradient_update(part, hooks)
        return MultiAgentGradientUpdate(updates, samples.env_steps, samples.agent_steps)

    # -- one fragment -------------------------------------------------------------------------------------------------
    def _begin_fragment(self) -> None:
        if getattr(self.policy, "training", True):
            self.policy.eval()
        for policy in self.policy.policies.values():  # each enters train mode by itself when it learns
            if getattr(policy, "training", True):
                policy.eval()
        if self._has_new_lanes():
            self._make_lanes()
            self._needs_reset = True
        self.policy.seed_exploration(self.restarts.seed())
        for lanes in self.lanes:
            lanes.begin_fragment()
        self._started = 0  # episodes in this fragment
        self._begin_or_continue_episodes()

    def _restart_acting(self) -> None:
        self._owners = None if self._fixed else np.zeros((self.num_envs, len(self.layout.agents)), np.int64)
        self._eps_id = np.zeros(self.num_envs, dtype=np.int64)
        self._number_episodes(np.arange(self.num_envs))
        for lanes in self.lanes:
            lanes.restart()

    def _acting_state(self) -> dict[str, Any]:
        return {
            "owners": None if self._owners is None else torch.from_numpy(self._owners),
            "eps_id": torch.from_numpy(self._eps_id),
            "lanes": {lanes.policy_id: lanes.state_dict() for lanes in self.lanes},
        }

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        self._owners = None if state["owners"] is None else state["owners"].numpy().copy()
        self._eps_id = state["eps_id"].numpy().copy()
        for lanes in self.lanes:
            lanes.load_state_dict(state["lanes"][lanes.policy_id])

    def _has_new_lanes(self) -> bool:
        """Whether policies were added, or may get other agents; takes over a mapping that only draws differently."""
        if dict(self.policy.policies.items()) != self._policies:
            return True
        mapping = self.policy.mapping
        if mapping is self._mapping:
            return False
        if self._fixed or mapping.static:
            return True
        before, self._mapping = self._mapping, mapping
        if self._possible_slots() == {lanes.policy_id: lanes.slots for lanes in self.lanes}:
            return False
        self._mapping = before
        return True

    def _start_episodes(self, starting: np.ndarray) -> None:
        self._number_episodes(np.flatnonzero(starting))
        for lanes in self.lanes:
            lanes.start_episodes(np.repeat(starting, lanes.per_env))

    def _number_episodes(self, envs: np.ndarray) -> None:
        """Give the episodes that begin in these environments an id, and policies to their agents."""
        # Unique in a batch, whichever workers and fragments it is made of: 16 bits, 27 bits, 20 bits.
        first = (self.worker_index << 47) + ((self.fragment & (2**27 - 1)) << 20)
        self._eps_id = self._eps_id.copy()
        self._eps_id[envs] = first + (self._started + np.arange(len(envs)) & (2**20 - 1))
        if self._owners is not None:
            self._owners = self._owners.copy()
            for place, env in enumerate(envs.tolist()):
                self._owners[env] = self._assign(env, self._started + place)
        self._started += len(envs)

    def _assign(self, env: int, count: int) -> list[int]:
        """The number of the policy of each agent for an episode; drawn from a seed of its own."""
        indices = (self.worker_index, self.fragment, env, self.restarts.attempt, count)
        generator = np.random.default_rng(derive_seed(self.seed, self.stream, *indices))
        assigned: Mapping[str, str] = self._mapping.assign(generator)
        owners = []
        for slot, agent in enumerate(self.layout.agents):
            self._check_assignment(agent, slot, assigned[agent])
            owners.append(self._number[assigned[agent]])
        return owners

    def _choose_actions(self, acts: np.ndarray, record: bool, ask_all: bool) -> tuple[dict[str, Any], list[Any]]:
        """Ask each policy for which an agent acts; all actions by kind, and what each policy gave (`None`: not asked).

        Args:
            acts: bool `[B, A]`, the agents that act.
            record: whether inputs and outputs of the policies are recorded.
            ask_all: whether to ask the policies of which no agent acts too.
        """
        how = {"explore": self.explore, **self._unread}
        turns = self._obs["acts"].view(np.bool_)  # also in environments that wait for the others' episodes to end
        outputs: list[Any] = []
        chosen: list[tuple[PolicyLanes, Any]] = []
        for lanes in self.lanes:
            acting = lanes.acting(acts, self._owners) if lanes.needs_acting or not self._asks_always else None
            obs, mask = lanes.observe(self._obs, acting if lanes.needs_acting else None)
            if record:
                lanes.record_inputs(obs, mask)
            if self._asks_always or ask_all or (acting is not None and np.count_nonzero(acting)):
                # A frozen policy has a count of its own, which its exploration follows.
                output = lanes.act(obs, mask, lanes.acting(turns, self._owners), timestep=lanes.policy.env_steps, **how)
                outputs.append(output)
                if record:
                    lanes.record_outputs(output[0], output[2])
                chosen.append((lanes, lanes.policy.env_actions(output[0])))
            else:
                outputs.append(None)
                if record:
                    lanes.repeat_outputs()
        return self._merge_actions(chosen), outputs

    def _merge_actions(self, chosen: list[tuple[PolicyLanes, Any]]) -> dict[str, Any]:
        """The actions of all agents, kind → `[B, n, *]`; those of agents that wait are any."""
        merged: dict[str, Any] = {}
        if self._fixed:
            for lanes, actions in chosen:
                if lanes.whole_kind:
                    merged[lanes.kind] = lanes.by_env(actions)
        for kind, space in self._action_spaces.items():
            if kind in merged:
                continue
            merged[kind] = zeros(space)
            for lanes, actions in chosen:
                if lanes.kind == kind:
                    write_actions(merged[kind], lanes.by_env(actions), lanes.rows_of_kind, self._owned(lanes))
        return merged

    def _owned(self, lanes: PolicyLanes) -> tuple[np.ndarray, ...] | None:
        """The (environments, agents of the lanes) that have this policy now; `None`: all."""
        if self._owners is None:
            return None
        return np.nonzero(lanes.of_lanes(self._owners).reshape(self.num_envs, -1) == lanes.index)

    def _advance_memory(self, outputs: list[Any], acts: np.ndarray, owners: np.ndarray | None) -> None:
        for lanes, output in zip(self.lanes, outputs, strict=True):
            if lanes.memory.active:
                lanes.advance_memory(output, self._obs["rewards"], lanes.acting(acts, owners))

    def _collect(self) -> MultiAgentBatch:  # type: ignore[override]
        """Step the environments until the fragment is complete."""
        recorded: dict[str, list[Any]] = {
            name: []
            for name in (
                "acting",
                "rewards",
                "terminated",
                "truncated",
                "ended",
                "active",
                "eps_id",
                "owners",
                "central",
            )
        }
        acting, rewards, terminated, truncated, ends, actives, eps_id, owners, central = recorded.values()
        active, all_active = np.ones(self.num_envs, dtype=bool), True
        whole, step_hooks = self.batch_mode == "complete_episodes", self.hooks["on_episode_step"]
        has_memory = any(lanes.memory.active for lanes in self.lanes)
        missing = self.fragment_length * self.num_envs  # rows until the fragment is long enough
        while True:
            missing -= self._count_rows()
            packed = self._obs
            acts = np.array(packed["acts"]).view(np.bool_)
            if not all_active:
                acts &= active[:, None]
            acting.append(acts)
            owners.append(self._owners)
            eps_id.append(self._eps_id)
            if self._reads_central_obs:
                central.append(self.layout.join(packed))
            actions, outputs = self._choose_actions(acts, record=True, ask_all=not rewards)
            packed, total, by_itself, cut, info = self._step_envs(actions)
            ended = by_itself | cut
            rewards.append(np.array(packed["rewards"]))
            terminated.append(np.array(packed["terminated"]))
            truncated.append(np.array(packed["truncated"]))
            ends.append(ended)
            actives.append(active)
            if has_memory:
                self._advance_memory(outputs, acts, self._owners)
            self._begin_episodes(ended)
            for hook in step_hooks:
                hook(worker=self, obs=packed, rewards=total, terminated=by_itself, truncated=cut, info=info)
            if missing <= 0:
                if not whole:
                    break
                active = active & ~ended
                all_active = False
                if not active.any():
                    break
                self._check_wait(len(rewards) - self.fragment_length)
        packed = self._obs
        acts = np.array(packed["acts"]).view(np.bool_)
        if not all_active:
            acts &= active[:, None]
        acting.append(acts)
        owners.append(self._owners)
        if self._reads_central_obs:
            central.append(self.layout.join(packed))
        for lanes in self.lanes:
            after = lanes.acting(acts, self._owners) if lanes.needs_acting else None
            lanes.record_inputs(*lanes.observe(packed, after))
        return self._build_batch(recorded)

    def _build_batch(self, recorded: dict[str, list[Any]]) -> MultiAgentBatch:
        """The fragment of each policy; counts the steps into the episodes."""
        rewards, acting = concat_steps(recorded["rewards"]), concat_steps(recorded["acting"])
        active, ended = concat_steps(recorded["active"]), concat_steps(recorded["ended"])
        if problem := self._describe_not_finite(rewards):
            raise EnvError(f"{self._where()}: {problem}; expected finite numbers")
        owners = None if self._fixed else concat_steps(recorded["owners"])

        def returns_by_agent(row: int, env: int, gains: np.ndarray, acted: np.ndarray) -> dict[str, tuple[str, float]]:
            return self._returns_by_agent(None if owners is None else owners[row, env], gains, acted)

        experience, env_t = self.episodes.count_agents(rewards, acting[:-1], ended & active, returns_by_agent)
        steps = AgentSteps(
            acting=acting,
            rewards=rewards,
            terminated=concat_steps(recorded["terminated"]).view(np.bool_),
            truncated=concat_steps(recorded["truncated"]).view(np.bool_),
            resets=~experience,
            env_t=env_t,
            eps_id=concat_steps(recorded["eps_id"]),
            owners=owners,
            central_obs=concat_steps(recorded["central"]) if recorded["central"] else None,
        )
        fragments: dict[str, SampleBatch] = {
            lanes.policy_id: lanes.build_fragment(steps, self._where) for lanes in self.lanes
        }
        return MultiAgentBatch(fragments, int(np.count_nonzero(experience & active)), self.num_envs)

    def _agent_returns_now(
        self, row: int, env: int, gains: np.ndarray, acted: np.ndarray
    ) -> dict[str, tuple[str, float]]:
        """`_returns_by_agent` of the episode that is running."""
        return self._returns_by_agent(None if self._owners is None else self._owners[env], gains, acted)

    def _returns_by_agent(
        self, owners: np.ndarray | None, gains: np.ndarray, acted: np.ndarray
    ) -> dict[str, tuple[str, float]]:
        """Agent → (its policy, its return), of the agents that acted.

        Args:
            owners: number of each agent's policy, `[A]`; `None`: the fixed ones.
            gains, acted: return of each agent `[A]`, and whether it acted.
        """
        each = zip(self.layout.agents, self._ids_of(owners), gains.tolist(), acted.tolist(), strict=True)
        return {agent: (policy_id, gain) for agent, policy_id, gain, has_acted in each if has_acted}

    def policy_ids(self, env: int) -> list[str]:
        """The id of each agent's policy in the running episode of an environment, in order of `layout.agents`."""
        return self._ids_of(None if self._owners is None else self._owners[env])

    def _ids_of(self, owners: np.ndarray | None) -> list[str]:
        ids = [*self._policies]
        return list(self._owner_ids) if owners is None else [ids[number] for number in owners.tolist()]

    def _describe_not_finite(self, rewards: np.ndarray) -> str:
        """A message on the first NaN or infinite reward `[T, B, A]`; "" if all are finite."""
        if math.isfinite(rewards.sum()) or not len(bad := np.argwhere(~np.isfinite(rewards))):
            return ""
        step, env, slot = bad[0].tolist()
        agent = self.layout.agents[slot]
        return f"reward of agent {agent!r} of sub-environment {env}, row {step} is {rewards[step, env, slot]}"

    def _play_step(self) -> None:
        acts, owners = np.array(self._obs["acts"]).view(np.bool_), self._owners
        actions, outputs = self._choose_actions(acts, record=False, ask_all=False)
        packed, _, terminated, truncated, _ = self._step_envs(actions)
        ended = terminated | truncated
        self._advance_memory(outputs, acts, owners)
        self.episodes.count_agents(packed["rewards"][None], acts[None], ended[None], self._agent_returns_now)
        self._begin_episodes(ended)

    def _running_episode(self, env: int) -> MultiAgentEpisode:
        by_agent = self._agent_returns_now(0, env, *self.episodes.agents_of(env))
        return MultiAgentEpisode(*super()._running_episode(env), by_agent, cut=True)


def zeros(space: Any) -> Any:
    """Zeros of a space of arrays, nested as the space is."""
    if isinstance(space, spaces.Dict):
        return {name: zeros(child) for name, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(zeros(child) for child in space.spaces)
    return np.zeros(space.shape, space.dtype)


def write_actions(target: Any, values: Any, rows: np.ndarray, chosen: tuple[np.ndarray, ...] | None) -> None:
    """Write the (nested) actions of a policy's agents into those of all agents of their kind.

    Args:
        target: `[B, N, *]`.
        values: `[B, n, *]`.
        rows: int `[n]`, the agents among the `N`.
        chosen: indices (environments, agents among the `n`) of those to write; `None`: all.
    """
    if isinstance(target, Mapping):
        for name, child in target.items():
            write_actions(child, values[name], rows, chosen)
    elif isinstance(target, tuple):
        for child, part in zip(target, values, strict=True):
            write_actions(child, part, rows, chosen)
    elif chosen is None:
        target[:, rows] = values
    else:
        target[chosen[0], rows[chosen[1]]] = values[chosen]


def fits(policy: Any, observation_space: Space[Any], action_space: Space[Any]) -> bool:
    """Whether a policy acts in these spaces; one that does not say its spaces acts in any."""
    own = getattr(policy, "observation_space", observation_space), getattr(policy, "action_space", action_space)
    return own[0] == observation_space and own[1] == action_space


def layout_of(env: Any, where: str) -> AgentLayout:
    """Where the agents of a vector environment of `PackedEnv`s lie in its arrays.

    Raises:
        EnvError: its environments are no `PackedEnv`s.
    """
    base = env.unwrapped
    if isinstance(layout := getattr(base, "layout", None), AgentLayout):
        return layout
    try:
        layouts = base.get_attr("layout")
    except AttributeError:
        layouts = ()
    if not layouts or not isinstance(layouts[0], AgentLayout):
        raise EnvError(f"{where} has one agent, and its policy is made of several: train one policy alone")
    return layouts[0]


def make_rollout_worker(env: EnvCreator | Any, policy: Any, **options: Any) -> RolloutWorker:
    """A `MultiAgentRolloutWorker` for a policy that holds several, else a `RolloutWorker`.

    Args:
        env, policy, options: as `RolloutWorker`.
    """
    creator = EnvCreator.from_spec(env)
    if isinstance(policy, type):
        policy = instantiate_policy(policy, creator, options.pop("policy_config", None))
        options["postprocess"] = True if options.get("postprocess") is None else options["postprocess"]
    cls = MultiAgentRolloutWorker if has_several_policies(policy) else RolloutWorker
    return cls(creator, policy, **options)
