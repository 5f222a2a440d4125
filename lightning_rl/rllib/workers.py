"""Rollout workers and sets of them under RLlib's names; what has no such name is that of the worker or set itself."""

from __future__ import annotations

import functools
import itertools
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from lightning_rl import sample_batch
from lightning_rl.callbacks.hooks import RLCallback
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.envs.multi_agent.packed_env import innermost
from lightning_rl.envs.registry import EnvContext
from lightning_rl.errors import ConfigError
from lightning_rl.rllib.row_fragments import steps_of_episodes
from lightning_rl.rllib.sample_batch import classic_batch
from lightning_rl.rllib.sampled_batch import rows_of_lanes, rows_when_read
from lightning_rl.rollouts.rollout_worker import RolloutWorker
from lightning_rl.sample_batch import DEFAULT_POLICY, env_steps

__all__ = [
    "BaseEnv",
    "ClassicWorker",
    "EvaluationWorkers",
    "LearningWorker",
    "NumberedFromOne",
    "PlanWorkers",
    "ReadingWorker",
    "WorkerMethods",
    "Workers",
    "episode_ids",
    "policies_of",
]


def policies_of(worker: Any) -> dict[str, Any]:
    """Policies by id of a worker, or of anything else with an attribute `policy`."""
    return dict(worker.policy.policies.items())


class BaseEnv:
    """The environments of a worker.

    Args:
        vector_env: Gymnasium's vector environment; `None` of a worker without environments.
    """

    def __init__(self, vector_env: Any) -> None:
        self.vector_env = vector_env

    def get_sub_environments(self) -> list[Any]:
        """The environments, unwrapped; the vector environment where they are in other processes, or are one object."""
        if self.vector_env is None:
            return []
        return list(map(innermost, getattr(self.vector_env.unwrapped, "envs", [self.vector_env])))

    get_unwrapped = get_sub_environments


class NumberedFromOne(EnvCreator):
    """Creates environments of worker processes; workers count from 1 in their contexts, as 0 is the one that learns."""

    @classmethod
    def of(cls, env: EnvCreator) -> NumberedFromOne:
        """A creator of the same environments."""
        found = cls(env.id)
        vars(found).update(vars(env))
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """As `EnvCreator`, which pickles registered names with their functions."""
        return NumberedFromOne.of, (EnvCreator(**{each.name: getattr(self, each.name) for each in fields(self)}),)

    def make(
        self,
        num_envs: int,
        vectorization: str = "auto",
        mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        worker_index: int = 0,
        num_workers: int = 1,
        replayable: bool = False,
    ) -> VectorEnv[Any, Any, Any]:
        """See `EnvCreator.make`."""
        return super().make(num_envs, vectorization, mode, worker_index + 1, num_workers, replayable)


