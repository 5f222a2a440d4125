"""Searches hyperparameters with Optuna: each trial is a run (or one for each of several seeds) in its own process.

Only this process writes to the study; trials report their evaluations to it (`job_processes`), and it says which of
them are pruned. A study is in an SQLite file, so that a search can be interrupted, killed and continued, and several
commands can search in the same study.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning_rl.config import compose_config
from lightning_rl.config.search_spaces import Dimension, experiment_text, search_space
from lightning_rl.errors import ConfigError, first_line, printable
from lightning_rl.run_directory.atomic import check_writable, write_atomically
from lightning_rl.run_directory.process_identity import is_alive, this_process
from lightning_rl.runs.job_processes import (
    EVALUATED,
    Job,
    evaluated_config,
    record_overrides,
    train_jobs,
    with_defaults,
)
from lightning_rl.runs.job_progress import JobProgress
from lightning_rl.schedules import to_env_steps

__all__ = ["PRUNERS", "SAMPLERS", "TABLE", "Search", "short"]

SAMPLERS = ("tpe", "random", "cmaes")
PRUNERS = ("median", "none", "hyperband")
STARTUP_TRIALS = 5  # that neither pruners nor TPE judge
BEST, TABLE = "best.yaml", "trials.csv"


@dataclass(slots=True)
class Search:
    """A search of hyperparameters.

    Args:
        overrides: see `lightning-rl train`, without run_dir; keys with several values are searched.
        directory: directory of the trials' runs, best.yaml, trials.csv and, without `storage`, the study.
        storage: an SQLite file or a URL of Optuna's; `None`: DIRECTORY/study.db.
        space: file of a search space; `None`: that of the policy.
        seeds: runs of each trial, with seeds `seed`, `seed` + 1, …; a trial's value is the mean over them.
        sampler: one of `SAMPLERS`.
        pruner: one of `PRUNERS`.

    Raises:
        ConfigError: Optuna is not installed, the space cannot be searched, or the study is one of another search.
    """

    overrides: Sequence[str]
    directory: Path
    storage: str | None = None
    space: Path | None = None
    seeds: int = 1
    sampler: str = "tpe"
    pruner: str = "median"
    dimensions: list[Dimension] = field(init=False)
    fixed: list[str] = field(init=False)
    study: Any = field(init=False)
    _trials: dict[int, Any] = field(init=False, default_factory=dict)  # of this process, by number
    _pruned: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.dimensions, self.fixed = search_space(with_defaults(self.overrides, EVALUATED), self.space)
        config = evaluated_config(self.fixed)
        self.directory = self.directory.absolute()
        check_writable("run_dir", self.directory)
        self.study = self._open(config)

    @property
    def ended(self) -> int:
        """Number of trials that have ended, also pruned and failed ones, except those that were interrupted."""
        return sum(trial.state.is_finished() and "interrupted" not in trial.user_attrs for trial in self.study.trials)

    def run(self, trials: int, at_once: int = 1, timeout: float | None = None) -> None:
        """Train until the study has that many trials.

        Args:
            trials: number of trials, earlier commands included.
            at_once: number of processes.
            timeout: seconds after which no trial begins; those that have begun end as they would.

        Raises:
            KeyboardInterrupt: a signal came; the trials in progress are begun again by the next command.
        """
        self._release_dead()
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        progress = JobProgress(max(trials - self.ended, 0), "trial")
        train_jobs(self._jobs(trials, deadline), at_once, progress, evaluated=self._is_pruned, ended=self._record)

    def best_overrides(self) -> list[str] | None:
        """The overrides of the best trial; `None` if no trial was trained to its end."""
        return self._overrides(self.study.best_trial.params) if self._in_state("COMPLETE") else None

    def write_best(self) -> Path:
        """Write the best trial as an experiment, and all trials as a table; returns the file of the experiment."""
        best, file = self.study.best_trial, self.directory / BEST
        head = [
            f"Trial {best.number} of {len(self.study.trials)}: mean evaluation return {best.value:.1f} at the end, "
            f"seeds: {self.seeds}. Copied to ./conf/experiment/NAME.yaml, it is experiment=NAME."
        ]
        write_atomically(file, experiment_text(self._overrides(best.params), head).encode())
        return file

    def rows(self) -> list[dict[str, Any]]:
        """A row for each trial: number, state, value, its parameters, env steps, seconds and error."""
        return [
            {
                "trial": trial.number,
                "state": "interrupted" if "interrupted" in trial.user_attrs else trial.state.name.lower(),
                "value": trial.value,
                **{each.key: trial.params.get(each.key) for each in self.dimensions},
                **{name: trial.user_attrs.get(name) for name in ("env_steps", "seconds", "error")},
            }
            for trial in self.study.get_trials(deepcopy=False)
        ]

    def importances(self) -> dict[str, float]:
        """How much each key explains of the differences between trials, largest first; empty with too few trials.

        Optuna's PED-ANOVA (Watanabe et al. 2023, arXiv:2304.10255).
        """
        import optuna

        done = self._in_state("COMPLETE")
        if len(done) < STARTUP_TRIALS or len({trial.value for trial in done}) < 2:
            return {}
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        return optuna.importance.get_param_importances(self.study, evaluator=evaluator)

    def _in_state(self, name: str) -> list[Any]:
        """The trials in one of Optuna's states."""
        return [trial for trial in self.study.get_trials(deepcopy=False) if trial.state.name == name]

    # -- the study -----------------------------------------------------------------------------------------------------
    def _open(self, config: Mapping[str, Any]) -> Any:
        """Create the study, or continue it.

        Raises:
            ConfigError: Optuna is not installed, or the study searches something else.
        """
        try:
            import optuna
        except ModuleNotFoundError as error:
            raise ConfigError(f"a search needs Optuna: pip install -e '.[sweep]' ({error})") from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of multivariate TPE and PED-ANOVA
        self.directory.mkdir(parents=True, exist_ok=True)
        storage = self.storage or str(self.directory / "study.db")
        if "://" not in storage:
            Path(storage).absolute().parent.mkdir(parents=True, exist_ok=True)
            storage = f"sqlite:///{Path(storage).absolute()}"
        seed, marks = int(config["seed"]), math.ceil(1 / self._share(config))
        warm_up = max(1, marks // 5)
        pruners = {
            "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS, n_warmup_steps=warm_up),
            "none": optuna.pruners.NopPruner,
            "hyperband": lambda: optuna.pruners.HyperbandPruner(min_resource=1, max_resource=marks * self.seeds),
        }
        try:
            study = optuna.create_study(
                storage=storage,
                study_name="search",
                direction="maximize",
                load_if_exists=True,
                pruner=pruners[self.pruner](),
            )
            _ = study.trials, study.user_attrs  # a damaged entry is found before a trial begins
        except Exception as error:  # SQLAlchemy's, of which there is one for each database, or of what an entry holds
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise ConfigError(
                f"study {storage} cannot be opened ({reason}): take it from a copy, or give another run_dir or --study"
            ) from error
        study.sampler = self._sampler(seed + len(study.trials))  # else a continued search tries the same values again
        searched = sorted(each.key for each in self.dimensions)
        same = {"fixed": self.fixed, "searched": searched, "seeds": self.seeds}
        for name, value in same.items():
            before = study.user_attrs.get(name, value)
            if before != value:
                raise ConfigError(
                    f"study {storage} is one of another search: {name} was {before!r}, now {value!r}; give another "
                    "run_dir or --study, or the command that began it"
                )
            study.set_user_attr(name, value)
        return study

    def _sampler(self, seed: int) -> Any:
        """Optuna's sampler; parallel trials are kept apart by TPE's constant liar."""
        import optuna

        if self.sampler == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        if self.sampler == "cmaes":
            if find_spec("cmaes") is None:
                raise ConfigError("--sampler cmaes needs the package cmaes: pip install -e '.[sweep]'")
            return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        return optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=STARTUP_TRIALS, multivariate=True, constant_liar=True
        )

    def _share(self, config: Mapping[str, Any]) -> float:
        """The part of a run between two evaluations."""
        total = config["total_env_steps"]
        return min(1.0, to_env_steps(config["evaluation"]["every_env_steps"], total) / total)

    def _release_dead(self) -> None:
        """Let trials whose process was killed be begun again."""
        for trial in self._in_state("RUNNING"):
            if not is_alive(trial.user_attrs.get("owner", {}), silent_for=0.0):
                self._give_up(trial)

    def _give_up(self, trial: Any) -> None:
        """End a trial that was interrupted, and queue its parameters."""
        import optuna

        self.study.enqueue_trial(dict(trial.params))
        optuna.trial.Trial(self.study, trial._trial_id).set_user_attr("interrupted", True)
        self.study.tell(trial.number, state=optuna.trial.TrialState.FAIL)

    # -- trials --------------------------------------------------------------------------------------------------------
    def _jobs(self, trials: int, deadline: float) -> Iterator[Job]:
        """Ask for trials until there are enough; those whose config is refused have failed."""
        import optuna

        while self.ended + len(self._trials) < trials and time.monotonic() < deadline:
            trial = self.study.ask()
            trial.set_user_attr("owner", this_process())
            params = {each.key: self._suggest(trial, each) for each in self.dimensions}
            try:
                job = self._job(trial.number, params)
            except ConfigError as error:
                trial.set_user_attr("error", str(error))
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
                print(f"trial {trial.number} failed: {printable(str(error))}", flush=True)
                continue
            self._trials[trial.number] = trial
            yield job

    def _suggest(self, trial: Any, each: Dimension) -> Any:
        """The value of one key in a trial."""
        if each.choices:
            return trial.suggest_categorical(each.key, each.choices)
        if isinstance(each.low, int):
            return trial.suggest_int(each.key, each.low, each.high, log=each.log)
        return trial.suggest_float(each.key, each.low, each.high, log=each.log)

    def _overrides(self, params: Mapping[str, Any]) -> list[str]:
        """The overrides of a trial."""
        return [*self.fixed, *(each.override(params[each.key]) for each in self.dimensions if each.key in params)]

    def _job(self, number: int, params: Mapping[str, Any]) -> Job:
        """The runs of a trial, whose directories a sweep's report can read."""
        overrides = self._overrides(params)
        first = compose_config(overrides)
        choices = dict(override.split("=", 1) for override in self.fixed)
        name = "_".join([str(number), choices.get("policy", "ppo").split(":")[-1], choices.get("env", "env")])
        configs = []
        for index in range(self.seeds):
            run_dir = self.directory / (name if self.seeds == 1 else f"{name}_seed{first['seed'] + index}")
            own = [*(each for each in overrides if not each.startswith("seed=")), f"seed={first['seed'] + index}"]
            config = evaluated_config([*own, f"run_dir='{run_dir}'"])
            record_overrides(own, run_dir)
            configs.append(config)
        shown = (f"{key.split('.')[-1]}={short(value)}" for key, value in params.items())
        return Job(number, " ".join(shown), configs)

    def _is_pruned(self, job: Job, index: int, env_steps: int, value: float) -> bool:
        """Report an evaluation of a trial; whether the trial ends there."""
        config, trial = job.configs[index], self._trials[job.number]
        if env_steps >= config["total_env_steps"]:
            return False
        share = self._share(config)
        marks = math.ceil(1 / share)
        mark = int(env_steps / config["total_env_steps"] / share + 1e-9)
        trial.report(value, index * marks + mark)
        if trial.should_prune():
            self._pruned.add(job.number)
        return job.number in self._pruned

    def _record(self, job: Job, statuses: Sequence[Mapping[str, Any]]) -> None:
        """Tell the study how a trial has ended."""
        import optuna

        trial, states = self._trials.pop(job.number), optuna.trial.TrialState
        trial.set_user_attr("env_steps", sum(status["env_steps"] for status in statuses))
        trial.set_user_attr("seconds", round(sum(status["seconds"] for status in statuses), 1))
        values = [status["evaluation"] for status in statuses]
        if job.number in self._pruned:
            self.study.tell(trial, state=states.PRUNED)
        elif len(values) == len(job.configs) and None not in values and {each["state"] for each in statuses} == {"ok"}:
            self.study.tell(trial, statistics.fmean(values))
        elif any(status["state"] == "failed" for status in statuses):
            trial.set_user_attr("error", next(status["error"] for status in statuses if status["error"]))
            self.study.tell(trial, state=states.FAIL)
        else:
            self._give_up(self.study.trials[job.number])


def short(value: Any) -> str:
    """A value of a parameter, with three digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
