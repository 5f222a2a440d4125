"""What a policy would return, estimated from episodes that another policy recorded."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor

from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.fast_torch import in_eval_mode
from lightning_rl.losses.actor_critic import critic_error
from lightning_rl.losses.off_policy import (
    bootstrap_interval,
    doubly_robust,
    effective_sample_size,
    importance_sampling,
    per_decision_importance_sampling,
)
from lightning_rl.losses.value import td_targets
from lightning_rl.models.critics import CriticEnsemble, form_of_actions
from lightning_rl.models.distributions import ActionDistribution, Categorical, Deterministic
from lightning_rl.models.q_model import QModel
from lightning_rl.policies.bc import with_initial_states
from lightning_rl.policies.policy import Policy
from lightning_rl.policies.targets import PolyakUpdate, target_copy
from lightning_rl.sample_batch import SampleBatch, concat_samples, flatten_fragment, transition_rows
from lightning_rl.seeding import derive_seed

__all__ = [
    "ESTIMATORS",
    "Estimate",
    "EvaluatedPolicy",
    "FittedQ",
    "check_estimators",
    "estimate_value",
    "whole_episodes",
]

ESTIMATORS = ("is", "pdis", "wis", "dm", "dr")
WITH_RATIOS, WITH_Q = frozenset({"is", "pdis", "wis", "dr"}), frozenset({"dm", "dr"})
ENOUGH_EPISODES = 10  # for intervals that resample them
BATCH_ROWS = 256  # of a gradient step of fitted Q evaluation


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated mean discounted return.

    Args:
        value: the estimate.
        low, high: ends of its confidence interval.
    """

    value: float
    low: float
    high: float


class EvaluatedPolicy:
    """The action distributions of a policy whose value is estimated.

    Args:
        policy: any that has a model.
        epsilon: `None`: the policy samples from its distribution. Else it takes its best action and, with this
            probability, a random one; only with Discrete actions.

    Raises:
        ConfigError: the policy has no model, or a Q-network and no `epsilon`, or `epsilon` and no Discrete actions.
    """

    def __init__(self, policy: Policy, epsilon: float | None = None) -> None:
        name = type(policy).__name__
        self.discrete = isinstance(policy.action_space, spaces.Discrete)
        if not policy.has_model:
            raise ConfigError(f"{name} has no model, whose action distribution an estimate needs")
        if epsilon is None and isinstance(policy.model, QModel):
            raise ConfigError(f"{name} takes its best action: give epsilon, its share of random ones, such as 0.05")
        if epsilon is not None and not (self.discrete and 0.0 <= epsilon <= 1.0):
            raise ConfigError(f"epsilon={epsilon} with {policy.action_space}; expected Discrete actions and 0 to 1")
        self.policy, self.epsilon = policy, epsilon

    @property
    def has_density(self) -> bool:
        """Whether actions have one, which ratios need; the only action of a deterministic policy has none."""
        dist = getattr(self.policy.dist_class, "func", self.policy.dist_class)
        return not (isinstance(dist, type) and issubclass(dist, Deterministic))

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> ActionDistribution:
        """The distribution for the model's outputs `[N, K]`."""
        dist = self.policy.distribution(outputs, mask)
        if self.epsilon is None:
            return dist
        allowed = torch.ones_like(outputs) if mask is None else mask.to(outputs.dtype)
        best = torch.zeros_like(outputs).scatter_(1, dist.deterministic_sample().unsqueeze(1), 1.0)
        random = allowed / allowed.sum(1, keepdim=True)
        return Categorical(((1.0 - self.epsilon) * best + self.epsilon * random).log())

    @torch.no_grad()
    def logp(self, episodes: SampleBatch) -> Tensor:
        """Log π(a|s), `[T, B]`, of whole episodes; 0 after their last step. Memory starts with each episode."""
        steps = episodes.valid.shape[0]
        placed = with_initial_states(self.policy, episodes.without("state_in"))
        placed = placed if placed is not episodes else episodes.copy()
        placed["place"] = torch.arange(episodes.valid.numel()).view(episodes.valid.shape)
        rows = flatten_fragment(placed, steps if self.policy.is_recurrent else None)
        with in_eval_mode(self.policy):
            outputs, mask, _ = self.policy.outputs_of(rows)
            logp = self.distribution(outputs, mask).logp(rows.actions).double()
        return logp.new_zeros(episodes.valid.numel()).index_copy(0, rows["place"], logp).view(episodes.valid.shape)

    @torch.no_grad()
    def inputs_and_distribution(self, rows: SampleBatch, following: bool = False) -> tuple[Any, ActionDistribution]:
        """The model's inputs and the distribution for the rows' observations, or (`following`) the next ones."""
        inputs = self.policy.inputs_of(rows, following=following, is_training=False)
        mask = self.policy.mask_of(rows, following=following) if self.discrete else None
        return inputs, self.distribution(self.policy.model(inputs, (), None)[0], mask)


