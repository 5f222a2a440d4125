"""Reference curves: the evaluations of an experiment over several seeds, against which a new run is compared.

Each file of conf/reference holds one: `scripts/reference_curves.py` trains the seeds and writes it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from lightning_rl.callbacks.metric_names import EVAL_RETURN
from lightning_rl.config import compose_config
from lightning_rl.config.groups import shipped_conf
from lightning_rl.config.keys import value_at
from lightning_rl.errors import ConfigError, did_you_mean
from lightning_rl.run_directory.config_file import read_config
from lightning_rl.run_directory.metrics_file import METRICS_FILE

if TYPE_CHECKING:
    from lightning_rl.reports.run_records import RunRecord

__all__ = [
    "EVALUATION",
    "MARKS",
    "Comparison",
    "ReferenceCurves",
    "curve_at_marks",
    "load_reference",
    "reference_names",
]

MARKS = 20  # points of a curve: after each twentieth of the run
EVALUATION = (f"evaluation.every_env_steps={100 // MARKS}%", "evaluation.max_share=null", "evaluation.episodes=20")
"""Overrides of a run with a reference curve: no evaluation is put off, whatever the machine's speed."""
MARGIN = 0.1  # of what the reference runs improved by; a return counts as too low below their lowest minus this,
LEAST_MARGIN = 0.02  # or minus this share of their last return, if that is more
MAY_BE_LOW = 0.2  # share of the marks before the last


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a run's evaluations compare with reference curves.

    Args:
        ok: the last evaluation is not too low, and at most a fifth of the others are.
        low: number of marks at which the run's return is too low.
        high: number of marks at which it exceeds all reference runs.
        last: return of the run's last evaluation.
        lowest, highest: returns of the reference runs' last evaluations.
        margin: return below the lowest reference run that still counts as equal.
    """

    ok: bool
    low: int
    high: int
    last: float
    lowest: float
    highest: float
    margin: float


@dataclass(frozen=True, slots=True)
class ReferenceCurves:
    """Mean returns of the evaluations of several runs that differ in the seed only.

    Args:
        overrides: overrides of `train` that give the runs, without the seed.
        total_env_steps: length of the runs.
        seeds: one for each run.
        returns: mean evaluation returns, `[runs, MARKS]`.
        versions: the versions of the packages that trained them.
    """

    overrides: Sequence[str]
    total_env_steps: int
    seeds: Sequence[int]
    returns: Sequence[Sequence[float]]
    versions: dict[str, str]

    def compare(self, curve: Sequence[float]) -> Comparison:
        """Compare the returns of another run at the same marks, `[MARKS]`, with these."""
        at_marks = list(zip(*self.returns, strict=True))
        medians = [median(returns) for returns in at_marks]
        margin = max(MARGIN * (max(medians) - min(medians)), LEAST_MARGIN * abs(medians[-1]))
        low = [not value >= min(returns) - margin for value, returns in zip(curve, at_marks, strict=True)]
        high = [value > max(returns) for value, returns in zip(curve, at_marks, strict=True)]
        return Comparison(
            ok=not low[-1] and sum(low[:-1]) <= MAY_BE_LOW * (len(low) - 1),
            low=sum(low),
            high=sum(high),
            last=curve[-1],
            lowest=min(at_marks[-1]),
            highest=max(at_marks[-1]),
            margin=margin,
        )

    def check_comparable(self, run: RunRecord) -> None:
        """Check that a run is one of this experiment, as long as these, and complete.

        Raises:
            ConfigError: it has another environment, policy or `total_env_steps` (its returns belong to other marks),
                or it has not ended well.
        """
        config, own = read_config(run.directory), compose_config(list(self.overrides))
        for key in ("env.id", "policy._target_"):
            if (value := value_at(config, key)) != (expected := value_at(own, key)):
                raise ConfigError(f"{run.directory} has {key}={value}; the reference runs have {expected}")
        if (length := config["total_env_steps"]) != self.total_env_steps:
            raise ConfigError(
                f"{run.directory} has total_env_steps={length}; the reference runs have {self.total_env_steps}, which "
                "schedules follow: compare a run of that length"
            )
        if run.state != "ok":
            raise ConfigError(f"{run.directory} is {run.state}, so its last return is not that of a whole run")

    def save(self, file: Path) -> None:
        """Write the file, one line for each run."""
        values = {**asdict(self), "returns": None}
        rows = ",\n  ".join(json.dumps([float(f"{value:.5g}") for value in run]) for run in self.returns)
        text = json.dumps(values, indent=1).replace('"returns": null', f'"returns": [\n  {rows}\n ]')
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")


def reference_directory() -> Path:
    """The directory of the files."""
    return shipped_conf() / "reference"


def reference_names() -> list[str]:
    """Experiments that have reference curves."""
    return sorted(file.stem for file in reference_directory().glob("*.json"))


def load_reference(experiment: str) -> ReferenceCurves:
    """The reference curves of an experiment.

    Raises:
        ConfigError: there are none; names those that there are.
    """
    names = reference_names()
    if experiment not in names:
        raise ConfigError(
            f"{experiment!r} has no reference curves.{did_you_mean(experiment, names)} "
            f"There are: {', '.join(names) or 'none'}"
        )
    return ReferenceCurves(**json.loads((reference_directory() / f"{experiment}.json").read_text(encoding="utf-8")))


def curve_at_marks(run: RunRecord, total_env_steps: int) -> list[float]:
    """The return of the first evaluation at or after each twentieth of a run, `[MARKS]`; at the end, of the last one.

    Args:
        run: the run; one that has stopped early keeps its last return.
        total_env_steps: length of the run.

    Raises:
        ConfigError: the run has no evaluation.
    """
    series = run.curves.get(EVAL_RETURN)
    if series is None:
        raise ConfigError(
            f"{run.directory} has no evaluation, in {METRICS_FILE} or tb/: the run needs "
            f"evaluation.every_env_steps={100 // MARKS}% and logger=default or csv"
        )
    marks = [total_env_steps * number / MARKS for number in range(1, MARKS + 1)]
    places = series.steps.searchsorted(marks).clip(max=len(series.steps) - 1)
    return series.values[places].tolist()
