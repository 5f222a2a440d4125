"""The base of evolution strategies: perturb the weights, measure returns of whole episodes, step along perturbations.

A seed names each perturbation: the worker and the learner both compute ε from it. A worker sends the seed, two returns
and, for an observation filter, the moments of the observations.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from lightning_rl.distributed import all_gather_objects
from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.exploration import Exploration
from lightning_rl.exploration.wrapper import ExplorationWrapper
from lightning_rl.fast_torch import in_eval_mode
from lightning_rl.learning.metrics import Metrics
from lightning_rl.models import Model
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.filters import MeanStdFilter, RunningMoments, gather_moments, moments
from lightning_rl.policies.acting import state_or_start
from lightning_rl.policies.policy import Policy
from lightning_rl.sample_batch import (
    SampleBatch,
    env_steps,
    flatten_fragment,
    from_nested_batch,
    map_leaves,
    to_tensors,
)
from lightning_rl.schema.ranges import Positive

__all__ = ["EvolutionStrategy"]


class EvolutionStrategy(Policy):
    """Learns from a population: rows `[N, …]` with "seeds", "returns" `[N, 2]` of θ ± σε, and "steps" of both.

    Rows that are not "perturbed" hold returns of θ itself, which are logged and not learned from.

    A subclass defines the weights w of the perturbations. The step along Σ wᵢ εᵢ is a gradient step on a loss that is
    linear in θ, so optimizers, schedules, clipping, ranks and extra losses work as for any other algorithm. No value
    function is trained.

    Args:
        observation_space, action_space: the spaces of a single environment.
        sigma: standard deviation σ > 0 of the perturbations, in units of the weights.
        keywords: arguments of `Policy`, without `reward_filter`.

    Raises:
        ConfigError: `sigma` or `reward_filter` is out of range.
        UnsupportedSpaceError: the model or the exploration has its own loss, for which there are no rows.
    """

    data = "population"
    supports_recurrent = True
    uses_every_parameter = True
    evolves: ClassVar[bool] = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        *,
        sigma: Positive = 0.02,
        **keywords: Any,
    ) -> None:
        super().__init__(observation_space, action_space, **keywords)
        if self.reward_filter.name != "none":
            raise ConfigError(
                f"policy.reward_filter={self.reward_filter.name!r}: {type(self).__name__} compares returns of whole "
                "episodes as they are; leave it at none"
            )
        self.sigma = sigma
        self._check_losses()
        self._freeze_value_parameters()

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None) -> tuple[Model, DistFactory]:
        """Continuous actions are deterministic: the perturbed weights explore, so no deviation is needed."""
        config = {**(model or {}), "vf_share_layers": True}
        space = self.action_space
        if isinstance(space, spaces.Box) and space.dtype.kind == "f":
            config["custom_action_dist"] = config.get("custom_action_dist") or "Deterministic"
        return super().make_model_and_action_dist(config)

    # -- in workers ---------------------------------------------------------------------------------------------------
    @contextmanager
    def perturb(self, seed: int, scale: float) -> Iterator[None]:
        """Context in which the weights are θ + scale · σ ε(seed); afterwards they are θ again, bit for bit."""
        weights = self.evolved_parameters()
        before = [weight.detach().clone() for weight in weights]
        noise = self._noise(seed) * (scale * self.sigma)
        with torch.no_grad():
            for weight, part in zip(weights, noise.split([weight.numel() for weight in weights]), strict=True):
                weight += part.view_as(weight).to(weight.device)
        try:
            yield
        finally:
            with torch.no_grad():
                for weight, value in zip(weights, before, strict=True):
                    weight.copy_(value)

    def population_row(self, seed: int, fragments: Sequence[SampleBatch], perturbed: bool = True) -> SampleBatch:
        """A row of the population from the fragments of whole episodes with θ + σε, and with θ − σε."""
        returns = [(each.rewards.double() * each.valid).sum(0).mean() for each in fragments]
        row = SampleBatch(
            seeds=torch.tensor([seed]),
            returns=torch.stack(returns).unsqueeze(0),
            steps=torch.tensor([sum(env_steps(each) for each in fragments)]),
            perturbed=torch.tensor([perturbed]),
        )
        if isinstance(self.observation_filter, MeanStdFilter):
            seen = [from_nested_batch(self.observation_space, flatten_fragment(each).obs) for each in fragments]
            flat = torch.cat([self.preprocessor.transform_batch(obs) for obs in seen]).double()
            for name, column in zip(("obs_count", "obs_mean", "obs_m2"), moments(flat), strict=True):
                row[name] = column.unsqueeze(0)
        return row

    # -- learning -----------------------------------------------------------------------------------------------------
    def perturbation_weights(self, returns: Tensor) -> Tensor:
        """Weights `[N]` of the perturbations; `returns [N, 2]` are those of θ + σε and of θ − σε."""
        raise NotImplementedError  # abstract

    def postprocess_trajectory(self, batch: SampleBatch, other_agent_batches: Any = None) -> SampleBatch:
        """Raises `ConfigError`: evolution strategies do not learn from fragments."""
        raise ConfigError(
            f"{type(self).__name__} learns from the returns of perturbed policies, not from fragments: use "
            "data=population"
        )

    def loss(self, batch: SampleBatch) -> tuple[Tensor, Metrics]:
        """−θ · Σ wᵢ εᵢ, the gradient of which is the negated step."""
        tried = batch["perturbed"]
        seeds, returns, own = batch["seeds"][tried], batch["returns"][tried], batch["returns"][~tried]
        weights = self._rank_weights(returns)
        direction = torch.zeros(sum(weight.numel() for weight in self.evolved_parameters()))
        for seed, weight in zip(seeds.tolist(), weights.tolist(), strict=True):
            direction.add_(self._noise(seed), alpha=weight)
        theta = torch.cat([weight.flatten() for weight in self.evolved_parameters()])
        loss = -(direction.to(theta) * theta).sum()
        metrics = {"return_mean": returns.mean(), "return_max": returns.max(), "weights_norm": theta.detach().norm()}
        return loss, {**metrics, **({"own_return": own.mean()} if len(own) else {})}

    def _rank_weights(self, returns: Tensor) -> Tensor:
        """`perturbation_weights` of this rank's rows `[N]`, computed among the rows of all ranks.

        Multiplied by the number of ranks, because DDP averages the gradients over the ranks.
        """
        shares = [torch.from_numpy(share) for share in all_gather_objects(returns.cpu().numpy())]
        weights = self.perturbation_weights(torch.cat(shares)).split([len(share) for share in shares])
        return len(shares) * weights[self.global_rank if len(shares) > 1 else 0]

    def update_filters(self, rows: SampleBatch) -> None:
        """Update the observation filter with the moments of all the population's observations, in row order."""
        if not isinstance(self.observation_filter, MeanStdFilter):
            return
        seen = RunningMoments(self.preprocessor.size).to(self.device)
        for count, mean, m2 in zip(rows["obs_count"], rows["obs_mean"], rows["obs_m2"], strict=True):
            seen.merge(float(count), mean, m2)
        for rank in gather_moments(seen.count, seen.mean, seen.m2):
            self.observation_filter.moments.merge(*rank)
        self.observation_filter.freeze()

    def evolved_parameters(self) -> list[torch.nn.Parameter]:
        """θ: the parameters that actions depend on."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def _noise(self, seed: int) -> Tensor:
        """ε(seed) `[D]`, standard normal, drawn on the CPU, so that all processes compute the same numbers."""
        size = sum(weight.numel() for weight in self.evolved_parameters())
        return torch.randn(size, generator=torch.Generator().manual_seed(seed))

    # -- building -----------------------------------------------------------------------------------------------------
    def _check_losses(self) -> None:
        model: Any = self.model
        while (wrapped := model._modules.get("wrapped")) is not None:
            model = wrapped
        name = type(self).__name__
        if type(model).custom_loss is not Model.custom_loss:
            raise UnsupportedSpaceError(
                f"{name} follows returns alone, and {type(model).__name__} has a custom_loss: use ppo, a2c or another "
                "algorithm with gradients"
            )
        plain = (Exploration.postprocess_trajectory, ExplorationWrapper.postprocess_trajectory)
        for part in self.exploration.modules():
            if isinstance(part, Exploration) and type(part).postprocess_trajectory not in plain:
                raise UnsupportedSpaceError(
                    f"{name} follows returns alone, and exploration {type(part).__name__} learns from fragments: use "
                    "ppo, a2c or another algorithm with gradients"
                )

    def _freeze_value_parameters(self) -> None:
        """Freeze the parameters that only the value function uses: no return depends on them."""
        if type(self.model).value_function is Model.value_function:
            return
        space = copy.deepcopy(self.observation_space)
        space.seed(0)
        obs = to_tensors(map_leaves(lambda leaf: np.asarray(leaf)[None], space.sample()), self.device)
        parameters = self.evolved_parameters()
        with in_eval_mode(self):
            outputs, _ = self.model(self.input_dict(obs), state_or_start(self, (), obs), None)
            values = self.model.value_function()
        of_actions, of_values = (
            torch.autograd.grad(each.sum(), parameters, allow_unused=True, retain_graph=True)
            if each.requires_grad
            else [None] * len(parameters)
            for each in (outputs, values)
        )
        for parameter, acts, judges in zip(parameters, of_actions, of_values, strict=True):
            if judges is not None and acts is None:
                parameter.requires_grad_(False)
