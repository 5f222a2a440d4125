"""Offline learning: replay without workers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box

from lightning_rl.data.draws import Draw, Draws
from lightning_rl.data.kinds_of_data import kind_of_data
from lightning_rl.data.offline.data_set import DataSet, open_data
from lightning_rl.data.offline.steps import Steps, actions_for
from lightning_rl.data.source import Source
from lightning_rl.data.update_ratio import UpdateRatio
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.models.filters import MeanStdFilter
from lightning_rl.replay.buffer import REPLAY_COLUMNS, ReplayBuffer
from lightning_rl.replay.ring import ROW, SAMPLEABLE, TERMINATED
from lightning_rl.sample_batch import STEP_INPUTS, Fragment, flatten_fragment, map_leaves
from lightning_rl.schema.ranges import Count, Portion, Positive
from lightning_rl.schema.signatures import ImportPath, check_fields
from lightning_rl.seeding import derive_seed
from lightning_rl.spaces import space_difference

__all__ = ["OfflineSource", "learn_from_data"]

STEPS_AT_ONCE = 16  # gradient steps whose rows are drawn together


def learn_from_data(workers: Any, policy: Any, data: OfflineSource) -> Iterator[Any]:
    """Draws of transitions for policies that replay, fragments of whole episodes for those that imitate."""
    while True:
        yield data.draws() if kind_of_data(type(policy)) == "transitions" else data.next_episodes()


@check_fields("data")
@dataclass(kw_only=True, eq=False)
class OfflineSource(Source):
    """Recorded experience takes the place of workers: nothing acts but evaluations.

    Replay algorithms draw rows, as from a replay buffer; policies that imitate (`Policy.imitates`) get fragments of
    whole episodes, each once in every pass over the data. `env_steps` counts as in a run that collects the rows: a
    replay algorithm takes `update_to_data_ratio` gradient steps for each, and one that imitates counts the rows that it
    has read. So `total_env_steps`, schedules and `evaluation.every_env_steps` mean what they mean in other runs.

    Args:
        input: directory of shards (`data.output`, `lightning-rl record`) or one shard, a file (.csv, .parquet, .npz,
            .hdf5, .h5, or RLlib's .json), a list of .json files, or "minari:NAME_OR_DIRECTORY".
        columns: columns of a file: obs, actions, rewards, episode, terminated, truncated, … → the column, or a list of
            columns (`tables.NAMES`); `None`: they have these names.
        actions_normalized: whether the actions of a file are in the space of the policy that learns (in [−1, 1] if
            `normalize_actions`) instead of the environment's; data of a run know it themselves.
        skip_damaged: whether damaged shards are skipped with a warning instead of rejected.
        batch_size: rows per gradient step of a replay algorithm, over all ranks.
        update_to_data_ratio: gradient steps per env step of a replay algorithm, held exactly.
        steps_per_iteration: gradient steps of a replay algorithm per iteration (= Lightning batch).
        rows_per_iteration: minimum number of rows per iteration of an imitation policy, over all ranks, in whole
            episodes; the policy's `passes` and `minibatches` divide them into gradient steps.
        n_step: number of rewards in each n-step return, after which the value of a later observation is multiplied by
            the row's `discounts`.
        top_fraction: fraction of the episodes, those with the highest returns, that are learned from, of each rank's
            share; below 1, episodes that recording cut are left out.
        storage: "memory", or a directory for memory-mapped files, for data that do not fit into memory.
        plan: `plan(workers, policy, data)`, which yields the experience of each iteration; `None`: `learn_from_data`.

    Raises:
        ConfigError: `input` is missing, or a number is out of range.
    """

    gives = ("episodes", "transitions")
    reads_logp = False
    acts = False
    default_plan = staticmethod(learn_from_data)

    input: str | Sequence[str] | None = None
    columns: Mapping[str, Any] | None = None
    actions_normalized: bool = False
    skip_damaged: bool = False
    batch_size: Count = 256
    update_to_data_ratio: Positive = 1.0
    steps_per_iteration: Count = 64
    rows_per_iteration: Count = 4096
    n_step: Count = 1
    top_fraction: Portion = 1.0
    storage: str = "memory"
    plan: ImportPath | None = None
    output: str | None = field(default=None, init=False)  # no worker acts

    def __post_init__(self) -> None:
        """Begin to count.

        Raises:
            ConfigError: `input` is missing.
        """
        super().__post_init__()
        if self.input is None:
            raise ConfigError("data.input is missing: give the directory or the file with the data")
        self.ratio = UpdateRatio(self.update_to_data_ratio)
        self.buffer: Any = None
        self.held_out: list[Steps] = []  # episodes for estimators, which nothing learns from
        self._generator = np.random.default_rng()  # of the draws of an iteration
        self._starts = self._lengths = np.empty(0, np.int64)  # of the episodes in the buffer: first slot, steps
        self._order = np.empty(0, np.int64)  # of the episodes in this pass
        self._passes = self._position = 0  # over the episodes, and in this order

    # -- the DataModule -----------------------------------------------------------------------------------------------
    def prepare(self, policy: Any) -> None:
        """Read the data, once.

        Raises:
            ConfigError: they cannot be read, are of other spaces than the policy, or too few.
        """
        super().prepare(policy)
        if self.buffer is not None:
            return
        if policy.is_recurrent and kind_of_data(type(policy)) == "transitions":
            raise ConfigError(
                f"data=offline draws single rows, and {type(policy).__name__} with this model learns from sequences: "
                "take a model without memory"
            )
        if self.batch_size % self.ranks:
            raise ConfigError(f"data.batch_size={self.batch_size} for {self.ranks} ranks: give a multiple of them")
        assert self.input is not None  # `__post_init__`
        data = open_data(self.input, self.columns, skip_damaged=self.skip_damaged)
        for name in () if data.spec.inferred else ("observation_space", "action_space"):
            if difference := space_difference(getattr(data.spec, name), getattr(policy, name), bounds=False):
                raise ConfigError(
                    f"data.input={data.name}: its {name} is not that of the policy: {difference}; give the environment "
                    "of the data with env=, or env=none for a policy without one"
                )
        space = data.spec.action_space if data.spec.inferred else None
        if isinstance(space, Box) and space == policy.action_space and (fixed := space.low == space.high).any():
            raise ConfigError(
                f"data.input={data.name}: entry {fixed.argmax()} of the actions is {space.low[fixed][0]} in all rows, "
                "so a policy has no choice: leave it out of data.columns, or name the environment with env="
            )
        self._fill(policy, data)
        data.log_damaged()

    def _fill(self, policy: Any, data: DataSet) -> None:
        """Put this rank's share of the episodes into a replay buffer."""
        learner, asked, imitates = policy.learner, policy.replay_columns, kind_of_data(type(policy)) == "episodes"
        columns = (*REPLAY_COLUMNS, *learner.extra_replay_columns())
        learner.updates_filters = not imitates  # which have the statistics of all data from the start
        # Rows of other ranks are never written, so that all ranks together need the memory of the data once.
        sizes = {"n_step": self.n_step, "gamma": policy.gamma, "storage": self.storage}
        self.buffer = ReplayBuffer(data.rows, columns=columns, **sizes)
        episodes, seen, whole = 0, 0, list[np.ndarray]()
        estimators, share = (self.datamodule.evaluation[key] for key in ("estimators", "data"))
        held_out = share if estimators and isinstance(share, int | float) else 0.0
        for part in data.read():
            if data.spec.inferred:
                part = part.of_spaces(policy.observation_space, policy.action_space, data.name)
            if self.actions_normalized and part.acted_with is None:
                part = replace(part, acted_with=policy.action_transform.options)
            if held_out:
                part, held = part.hold_out(seen, held_out)
                self.held_out.append(held)
                seen += len(part.closing_rows) + len(held.closing_rows)
            steps = part if self.ranks == 1 else part.share(episodes, self.datamodule.rank, self.ranks)
            episodes += len(part.closing_rows)
            whole.append(steps.whole[steps.columns[("valid",)][steps.begins]])
            fragment = actions_for(policy.action_transform, steps).fragment()
            if "returns_to_go" in asked:
                fragment["returns_to_go"] = returns_to_go(fragment, policy.gamma)
            self.buffer.mark_discontinuity()
            if not imitates:
                fragment = learner.stored_form(fragment)
            elif isinstance(policy.observation_filter, MeanStdFilter):
                policy.update_filters(flatten_fragment(fragment))
            self.buffer.add(fragment)
        ring, needed = self.buffer.ring, 1 if imitates else self.batch_size // self.ranks
        rows = (ring.flags[: ring.limit] & ROW) != 0
        edges = np.flatnonzero(np.diff(rows, prepend=False, append=False))
        self._starts, self._lengths = edges[::2], edges[1::2] - edges[::2]
        left_out = np.zeros(ring.limit, bool)
        if "next_actions" in asked:  # after a time limit there is none
            left_out |= rows & ((ring.flags[: ring.limit] & TERMINATED) == 0) & ~np.append(rows[1:], False)
        if self.top_fraction < 1:
            left_out |= ~self._keep_best(ring, np.flatnonzero(np.concatenate(whole)))
        ring.flags[: ring.limit][left_out] &= ~np.uint8(SAMPLEABLE)
        ring.rows = int(np.count_nonzero(ring.flags[: ring.limit] >= SAMPLEABLE))
        if len(self.buffer) < needed:
            raise ConfigError(
                f"data.input={data.name} has {len(self.buffer)} steps for rank {self.datamodule.rank}, and "
                f"data.batch_size={self.batch_size} needs {needed} on each: lower it, or record more"
            )

    def _keep_best(self, ring: Any, whole: np.ndarray) -> np.ndarray:
        """Keep `top_fraction` of these episodes; returns which slots hold their steps, bool `[ring.limit]`."""
        starts, lengths = self._starts, self._lengths
        rewards = ring.columns.array("rewards")
        bounds = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        returns = np.array([rewards[start:stop].sum(dtype=np.float64) for start, stop in bounds])
        best = np.argsort(-returns[whole], kind="stable")[: math.ceil(self.top_fraction * len(whole))]
        kept = np.sort(whole[best])
        self._starts, self._lengths = starts[kept], lengths[kept]
        inside = np.zeros(ring.limit + 1, np.int8)
        inside[self._starts], inside[self._starts + self._lengths] = 1, -1
        return inside.cumsum(dtype=np.int8)[:-1].astype(bool)

    def pop_metrics(self) -> dict[str, float]:
        """The steps of the data, and the gradient steps on draws of them."""
        return {"replay/rows": float(self.steps), "replay/updates": float(self.ratio.taken)}

    def state_dict(self) -> dict[str, Any]:
        """The ratio, the place in the data, and their size."""
        place = {"passes": self._passes, "position": self._position, "steps": 0 if self.buffer is None else self.steps}
        return {"ratio": self.ratio.state_dict(), "offline": place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the checkpoint was written.

        Raises:
            CheckpointError: the data have another size than then.
        """
        self.ratio.load_state_dict(state["ratio"])
        place = state["offline"]
        self._passes, self._position = int(place["passes"]), int(place["position"])
        if self.buffer is not None and place["steps"] != self.steps:
            raise CheckpointError(
                f"data.input={self.input} has {self.steps} steps, and had {place['steps']} when the checkpoint was "
                "written: resume with the same data, or start another run with init_from"
            )

    @property
    def steps(self) -> int:
        """Steps in the buffer of this rank."""
        return int(self._lengths.sum())

    # -- what an iteration learns from --------------------------------------------------------------------------------
    def draws(self) -> Draws:
        """The gradient steps of an iteration; env steps are counted, and rows drawn, as it iterates."""
        return Draws(self, self._draw_due(), fragments=0)

    def begin_iteration(self) -> None:
        """Derive a new generator of the draws, so that no generator has to be saved."""
        seed = derive_seed(self.seed, "replay", self.policy.iterations, self.datamodule.rank)
        self._generator = np.random.default_rng(seed)

    @property
    def due(self) -> int:
        """Gradient steps that are due by the ratio and not taken yet."""
        return self.ratio.due(self.policy.env_steps)

    def _draw_due(self) -> Iterator[Draw]:
        if self.policy.learner.counts_env_steps:  # else `PolicyDataSets` has, for all policies
            self.policy.env_steps += self.ratio.env_steps_until(self.policy.env_steps, self.steps_per_iteration)
        most = min(STEPS_AT_ONCE, len(self.buffer) * self.ranks // self.batch_size)
        while steps := min(self.due, most):
            self.ratio.record_steps(steps)
            yield Draw(self.buffer.sample(steps * self.batch_size // self.ranks, self._generator), steps)

    def next_episodes(self) -> Fragment:
        """The next whole episodes of this pass, side by side: a fragment `[T, E, …]` of about `rows_per_iteration`.

        The last one of a pass takes what would be left and is less than half of that, down to fewer rows than there
        are minibatches.
        """
        if self._position == len(self._starts):
            self._passes, self._position = self._passes + 1, 0
        if self._position == 0 or not len(self._order):
            seed = derive_seed(self.seed, "replay", self._passes, self.datamodule.rank)
            self._order = np.random.default_rng(seed).permutation(len(self._starts))
        left = self._order[self._position :]
        rows, wanted = self._lengths[left].cumsum(), -(-self.rows_per_iteration // self.ranks)
        count = int(np.searchsorted(rows, wanted)) + 1
        if count < len(left) and rows[-1] - rows[count - 1] < wanted / 2:
            count = len(left)
        self._position += len(left[:count])
        return self._side_by_side(left[:count])

    def _side_by_side(self, episodes: np.ndarray) -> Fragment:
        """These episodes as the columns of a fragment; shorter ones are padded with `valid=False` rows."""
        ring, starts, lengths = self.buffer.ring, self._starts[episodes], self._lengths[episodes]
        t = np.arange(lengths.max() + 1)[:, None]  # a row more: the observation after the last step
        slots = starts + np.minimum(t, lengths)
        fragment = Fragment()
        for name in ring.columns:
            read = ring.columns.read(name, slots.ravel())
            rows = slots.shape if name in STEP_INPUTS else (len(t) - 1, len(episodes))
            fragment[name] = map_leaves(
                lambda leaf, rows=rows: leaf[: math.prod(rows)].reshape(*rows, *leaf.shape[1:]), read
            )
        valid, flags = t[:-1] < lengths, ring.flags[slots[:-1]]
        terminated, last = valid & ((flags & TERMINATED) != 0), t[:-1] == lengths - 1
        fragment["valid"], fragment["terminated"] = torch.from_numpy(valid), torch.from_numpy(terminated)
        fragment["truncated"] = torch.from_numpy(last & ~terminated)  # recording may have stopped there
        fragment["t"] = torch.from_numpy(np.broadcast_to(t[:-1], valid.shape).astype(np.int32))
        return fragment


def returns_to_go(fragment: Fragment, gamma: float) -> torch.Tensor:
    """Discounted sums of the rewards from each row to its episode's last, float32 `[R, 1]`; no value after a cut."""
    rewards, valid = fragment.rewards[:, 0].double().numpy(), fragment.valid[:, 0].numpy()
    returns, after = np.zeros(len(rewards)), 0.0
    for row in range(len(rewards) - 1, -1, -1):
        after = returns[row] = rewards[row] + gamma * after if valid[row] else 0.0
    return torch.from_numpy(returns.astype(np.float32))[:, None]
