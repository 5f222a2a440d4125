"""Runs a plain config: builds policy, data and Trainer, trains, and writes the run directory.

Torch and Lightning are imported inside functions, so that a mistake in the config is reported before these imports.
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatch
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_rl.config.directories import GROUPS
from lightning_rl.config.keys import dotted_keys, value_at
from lightning_rl.config.run_fractions import fractions_to_env_steps
from lightning_rl.errors import (
    USER_ERRORS,
    CheckpointError,
    ConfigError,
    RankError,
    first_line,
    import_object,
    no_such_key,
    short_repr,
)
from lightning_rl.run_directory.checkpoints import has_checkpoint
from lightning_rl.run_directory.config_file import CONFIG_FILE, changes, is_own_run, read_config, trust_in_config
from lightning_rl.run_directory.lock import LOCK_FILE, RunLock, refuse_live_run
from lightning_rl.run_directory.regular_files import open_regular, refuse_links
from lightning_rl.run_directory.status import (
    FIELDS,
    STATUS_FILE,
    read_status,
    read_status_or_empty,
    update_status,
)
from lightning_rl.runs import multi_agent
from lightning_rl.runs.initial_weights import load_initial_weights
from lightning_rl.runs.ranks import is_first_rank
from lightning_rl.runs.trainer import make_trainer
from lightning_rl.schema.ranges import Count
from lightning_rl.schema.signatures import coerce
from lightning_rl.schema.trust import FileTrust, trust_names

if TYPE_CHECKING:
    from lightning.pytorch import Callback, Trainer
    from lightning.pytorch.loggers import Logger

    from lightning_rl.callbacks import StopSignals
    from lightning_rl.callbacks.stop import Watch
    from lightning_rl.data.datamodule import RolloutDataModule
    from lightning_rl.envs.creator import EnvCreator
    from lightning_rl.policies import Policy

__all__ = ["AFRESH", "RESUMABLE", "build", "fit", "record_outcome", "resumed_config", "train"]

log = logging.getLogger(__name__)

ENDED = ("ok", "interrupted")  # states of a run that ended without an error
AFRESH = "delete the directory and train again, or give another run_dir"
LOG_KNOWN_METRICS = ("lightning", "lightning_rl", "torch", "torchmetrics")  # packages
SCHEDULED = ("lr", "clip", "entropy_coef")  # keys of a policy that change how it learns, not what
EXPLORED = ("*epsilon*", "*_timesteps", "*scale*", "stddev", "temperature", "eta", "intrinsic_reward_coeff")
# Keys that decide where and how a run is computed and recorded, not what it learns.
ELSEWHERE = (
    *("logger*", "callbacks*", "rank_launcher*", "trainer", "trainer.*", "data.storage", "data.output"),
    *("workers.num_workers", "workers.act_on", "workers.ray*"),
)
# Keys and groups that may change when a run is resumed; any other change would make it another run.
RESUMABLE = (
    *(
        "total_env_steps",
        "report_every_env_steps",
        "stop.*",
        "checkpoint",
        "checkpoint.*",
        "evaluation",
        "evaluation.*",
    ),
    "torch_threads",
    *(f"{of}.{name}{end}" for of in ("policy", "policies.*") for name in SCHEDULED for end in ("", ".*")),
    *(f"exploration.{name}" for name in EXPLORED),
    *("workers.max_*", "workers.restart_backoff_s", "workers.min_healthy", "workers.*_timeout_s"),
    *ELSEWHERE,
)
BEGUN = ("overrides*", "init_from*", "run_dir")  # keys of the start of a run, which may differ in its config.yaml


def build(
    config: Mapping[str, Any],
    signals: StopSignals | None = None,
    place: Mapping[str, Any] | None = None,
    *,
    ckpt_path: Path | None = None,
    watch: Watch | None = None,
) -> tuple[Policy, RolloutDataModule, Trainer]:
    """Build policy, DataModule and Trainer for `trainer.fit(policy, datamodule=datamodule)`; writes no file yet.

    Args:
        config: plain containers that passed `check_config`. Classes may take the place of import paths.
        signals: records Ctrl-C; `None` leaves it to Lightning.
        place: keywords of the Trainer from a launcher that define its rank; `None`: environment variables define it.
        ckpt_path: a checkpoint of this run that will be restored, so that no other file is read: neither that of
            `init_from` nor those of `policies`.
        watch: see `StopCallback`.

    Raises:
        CheckpointError: the checkpoint of `init_from` cannot be read, or does not fit.
        ConfigError: a constructor refuses its keywords, a callback watches an unknown metric, or evaluations are in an
            environment with other spaces.
        EnvError: the environment cannot be made, or breaks the Gymnasium API.
        UnsupportedSpaceError: the policy cannot take the environment's spaces.
    """
    import torch
    from lightning.pytorch import Callback, seed_everything

    from lightning_rl.callbacks import ConfigInCheckpoint, RunDescription, filter_lightning_messages
    from lightning_rl.callbacks.hooks import worker_hooks
    from lightning_rl.callbacks.loggers import has_tensorboard
    from lightning_rl.data.datamodule import RolloutDataModule
    from lightning_rl.data.evaluator import evaluated_every
    from lightning_rl.envs.creator import EnvCreator

    filter_lightning_messages()
    asked, config = config, fractions_to_env_steps(config)
    torch.set_num_threads(config["torch_threads"])
    seed_everything(config["seed"], verbose=False)  # for users' code; the package derives its own seeds
    env = EnvCreator(**config["env"])
    spaces = env.spaces()
    layout = env.layout()
    users = [
        instantiate(entry, "callback", expected=Callback, place=f"callbacks[{index}]")
        for index, entry in enumerate(config["callbacks"])
    ]
    if evaluations_decide(config, users):
        config = {**config, "evaluation": {**config["evaluation"], "max_share": None}}
    shared = {"seed": config["seed"], "callbacks": worker_hooks(users)}
    if layout is None:
        multi_agent.check_one_agent(config, env)
        check_evaluation_env(config, env, spaces)
        policy, feeds = instantiate(config["policy"], "_target_", *spaces), {}
    else:
        policy, data = multi_agent.build_policy(config, env, layout, spaces, ckpt_path)
        config, feeds = multi_agent.sources(config, policy, data)
    source = instantiate(config["data"], "_target_")
    datamodule = RolloutDataModule(env, config["workers"], config["evaluation"], source, **shared)
    datamodule.feeds.update(feeds)
    check_monitors(users, policy)
    if is_first_rank():
        warn_if_nothing_is_learned(config, policy, datamodule)
    if config["init_from"] is not None and ckpt_path is None:
        line = load_initial_weights(policy, config["init_from"], config["init_from_strict"])
        if is_first_rank():
            print(line, flush=True)
    if config["workers"]["vectorization"] == "native":
        env.make(1, "native").close()  # fail now, not when training has begun
    in_checkpoint = ConfigInCheckpoint(asked, own=ckpt_path is None or is_own_run(Path(config["run_dir"])))
    writers = loggers(config)
    described = [RunDescription(asked)] if has_tensorboard(writers) else []
    trainer = make_trainer(
        config,
        policy,
        place or {},
        max_epochs=-1,  # StopCallback counts env steps
        logger=writers or False,
        callbacks=[in_checkpoint, *callbacks(config, env, users, signals, watch), *described],
        default_root_dir=config["run_dir"],
        limit_val_batches=None if evaluated_every(config["evaluation"]) else 0,
        log_every_n_steps=1,  # MetricsCallback logs; this only avoids a warning of Lightning
        num_sanity_val_steps=0,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    return policy, datamodule, trainer


def check_evaluation_env(config: Mapping[str, Any], env: EnvCreator, spaces: Sequence[Any]) -> None:
    """Refuse evaluations in an environment whose observations or actions have another form than in training.

    Raises:
        ConfigError: its spaces differ; the bounds of Boxes may.
        EnvError: it cannot be made, or breaks the Gymnasium API.
    """
    from lightning_rl.envs.creator import EnvCreator
    from lightning_rl.spaces import space_difference

    if config["evaluation"]["env"] is None:
        return
    other = EnvCreator(**config["evaluation"]["env"])
    for name, ours, theirs in zip(("observation_space", "action_space"), spaces, other.spaces(), strict=True):
        if difference := space_difference(theirs, ours, bounds=False):
            raise ConfigError(
                f"evaluation.env={other.name!r}: its {name} is not that of the training environment {env.name!r}: "
                f"{difference}; evaluate in one with equal spaces (env.wrappers may make them so), or leave "
                "evaluation.env out"
            )


def warn_if_nothing_is_learned(config: Mapping[str, Any], policy: Any, datamodule: RolloutDataModule) -> None:
    """Warn of policies in training that learn from replay, if the run ends before their first gradient step."""
    total_env_steps = config["total_env_steps"]
    ratios = {
        f"policies.{name}.data" if name in config["policies"] else "data": feed.ratio
        for name, feed in datamodule.feeds.items()
        if name in policy.policies_to_train  # the others have a buffer for the case that they are trained later
    }
    if (own := getattr(datamodule.source, "ratio", None)) is not None:
        ratios["data"] = own
    for section, ratio in ratios.items():
        if total_env_steps < ratio.first_step:
            log.warning(
                f"{section}.learning_starts={ratio.learning_starts}: the first gradient step is due after "
                f"{ratio.first_step} env steps, and the run ends with the iteration that reaches "
                f"total_env_steps={total_env_steps}: it learns next to nothing; lower {section}.learning_starts, or "
                "raise total_env_steps"
            )


def instantiate(entry: Any, key: str, *arguments: Any, expected: type = object, place: str = "") -> Any:
    """Create an object from its config: an import path, a class, an object, or a mapping with `key` and keywords.

    Args:
        entry, key: the config, and its key for the import path; "_target_" is one as well.
        arguments: the arguments of the constructor, before the keywords in the config.
        expected: class of the object.
        place: dotted key of the config, for messages on objects of other classes and refused keywords.

    Raises:
        ConfigError: the config names nothing, its keywords do not fit, or the object is of another class.
    """
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    keywords = dict(entry) if isinstance(entry, Mapping) else {key: entry}
    target = keywords.pop(key, None) or keywords.pop("_target_", None)
    if target is None:
        raise ConfigError(f"{entry!r} has no {key!r}; expected an import path, or {{{key}: path, **keywords}}")
    found = import_object(target) if isinstance(target, str) else target
    if callable(found):
        try:
            inspect.signature(found).bind(*arguments, **keywords)
        except TypeError as error:
            raise ConfigError(f"{target}: {error}; it takes {inspect.signature(found)}") from error
        try:
            found = found(*arguments, **keywords)
        except MisconfigurationException as error:
            raise ConfigError(f"{place or target}={short_repr(entry)}: {first_line(error)}") from error
    if not isinstance(found, expected):
        raise ConfigError(
            f"{place}={short_repr(entry)} gives {short_repr(found)}; expected a "
            f"{expected.__module__}.{expected.__name__}"
        )
    return found


def check_monitors(users: Sequence[Callback], policy: Policy) -> None:
    """Check the metrics that Lightning's callbacks among the user's watch, unless the user's own code may log others.

    Raises:
        ConfigError: a callback watches a metric that is never logged.
    """
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

    from lightning_rl.callbacks.metric_names import check_metric

    if any(type(each).__module__.partition(".")[0] not in LOG_KNOWN_METRICS for each in (*users, *policy.modules())):
        return
    for index, each in enumerate(users):
        if isinstance(each, EarlyStopping | ModelCheckpoint) and each.monitor is not None:
            check_metric(f"callbacks[{index}].monitor", each.monitor, also=("epoch", "step"))


def evaluations_decide(config: Mapping[str, Any], users: Sequence[Callback]) -> bool:
    """Whether evaluations decide when a run ends: none is postponed then, because wall time would decide with them."""
    from lightning.pytorch.callbacks import EarlyStopping

    stop = config["stop"]
    read = [stop["metric"]] if stop["return"] is not None else []
    read += [each.monitor for each in users if isinstance(each, EarlyStopping)]
    return any(str(metric).startswith("eval/") for metric in read)


def loggers(config: Mapping[str, Any]) -> list[Logger]:
    """Create the loggers in the config.

    Raises:
        ConfigError: the package of one is not installed.
    """
    from lightning.pytorch.loggers import Logger

    found = []
    for name, entry in config["logger"].items():
        try:
            found.append(instantiate(entry, "_target_", expected=Logger, place=f"logger.{name}"))
        except ModuleNotFoundError as error:
            raise ConfigError(f"logger.{name} needs a package that is not installed: {error}") from error
    return found


def callbacks(
    config: Mapping[str, Any],
    env: EnvCreator,
    users: list[Callback],
    signals: StopSignals | None,
    watch: Watch | None = None,
) -> list[Callback]:
    """The run's own callbacks and the user's, in the order in which they need each other's results."""
    from lightning_rl.callbacks import (
        MetricsCallback,
        ParallelEvaluation,
        ProgressBar,
        RankConfigCheck,
        RLCheckpoint,
        StatusCallback,
        StopCallback,
    )
    from lightning_rl.runs.off_policy_evaluation import OffPolicyEvaluation

    run_dir, rules = Path(config["run_dir"]), dict(config["stop"])
    target = rules.pop("return")
    if target == "auto":
        target = env.reward_threshold
        if target is None:
            raise ConfigError(f"stop.return=auto: {env.name!r} declares no reward_threshold; give a number")
    metrics = MetricsCallback(config, config["report_every_env_steps"])
    stop = StopCallback(config["total_env_steps"], target, signals=signals, watch=watch, **rules)
    checkpoint = RLCheckpoint(run_dir / "checkpoints", **config["checkpoint"])
    status = StatusCallback(run_dir / "status.json", metrics, stop, checkpoint)
    shown = config["trainer"].get("enable_progress_bar", True)
    progress = [ProgressBar(metrics, config["total_env_steps"])] if shown else []
    beside = [ParallelEvaluation(metrics, stop, checkpoint)] if config["evaluation"].get("parallel") else []
    evaluation = config["evaluation"]
    estimates = [
        OffPolicyEvaluation(evaluation["estimators"], evaluation["data"], evaluation["estimator_options"])
        for _ in evaluation["estimators"][:1]
    ]
    return [RankConfigCheck(config), metrics, *estimates, *users, stop, *beside, checkpoint, status, *progress]


