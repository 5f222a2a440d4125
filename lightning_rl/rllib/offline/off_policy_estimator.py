"""RLlib's estimators of a policy's value: objects that get a batch of rows."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.losses.off_policy import importance_sampling, per_decision_importance_sampling
from lightning_rl.rllib.sample_batch import SampleBatch

__all__ = ["ClassicEstimator", "OffPolicyEstimate", "OffPolicyEstimator"]


class OffPolicyEstimator:
    """The mean discounted return of a policy, from whole episodes of another one.

    `lightning_rl.policies.off_policy_estimation.estimate_value` has more estimators, and intervals.

    Args:
        policy: has `compute_log_likelihoods(actions, obs)`.
        gamma: discount in [0, 1].
        epsilon_greedy: probability with which it acts at random; only with Discrete actions.

    Raises:
        ConfigError: `epsilon_greedy` with other actions.
    """

    name: ClassVar[str]
    weighted: ClassVar[bool]
    remembers = False  # whether the means of a weighted estimate are over all episodes so far, as in RLlib 1.x

    def __init__(self, policy: Any, gamma: float = 0.99, epsilon_greedy: float = 0.0) -> None:
        if epsilon_greedy and not isinstance(policy.action_space, spaces.Discrete):
            raise ConfigError(f"epsilon_greedy={epsilon_greedy} with {policy.action_space}; expected Discrete actions")
        self.policy, self.gamma, self.epsilon_greedy = policy, gamma, epsilon_greedy
        # Of the episodes so far, at each step: the logarithm of the products' sum, and their number.
        self._log_sums, self._counts = torch.zeros(0, dtype=torch.double), torch.zeros(0, dtype=torch.long)

    def estimate(self, batch: Any, split_batch_by_episode: bool = True) -> dict[str, float]:
        """Estimate from rows with "obs", "actions", "rewards", "eps_id" and "action_prob" or "action_logp".

        Args:
            batch: whole episodes, one after the other.
            split_batch_by_episode: `False`: every row is its own episode, as of a bandit.

        Returns:
            "v_behavior" and "v_target", the mean discounted returns of the policies that acted and of this one;
            "v_behavior_std" and "v_target_std" over episodes, "v_gain" (v_target / v_behavior) and "v_delta".

        Raises:
            ConfigError: the batch does not say how probable the actions were.
        """
        rows = SampleBatch(dict(batch.items())).numpy()
        if "action_prob" not in rows and "action_logp" not in rows:
            raise ConfigError(
                "the batch has no column action_prob or action_logp, the probabilities of its actions, which an "
                "estimate needs: record them, or set input_evaluation to []"
            )
        column = np.log(rows["action_prob"]) if "action_logp" not in rows else rows["action_logp"]
        log_ratios = self._logp(rows) - column.astype(np.float64)
        lengths = _lengths(rows) if split_batch_by_episode else [1] * rows.count
        index = np.concatenate([np.arange(length) for length in lengths]), np.repeat(np.arange(len(lengths)), lengths)
        rewards, ratios, valid = (
            torch.zeros(max(lengths), len(lengths), dtype=kind) for kind in (torch.double, torch.double, torch.bool)
        )
        rewards[index], valid[index] = torch.from_numpy(rows["rewards"].astype(np.float64)), True
        ratios[index] = torch.from_numpy(log_ratios)
        behavior = importance_sampling(rewards, torch.zeros_like(rewards), valid, self.gamma)
        target = per_decision_importance_sampling(rewards, self._relative(ratios, valid), valid, self.gamma)
        found = {}
        for name, terms in (("v_behavior", behavior), ("v_target", target)):
            found |= {name: float(terms.mean()), f"{name}_std": float(terms.std(unbiased=False))}
        gain = found["v_target"] / max(found["v_behavior"], 1e-8)
        return {**found, "v_gain": gain, "v_delta": found["v_target"] - found["v_behavior"]}

    def _relative(self, log_ratios: Tensor, valid: Tensor) -> Tensor:
        """The log ratios of each step `[T, B]`, such that the products up to it are divided by their mean, if weighted.

        The mean at a step is that of the episodes that reach it.
        """
        if not self.weighted:
            return log_ratios
        products = log_ratios.cumsum(0)
        sums, counts = products.masked_fill(~valid, -torch.inf).logsumexp(1), valid.sum(1)
        if self.remembers:
            longest = max(len(sums), len(self._log_sums))
            sums, earlier = (F.pad(each, (0, longest - len(each)), value=-torch.inf) for each in (sums, self._log_sums))
            self._log_sums = sums = torch.logaddexp(sums, earlier)
            counts, earlier = (F.pad(each, (0, longest - len(each))) for each in (counts, self._counts))
            self._counts = counts = counts + earlier
        means = (sums - counts.log())[: len(products), None]
        return (products - means).diff(dim=0, prepend=torch.zeros_like(log_ratios[:1]))

    def _logp(self, rows: SampleBatch) -> np.ndarray:
        logp = torch.as_tensor(self.policy.compute_log_likelihoods(rows["actions"], rows["obs"])).double()
        if self.epsilon_greedy:
            random = self.epsilon_greedy / int(self.policy.action_space.n)
            logp = ((1.0 - self.epsilon_greedy) * logp.exp() + random).log()
        return logp.numpy(force=True)


def _lengths(rows: SampleBatch) -> list[int]:
    """Of the episodes, which "eps_id" or the ends tell apart."""
    ends = np.diff(rows["eps_id"]) != 0 if "eps_id" in rows else rows["dones"][:-1] | rows["truncateds"][:-1]
    edges = np.concatenate([[0], np.flatnonzero(ends) + 1, [rows.count]])
    return np.diff(edges).tolist()


class OffPolicyEstimate(NamedTuple):
    """An estimate of RLlib 1.x.

    Attributes:
        estimator_name: "is" or "wis".
        metrics: "V_prev", of the policies that acted; "V_step_IS" or "V_step_WIS", of this one; "V_gain_est".
    """

    estimator_name: str
    metrics: dict[str, float]


class ClassicEstimator:
    """An estimator with the names of RLlib 1.x.

    Args:
        policy, gamma: see `OffPolicyEstimator`.

    Attributes:
        estimator: the class that estimates.
    """

    estimator: ClassVar[type[OffPolicyEstimator]]

    def __init__(self, policy: Any, gamma: float) -> None:
        self.policy, self.gamma = policy, gamma
        self._estimator = self.estimator(policy, gamma)
        self._estimator.remembers = True

    def estimate(self, batch: Any) -> OffPolicyEstimate:
        """Estimate from whole episodes, one or several; "wis" divides by the means over all batches so far."""
        found, name = self._estimator.estimate(batch), self.estimator.name
        names = {"V_prev": "v_behavior", f"V_step_{name.upper()}": "v_target", "V_gain_est": "v_gain"}
        return OffPolicyEstimate(name, {classic: found[key] for classic, key in names.items()})