class FittedQ:
    """Q of a fixed policy, learned from rows of any other: fitted Q evaluation. Le et al. 2019, arXiv:1903.08738.

    Args:
        evaluated: the policy, without memory; its preprocessor and filter serve the Q-network too.
        gamma: discount in [0, 1].
        values: the lowest and the highest return that is possible; values of the network are clipped to them.
        hiddens: widths of the Q-network's hidden layers.
        lr: the learning rate of Adam.
        tau: τ of the target network's update after each gradient step.
        seed: seeds the first weights, and the actions that are sampled.

    Raises:
        ConfigError: the policy has memory, or actions that are neither Discrete nor a Box.
    """

    def __init__(
        self,
        evaluated: EvaluatedPolicy,
        gamma: float,
        values: tuple[float, float],
        *,
        hiddens: tuple[int, ...] = (256, 256),
        lr: float = 1e-3,
        tau: float = 0.05,
        seed: int = 0,
    ) -> None:
        policy, space = evaluated.policy, evaluated.policy.action_space
        if policy.is_recurrent or not isinstance(space, spaces.Discrete | spaces.Box):
            raise ConfigError(
                f"a Q-function of {type(policy).__name__} with {space} and "
                f"{'memory' if policy.is_recurrent else 'no memory'} is not learned: leave dm and dr out"
            )
        config = {"fcnet_hiddens": list(hiddens), "fcnet_activation": "relu"}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            critic = CriticEnsemble(policy.observation_space, space, config, count=1, **form_of_actions(space))
        self.critic = critic.to(policy.device)
        self.evaluated, self.gamma, self.values, self.tau = evaluated, gamma, values, tau
        self.target = target_copy(self.critic)
        self._update_target = PolyakUpdate(self.target, self.critic)
        self._optimizer = torch.optim.Adam(self.critic.parameters(), lr)

    def learn(self, rows: SampleBatch) -> Tensor:
        """One gradient step on transitions `[N, …]`; returns the loss."""
        following = self.state_values(rows, self.target, following=True)
        targets = td_targets(rows.rewards, following, rows.terminated, self.gamma)
        loss = critic_error(self.critic.action_values(self.evaluated.policy.inputs_of(rows), rows.actions), targets)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._update_target(self.tau)
        return loss.detach()

    @torch.no_grad()
    def q_values(self, rows: SampleBatch) -> Tensor:
        """Q(s, a) of the recorded actions, `[N]`."""
        return self.critic.action_values(self.evaluated.policy.inputs_of(rows), rows.actions)[0].clamp(*self.values)

    @torch.no_grad()
    def state_values(self, rows: SampleBatch, critic: CriticEnsemble | None = None, following: bool = False) -> Tensor:
        """V(s) = E Q(s, a), `[N]`: exact for discrete actions, else for one action of the evaluated policy."""
        inputs, dist = self.evaluated.inputs_and_distribution(rows, following)
        critic, space = critic or self.critic, self.evaluated.policy.action_transform.policy_space
        return critic.state_values(inputs, dist, space).clamp(*self.values)


