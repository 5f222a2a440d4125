"""RLlib's callbacks: an `Episode` for each environment, its custom metrics, and RLlib's arguments."""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from lightning_rl.callbacks.hooks import RLCallback
from lightning_rl.envs.infos import info_of
from lightning_rl.envs.registry import EnvContext
from lightning_rl.errors import ConfigError
from lightning_rl.exploration import make_exploration
from lightning_rl.rllib.batch_builders import MultiAgentSampleBatchBuilder
from lightning_rl.rllib.env_api import agent_number
from lightning_rl.rllib.episode_records import AGENT, EpisodeRecords, reads_episodes
from lightning_rl.rllib.extra_batches import append_batches
from lightning_rl.rllib.sample_batch import SampleBatch
from lightning_rl.rllib.sampled_batch import rows_when_read
from lightning_rl.rllib.trajectories import change_fragment, change_trajectories, played_rows, trajectories
from lightning_rl.rllib.workers import BaseEnv, ClassicWorker, LearningWorker, add_row_ids
from lightning_rl.rollouts.episodes import episode_ends
from lightning_rl.sample_batch import DEFAULT_POLICY, MultiAgentBatch, map_leaves

__all__ = ["DefaultCallbacks", "Episode", "EpisodeCallbacks", "EpisodeStatistics", "MultiCallbacks"]


class DefaultCallbacks:
    """Base class of callbacks in RLlib's form: override some methods; unused arguments may be left out.

    Args:
        legacy_callbacks_dict: functions by a method's name ("on_postprocess_traj" among them) that get the arguments in
            one dict: "env", "policy", "episode"; "worker", "samples"; "trainer", "result"; "pre_batch", "post_batch".
    """

    def __init__(self, legacy_callbacks_dict: Mapping[str, Callable[[dict[str, Any]], Any]] | None = None) -> None:
        self.legacy_callbacks = dict(legacy_callbacks_dict or {})

    def on_trainer_init(self, *, trainer: Any, **keywords: Any) -> None:
        """The trainer is built, and has not trained yet."""

    def on_algorithm_init(self, *, algorithm: Any, **keywords: Any) -> None:
        """As `on_trainer_init`, by RLlib's later name."""

    def on_sub_environment_created(
        self, *, worker: Any, sub_environment: Any, env_context: Any, env_index: int | None = None, **keywords: Any
    ) -> None:
        """An environment of a worker is new: called after its first reset, before its first episode starts."""

    def on_evaluate_start(self, *, trainer: Any, **keywords: Any) -> None:
        """An evaluation starts; the later name of `trainer` is `algorithm`."""

    def on_evaluate_end(self, *, trainer: Any, evaluation_metrics: dict[str, Any], **keywords: Any) -> None:
        """An evaluation ended: `evaluation_metrics["evaluation"]` is its result, and may be changed."""

    def on_episode_created(
        self, *, worker: Any, base_env: Any, policies: Any, episode: Any, env_index: int, **keywords: Any
    ) -> None:
        """An episode exists that has no observation yet."""

    def on_episode_start(
        self, *, worker: Any, base_env: Any, policies: Any, episode: Any, env_index: int, **keywords: Any
    ) -> None:
        """An episode starts: its environment has been reset, and `episode` holds the first observation."""
        self._call("on_episode_start", env=base_env, policy=policies, episode=episode)

    def on_episode_step(
        self, *, worker: Any, base_env: Any, policies: Any, episode: Any, env_index: int, **keywords: Any
    ) -> None:
        """The environment of the episode took a step."""
        self._call("on_episode_step", env=base_env, policy=policies, episode=episode)

    def on_episode_end(
        self, *, worker: Any, base_env: Any, policies: Any, episode: Any, env_index: int, **keywords: Any
    ) -> None:
        """The episode ended: `episode.custom_metrics`, `hist_data` and `media` go to the result."""
        self._call("on_episode_end", env=base_env, policy=policies, episode=episode)

    def on_sample_end(self, *, worker: Any, samples: Any, **keywords: Any) -> None:
        """A sample of a worker is complete: rows `[N, …]`, not postprocessed yet, whose columns may be changed."""
        self._call("on_sample_end", worker=worker, samples=samples)

    def on_postprocess_trajectory(
        self,
        *,
        worker: Any,
        episode: Any,
        agent_id: Any,
        policy_id: str,
        policies: Any,
        postprocessed_batch: Any,
        original_batches: Any,
        **keywords: Any,
    ) -> None:
        """A trajectory has become the rows to learn from, numpy arrays that may be changed in place.

        It is called where they are learned from, after the sample: `episode` is as it was at the sample's end, with
        `custom_metrics` of its own; of a worker process it is a copy, and `worker` is the local worker.
        `original_batches` has agent → (policy, trajectory) of all agents in the episode.
        """
        self._call(
            "on_postprocess_traj", episode=episode, agent_id=agent_id, post_batch=postprocessed_batch,
            pre_batch=original_batches[agent_id], all_pre_batches=original_batches,
        )  # fmt: skip

    def on_learn_on_batch(self, *, policy: Any, train_batch: Any, result: dict[str, Any], **keywords: Any) -> None:
        """The policy has learned from these rows, numpy arrays; numbers added to `result` are logged."""
        self._call("on_learn_on_batch", policy=policy, samples=train_batch)

    def on_train_result(self, *, trainer: Any, result: dict[str, Any], **keywords: Any) -> None:
        """An iteration is over: `result` is what `trainer.train()` returns, and may be changed."""
        self._call("on_train_result", trainer=trainer, result=result)

    def _call(self, name: str, **info: Any) -> None:
        if name in self.legacy_callbacks:
            self.legacy_callbacks[name](info)


