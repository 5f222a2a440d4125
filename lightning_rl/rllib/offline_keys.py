"""RLlib's keys of experience in files: what is read in place of sampling, and where samples are written."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.callbacks.hooks import RLCallback
from lightning_rl.data.kinds_of_data import kind_of_data
from lightning_rl.data.plans import parallel_rollouts
from lightning_rl.errors import ConfigError, short_repr
from lightning_rl.rllib.offline.dataset_reader import reader_of_dataset
from lightning_rl.rllib.offline.input_reader import InputReader
from lightning_rl.rllib.offline.io_context import IOContext, PlayedRows
from lightning_rl.rllib.offline.json_reader import JsonReader
from lightning_rl.rllib.offline.json_writer import JsonWriter
from lightning_rl.rllib.offline.mixed_input import MixedInput
from lightning_rl.rllib.offline.output_writer import OutputWriter
from lightning_rl.rllib.offline.registry import registered_input
from lightning_rl.rllib.offline.shuffled_input import ShuffledInput
from lightning_rl.rllib.row_fragments import fragment_of_rows
from lightning_rl.rllib.sample_batch import SampleBatch as ClassicBatch
from lightning_rl.rllib.trajectories import trajectories
from lightning_rl.rllib.workers import ClassicWorker, ReadingWorker, episode_ids, policies_of
from lightning_rl.sample_batch import (
    DEFAULT_POLICY,
    AnyBatch,
    Fragment,
    MultiAgentBatch,
    SampleBatch,
    concat_samples,
    env_steps,
)

__all__ = [
    "OFFLINE_SPECIAL",
    "Output",
    "ReaderPlan",
    "classic_estimates",
    "data_files",
    "estimators",
    "reader_of",
    "reading_rate",
    "write_offline_keys",
]

OFFLINE_SPECIAL = {
    "input": "files: `data=offline`, `data.input`; a function, a mix or a name of `register_input`: its batches take "
    "the place of the workers' samples",
    "input_config": '`context.input_config` of the function; of "dataset" its paths and format',
    "actions_in_input_normalized": "`data.actions_normalized`",
    "postprocess_inputs": "what a loss reads is always computed from the rows that are read, as with `True`",
    "shuffle_buffer_size": "batches that `ShuffledInput` holds; files are in random order without it",
    **dict.fromkeys(("input_evaluation", "off_policy_estimation_methods"), "`evaluation.estimators`, on held-out data"),
    "output": "a callback that writes samples as RLlib's JSON; `data.output` writes shards",
    "output_config": '`context.output_config` of a function of `output`; of "dataset" its path',
    "output_compress_columns": "columns that are packed",
    "output_max_file_size": "bytes of a file",
}
SAMPLER = ("sampler", None)
ESTIMATORS = {"is": "pdis", "wis": "wis", "dm": "dm", "dr": "dr"}
"""RLlib's name of an estimator → its name here; RLlib's "is" is importance sampling per decision."""
WRITTEN = ("valid", "obs", "actions", "rewards", "terminated", "truncated", "t", "eps_id", "action_logp", "action_mask")


def data_files(given: Mapping[str, Any], policy_class: type) -> str | list[str] | None:
    """The files or directories of `input` that `data=offline` reads; `None`: there are none, or they need a reader.

    A policy that learns from its own rollouts only reads them as its samples, which RLlib permits.
    """
    source = given.get("input")
    if source in SAMPLER or source == "dataset" or registered_input(source) is not None:
        return None
    if isinstance(source, list | tuple) and all(isinstance(entry, str) for entry in source):
        source = list(source)
    elif not isinstance(source, str):
        return None
    return source if kind_of_data(policy_class) in ("transitions", "episodes") else None


def reader_of(given: Mapping[str, Any]) -> Callable[[IOContext], InputReader] | None:
    """The function that makes the reader of `input`; `None`: the workers sample.

    Raises:
        ConfigError: `input` is something else.
    """
    source: Any = given.get("input")
    make: Callable[[IOContext], InputReader]
    if source in SAMPLER:
        return None
    if callable(source):
        make = source  # pyright: ignore[reportAssignmentType]
    elif isinstance(source, Mapping):
        make = lambda context: MixedInput(source, context)  # noqa: E731
    elif source == "dataset":
        make = reader_of_dataset
    elif isinstance(source, str | list | tuple):
        make = registered_input(source) or (lambda context: JsonReader(source, context))
    else:
        raise ConfigError(
            f"config key 'input'={short_repr(source)}; expected 'sampler', a path or a list of them, "
            "{source: probability} or a function of an IOContext"
        )
    held = given.get("shuffle_buffer_size") or 0
    return make if held < 2 else lambda context: ShuffledInput(make(context), held, given.get("seed") or 0)


def write_offline_keys(
    classic: dict[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any], files: Any, policy_class: type
) -> list[str]:
    """Let a run read its data from files.

    RLlib reads `train_batch_size` rows for each gradient step, so env steps count like that here.

    Args:
        classic: the config so far, which is changed.
        given: RLlib's keys.
        defaults: the composed config of the policy.
        files: the files of `data_files`.
        policy_class: that learns.

    Returns:
        The overrides that choose `data=offline`, and `env=none` if there is no environment.
    """
    if given.get("prioritized_replay"):
        warnings.warn("config key 'prioritized_replay' has no effect: rows of files are drawn uniformly", stacklevel=4)
    replayed, rows = classic.get("data") or {}, given.get("train_batch_size")
    data = {key: replayed[key] for key in ("batch_size", "n_step") if key in replayed}
    if kind_of_data(policy_class) == "transitions":
        rate = reading_rate(classic, given, defaults)
        data["update_to_data_ratio"] = rate["update_to_data_ratio"]
        if steps := given.get("timesteps_per_iteration"):
            data["steps_per_iteration"] = math.ceil(steps * rate["update_to_data_ratio"])
    elif rows:
        data["rows_per_iteration"] = rows
        classic.setdefault("policy", {}).update(passes=1, minibatches=1)
    if names := estimators(given):
        evaluation = classic.setdefault("evaluation", {})
        evaluation["estimators"] = [ESTIMATORS[name] for name in names]
        if "final_epsilon" in defaults["exploration"]:
            section = given.get("exploration_config") or {}
            epsilon = section.get("final_epsilon", defaults["exploration"]["final_epsilon"])
            evaluation["estimator_options"] = {"epsilon": epsilon}
    normalized = bool(given.get("actions_in_input_normalized"))
    classic["data"] = {**data, "input": files, "actions_normalized": normalized}
    classic.setdefault("workers", {})["num_workers"] = 0
    if given.get("env") is not None:
        return ["data=offline"]
    classic.setdefault("env", {})["kwargs"] = {"input": files, "columns": None}
    return ["data=offline", "env=none"]


def estimators(given: Mapping[str, Any]) -> list[str]:
    """RLlib's names of the estimators in `off_policy_estimation_methods` or `input_evaluation`, in order.

    Raises:
        ConfigError: one is unknown.
    """
    methods = given.get("off_policy_estimation_methods") or given.get("input_evaluation") or []
    entries = methods.values() if isinstance(methods, Mapping) else [methods] if isinstance(methods, str) else methods
    named = [entry["type"] if isinstance(entry, Mapping) else entry for entry in entries]
    names = [getattr(each, "name", each) for each in named]
    if unknown := [name for name in names if name not in (*ESTIMATORS, "simulation")]:
        raise ConfigError(
            f"estimator {short_repr(unknown[0])} of input_evaluation is unknown; expected {', '.join(ESTIMATORS)}, or "
            "simulation, which is what evaluation_interval does"
        )
    return [name for name in names if name != "simulation"]


def classic_estimates(names: Iterable[str], metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """RLlib's name of an estimator → its estimates, by the names of RLlib 1.x and 2.

    Args:
        names: keys of `estimators`.
        metrics: the metrics of an `OffPolicyEvaluation`.
    """
    found = {}
    for name in names:
        behavior, target = metrics["eval/behavior"], metrics[f"eval/{ESTIMATORS[name]}"]
        gain = target / max(behavior, 1e-8)
        found[name] = {"V_prev": behavior, f"V_step_{name.upper()}": target, "V_gain_est": gain}
        found[name] |= {"v_behavior": behavior, "v_target": target, "v_gain": gain, "v_delta": target - behavior}
    return found


def reading_rate(classic: dict[str, Any], given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `data` by which a replay algorithm learns as often as RLlib: a gradient step for a batch of rows.

    `classic["policy"]` gets the interval of its target network, which RLlib counts in rows that are read.

    Args:
        classic, given, defaults: see `write_offline_keys`.
    """
    batch = (classic.get("data") or {}).get("batch_size", defaults["data"]["batch_size"])
    ratio = (given.get("training_intensity") or 1.0) / batch
    if (freq := given.get("target_network_update_freq")) and "target_update_interval" in defaults["policy"]:
        classic.setdefault("policy", {})["target_update_interval"] = max(1, round(freq * ratio))
    steps = given.get("timesteps_per_iteration") or 0
    return {"update_to_data_ratio": ratio, "fragments_per_iteration": max(1, math.ceil(steps / batch))}


