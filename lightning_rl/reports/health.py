"""Health lights: signs of known troubles of training in a run's metrics, each with its limits and a line of advice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lightning_rl.callbacks.metric_names import EVAL_RETURN
from lightning_rl.config.keys import value_at
from lightning_rl.reports.run_records import RunRecord, Series

__all__ = ["LIGHTS", "Finding", "Light", "Reading", "findings"]

Level = Literal["ok", "watch", "trouble"]
LEVELS: tuple[Level, ...] = ("ok", "watch", "trouble")
SPIKE = 10.0  # times the median before it
BEFORE = 50  # rows of that median
WARM_UP = 0.1  # share of the rows at the beginning that some lights leave out


@dataclass(frozen=True, slots=True)
class Light:
    """A sign of trouble.

    Attributes:
        name: in two or three words.
        measured: what the number is.
        watch, trouble: limits; beyond the first one the light is yellow, beyond the second one red.
        above: whether "beyond" is above the limit.
        advice: one line.
        measure: the number of a run; `None` if it has not recorded what that takes.
        form: the form of the number.
    """

    name: str
    measured: str
    watch: float
    trouble: float
    advice: str
    measure: Callable[[RunRecord], float | None]
    form: str = "{:.3g}"
    above: bool = True

    def level(self, number: float) -> Level:
        """The color of a number."""
        sign = 1 if self.above else -1
        return (
            "trouble" if sign * (number - self.trouble) > 0 else "watch" if sign * (number - self.watch) > 0 else "ok"
        )

    @property
    def limits(self) -> str:
        """The limits in words."""
        side = "above" if self.above else "below"
        watch, trouble = self.form.format(self.watch), self.form.format(self.trouble)
        return f"red {side} {trouble}" if watch == trouble else f"yellow {side} {watch}, red {side} {trouble}"


@dataclass(frozen=True, slots=True)
class Reading:
    """A light of several runs: the worst level, its number in words, and how many of the runs have that level."""

    level: Level
    number: str
    runs: int
    of: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A light with a reading per arm; `None` for an arm that has not recorded what it takes."""

    light: Light
    readings: Sequence[Reading | None]

    @property
    def worst(self) -> Level:
        """The worst level of all arms."""
        return LEVELS[max(LEVELS.index(each.level) for each in self.readings if each)]


def findings(arms: Sequence[Sequence[RunRecord]]) -> list[Finding]:
    """All lights for which a run has recorded what they take, with a reading for each arm's runs."""
    found = (Finding(light, [reading(light, runs) for runs in arms]) for light in LIGHTS)
    return [each for each in found if any(each.readings)]


def reading(light: Light, runs: Sequence[RunRecord]) -> Reading | None:
    """The light of an arm: the worst of its runs."""
    numbers = [number for run in runs if (number := light.measure(run)) is not None]
    if not numbers:
        return None
    worst = max(numbers) if light.above else min(numbers)
    level = light.level(worst)
    return Reading(level, light.form.format(worst), sum(light.level(each) == level for each in numbers), len(numbers))


# -- what lights measure -----------------------------------------------------------------------------------------------


def statistic_of(
    metric: str, statistic: Callable[[NDArray[np.float64]], float], since: float = WARM_UP
) -> Callable[[RunRecord], float | None]:
    """A statistic of a metric over a run, without the share `since` of its rows at the beginning."""

    def measure(run: RunRecord) -> float | None:
        series = run.curve(metric)
        return None if series is None else float(statistic(series.values[int(since * len(series.values)) :]))

    return measure


def high_kl(run: RunRecord) -> float | None:
    """The KL divergence of an iteration that only one in twenty exceeds."""
    metric = "train/approx_kl" if run.curve("train/approx_kl") else "train/kl"
    return statistic_of(metric, lambda values: np.quantile(values, 0.95))(run)


