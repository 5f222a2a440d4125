"""Estimates what the policy of a checkpoint would return, from recorded episodes of other policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.runs.evaluation import checkpoint_file, load_policy

__all__ = ["estimate"]


def estimate(
    checkpoint: Path,
    data: str,
    *,
    columns: Mapping[str, Any] | None = None,
    actions_normalized: bool = False,
    skip_damaged: bool = False,
    best: bool = False,
    estimators: Sequence[str] | None = None,
    epsilon: float | None = None,
    gamma: float | None = None,
    confidence: float = 0.9,
    fqe_steps: int = 5000,
    seed: int = 0,
    trust: str | Sequence[str] = (),
) -> dict[str, Any]:
    """Estimate the mean discounted return of a policy from a data set's starts on.

    Args:
        checkpoint: a .ckpt file, or a run directory for its last one.
        data: directory of shards, or a file, as `data.input`.
        columns, actions_normalized, skip_damaged: the values of `data.columns` and so on (`read_episodes`).
        best: whether to take the run directory's checkpoint with the best evaluation.
        estimators: `None`: all of `policies.off_policy_estimation.ESTIMATORS` that the policy and the data allow.
        epsilon, gamma, confidence, fqe_steps, seed: see `estimate_value`.
        trust: packages that the file may name.

    Returns:
        "checkpoint", "data", "gamma", "confidence"; "estimates", a record of `value`, `low` and `high` for "behavior"
        and each estimator; and where ratios were computed "effective_episodes" and "mean_ratio".

    Raises:
        CheckpointError: the file holds no policy of one agent.
        ConfigError, UnsupportedSpaceError: see `read_episodes` and `estimate_value`; or the policy and the data
            allow no estimator.
    """
    from lightning_rl.data.offline.data_set import read_episodes
    from lightning_rl.policies.off_policy_estimation import ESTIMATORS, Estimate, EvaluatedPolicy, estimate_value

    file = checkpoint_file(checkpoint, best)
    policy = load_policy(file, trust)
    if policy.agents:
        raise CheckpointError(f"checkpoint {file} holds several policies; expected one agent's")
    how = {"actions_normalized": actions_normalized, "skip_damaged": skip_damaged}
    fragment = read_episodes(policy, data, columns, **how)
    if estimators is None:
        has_ratios = "action_logp" in fragment and EvaluatedPolicy(policy, epsilon).has_density
        possible = set(ESTIMATORS) if has_ratios else {"dm"}
        estimators = [name for name in ESTIMATORS if name in possible and not (policy.is_recurrent and name in "dm dr")]
        if not estimators:
            raise ConfigError(
                f"{data} has no action_logp, which is, pdis and wis need, and dm needs a policy without memory: record "
                "the log-probabilities of actions (`lightning-rl record --explore`), or estimate another policy"
            )
    found = estimate_value(
        policy,
        fragment,
        estimators=estimators,
        gamma=gamma,
        epsilon=epsilon,
        confidence=confidence,
        fqe_steps=fqe_steps,
        seed=seed,
    )
    numbers = {name: value for name, value in found.items() if not isinstance(value, Estimate)}
    estimates = {name: asdict(value) for name, value in found.items() if isinstance(value, Estimate)}
    about = {"checkpoint": str(file), "data": data, "confidence": confidence}
    return {**about, "gamma": policy.gamma if gamma is None else gamma, **numbers, "estimates": estimates}
