"""Where the wall time of a run went, which part is the bottleneck, and what would shorten it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lightning_rl.config.keys import value_at
from lightning_rl.reports.run_records import RunRecord

__all__ = ["PARTS", "TimeSplit", "advice_on", "time_split"]

PARTS = {
    "collect": "stepping environments and acting",
    "idle": "waiting for rollout workers",
    "learn": "gradient steps",
    "eval": "evaluation episodes",
    "other": "start-up, checkpoints, loggers, callbacks",
}
TELLING = 3.0  # seconds; shorter runs are mostly start-up

ADVICE = {
    "collect": "Act on more environments at once (workers.envs_per_worker), or in processes (workers.num_workers).",
    "idle": "Add rollout workers (workers.num_workers), or let them act while the policy learns (policy=appo, impala).",
    "learn": "Take fewer, larger steps (policy.passes, policy.minibatches); wide networks and images want a GPU.",
    "eval": "Evaluate less (evaluation.episodes, evaluation.max_share), or beside training (evaluation.parallel=true).",
    "other": "Write less often: report_every_env_steps, checkpoint.every_seconds; look at your own callbacks.",
}
REPLAY_ADVICE = (
    "Take fewer gradient steps per env step (data.update_to_data_ratio); wide networks and images want a GPU."
)


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Mean seconds of runs in each of `PARTS`.

    Attributes:
        seconds: part → seconds; the parts that took none are left out.
        replays: whether the runs learned from a replay buffer.
    """

    seconds: dict[str, float]
    replays: bool

    @property
    def total(self) -> float:
        """Wall seconds of a run."""
        return sum(self.seconds.values())

    @property
    def bottleneck(self) -> str:
        """The part that took longest."""
        return max(self.seconds, key=lambda part: self.seconds[part])


def time_split(runs: Sequence[RunRecord]) -> TimeSplit | None:
    """The mean time split of runs; `None` if none of them recorded its time."""
    found = [split for run in runs if (split := split_of(run))]
    if not found:
        return None
    means = {part: float(np.mean([split[part] for split in found])) for part in PARTS}
    kept = {part: seconds for part, seconds in means.items() if seconds > 0}
    replays = any(run.curve("replay/updates") is not None for run in runs)
    return TimeSplit(kept, replays) if kept else None


def split_of(run: RunRecord) -> dict[str, float]:
    """Seconds of a run in each of `PARTS`; empty if it has not recorded its time.

    `time/collect_s` and `time/learn_s` are means over the iterations since the row before.
    """
    total, iterations = run.curve("time/total_s"), run.curve("time/iterations")
    if total is None or iterations is None:
        return {}
    counts = np.diff(iterations.values, prepend=0.0)

    def seconds_in(metric: str) -> float:
        series = run.curve(metric)
        if series is None:
            return 0.0
        return float(np.sum(series.values * np.interp(series.steps, iterations.steps, counts)))

    collecting, evaluation = seconds_in("time/collect_s"), run.curve("time/eval_s")
    # Evaluations of other processes take no time of the run's own.
    beside = evaluation is None or value_at(run.config, "evaluation.parallel")
    remote = bool(value_at(run.config, "workers.num_workers"))
    parts = {
        "collect": 0.0 if remote else collecting,
        "idle": collecting if remote else 0.0,
        "learn": seconds_in("time/learn_s"),
        "eval": 0.0 if beside or evaluation is None else float(evaluation.values.sum()),
    }
    return {**parts, "other": max(0.0, total.last - sum(parts.values()))}


def advice_on(split: TimeSplit) -> str:
    """The bottleneck in words, and what would shorten it."""
    part = split.bottleneck
    share = split.seconds[part] / split.total
    what = f"{PARTS[part][0].upper()}{PARTS[part][1:]} took {share:.0%} of the time."
    if split.total < TELLING:
        return f"{what} The runs took {split.total:.1f} s: too short to tell what a long run would spend its time on."
    return f"{what} {REPLAY_ADVICE if part == 'learn' and split.replays else ADVICE[part]}"
