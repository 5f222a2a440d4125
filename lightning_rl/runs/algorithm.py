"""The Python API: an object that trains, evaluates, acts, saves and restores; Lightning's Trainer runs the loop."""

from __future__ import annotations

import copy
import inspect
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

from lightning_rl.callbacks.config_in_checkpoint import ConfigInCheckpoint
from lightning_rl.callbacks.signals import StopSignals
from lightning_rl.config.check import check_config
from lightning_rl.config.compose import compose_config, store_policy
from lightning_rl.config.groups import group_options, is_path, option_text
from lightning_rl.config.keys import merged
from lightning_rl.errors import CheckpointError, ConfigError, did_you_mean, import_path
from lightning_rl.policies.checkpoints import as_checkpoint_error, read_checkpoint
from lightning_rl.run_directory.checkpoint_files import read_checkpoint_file
from lightning_rl.run_directory.config_file import relocate_to_checkpoint
from lightning_rl.run_directory.lock import refuse_live_run
from lightning_rl.run_directory.regular_files import refuse_links
from lightning_rl.run_directory.signature import is_own_checkpoint
from lightning_rl.runs import run
from lightning_rl.schema.signatures import coerce
from lightning_rl.schema.trust import FileTrust, NotSaved, trust_names

__all__ = ["Algorithm", "policy_choice"]

DEFAULT_POLICY = "default_policy"  # the id of the policy of a single agent
SHARED = ("model", "exploration", "seed")  # config sections that a policy's YAML refers to