def estimate_value(
    policy: Policy,
    fragment: SampleBatch,
    *,
    estimators: Collection[str] = ESTIMATORS,
    gamma: float | None = None,
    epsilon: float | None = None,
    confidence: float = 0.9,
    fqe_steps: int = 5000,
    seed: int = 0,
) -> dict[str, Estimate | float]:
    """What a policy would return from the recorded starts on: an estimate for each estimator.

    Args:
        policy: the policy to evaluate.
        fragment: episodes of other policies, `obs [T+1, B, *]`, everything else `[T, B, …]`, with actions in the
            policy's space; "is", "pdis", "wis" and "dr" also read `action_logp`. Episodes that the fragment cuts at
            either end are left out.
        estimators: names of `ESTIMATORS`: importance sampling, the same per decision, weighted importance sampling,
            the direct method by fitted Q evaluation, doubly robust.
        gamma: discount in [0, 1]; `None`: the policy's.
        epsilon: see `EvaluatedPolicy`.
        confidence: the confidence of the intervals, which resample episodes. That of "dm" does not know how far its
            Q-function is off.
        fqe_steps: gradient steps of fitted Q evaluation, on 256 rows each.
        seed: seeds the Q-function, its batches and the resampling.

    Returns:
        The estimators' estimates; "behavior", that of the policies that acted; and where ratios were computed
        "effective_episodes", from 1 to the number of episodes, and "mean_ratio", that of the episodes, which is 1 in
        expectation: far below, episodes are missing that the policy would often play.

    Raises:
        ConfigError: an estimator is unknown, there are fewer than two whole episodes, no `action_logp`, or no episode
            that the policy can repeat, or as `EvaluatedPolicy` and `FittedQ`.
        UnsupportedSpaceError: the policy is deterministic, and an estimator needs its density.
    """
    check_estimators(estimators)
    evaluated, gamma = EvaluatedPolicy(policy, epsilon), policy.gamma if gamma is None else gamma
    groups = whole_episodes(fragment)
    generator = torch.Generator().manual_seed(derive_seed(seed, "evaluation"))
    log_ratios = [torch.zeros_like(episodes.rewards, dtype=torch.float64) for episodes in groups]
    returns = _terms(importance_sampling, groups, log_ratios, gamma)
    if len(returns) < ENOUGH_EPISODES:
        warnings.warn(f"the data hold {len(returns)} whole episodes: intervals of so few are too narrow", stacklevel=2)
    terms, found = {"behavior": Terms(returns)}, dict[str, Estimate | float]()
    if WITH_RATIOS & set(estimators):
        log_ratios = [_log_ratios(evaluated, episodes) for episodes in groups]
        sums = _log_ratios_of_episodes(groups, log_ratios)
        ratios = (sums - sums.max()).exp()  # to the largest: none overflows, and not all are 0
        terms["is"] = Terms(_terms(importance_sampling, groups, log_ratios, gamma))
        terms["wis"] = Terms(ratios * returns, ratios)
        terms["pdis"] = Terms(_terms(per_decision_importance_sampling, groups, log_ratios, gamma))
        found["effective_episodes"] = float(effective_sample_size(ratios))
        found["mean_ratio"] = float((sums.logsumexp(0) - math.log(len(sums))).exp())
    if WITH_Q & set(estimators):
        fitted = _q_and_v(evaluated, groups, gamma, fqe_steps, seed, generator)
        terms["dm"] = Terms(torch.cat([values[0] for _, values in fitted]))
        robust = zip(groups, log_ratios, fitted, strict=True)
        terms["dr"] = Terms(torch.cat([_robust_terms(*group, gamma) for group in robust]))
    for name in ("behavior", *(each for each in ESTIMATORS if each in estimators)):
        low, high = bootstrap_interval(*terms[name], confidence=confidence, generator=generator)
        found[name] = Estimate(terms[name].value(), float(low), float(high))
    return found


def check_estimators(estimators: Collection[str]) -> None:
    """Check the names of estimators.

    Raises:
        ConfigError: one is unknown.
    """
    if unknown := sorted(set(estimators) - set(ESTIMATORS)):
        raise ConfigError(f"estimators={unknown} are unknown; expected some of {list(ESTIMATORS)}")


class Terms(NamedTuple):
    """What an estimator computes of each episode; the estimate is Σ terms / Σ weights.

    Attributes:
        terms: `[B]`.
        weights: `[B]`; `None`: 1.
    """

    terms: Tensor
    weights: Tensor | None = None

    def value(self) -> float:
        """The estimate."""
        return float(self.terms.mean() if self.weights is None else self.terms.sum() / self.weights.sum())


def _log_ratios(evaluated: EvaluatedPolicy, episodes: SampleBatch) -> Tensor:
    """Log π(a|s) − log μ(a|s), `[T, B]`; 0 after an episode's last step."""
    if not evaluated.has_density:
        name = type(evaluated.policy).__name__
        raise UnsupportedSpaceError(
            f"{name} is deterministic, so that is, pdis, wis and dr have no ratios: give dm alone"
        )
    if "action_logp" not in episodes:
        raise ConfigError(
            "the data have no column action_logp, the log-probabilities of recorded actions, which is, pdis, wis "
            "and dr need: record them, or leave these estimators out"
        )
    return evaluated.logp(episodes) - episodes.action_logp.double().where(episodes.valid, 0.0)


def _log_ratios_of_episodes(groups: Sequence[SampleBatch], log_ratios: Sequence[Tensor]) -> Tensor:
    """The logarithms of the ratios of whole episodes, `[B]`, not all of them −∞."""
    sums = torch.cat([each.where(group.valid, 0.0).sum(0) for group, each in zip(groups, log_ratios, strict=True)])
    if sums.max().isneginf():
        raise ConfigError(
            "each recorded episode has an action that the policy never takes, so that is, pdis, wis and dr know "
            "nothing of it: raise epsilon, or leave these estimators out"
        )
    return sums


def _terms(
    estimator: Callable[..., Tensor], groups: Sequence[SampleBatch], log_ratios: Sequence[Tensor], gamma: float
) -> Tensor:
    """The terms of an estimator that needs nothing but ratios, `[B]`."""
    found = zip(groups, log_ratios, strict=True)
    return torch.cat([estimator(group.rewards.double(), each, group.valid, gamma) for group, each in found])


