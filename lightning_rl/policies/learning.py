"""The learning half of a policy: one iteration, written once; an algorithm fills in the loss."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightning_rl.distributed import gathered, sum_over_ranks
from lightning_rl.errors import ConfigError
from lightning_rl.policies.custom_losses import CustomLosses
from lightning_rl.policies.experiencing import Experiencing
from lightning_rl.policies.from_replay import learn_on_draws
from lightning_rl.policies.from_scratch import learn_alone, transitions
from lightning_rl.policies.metrics import Metrics, as_tensors, mean_entropy, means
from lightning_rl.policies.optimiser import Optimiser, without_denormals
from lightning_rl.sample_batch import SampleBatch, flattened, is_fragment, new_rows, new_steps
from lightning_rl.seeding import derive_seed

__all__ = ["Learning", "Metrics", "mean_entropy"]

MINIBATCH_ROWS = 64  # of a minibatch where their number follows the rollout


class Learning(Experiencing):
    """What `Policy` builds, used for learning.

    Attributes:
        optimiser, custom_losses: made in its constructor.
        passes: sweeps over the rows in an iteration.
        minibatches: gradient steps of a sweep; `None`: so many that each has about 64 rows.
        iterations, gradient_steps: counted so far.
        iteration_metrics: means of the last iteration.
        learn_seconds: that it took.
        diagnosing: whether `loss` shall report what only a reader of curves needs.
    """

    optimiser: Optimiser
    custom_losses: CustomLosses
    gamma: float
    seed: int
    passes: int
    minibatches: int | None
    iterations: int
    gradient_steps: int
    iteration_metrics: dict[str, float]
    learn_seconds: float
    diagnosing: bool
    max_seq_len: int
    learns_alone: ClassVar[bool]
    evolves: ClassVar[bool] = False  # learns from the returns of perturbed policies
    uses_every_parameter: ClassVar[bool] = False  # that this class's `loss` reaches all of them; else DDP has to look
    off_policy: ClassVar[bool] = False  # learns from transitions, of any policy, as a replay buffer gives them

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """Turn a fragment `[T, B, …]` into the rows `[N, …]` that `loss` reads, with what it needs added."""
        if self.learns_alone:
            return transitions(batch)
        if not self.off_policy:
            return self.flattened(batch)
        batch = batch.copy()
        batch["rewards"] = self.normalised_rewards(batch)
        for name in self.read_before():
            if name in batch:
                batch[f"next_{name}"] = batch[name][1:]
        rows = transitions(batch)
        rows["discounts"] = torch.full_like(rows.rewards, self.gamma)
        return rows

    def flattened(self, fragment: SampleBatch) -> SampleBatch:
        """The experience of a fragment as rows `[N, …]`, for a recurrent model in sequences."""
        return flattened(fragment, self.max_seq_len if self.is_recurrent else None)

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """The scalar to descend on these rows, and scalars worth a curve."""
        raise NotImplementedError(f"{type(self).__name__} must define loss(batch) -> (scalar, metrics)")  # abstract

    def after_step(self) -> None:
        """Called after every gradient step (target networks)."""

    def after_iteration(self, metrics: dict[str, float]) -> None:
        """Called after the last gradient step of an iteration with the means of its metrics (adaptive coefficients)."""

    def before_next_sweep(self, rows: SampleBatch, fragment: SampleBatch) -> None:
        """Called before each sweep but the first, with the rows and the fragment that they are of (targets of now)."""

    def keep_learning(self, metrics: Metrics) -> bool:
        """Whether to go on with this iteration's gradient steps; asked before each with its minibatch's metrics."""
        return True

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What the optimizer steps; groups may have an `lr_scale`, and `every` n-th gradient step as their turn."""
        return [{"params": [p for p in self.parameters() if p.requires_grad]}]

    def training_step(self, batch: Any, batch_idx: int = 0) -> None:
        """One iteration: Lightning calls it with one rollout, the draws from a replay buffer, or a plan's next step."""
        if not isinstance(batch, SampleBatch):
            batch() if callable(batch) else learn_on_draws(self, batch)
        elif self.learns_alone:
            learn_alone(self, batch)
        else:
            self.learn_on_batch(batch)

    def learn_on_batch(self, batch: SampleBatch) -> dict[str, float]:
        """Learn from a fragment or from postprocessed rows: `passes` sweeps of `minibatches` gradient steps.

        Returns:
            Means of the metrics over the gradient steps.

        Raises:
            NonFiniteError: a loss or gradient is NaN or infinite; that step was not taken.
        """
        started = time.perf_counter()
        replayed = self.off_policy and not is_fragment(batch)  # counted and taken in when they came: `take_experience`
        steps = 0 if replayed else new_steps(batch)
        self.env_steps += sum_over_ranks(steps)
        lr = self.optimiser.set_lr(self.env_steps)
        shuffle = self._begin_iteration()
        explored = self._explored(batch)
        rows = self._rows_of(explored)
        self._call_hooks("on_postprocess_trajectory", policy=self, postprocessed_batch=rows, original_batch=batch)
        with without_denormals():
            swept = self._sweep(rows, shuffle, explored)
        self.iteration_metrics = {**swept, **self.batch_metrics(rows), **self._exploring(), "lr": lr}
        self.after_iteration(self.iteration_metrics)
        if not replayed:
            # After the last step: acting and learning saw the same statistics, so the first ratio of an iteration is
            # exactly 1.
            self._watch(new_rows(rows))
        elif "td_errors" in rows:
            batch["td_errors"] = rows["td_errors"]  # for who drew them
        self.iterations += 1
        self._call_hooks("on_learn_on_batch", policy=self, train_batch=rows, result=self.iteration_metrics)
        self.learn_seconds = time.perf_counter() - started
        return self.iteration_metrics

    def batch_metrics(self, rows: SampleBatch) -> dict[str, float]:
        """Numbers about the whole training batch, once an iteration."""
        return {}

    def _rows(self, batch: SampleBatch) -> SampleBatch:
        """The rows to learn from: a fragment is postprocessed, rows of a replay buffer are scaled, others are ready."""
        return self._rows_of(self._explored(batch))

    @torch.no_grad()
    def _explored(self, batch: SampleBatch) -> SampleBatch:
        """A fragment as the exploration wants it learned from; rows as they are."""
        return self.exploration.postprocess_trajectory(self, batch) if is_fragment(batch) else batch

    @torch.no_grad()
    def _rows_of(self, explored: SampleBatch) -> SampleBatch:
        if is_fragment(explored):
            return self.postprocess_trajectory(explored)
        return self.scaled(explored) if self.off_policy and "batch_indexes" in explored else explored

    def _begin_iteration(self) -> torch.Generator:
        """Train mode; all randomness of learning comes from (seed, iteration, rank), so no generator is saved."""
        self.train()
        seed = derive_seed(self.seed, "learner", self.iterations, self.global_rank if self.in_trainer else 0)
        # Dropout and users' losses draw from the global generators. Not torch.manual_seed: it formats a stack trace,
        # 0.6 ms each time.
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        return torch.Generator().manual_seed(seed)

    def _exploring(self) -> dict[str, float]:
        return {f"exploration/{name}": value for name, value in self.exploration.info(self.env_steps).items()}

    def _sweep(self, rows: SampleBatch, shuffle: torch.Generator, explored: SampleBatch) -> dict[str, float]:
        taken: list[Metrics] = []
        count = self.minibatch_count(rows)
        for sweep, minibatch in self._swept(rows, count, shuffle, explored):
            self.diagnosing = not taken or sweep == self.passes - 1
            loss, metrics = self.total_loss(minibatch)
            if not self.keep_learning(metrics):
                return means(taken or [metrics], count)
            taken.append(self.descended(loss, metrics))
        return means(taken, count)

    def _swept(
        self, rows: SampleBatch, count: int, shuffle: torch.Generator, explored: SampleBatch
    ) -> Iterator[tuple[int, SampleBatch]]:
        """Number of the sweep and minibatch, `count` a sweep; each is asked for when the steps before it are taken."""
        for sweep in range(self.passes):
            if sweep > 0 and is_fragment(explored):
                self.before_next_sweep(rows, explored)
            for minibatch in rows.minibatches(count, shuffle):
                yield sweep, minibatch

    def minibatch_count(self, rows: SampleBatch) -> int:
        """Gradient steps of a sweep over these rows; every rank takes the same number, whatever it has."""
        if self.minibatches is not None:
            return self.minibatches
        whole = len(rows["seq_lens"]) if "seq_lens" in rows else rows.count // 2  # no sequence is cut, no row alone
        every = gathered((rows.count, whole))
        mean = sum(count for count, _ in every) / len(every)
        return max(1, min(round(mean / MINIBATCH_ROWS), *(most for _, most in every)))

    def differentiate(self, rows: SampleBatch) -> Metrics:
        """Fresh gradients of the whole loss of these rows, without a step."""
        loss, metrics = self.total_loss(rows)
        self.optimiser.backward(loss)
        return metrics

    def batches_of(self, rows: SampleBatch, steps: int) -> Iterable[SampleBatch]:
        """The batches of so many gradient steps, each asked for when the steps before it are taken.

        An algorithm may add what stays the same for several of them.
        """
        return [rows] if steps == 1 else rows.timeslices(rows.count // steps)

    def descended(self, loss: Tensor, metrics: Metrics) -> Metrics:
        """Take one gradient step on `loss`; its metrics, detached, with the norm of the gradients."""
        self.optimiser.backward(loss)
        return self.stepped(loss, metrics)

    def stepped(self, loss: Tensor, metrics: Metrics) -> Metrics:
        """The second half of that: gradients of `loss` are there."""
        metrics["grad_norm"] = self.optimiser.step(loss, metrics)
        if self.optimiser.info:
            metrics |= as_tensors(self.optimiser.info)
        self.gradient_steps += 1
        self.after_step()
        return {name: value.detach() for name, value in metrics.items()}

    @torch.no_grad()
    def initial_priorities(self, rows: SampleBatch) -> Tensor:
        """|TD error| `[N]` of replayed rows as `loss` finds them, for workers that tell how surprising rows are.

        Without dropout and noise. What `loss` draws from the global generator (SAC's actions) follows from the seed of
        the worker's fragment, and the generator is left as it was.

        Raises:
            ConfigError: `loss` sets no "td_errors".
        """
        rows = self.scaled(rows)
        with self.in_eval_mode(), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self._action_seed)
            self.loss(rows)
        if "td_errors" not in rows:
            raise ConfigError(
                f"{type(self).__name__}.loss does not set the column td_errors, of which rows get their first "
                "priorities: set data.initial_priorities=false"
            )
        return rows["td_errors"].abs()

    def total_loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """`loss`, then the model's `custom_loss`, the configured extra losses, and what the exploration learns."""
        with self.optimiser.loss_context():
            return self._total_loss(batch)

    def _total_loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        loss, metrics = self.loss(batch)
        custom = self.model.custom_loss(loss, batch)
        loss = sum(custom[1:], custom[0]) if isinstance(custom, list | tuple) else custom
        extra, extra_metrics = self.custom_losses(self, batch)
        loss = loss if extra is None else loss + extra
        explored = self.exploration.loss(self, batch)
        if explored is not None:
            loss = loss + explored[0]
            extra_metrics |= {f"exploration/{name}": value for name, value in explored[1].items()}
        model_metrics = {f"model/{name}": torch.as_tensor(value) for name, value in self.model.metrics().items()}
        return loss, {"loss": loss, **metrics, **extra_metrics, **model_metrics}

    @property
    def in_trainer(self) -> bool:
        """Whether a Trainer is fitting this policy now (else it learns alone)."""
        return self._trainer is not None and self._trainer.training

    def _call_hooks(self, name: str, **arguments: Any) -> None:
        for callback in getattr(self._trainer, "callbacks", ()) if self._trainer is not None else ():
            hook = getattr(callback, name, None)
            if hook is not None:
                hook(**arguments)