METHODS = tuple(name for name in vars(DefaultCallbacks) if name.startswith("on_"))


class MultiCallbacks(DefaultCallbacks):
    """Several callbacks, called one after the other.

    Args:
        callback_class_list: classes of callbacks.
    """

    def __init__(self, callback_class_list: Sequence[Callable[[], DefaultCallbacks]]) -> None:
        super().__init__()
        self.callbacks = [make() for make in callback_class_list]


def _of_all(name: str) -> Callable[..., None]:
    def method(self: MultiCallbacks, **arguments: Any) -> None:
        for callbacks in self.callbacks:
            call_method(callbacks, name, arguments)

    return method


for _name in METHODS:
    setattr(MultiCallbacks, _name, _of_all(_name))


def call_method(callbacks: DefaultCallbacks, name: str, arguments: Mapping[str, Any]) -> None:
    """Call a user's method with those of the arguments that it takes."""
    method = getattr(callbacks, name)
    takes = inspect.signature(method).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    method(**{key: value for key, value in arguments.items() if takes_all or key in takes})


class Episode:
    """A running episode of one environment.

    Attributes:
        episode_id: the value of the column "eps_id"; with one agent it counts the episodes of the worker.
        env_id: index of the environment.
        user_data, custom_metrics, hist_data, media: the callbacks' own; `custom_metrics` holds numbers, `hist_data`
            lists of them, and `media` anything.
        length, total_reward: steps so far, and the sum of all agents' rewards.
        agent_rewards: (agent, policy) → the sum of its rewards.
        policy_map: policies by id.
        worker: that plays it.
        new_batch_builder: makes a builder of rows, whose batch `add_extra_batch` takes.
        batch_builder: a builder whose rows are added to the sample without it.
        extra_batches: those added since the last sample, of all episodes of the worker.

    In another process a copy, where a trajectory is learned from, has all but the builder and the extra batches.
    """

    new_batch_builder = MultiAgentSampleBatchBuilder

    def __init__(
        self,
        worker: Any,
        env_id: int,
        episode_id: int,
        policy_map: Mapping[str, Any],
        batch_builder: MultiAgentSampleBatchBuilder | None = None,
        extra_batches: list[Any] | None = None,
    ) -> None:
        self.worker, self.env_id, self.episode_id = worker, env_id, episode_id
        self.batch_builder = MultiAgentSampleBatchBuilder() if batch_builder is None else batch_builder
        self.extra_batches: list[Any] | None = [] if extra_batches is None else extra_batches
        self.user_data: dict[str, Any] = {}
        self.custom_metrics: dict[str, float] = {}
        self.hist_data: dict[str, list[float]] = {}
        self.media: dict[str, Any] = {}
        self.length, self.total_reward = 0, 0.0
        self.agent_rewards: dict[tuple[Any, str], float] = {}
        self.policy_map = policy_map
        self._observations: dict[Any, Any] = {}
        self._infos: dict[Any, dict[str, Any]] = {}
        self._rewards: dict[Any, float] = {}
        self._prev_rewards: dict[Any, float] = {}
        self._acted: dict[Any, deque[tuple[Any, int]]] = {}  # agent → the results of its policy, and its lane in them

    def add_extra_batch(self, batch: Any) -> None:
        """Add rows to the worker's sample, with all columns that its policy records; of one agent only.

        They count as environment steps, and a policy learns from them as from its own.

        Raises:
            ConfigError: this is a copy, of an episode that another process plays.
        """
        if self.extra_batches is None:
            raise ConfigError(
                f"episode {self.episode_id}: add_extra_batch in a copy, where its sample is learned from: call it in "
                "on_episode_start, on_episode_step or on_episode_end, or set num_workers=0"
            )
        self.extra_batches.append(batch)

    def get_agents(self) -> list[Any]:
        """Agents that have an observation."""
        return list(self._observations)

    def last_observation_for(self, agent_id: Any = AGENT) -> Any:
        """The newest observation of an agent, as the environment gave it; `None` if there is none."""
        return self._observations.get(agent_id)

    last_raw_obs_for = last_observation_for

    def last_info_for(self, agent_id: Any = AGENT) -> dict[str, Any] | None:
        """The newest info of an agent; `None` if there is none."""
        return self._infos.get(agent_id)

    def last_reward_for(self, agent_id: Any = AGENT) -> float:
        """The newest reward of an agent; 0 before the first step."""
        return self._rewards.get(agent_id, 0.0)

    def prev_reward_for(self, agent_id: Any = AGENT) -> float:
        """The reward of an agent before its newest; 0 before the second step."""
        return self._prev_rewards.get(agent_id, 0.0)

    def last_action_for(self, agent_id: Any = AGENT) -> Any:
        """The newest action of an agent, in the policy's space; `None` before the first."""
        return self._result(agent_id, 0, 1)

    def prev_action_for(self, agent_id: Any = AGENT) -> Any:
        """The action of an agent before its newest; `None` before the second."""
        return self._result(agent_id, 0, 2)

    def last_extra_action_outs_for(self, agent_id: Any = AGENT) -> dict[str, Any]:
        """The columns, such as "action_logp", that an agent's policy recorded with its newest action."""
        return self._result(agent_id, 2, 1) or {}

    last_pi_info_for = last_extra_action_outs_for

    def _result(self, agent_id: Any, part: int, before: int) -> Any:
        acted = self._acted.get(agent_id, ())
        if len(acted) < before:
            return None
        chosen, lane = acted[-before]
        return map_leaves(lambda leaf: torch.as_tensor(leaf[lane]).numpy(force=True), chosen[part])

    def policy_for(self, agent_id: Any = AGENT) -> str:
        """The id of an agent's policy."""
        return next((policy for agent, policy in self.agent_rewards if agent == agent_id), DEFAULT_POLICY)

    def update(self, copy: Episode) -> None:
        """Become as a newer copy; what `user_data` has only here stays."""
        vars(self).update(vars(copy), user_data={**self.user_data, **copy.user_data})

    def __getstate__(self) -> dict[str, Any]:
        """The state of a copy in another process: without what belongs to the worker's."""
        of_process = dict.fromkeys(("worker", "policy_map", "batch_builder", "extra_batches"))
        acted = {agent: deque(map(_of_lane, chosen), maxlen=2) for agent, chosen in self._acted.items()}
        return {**vars(self), **of_process, "_acted": acted}

    def observe(self, observations: Mapping[Any, Any], infos: Mapping[Any, dict[str, Any]]) -> None:
        """Take in the observation and the info of each agent."""
        self._observations |= observations
        self._infos |= {agent: infos.get(agent, {}) for agent in observations}

    def add(self, rewards: Mapping[tuple[Any, str], float], acted: Mapping[Any, tuple[Any, int]]) -> None:
        """Take in a step's rewards by (agent, policy), and what policies chose for the agents that acted."""
        self.length += 1
        self._prev_rewards = dict(self._rewards)
        for agent, chosen in acted.items():
            self._acted.setdefault(agent, deque(maxlen=2)).append(chosen)
        for key, reward in rewards.items():
            self.agent_rewards[key] = self.agent_rewards.get(key, 0.0) + reward
            self._rewards[key[0]] = reward
            self.total_reward += reward


