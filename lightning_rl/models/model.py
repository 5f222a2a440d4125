"""The interface of models: inputs that a policy passes, and outputs that it expects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gymnasium import Space
from torch import Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.fast_torch import FastAttributes
from lightning_rl.models.preprocessors import Preprocessor, make_preprocessor
from lightning_rl.sample_batch import SampleBatch

__all__ = ["InputDict", "LastForward", "Model"]


class InputDict(dict[str, Any]):
    """The model's inputs; "obs_flat" `[N, size]` is computed at its first access (image models never read it).

    Args:
        flat: function that preprocesses and filters "obs".
        columns: "obs", "prev_obs", "prev_actions", "prev_rewards", "is_training", and for central critics
            "central_obs".
    """

    def __init__(self, flat: Callable[[Any], Tensor], **columns: Any) -> None:
        super().__init__(columns)
        self._flat = flat

    def __missing__(self, key: str) -> Any:
        if key != "obs_flat":
            raise KeyError(f"no {key!r} in the model's inputs: {', '.join((*self, 'obs_flat'))}")
        self[key] = self._flat(self["obs"])
        return self[key]

    def without(self, name: str) -> InputDict:
        """The same inputs but one."""
        return InputDict(self._flat, **{key: value for key, value in self.items() if key != name})


class Model(FastAttributes):
    """A network from observations to the parameters of an action distribution, and to values.

    A subclass defines `forward`, and `value_function` for algorithms with a critic; everything else has a default.
    Keywords of `custom_model_config` arrive as keywords of `__init__`.

    Args:
        obs_space: space of a single environment's observations, as the environment defines it.
        action_space: space of a single environment's actions.
        num_outputs: width K of the outputs that the action distribution needs.
        preprocessor: computes "obs_flat"; `None` takes the built-in one for the space.

    Attributes:
        preprocessor: its `size` is the width of "obs_flat".
        forbids_actions: whether outputs may mark a discrete action as not allowed (−∞, or −1e30 and less), as a custom
            model that reads an action mask does; `ModelCatalog` sets it to `False` for the built-in models.
        log_std_clip: log standard deviations are kept within ± this by the Gaussian distributions
            (`log_std_clip_param`).
        values_are_cheap: whether `value_function` costs almost nothing after a forward (shared layers); values are then
            recorded while acting.
        prev_obs, prev_actions, prev_rewards: numbers of earlier observations, actions and rewards that the model reads;
            workers keep them for each environment.
        reads_preprocessed: whether "obs" is "obs_flat" in the structure of the space, instead of what the environment
            gave: discrete parts are one-hot vectors, and everything is filtered.
        model_config: all keys of the config that the model was built by.
    """

    forbids_actions: bool = True
    log_std_clip: float = 20.0
    values_are_cheap: bool = False
    prev_obs: int = 0
    prev_actions: int = 0
    prev_rewards: int = 0
    reads_preprocessed: bool = False
    model_config: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        obs_space: Space[Any],
        action_space: Space[Any],
        num_outputs: int,
        *,
        preprocessor: Preprocessor | None = None,
    ) -> None:
        super().__init__()
        self.obs_space, self.action_space, self.num_outputs = obs_space, action_space, num_outputs
        self.preprocessor = make_preprocessor(obs_space) if preprocessor is None else preprocessor
        self._last = LastForward()

    @classmethod
    def constructor_view(
        cls, obs_space: Space[Any], config: Mapping[str, Any], preprocessor: Preprocessor | None
    ) -> tuple[Space[Any], Mapping[str, Any]]:
        """The observation space and the model config that the constructor of a custom model gets.

        Args:
            obs_space: the environment's own observation space.
            config: all keys.
            preprocessor: the custom one, if there is one.
        """
        return obs_space, config

    def forward(
        self, input_dict: Mapping[str, Any], state: Sequence[Tensor] = (), seq_lens: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Compute outputs `[N, num_outputs]` and the recurrent state after the rows.

        Args:
            input_dict: "obs" (nested and typed as the environment's, tensors of `[N, *]`), "obs_flat" (float32 `[N,
                preprocessor.size]`, filtered; computed on first access), "prev_actions" and "prev_rewards" (in the
                policy's action space; `[N, *]`, or `[N, n, *]` of n steps, the oldest first; before the first step −1
                for a discrete action and 0 for a number), "prev_obs" (`[N, n, *]`, the n observations before "obs", the
                oldest first; zeros before the first step), "is_training", and in learning with a central critic
                "central_obs" (float32 `[N, S]`).
            state: recurrent state, `[S, …]` each; empty for feed-forward models.
            seq_lens: lengths `[S]` of the sequences when a recurrent model learns; the rows are then `[S · L]`,
                one sequence after the other, padded to the length L of the longest. `None` in acting: each row is a
                sequence of length 1.
        """
        raise NotImplementedError  # abstract

    def derived_inputs(self, input_dict: Mapping[str, Any]) -> Mapping[str, Any]:
        """Further inputs of `forward` that are computed from the input dict, such as windows over earlier steps."""
        return {}

    def value_function(self) -> Tensor:
        """Values `[N]` of the observations of the last `forward`."""
        raise ConfigError(
            f"{type(self).__name__} does not define value_function(), which this algorithm needs: return the values "
            "[N] of the last forward"
        )

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor | list[Tensor]:
        """Return the loss to minimize instead of `policy_loss` (a list is summed), computed from rows `loss_inputs`."""
        return policy_loss

    def loss_with_custom(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor | list[Tensor]:
        """Call `custom_loss`; a base class whose `custom_loss` takes the arguments in another form converts them."""
        return self.custom_loss(policy_loss, loss_inputs)

    def metrics(self) -> dict[str, Tensor | float]:
        """Numbers to log, read after each loss."""
        return {}

    def get_initial_state(self) -> list[Tensor]:
        """State at an episode's start, without the batch dimension; empty for feed-forward models."""
        return []


class LastForward:
    """Stores tensors of the last forward for `value_function`; setting attributes of a module itself is slow.

    Copies and pickles are empty, for the tensors belong to an autograd graph, which cannot be copied.
    """

    __slots__ = ("features",)

    def __init__(self) -> None:
        self.features: Any = None

    def __reduce__(self) -> tuple[type[LastForward], tuple[()]]:
        return LastForward, ()

    def get(self) -> Any:
        """What the model stored: features, or the inputs of a separate value network.

        Raises:
            RuntimeError: the model has not run yet.
        """
        if self.features is None:
            raise RuntimeError("value_function() gives the values of the last forward; call the model first")
        return self.features
