"""The table of docs/lightning.md: what of Lightning works with a policy, found by short runs that try it.

`python scripts/regenerate.py --all` puts it into the page.

Each argument of the Trainer, each hook and each callback of Lightning's gets a run of PPO and one of DQN on CartPole. A
hook works if it is called, an argument or a callback if the run ends without an error and the effect that `EFFECTS`
names is there. What raises is refused, with the first line of its error. Takes about five minutes.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer, callbacks, seed_everything
from lightning.pytorch.core.hooks import CheckpointHooks, DataHooks, ModelHooks
from lightning.pytorch.loggers import CSVLogger

from lightning_rl import DQN, PPO, EnvCreator, ReplayDataModule, RolloutDataModule

PAGE = Path(__file__).parents[1] / "docs" / "lightning.md"
BEGIN, END = "<!-- table: scripts/lightning_table.py -->\n", "<!-- end of the table -->\n"
CARTPOLE = EnvCreator("CartPole-v1")
POLICIES: dict[str, type[Any]] = {"PPO": PPO, "DQN": DQN}
WORKERS = {"envs_per_worker": 2, "fragment_length": 32}
EVALUATION = {"episodes": 1, "every_env_steps": 100}
QUIET: dict[str, Any] = {
    "accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False,
    "enable_checkpointing": False, "max_epochs": 2,
}  # fmt: skip
WORKS = "works"


def data_for(policy: Any) -> Any:
    if isinstance(policy, DQN):
        return ReplayDataModule(
            CARTPOLE, {**WORKERS, "fragment_length": 4}, EVALUATION, learning_starts=32, batch_size=16
        )
    return RolloutDataModule(CARTPOLE, WORKERS, EVALUATION)


def fit(policy: Any, directory: str, **keywords: Any) -> Trainer:
    """A short fit with these arguments of the Trainer, and the verbs that come after one."""
    trainer = Trainer(**{**QUIET, "default_root_dir": directory, **keywords})
    trainer.fit(policy, datamodule=(data := data_for(policy)))
    data.stop()
    return trainer


# -- arguments of the Trainer ------------------------------------------------------------------------------------------
def took(trainer: Trainer, policy: Any) -> bool:
    return policy.gradient_steps > 0


def _iterations(count: int) -> Callable[[Trainer, Any], bool]:
    return lambda trainer, policy: policy.iterations == count


def _evaluations(count: int) -> Callable[[Trainer, Any], bool]:
    return lambda trainer, policy: len(trainer.counting.seen) == count  # type: ignore[attr-defined]


class CountEvaluations(Callback):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.seen.append(int(pl_module.env_steps))


# Argument → value, and what must be so afterwards; a run that only ends proves the others.
EFFECTS: dict[str, tuple[Any, Callable[[Trainer, Any], bool]]] = {
    "accelerator": ("cpu", took),
    "strategy": ("auto", took),
    "devices": (1, took),
    "num_nodes": (1, took),
    "precision": ("bf16-mixed", took),
    "logger": (None, lambda trainer, policy: any(Path(trainer.loggers[0].save_dir or "").rglob("metrics.csv"))),
    "callbacks": ([CountEvaluations()], took),
    "fast_dev_run": (True, _iterations(1)),
    "max_epochs": (1, lambda trainer, policy: trainer.current_epoch == 1),
    "min_epochs": (3, lambda trainer, policy: trainer.current_epoch == 2),
    "max_steps": (3, lambda trainer, policy: policy.iterations <= 2),
    "min_steps": (1, took),
    "max_time": ("00:00:00:00", lambda trainer, policy: policy.iterations <= 1),
    "limit_train_batches": (1, _iterations(2)),
    "limit_val_batches": (0, _evaluations(0)),
    "limit_test_batches": (0, lambda trainer, policy: trainer.test(policy, data_for(policy), verbose=False) == []),
    "limit_predict_batches": (1, lambda trainer, policy: len(trainer.predict(policy, observations()) or ()) == 1),
    "overfit_batches": (1, _iterations(2)),
    "val_check_interval": (1, lambda trainer, policy: len(trainer.counting.seen) == 1 + policy.iterations),  # type: ignore[attr-defined]
    "check_val_every_n_epoch": (2, _evaluations(2)),
    "num_sanity_val_steps": (1, lambda trainer, policy: trainer.counting.seen[0] == 0),  # type: ignore[attr-defined]
    "log_every_n_steps": (7, lambda trainer, policy: False),
    "enable_checkpointing": (True, lambda trainer, policy: any(Path(trainer.default_root_dir).rglob("*.ckpt"))),
    "enable_progress_bar": (True, lambda trainer, policy: trainer.progress_bar_callback is not None),
    "enable_model_summary": (True, took),
    "accumulate_grad_batches": (2, took),
    "gradient_clip_val": (0.5, took),
    "gradient_clip_algorithm": ("norm", lambda trainer, policy: False),
    "deterministic": (True, lambda trainer, policy: torch.are_deterministic_algorithms_enabled()),
    "benchmark": (True, lambda trainer, policy: torch.backends.cudnn.benchmark),
    "inference_mode": (False, took),
    "use_distributed_sampler": (False, took),
    "profiler": ("simple", lambda trainer, policy: "run_training_batch" in trainer.profiler.recorded_durations),  # type: ignore[attr-defined]
    "detect_anomaly": (True, took),
    "barebones": (True, took),
    "plugins": ([], took),
    "sync_batchnorm": (True, took),
    "reload_dataloaders_every_n_epochs": (1, took),
    "default_root_dir": (None, took),
    "enable_autolog_hparams": (False, took),
    "model_registry": (None, took),
}
# Argument → why a run cannot show an effect.
MEANINGLESS = {
    "min_epochs": "a stop rule is met or not; here epochs end with evaluations",
    "num_nodes": "needs several nodes",
    "log_every_n_steps": "every iteration is logged; a run thins its curves by report_every_env_steps",
    "gradient_clip_algorithm": "only beside gradient_clip_val, which is refused",
    "overfit_batches": "acts as limit_train_batches: there is no fixed data to learn by heart",
    "use_distributed_sampler": "rollouts have no sampler; each rank acts in its own environments",
    "sync_batchnorm": "needs several ranks",
    "enable_autolog_hparams": "policies have no hparams; a run logs its config as text",
    "model_registry": "a cloud service of Lightning's",
    "plugins": "precision and checkpoint plugins: see precision",
    **dict.fromkeys(
        ("train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader"),
        "a DataModule gives the data, and its method is called",
    ),
    "configure_model": "called, but the networks are there after the constructor",
}


def observations() -> Any:
    return torch.utils.data.DataLoader(torch.zeros(6, 4), batch_size=2)  # type: ignore[arg-type]


def try_argument(name: str, base: type, directory: str) -> str:
    policy: Any = base(*CARTPOLE.spaces())
    value, effect = EFFECTS[name]
    counting = CountEvaluations()
    given = {name: value} if value is not None else {}
    if name == "logger":
        given = {"logger": CSVLogger(directory)}
    if name == "barebones":
        trainer = Trainer(barebones=True, max_epochs=2, accelerator="cpu", default_root_dir=directory)
        trainer.fit(policy, datamodule=data_for(policy))
        return WORKS if took(trainer, policy) else "ignored"
    listed = [*given.pop("callbacks", []), counting]
    trainer = fit(policy, directory, callbacks=listed, **given)
    trainer.counting = counting  # type: ignore[attr-defined]
    return WORKS if effect(trainer, policy) else "ignored"


# -- hooks -------------------------------------------------------------------------------------------------------------
def methods(*classes: type) -> list[str]:
    return [name for cls in classes for name in vars(cls) if not name.startswith("_") and name != "state_key"]


MODULE_HOOKS = [
    *(
        name for name in methods(ModelHooks, DataHooks, CheckpointHooks) if name != "configure_sharded_model"
    ),  # old name
    *("training_step", "validation_step", "test_step", "predict_step", "configure_callbacks", "configure_optimizers"),
    *("configure_gradient_clipping", "optimizer_step", "optimizer_zero_grad", "lr_scheduler_step", "backward"),
]


def recording(base: type, name: str, calls: list[str]) -> Any:
    """A method that counts its calls and does what the base class's does."""
    inherited = getattr(base, name)

    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        calls.append(name)
        return inherited(self, *arguments, **keywords)

    method.__module__ = __name__
    return method