def _of_lane(acted: tuple[Any, int]) -> tuple[Any, int]:
    """Results of a policy, and a lane in them, as the results of that lane alone."""
    (actions, _, extra), lane = acted
    own = map_leaves(lambda leaf: torch.as_tensor(leaf[lane : lane + 1]).numpy(force=True), (actions, extra))
    return (own[0], None, own[1]), 0


class EpisodeCallbacks(RLCallback):
    """Calls callbacks in RLlib's form.

    Args:
        callbacks: a class of them, an object, or a dict of functions.

    Attributes:
        numbered: whether the environment calls its agents 0, 1, … and not "agent_0", "agent_1", …
        learned: policy id → the numbers that `on_learn_on_batch` added to its last result.
    """

    def __init__(self, callbacks: Any) -> None:
        if isinstance(callbacks, Mapping):
            self.callbacks = DefaultCallbacks(callbacks)
        else:
            self.callbacks = callbacks if isinstance(callbacks, DefaultCallbacks) else callbacks()
        self._workers: dict[tuple[str, int], WorkerEpisodes] = {}
        self.numbered = False
        self.learned: dict[str, dict[str, Any]] = {}
        self._learning: dict[tuple[str, int], Episode] = {}  # by (policy, lane)
        self.records = EpisodeRecords()

    @staticmethod
    def adapt(callbacks: Any) -> Any:
        """The callbacks as ones of this package; those that are some already stay as they are."""
        classic = isinstance(callbacks, type) and issubclass(callbacks, DefaultCallbacks)
        made_by_function = callable(callbacks) and not isinstance(callbacks, type)
        wanted = classic or made_by_function or isinstance(callbacks, Mapping | DefaultCallbacks)
        return EpisodeCallbacks(callbacks) if wanted else callbacks

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """As `learns`."""
        self.learns(pl_module)

    def learns(self, learner: Any) -> None:
        """Let the policies that learn in this process find the episodes of worker processes."""
        if self.records.worker is None:
            self.records.worker = ClassicWorker(LearningWorker(learner))
        for policy in learner.policies.values():
            if reads_episodes(policy):
                policy.episode_records = self.records

    def on_worker_report(self, *, report: Any) -> None:
        """A worker process has sent copies of its episodes."""
        agents, copies = report
        self.records.agents |= agents
        self.records.add_copies(copies)

    def on_reset(self, *, worker: Any, obs: Any, info: dict[str, Any]) -> None:
        """Every environment starts an episode."""
        key = worker.stream, worker.worker_index
        if self.records.worker is None:  # no Trainer is in this process
            self.records.worker = ClassicWorker(worker)
        before = self._workers.get(key)
        started = 0 if before is None else before.started
        read = [policy for policy in worker.policies.values() if reads_episodes(policy)]
        for policy in read:
            policy.episode_records = self.records
        records = self.records if read or self._defines("on_postprocess_trajectory") else None
        episodes = self._workers[key] = WorkerEpisodes(worker, self.callbacks, started, self.numbered, records)
        if before is None or before.base_env.vector_env is not worker.env:
            episodes.announce_environments()
        for env in range(worker.num_envs):
            episodes.start(env, obs, info)
        episodes.note_turns(obs)

    def on_episode_step(
        self, *, worker: Any, obs: Any, rewards: Any, terminated: Any, truncated: Any, info: dict[str, Any]
    ) -> None:
        """Environments took a step, or were reset after an end."""
        key = worker.stream, worker.worker_index
        if key not in self._workers:  # episodes of a checkpoint continue
            self.on_reset(worker=worker, obs=obs, info=info)
        self._workers[key].step(obs, rewards, np.asarray(terminated) | np.asarray(truncated), info)

    def on_sample_end(self, *, worker: Any, samples: Any) -> None:
        """As RLlib's; trajectories get the ids of their episodes, and the sample what callbacks have added."""
        episodes = self._workers.get((worker.stream, worker.worker_index))
        if episodes is not None and episodes.records is not None and episodes.trains:
            episodes.add_ids(samples)
            if worker.reports is not None:
                worker.reports.append((self.records.agents, episodes.pop_played()))
        if episodes is not None and (batches := episodes.pop_extra_batches()):
            if isinstance(samples, MultiAgentBatch):
                raise ConfigError("add_extra_batch: rows of several agents cannot be added to a sample")
            append_batches(samples, batches, worker.policy.gamma)
        if self._defines("on_sample_end"):
            add_row_ids(worker, samples)
            rows = rows_when_read(samples, played_rows)
            call_method(self.callbacks, "on_sample_end", {"worker": ClassicWorker(worker), "samples": rows})
            for name, part in rows.as_multi_agent().items():
                if part.fragment is None:
                    change_fragment(samples.as_multi_agent()[name], part)

    def on_postprocess_trajectory(self, *, policy: Any, postprocessed_batch: Any, original_batch: Any) -> None:
        """As RLlib's, for each trajectory of the fragment."""
        if not self._defines("on_postprocess_trajectory"):
            return
        policy_id = policy.policy_id or DEFAULT_POLICY
        others = policy.learner.other_agent_batches or {}
        beside = [(other, self._agents(policy, name), trajectories(part)) for name, (other, part) in others.items()]
        agents = self._agents(policy, policy_id)
        policies = {policy_id: policy, **{name: other for name, (other, _) in others.items()}}

        def call(rows: SampleBatch, trajectory: SampleBatch) -> None:
            one = "agent_index" in trajectory  # or the whole fragment
            lane = int(trajectory["agent_index"][0]) if one else 0
            agent = agents[lane % len(agents)]
            episode = self._learning.setdefault(
                (policy_id, lane), Episode(self.records.worker, lane, len(self._learning), policies)
            )
            one = one and "eps_id" in trajectory  # which rows of files may lack
            if one and (recorded := self.records.episode(int(trajectory["eps_id"][0]))) is not None:
                vars(episode).update(vars(recorded), custom_metrics=episode.custom_metrics)
            original = {
                names[int(part["agent_index"][0]) % len(names)]: (other, part)
                for other, names, parts in beside
                for part in parts
                if one and part["eps_id"][0] == trajectory["eps_id"][0]
            }
            arguments = {"worker": episode.worker, "episode": episode, "agent_id": agent, "policy_id": policy_id}
            arguments |= {"policies": policies, "postprocessed_batch": rows}
            arguments |= {"original_batches": {**original, agent: (policy, trajectory)}}
            call_method(self.callbacks, "on_postprocess_trajectory", arguments)
            if (trajectory.terminated | trajectory.truncated).any():
                for name, value in self._learning.pop((policy_id, lane)).custom_metrics.items():
                    episode.worker.record_number(f"custom_metrics/{name}", value)

        change_trajectories(policy, postprocessed_batch, original_batch, call)

    def on_learn_on_batch(self, *, policy: Any, train_batch: Any, result: dict[str, float]) -> None:
        """As RLlib's."""
        if not self._defines("on_learn_on_batch"):
            return
        before = set(result)
        arguments = {"policy": policy, "train_batch": SampleBatch.of(train_batch.numpy()), "result": result}
        call_method(self.callbacks, "on_learn_on_batch", arguments)
        self.learned[policy.policy_id or DEFAULT_POLICY] = {name: result[name] for name in result if name not in before}

    def pop_numbers(self) -> dict[str, list[float]]:
        """The custom metrics of `on_postprocess_trajectory` of worker processes' episodes since the last call."""
        worker = self.records.worker
        return worker.pop_numbers() if worker is not None and isinstance(worker.worker, LearningWorker) else {}

    def _defines(self, name: str) -> bool:
        own = getattr(type(self.callbacks), name) is not getattr(DefaultCallbacks, name)
        return own or bool(self.callbacks.legacy_callbacks)

    def _agents(self, policy: Any, policy_id: str) -> list[Any]:
        """The agents of the lanes of a policy's fragments, in order."""
        several: Any = getattr(policy._trainer, "lightning_module", None)
        if not hasattr(several, "agents_of"):
            return [AGENT]
        return [agent_number(agent) if self.numbered else agent for agent in several.agents_of(policy_id)]

    def __getstate__(self) -> dict[str, Any]:
        """Without the running episodes, which belong to this process."""
        return {**super().__getstate__(), "_workers": {}, "_learning": {}, "records": EpisodeRecords()}