class InputWorker:
    """The worker of an `IOContext`.

    Args:
        workers: the workers of the run, which sample together.
        policy: that learns; it may hold several.
        num_workers: the key of that name.
    """

    def __init__(self, workers: Any, policy: Any, num_workers: int = 0) -> None:
        self.workers, self.policy, self.num_workers = workers, policy, num_workers

    @property
    def policy_map(self) -> dict[str, Any]:
        """Policies by id."""
        return policies_of(self)

    def get_policy(self, policy_id: str = DEFAULT_POLICY) -> Any:
        """The policy of that id."""
        return self.policy_map[policy_id]

    def sample(self) -> AnyBatch:
        """One fragment of every environment."""
        return self.workers.sample()


class ReadingWorkers:
    """A worker set whose samples are batches of readers, as fragments `[T, B, …]`.

    Args:
        workers: the worker set.
        readers: give rows, or fragments of workers; an empty batch means that a reader has none yet.
        rows: batches are joined until they have that many rows of experience; 0: none are.
        worker: whose callbacks see the rows; `None`: none do.
    """

    def __init__(
        self, workers: Any, readers: Sequence[InputReader], rows: int = 0, worker: ReadingWorker | None = None
    ) -> None:
        self.workers, self.readers, self.rows, self.worker = workers, readers, rows, worker
        self._turn = itertools.cycle(readers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.workers, name)

    def sample(self) -> AnyBatch:
        """The next batches, of each reader in turn.

        Raises:
            ConfigError: their rows lack a column.
        """
        fragments: list[AnyBatch] = []
        missing = self.rows
        while not fragments or missing > 0:
            batch = next(self._turn).next()
            if isinstance(batch, MultiAgentBatch):
                fragments.append(batch.map_batches(as_fragment))
            elif len(batch):
                fragments.append(as_fragment(batch))
            elif (stopping := self.workers.local_worker().stopping) is not None and stopping():
                raise KeyboardInterrupt("stopped while a reader had no batch")
            else:
                continue
            parts = batch.as_multi_agent().policy_batches.values()
            if self.worker is not None and not all(isinstance(part, Fragment | PlayedRows) for part in parts):
                self.worker.end_sample(fragments[-1])
            missing -= env_steps(fragments[-1])
        return concat_samples(fragments)

    def sample_async(self) -> Iterator[AnyBatch]:
        """The next batches, without end."""
        while True:
            yield self.sample()


