"""Replay: the buffer of a policy, the ratio of learning to acting, and the draws."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from lightning_rl.data.draws import Draw, Draws
from lightning_rl.data.plans import parallel_rollouts, record_times
from lightning_rl.data.source import Source
from lightning_rl.data.update_ratio import UpdateRatio
from lightning_rl.distributed import gather_objects_on_first, least_over_ranks
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.replay.buffer import REPLAY_COLUMNS, ReplayBuffer
from lightning_rl.replay.prioritized import PrioritizedReplayBuffer
from lightning_rl.replay.sequences import (
    SEQUENCE_COLUMNS,
    PrioritizedSequenceReplayBuffer,
    SequenceReplayBuffer,
)
from lightning_rl.replay.storage import check_fits_memory, estimated_bytes
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import (
    Count,
    Positive,
    Probability,
    ProbabilitySchedule,
    Range,
    Whole,
    WholeEnvSteps,
)
from lightning_rl.schema.signatures import check_fields
from lightning_rl.seeding import derive_seed

__all__ = ["ReplayFeed", "store_and_replay"]

ENV_STEPS_OF_ITERATION = 32  # about; Lightning needs as long for a batch as a few steps of acting and learning take
STEPS_AT_ONCE = 16  # gradient steps whose rows are drawn together if learning does not change the draws


Intensity = Annotated[float, Range(0, 10_000, above_low=True)]  # gradient steps per env step


def store_and_replay(workers: Any, policy: Any, replay: ReplayFeed) -> Iterator[SampleBatch | Draw]:
    """Act with the newest weights and store the fragment; then draw until no gradient step is due; and again."""
    for fragment in record_times(parallel_rollouts(workers, policy), replay.record_time):
        yield from replay.store_and_draw(fragment)


@check_fields("data")
@dataclass(kw_only=True, eq=False)
class ReplayFeed(Source):
    """Rollouts go into a replay buffer, and training batches come from it, at a fixed ratio.

    The source of a single agent, whose plan acts within the iterations; or the feed of one of several policies
    (`PolicyFeeds`), whose fragments another source collects.

    Args:
        capacity: env steps that the buffer stores, over all ranks.
        batch_size: rows per gradient step, over all ranks.
        learning_starts: env steps before the first gradient step; a fraction such as "1%" refers to a run's
            `total_env_steps`.
        update_to_data_ratio: gradient steps per env step after that, held exactly.
        fragments_per_iteration: fragments of the workers per iteration (= Lightning batch). The gradient steps that
            they make due are taken between them, so the number does not change what is learned; a larger number reduces
            Lightning's overhead. `None`: about 32 env steps.
        n_step: number of rewards in each n-step return, after which the value of a later observation is multiplied by
            the row's `discounts`; above 1, losses must not multiply by γ instead.
        prioritized: sample rows by their TD error instead of uniformly (`PrioritizedReplayBuffer`).
        priority_alpha, priority_beta, priority_eps: parameters of prioritized replay.
        priority_ranked: use the rank of the error instead of its size.
        sequence_length: trained rows per sequence of a recurrent model, whose `batch_size` counts sequences.
        burn_in: rows before each sequence that only warm up the recurrent state.
        sequence_stride: steps between the starts of consecutive sequences; `None`: half of `sequence_length`, so that
            neighbors overlap (Kapturowski et al. 2019).
        storage: "memory", or a directory for memory-mapped files, for buffers that do not fit into memory.
        save_replay: whether checkpoints include the buffer; without it, a resumed run waits for `learning_starts` steps
            again.
        plan: `plan(workers, policy, replay)`, which yields stored fragments and batches in turn; `None`:
            `store_and_replay`.

    Raises:
        ConfigError: a number is out of range, or two do not fit together.
    """

    gives = ("transitions",)
    default_plan = staticmethod(store_and_replay)
    reads_logp = False

    capacity: Count = 100_000
    batch_size: Count = 256
    learning_starts: WholeEnvSteps = 1000
    update_to_data_ratio: Intensity = 1.0
    fragments_per_iteration: Count | None = None
    n_step: Count = 1
    prioritized: bool = False
    priority_alpha: Probability = 0.6
    priority_beta: ProbabilitySchedule = 0.4
    priority_eps: Positive = 1e-6
    priority_ranked: bool = False
    sequence_length: Count = 20
    burn_in: Whole = 0
    sequence_stride: Count | None = None
    storage: str = "memory"
    save_replay: bool = True

    def __post_init__(self) -> None:
        """Begin to count."""
        super().__post_init__()
        starts: int = to_env_steps(self.learning_starts)
        capacity, batch_size = self.capacity, self.batch_size
        if self.n_step >= capacity:
            raise ConfigError(
                f"data.n_step={self.n_step} in a buffer of data.capacity={capacity} rows: raise the capacity"
            )
        if 2 * batch_size > capacity:  # an end takes the room of a row, so episodes of one step fill half of it
            much = "more than" if batch_size > capacity else "more than half of"
            raise ConfigError(
                f"data.batch_size={batch_size} is {much} data.capacity={capacity} rows, and ends of episodes take room "
                f"as well: raise the capacity to {2 * batch_size}, or lower the batch size"
            )
        if starts < batch_size:
            raise ConfigError(
                f"data.learning_starts={starts} is below data.batch_size={batch_size}: the first batch needs as many "
                "rows as it has; raise learning_starts"
            )
        self.ratio = UpdateRatio(self.update_to_data_ratio, starts)
        self.buffer: Any = None  # a ReplayBuffer, or ReplayShards
        self._counting = False  # whether the ratio has its offset; not before an empty buffer is filled
        self._ratio_just_loaded = False  # from a checkpoint
        self.rows_differ_by_rank = False  # so that ranks have to agree on how many gradient steps they have rows for
        self._generator = np.random.default_rng()  # of the draws of an iteration

    # -- the DataModule -----------------------------------------------------------------------------------------------
    def prepare(self, policy: Any) -> None:
        """Make the buffer, once; one that does not fit is refused before a worker starts."""
        super().prepare(policy)
        if self.buffer is None:
            warn_of_unused_postprocessing(policy)
            self.buffer = self.make_buffer(policy)

    def make_buffer(self, policy: Any) -> ReplayBuffer:
        """The buffer of this rank; a subclass may return another kind.

        Raises:
            ConfigError: the rows do not divide by the ranks, or the buffer does not fit into the memory.
        """
        ranks = self.ranks
        if self.batch_size % ranks:
            raise ConfigError(f"data.batch_size={self.batch_size} for {ranks} ranks: give a multiple of {ranks}")
        state_bytes = sum(4 * part.numel() for part in policy.model.get_initial_state())
        needed = estimated_bytes(
            policy.observation_space, policy.action_space, self.capacity, extra_row_bytes=state_bytes
        )
        check_fits_memory(needed, self.storage, self.capacity)
        capacity, columns = self.capacity // self.parts, policy.learner.extra_replay_columns()
        keywords: dict[str, Any] = {"n_step": self.n_step, "gamma": policy.gamma, "storage": self.storage}
        keywords["parts"] = self.parts
        if self.prioritized:
            keywords |= {"alpha": self.priority_alpha, "beta": self.priority_beta}
            keywords |= {"eps": self.priority_eps, "ranked": self.priority_ranked}
        if not policy.is_recurrent:
            return self.row_buffer(policy, capacity, columns=(*REPLAY_COLUMNS, *columns), **keywords)
        stride = max(1, self.sequence_length // 2) if self.sequence_stride is None else self.sequence_stride
        rows = self.batch_size // ranks * stride  # burn-in rows belong to other sequences as well
        if rows > capacity:
            raise ConfigError(
                f"a batch of {self.batch_size // ranks} sequences that start {stride} rows apart (data.batch_size, "
                f"data.sequence_length={self.sequence_length}, data.sequence_stride={stride}) needs a buffer of {rows} "
                f"rows; data.capacity leaves {capacity}: raise it, or lower data.batch_size"
            )
        sequences = {"length": self.sequence_length, "burn_in": self.burn_in, "stride": stride}
        kind = PrioritizedSequenceReplayBuffer if self.prioritized else SequenceReplayBuffer
        return kind(capacity, columns=(*SEQUENCE_COLUMNS, *columns), **keywords, **sequences)

    def row_buffer(self, policy: Any, capacity: int, **keywords: Any) -> ReplayBuffer:
        """A buffer of single rows, with these `keywords` of `ReplayBuffer`."""
        return (PrioritizedReplayBuffer if self.prioritized else ReplayBuffer)(capacity, **keywords)

    def iterations(self, policy: Any) -> Iterator[Draws]:
        """Parts of the plan, which acts, with the gradient steps that are due."""
        plan, fragments = self.run_plan(self.workers, policy, self), self.fragments_per_iteration
        if fragments is None:
            length = self.datamodule.worker_options.get("fragment_length", 128)
            fragments = max(1, ENV_STEPS_OF_ITERATION // (self.datamodule.running_episodes * length))
        while True:
            yield Draws(self, plan, fragments)

    def state_dict(self) -> dict[str, Any]:
        """The ratio, and the buffer."""
        state: dict[str, Any] = {"ratio": self.ratio.state_dict()}
        if self.save_replay and self.buffer is not None:
            parts = gather_objects_on_first(self.buffer.state_dict())
            state["replay"] = parts[0] if parts is not None and len(parts) == 1 else parts  # of every rank
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the checkpoint was written.

        Raises:
            CheckpointError: it holds no buffer, or one of other spaces or another size.
        """
        self.ratio.load_state_dict(state["ratio"])
        self._counting, self._ratio_just_loaded = self.save_replay, True
        if self.buffer is None or not self.save_replay:
            return
        if "replay" not in state:
            raise CheckpointError(
                "the checkpoint holds no replay buffer (it was written with data.save_replay=false): resume with "
                "data.save_replay=false to fill a new one"
            )
        parts = state["replay"] if isinstance(state["replay"], list) else [state["replay"]]
        if len(parts) != self.ranks:
            raise CheckpointError(
                f"the checkpoint holds the replay buffers of {len(parts)} ranks, and there are {self.ranks}: resume "
                "with as many, or with data.save_replay=false to fill new ones"
            )
        self.buffer.load_state_dict(parts[self.datamodule.rank])

    def force_reset(self) -> None:
        """Let the next fragments continue no stored one."""
        if self.buffer is not None:
            self.buffer.mark_discontinuity()

    # -- acting and drawing -------------------------------------------------------------------------------------------
    @property
    def parts(self) -> int:
        """How many buffers share the capacity."""
        return self.ranks

    @property
    def due(self) -> int:
        """Gradient steps that are due by the ratio and not taken yet."""
        return self.ratio.due(self.policy.env_steps)

    def store_and_draw(self, fragment: Any) -> Iterator[Any]:
        """The stored fragment, then draws until no gradient step is due, or there are too few rows for one."""
        yield self.store(fragment)
        yield from self.draws_due()

    def store(self, fragment: SampleBatch) -> SampleBatch:
        """Put a fragment into the buffer, and count its environment steps."""
        self.buffer.add(self.policy.learner.take_experience(fragment))
        return fragment

    def draw(self, steps: int = 1) -> SampleBatch:
        """Draw the rows of that many gradient steps, one batch after the other; the steps count as taken."""
        self.ratio.record_steps(steps)
        self.buffer.env_steps = self.policy.env_steps
        return self.buffer.sample(steps * self.batch_size // self.ranks, self._generator)

    def update_priorities(self, batch_indexes: Any, td_errors: Any) -> None:
        """Set the priorities of drawn rows by their TD errors `[N]`."""
        self.buffer.update_priorities(batch_indexes, td_errors)

    def pop_metrics(self) -> dict[str, float]:
        """The rows in the buffer, and the gradient steps on its draws."""
        own = {"replay/rows": float(len(self.buffer)), "replay/updates": float(self.ratio.taken)}
        return {**super().pop_metrics(), **own}

    def begin_iteration(self) -> None:
        """Derive a new generator of the draws, so that no generator has to be saved."""
        if not self._counting and len(self.buffer) == 0:  # steps of a policy that has learned before do not count
            self.ratio.start_again(self.policy.env_steps)
        if self._ratio_just_loaded:
            self.ratio.settle(self.policy.env_steps)
        self._counting, self._ratio_just_loaded = True, False
        seed = derive_seed(self.seed, "replay", self.policy.iterations, self.datamodule.rank)
        self._generator = np.random.default_rng(seed)

    def draws_due(self) -> Iterator[Draw]:
        """Draws while gradient steps are due, and there are rows for them."""
        # Rows with priorities are drawn step by step, as each step changes the priorities; sequences differ in length.
        most = STEPS_AT_ONCE if type(self.buffer) is ReplayBuffer else 1
        while True:
            enough_for = len(self.buffer) * self.ranks // self.batch_size
            if self.rows_differ_by_rank:
                enough_for = least_over_ranks(enough_for)
            steps = min(self.due, most, enough_for)
            # There are fewer sequences than a batch has: wait for more, unless the buffer is full or there are ranks.
            waits = self.rows_differ_by_rank or self.ranks == 1
            if steps == 0 and self.due > 0 and not (waits and self.buffer.added < self.buffer.capacity):
                steps = 1  # the draw raises an error that says what is wrong
            if steps <= 0:
                return
            yield Draw(self.draw(steps), steps)


def warn_of_unused_postprocessing(policy: Any) -> None:
    """Say that a user's `postprocess_trajectory` does not change what a replay buffer stores."""
    if not policy.postprocess_trajectory.__module__.startswith("lightning_rl."):
        warnings.warn(
            f"{type(policy).__name__}.postprocess_trajectory is not called: a replay buffer stores fragments as they "
            "were recorded. A callback's on_postprocess_trajectory may change what is stored, and replay_columns and "
            "extra_action_out add columns",
            stacklevel=3,
        )
