"""The iteration of learning, the same for all kinds of experience."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.distributed import all_gather_objects, sum_over_ranks
from lightning_rl.errors import ConfigError, NonFiniteError, short_repr
from lightning_rl.fast_torch import in_eval_mode
from lightning_rl.learning.custom_losses import CustomLosses
from lightning_rl.learning.gradients import GradientUpdate, GradientUpdates, StatisticsRecorder, as_tensor
from lightning_rl.learning.metrics import Metrics, as_tensors, means
from lightning_rl.learning.policy_optimizer import PolicyOptimizer, flush_denormals
from lightning_rl.learning.protocols import step_by_batch, step_by_gradients, step_by_loss
from lightning_rl.models.filters import MeanStdFilter
from lightning_rl.models.previous_step import previous_columns
from lightning_rl.sample_batch import (
    Fragment,
    SampleBatch,
    count_new_env_steps,
    env_steps,
    flatten_fragment,
    new_rows,
    typed,
)
from lightning_rl.schema.signatures import call_with_accepted_args
from lightning_rl.seeding import derive_seed

__all__ = ["LOG_EVERY", "Learner"]

MINIBATCH_ROWS = 64  # rows of a minibatch if `minibatches` is None
TakeStep = Callable[[Any, SampleBatch], tuple[Metrics, bool]]  # one of the functions `step_by_…`
LOG_EVERY = 16  # on replayed rows, each 16th gradient step reports the metrics that cost extra operations


@dataclass(slots=True)
class Iteration:
    """The data of the current iteration that `update` and the generator of its steps share.

    Attributes:
        shuffle: the random generator that shuffles minibatches.
        steps: metrics of each gradient step so far.
        rare: for metrics that not every step reports, the number of last reports to average; `None`: all.
        batch: the rows that `on_learn_on_batch` gets; `None`: the hook is not called.
        numbers: metrics of the whole batch.
        wait_seconds: seconds that the steps waited for experience.
    """

    shuffle: torch.Generator
    steps: list[Metrics] = field(default_factory=list)
    rare: int | None = None
    batch: SampleBatch | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    wait_seconds: float = 0.0


class Learner:
    """Takes a policy's gradient steps on experience: rollouts, replayed rows or gradient updates.

    `update` runs every iteration, whatever the experience; each kind has a generator `_steps_…` of its gradient steps.
    One step is taken as the policy's class defines: by `loss`, or by gradients or `learn_on_batch` of its own.

    Args:
        policy: defines `loss`, and holds the counters `env_steps`, `iterations` and `gradient_steps`.
        optimizer: the optimizer of its parameters; `None` for a policy written from scratch, which learns by its own
            methods.
        custom_losses: extra losses that are added to the policy's own.

    Attributes:
        td_errors: the TD errors of the last gradient step's rows `[N]`, if the loss gives them.
        updates_filters: whether the observation filter learns from the rows of gradient steps; False where the source
            of data has set its statistics.
        counts_env_steps: whether the learner counts environment steps; False for one of several policies in the same
            environments, whose steps the `PolicySet` counts.
        other_agent_batches: while one of several policies learns: policy id → (policy, its fragment in the same
            environments), which `postprocess_trajectory` gets; `None` for the policy of a single agent.
    """

    def __init__(
        self, policy: Any, optimizer: PolicyOptimizer | None = None, custom_losses: CustomLosses | None = None
    ) -> None:
        self.policy = policy
        self.custom_losses = CustomLosses(()) if custom_losses is None else custom_losses
        self._optimizer = optimizer
        self._iteration: Iteration | None = None  # the one that is under way
        by_gradients = not policy.overridden.isdisjoint(("compute_gradients", "apply_gradients"))
        self._gradient_step: TakeStep = step_by_gradients if by_gradients else step_by_loss
        self._class_step: TakeStep = step_by_batch if "learn_on_batch" in policy.overridden else self._gradient_step
        self.td_errors: Tensor | None = None
        self.updates_filters = self.counts_env_steps = True
        self.other_agent_batches: Mapping[str, tuple[Any, SampleBatch]] | None = None

    @contextmanager
    def beside(self, others: Mapping[str, tuple[Any, SampleBatch]] | None) -> Iterator[None]:
        """A block in which `postprocess_trajectory` gets these `other_agent_batches`."""
        self.other_agent_batches = others
        try:
            yield
        finally:
            self.other_agent_batches = None

    @property
    def optimizer(self) -> PolicyOptimizer:
        """The optimizer of the policy's parameters.

        Raises:
            ConfigError: the policy is written from scratch and has none.
        """
        if self._optimizer is None:
            raise ConfigError(
                f"{type(self.policy).__name__} computes no gradients: define compute_gradients(batch) -> (gradients, "
                "metrics) and apply_gradients(gradients)"
            )
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: PolicyOptimizer) -> None:
        self._optimizer = optimizer

    def _priorities(self) -> Tensor:
        if self.td_errors is None:
            raise ConfigError(
                f"{type(self.policy).__name__}.loss gives no metric td_errors, of which rows get their priorities: "
                "return it among the metrics, or set data.prioritized=false and data.initial_priorities=false"
            )
        return self.td_errors

    # -- an iteration -------------------------------------------------------------------------------------------------
    def update(self, experience: Any, take_step: TakeStep | None = None) -> dict[str, float]:
        """One iteration: train mode and seeds, the learning rate, gradient steps, counters, metrics and hooks.

        Args:
            experience: a fragment `[T, B, …]` or rows `[N, …]`, for `passes` sweeps of `minibatches` gradient steps;
                draws of a replay buffer, `GradientUpdates` of workers, or a plan's own function, which is called.
            take_step: how a gradient step is taken; `None`: as the class defines.

        Returns:
            Means of the metrics over the gradient steps; only the learning rate if there were no steps.

        Raises:
            NonFiniteError: a loss or gradient is NaN or infinite; that step was not taken.
        """
        policy, started = self.policy, time.perf_counter()
        if callable(experience):
            experience()
            return policy.iteration_metrics
        steps: Callable[..., Iterator[Metrics]]
        if isinstance(experience, SampleBatch):
            steps, experience = self._steps_on_batch, typed(experience)
            new = isinstance(experience, Fragment) or not policy.off_policy
            if self.counts_env_steps and new:  # else `take_experience` has counted them
                policy.progress.env_steps += sum_over_ranks(count_new_env_steps(experience))
        else:
            steps = self._steps_on_updates if isinstance(experience, GradientUpdates) else self._steps_on_draws
        iteration = self._iteration = Iteration(self.enter_training())
        if self._optimizer is not None:
            self._optimizer.set_lr(policy.env_steps)
        try:
            with flush_denormals():
                for step in steps(iteration, experience, take_step or self._class_step):
                    iteration.steps.append(step)
        finally:
            self._iteration = None
            policy.log_extra = True
        metrics: dict[str, float] = {}
        for name, value in policy.exploration.info(policy.env_steps).items():
            metrics[f"exploration/{name}"] = value
        metrics |= {**means(iteration.steps, iteration.rare), **iteration.numbers}
        if self._optimizer is not None:
            metrics["lr"] = self._optimizer.rate
        policy.iteration_metrics = metrics
        policy.after_iteration(metrics)
        policy.progress.iterations += 1
        if iteration.batch is not None:
            self.call_hooks("on_learn_on_batch", train_batch=iteration.batch, result=metrics)
        policy.learn_seconds = time.perf_counter() - started - iteration.wait_seconds
        return metrics

    def learn_on_batch(self, batch: SampleBatch) -> dict[str, float]:
        """Learn from a fragment or rows by the class's gradients; within its own `learn_on_batch` from the rows only.

        Returns:
            Means of the metrics over the gradient steps.
        """
        if self._iteration is None:
            return self.update(batch, self._gradient_step)
        return means(list(self._sweep(self._iteration, batch, self._gradient_step)), self._iteration.rare)

    def enter_training(self) -> torch.Generator:
        """Set train mode and seed all randomness of learning by (seed, iteration, rank), so no generator is saved."""
        policy = self.policy
        policy.train()
        seed = derive_seed(policy.seed, "learner", policy.iterations, policy.global_rank if policy.in_trainer else 0)
        # Dropout and users' losses use the global generators; torch.manual_seed formats a stack trace (0.6 ms).
        torch.default_generator.manual_seed(seed)
        if policy.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        return torch.Generator().manual_seed(seed)

    def call_hooks(self, name: str, **arguments: Any) -> None:
        """Call this hook of every callback of the Trainer that has it."""
        for callback in getattr(self.policy._trainer, "callbacks", ()):
            if hasattr(callback, name):
                getattr(callback, name)(policy=self.policy, **arguments)

    # -- the steps of an iteration ------------------------------------------------------------------------------------
    def _steps_on_batch(self, iteration: Iteration, batch: SampleBatch, take_step: TakeStep) -> Iterator[Metrics]:
        policy = self.policy
        fragment = self.transform_rewards(batch) if isinstance(batch, Fragment) else None
        rows = iteration.batch = self._scaled(batch) if fragment is None else self._postprocess(fragment)
        self.call_hooks("on_postprocess_trajectory", postprocessed_batch=rows, original_batch=batch)
        if take_step is not step_by_batch:
            yield from self._sweep(iteration, rows, take_step, fragment)
        else:
            yield take_step(self, rows)[0]
        iteration.numbers = policy.batch_metrics(rows)
        if self.updates_filters and (fragment is not None or not policy.off_policy):
            # After the last step, so that acting and learning use the same statistics and the first ratio of an
            # iteration is exactly 1.
            policy.update_filters(new_rows(rows))

    def _sweep(
        self, iteration: Iteration, rows: SampleBatch, take_step: TakeStep, fragment: Fragment | None = None
    ) -> Iterator[Metrics]:
        """`passes` sweeps of gradient steps on minibatches of the rows, until `keep_learning` refuses one."""
        policy, taken = self.policy, 0
        count = iteration.rare = self.minibatch_count(rows)
        for sweep in range(policy.passes):
            if sweep > 0 and fragment is not None:
                policy.before_next_sweep(rows, fragment)
            for minibatch in rows.minibatches(count, iteration.shuffle):
                policy.log_extra = taken == 0 or sweep == policy.passes - 1
                metrics, stepped = take_step(self, minibatch)
                if stepped or taken == 0:
                    yield metrics
                if not stepped:
                    if taken == 0:
                        warnings.warn(
                            f"no gradient step was taken: {type(policy).__name__}.keep_learning refused the first. "
                            "Rows whose action_logp is not that of the policy are too far from it for "
                            "policy.target_kl; null learns from them",
                            stacklevel=2,
                        )
                    return
                taken += 1

    def _steps_on_draws(self, iteration: Iteration, draws: Any, take_step: TakeStep) -> Iterator[Metrics]:
        """A gradient step for each batch of each draw, a pair (rows, number of batches in them).

        The next draw may act in the environments with the newest weights, so environment steps and schedules advance
        within an iteration. `draws.update_priorities(rows, td_errors)` gets the metric "td_errors" `[N]` of rows drawn
        by priority.
        """
        policy = self.policy
        with fast_modes(policy):
            for rows, count in _count_wait(iter(draws), iteration):
                if not policy.training:  # acting has set eval mode
                    policy.train()
                for batch in policy.prepare(policy.reward_filter.scale_rewards(rows), count):
                    policy.log_extra = len(iteration.steps) % LOG_EVERY == 0
                    yield take_step(self, batch)[0]
                    iteration.batch = batch
                if "weights" in rows:  # drawn by priority, one batch at a time
                    draws.update_priorities(rows, self._priorities())

    def _steps_on_updates(
        self, iteration: Iteration, experience: GradientUpdates, take_step: TakeStep
    ) -> Iterator[Metrics]:
        iteration.batch = SampleBatch()  # the rows stayed in the workers
        for worker, update, fresh in _count_wait(iter(experience.updates), iteration):
            try:
                metrics = self.apply_update(update, step=fresh)
            except NonFiniteError as error:
                loss = update.metrics.get("loss")
                raise NonFiniteError(f"worker {worker} (its loss is {loss}): {error}") from error
            yield metrics

    # -- a gradient step ----------------------------------------------------------------------------------------------
    def step(self, rows: SampleBatch) -> tuple[Metrics, bool]:
        """One gradient step on rows `[N, …]`, by the class's own gradients if it defines them; see `step_by_loss`."""
        return self._gradient_step(self, rows)

    def differentiate(self, rows: SampleBatch) -> tuple[Tensor, Metrics]:
        """Compute the gradients of the total loss of these rows; returns the loss and its metrics.

        The gradients of `policy.microbatches` parts are summed, which needs less memory; metrics are the parts' means.
        """
        if self.policy.microbatches == 1:
            loss, metrics = self.total_loss(rows)
            self.optimizer.backward(loss)
            return loss, metrics
        totals: Metrics = {}
        for part in rows.minibatches(self.policy.microbatches):
            loss, metrics = self.total_loss(part)
            share = part.count / rows.count
            self.optimizer.backward(loss * share, fresh=not totals)
            parts = {name: share * torch.as_tensor(value).detach() for name, value in metrics.items()}
            totals = {name: totals.get(name, 0.0) + value for name, value in parts.items()}
        return totals["loss"], totals

    def total_loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """The sum of `loss`, the model's `custom_loss`, custom losses and the exploration's loss; and all metrics."""
        policy = self.policy
        with self.optimizer.loss_context():
            returned = policy.loss(batch)
            if not (isinstance(returned, tuple) and len(returned) == 2 and _is_scalar(returned[0])):
                raise ConfigError(
                    f"{type(policy).__name__}.loss returned {short_repr(returned)}; expected a scalar tensor and the "
                    "metrics {name: number}"
                )
            loss, metrics = returned
            if (custom := policy.model.loss_with_custom(loss, batch)) is not loss:
                loss = sum_of_losses(policy.model, custom)
            extra, extra_metrics = self.custom_losses(policy, batch) if self.custom_losses.losses else (None, {})
            loss = loss if extra is None else loss + extra
            explored = policy.exploration.loss(policy, batch)
            if explored is not None:
                loss = loss + explored[0]
                extra_metrics |= {f"exploration/{name}": value for name, value in explored[1].items()}
            metrics = {"loss": loss, **metrics, **extra_metrics}
            for name, value in policy.model.metrics().items():
                metrics[f"model/{name}"] = torch.as_tensor(value).squeeze()
            td_errors = metrics.pop("td_errors", None)
            self.td_errors = None if td_errors is None else td_errors.detach()
            return loss, metrics

    def minibatch_count(self, rows: SampleBatch) -> int:
        """Gradient steps of a sweep over these rows; the same number on every rank, whatever its number of rows.

        One of several policies may have few rows, because its agents acted little: it takes fewer steps then.
        """
        if self.policy.minibatches is not None and self.counts_env_steps:
            return self.policy.minibatches
        # At least one sequence, or two rows, per minibatch.
        whole = len(rows["seq_lens"]) if "seq_lens" in rows else rows.count // 2
        every = all_gather_objects((rows.count, whole))
        if self.policy.minibatches is not None:
            return max(1, min(self.policy.minibatches, *(most for _, most in every)))
        mean = sum(count for count, _ in every) / len(every)
        return max(1, min(round(mean / MINIBATCH_ROWS), *(most for _, most in every)))

    # -- from experience to rows --------------------------------------------------------------------------------------
    def rows_of(self, batch: SampleBatch) -> SampleBatch:
        """The rows to learn from: a fragment is postprocessed, replayed rows are scaled, other rows are unchanged."""
        batch = typed(batch)
        if isinstance(batch, Fragment):
            return self._postprocess(self.transform_rewards(batch))
        return batch if self._iteration is not None else self._scaled(batch)  # within an iteration draws are scaled

    @torch.no_grad()
    def transform_rewards(self, batch: Fragment) -> Fragment:
        """A fragment `[T, B, …]` with filtered rewards and the exploration's intrinsic rewards.

        The reward filter's statistics are updated with the fragment before they are used.
        """
        policy = self.policy
        fragment: Any = policy.exploration.postprocess_trajectory(policy, batch)
        rewards = policy.reward_filter(fragment) if policy.reward_filter.name != "none" else fragment.rewards
        intrinsic = fragment.get("intrinsic_rewards")
        if intrinsic is None and rewards is fragment.rewards:
            return fragment
        fragment = fragment.copy()
        fragment["rewards"] = rewards if intrinsic is None else rewards + intrinsic
        return fragment

    @torch.no_grad()
    def _postprocess(self, fragment: Fragment) -> SampleBatch:
        method, others = self.policy.postprocess_trajectory, self.other_agent_batches
        return method(fragment) if others is None else call_with_accepted_args(method, fragment, others)

    def _scaled(self, rows: SampleBatch) -> SampleBatch:
        replayed = self.policy.off_policy and "batch_indexes" in rows
        return self.policy.reward_filter.scale_rewards(rows) if replayed else rows

    def take_experience(self, fragment: SampleBatch) -> SampleBatch:
        """A fragment `[T, B, …]` as `stored_form` gives it; its steps are counted."""
        if self.counts_env_steps:
            self.policy.progress.env_steps += sum_over_ranks(env_steps(fragment))
        return self.stored_form(fragment)

    def stored_form(self, fragment: SampleBatch) -> SampleBatch:
        """A fragment `[T, B, …]` in the form for a replay buffer; updates running statistics.

        Rewards are clipped here, before n-step sums. At each gradient step `RewardFilter.scale_rewards` scales them by
        the current statistics, and adds the column "intrinsic_rewards".
        """
        policy, stored = self.policy, fragment.copy()
        if policy.exploration.reads_fragments:  # the strategy's networks are where the policy learns, the buffer is not
            at_policy = policy.exploration.postprocess_trajectory(policy, fragment.to(policy.device))
            stored = at_policy.to(fragment.valid.device)
        policy.reward_filter.update(stored)
        stored["rewards"] = policy.reward_filter.clip_rewards(stored.rewards)
        self.call_hooks("on_postprocess_trajectory", postprocessed_batch=stored, original_batch=fragment)
        if isinstance(policy.observation_filter, MeanStdFilter):
            policy.update_filters(flatten_fragment(stored))
        return stored

    @property
    def needs_every_fragment(self) -> bool:
        """Whether `take_experience` does more than count steps and clip rewards, so that it needs every fragment."""
        return self.experience_changes_acting or self.policy.reward_filter.normalizer is not None

    @property
    def experience_changes_acting(self) -> bool:
        """Whether `take_experience` changes how the policy acts, without any gradient step."""
        return self.policy.exploration.reads_fragments or isinstance(self.policy.observation_filter, MeanStdFilter)

    def extra_replay_columns(self) -> list[str]:
        """Columns that policy, filters and exploration read from a replay buffer in addition to the default ones."""
        policy = self.policy
        scales, reads_next = policy.reward_filter.normalizer is not None, policy.exploration.reads_next_obs
        of_steps = [*["step_rewards"] * scales, *["step_next_obs"] * reads_next]
        return [*previous_columns(policy.model), *of_steps, *policy.replay_columns]

    @torch.no_grad()
    def initial_priorities(self, rows: SampleBatch) -> Tensor:
        """|TD error| `[N]` of replayed rows by the policy's `loss`, the priorities that workers give new rows.

        Without dropout and noise. The global generator (SAC samples actions) is seeded by the worker's fragment, and
        restored afterwards.

        Raises:
            ConfigError: `loss` gives no "td_errors".
        """
        policy, rows = self.policy, self.policy.reward_filter.scale_rewards(rows)
        with in_eval_mode(policy), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(policy.generators.seed)
            self.td_errors = policy.loss(rows)[1].get("td_errors")
        return self._priorities().abs()

    # -- gradients between copies --------------------------------------------------------------------------------------
    def compute_gradients(self, batch: SampleBatch) -> tuple[list[np.ndarray | None], dict[str, float]]:
        """Gradients of one minibatch (a fragment is postprocessed first), as arrays in the order of `parameters()`."""
        policy, optimizer = self.policy, self.optimizer
        policy.train()
        rows = self.rows_of(batch)
        optimizer.set_lr(policy.env_steps)
        policy.log_extra = True
        metrics = self.differentiate(rows)[1]
        gradients = [None if p.grad is None else p.grad.cpu().numpy().copy() for p in policy.parameters()]
        return gradients, means([metrics])

    def apply_gradients(self, gradients: Any) -> Tensor | None:
        """Step with gradients from `compute_gradients`, perhaps of another copy of the policy.

        Returns:
            Their 2-norm before clipping.

        Raises:
            NonFiniteError: a gradient is NaN or infinite; no parameter was changed.
        """
        policy, optimizer = self.policy, self.optimizer
        optimizer.set_lr(policy.env_steps)
        optimizer.set_gradients([as_tensor(gradient) for gradient in gradients])
        optimizer.drop_delayed_gradients()
        norm = optimizer.clip()
        if not bool(torch.isfinite(norm)):
            named = zip(policy.named_parameters(), gradients, strict=True)
            bad = [name for (name, _), g in named if g is not None and not bool(np.isfinite(g).all())]
            raise NonFiniteError(
                f"gradients not finite: {', '.join(bad[:5])}, in gradient step {policy.gradient_steps}. Nothing was "
                "stepped: lower policy.lr, set policy.max_grad_norm, or look for NaN in observations and rewards"
            )
        optimizer.apply()
        policy.progress.gradient_steps += 1
        policy.after_step()
        return norm

    def step_with(self, gradients: Any) -> Metrics:
        """Call the policy's `apply_gradients`, and count the step if the class's own method did not."""
        policy = self.policy
        before = policy.gradient_steps
        norm = policy.apply_gradients(gradients)
        policy.progress.gradient_steps = max(policy.gradient_steps, before + 1)
        return {"grad_norm": norm.cpu(), **as_tensors(self.optimizer.info)} if isinstance(norm, Tensor) else {}

    def gradient_update(self, samples: SampleBatch, hooks: Iterable[Callable[..., None]] = ()) -> GradientUpdate:
        """The gradient update of these samples for another copy of this policy.

        This policy does not change. The global generator, for a `loss` that samples, is seeded by the worker's fragment
        and restored afterwards.

        Args:
            samples: a fragment `[T, B, …]`, or rows `[N, …]`.
            hooks: functions with the arguments of a callback's `on_postprocess_trajectory`.
        """
        policy = self.policy
        with StatisticsRecorder(policy) as statistics:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(policy.generators.seed)
                samples = typed(samples)
                rows = self.rows_of(samples) if isinstance(samples, Fragment) else samples  # rows were scaled before
                for hook in hooks:
                    hook(policy=policy, postprocessed_batch=rows, original_batch=samples)
                gradients, metrics = policy.compute_gradients(rows)
            if self._optimizer is not None:
                explored = policy.exploration.info(policy.env_steps)
                explored = {f"exploration/{name}": value for name, value in explored.items()}
                metrics = {**metrics, **policy.batch_metrics(rows), **explored}
                policy.update_filters(rows)
            return GradientUpdate(gradients, metrics, env_steps(samples), statistics.moments(), statistics.changes())

    def apply_update(self, update: GradientUpdate, step: bool = True) -> Metrics:
        """Count an update's environment steps, step with its gradients, and merge its statistics.

        Args:
            update: the update of a copy of this policy, with its current or with older weights.
            step: whether to step with its gradients.

        Returns:
            Its metrics, with the norm of the gradients if a step was taken.

        Raises:
            NonFiniteError: a gradient is NaN or infinite; no parameter was changed.
        """
        if self.counts_env_steps:
            self.policy.progress.env_steps += update.env_steps
        metrics = {name: torch.tensor(float(value)) for name, value in update.metrics.items()}
        if step:
            metrics |= self.step_with(update.gradients)
        update.add_statistics_to(self.policy)
        return metrics


