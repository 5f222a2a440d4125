"""Running statistics of observations and returns: exact, mergeable over processes, and saved with the policy.

Observations and rewards are recorded raw. Filters belong to the policy, so replayed or loaded data are always filtered
by its current statistics. Statistics stay frozen during a rollout and the learning on it, and change once per
iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn

from lightning_rl.errors import NonFiniteError, UnsupportedSpaceError
from lightning_rl.models.preprocessors import FlattenPreprocessor, NestedPreprocessor, Preprocessor
from lightning_rl.models.vision import is_image
from lightning_rl.sample_batch import Fragment, SampleBatch, is_new

__all__ = [
    "MeanStdFilter",
    "NoFilter",
    "ReturnNormalizer",
    "RewardFilter",
    "RewardFilterName",
    "RunningMoments",
    "RunningReturns",
    "make_observation_filter",
]


class RunningMoments(nn.Module):
    """Count, mean and sum of squared deviations of a stream of vectors, in float64.

    Merging follows Chan, Golub, LeVeque 1983 ("Algorithms for computing the sample variance", eq. 2.1), which stays
    exact where E[x²] − E[x]² loses all digits (values of 1e9 with deviation 1).

    Args:
        size: entries per vector.

    Attributes:
        news: `None`, or a list to which all merged moments are appended, for a copy in another process.
    """

    count: Tensor
    mean: Tensor
    m2: Tensor
    news: list[tuple[Tensor | float, Tensor, Tensor]] | None = None

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("m2", torch.zeros(size, dtype=torch.float64))

    @property
    def variance(self) -> Tensor:
        """Population variance `[size]`; 1 for fewer than two rows."""
        return self.m2 / self.count if float(self.count) > 1 else torch.ones_like(self.m2)

    @torch.no_grad()
    def update(self, batch: Tensor) -> None:
        """Add the rows `[N, size]`; under `torch.distributed` those of all ranks, in rank order, with equal results.

        Raises:
            NonFiniteError: a row is NaN or infinite; the statistics are unchanged.
        """
        rows = batch.detach().to(self.mean.device, torch.float64).reshape(-1, len(self.mean))
        finite = torch.isfinite(rows).all(1)
        if not bool(finite.all()):
            row = int((~finite).nonzero()[0])
            raise NonFiniteError(
                f"row {row} of {len(rows)} given to a filter is {rows[row].tolist()}; expected finite numbers: check "
                "the environment"
            )
        for count, mean, m2 in gather_moments(*moments(rows)):
            self.merge(count, mean, m2)

    @torch.no_grad()
    def merge(self, count: Tensor | float, mean: Tensor, m2: Tensor) -> None:
        """Add rows known by their count, mean `[size]` and sum of squared deviations `[size]`."""
        total = self.count + count
        if float(total) == 0:
            return
        if self.news is not None:
            self.news.append((count, mean, m2))
        delta = mean - self.mean
        self.mean += delta * (count / total)
        self.m2 += m2 + delta.square() * (self.count * count / total)
        self.count.copy_(total)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RunningMoments:
        """Move between devices, but keep float64 if a policy is converted to half precision."""
        for name, buffer in list(self._buffers.items()):
            assert buffer is not None
            moved = fn(buffer)
            self._buffers[name] = moved if moved.dtype == buffer.dtype else buffer.to(moved.device)
        return self


def moments(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and sum of squared deviations of `rows [N, size]` in two passes; zeros for no rows."""
    count = torch.tensor(float(len(rows)), dtype=rows.dtype, device=rows.device)
    mean = rows.mean(0) if len(rows) else rows.new_zeros(rows.shape[1])
    return count, mean, (rows - mean).square().sum(0)