class WorkerMethods:
    """RLlib's methods of a rollout worker.

    Attributes:
        worker: that of this package.
    """

    worker: Any
    worker_index: Any
    sample: Any

    @property
    def policy_map(self) -> dict[str, Any]:
        """The policies by id."""
        return policies_of(self.worker)

    @property
    def preprocessors(self) -> dict[str, Any]:
        """The preprocessors of the policies that have a model, by policy id."""
        return {name: policy.preprocessor for name, policy in self.policy_map.items() if policy.has_model}

    @property
    def filters(self) -> dict[str, Any]:
        """The filters of the policies that have a model, by policy id."""
        return {name: policy.observation_filter for name, policy in self.policy_map.items() if policy.has_model}

    @property
    def policies_to_train(self) -> list[str]:
        """Ids of the policies in training."""
        return [*self.worker.policy.policies_to_train]

    def get_policy(self, policy_id: str = DEFAULT_POLICY) -> Any:
        """The policy of that id; `None`, as there, if there is none."""
        return self.policy_map.get(policy_id)

    def for_policy(self, func: Callable[..., Any], policy_id: str = DEFAULT_POLICY, **keywords: Any) -> Any:
        """`func(policy)` of one policy."""
        return func(self.policy_map[policy_id], **keywords)

    def foreach_policy(self, func: Callable[..., Any], **keywords: Any) -> list[Any]:
        """`func(policy, policy_id)` of every policy."""
        return [func(policy, name, **keywords) for name, policy in self.policy_map.items()]

    def foreach_trainable_policy(self, func: Callable[..., Any], **keywords: Any) -> list[Any]:
        """`func(policy, policy_id)` of every policy in training."""
        return [func(self.policy_map[name], name, **keywords) for name in self.policies_to_train]

    foreach_policy_to_train = foreach_trainable_policy

    def is_policy_to_train(self, policy_id: str, batch: Any = None) -> bool:
        """Whether the policy is in training."""
        return policy_id in self.policies_to_train

    def get_filters(self, flush_after: bool = False) -> dict[str, Any]:
        """As `filters`, which are part of the policies and stay as they are."""
        return self.filters

    def sample_with_count(self) -> tuple[Any, int]:
        """A sample, and its number of rows."""
        batch = self.sample()
        return batch, env_steps(batch)

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Take over the learner's count of environment steps, `global_vars["timestep"]`."""
        self.worker.policy.env_steps = global_vars["timestep"]

    @property
    def global_vars(self) -> dict[str, int]:
        """The count of environment steps, which schedules and exploration follow."""
        return {"timestep": self.worker.policy.env_steps}

    def get_global_vars(self) -> dict[str, int]:
        """As `global_vars`."""
        return self.global_vars

    @property
    def policy_config(self) -> dict[str, Any]:
        """The config of the policy, or of the first one."""
        return next(iter(self.policy_map.values())).config

    def policy_mapping_fn(self, agent_id: Any, *episode: Any, **keywords: Any) -> str:
        """The id of an agent's policy in every episode."""
        policy = self.worker.policy
        return policy.mapping.policy_of(agent_id) if policy.agents else DEFAULT_POLICY

    @property
    def rollout_fragment_length(self) -> int:
        """Steps of each environment in a sample."""
        return self.worker.fragment_length

    @property
    def num_workers(self) -> int:
        """Workers of the run."""
        return self.worker.logical_workers

    @property
    def env_context(self) -> EnvContext:
        """The context of the first environment."""
        return EnvContext(self.worker.env_creator.kwargs, self.worker_index, num_workers=self.num_workers)

    @property
    def async_env(self) -> BaseEnv:
        """The environments."""
        return BaseEnv(self.worker.env)

    @property
    def spaces(self) -> dict[str, tuple[Any, Any]]:
        """Observation and action space of each policy."""
        return {name: (each.observation_space, each.action_space) for name, each in self.policy_map.items()}

    def get_host(self) -> str:
        """The name of the machine."""
        return socket.gethostname()

    def export_policy_model(self, export_dir: Any, policy_id: str = DEFAULT_POLICY, onnx: int | None = None) -> Any:
        """Write a policy; see `Policy.export_model`."""
        return self.policy_map[policy_id].export_model(export_dir, format="torchscript" if onnx is None else "onnx")

    def foreach_env(self, func: Callable[[Any], Any]) -> list[Any]:
        """`func(env)` of every environment, unwrapped."""
        return list(map(func, BaseEnv(self.worker.env).get_sub_environments()))

    def foreach_env_with_context(self, func: Callable[[Any, EnvContext], Any]) -> list[Any]:
        """`func(env, context)` of every environment and its `EnvContext`."""
        index = itertools.count()
        return self.foreach_env(
            lambda env: func(env, EnvContext(self.worker.env_creator.kwargs, self.worker_index, next(index)))
        )

    def save(self) -> dict[str, Any]:
        """The state of every policy: weights, running statistics, optimizer, counters."""
        return {name: policy.get_state() for name, policy in self.policy_map.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with the policies that `save` of another worker returned."""
        for name, own in state.items():
            self.policy_map[name].set_state(own)


class ClassicWorker(WorkerMethods):
    """A rollout worker of this package with RLlib's methods.

    Args:
        worker: that of this package.
    """

    def __init__(self, worker: Any) -> None:
        self.worker = worker

    @property
    def worker_index(self) -> int:  # type: ignore[override]
        """The number of the worker: from 1 in processes, 0 where the policy learns."""
        return self.worker.worker_index + isinstance(getattr(self.worker, "env_creator", None), NumberedFromOne)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)

    @property
    def env(self) -> Any:
        """The first environment, unwrapped; `None`, as there, of a worker without environments."""
        found = getattr(self.worker, "env", None)
        return None if found is None else BaseEnv(found).get_sub_environments()[0]

    def sample(self) -> Any:
        """As RLlib's: the rows `[N, …]` that the policies learn from, as they postprocess one sample.

        Rows of an environment are in the order of time, with "agent_index", the number of the lane, and "eps_id".
        """
        samples = self.worker.sample()
        if self.worker.postprocess:
            return classic_batch(samples)
        add_row_ids(self.worker, samples)
        return classic_batch(rows_of_lanes(self.worker, samples))


class LearningWorker(RolloutWorker):
    """The worker whose policy learns; it has no environments, so it does not sample.

    Args:
        policy: that learns.
    """

    worker_index, logical_workers = 0, 1
    env: Any = None

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self._numbers: dict[str, list[float]] = {}

    def pop_numbers(self) -> dict[str, list[float]]:
        """The numbers that were recorded since the last call."""
        numbers, self._numbers = self._numbers, {}
        return numbers

    def sample(self) -> Any:
        """Refuse.

        Raises:
            ConfigError: always; names what samples.
        """
        raise ConfigError(
            "local_worker().sample(): with num_workers > 0 the local worker has no environments: call "
            "workers.sample(), or set num_workers=0"
        )


class ReadingWorker:
    """A worker as callbacks get it with experience that it has not played itself.

    Args:
        worker: the worker, which has the callbacks.
    """

    stream = "input"

    def __init__(self, worker: Any) -> None:
        self.worker, self.fragment = worker, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)

    def end_sample(self, samples: sample_batch.AnyBatch) -> None:
        """Let callbacks see, and change, fragments `[T, B, …]`."""
        self.fragment += 1
        for hook in self.hooks["on_sample_end"]:
            hook(worker=self, samples=samples)


class Workers:
    """A set of rollout workers.

    Args:
        workers: that of this package.
        policy: that learns.
    """

    def __init__(self, workers: Any, policy: Any) -> None:
        self.workers, self.policy = workers, policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self.workers, name)

    def local_worker(self) -> Any:
        """The worker whose policy learns; it samples as well, if no others do."""
        return ClassicWorker(self.workers.local_worker() if self._learner_samples else LearningWorker(self.policy))

    @property
    def _learner_samples(self) -> bool:
        local = self.workers.local_worker()
        return local is not None and local.policy is self.policy

    def num_remote_workers(self) -> int:
        """The number of `remote_workers()`."""
        return len(self.workers.remote_workers())

    def sync_weights(self, policy: Any = None, *, policies: Any = None, global_vars: Any = None) -> None:
        """Let all workers act with the newest weights of the policy, `None`: of the one that learns.

        Args:
            policy: the policy, or the one that holds all.
            policies, global_vars: not read: all weights are sent, with the count of environment steps.
        """
        self.workers.sync_weights(self.policy if policy is None else policy)

    def foreach_worker(self, func: Callable[[Any], Any]) -> list[Any]:
        """`func(worker)` of every worker, in its process: first of the local one, then of the others in their order.

        An error of `func` is raised here, with the worker's traceback in its notes; the workers continue.
        """
        first = [] if self._learner_samples else [func(self.local_worker())]
        return [*first, *_results_of(self.workers, func)]

    def foreach_worker_with_index(self, func: Callable[[Any, int], Any]) -> list[Any]:
        """`func(worker, index)` of every worker; see `foreach_worker`."""
        return self.foreach_worker(functools.partial(_call_with_index, func))

    def foreach_trainable_policy(self, func: Callable[..., Any]) -> list[Any]:
        """`func(policy, policy_id)` of every policy in training of every worker."""
        found = self.foreach_worker(functools.partial(ClassicWorker.foreach_trainable_policy, func=func))
        return [each for own in found for each in own]

    foreach_policy_to_train = foreach_trainable_policy

    def is_policy_to_train(self, policy_id: str, batch: Any = None) -> bool:
        """Whether the policy is in training."""
        return policy_id in self.trainable_policies()

    def foreach_env(self, func: Callable[[Any], Any]) -> list[list[Any]]:
        """`func(env)` of every environment, by worker."""
        return self.foreach_worker(functools.partial(ClassicWorker.foreach_env, func=func))

    def foreach_env_with_context(self, func: Callable[[Any, EnvContext], Any]) -> list[list[Any]]:
        """`func(env, context)` of every environment and its `EnvContext`, by worker."""
        return self.foreach_worker(functools.partial(ClassicWorker.foreach_env_with_context, func=func))

    def foreach_policy(self, func: Callable[..., Any]) -> list[Any]:
        """`func(policy, policy_id)` of every policy of every worker."""
        found = self.foreach_worker(functools.partial(ClassicWorker.foreach_policy, func=func))
        return [each for own in found for each in own]

    def sample(self) -> Any:
        """One sample of all workers: the rows of one environment after the other, as `ClassicWorker.sample`."""
        return self.rows_when_read(self.workers.sample())

    def rows_when_read(self, samples: Any) -> Any:
        """A sample as the rows that the learner's policies learn from."""
        return rows_when_read(samples, functools.partial(_learned_rows, self.policy))

    def trainable_policies(self) -> list[str]:
        """Ids of the policies in training."""
        return self.local_worker().policies_to_train


def episode_ids(fragment: sample_batch.SampleBatch, before: Tensor, worker_index: int) -> tuple[Tensor, Tensor]:
    """Ids of a fragment's episodes, int64 `[T, B]`, and how many have begun in each lane, int64 `[B]`.

    Args:
        fragment: `[T, B, …]`; without "t", which rows of files may lack, each of its episodes has just begun.
        before: how many had begun before it.
        worker_index: the worker's index; no two workers give the same ids.
    """
    t = fragment.t if "t" in fragment else steps_of_episodes(fragment)
    begun, lanes = (fragment.valid & (t == 0)).long(), len(before)
    number = before + begun.cumsum(0)
    return (worker_index << 40) + number * lanes + torch.arange(lanes), number[-1]


class RowIds(RLCallback):
    """Lets samples have the columns by which RLlib's programs tell episodes apart."""

    def on_sample_end(self, *, worker: Any, samples: sample_batch.AnyBatch) -> None:
        """As `add_row_ids`."""
        add_row_ids(worker, samples)


def add_row_ids(worker: Any, samples: sample_batch.AnyBatch) -> None:
    """Add "agent_index", the number of a lane, "unroll_id" and "eps_id" to the fragments of a worker, once.

    Args:
        worker: numbers its episodes.
        samples: its sample.
    """
    begun = vars(worker).setdefault("episodes_begun", {})
    for policy_id, part in samples.as_multi_agent().items():
        steps, lanes = part.valid.shape
        if "agent_index" in part:
            continue
        part["agent_index"] = torch.arange(lanes).repeat(steps, 1)
        if "unroll_id" not in part:
            part["unroll_id"] = torch.full((steps, lanes), (worker.worker_index << 40) + worker.fragment)
        if "eps_id" not in part:
            before = begun.get(policy_id, torch.zeros(lanes, dtype=torch.int64))
            part["eps_id"], begun[policy_id] = episode_ids(part, before, worker.worker_index)


def _learned_rows(policy: Any, samples: sample_batch.AnyBatch) -> sample_batch.AnyBatch:
    return rows_of_lanes(LearningWorker(policy), samples.to(policy.device))


def _call_with_index(func: Callable[[Any, int], Any], worker: Any) -> Any:
    return func(worker, worker.worker_index)


def _results_of(workers: Any, func: Callable[[Any], Any]) -> list[Any]:
    called = workers.foreach_worker(functools.partial(_call_with_classic, func))
    for _, error in called:
        if error is not None:
            raise error
    return [result for result, _ in called]


def _call_with_classic(func: Callable[[Any], Any], worker: Any) -> tuple[Any, Exception | None]:
    """The result of a user's function, or its error, which says nothing against the worker's process."""
    try:
        return func(ClassicWorker(worker)), None
    except Exception as error:
        error.add_note(f"worker {worker.worker_index}: {traceback.format_exc()}")
        return None, error


class EvaluationWorkers(Workers):
    """The workers that play evaluations; the policy that learns is of none of them."""

    def foreach_worker(self, func: Callable[[Any], Any]) -> list[Any]:
        """`func(worker)` of every worker that plays, in its process; results in worker order."""
        return _results_of(self.workers, func)


class PlanWorkers(Workers):
    """The workers of a Trainer, which note the time that sampling takes.

    Args:
        workers, policy: see `Workers`.
        datamodule: its `record_time` gets the seconds of sampling.
    """

    def __init__(self, workers: Any, policy: Any, datamodule: Any) -> None:
        super().__init__(workers, policy)
        self.datamodule = datamodule

    def sample(self) -> Any:
        """See `Workers.sample`."""
        started = time.perf_counter()
        fragment = self.workers.sample()
        self.datamodule.record_time(fragment, time.perf_counter() - started)
        return self.rows_when_read(fragment)