def as_fragment(batch: SampleBatch) -> SampleBatch:
    """Rows as a fragment; a fragment as it is."""
    return batch if isinstance(batch, Fragment) else fragment_of_rows(batch)


class ReaderPlan:
    """An execution plan on batches that are read.

    Args:
        make: makes a reader; each is made once.
        config: RLlib's keys.
        plan: the plan, `plan(workers, policy)`; `None`: the data pipeline's own.
        rows: see `ReadingWorkers`.
        num_readers: how many readers are made, each for another worker; `make` may return `None` for some.

    Attributes:
        log_dir: the directory of the context.
        readers: the readers that were made.
    """

    def __init__(
        self,
        make: Callable[[IOContext], InputReader | None],
        config: Mapping[str, Any],
        plan: Any = None,
        rows: int = 0,
        num_readers: int = 1,
    ) -> None:
        self.make, self.config, self.plan, self.rows, self.num_readers = make, config, plan, rows, num_readers
        self.log_dir: str | None = None
        self.readers: list[InputReader] = []
        self._worker: ReadingWorker | None = None

    def over(self, workers: Any, policy: Any) -> ReadingWorkers:
        """The workers that read in the place of these.

        Raises:
            ConfigError: there is no reader.
        """
        self.readers = [each for each in self.readers if not each.stopped]
        if not self.readers:
            worker = InputWorker(workers, policy, self.config.get("num_workers") or 0)
            contexts = (IOContext(self.log_dir, self.config, index, worker) for index in range(self.num_readers))
            self.readers = [reader for reader in map(self.make, contexts) if reader is not None]
            if not self.readers:
                raise ConfigError("the function of config key 'input' returned None for every worker")
            local = workers.local_worker()
            self._worker = None if local is None else ReadingWorker(local)
        return ReadingWorkers(workers, self.readers, self.rows, self._worker)

    def __call__(self, workers: Any, policy: Any, *source: Any) -> Iterator[Any]:
        """The plan of a source with replay, or `parallel_rollouts`."""
        plan = self.plan or (type(source[0]).default_plan if source else parallel_rollouts)
        return plan(self.over(workers, policy), policy, *source)