def train(config: Mapping[str, Any], ckpt_path: Path | None = None, watch: Watch | None = None) -> dict[str, Any]:
    """Train from a config until the end, an interrupt, or an error.

    Args:
        config: plain containers that passed `check_config`.
        ckpt_path: a checkpoint of this run to continue from.
        watch: called after each iteration and evaluation; it may interrupt the run (`StopCallback`).

    Returns:
        Content of status.json: state ("ok" or "interrupted"), and the fields of `write_status`.

    Raises:
        ConfigError: `run_dir` holds a run already, or another process trains there, or its files are behind links.
        Exception: the error that ended the run; its traceback is in RUN_DIR/train.log, and status.json says "failed".
    """
    run_dir, first = Path(config["run_dir"]).absolute(), is_first_rank()
    refuse_links(run_dir)
    with RunLock(run_dir) if first else nullcontext():
        if first and ckpt_path is None:
            refuse_other_run(run_dir)
        with record_outcome(run_dir):
            watched = {} if watch is None else {"watch": watch}  # launchers of users may know nothing of it
            instantiate(config["rank_launcher"], "_target_").launch(config, ckpt_path, **watched)
        status = {**FIELDS, **read_status_or_empty(run_dir / STATUS_FILE)}
        return status if status.get("state") in ENDED else {**status, "state": "ok"}  # the last write may have failed