def early_entropy(run: RunRecord) -> float | None:
    """Entropy at half of the run as a share of that at its beginning; of discrete actions, whose entropy is above 0."""
    series = run.curve("train/entropy")
    if series is None or len(series.values) < 10 or series.values.min() < 0 or series.values[0] == 0:
        return None
    tenth = max(1, len(series.values) // 10)
    half = np.searchsorted(series.steps, planned_env_steps(run, series) / 2)
    if half >= len(series.values):
        return None
    around = series.values[max(0, half - tenth) : half + 1]
    return float(np.median(around) / np.median(series.values[:tenth]))


def planned_env_steps(run: RunRecord, series: Series) -> int:
    """Env steps that the run will have taken at its end."""
    total = run.config.get("total_env_steps")
    return total if isinstance(total, int) and run.state != "ok" else int(series.steps[-1])


def gradient_spikes(run: RunRecord) -> float | None:
    """Share of the rows whose gradient norm is a multiple of the median of the rows before."""
    series = run.curve("train/grad_norm")
    if series is None or len(series.values) < BEFORE:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(series.values, BEFORE)[:-1]
    medians = np.median(windows, axis=1)
    return float((series.values[BEFORE:] > SPIKE * np.maximum(medians, 1e-8)).mean()) if len(medians) else 0.0


def q_ratio(run: RunRecord) -> float | None:
    """Mean Q-value over the highest mean discounted return that the evaluated rewards allow.

    With rewards of at least 0, the discounted returns of an episode's steps have a mean of at most the reward per step
    / (1 − γ). Nothing is known where returns are not positive, or where rewards are changed before they are learned.
    """
    values, returns = run.curve("train/q_mean"), run.curve(EVAL_RETURN)
    lengths, gamma = run.curve("eval/ep_len_mean"), value_at(run.config, "policy.gamma")
    filtered = value_at(run.config, "policy.reward_filter") not in (None, "none")
    if values is None or returns is None or lengths is None or filtered or run.config.get("policies"):
        return None
    if not isinstance(gamma, int | float) or not 0 <= gamma < 1 or value_at(run.config, "env.group_agents"):
        return None
    best = returns.values.max()
    if best <= 0 or lengths.values[np.argmax(returns.values)] <= 0:
        return None
    per_step = best / lengths.values[np.argmax(returns.values)]
    late_values = values.values[-max(1, len(values.values) // 10) :]
    return float(np.median(late_values) * (1 - gamma) / per_step)


def non_finite(run: RunRecord) -> float | None:
    """How many metrics of training have a value that is NaN or infinite, and 1 if such a number ended the run."""
    trained = [series for name, series in run.curves.items() if name.startswith("train/")]
    ended = str(run.status.get("error") or "").startswith("NonFiniteError")
    return float(sum(not np.isfinite(series.values).all() for series in trained) + ended) if trained or ended else None


def count_of(*metrics: str) -> Callable[[RunRecord], float | None]:
    """The newest sum of counters."""

    def measure(run: RunRecord) -> float | None:
        found = [series.last for metric in metrics if (series := run.curve(metric)) is not None]
        return sum(found) if found else None

    return measure


LIGHTS: Sequence[Light] = (
    Light(
        "NaN and infinity",
        "training metrics with NaN or infinite values",
        0,
        0,
        "Lower policy.lr, set policy.max_grad_norm, and look for rewards or observations that are huge or not finite.",
        non_finite,
        "{:.0f}",
    ),
    Light(
        "Policy step (KL)",
        "KL divergence between acting and learning policy that 95 % of the iterations stay below, nats",
        0.03,
        0.1,
        "Steps of the policy are large: lower policy.lr or policy.passes, or set policy.target_kl (PPO).",
        high_kl,
    ),
    Light(
        "Clipped ratios",
        "mean share of rows whose probability ratio was clipped, second half of the run",
        0.3,
        0.5,
        "Most of a batch gives no gradient: lower policy.lr or policy.passes.",
        statistic_of("train/clip_fraction", np.mean, since=0.5),
        "{:.0%}",
    ),
    Light(
        "Entropy",
        "entropy at half of the run, share of that at its beginning",
        0.1,
        0.02,
        "The policy decided early: raise policy.entropy_coef, or lower policy.lr.",
        early_entropy,
        "{:.0%}",
        above=False,
    ),
    Light(
        "Explained variance",
        "median explained variance of the value function",
        0.0,
        -0.5,
        "Values are no better than a constant: raise policy.value_coef, widen the value network, check the rewards.",
        statistic_of("train/explained_variance", np.median),
        "{:.2f}",
        above=False,
    ),
    Light(
        "Q-values",
        "Q-values over the highest return that the evaluated rewards allow",
        1.5,
        3.0,
        "Q-values promise more than the environment pays: use twin Qs, a slower target network, a lower policy.lr.",
        q_ratio,
        "{:.2f} ×",
    ),
    Light(
        "Gradient spikes",
        f"share of rows whose gradient norm is {SPIKE:.0f} times the median of the {BEFORE} rows before",
        0.01,
        0.05,
        "Gradients spike: set or lower policy.max_grad_norm, and look for rare huge rewards.",
        gradient_spikes,
        "{:.1%}",
    ),
    Light(
        "Policy lag",
        "median policy lag of rollouts in policy updates, second half of the run",
        4,
        16,
        "Workers act with old weights: use fewer workers, shorter fragments, or a lower data.max_policy_lag.",
        statistic_of("rollout/policy_lag", np.median, since=0.5),
        "{:.0f}",
    ),
    Light(
        "Restarts",
        "restarts of rollout processes and environments",
        0,
        10,
        "The log says why: memory (workers.max_memory_mb), time limits (workers.step_timeout_s), or the environment.",
        count_of("sys/worker_restarts", "sys/env_restarts"),
        "{:.0f}",
    ),
)
