"""What a Trainer fits: a policy, or the set of the policies of several agents."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
import torch
from lightning.pytorch import LightningModule

from lightning_rl.errors import CheckpointError, ConfigError, did_you_mean
from lightning_rl.fast_torch import FastAttributes
from lightning_rl.learning.lightning_limits import check_lightning_methods, check_precision
from lightning_rl.learning.progress import COUNTERS, Progress, counter
from lightning_rl.policies.checkpoints import (
    check_finite_weights,
    check_fits,
    counters,
    load_counters_and_weights,
    policy_spec,
    set_counters,
)
from lightning_rl.policies.policy_type import PolicyType
from lightning_rl.run_directory.checkpoint_files import check_version, version_entry
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.signatures import constructor_arguments

__all__ = ["PolicyModule"]


class PolicyModule(FastAttributes, LightningModule, metaclass=PolicyType):
    """The hooks of Lightning for one policy or several, which are in `policies` by id.

    Args:
        observation_space, action_space: the spaces of the environment; with several agents, Dict spaces by agent.
        seed: kept as the attribute `seed`.

    Attributes:
        policies: the policies by id; a policy on its own is `{"default_policy": itself}`.
        policies_to_train: ids of those that learn, in the order of training.
        agents: names of the agents, if there are several.
        generation: how often policies were added, or the mapping or the trained policies changed.
        env_steps, iterations, gradient_steps: counters, kept in `progress`; schedules follow `env_steps`.
        iteration_metrics, learn_seconds: means of the last iteration's metrics, and its seconds of learning.
    """

    has_model: ClassVar[bool] = True
    data: ClassVar[str] = "on_policy"  # the option of `conf/data` that is the default of this policy
    off_policy: ClassVar[bool] = False  # learns from transitions of any policy, such as those of a replay buffer
    imitates: ClassVar[bool] = False  # learns from whole episodes of any policy, such as those of a data set
    evolves: ClassVar[bool] = False  # learns from the returns of perturbed policies
    # Whether every `loss` gives all parameters a gradient; if not, DDP searches for unused ones.
    uses_every_parameter: ClassVar[bool] = False

    env_steps, iterations, gradient_steps = map(counter, COUNTERS)

    observation_space: gym.Space[Any]
    policies: Any  # mapping of ids
    policies_to_train: Sequence[str]
    frozen_names: tuple[str, ...] = ()  # `freeze`: names of parameters, or patterns of names
    agents: Sequence[str] = ()  # names of several
    generation: int = 0

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], seed: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.observation_space, self.action_space, self.seed = observation_space, action_space, seed
        self.progress = Progress()
        self.iteration_metrics: dict[str, float] = {}
        self.learn_seconds = 0.0

    def get_policy(self, policy_id: str | None = None) -> Any:
        """The policy with this id; `None`: the only one.

        Raises:
            ConfigError: there is no such policy, or there are several and none is named.
        """
        if policy_id is None and len(self.policies) == 1:
            return next(iter(self.policies.values()))
        known = ", ".join(map(repr, self.policies))
        if policy_id is None:
            raise ConfigError(f"which policy? Name one by policy_id: {known}")
        if policy_id not in self.policies:
            raise ConfigError(
                f"there is no policy {policy_id!r}.{did_you_mean(policy_id, self.policies)} Policies: {known}"
            )
        return self.policies[policy_id]

    @property
    def in_trainer(self) -> bool:
        """Whether a Trainer is fitting this module now; if not, it learns alone."""
        return self._trainer is not None and self._trainer.training

    def configure_optimizers(self) -> Any:
        """The optimizers of the policies in training; learning rates follow env steps, not Lightning's steps."""
        trained = [self.policies[policy_id] for policy_id in self.policies_to_train]
        return [policy.learner.optimizer.torch_optimizer for policy in trained if policy.has_model] or None

    def setup(self, stage: str) -> None:
        """Refuse a precision that policies do not have.

        Raises:
            ConfigError: names those that they have.
        """
        check_precision(self.trainer.precision_plugin)

    def on_fit_start(self) -> None:
        """Warn if no metric will reach the loggers; this package's DataModules add the callback that logs.

        Raises:
            ConfigError: the learner acts in place of a method that was assigned to this object.
        """
        if any(policy.has_model for policy in self.policies.values()):  # the others step their own optimizers
            check_lightning_methods(self)
        callbacks: Any = self.trainer.callbacks  # type: ignore[attr-defined]
        if self.trainer.loggers and "MetricsCallback" not in {
            cls.__name__ for c in callbacks for cls in type(c).__mro__
        }:
            warnings.warn(
                "nothing is logged: no RolloutDataModule feeds this policy, so give the Trainer "
                "callbacks=[lightning_rl.callbacks.MetricsCallback()]",
                stacklevel=2,
            )

    def validation_step(self, batch: SampleBatch, batch_idx: int = 0) -> None:
        """One evaluation of episodes.

        Args:
            batch: `episode_returns [E]` and `episode_lengths [E]`; with several agents also the mean return of each
                policy's agents, "policy_returns.<id>" `[E]`, NaN where it had none.
            batch_idx: not used.
        """
        returns, lengths = batch["episode_returns"], batch["episode_lengths"]
        if not len(returns):
            return  # none are played without an environment
        means = {"eval/ep_rew_mean": returns.double().mean(), "eval/ep_len_mean": lengths.double().mean()}
        for policy_id in self.policies:
            if (own := batch.get(f"policy_returns.{policy_id}")) is not None:
                means[f"eval/{policy_id}/ep_rew_mean"] = own.double().nanmean()
        # During fit MetricsCallback writes them, at env steps; Lightning's own x-axis would be optimizer steps.
        alone = self.trainer.state.fn != "fit"
        for name, mean in means.items():
            self.log(name, mean, on_epoch=True, logger=alone, batch_size=len(returns), sync_dist=True)

    def test_step(self, batch: SampleBatch, batch_idx: int = 0) -> None:
        """As `validation_step`: `trainer.test` plays the same kind of episodes."""
        self.validation_step(batch, batch_idx)

    def constructor_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The spaces and keywords of this object's constructor; `cls(*spaces, **keywords)` builds another one."""
        args, kwargs = self.__dict__["_constructor"]
        return constructor_arguments(type(self).__init__, args, kwargs, leading=2)

    def spec(self) -> dict[str, Any]:
        """Class, constructor keywords and spaces as plain data; `Policy.load` builds the object again from it."""
        return policy_spec(self)

    def copy_for_acting(self) -> Self:
        """Another object of the same class and arguments, with the same weights, on the CPU."""
        spaces, keywords = self.constructor_arguments()
        twin = type(self)(*spaces, **keywords)
        twin.set_weights(self.get_weights())
        set_counters(twin, counters(self))
        for policy_id, policy in self.policies.items():
            set_counters(twin.policies[policy_id], counters(policy))
        return twin.eval()

    def get_weights(self) -> dict[str, Any]:
        """Copies of parameters, buffers and filter statistics, with which another object acts like this one."""
        state = {name: tensor.detach().cpu() for name, tensor in self.state_dict().items()}
        # NumPy has no bfloat16.
        return {name: (t.float() if t.dtype == torch.bfloat16 else t).numpy().copy() for name, t in state.items()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Act with these weights from now on.

        Raises:
            RuntimeError: the names or shapes are those of another policy.
        """
        self.load_state_dict({name: torch.as_tensor(np.array(value)) for name, value in weights.items()})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the class, keywords, spaces and counters, from which `Policy.load` builds this object again.

        Raises:
            NonFiniteError: a weight is NaN or infinite; no file is written, and the last one stays.
        """
        checkpoint.update(version_entry())
        checkpoint["policy"] = self.spec()
        checkpoint["counters"] = counters(self)
        check_finite_weights(self, checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse another policy's checkpoint before any of it is loaded; then load the counters."""
        check_version(checkpoint, "(the one to load)")
        check_fits(self, checkpoint)
        if checkpoint.get("optimizer_states") == [] and self.has_model:
            raise CheckpointError("the checkpoint holds no state of an optimizer: it was changed, use another one")
        load_counters_and_weights(self, checkpoint)