class WorkerEpisodes:
    """The running episodes of a worker's environments.

    Args:
        worker: plays them.
        callbacks: RLlib's callbacks, a class or a dict.
        started: episodes of this worker that started before.
        numbered: see `EpisodeCallbacks`.
        records: get the episodes, and the infos of training; `None`: no policy reads them.
    """

    def __init__(
        self,
        worker: Any,
        callbacks: DefaultCallbacks,
        started: int,
        numbered: bool,
        records: EpisodeRecords | None = None,
    ) -> None:
        self.records, self.trains = records, worker.stream == "rollout"
        self.new: dict[int, tuple[Episode, dict[tuple[Any, int], Any]]] = {}  # by "eps_id", to send to the learner
        self.played: list[list[int]] = [[] for _ in range(worker.num_envs)]  # "eps_id" of each row of the sample
        self.worker, self.callbacks, self.started = ClassicWorker(worker), callbacks, started
        self.base_env, self.policies = BaseEnv(worker.env), self.worker.policy_map
        self.layout = worker.agents.layout
        agents = () if self.layout is None else self.layout.agents
        self.agents = [agent_number(agent) if numbered else agent for agent in agents]
        if records is not None and agents:
            records.agents |= {
                lanes.policy_id: [self.agents[slot] for slot in lanes.slots] for lanes in worker.agents.lanes
            }
        self.running: list[Episode | None] = [None] * worker.num_envs
        self.resets = np.zeros(worker.num_envs, dtype=bool)  # environments whose next row is a reset
        self.waits = np.zeros(worker.num_envs, dtype=bool)  # those that have played their part of a sample
        self.turns: np.ndarray | None = None  # bool `[B, A]`, with several agents
        self.batch_builder, self.extra_batches = MultiAgentSampleBatchBuilder(), list[Any]()

    def pop_played(self) -> list[tuple[Episode, dict[tuple[Any, int], Any]]]:
        """The episodes that were played since the last call, and their infos (agent, step) → info."""
        found, self.new = [*self.new.values()], {}
        return found

    def pop_extra_batches(self) -> list[Any]:
        """The batches that callbacks have added since the last call."""
        if self.batch_builder.has_pending_agent_data():
            self.extra_batches.append(self.batch_builder.build_and_reset())
        found = [*self.extra_batches]
        self.extra_batches.clear()  # episodes hold the list
        return found

    def announce_environments(self) -> None:
        """The environments are new."""
        kwargs = self.worker.env_creator.kwargs
        for index, env in enumerate(self.base_env.get_sub_environments()):
            arguments = {"worker": self.worker, "sub_environment": env, "env_index": index}
            arguments["env_context"] = EnvContext(kwargs, self.worker.worker_index, index)
            call_method(self.callbacks, "on_sub_environment_created", arguments)

    def start(self, env: int, obs: Any, info: Mapping[str, Any]) -> None:
        """An episode starts in an environment."""
        number = (self.worker.worker_index << 40) + self.started
        eps_id = number if self.layout is None else int(self.worker.agents.eps_id[env])
        episode = self.running[env] = Episode(
            self.worker, env, eps_id, self.policies, self.batch_builder, self.extra_batches
        )
        self.started += 1
        if self.records is not None:
            key = self.worker.stream, self.worker.worker.worker_index  # the policy's, which counts from 0
            self.records.acting.setdefault(key, [None] * len(self.running))[env] = episode
            if self.trains:
                self.records.add_episode(episode)
        self._call("on_episode_created", episode)
        episode.observe(self._observations(obs, env), self._infos(info, env))
        self._call("on_episode_start", episode)

    def step(self, obs: Any, rewards: Any, ended: np.ndarray, info: Mapping[str, Any]) -> None:
        """A step of all environments; the row after an end is the reset."""
        over = episode_ends(ended, info)
        left, limit = self.worker.episodes_left, self.worker.max_episode_steps  # of an evaluation
        for env, episode in enumerate(self.running):
            if self.waits[env] or (left is not None and not left[env]):
                continue
            if self.resets[env]:
                self.resets[env] = False
                if episode is None:
                    self.start(env, obs, info)
                else:  # a life was lost, and the game continues
                    episode.observe(self._observations(obs, env), self._infos(info, env))
                continue
            assert episode is not None
            if self.worker.same_step and ended[env]:
                seen = {AGENT: info["final_obs"][env]}
                infos = {AGENT: info_of(info["final_info"], env)}
            else:
                seen, infos = self._observations(obs, env), self._infos(info, env)
            episode.observe(seen, infos)
            episode.add(self._rewards(obs, rewards, env), self._chosen(env))
            if self.records is not None and self.trains:
                self.played[env].append(episode.episode_id)
                newest = {(agent, episode.length - 1): own for agent, own in infos.items() if own}
                self.records.add_infos(episode, newest)
                if self.worker.reports is not None:
                    self.new.setdefault(episode.episode_id, (episode, {}))[1].update(newest)
            self._call("on_episode_step", episode)
            self.resets[env] = ended[env] and not self.worker.same_step
            if over[env] or (left is not None and limit is not None and episode.length >= limit):
                self._end(episode)
                whole = left is None and self.worker.batch_mode == "complete_episodes"
                self.waits[env] = whole and self.worker.missing_rows <= 0
                if self.worker.same_step:
                    self.start(env, obs, info)
        self.note_turns(obs)

    def add_ids(self, samples: Any) -> None:
        """Add "unroll_id" to a sample, and where there is one agent "eps_id"."""
        played, self.played = self.played, [[] for _ in self.played]
        for _, part in samples.as_multi_agent().items():
            unroll = (self.worker.worker_index << 40) + self.worker.fragment
            part["unroll_id"] = torch.full(part.valid.shape, unroll, dtype=torch.int64)
            if self.layout is None:
                part["eps_id"] = torch.zeros_like(part["unroll_id"])
                for env, ids in enumerate(played):
                    part["eps_id"][part.valid[:, env], env] = torch.tensor(ids, dtype=torch.int64)

    def _end(self, episode: Episode) -> None:
        self._call("on_episode_end", episode)
        for name, numbers in episode.custom_metrics.items():
            for value in np.ravel(numbers):
                self.worker.record_number(f"custom_metrics/{name}", value)
        for name, values in episode.hist_data.items():
            for value in values:
                self.worker.record_number(f"hist_stats/{name}", value)
        for name, value in episode.media.items():
            self.worker.record_value(f"episode_media/{name}", value)
        self.running[episode.env_id] = None

    def _call(self, name: str, episode: Episode) -> None:
        arguments = {"worker": self.worker, "base_env": self.base_env, "policies": self.policies, "episode": episode}
        call_method(self.callbacks, name, {**arguments, "env_index": episode.env_id})

    def _observations(self, obs: Any, env: int) -> dict[Any, Any]:
        if self.layout is None:
            return {AGENT: map_leaves(lambda leaf: np.array(leaf[env]), obs)}
        found: dict[Any, Any] = {}
        for slot in np.flatnonzero(obs["present"][env]).tolist():
            kind, row = self.layout.places[slot]
            seen = map_leaves(lambda leaf, row=row: np.array(leaf[env][row]), obs["obs"][str(kind)])
            found[self.agents[slot]] = seen
        return found

    def _infos(self, info: Mapping[str, Any], env: int) -> dict[Any, dict[str, Any]]:
        """The info of each agent; of several agents none, if the environments are in processes of their own."""
        if self.layout is None:
            return {AGENT: info_of(info, env)}
        packed = getattr(self.base_env.vector_env.unwrapped, "envs", None)
        infos = {} if packed is None else packed[env].unwrapped.infos
        names = zip(self.agents, self.layout.agents, strict=True)
        return {agent: infos.get(name, infos.get(agent, {})) for agent, name in names}

    def note_turns(self, obs: Any) -> None:
        """Keep whose actions the next step takes."""
        self.turns = None if self.layout is None else np.array(obs["acts"])

    def _chosen(self, env: int) -> dict[Any, tuple[Any, int]]:
        """What policies chose for the agents that acted, and their lane in it."""
        if self.turns is None:
            return {AGENT: (self.worker.agents.own.chosen, env)}
        owners = self.worker.agents.policy_ids(env)
        return {
            self.agents[slot]: (lanes.chosen, env * lanes.per_env + place)
            for lanes in self.worker.agents.lanes
            for place, slot in enumerate(lanes.slots)
            if self.turns[env, slot] and owners[slot] == lanes.policy_id
        }

    def _rewards(self, obs: Any, rewards: Any, env: int) -> dict[tuple[Any, str], float]:
        if self.layout is None:
            return {(AGENT, DEFAULT_POLICY): float(rewards[env])}
        owners = self.worker.agents.policy_ids(env)
        by_agent = zip(self.agents, owners, obs["rewards"][env].tolist(), strict=True)
        return {(agent, policy): reward for agent, policy, reward in by_agent}