class Algorithm:
    """Trains a policy on its environments with a Trainer, one iteration at a time.

    Args:
        policy: a name ("ppo"), an import path ("my_pkg.policies:Mine") or a Policy class.
        env: a preset or Gymnasium id ("cartpole", "CartPole-v1"), an import path, an `Env` class or a function that
            returns an `Env`.
        overrides: Hydra overrides, as typed on the command line: ["policy.lr=1e-3", "workers.num_workers=2"].
        config: nested keys, applied after `overrides`: {"policy": {"lr": 1e-3}}.

    Attributes:
        policy, datamodule, trainer: the objects that the config describes.

    Raises:
        ConfigError: a key, value or combination cannot work.
        EnvError: the environment cannot be made, or breaks the Gymnasium API.
        UnsupportedSpaceError: the policy cannot take the environment's spaces.
    """

    def __init__(
        self,
        policy: Any = "ppo",
        env: Any = None,
        *,
        overrides: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        choices = [policy_choice(policy), *_env_choice(env)]
        quiet = [] if any(override.startswith("logger=") for override in overrides) else ["logger=none"]
        composed = compose_config([*choices, *quiet, *overrides])
        if isinstance(policy, type):
            composed["policy"]["_target_"] = policy
        if env is not None and not any(choice.startswith("env=") and choice != "env=custom" for choice in choices):
            composed["env"]["id"] = env
        _override_all(composed, config)
        check_config(composed)
        self._build(composed)

    def train(self) -> dict[str, Any]:
        """Run one iteration: a rollout (or a batch from another data pipeline) and the learning on it.

        After `total_env_steps`, to which schedules refer, it continues with their last values; a rate of 0 is warned
        of.

        Returns:
            The newest value of every metric, and `training_iteration`, `env_steps`, `gradient_steps`.

        Raises:
            KeyboardInterrupt: Ctrl-C, or Stop in a notebook: after this iteration, a second one at once. `save`,
                `train` and `evaluate` work afterwards.
        """
        if not self._passed_total and self.policy.env_steps >= self._config["total_env_steps"]:
            self._passed_total = True
            for line in run.standing_still(self._config, self.policy.env_steps):
                warnings.warn(f"{line}, or a larger total_env_steps", stacklevel=2)
        self._fit(iterations=1)
        policy: Any = self.policy
        counters = {"training_iteration": policy.iterations, "env_steps": policy.env_steps}
        return {**self.metrics, **counters, "gradient_steps": policy.gradient_steps}

    def evaluate(self) -> dict[str, float]:
        """Play `evaluation.episodes` whole episodes in separate environments: eval/ep_rew_mean, eval/ep_len_mean.

        Raises:
            KeyboardInterrupt: Ctrl-C, at once; as `train`.
        """
        with raising_interrupts():
            (result,) = self.trainer.validate(self.policy, datamodule=self.datamodule, verbose=False)
        return {name: float(value) for name, value in result.items()}

    def compute_single_action(
        self, obs: Any, *, explore: bool = False, action_mask: Any = None, policy_id: str | None = None
    ) -> Any:
        """The action for one observation, ready for `env.step`; with several agents, of the policy of that id.

        Args:
            obs, explore, action_mask: see `Policy.compute_single_action`.
            policy_id: `None`: the only policy.
        """
        policy = self.policy.get_policy(policy_id)
        return policy.compute_single_action(obs, explore=explore, action_mask=action_mask, full_fetch=False)

    def get_policy(self, policy_id: str | None = None) -> Any:
        """The policy; with several agents, the one of that id (`None`: the one that holds all).

        Raises:
            ConfigError: there is no policy of that id.
        """
        return self.policy if policy_id is None else self.policy.get_policy(policy_id)

    def get_weights(self, policies: Sequence[str] | None = None) -> dict[str, Any]:
        """Weights by policy id, of all policies or of these; one agent's are those of "default_policy"."""
        return {name: self.policy.get_policy(name).get_weights() for name in policies or self.policy.policies}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Act and learn with these weights by policy id from now on; other policies keep theirs."""
        for name, values in weights.items():
            self.get_policy(name).set_weights(values)

    def save(self, path: str | Path | None = None) -> Path:
        """Write a checkpoint that `restore` and `Policy.load` read.

        Args:
            path: file to write; `None` takes RUN_DIR/checkpoints/last.ckpt.

        Raises:
            ConfigError: another process trains in that RUN_DIR, or its checkpoints are behind a link. An Algorithm
                holds no lock, for it writes only here.
        """
        run_dir = Path(self._config["run_dir"])
        if path is None:
            refuse_live_run(run_dir)
            refuse_links(run_dir)
        path = Path(path) if path is not None else run_dir / "checkpoints" / "last.ckpt"
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.datamodule.workers is None:
            self._fit(iterations=0)  # attaches policy and data to the Trainer
        checkpoint_io: Any = self.trainer.strategy.checkpoint_io
        checkpoint_io.allow(path.parent)
        self.trainer.save_checkpoint(path)
        return path

    @classmethod
    def restore(
        cls,
        path: str | Path,
        *,
        policy: Any = None,
        env: Any = None,
        config: Mapping[str, Any] | None = None,
        trust: str | Sequence[str] = (),
    ) -> Self:
        """Continue from a checkpoint that `save` (or a run) wrote: weights, optimizer, filters, counters, workers.

        The restored object writes to the run directory that contains the file. For a file outside of a run directory,
        `run_dir` becomes a directory next to the file, with its name: models/ppo for models/ppo.ckpt.

        Args:
            path: the file.
            policy, env: the class or function, if it cannot be imported by name or is not trusted; otherwise it is
                found by the name in the file. `env` is called with the keywords in the file; a function without
                arguments makes the whole environment.
            config: nested keys that replace those in the file, as of the constructor: values that the file could not
                hold, such as functions among `env.kwargs`.
            trust: your own packages (import prefixes) that the file may name, as `Policy.load`. Names that this
                process has used before need not be trusted again.

        Raises:
            CheckpointError: the file is missing, damaged, of a newer version, or holds no configuration; or it names
                code that is not trusted; or it could not hold a value that is not given here.
        """
        checkpoint = read_checkpoint(path)
        own = is_own_checkpoint(checkpoint)
        given, config = config, copy.deepcopy(checkpoint.get("config"))
        if not isinstance(config, dict):
            raise CheckpointError(f"checkpoint {path} holds no configuration: Algorithm.save writes it")
        with as_checkpoint_error(path):
            for section, key, found in (("policy", "_target_", policy), ("env", "id", env)):
                if found is not None:
                    config[section][key] = found
                    trust_names(found)
                elif config[section][key] is None:  # an older file
                    config[section][key] = NotSaved("code that cannot be imported")
            if env is not None and (left := _leave_out(config["env"], env)):
                warnings.warn(
                    f"checkpoint {path}: env={env!r} makes the environment without {', '.join(left)} of the run; "
                    "restore(path, config={'env': …}) gives them",
                    stacklevel=2,
                )
        _override_all(config, given)  # the caller's keys, which the file is not to blame for
        with as_checkpoint_error(path):
            trust_names(given or {})
            if config.get("policies") and config.get("policy_mapping") is None:  # it was a function without a path
                config["policy_mapping"] = checkpoint["policy"]["kwargs"].get("policy_mapping")
            config = relocate_to_checkpoint(config, Path(path))
            names = FileTrust(f"checkpoint {path}", trust, CheckpointError, config["run_dir"], own)
            names.check(config)
        with names.restrict_imports():
            check_config(config)
            algorithm = cls.__new__(cls)
            algorithm._build(config, Path(path), own)
            algorithm._resume_from = Path(path)
            algorithm._fit(iterations=0)
        return algorithm

    def stop(self) -> None:
        """Close environments and worker processes."""
        self.datamodule.stop()

    @property
    def config(self) -> dict[str, Any]:
        """The whole configuration, plain containers."""
        return self._config

    @property
    def metrics(self) -> dict[str, float]:
        """The newest value of every metric."""
        from lightning_rl.callbacks.metrics import latest_metrics

        return latest_metrics(self.trainer)

    def _build(self, config: dict[str, Any], ckpt_path: Path | None = None, signed: bool = True) -> None:
        self._config = config
        own = copy.copy(config)
        own["evaluation"] = {**config["evaluation"], "parallel": False}
        own["trainer"] = {**config["trainer"], "enable_progress_bar": False}
        self.policy, self.datamodule, self.trainer = run.build(own, ckpt_path=ckpt_path)
        # Evaluation, checkpoints and the end happen in methods of this class; an epoch is one iteration.
        self.trainer.limit_train_batches, self.trainer.check_val_every_n_epoch = 1, 2**31
        self.trainer.limit_val_batches = 1.0
        unwanted = ("ConfigInCheckpoint", "RLCheckpoint", "StopCallback", "StatusCallback", "ProgressBar")
        kept = [callback for callback in self.trainer.callbacks if type(callback).__name__ not in unwanted]  # type: ignore[attr-defined]
        self.trainer.callbacks = [*kept, ConfigInCheckpoint(config, own=signed)]  # type: ignore[attr-defined]
        self._resume_from: Path | None = None
        self._passed_total = False
        self._interrupts = signals = StopSignals((signal.SIGINT,), answer="stopping after this iteration")
        trainer = self.trainer  # its fit handles SIGTERM, and reads this after an iteration
        self.datamodule.stop_when(lambda: signals.received is not None or trainer.received_sigterm)
        try:
            self.policy.spec()
        except CheckpointError as error:
            warnings.warn(f"save() will not work: {error}", stacklevel=3)

    def _fit(self, iterations: int) -> None:
        """Run this many more epochs of the Trainer, of one iteration each."""
        self.trainer.fit_loop.max_epochs = self.trainer.current_epoch + iterations
        path, self._resume_from = self._resume_from, None
        if path is not None:
            with as_checkpoint_error(path):
                self.trainer.fit_loop.max_epochs = max(read_checkpoint_file(path)["epoch"], 0)
        with (
            raising_interrupts(),
            self._deferred_interrupts() if iterations else nullcontext(),
            nullcontext() if path is None else run.restoring(self.trainer, path),
        ):
            self.trainer.fit(self.policy, datamodule=self.datamodule, ckpt_path=path)

    @contextmanager
    def _deferred_interrupts(self) -> Iterator[None]:
        """Context in which the first Ctrl-C is raised at the end, unless the program handles Ctrl-C itself."""
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        signals = self._interrupts
        signals.received, signals.deferring = None, True
        with signals:
            yield
        if signals.received is not None:
            signals.received = None
            raise KeyboardInterrupt


@contextmanager
def raising_interrupts() -> Iterator[None]:
    """Context in which Ctrl-C raises KeyboardInterrupt; Lightning would end the process, and ignore it from then on."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt from error


def policy_choice(policy: Any) -> str:
    """The Hydra override that chooses a policy by name, import path or class."""
    if isinstance(policy, type):
        path = import_path(policy)
        store_policy(path, policy)
        return f"policy='{path}'"
    if isinstance(policy, str) and is_path(policy):
        return f"policy='{policy}'"
    return f"policy={policy}"


def _env_choice(env: Any) -> list[str]:
    """Overrides that choose the preset of that name or id; without one, an open preset whose id is filled in later."""
    if env is None:
        return []
    for preset in group_options("env"):
        if env == preset or (isinstance(env, str) and f"id: {env}" in option_text("env", preset).splitlines()):
            return [f"env={preset}"]
    return ["env=custom", f"env.id='{env}'" if isinstance(env, str) else "env.id=given"]


def _leave_out(section: dict[str, Any], env: Any) -> list[str]:
    """Remove what the environments of a restored run are made without; returns the dotted keys.

    A value that the file could not hold is left out if `env` does not name that keyword, or has bound it, as
    `functools.partial` does; then `env` knows it. A function without arguments takes no keyword, and wraps itself.

    Args:
        section: `env` of the config in the file.
        env: the class, function or id that the user gave instead of that in the file.
    """
    if isinstance(env, str):
        return []
    parameters, bound = inspect.signature(env).parameters, getattr(env, "keywords", {})
    whole = not parameters and not isinstance(env, type)
    kept = {
        name: value
        for name, value in section["kwargs"].items()
        if not whole and not (isinstance(value, NotSaved) and (name not in parameters or name in bound))
    }
    left = [f"env.kwargs.{name}" for name in section["kwargs"] if name not in kept and name not in bound]
    section["kwargs"] = kept
    if whole and any(isinstance(wrapper, NotSaved) for wrapper in section["wrappers"]):
        left.append("env.wrappers")
        section["wrappers"] = []
    return left


def _override_all(config: dict[str, Any], changes: Mapping[str, Any] | None) -> None:
    """Set nested keys of a config; those that policies share, in the policy's section as well."""
    given = coerce("config", {} if changes is None else changes, Mapping)
    for key in given:
        if key not in config:
            raise ConfigError(
                f"no key {key!r}.{did_you_mean(key, config)} Known: {', '.join(config)}; keys are nested, such as "
                "{'policy': {'lr': 1e-3}}; dotted ones belong to overrides=['policy.lr=1e-3']"
            )
    shared = {name: given[name] for name in SHARED if name in given and name in config["policy"]}
    config |= merged({**config, "policy": merged(config["policy"], shared)}, given)
