"""The DataModule of replay: the buffer, the ratio of learning to acting, and the draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Self

import numpy as np
import torch
from torch import Tensor

from lightning_rl.data.datamodule import RolloutDataModule
from lightning_rl.data.device_transfer import to_device
from lightning_rl.data.kinds_of_data import check_kind_of_data
from lightning_rl.data.plans import NOT_READY, Draw, concurrently, for_each, parallel_rollouts, record_times
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
from lightning_rl.replay.sizes import check_replay_sizes, check_sequence_sizes
from lightning_rl.replay.storage import check_fits_memory, estimated_bytes
from lightning_rl.rollouts.logical_workers import logical_workers
from lightning_rl.sample_batch import SampleBatch, is_fragment
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import (
    Count,
    Positive,
    Probability,
    ProbabilitySchedule,
    Range,
    Seed,
    Whole,
    WholeEnvSteps,
)
from lightning_rl.schema.signatures import ImportPath
from lightning_rl.seeding import derive_seed

__all__ = ["ReplayDataModule", "ReplayDraws", "store_and_replay"]

ENV_STEPS_OF_ITERATION = 32  # about; Lightning needs as long for a batch as a few steps of acting and learning take
STEPS_AT_ONCE = 16  # gradient steps whose rows are drawn together if learning does not change the draws


Intensity = Annotated[float, Range(0, 10_000, above_low=True)]  # gradient steps per env step


def store_and_replay(workers: Any, policy: Any, replay: ReplayDataModule) -> Iterator[SampleBatch | Draw]:
    """Act with the newest weights and store the fragment; then draw until no gradient step is due; and again."""
    fragments = record_times(parallel_rollouts(workers, policy), replay.record_time)
    store = for_each(fragments, replay.store)
    return concurrently([store, replay.draws_due()], round_robin_weights=[1, "*"])


class ReplayDraws:
    """The draws for the gradient steps of one iteration; iterating over them also acts and stores, as the plan says.

    Args:
        plan: gives stored fragments and draws in turn.
        replay: the DataModule, which counts the gradient steps that are due.
        fragments: how many fragments of the plan make the iteration.
    """

    def __init__(self, plan: Iterator[SampleBatch | Draw], replay: ReplayDataModule, fragments: int) -> None:
        self.plan, self.replay, self.fragments = plan, replay, fragments
        self.device = torch.device("cpu")

    def to(self, device: torch.device | str, **keywords: Any) -> Self:
        """Give rows on `device`; Lightning calls this."""
        self.device = torch.device(device)
        return self

    def __iter__(self) -> Iterator[Draw]:
        self.replay.begin_iteration()
        left, on_cpu = self.fragments, self.device.type == "cpu"
        for item in self.plan:
            draw = item if isinstance(item, Draw) else Draw(item)
            if not isinstance(draw.rows, SampleBatch) or is_fragment(draw.rows):  # stored here, or in a shard
                left -= 1
            else:
                yield draw if on_cpu else draw._replace(rows=to_device(draw.rows, self.device))
            if left <= 0 and self.replay.due <= 0:
                return

    def update_priorities(self, batch: SampleBatch, td_errors: Tensor) -> None:
        """Set the priorities of a drawn batch's rows by their TD errors `[N]`."""
        self.replay.update_priorities(batch, td_errors)


