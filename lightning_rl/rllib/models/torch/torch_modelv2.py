"""RLlib's base of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from lightning_rl import sample_batch
from lightning_rl.models.model import InputDict, Model
from lightning_rl.models.preprocessors import Preprocessor, make_preprocessor
from lightning_rl.rllib.sample_batch import SampleBatch
from lightning_rl.rllib.view_requirements import ViewRequirement, derived_inputs, earlier_steps

__all__ = ["AS_GIVEN", "TorchModelV2"]

AS_GIVEN = "_disable_preprocessor_api"  # of the model config


class TorchModelV2:
    """All of a `Model` but the module: mixed with `nn.Module` in either order, both constructors called by the class.

    The model reads preprocessed observations, as in RLlib: "obs" has the structure of the environment's space, with
    discrete parts as one-hot vectors; `obs_space` is that of the vectors, and its attribute `original_space` that of
    the environment. A Box of any shape stays as it is. With `_disable_preprocessor_api`, "obs" and `obs_space` are the
    environment's own. `custom_loss(policy_loss, loss_inputs)` gets one loss `[1]`,
    where RLlib has a list, and may return a list. `seq_lens` of a model with a state are ones where it acts.

    Args:
        obs_space, action_space: the spaces of one environment.
        num_outputs: width of the outputs.
        model_config: the whole of it; "custom_options" is another name of "custom_model_config".
        name: that it was registered under.
        framework: RLlib's; it has no effect.

    Attributes:
        view_requirements: further inputs of `forward` by name; a constructor adds them, and workers keep as many
            earlier steps as they need.
    """

    reads_preprocessed = True

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Give `seq_lens` also where `nn.Module` is the first base."""
        super().__init_subclass__(**keywords)
        if cls.__call__ is nn.Module.__call__:
            cls.__call__ = TorchModelV2.__call__  # type: ignore[method-assign]

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int,
        model_config: Mapping[str, Any],
        name: str,
        framework: str = "torch",
    ) -> None:
        self.obs_space, self.action_space, self.num_outputs = obs_space, action_space, num_outputs
        self.model_config, self.name = model_config, name
        self.reads_preprocessed = not model_config.get(AS_GIVEN, False)
        self.view_requirements: dict[str, ViewRequirement] = {"obs": ViewRequirement(space=obs_space)}
        self.preprocessor = make_preprocessor(getattr(obs_space, "original_space", obs_space))

    def __call__(
        self: Any, input_dict: Any, state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """`forward`; a model that acts takes one step of each sequence."""
        if state and seq_lens is None:
            seq_lens = torch.ones(len(state[0]), dtype=torch.int32, device=state[0].device)
        return nn.Module.__call__(self, input_dict, state, seq_lens)

    @classmethod
    def constructor_view(
        cls, obs_space: Space[Any], config: Mapping[str, Any], preprocessor: Preprocessor | None
    ) -> tuple[Space[Any], Mapping[str, Any]]:
        """The space of preprocessed observations, and the config with "custom_options"."""
        options = dict(config["custom_model_config"] or {})
        as_given = bool(options.pop(AS_GIVEN, False))
        seen = obs_space
        if not as_given and (preprocessor is not None or not isinstance(obs_space, spaces.Box)):
            seen = (preprocessor or make_preprocessor(obs_space)).observation_space
            seen.original_space = obs_space  # type: ignore[attr-defined]
        return seen, {**config, "custom_model_config": options, "custom_options": {**options}, AS_GIVEN: as_given}

    @property
    def prev_obs(self) -> int:
        """The number of earlier observations that `forward` reads.

        :meta private:
        """
        return earlier_steps(self.view_requirements, "obs")

    @property
    def prev_actions(self) -> int:
        """The number of earlier actions that `forward` reads.

        :meta private:
        """
        return earlier_steps(self.view_requirements, "actions")

    @property
    def prev_rewards(self) -> int:
        """The number of earlier rewards that `forward` reads.

        :meta private:
        """
        return earlier_steps(self.view_requirements, "rewards")

    def derived_inputs(self, input_dict: Mapping[str, Any]) -> Mapping[str, Any]:
        """The views of `view_requirements`."""
        return derived_inputs(self.view_requirements, input_dict, self.action_space)

    def from_batch(self: Any, train_batch: Mapping[str, Any], is_training: bool = True) -> tuple[Tensor, list[Tensor]]:
        """Outputs `[N, num_outputs]` of the rows of a batch, and the state after them.

        Observations are preprocessed, but not filtered; the model that a loss gets does both.

        Args:
            train_batch: "obs", "prev_actions" and "prev_rewards" if the model reads them, and for a recurrent model
                "state_in_0" … and "seq_lens".
            is_training: that of the input dict.
        """
        flat = self.preprocessor.transform_batch(train_batch["obs"])
        before = {name: train_batch.get(name) for name in ("prev_actions", "prev_rewards")}
        obs = self.preprocessor.restore(flat) if self.reads_preprocessed else train_batch["obs"]
        before |= {name: train_batch[name] for name in self.view_requirements if name in train_batch and name != "obs"}
        inputs = InputDict(self.preprocessor.transform_batch, obs=obs, obs_flat=flat, is_training=is_training, **before)
        states = [train_batch[f"state_in_{number}"] for number in range(len(self.get_initial_state()))]
        return self(inputs, states, train_batch.get("seq_lens"))

    def update_ops(self) -> list[Any]:
        """Nothing to run: layers such as batch normalization update their statistics in `forward`."""
        return []

    def loss_with_custom(self: Any, policy_loss: Tensor, loss_inputs: sample_batch.SampleBatch) -> Any:
        """Call `custom_loss` with one loss in the place of RLlib's list, `[1]`, and columns by RLlib's names.

        Such a tensor can be indexed and iterated like the list, and added to.
        """
        losses = policy_loss.unsqueeze(0)
        returned = self.custom_loss(losses, SampleBatch.of(loss_inputs))
        return policy_loss if returned is losses else returned

    def variables(self: Any, as_dict: bool = False) -> Any:
        """All parameters, in a list or by name."""
        return dict(self.named_parameters()) if as_dict else list(self.parameters())

    def trainable_variables(self: Any, as_dict: bool = False) -> Any:
        """The parameters that learn, in a list or by name."""
        learning = {name: each for name, each in self.named_parameters() if each.requires_grad}
        return learning if as_dict else list(learning.values())

    def register_variables(self, variables: Any) -> None:
        """Nothing: PyTorch finds the parameters of modules that are attributes."""

    def is_time_major(self) -> bool:
        """Whether sequences come as `[L, S, F]`: never."""
        return False


for _name, _member in vars(Model).items():  # every default of a model, those that will be added among them
    if not _name.startswith("_") and _name not in vars(TorchModelV2):
        setattr(TorchModelV2, _name, _member)