def all_verbs(policy: Any, directory: str, **keywords: Any) -> None:
    """Fit with an evaluation and a checkpoint, resume from it, then validate, test and predict."""
    file = Path(directory) / "hooks.ckpt"
    trainer = fit(policy, directory, num_sanity_val_steps=1, **keywords)
    trainer.save_checkpoint(file)
    data = data_for(policy)
    trainer.fit_loop.max_epochs = 3
    trainer.fit(policy, datamodule=data, ckpt_path=file)
    trainer.validate(policy, datamodule=data, verbose=False)
    trainer.test(policy, datamodule=data, verbose=False)
    trainer.predict(policy, observations())
    data.stop()


def module_hooks(base: type) -> dict[str, str]:
    """Method → outcome: those that a class may define are recorded in one walk through all verbs."""
    found = {name: outcome(lambda directory, name=name: define(base, name)) for name in MODULE_HOOKS}
    allowed = [name for name, result in found.items() if result == WORKS]
    calls: list[str] = []
    own: Any = type(base.__name__, (base,), {name: recording(base, name, calls) for name in allowed})
    walked = outcome(lambda directory: all_verbs(own(*CARTPOLE.spaces()), directory) or WORKS)
    return found | {name: walked if name in calls else "never called" for name in allowed}


def define(base: type, name: str) -> str:
    type(base.__name__, (base,), {name: recording(base, name, [])})(*CARTPOLE.spaces())
    return WORKS