class Output(RLCallback):
    """Hands samples to an `OutputWriter`, one for each worker, as rows.

    Args:
        output: "logdir", a directory, or a function `context -> OutputWriter`.
        config: RLlib's keys.

    Attributes:
        log_dir: the directory of the run.
    """

    def __init__(self, output: Any, config: Mapping[str, Any]) -> None:
        self.output, self.config = output, config
        self.log_dir: str | None = None
        self._writers: dict[int, OutputWriter] = {}
        self._started: dict[tuple[int, str], Tensor] = {}  # by worker and policy: episodes of each lane, int64 [B]

    def on_sample_end(self, *, worker: Any, samples: AnyBatch) -> None:
        """Write a fragment."""
        classic = ClassicWorker(worker)
        index = classic.worker_index
        if index not in self._writers:
            self._writers[index] = self._writer(IOContext(self.log_dir, self.config, index, classic))
        if isinstance(samples, MultiAgentBatch):
            parts = {name: self._rows(worker, name, part) for name, part in samples.items()}
            self._writers[index].write(MultiAgentBatch(parts, samples.env_steps))
        else:
            self._writers[index].write(self._rows(worker, DEFAULT_POLICY, samples))

    def _rows(self, worker: Any, policy_id: str, fragment: SampleBatch) -> SampleBatch:
        """The experience of a fragment as RLlib's rows: with the numbers of episodes, and probabilities of actions.

        Actions of a worker that does not explore have probability 1, as RLlib writes them.
        """
        index = ClassicWorker(worker).worker_index
        kept = fragment.select(*(name for name in WRITTEN if name in fragment)).torch()
        if "eps_id" not in kept:
            before = self._started.get((index, policy_id), torch.zeros(kept.valid.shape[1], dtype=torch.int64))
            kept["eps_id"], self._started[index, policy_id] = episode_ids(kept, before, index)
        rows = ClassicBatch.of(concat_samples(trajectories(kept)))
        if "action_logp" in rows:
            if not worker.explore:
                rows["action_logp"] = np.zeros_like(rows["action_logp"])
            rows["action_prob"] = rows["action_prob"]
        return rows

    def _writer(self, context: IOContext) -> OutputWriter:
        if callable(self.output):
            return self.output(context)  # pyright: ignore[reportReturnType]
        directory = context.log_dir if self.output == "logdir" else str(self.output)
        if self.output == "dataset" and (directory := context.output_config.get("path")) is None:
            raise ConfigError('output="dataset" writes to output_config["path"], which is missing: give a directory')
        sizes = {"output_max_file_size": "max_file_size", "output_compress_columns": "compress_columns"}
        given = {name: self.config[key] for key, name in sizes.items() if self.config.get(key) is not None}
        return JsonWriter(directory, context, **given)
