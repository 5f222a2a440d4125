"""Environments of several agents, in which several policies act: each has its own lanes.

At each step of the environments a policy is asked once for all its lanes (agent, environment), or for those whose turn
it is where few are; lanes that wait get an action that nothing reads. The records become rows in each agent's own time
at the fragment's end (`agent_lanes.py`, `own_time.py`), so a step costs the same for any number of agents of a policy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from gymnasium.vector.utils import batch_space, create_empty_array

from lightning_rl.envs.multi_agent import AgentLayout, PackedVectorEnv
from lightning_rl.envs.multi_agent.packed_env import is_packed
from lightning_rl.errors import ConfigError, EnvError, did_you_mean
from lightning_rl.rollouts.agent_lanes import AgentLanes
from lightning_rl.rollouts.episodes import AgentSteps
from lightning_rl.rollouts.fragments import EnvSteps, concat_steps, zip_leaves
from lightning_rl.sample_batch import MultiAgentBatch
from lightning_rl.seeding import derive_seed

__all__ = ["SeveralAgents"]


class SeveralAgents:
    """Environments of several agents, each of which has one of the worker's policies.

    Args:
        worker: a `RolloutWorker`; its environments are vectors of `PackedEnv`s, in mode NEXT_STEP. Its policy is a
            container: `policies` (id → policy, each as `RolloutWorker` takes it), `mapping` with
            `policy_of(agent) -> id`, `static` (whether that never changes) and `assign(generator) -> {agent: id}` for
            an episode; `env_steps`, `seed_exploration(seed)`. A mapping that is not static may have `agents_of(id)`,
            the agents that a policy may get.

    Attributes:
        lanes: lanes of each policy that may get an agent.
        names: the names of the agents.
        layout: where agents are in the environments' arrays.
        policies: policy id → policy.
        ids: the policies' ids, whose indices are the policies' numbers.
        fixed: whether every agent always has the same policy.

    Raises:
        ConfigError: the mapping names an unknown policy, gives one policy agents with different spaces, or a policy
            agents with other spaces than its own.
        EnvError: the environments do not have several agents, or another autoreset mode.
    """

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        if worker.same_step:
            raise EnvError(f"{worker.where()} resets in the step that ends an episode; several agents need NEXT_STEP")
        self.layout = layout_of(worker.env, worker.where())
        self.names = self.layout.agents
        self._action_spaces = {
            str(index): batch_space(kind.action_space, len(kind.slots)) for index, kind in enumerate(self.layout.kinds)
        }
        self.policies: dict[str, Any] = {}
        self._mapping: Any = None
        self.fixed = True
        self._slots: dict[str, tuple[int, ...]] = {}
        self.begin_fragment()

    def begin_fragment(self) -> bool:
        """Whether the lanes are new, because policies were added, or may get other agents."""
        self._started = 0  # episodes in this fragment
        self._recorded: dict[str, list[np.ndarray]] = defaultdict(list)
        policies, mapping = dict(self.worker.policy.policies.items()), self.worker.policy.mapping
        if policies == self.policies and mapping is self._mapping:
            return False
        before = self.policies, self.fixed, self._slots
        self.policies, self._mapping, self.fixed = policies, mapping, bool(mapping.static)
        self._slots = self._find_slots()
        if not self.fixed and (self.policies, self.fixed, self._slots) == before:
            return False
        self.ids = tuple(policies)
        self.lanes = [AgentLanes(self, policy_id, slots) for policy_id, slots in self._slots.items()]
        self._reads_central_obs = any(lanes.reads_central_obs for lanes in self.lanes)
        self._asks_always = len(self.lanes) == 1
        self._owners = np.zeros((self.worker.num_envs, len(self.names)), np.int64)  # number of each agent's policy
        if self.fixed:
            self._owners[:] = [self.ids.index(mapping.policy_of(agent)) for agent in self.names]
        return True

    def _find_slots(self) -> dict[str, tuple[int, ...]]:
        """The agents that each policy may get, in order of the first agent.

        Raises:
            ConfigError: some of them have other spaces than others, or than the policy.
        """
        if self.fixed:
            owners = {agent: self._mapping.policy_of(agent) for agent in self.names}
            for agent, policy_id in owners.items():
                self._check_assignment(agent, policy_id)
            possible = {name: {agent for agent in self.names if owners[agent] == name} for name in self.policies}
        else:
            agents_of = getattr(self._mapping, "agents_of", lambda policy_id: self.names)
            possible = {policy_id: set(agents_of(policy_id)) for policy_id in self.policies}
        found: dict[str, tuple[int, ...]] = {}
        for policy_id, policy in self.policies.items():
            kinds = [kind for kind in self.layout.kinds if fits(policy, kind.observation_space, kind.action_space)]
            own = [tuple(slot for slot in kind.slots if self.names[slot] in possible[policy_id]) for kind in kinds]
            own = [slots for slots in own if slots]
            if len(own) > 1:
                names = " and ".join(repr(self.names[slots[0]]) for slots in own)
                raise ConfigError(
                    f"policy_mapping gives policy {policy_id!r} the agents {names}, whose spaces differ: give each of "
                    "them a policy of its own, or bring their spaces to one form with a wrapper"
                )
            if own:
                found[policy_id] = own[0]
        return dict(sorted(found.items(), key=lambda item: item[1][0]))

    def _check_assignment(self, agent: str, policy_id: str) -> None:
        if policy_id not in self.policies:
            raise ConfigError(
                f"policy_mapping gives agent {agent!r} the policy {policy_id!r}, which does not exist."
                f"{did_you_mean(policy_id, self.policies)} Policies: {', '.join(self.policies)}"
            )
        policy, kind = self.policies[policy_id], self.layout.kinds[self.layout.places[self.names.index(agent)][0]]
        if not fits(policy, kind.observation_space, kind.action_space):
            raise ConfigError(
                f"policy_mapping gives agent {agent!r} the policy {policy_id!r}, which acts in "
                f"{policy.observation_space} and {policy.action_space}; the agent has {kind.observation_space} and "
                f"{kind.action_space}"
            )

    # -- episodes -----------------------------------------------------------------------------------------------------
    def restart(self) -> None:
        """Every environment starts an episode."""
        self.eps_id = np.zeros(self.worker.num_envs, dtype=np.int64)
        self.start_episodes(np.ones(self.worker.num_envs, dtype=bool))

    def start_episodes(self, starting: np.ndarray) -> None:
        """The next step in the environments `starting`, bool `[B]`, is the first of an episode.

        Episodes get an id, and their agents policies.
        """
        envs = np.flatnonzero(starting)
        # Unique in a batch, whichever workers and fragments it is made of: 16 bits, 27 bits, 20 bits.
        first = (self.worker.worker_index << 47) + ((self.worker.fragment & (2**27 - 1)) << 20)
        self.eps_id = self.eps_id.copy()  # the old one may have been recorded
        self.eps_id[envs] = first + (self._started + np.arange(len(envs)) & (2**20 - 1))
        if not self.fixed:
            self._owners = self._owners.copy()
            for place, env in enumerate(envs.tolist()):
                self._owners[env] = self._assign(env, self._started + place)
        self._started += len(envs)

    def _assign(self, env: int, count: int) -> list[int]:
        """The number of the policy of each agent for an episode; drawn from its own seed."""
        worker = self.worker
        seed = derive_seed(
            worker.seed, worker.stream, worker.worker_index, worker.fragment, env, worker.restarts.attempt, count
        )
        assigned: Mapping[str, str] = self._mapping.assign(np.random.default_rng(seed))
        for agent in self.names:
            self._check_assignment(agent, assigned[agent])
        return [self.ids.index(assigned[agent]) for agent in self.names]

    def state_dict(self) -> dict[str, Any]:
        """What belongs to the running episodes, beside the lanes' own."""
        owners = None if self.fixed else torch.from_numpy(self._owners)
        return {"owners": owners, "eps_id": torch.from_numpy(self.eps_id)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the episodes of `state`."""
        if state["owners"] is not None:
            self._owners = state["owners"].numpy().copy()
        self.eps_id = state["eps_id"].numpy().copy()

    def policy_ids(self, env: int) -> list[str]:
        """The policy of each agent in the running episode of an environment."""
        return [self.ids[number] for number in self._owners[env].tolist()]

    def observed(self, lanes: Any) -> tuple[Any, np.ndarray]:
        """The latest observations of lanes, and which of them count: those whose agents act."""
        obs = self.worker.obs
        return lanes.observe(obs, None)[0], lanes.acting(obs["acts"].view(np.bool_), self._owners)

    # -- a step -------------------------------------------------------------------------------------------------------
    def act(self, active: np.ndarray | None) -> dict[str, Any]:
        """Ask each policy for which an agent acts; the actions of all agents, kind → `[B, n, *]`.

        Args:
            active: bool `[B]`, environments whose steps are recorded; `None`: nothing is recorded.
        """
        obs, record = self.worker.obs, active is not None
        turns = np.array(obs["acts"]).view(np.bool_)  # also in environments that wait for the others' episodes to end
        if active is None:
            self._recorded.clear()
        self._acts = turns if active is None else turns & active[:, None]
        self._record_turns(self._acts, record)
        chosen: list[tuple[AgentLanes, Any]] = []
        for lanes in self.lanes:
            acting = None
            if lanes.needs_acting or not self._asks_always:
                acting = lanes.acting(self._acts, self._owners)
            seen, mask = lanes.observe(obs, acting if lanes.needs_acting else None)
            # In the first step of a fragment every policy is asked, so that the fragment has its columns.
            if acting is None or self._asks_always or np.count_nonzero(acting) or (record and not lanes.rows.actions):
                own_turns = lanes.acting(turns, self._owners)
                chosen.append((lanes, lanes.choose(seen, mask, record=record, turns=own_turns)))
            else:
                lanes.skip(seen, mask, record=record)
        return self._merge_actions(chosen)

    def _record_turns(self, acts: np.ndarray, record: bool) -> None:
        self._recorded["acting"].append(acts)
        self._recorded["owners"].append(self._owners)
        self._recorded["eps_id"].append(self.eps_id)
        if record and self._reads_central_obs:
            self._recorded["central_obs"].append(self.layout.join(self.worker.obs))

    def _merge_actions(self, chosen: list[tuple[AgentLanes, Any]]) -> dict[str, Any]:
        """The actions of all agents, kind → `[B, n, *]`; those of agents that wait are any."""
        merged: dict[str, Any] = {}
        for lanes, actions in chosen:
            if self.fixed and lanes.whole_kind:
                merged[lanes.kind] = lanes.by_env(actions)
        for kind, space in self._action_spaces.items():
            if kind in merged:
                continue
            merged[kind] = create_empty_array(space, self.worker.num_envs, fn=np.zeros)
            for lanes, actions in chosen:
                if lanes.kind == kind:
                    write_actions(merged[kind], lanes.by_env(actions), lanes.rows_of_kind, self._owned(lanes))
        return merged

    def _owned(self, lanes: AgentLanes) -> tuple[np.ndarray, ...] | None:
        """The (environments, agents of the lanes) that have this policy now; `None`: all."""
        if self.fixed:
            return None
        return np.nonzero(lanes.of_lanes(self._owners).reshape(self.worker.num_envs, -1) == lanes.index)

    def end_step(self, rewards: np.ndarray) -> None:
        """Take in what a step gave, in `worker.obs`; `rewards` are the sums over the agents."""
        obs = self.worker.obs
        self._recorded["rewards"].append(np.array(obs["rewards"]))
        self._recorded["terminated"].append(np.array(obs["terminated"]).view(np.bool_))
        self._recorded["truncated"].append(np.array(obs["truncated"]).view(np.bool_))
        for lanes in self.lanes:
            if lanes.memory.active:
                acting = lanes.acting(self._acts, self._owners)
                lanes.memory.advance_acting(lanes.chosen, lanes.of_lanes(obs["rewards"]), acting)

    # -- the fragment -------------------------------------------------------------------------------------------------
    def record_last(self) -> None:
        """Record what the policies read after the last step."""
        obs = self.worker.obs
        acts = np.array(obs["acts"]).view(np.bool_)
        if self.worker.batch_mode == "complete_episodes":
            acts[:] = False  # all of them are over
        self._record_turns(acts, record=True)
        for lanes in self.lanes:
            acting = lanes.acting(acts, self._owners) if lanes.needs_acting else None
            lanes.record_inputs(*lanes.observe(obs, acting))

    def count(self, rewards: np.ndarray, ended: np.ndarray, over: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count steps into the episodes, and into the returns of their agents; as `EpisodeTracker.count`."""
        recorded = {name: concat_steps(values) for name, values in self._recorded.items()}
        self._steps = AgentSteps(self.ids, **recorded)
        return self.worker.episodes.count(rewards, ended, over, self._steps)

    def build(self, steps: EnvSteps) -> MultiAgentBatch:
        """The fragment of each policy; comes after `count`."""
        fragments = {lanes.policy_id: lanes.build(steps, self._steps) for lanes in self.lanes}
        count = int(np.count_nonzero(steps.experience & steps.active))
        return MultiAgentBatch(fragments, count, self.worker.num_envs)


def write_actions(target: Any, values: Any, rows: np.ndarray, chosen: tuple[np.ndarray, ...] | None) -> None:
    """Write the (nested) actions of a policy's agents into those of all agents of their kind.

    Args:
        target: `[B, N, *]`.
        values: `[B, n, *]`.
        rows: int `[n]`, the agents among the `N`.
        chosen: indices (environments, agents among the `n`) of those to write; `None`: all.
    """
    envs, places = (slice(None), rows) if chosen is None else (chosen[0], rows[chosen[1]])

    def write(leaf: np.ndarray, actions: np.ndarray) -> None:
        leaf[envs, places] = actions if chosen is None else actions[chosen]

    zip_leaves(write, target, values)


def fits(policy: Any, observation_space: Space[Any], action_space: Space[Any]) -> bool:
    """Whether a policy acts in these spaces; one that does not say its spaces acts in any."""
    own = getattr(policy, "observation_space", observation_space), getattr(policy, "action_space", action_space)
    return own[0] == observation_space and own[1] == action_space


def layout_of(env: Any, where: str) -> AgentLayout:
    """Where the agents of a vector environment of `PackedEnv`s are in its arrays.

    Raises:
        EnvError: its environments are no `PackedEnv`s.
    """
    if not is_packed(env.single_observation_space):
        raise EnvError(f"{where} has one agent, and its policy is made of several: train one policy alone")
    base = env.unwrapped
    return base.layout if isinstance(base, PackedVectorEnv) else base.get_attr("layout")[0]