def refuse_other_run(run_dir: Path) -> None:
    """Raise an error if a directory holds a run, which a new one would overwrite.

    What was refused before its first step, as for a wrong key, is not a run: the corrected command may be given again.

    Raises:
        ConfigError: says how to proceed.
    """
    if (run_dir / CONFIG_FILE).exists():
        if not has_checkpoint(run_dir):
            status = read_status_or_empty(run_dir / STATUS_FILE)
            if status.get("state") == "failed" and not status.get("env_steps"):
                return
            raise ConfigError(f"run_dir={run_dir} holds a run that has no checkpoint: {AFRESH}")
        raise ConfigError(f"run_dir={run_dir} holds a run: continue it with `lightning-rl resume`, or choose another")


def fit(policy: Policy, datamodule: RolloutDataModule, trainer: Trainer, ckpt_path: Path | None = None) -> None:
    """Train, and stop all workers afterwards.

    Raises:
        KeyboardInterrupt: a signal ended the run.
        SaveError: its last checkpoint could not be written, then or at the end.
        Exception: the error that ended the run.
    """
    try:
        with restoring(trainer, ckpt_path):
            trainer.fit(policy, datamodule=datamodule, ckpt_path=ckpt_path)
    except SystemExit as error:  # raised by Lightning after a KeyboardInterrupt
        unsaved = [getattr(callback, "unsaved", None) for callback in trainer.callbacks]  # type: ignore[attr-defined]
        raise next(filter(None, unsaved), KeyboardInterrupt()) from error
    finally:
        datamodule.stop()