def prepare_evaluation(worker: Any, hooks: Sequence[SimpleNamespace], seed: int | None) -> None:
    """Let a worker that plays evaluations call hooks of callbacks, and derive its seeds from another one."""
    if not worker.hooks["on_reset"]:  # not prepared yet
        for each in hooks:
            for name, hook in vars(each).items():
                worker.hooks[name].append(hook)
    if seed is not None:
        worker.seed = seed


def set_exploration(worker: Any, exploration: Mapping[str, Any] | None) -> None:
    """Let the policies of a worker explore by another strategy; `None` brings back their own."""
    for policy in worker.policies.values():
        own = vars(policy).setdefault("_own_exploration", policy.exploration)
        space = policy.action_transform.policy_space
        if exploration is None:
            policy.exploration = own
            del policy._own_exploration
        else:
            policy.exploration = make_exploration(exploration, space, policy.observation_space)


class EpisodeStatistics:
    """The numbers and media of callbacks over the latest episodes, as RLlib's results have them.

    Args:
        size: numbers of each name to keep if the newest result has fewer; `None`: all.
    """

    def __init__(self, size: int | None = None) -> None:
        self.size = size
        self._latest: dict[str, list[Any]] = {}

    def add(self, numbers: Mapping[str, Sequence[Any]]) -> None:
        """Take in the numbers that workers recorded since the last result."""
        for name, values in numbers.items():
            latest = self._latest.setdefault(name, [])
            latest += values
            if self.size is not None:
                del latest[: -max(self.size, len(values))]

    def custom_metrics(self) -> dict[str, float]:
        """Each custom metric as name_mean, name_min and name_max, without NaN unless there is nothing else."""
        found: dict[str, float] = {}
        for name, every in self._of("custom_metrics/"):
            values = [value for value in every if not math.isnan(value)] or [math.nan]
            found |= {f"{name}_mean": sum(values) / len(values), f"{name}_min": min(values), f"{name}_max": max(values)}
        return found

    def hist_stats(self) -> dict[str, list[float]]:
        """The numbers of each list in `hist_data`."""
        return {name: list(values) for name, values in self._of("hist_stats/")}

    def episode_media(self) -> dict[str, list[Any]]:
        """What episodes have in `media`, by name."""
        return {name: list(values) for name, values in self._of("episode_media/")}

    def _of(self, prefix: str) -> list[tuple[str, list[Any]]]:
        latest = self._latest.items()
        return [(name.removeprefix(prefix), values) for name, values in latest if name.startswith(prefix)]