@contextmanager
def fast_modes(policy: Any) -> Iterator[None]:
    """Context in which `train` and `eval` are fast: modules are listed once, so none may be added."""
    resting = {id(module) for module in policy.resting_modules()}
    others = [module for module in policy.modules() if module is not policy]
    if all(type(module).train is torch.nn.Module.train for module in others):  # else a model decides its own mode
        policy.mode_modules = [module for module in (policy, *others) if id(module) not in resting]
    try:
        yield
    finally:
        policy.mode_modules = None


def _count_wait(items: Iterator[Any], iteration: Iteration) -> Iterator[Any]:
    """The items; the seconds of waiting for each are added to `iteration.wait_seconds`."""
    while True:
        started = time.perf_counter()
        try:
            item = next(items)
        except StopIteration:
            return
        finally:
            iteration.wait_seconds += time.perf_counter() - started
        yield item


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1


def sum_of_losses(model: Any, returned: Any) -> Tensor:
    """The loss that a model's `custom_loss` returned: a scalar tensor, or the sum of a list of such.

    Raises:
        ConfigError: it returned something else, such as `None`.
    """
    parts = returned if isinstance(returned, list | tuple) else [returned]
    if not parts or not all(map(_is_scalar, parts)):
        owner = type(getattr(model, "wrapped", model)).__name__
        raise ConfigError(
            f"{owner}.custom_loss returned {short_repr(returned)}; expected the policy's loss with the "
            "model's own terms added, a scalar tensor, or a list of such"
        )
    return sum(parts[1:], parts[0]).squeeze()
