"""Gradients that travel: one copy of a policy computes them, with what else it found out, and another one steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_rl.errors import ConfigError, NonFiniteError
from lightning_rl.models.filters import MeanStdFilter, RunningMoments
from lightning_rl.policies.from_gradients import learn_on_gradients
from lightning_rl.policies.loaded_batches import LoadedBatches
from lightning_rl.policies.metrics import Metrics, as_tensors, means
from lightning_rl.sample_batch import SampleBatch, env_steps, is_fragment

__all__ = ["Contributing", "Contribution"]


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a copy of a policy makes of experience of its own, for the one that learns.

    Attributes:
        gradients: as `compute_gradients` gives them.
        metrics: of the loss.
        env_steps: of that experience.
        moments: what running statistics took in, by the name of their module: (count, mean, m2) each.
        changes: what was added to other buffers, such as batch norm's, by name.
    """

    gradients: Any
    metrics: dict[str, float]
    env_steps: int
    moments: dict[str, list[tuple[float, np.ndarray, np.ndarray]]]
    changes: dict[str, np.ndarray]


class Contributing(LoadedBatches):
    """The verbs of learning by gradients from elsewhere, and of loops written by hand."""

    def compute_gradients(self, batch: SampleBatch) -> tuple[list[np.ndarray | None], dict[str, float]]:
        """Gradients of one minibatch (a fragment is postprocessed first), as arrays in the order of `parameters()`.

        Raises:
            ConfigError: a policy written from scratch does not define this.
        """
        if self.written_from_scratch:
            raise ConfigError(
                f"{type(self).__name__} computes no gradients: define compute_gradients(batch) -> (gradients, metrics) "
                "and apply_gradients(gradients)"
            )
        self.train()
        batch = self._rows(batch)
        self.optimiser.set_lr(self.env_steps)
        self.diagnosing = True
        metrics = self.differentiate(batch)
        gradients = [None if p.grad is None else p.grad.cpu().numpy().copy() for p in self.parameters()]
        return gradients, means([metrics])

    def apply_gradients(self, gradients: Sequence[Any]) -> Tensor | None:
        """Step with gradients from `compute_gradients`, perhaps of another copy of this policy.

        Returns:
            Their 2-norm before clipping, where it is known.

        Raises:
            NonFiniteError: a gradient is NaN or infinite; no parameter was changed.
        """
        self.optimiser.set_lr(self.env_steps)
        self.optimiser.set_gradients([_tensor(gradient) for gradient in gradients])
        self.optimiser.rest()
        norm = self.optimiser.clip()
        if not math.isfinite(norm.item()):
            named = zip(self.named_parameters(), gradients, strict=True)
            bad = [name for (name, _), g in named if g is not None and not bool(np.isfinite(g).all())]
            raise NonFiniteError(
                f"gradients not finite: {', '.join(bad[:5])}, in gradient step {self.gradient_steps}. Nothing was "
                "stepped: lower policy.lr, set policy.max_grad_norm, or look for NaN in observations and rewards"
            )
        self.optimiser.apply()
        self.gradient_steps += 1
        self.after_step()
        return norm

    def contribution(self, samples: SampleBatch) -> Contribution:
        """What a learner needs of these samples, a fragment or rows; this policy stays as it is.

        What `loss` draws from the global generator follows from the seed of the worker's fragment.
        """
        before = {name: buffer.clone() for name, buffer in self.named_buffers()}
        statistics = {name: part for name, part in self.named_modules() if isinstance(part, RunningMoments)}
        for part in statistics.values():
            part.news = []
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(self._action_seed)
                rows = self._rows(samples) if is_fragment(samples) else samples  # else scaled twice
                gradients, metrics = self.compute_gradients(rows)
            if not self.learns_alone:
                metrics = {**metrics, **self.batch_metrics(rows), **self._exploring()}
                self._watch(rows)
            steps = env_steps(samples)
            moments = {name: [_arrays(*new) for new in part.news or ()] for name, part in statistics.items()}
            return Contribution(gradients, metrics, steps, moments, self._changes(before))
        finally:
            for part in statistics.values():
                part.news = None
            for name, buffer in self.named_buffers():
                buffer.copy_(before[name])

    def take_contribution(self, contribution: Contribution, step: bool = True) -> Metrics:
        """Count its environment steps, step with its gradients, and take its statistics in.

        Args:
            contribution: of a copy of this policy, with weights of now or older ones.
            step: whether its gradients count.

        Returns:
            Its metrics, with the norm of the gradients where they were stepped.

        Raises:
            NonFiniteError: a gradient is NaN or infinite; no parameter was changed.
        """
        self.env_steps += contribution.env_steps
        metrics = {name: torch.tensor(float(value)) for name, value in contribution.metrics.items()}
        norm = self.apply_gradients(contribution.gradients) if step else None
        if norm is not None:
            metrics |= {"grad_norm": norm.cpu(), **as_tensors(self.optimiser.info)}
        for name, news in contribution.moments.items():
            part: Any = self.get_submodule(name)
            for new in news:  # a tensor for the count, too: a number divided by a tensor is not rounded the same
                part.merge(*(torch.tensor(number).to(part.mean) for number in new))
        for part in self.modules():
            if isinstance(part, MeanStdFilter):
                part.freeze()
        for name, change in contribution.changes.items():
            buffer = self.get_buffer(name)
            buffer += torch.tensor(change).to(buffer)
        return metrics

    def learn_on_gradients(self, contributions: Iterable[tuple[int, Contribution, bool]]) -> dict[str, float]:
        """One iteration on gradients from elsewhere; see `from_gradients.py`."""
        return learn_on_gradients(self, contributions)

    def _changes(self, before: dict[str, Tensor]) -> dict[str, np.ndarray]:
        """Buffers that are not as before, without those that running statistics are kept in."""
        kept = {
            f"{name}.{own}" if name else own
            for name, part in self.named_modules()
            if isinstance(part, RunningMoments | MeanStdFilter)
            for own in part._buffers
        }
        now = {name: buffer for name, buffer in self.named_buffers() if name not in kept and buffer.dtype != torch.bool}
        return {
            name: (buffer - before[name]).cpu().numpy()
            for name, buffer in now.items()
            if not torch.equal(buffer, before[name])
        }


def _tensor(gradient: Any) -> Tensor | None:
    """An array as a tensor; what lies in memory shared between processes is copied."""
    if isinstance(gradient, np.ndarray) and not gradient.flags.writeable:
        gradient = gradient.copy()
    return None if gradient is None else torch.as_tensor(gradient)


def _arrays(count: Tensor | float, mean: Tensor, m2: Tensor) -> tuple[float, np.ndarray, np.ndarray]:
    return float(count), mean.cpu().numpy(), m2.cpu().numpy()