class Failing(Callback):
    """Ends a fit with an error, for `on_exception`."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        raise ZeroDivisionError


def callback_hooks(base: type) -> dict[str, str]:
    """Hook of a callback → outcome, from one walk through all verbs and one fit that fails."""
    calls: list[str] = []
    methods_of = {name: recording(Callback, name, calls) for name in methods(Callback)}
    kept = {**methods_of, "state_dict": lambda self: calls.append("state_dict") or {"a": 1}}
    own: Any = type("Own", (Callback,), kept)
    walked = outcome(lambda directory: all_verbs(base(*CARTPOLE.spaces()), directory, callbacks=[own()]) or WORKS)
    outcome(lambda directory: str(fit(base(*CARTPOLE.spaces()), directory, callbacks=[own(), Failing()])))
    return {name: walked if name in calls else "never called" for name in methods_of}


# -- callbacks ---------------------------------------------------------------------------------------------------------
def _lambda_callback() -> Callback:
    return callbacks.LambdaCallback(on_train_start=lambda trainer, module: None)


class Writer(callbacks.BasePredictionWriter):
    def write_on_epoch_end(self, *arguments: Any) -> None:
        self.written = True


class Finetuning(callbacks.BaseFinetuning):
    """Freezes the model's critic until the second epoch."""

    def freeze_before_training(self, pl_module: Any) -> None:
        self.freeze(list(pl_module.model.children())[-1])

    def finetune_function(self, pl_module: Any, epoch: int, optimizer: Any) -> None:
        if epoch == 1:
            self.unfreeze_and_add_param_group(list(pl_module.model.children())[-1], optimizer)


BUILD: dict[str, Callable[[str], Callback]] = {
    "BaseFinetuning": lambda directory: Finetuning(),
    "BackboneFinetuning": lambda directory: callbacks.BackboneFinetuning(),
    "BasePredictionWriter": lambda directory: Writer("epoch"),
    "BatchSizeFinder": lambda directory: callbacks.BatchSizeFinder(max_trials=1),
    "EarlyStopping": lambda directory: callbacks.EarlyStopping("eval/ep_rew_mean", mode="max"),
    "GradientAccumulationScheduler": lambda directory: callbacks.GradientAccumulationScheduler({0: 2}),
    "LambdaCallback": lambda directory: _lambda_callback(),
    "LearningRateFinder": lambda directory: callbacks.LearningRateFinder(num_training_steps=3),
    "ModelCheckpoint": lambda directory: callbacks.ModelCheckpoint(directory, monitor="eval/ep_rew_mean"),
    "ModelPruning": lambda directory: callbacks.ModelPruning("l1_unstructured", amount=0.5),
    "OnExceptionCheckpoint": lambda directory: callbacks.OnExceptionCheckpoint(directory),
    "StochasticWeightAveraging": lambda directory: callbacks.StochasticWeightAveraging(1e-3, swa_epoch_start=1),
    "SpikeDetection": lambda directory: callbacks.SpikeDetection(),
    "ThroughputMonitor": lambda directory: callbacks.ThroughputMonitor(lambda batch: 1),
}
ABSTRACT = ("Callback", "Checkpoint", "ProgressBar")
CALLBACKS = [name for name in callbacks.__all__ if name not in ABSTRACT]
NEED_A_LOGGER = ("DeviceStatsMonitor", "LearningRateMonitor", "ThroughputMonitor")


