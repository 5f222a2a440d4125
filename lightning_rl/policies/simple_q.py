"""Deep Q-learning in its first form: a Q-network, a target network and replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from lightning_rl.learning.metrics import Metrics
from lightning_rl.losses.value import mean_huber, td_targets
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.q_model import QModel
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.q_networks import q_model_and_action_dist
from lightning_rl.policies.targets import PolyakUpdate, target_copy
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.ranges import Count, LearningRate, Portion, Positive, Width

__all__ = ["SimpleQ", "next_step"]

SOFT_UPDATE_TAU = 0.005  # τ of a target network that is updated at every gradient step


class SimpleQ(Policy):
    """Q-learning with a target network. Mnih et al. 2015, doi:10.1038/nature14236.

    Args:
        observation_space, action_space: the spaces of a single environment; actions must be Discrete.
        hiddens: widths of hidden layers with ReLU between the model's features and the Q-values. Without any (and, in
            DQN, without extensions that need a head), a custom model outputs the Q-values itself.
        target_update_interval: gradient steps between updates of the target network.
        tau: update rate τ of θ_target ← τ θ + (1 − τ) θ_target, in (0, 1]; 1 copies. `None`: 0.005 if the target
            network is updated at every gradient step (as in DDPG, arXiv:1509.02971), otherwise 1.
        huber_delta: δ of the Huber loss, beyond which TD errors count linearly; `None`: squared error.
        lr, keywords: arguments of `Policy`: model, exploration, gamma, optimizer, optimizer_kwargs, max_grad_norm,
            filters, actions, custom_losses, seed.

    Raises:
        UnsupportedSpaceError: the actions are not Discrete.
        ConfigError: a number is out of range.
    """

    data = "replay"
    off_policy = True
    uses_every_parameter = True
    noisy = False  # whether the target network draws noise for each gradient step
    model: QModel

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        hiddens: Sequence[Width] = (),
        target_update_interval: Count = 1,
        tau: Portion | None = None,
        huber_delta: Positive | None = 1.0,
        lr: LearningRate = 5e-4,
        **keywords: Any,
    ) -> None:
        self.hiddens = tuple(hiddens)  # first: the base class builds the model
        super().__init__(observation_space, action_space, lr=lr, **keywords)
        self.target_update_interval, self.huber_delta = target_update_interval, huber_delta
        default_tau = SOFT_UPDATE_TAU if target_update_interval == 1 else 1.0
        self.tau = default_tau if tau is None else tau
        self.target_model = target_copy(self.model)
        self._polyak_update = PolyakUpdate(self.target_model, self.model)

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None, **head: Any) -> tuple[QModel, DistFactory]:
        """A Q-network and the Categorical of its Q-values; `head` are further keywords of `QModel`."""
        return q_model_and_action_dist(self, model, self.hiddens, **head)

    def q_values(self, model: QModel, batch: SampleBatch) -> tuple[Tensor, Tensor]:
        """Q-values `[N, A]` of the rows' observations, −∞ at forbidden actions; and the head's outputs `[N, A, …]`."""
        values, mask, kept = self.outputs_of(batch, model)
        returns = model.head_outputs() if kept is None else model.head_outputs()[kept]
        return (values if mask is None else values.masked_fill(~mask, -torch.inf)), returns

    @torch.no_grad()
    def targets(self, batch: SampleBatch) -> Tensor:
        """The TD targets r + γ V(s') of Q(s, a), `[N]`."""
        return td_targets(batch.rewards, self.bootstrap_values(batch), batch.terminated, batch.discounts)

    def bootstrap_values(self, batch: SampleBatch) -> Tensor:
        """The value of the next observation: maxₐ Q_target(s', a), `[N]`."""
        return self.target_values(batch)[0].amax(1)

    @torch.no_grad()
    def target_values(self, batch: SampleBatch) -> tuple[Tensor, Tensor]:
        """As `q_values`, by the target network for the rows' next observations."""
        if "target_q" in batch:
            return batch["target_q"], batch["target_returns"]
        return self.q_values(self.target_model, next_step(batch))

    def prepare(self, rows: SampleBatch, steps: int) -> Iterable[SampleBatch]:
        """As `Policy`; targets are computed at once for all steps between two updates of the target network."""
        if steps == 1 or self.target_update_interval == 1 or self.noisy:
            yield from super().prepare(rows, steps)
            return
        size = rows.count // steps
        while rows.count:
            # The next part is prepared after the steps on this one, when the target network has been updated.
            still = size * (self.target_update_interval - self.gradient_steps % self.target_update_interval)
            part, rows = rows[:still], rows[still:]
            for name, column in self.constant_targets(part).items():
                part[name] = column
            yield from part.timeslices(size)

    def constant_targets(self, rows: SampleBatch) -> dict[str, Tensor]:
        """Columns that stay the same between two updates of the target network."""
        return {"td_targets": self.targets(rows)}

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """Huber loss of Q(s, a) − (r + γ maxₐ Q_target(s', a))."""
        targets = batch["td_targets"] if "td_targets" in batch else self.targets(batch)
        values = self.q_values(self.model, batch)[0].gather(1, batch.actions.unsqueeze(1)).squeeze(1)
        td_errors = values - targets
        loss, priorities = self.td_loss(td_errors, batch)
        return loss, {"td_errors": priorities, **self.metrics_of(values, td_errors)}

    def td_loss(self, td_errors: Tensor, batch: SampleBatch) -> tuple[Tensor, Tensor]:
        """The mean loss of the rows' TD errors `[N]`, weighted if drawn by priority; and what their priorities are."""
        return mean_huber(td_errors, self.huber_delta, batch.get("weights")), td_errors.detach()

    def metrics_of(self, values: Tensor, td_errors: Tensor) -> Metrics:
        """Mean and range of the Q-values of the actions taken and mean |TD error|, in steps that report all metrics."""
        if not self.log_extra:
            return {}
        low, high = values.detach().aminmax()
        q_values = {"q_mean": values.detach().mean(), "q_min": low, "q_max": high}
        return {**q_values, "td_error": td_errors.detach().abs().mean()}

    def after_step(self) -> None:
        """Update the target network every `target_update_interval` gradient steps."""
        if self.gradient_steps % self.target_update_interval == 0:
            self.update_target()

    def update_target(self) -> None:
        """Update the target network by `tau`."""
        self._polyak_update(self.tau)


def next_step(batch: SampleBatch) -> SampleBatch:
    """The rows' next observations, with the other columns that a model reads, as their own batch."""
    columns = {name.removeprefix("next_"): column for name, column in batch.items() if name.startswith("next_")}
    if "seq_lens" in batch:
        columns["seq_lens"] = batch.seq_lens
    return SampleBatch(columns)