def _robust_terms(episodes: SampleBatch, log_ratios: Tensor, fitted: tuple[Tensor, Tensor], gamma: float) -> Tensor:
    """The terms of doubly robust estimation, with `q_values [T, B]` and `values [T+1, B]`."""
    ends = {"terminated": episodes.terminated & episodes.valid, "valid": episodes.valid}
    return doubly_robust(episodes.rewards.double(), log_ratios, *fitted, **ends, gamma=gamma)


def _q_and_v(
    evaluated: EvaluatedPolicy,
    groups: Sequence[SampleBatch],
    gamma: float,
    steps: int,
    seed: int,
    generator: torch.Generator,
) -> list[tuple[Tensor, Tensor]]:
    """Q of each group's recorded actions `[T, B]` and V `[T+1, B]`, by a Q-function learned from all of them."""
    parts = []
    for episodes in groups:
        placed = episodes.copy()
        placed["place"] = torch.arange(episodes.valid.numel()).view(episodes.valid.shape)
        parts.append(transition_rows(placed))
    rows = concat_samples(parts)
    low, high = (float(reward) for reward in rows.rewards.aminmax())
    # Of a reward at each step, discounted.
    steps_ahead = 1 / (1 - gamma) if gamma < 1 else max(len(episodes.valid) for episodes in groups)
    fitted = FittedQ(evaluated, gamma, (min(low, low * steps_ahead), max(high, high * steps_ahead)), seed=seed)
    found = []
    with in_eval_mode(evaluated.policy), torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "evaluation", 1))
        for _ in range(steps):
            fitted.learn(rows[torch.randint(rows.count, (BATCH_ROWS,), generator=generator)])
        for episodes, part in zip(groups, parts, strict=True):
            (length, count), place = episodes.valid.shape, part["place"]
            q_values = torch.zeros(length * count, dtype=torch.float64)
            q_values[place] = fitted.q_values(part).double()
            values = torch.zeros((length + 1) * count, dtype=torch.float64)
            values[place + count] = fitted.state_values(part, following=True).double()
            values[place] = fitted.state_values(part).double()
            found.append((q_values.view(length, count), values.view(length + 1, count)))
    return found


def whole_episodes(fragment: SampleBatch) -> list[SampleBatch]:
    """The whole episodes of a fragment as columns: groups of `obs [L+1, E, *]`, everything else `[L, E, …]`.

    An episode begins at row 0 of its column; `valid` is False after its last step, where the numbers mean nothing.
    A group has the episodes between two powers of two in length, so that it is at most twice as large as they are.

    Args:
        fragment: `obs [T+1, B, *]`, everything else `[T, B, …]`, with `t`.

    Raises:
        ConfigError: there are fewer than two whole episodes.
    """
    width, valid = fragment.valid.shape[1], fragment.valid.T  # [B, T]
    first = (valid & (fragment.t.T == 0)).nonzero().tolist()
    last = (valid & (fragment.terminated | fragment.truncated).T).nonzero().tolist()
    starts, lengths, place = [], [], 0
    for column, (env, start) in enumerate(first):
        while place < len(last) and last[place] < [env, start]:
            place += 1
        following = first[column + 1] if column + 1 < len(first) else [math.inf, 0]
        if place < len(last) and last[place][0] == env and last[place] < following:
            starts.append(start * width + env)
            lengths.append(last[place][1] - start + 1)
    if len(starts) < 2:
        raise ConfigError(
            f"the data hold {len(starts)} whole episodes; expected at least 2: record more, or name the "
            "columns episode and t of transitions that are in no order"
        )
    groups: dict[int, list[int]] = {}
    for episode, length in enumerate(lengths):
        groups.setdefault(length.bit_length(), []).append(episode)
    begin, length = torch.tensor(starts), torch.tensor(lengths)
    return [_columns(fragment, begin[groups[size]], length[groups[size]]) for size in sorted(groups)]


def _columns(fragment: SampleBatch, begin: Tensor, length: Tensor) -> SampleBatch:
    """The episodes that begin at these slots `[E]` of a fragment, and have these lengths `[E]`, as columns."""
    steps = torch.arange(int(length.max()) + 1).unsqueeze(1).minimum(length)  # [L+1, E]; stays at the final observation
    slots = begin + steps * fragment.valid.shape[1]

    def gather(column: Tensor) -> Tensor:
        flat, index = column.flatten(0, 1), slots if len(column) > len(fragment.valid) else slots[:-1]
        return flat[index.clamp(max=len(flat) - 1)]

    episodes = fragment.map(gather)
    episodes["valid"] = torch.arange(int(length.max())).unsqueeze(1) < length
    return episodes