def try_callback(name: str, base: type, directory: str) -> str:
    made = BUILD[name](directory) if name in BUILD else getattr(callbacks, name)()
    bar = isinstance(made, callbacks.ProgressBar)
    checkpoint = isinstance(made, callbacks.Checkpoint)
    policy = base(*CARTPOLE.spaces())
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    trainer = fit(
        policy, directory, callbacks=[made], enable_progress_bar=bar, enable_checkpointing=checkpoint,
        **({"logger": CSVLogger(directory)} if name in NEED_A_LOGGER else {}),
    )  # fmt: skip
    if policy.gradient_steps == 0 or all(torch.equal(before[key], value) for key, value in policy.state_dict().items()):
        return "nothing was learned"
    if name == "BasePredictionWriter":
        trainer.predict(policy, observations())
        return WORKS if made.written else "ignored"  # type: ignore[attr-defined]
    if name == "ModelPruning":
        zeros = sum(int((weight == 0).sum()) for key, weight in policy.state_dict().items() if key.endswith("weight"))
        return WORKS if zeros > 0 else "ignored"
    if name == "ModelCheckpoint" and not any(Path(directory).rglob("*.ckpt")):
        return "ignored"
    return WORKS


# -- the table ---------------------------------------------------------------------------------------------------------
@contextmanager
def silence() -> Iterator[None]:
    """Without the output of the runs, which is of no interest."""
    logging.disable(logging.WARNING)
    null = os.open(os.devnull, os.O_WRONLY)
    kept = [os.dup(number) for number in (1, 2)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.dup2(null, 1), os.dup2(null, 2)
            yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(null)
        logging.disable(logging.NOTSET)
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = False
        torch.autograd.set_detect_anomaly(False)


def outcome(attempt: Callable[[str], str]) -> str:
    """What a run showed: "works", what is wrong, or the error that refused it."""
    seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as directory, silence():
        try:
            return attempt(directory)
        except (Exception, SystemExit) as error:  # that it raises is the result
            text = " ".join((str(error).splitlines() or [""])[0].split()).replace("|", "/").replace(directory, "DIR")
            return f"refused: {text[:300]}" if is_refusal(error) else f"fails: {type(error).__name__}: {text[:160]}"


def is_refusal(error: BaseException) -> bool:
    """Whether an error was raised for a setting; others are what a broken run ends with."""
    refusals = ("ConfigError", "MisconfigurationException", "ModuleNotFoundError")
    return type(error).__name__ in refusals or "not supported" in str(error)


def each_alone(names: Iterable[str], attempt: Callable[[str, Any, str], str], base: type) -> dict[str, str]:
    """Name → outcome of its own run."""
    return {name: outcome(lambda directory, name=name: attempt(name, base, directory)) for name in names}


SECTIONS: dict[str, Callable[[type], dict[str, str]]] = {
    "argument of the Trainer": lambda base: each_alone(EFFECTS, try_argument, base),
    "method of the policy": module_hooks,
    "hook of a callback": callback_hooks,
    "callback": lambda base: each_alone(CALLBACKS, try_callback, base),
}


def rows_of(found: dict[str, dict[str, str]]) -> list[str]:
    """Rows of (policy → name → outcome); what works for all policies shares one row."""
    working, others = [], []
    for name in next(iter(found.values())):
        results = {policy: outcomes[name].replace(f"{policy}.", "") for policy, outcomes in found.items()}
        if name in MEANINGLESS:
            others.append(f"| `{name}` | no meaning here | {MEANINGLESS[name]} |")
        elif set(results.values()) == {WORKS}:
            working.append(f"`{name}`")
        elif len(set(results.values())) == 1:
            verdict, _, reason = results.popitem()[1].partition(": ")
            others.append(f"| `{name}` | {verdict} | {reason} |")
        else:
            others.append(f"| `{name}` | {'; '.join(f'{policy} {result}' for policy, result in results.items())} | |")
    return [f"| {', '.join(working)} | works | |", *others]


def table() -> str:
    """The whole table; a section for each kind of thing that is tried."""
    lines = []
    for title, attempts in SECTIONS.items():
        found = {name: attempts(policy) for name, policy in POLICIES.items()}
        lines += [f"| {title} | | |", "|---|---|---|", *rows_of(found), ""]
    return "\n".join(lines)


def page() -> str:
    """docs/lightning.md with the table."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]