class ReplayDataModule(RolloutDataModule):
    """Rollouts go into a replay buffer, and training batches come from it, at a fixed ratio.

    Args:
        capacity: environment steps that the buffer holds, over all ranks.
        batch_size: rows of one gradient step, over all ranks.
        learning_starts: environment steps before the first gradient step; a share such as "1%" is one of a run's
            `total_env_steps`.
        training_intensity: gradient steps per environment step after that, held exactly.
        fragments_per_iteration: fragments of the workers in one iteration (= Lightning batch); the gradient steps that
            they make due are taken between them, so the number does not change what is learned. A larger number
            amortises Lightning's work for a batch; `None`: as many as hold about 32 environment steps.
        n_step: rewards summed before the value of a later observation, times the row's `discounts`, stands for the
            rest; above 1 a loss that multiplies by γ instead is wrong.
        prioritized: draw rows by their TD error instead of uniformly (`PrioritizedReplayBuffer`).
        priority_alpha, priority_beta, priority_eps: of that.
        priority_ranked: by the rank of the error instead of its size.
        sequence_length: for models with memory, whose `batch_size` counts sequences: rows of one that are trained.
        burn_in: rows before them from which the model only takes its state.
        sequence_stride: steps between the starts of two sequences; `None`: half of `sequence_length`, so that
            neighbours overlap (Kapturowski et al. 2019).
        storage: "memory", or a directory for memory-mapped files, for buffers larger than the memory.
        save_replay: whether checkpoints hold the buffer; without it a resumed run waits for
            `learning_starts` steps again.
        plan: `plan(workers, policy, replay)`, which gives stored fragments and draws in turn; `None`:
            `store_and_replay`.
        env, workers, evaluation, seed, callbacks: as `RolloutDataModule`.

    Raises:
        ConfigError: a number is out of range, or two do not fit together.
    """

    feeds = "transitions"
    default_plan = staticmethod(store_and_replay)
    reads_logp = False

    def __init__(
        self,
        env: Any,
        workers: Any = None,
        evaluation: Any = None,
        *,
        capacity: Count = 100_000,
        batch_size: Count = 256,
        learning_starts: WholeEnvSteps = 1000,
        training_intensity: Intensity = 1.0,
        fragments_per_iteration: Count | None = None,
        n_step: Count = 1,
        prioritized: bool = False,
        priority_alpha: Probability = 0.6,
        priority_beta: ProbabilitySchedule = 0.4,
        priority_eps: Positive = 1e-6,
        priority_ranked: bool = False,
        sequence_length: Count = 20,
        burn_in: Whole = 0,
        sequence_stride: Count | None = None,
        storage: str = "memory",
        save_replay: bool = True,
        plan: ImportPath | None = None,
        seed: Seed = 0,
        callbacks: Any = (),
    ) -> None:
        super().__init__(
            env,
            workers,
            evaluation,
            plan=plan,
            seed=seed,
            callbacks=callbacks,
        )
        starts: int = to_env_steps(learning_starts)
        check_replay_sizes(capacity, batch_size, starts, n_step)
        self.capacity, self.batch_size, self.n_step = capacity, batch_size, n_step
        self._fragments, self.storage, self.save_replay = fragments_per_iteration, storage, save_replay
        self.ratio = UpdateRatio(training_intensity, starts)
        self.prioritized = prioritized
        self.priorities: dict[str, Any] = {
            "alpha": priority_alpha,
            "beta": priority_beta,
            "eps": priority_eps,
            "ranked": priority_ranked,
        }
        stride = max(1, sequence_length // 2) if sequence_stride is None else sequence_stride
        self.sequences: dict[str, Any] = {"length": sequence_length, "burn_in": burn_in, "stride": stride}
        self.replay: Any = None  # a ReplayBuffer, or ReplayShards
        self._counting = False  # whether the ratio has its offset; not before an empty buffer is filled
        self._ratio_just_loaded = False  # from a checkpoint
        self.rows_differ_by_rank = False  # so that ranks have to agree on how many gradient steps they have rows for
        self._generator = np.random.default_rng(derive_seed(seed, "replay"))

    # -- Lightning ----------------------------------------------------------------------------------------------------
    def setup(self, stage: str) -> None:
        """Make buffer and workers, once; a buffer that does not fit is refused before a worker starts."""
        if stage == "fit" and self.replay is None:
            self.replay = self.make_buffer(self._policy())
        super().setup(stage)

    def make_buffer(self, policy: Any) -> ReplayBuffer:
        """The buffer of this rank; a subclass may return another kind.

        Raises:
            ConfigError: the policy does not learn from replay, the rows do not divide by the ranks, or the buffer does
                not fit into the memory.
        """
        check_kind_of_data(type(policy), type(self))
        ranks = self.ranks
        if self.batch_size % ranks:
            raise ConfigError(f"data.batch_size={self.batch_size} for {ranks} ranks: give a multiple of {ranks}")
        state_bytes = sum(4 * part.numel() for part in policy.model.get_initial_state())
        needed = estimated_bytes(
            policy.observation_space, policy.action_space, self.capacity, extra_row_bytes=state_bytes
        )
        check_fits_memory(needed, self.storage, self.capacity)
        keywords: dict[str, Any] = {"n_step": self.n_step, "gamma": policy.gamma, "storage": self.storage}
        keywords["parts"] = self.parts
        keywords |= self.priorities if self.prioritized else {}
        keywords["columns"] = (*REPLAY_COLUMNS, *policy.learner.extra_replay_columns())
        if policy.is_recurrent:
            keywords["columns"] = (*SEQUENCE_COLUMNS, *policy.learner.extra_replay_columns())
            check_sequence_sizes(self.capacity // self.parts, self.batch_size // ranks, **self.sequences)
            sequences = PrioritizedSequenceReplayBuffer if self.prioritized else SequenceReplayBuffer
            return sequences(self.capacity // self.parts, **keywords, **self.sequences)
        return self.row_buffer(policy, **keywords)

    def row_buffer(self, policy: Any, **keywords: Any) -> ReplayBuffer:
        """A buffer of single rows, with these `keywords` of `ReplayBuffer`."""
        return (PrioritizedReplayBuffer if self.prioritized else ReplayBuffer)(self.capacity // self.parts, **keywords)

    def training_batches(self, policy: Any) -> Iterator[ReplayDraws]:
        """The items of the training dataset: an iteration's part of the plan, with its gradient steps."""
        plan = self.plan(self.workers, policy, self)
        while True:
            yield ReplayDraws(plan, self, self.fragments_per_iteration)

    def state_dict(self) -> dict[str, Any]:
        """The state of the rollouts, the ratio, and the buffer."""
        state = {**super().state_dict(), "ratio": self.ratio.state_dict()}
        if self.save_replay and self.replay is not None:
            parts = gather_objects_on_first(self.replay.state_dict())
            state["replay"] = parts[0] if parts is not None and len(parts) == 1 else parts  # of every rank
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where the checkpoint was written.

        Raises:
            CheckpointError: it holds no buffer, or one of other spaces or another size.
        """
        super().load_state_dict(state_dict)
        self.ratio.load_state_dict(state_dict["ratio"])
        self._counting, self._ratio_just_loaded = self.save_replay, True
        if self.replay is None or not self.save_replay:
            return
        if "replay" not in state_dict:
            raise CheckpointError(
                "the checkpoint holds no replay buffer (it was written with data.save_replay=false): resume with "
                "data.save_replay=false to fill a new one"
            )
        parts = state_dict["replay"] if isinstance(state_dict["replay"], list) else [state_dict["replay"]]
        if len(parts) != self.ranks:
            raise CheckpointError(
                f"the checkpoint holds the replay buffers of {len(parts)} ranks, and there are {self.ranks}: resume "
                "with as many, or with data.save_replay=false to fill new ones"
            )
        self.replay.load_state_dict(parts[self._rank])

    def force_reset(self) -> None:
        """Let the next fragments start with a seeded reset; they continue no stored fragment."""
        super().force_reset()
        if self.replay is not None:
            self.replay.mark_discontinuity()

    # -- acting and drawing -------------------------------------------------------------------------------------------
    @property
    def fragments_per_iteration(self) -> int:
        """How many fragments of all workers an iteration takes."""
        if self._fragments is not None:
            return self._fragments
        environments = logical_workers(self._logical, self.num_workers, self.ranks) * self.worker_options["num_envs"]
        return max(1, ENV_STEPS_OF_ITERATION // (environments * self.worker_options.get("fragment_length", 128)))

    @property
    def ranks(self) -> int:
        """How many processes learn."""
        return 1 if self.trainer is None else self.trainer.world_size

    @property
    def parts(self) -> int:
        """How many buffers share the capacity."""
        return self.ranks

    @property
    def _rank(self) -> int:
        return 0 if self.trainer is None else self.trainer.global_rank

    @property
    def due(self) -> int:
        """Gradient steps that are due by the ratio and not taken yet."""
        return self.ratio.due(self._policy().env_steps)

    def store(self, fragment: SampleBatch) -> SampleBatch:
        """Put a fragment into the buffer, and count its environment steps."""
        assert self.replay is not None
        self.replay.add(self._policy().learner.take_experience(fragment))
        return fragment

    def draw(self, steps: int = 1) -> SampleBatch:
        """Draw the rows of so many gradient steps, one batch after the other; the steps count as taken."""
        assert self.replay is not None
        self.ratio.record_steps(steps)
        if isinstance(self.replay, PrioritizedReplayBuffer):
            self.replay.env_steps = self._policy().env_steps
        return self.replay.sample(steps * self.batch_size // self.ranks, self._generator)

    def update_priorities(self, batch: SampleBatch, td_errors: Tensor) -> None:
        """Set the priorities of a drawn batch's rows by their TD errors `[N]`."""
        if isinstance(self.replay, PrioritizedReplayBuffer):
            self.replay.update_priorities(batch.batch_indexes, td_errors)

    def pop_iteration_metrics(self) -> dict[str, float]:
        """The metrics of the rollouts, the rows in the buffer, and the gradient steps."""
        rows = 0 if self.replay is None else len(self.replay)
        replayed = {"replay/rows": float(rows), "replay/updates": float(self.ratio.taken)}
        return {**super().pop_iteration_metrics(), **replayed}

    def begin_iteration(self) -> None:
        """Derive a new generator of the draws, so that no generator has to be saved."""
        if not self._counting and len(self.replay) == 0:  # steps of a policy that has learned before do not count
            self.ratio.start_again(self._policy().env_steps)
        if self._ratio_just_loaded:
            self.ratio.settle(self._policy().env_steps)
        self._counting, self._ratio_just_loaded = True, False
        self._generator = np.random.default_rng(derive_seed(self.seed, "replay", self._policy().iterations, self._rank))

    def draws_due(self) -> Iterator[Draw]:
        """Draws while gradient steps are due, without end; NOT_READY in between."""
        # Rows with priorities are drawn step by step, as each step changes the priorities; sequences differ in length.
        most = STEPS_AT_ONCE if type(self.replay) is ReplayBuffer else 1
        while True:
            enough_for = len(self.replay) * self.ranks // self.batch_size
            if self.rows_differ_by_rank:
                enough_for = least_over_ranks(enough_for)
            steps = min(self.due, most, enough_for)
            # There are fewer sequences than a batch has: wait for more, unless the buffer is full or there are ranks.
            waits = self.rows_differ_by_rank or self.ranks == 1
            if steps == 0 and self.due > 0 and not (waits and self.replay.added < self.replay.capacity):
                steps = 1  # the draw raises an error that says what is wrong
            yield Draw(self.draw(steps), steps) if steps > 0 else NOT_READY
