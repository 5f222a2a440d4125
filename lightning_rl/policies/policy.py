"""The Policy: a LightningModule that acts and learns and owns no data.

Here it is put together, saved and loaded. Acting is in `acting.py`, the minibatch loop in `learning.py`. A new
algorithm overrides `postprocess_trajectory` (what a fragment needs before it can be learned from) and `loss`.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import gymnasium as gym
import numpy as np
import torch

from lightning_rl.checkpoint_files import migrated, written_by
from lightning_rl.errors import CheckpointError, ConfigError, UnsupportedSpaceError
from lightning_rl.exploration import check_noise, make_exploration
from lightning_rl.models.catalog import ModelCatalog, ModelOptions, model_config
from lightning_rl.models.distributions.base import DistFactory
from lightning_rl.models.filters import RewardFilter, RewardFilterName, make_observation_filter
from lightning_rl.models.model import Model
from lightning_rl.policies.checkpoints import (
    check_finite_weights,
    check_fits,
    counters,
    load_as,
    load_policy,
    policy_spec,
    restore,
    set_counters,
    written,
)
from lightning_rl.policies.contributing import Contributing
from lightning_rl.policies.custom_losses import CustomLosses, LossEntries
from lightning_rl.policies.from_scratch import DEFINED, start_alone
from lightning_rl.policies.optimiser import Optimiser
from lightning_rl.ranges import LearningRate, Positive, Probability, Seed
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.seeding import derive_seed
from lightning_rl.signatures import checks_keywords
from lightning_rl.spaces import ActionTransform

__all__ = ["Policy"]


class Policy(Contributing):
    """Model, action distribution, exploration, filters, loss and optimizer of one agent.

    A subclass that defines `compute_actions` and `learn_on_batch`, and no `loss`, is written from scratch: nothing of
    all that is built for it (`from_scratch.py`).

    Args:
        observation_space: of one environment, before any preprocessing.
        action_space: of one environment.
        config: of a policy written from scratch, kept as `config`; all others take keywords.
        model: keys of `MODEL_DEFAULTS`; `None` takes them all.
        exploration: `{type: name or import path, **keywords}`; `None` samples from the action distribution.
        gamma: discount per environment step, in [0, 1].
        lr: learning rate: a number, `[[env_step, rate], …]` joined by straight lines, or `{type: cosine, initial: 3e-4,
            final: 0, steps: 1_000_000}`; types are constant, linear, piecewise, exponential, cosine.
        optimizer: "adam", "adamw", "rmsprop", "sgd" or an import path.
        optimizer_kwargs: keywords of the optimizer, such as `eps`.
        max_grad_norm: clip the gradients' global norm to this; `None` does not.
        observation_filter: "none", or "mean_std" to normalise by running statistics (frozen within a rollout and in
            evaluation).
        reward_filter: "none", "sign", "clip" (to ±1), or "return_std" (divide by the running deviation of the
            discounted return).
        normalize_actions: the policy acts in [−1, 1] and bounded Box actions are un-squashed for the environment.
        clip_actions: clip Box actions to their bounds instead (when not normalised).
        custom_losses: extra losses `{loss: import path or callable, weight: 1.0, **keywords}`, added in every gradient
            step.
        seed: names the randomness of initial weights, minibatches and (alone, without workers) of actions.

    Raises:
        UnsupportedSpaceError: this algorithm cannot take the space or the model; the message names what would work.
        ConfigError: a keyword is of another type or out of its range, a model key, optimizer or exploration is unknown,
            or noisy layers explore that are not there.
    """

    supports_recurrent: ClassVar[bool] = False

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Recognise a class written from scratch by what it defines; let its constructor check its keywords."""
        super().__init_subclass__(**keywords)
        if "__init__" in vars(cls):
            cls.__init__ = checks_keywords("policy")(cls.__init__)
        own = {name: getattr(cls, name) is not getattr(Policy, name) for name in DEFINED}
        cls.learns_alone = own["learn_on_batch"] and not own["loss"]
        cls.written_from_scratch = cls.learns_alone and own["compute_actions"]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember the constructor's arguments: workers and checkpoints build the same policy again from them."""
        policy = super().__new__(cls)
        object.__setattr__(policy, "_constructor", (args, kwargs))
        return policy

    @checks_keywords("policy")
    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        config: Mapping[str, Any] | None = None,
        *,
        model: ModelOptions | None = None,
        exploration: Mapping[str, Any] | None = None,
        gamma: Probability = 0.99,
        lr: LearningRate = 3e-4,
        optimizer: str = "adam",
        optimizer_kwargs: Mapping[str, Any] | None = None,
        max_grad_norm: Positive | None = None,
        observation_filter: Literal["none", "mean_std"] = "none",
        reward_filter: RewardFilterName = "none",
        normalize_actions: bool = True,
        clip_actions: bool = False,
        custom_losses: LossEntries = (),
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.observation_space, self.action_space, self.gamma, self.seed = observation_space, action_space, gamma, seed
        self.passes, self.minibatches = 1, 1
        self.env_steps = self.iterations = self.gradient_steps = 0
        self.iteration_metrics: dict[str, float] = {}
        self.learn_seconds = 0.0
        self.diagnosing = True  # whether `loss` shall report what only a reader of curves needs

        self._generators: dict[torch.device, torch.Generator] = {}
        self._action_seed = derive_seed(seed, "rollout")
        if self.written_from_scratch:
            start_alone(self, config)
            return
        if config:
            raise ConfigError(f"{type(self).__name__} takes keywords, not a config: write **config")
        self.action_transform = ActionTransform(action_space, normalize=normalize_actions, clip=clip_actions)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            self.model, self.dist_class = self.make_model_and_action_dist(model)
            self.max_seq_len = int(model_config(model)["max_seq_len"])
            self.is_recurrent = len(self.model.get_initial_state()) > 0
            self.exploration = make_exploration(exploration, self.action_transform.policy_space, observation_space)
            self.exploration.prepare_policy(self)
        check_noise(self.exploration, self.model)
        self.preprocessor = self.model.preprocessor
        self.observation_filter = make_observation_filter(observation_filter, observation_space, self.preprocessor)
        self.reward_filter = RewardFilter(reward_filter, gamma)
        self.custom_losses = CustomLosses(custom_losses)
        self.optimiser = Optimiser(self, optimizer, optimizer_kwargs or {}, lr, max_grad_norm)
        if self.is_recurrent and not self.supports_recurrent:
            raise UnsupportedSpaceError(
                f"{type(self).__name__} does not learn from recurrent models; {type(self.model).__name__} has state: "
                "choose a feed-forward model (model.use_lstm, use_gru and use_attention false), or an algorithm that "
                "does: ppo, a2c, pg, r2d2"
            )

    def make_model_and_action_dist(self, model: Mapping[str, Any] | None) -> tuple[Model, DistFactory]:
        """The model that a config asks for, and what makes action distributions of its outputs."""
        policy_space = self.action_transform.policy_space
        dist_class, num_outputs = ModelCatalog.get_action_dist(self.action_space, model, policy_space)
        return ModelCatalog.get_model(self.observation_space, self.action_space, num_outputs, model), dist_class

    # -- Lightning ----------------------------------------------------------------------------------------------------
    def configure_optimizers(self) -> Any:
        """The one optimizer; its learning rate follows env steps, not Lightning's steps."""
        return None if self.written_from_scratch else self.optimiser.torch_optimizer

    def on_fit_start(self) -> None:
        """Warn where no number will reach the loggers; this package's DataModules bring the callback that logs."""
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
        """One evaluation: `batch` holds `episode_returns [E]` and `episode_lengths [E]`."""
        # During fit MetricsCallback writes them, at env steps; Lightning's own x-axis would be optimizer steps.
        alone = self.trainer.state.fn != "fit"
        for name, column in (
            ("eval/ep_rew_mean", batch["episode_returns"]),
            ("eval/ep_len_mean", batch["episode_lengths"]),
        ):
            self.log(name, column.double().mean(), on_epoch=True, logger=alone, batch_size=len(column), sync_dist=True)

    def test_step(self, batch: SampleBatch, batch_idx: int = 0) -> None:
        """As `validation_step`: `trainer.test` plays the same kind of episodes."""
        self.validation_step(batch, batch_idx)

    def predict_step(self, batch: Any, batch_idx: int = 0) -> Any:
        """The best actions for observations `[B, *]`, as the environment takes them."""
        return self.env_actions(self.act(batch, explore=False)[0])

    # -- weights and state -------------------------------------------------------------------------------------------
    def get_weights(self) -> dict[str, np.ndarray]:
        """What a copy needs to act like this policy: copies of parameters, buffers and filter statistics."""
        state = {name: tensor.detach().cpu() for name, tensor in self.state_dict().items()}
        # NumPy has no bfloat16.
        return {name: (t.float() if t.dtype == torch.bfloat16 else t).numpy().copy() for name, t in state.items()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Act with these weights from now on.

        Raises:
            RuntimeError: the names or shapes are those of another policy.
        """
        self.load_state_dict({name: torch.as_tensor(np.array(value)) for name, value in weights.items()})

    def get_state(self) -> dict[str, Any]:
        """Everything: weights, optimizer, counters; copies, which training leaves as they are."""
        state: dict[str, Any] = {"weights": self.get_weights(), "counters": counters(self)}
        if not self.written_from_scratch:
            state["optimizer"] = deepcopy(self.optimiser.torch_optimizer.state_dict())
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue as the policy that gave `state`."""
        self.set_weights(state["weights"])
        if "optimizer" in state:
            self.optimiser.torch_optimizer.load_state_dict(deepcopy(state["optimizer"]))
        set_counters(self, state["counters"])

    @classmethod
    def with_updates(cls, name: str | None = None, **hooks: Any) -> type[Policy]:
        """A subclass with some methods replaced by functions, as `PPO.with_updates("Mine", loss_fn=my_loss)`.

        Args:
            name: of the class, `None`: this one's. Give it to a variable at the top level of a module, and checkpoints
                find it again.
            hooks: those of `build_policy`.
        """
        from lightning_rl.policies.build_policy import build_policy  # which derives from this class

        return build_policy(name or cls.__name__, base=cls, module=sys._getframe(1).f_globals["__name__"], **hooks)

    # -- checkpoints --------------------------------------------------------------------------------------------------
    def spec(self) -> dict[str, Any]:
        """Class, constructor keywords and spaces as plain data; `Policy.load` builds the policy again from it."""
        return policy_spec(self)

    def constructor_arguments(self) -> dict[str, Any]:
        """The keywords this policy was made with, the spaces among them."""
        args, kwargs = self.__dict__["_constructor"]
        signature = inspect.signature(type(self).__init__)
        arguments = dict(signature.bind(self, *args, **kwargs).arguments)
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments |= arguments.pop(name, {})
        del arguments["self"]
        return arguments

    def copy_for_acting(self) -> Policy:
        """Another policy of the same class and arguments, with the same weights, on the CPU."""
        twin = type(self)(**self.constructor_arguments())
        twin.set_weights(self.get_weights())
        set_counters(twin, counters(self))
        return twin.eval()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what makes the file complete: how to build this policy, and its counters.

        Raises:
            NonFiniteError: a weight is NaN or infinite; no file is written then, and the one before stays.
        """
        checkpoint.update(written_by())
        checkpoint["policy"] = self.spec()
        checkpoint["counters"] = counters(self)
        if self.written_from_scratch:
            checkpoint["weights"] = written("weights", self.get_weights())
        check_finite_weights(self, checkpoint.get("weights"))
        self._reform_moments(checkpoint, "to_file")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse another policy's file before anything of it is loaded; then take the counters."""
        check_fits(self, migrated(checkpoint, "(the one to load)"))
        if checkpoint.get("optimizer_states") == [] and self.configure_optimizers() is not None:
            raise CheckpointError("the checkpoint holds no state of an optimizer: it was changed, use another one")
        restore(self, checkpoint)
        self._reform_moments(checkpoint, "from_file")

    def _reform_moments(self, checkpoint: dict[str, Any], how: str) -> None:
        if "optimizer_states" in checkpoint and not self.written_from_scratch:  # those learn in a way of their own
            states = map(getattr(self.optimiser, how), checkpoint["optimizer_states"])
            checkpoint["optimizer_states"] = list(states)

    @staticmethod
    def load(path: str | Path, policy_class: type[Policy] | None = None, *, trust: str | Sequence[str] = ()) -> Policy:
        """The policy in a checkpoint, ready to act; needs neither Ray nor Hydra nor a Trainer.

        Args:
            path: the file.
            policy_class: the policy's class, where it cannot be imported or is not trusted; `None` imports it.
            trust: packages of your own (import prefixes, such as "my_pkg") whose classes the file may name, beside
                those of LIGHTNING_RL_TRUST and this package's own; loading runs them.

        Raises:
            CheckpointError: the file is missing, damaged, of a newer version or not a checkpoint of this package, or
                it names a class that is not trusted, or is not where it was.
        """
        return load_policy(path, policy_class, trust)

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: Any,
        map_location: Any = None,
        hparams_file: Any = None,
        strict: bool | None = None,
        weights_only: bool | None = None,
        trust: str | Sequence[str] = (),
        **kwargs: Any,
    ) -> Self:
        """Lightning's name for `load`: this class with the keywords, spaces, weights and counters in a checkpoint.

        The class is the one that this is called on, so none is imported; `Policy` itself imports the one in the file.

        Args:
            checkpoint_path: a file of this package's or of Lightning's ModelCheckpoint.
            map_location: device for the policy; `None` is the CPU.
            hparams_file: must be `None`: the checkpoint holds the keywords.
            strict: whether the weights in the file must be exactly those of the policy; `None`: they must.
            weights_only: must not be False: nothing but plain data is ever loaded.
            trust: packages that the file may name, as `load`.
            kwargs: constructor's keywords that replace those in the file.

        Raises:
            CheckpointError: the file is missing, damaged or foreign, or holds a policy of another class or other
                weights.
            ConfigError: the class does not take a keyword, or an argument asks for what is not done here.
        """
        if hparams_file is not None or weights_only is False:
            raise ConfigError(
                f"hparams_file={hparams_file!r}, weights_only={weights_only}: leave both out; a checkpoint of a policy "
                "holds its keywords, as plain data, and nothing else is loaded"
            )
        if not isinstance(map_location, str | int | torch.device | None):
            raise ConfigError(f"map_location={map_location!r}; expected a device, such as 'cuda:0'")
        if cls is Policy:
            if kwargs or strict is False:
                raise ConfigError("Policy.load_from_checkpoint takes a file as it is: call it on the class in the file")
            policy = load_policy(checkpoint_path, trust=trust)
        else:
            policy = load_as(cls, checkpoint_path, kwargs, strict=strict, trust=trust)
        return policy if map_location is None else policy.to(map_location)  # type: ignore[return-value]