@contextmanager
def restoring(trainer: Trainer, ckpt_path: Path | None) -> Iterator[None]:
    """Context in which errors while the Trainer restores a checkpoint become `CheckpointError`s.

    Raises:
        CheckpointError: names the file and what went wrong.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        # Empty before a file is read, and once all of it is restored.
        held = trainer._checkpoint_connector._loaded_checkpoint
        if isinstance(error, CheckpointError) and held and str(ckpt_path) not in str(error):
            raise CheckpointError(f"{ckpt_path}: {error}") from error
        if not held or isinstance(error, (*USER_ERRORS, RankError)):
            raise
        reason = (str(error).splitlines() or [""])[0]
        raise CheckpointError(
            f"checkpoint {ckpt_path} cannot be restored ({type(error).__name__}: {reason}): it was changed, or another "
            "version of what it is restored to wrote it"
        ) from error


@contextmanager
def record_outcome(run_dir: str | Path) -> Iterator[None]:
    """Context that writes to RUN_DIR that a run failed or was interrupted.

    After an error, the traceback is added to train.log, and status.json says "failed"; after an interrupt before
    training, status.json says "interrupted". A directory without a run gets neither.

    Raises:
        KeyboardInterrupt: the interrupt, with the saved files in its message.
    """
    run_dir = Path(run_dir)
    before = read_status_or_empty(run_dir / STATUS_FILE)
    try:
        yield
    except Exception as error:
        if any(path.name != LOCK_FILE for path in run_dir.glob("*")):  # more than the lock of a run that is starting
            record_failure(run_dir, error, before)
        raise
    except KeyboardInterrupt as interrupt:
        if not (run_dir / CONFIG_FILE).exists():
            raise
        if read_status_or_empty(run_dir / STATUS_FILE).get("state", "running") == "running":
            update_status(run_dir, state="interrupted")
        from lightning_rl.run_directory.checkpoint_files import newest_checkpoint  # torch

        newest = newest_checkpoint(run_dir / "checkpoints")
        saved = f"the newest checkpoint is {newest[0]} ({newest[1]} env steps)" if newest else "it has no checkpoint"
        raise KeyboardInterrupt(f"{run_dir}: {saved}") from interrupt


def record_failure(run_dir: Path, error: Exception, before: Mapping[str, Any]) -> None:
    """Write the error to train.log and status.json; a failure to write is logged, and does not hide the error itself.

    Args:
        run_dir: the directory of the run.
        error: the error that ended it.
        before: content of status.json when the run began.
    """
    log_file = run_dir / "train.log"
    try:
        with open_regular(log_file, append=True) as file:
            file.write("".join(traceback.format_exception(error)).encode())
    except OSError as problem:
        log.error("%s could not be written (%s); the run failed with the error below", log_file, problem)
    status = read_status_or_empty(run_dir / STATUS_FILE)
    # Keep the status that a callback wrote, unless its error is only a consequence of another rank's failure.
    if status == before or status.get("state") != "failed" or str(error).startswith("rank "):
        update_status(run_dir, state="failed", error=f"{type(error).__name__}: {error}")


def resumed_config(run_dir: Path, changed: Mapping[str, Any], trust: str | Sequence[str] = ()) -> dict[str, Any]:
    """The config of a run to resume, with the user's changes.

    Args:
        run_dir: the directory of the run; it may have been moved.
        changed: dotted key → value.
        trust: import prefixes that its config.yaml may name, beside those of LIGHTNING_RL_TRUST (`trust.py`).

    Raises:
        ConfigError: there is no run, it is damaged, complete or still running, a change would make it another run, or
            its config.yaml names code that is not trusted.
    """
    refuse_live_run(run_dir)
    config = read_config(run_dir)
    trust_in_config(config, run_dir, trust).check(config)
    known = list(dotted_keys(config))
    for key, value in changed.items():
        trust_names(value)  # the user's own
        if key not in known and not key.startswith("trainer."):  # the keys that Lightning's Trainer takes
            message = no_such_key(key, known, f" A resumed run can change {', '.join(RESUMABLE)}")
            raise ConfigError(message, key=key)
        if not any(fnmatch(key, pattern) for pattern in RESUMABLE):
            allowed = ", ".join(RESUMABLE)
            raise ConfigError(f"{key}={value!r} would make it another run; a resumed run can change {allowed}")
        if key in GROUPS:
            value = {**config[key], **value} if isinstance(value, Mapping) else section_of_choice(key, value, config)
        section, _, name = key.rpartition(".")
        (value_at(config, section) if section else config)[name] = value
        if section == "exploration":  # policies have a copy of that section
            config["policy"]["exploration"] = {**config["policy"]["exploration"], name: value}
    total = coerce("total_env_steps", config["total_env_steps"], Count)
    status = read_status(run_dir / STATUS_FILE)
    if status.get("state") == "ok" and status["env_steps"] >= total:
        raise ConfigError(f"{run_dir} has taken {status['env_steps']} of total_env_steps={total}: give it more")
    return config


def section_of_choice(group: str, choice: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """The section of a config that a choice of a group gives in the directory of a run: `logger=csv`.

    Raises:
        ConfigError: there is no such choice.
    """
    from lightning_rl.config.compose import compose_config  # Hydra

    named = f"[{','.join(map(str, choice))}]" if isinstance(choice, list) else "null" if choice is None else str(choice)
    run_dir = config["run_dir"].replace("'", r"\'")
    return compose_config([f"{group}={named}", "experiment=none", f"run_dir='{run_dir}'"])[group]


def standing_still(config: Mapping[str, Any], env_steps: int) -> list[str]:
    """Warn about schedules that stay at 0 for the rest of a run, one line for each.

    Args:
        config: config of the run.
        env_steps: env steps that the run has taken.
    """
    from lightning_rl.schedules import schedule_span, to_env_steps

    policy, total = config["policy"], config["total_env_steps"]
    effects = {"lr": "nothing is learned", "clip": "the policy does not move"}
    return [
        f"policy.{key} is 0 from {env_steps:,} env steps on, so {effect}: give another policy.{key}"
        for key, effect in effects.items()
        if policy.get(key) is not None
        and set(schedule_span(to_env_steps(policy[key], total), env_steps, total)) == {0.0}
    ]


def check_same_run(
    config: Mapping[str, Any], checkpoint: Path, typed: Iterable[str] = (), *, force: bool = False
) -> None:
    """Refuse a checkpoint of another run, and a config.yaml that was edited so that it describes another run.

    Allowed differences are printed in one line.

    Args:
        config: config of the resumed run.
        checkpoint: checkpoint to continue from.
        typed: keys that the user changes for the resumed run.
        force: accept any config.

    Raises:
        CheckpointError: the file is missing or damaged.
        ConfigError: the file belongs to another run, or a key that defines the run has another value in it, or a name
            that this process has not registered.
    """
    from lightning_rl.run_directory.checkpoint_files import read_checkpoint_file

    run_dir = Path(config["run_dir"])
    content = read_checkpoint_file(checkpoint, checksums=False)
    if not force and checkpoint.resolve().parent != (run_dir / "checkpoints").resolve():
        raise ConfigError(
            f"--checkpoint {checkpoint} is not a file of {run_dir / 'checkpoints'}: resume the run that wrote it, or "
            "take it with --force"
        )
    theirs = content.get("config") if isinstance(content, dict) else None
    if not isinstance(theirs, dict) or not isinstance(theirs.get("run_dir"), str):
        return  # it was saved by hand
    FileTrust(f"checkpoint {checkpoint}").check_complete(theirs)
    typed = {f"{of}{key}" for key in ("run_dir", *typed) for of in ("", "policy.")}
    found = {
        key: pair
        for key, pair in changes(theirs, config, run_dir).items()
        if typed.isdisjoint(accumulate(key.split("."), "{}.{}".format))
    }
    explored = (f"{of}.exploration.{name}" for of in ("policy", "policies.*") for name in EXPLORED)
    allowed = (*RESUMABLE, *explored, *BEGUN)
    odd = [key for key in found if not any(fnmatch(key, pattern) for pattern in allowed)]
    shown = {key: f"{key}={after!r} (checkpoint: {before!r})" for key, (before, after) in found.items()}
    file = run_dir / CONFIG_FILE
    if odd and not force:
        raise ConfigError(
            f"{file} is not the config of {checkpoint}: {', '.join(shown[key] for key in odd)}; a run that continues "
            "keeps these: put them back, start another run, or continue with the file's values with --force"
        )
    if shown:
        print(f"{file} differs from the checkpoint, and its values are used: {', '.join(shown.values())}", flush=True)