def gather_moments(count: Tensor, mean: Tensor, m2: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The moments of all ranks in rank order, so that all ranks add them up alike; without ranks only the own ones."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
        return [(count, mean, m2)]
    packed = torch.cat([count.reshape(1), mean, m2])
    gathered = [torch.empty_like(packed) for _ in range(distributed.get_world_size())]
    distributed.all_gather(gathered, packed)
    return [(rank[0], rank[1 : 1 + len(mean)], rank[1 + len(mean) :]) for rank in gathered]


class NoFilter(nn.Identity):
    """The identity filter."""


class MeanStdFilter(nn.Module):
    """Normalizes to mean 0 and deviation 1 by frozen running statistics; the identity before the first update.

    Args:
        size: entries per vector.
        clip: limit of normalized values, which are clipped to ± this.
        std_floor: lower limit of the standard deviation, so that constant entries are not amplified.
    """

    shift: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, size: int, clip: float = 10.0, std_floor: float = 1e-4) -> None:
        super().__init__()
        self.clip, self.std_floor = clip, std_floor
        self.moments = RunningMoments(size)
        # Used in acting, stored in float32: two operations and a clamp.
        self.register_buffer("shift", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("low", torch.tensor(-torch.inf))
        self.register_buffer("high", torch.tensor(torch.inf))

    def forward(self, x: Tensor) -> Tensor:
        """`[N, size]` → normalized `[N, size]`; `x` is not changed."""
        return ((x - self.shift) * self.scale).clamp_(self.low, self.high)

    @torch.no_grad()
    def update(self, x: Tensor, mask: Tensor | None = None) -> None:
        """Add the rows of `x [N, size]` where `mask [N]` is True, and freeze the new statistics.

        Raises:
            NonFiniteError: a row is NaN or infinite; the statistics are unchanged.
        """
        self.moments.update(x if mask is None else x[mask])
        self.freeze()

    def freeze(self) -> None:
        """From now on normalize by the current running statistics."""
        if float(self.moments.count) == 0:
            return
        self.shift.copy_(self.moments.mean)
        self.scale.copy_(1.0 / self.moments.variance.sqrt().clamp(min=self.std_floor))
        self.low.fill_(-self.clip)
        self.high.fill_(self.clip)


def make_observation_filter(
    name: str, observation_space: Space[Any], preprocessor: Preprocessor
) -> NoFilter | MeanStdFilter:
    """The filter for "obs_flat": "none" or "mean_std".

    Raises:
        UnsupportedSpaceError: "mean_std" where "obs_flat" holds an image or is empty: models scale pixels themselves.
    """
    if name == "none":
        return NoFilter()
    parts = preprocessor.parts if isinstance(preprocessor, NestedPreprocessor) else {"": preprocessor}
    images = [path for path, part in parts.items() if is_image(_preprocessed_space(part))]
    if images or preprocessor.size == 0:
        raise UnsupportedSpaceError(
            f"observation_filter=mean_std is not for images ({observation_space}), which models scale themselves: use "
            "none, or leave them out of 'obs_flat' by preprocessor=NestedPreprocessor(obs_space, skipped=[…]) in a "
            "custom model's super().__init__"
        )
    return MeanStdFilter(preprocessor.size)


def _preprocessed_space(preprocessor: Preprocessor) -> Space[Any]:
    """The space whose values a preprocessor's numbers are: a flattened image still consists of pixels."""
    flattened = isinstance(preprocessor, FlattenPreprocessor)
    return preprocessor.obs_space if flattened else preprocessor.observation_space


class RunningReturns:
    """Discounted returns of the current episode up to each step, for several environments.

    Each fragment must continue the last one: the same environments in the same order.

    Args:
        gamma: discount per step, in [0, 1].
    """

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self._running = np.zeros(0)

    def state_dict(self) -> dict[str, Tensor]:
        """The returns so far of the running episodes."""
        return {"running": torch.from_numpy(self._running)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue with the running episodes of `state`."""
        self._running = state["running"].numpy().copy()

    def update(self, rewards: Tensor, valid: Tensor, t: Tensor) -> Tensor:
        """Running returns of the next fragment, `[T, B]`, float64; they restart at rows with `t == 0`.

        Args:
            rewards: `[T, B]`, raw.
            valid: bool `[T, B]`; invalid rows repeat the return of the row before.
            t: `[T, B]`, step within the episode.
        """
        lived = valid.cpu().numpy()
        gains = np.where(lived, rewards.double().cpu().numpy(), 0.0)
        keep = np.where(lived, np.where(t.cpu().numpy() == 0, 0.0, self.gamma), 1.0)
        running = self._running if len(self._running) == gains.shape[1] else np.zeros(gains.shape[1])
        returns = np.empty_like(gains)
        for step in range(len(gains)):
            running = keep[step] * running + gains[step]
            returns[step] = running
        if np.isfinite(running).all():  # else the caller refuses this fragment; the last finite values stay
            self._running = running
        return torch.from_numpy(returns)


class ReturnNormalizer(nn.Module):
    """Divides rewards by the running deviation of the discounted return, without centring, as SB3's VecNormalize.

    Args:
        gamma: discount per step, in [0, 1].
        clip: limit of scaled rewards, which are clipped to ± this.
    """

    def __init__(self, gamma: float, clip: float = 10.0) -> None:
        super().__init__()
        self.gamma, self.clip = gamma, clip
        self.moments = RunningMoments(1)
        self.returns = RunningReturns(gamma)

    @torch.no_grad()
    def update(self, rewards: Tensor, valid: Tensor, t: Tensor, running_returns: Tensor | None = None) -> None:
        """Add the running returns of a fragment.

        Args:
            rewards, valid, t: see `RunningReturns.update`.
            running_returns: `[T, B]` recorded by a rollout worker; `None` computes them, continuing the last fragment.

        Raises:
            NonFiniteError: a reward is NaN or infinite; the statistics are unchanged.
        """
        returns = self.returns.update(rewards, valid, t) if running_returns is None else running_returns
        device = self.moments.mean.device
        self.moments.update(returns.to(device)[valid.to(device)].unsqueeze(1))

    def forward(self, rewards: Tensor) -> Tensor:
        """Rewards of any shape, scaled; unchanged before two returns were counted."""
        return (rewards * float(self.moments.variance.clamp(min=1e-8).rsqrt())).clamp_(-self.clip, self.clip)


RewardFilterName = Literal["none", "sign", "clip", "return_std"]


class RewardFilter(nn.Module):
    """Transforms rewards before learning: by sign, clipping, or the deviation of returns.

    Args:
        name: "none", "sign", "clip" (to ±1) or "return_std" (`ReturnNormalizer`).
        gamma: discount per step, for "return_std".
    """

    def __init__(self, name: str, gamma: float) -> None:
        super().__init__()
        self.name, self.gamma = name, gamma
        self.normalizer = ReturnNormalizer(gamma) if name == "return_std" else None

    def forward(self, fragment: Fragment) -> Tensor:
        """Update running statistics with a fragment, and return its filtered rewards `[T, B]`."""
        self.update(fragment)
        return self.filter_rewards(fragment.rewards)

    def update(self, fragment: Fragment) -> None:
        """Update running statistics with a fragment."""
        if self.normalizer is not None:
            self.normalizer.update(fragment.rewards, is_new(fragment), fragment.t, fragment.get("running_returns"))

    def filter_rewards(self, rewards: Tensor) -> Tensor:
        """Filter rewards of any shape by the current statistics, without an update."""
        if self.normalizer is not None:
            return self.normalizer(rewards)
        return rewards.sign() if self.name == "sign" else rewards.clamp(-1.0, 1.0) if self.name == "clip" else rewards

    def clip_rewards(self, rewards: Tensor) -> Tensor:
        """Rewards of any shape as a replay buffer stores them: filtered by "sign" and "clip"."""
        return rewards if self.normalizer is not None else self.filter_rewards(rewards)

    def scale_rewards(self, rows: SampleBatch) -> SampleBatch:
        """Replayed rows as `loss` reads them: rewards scaled by the current statistics, intrinsic rewards added.

        Each reward of n steps is scaled before their sum. `rows` are not changed.
        """
        intrinsic = rows.get("intrinsic_rewards")
        if self.normalizer is None and intrinsic is None:
            return rows
        scaled = rows.without("intrinsic_rewards", "step_rewards")
        if self.normalizer is not None and "step_rewards" in rows:
            steps = self.normalizer(rows["step_rewards"])
            discounts = self.gamma ** torch.arange(steps.shape[1], device=steps.device, dtype=steps.dtype)
            scaled["rewards"] = steps @ discounts
        elif self.normalizer is not None:
            scaled["rewards"] = self.normalizer(rows.rewards)
        if intrinsic is not None:
            scaled["rewards"] = scaled.rewards + intrinsic
        return scaled
