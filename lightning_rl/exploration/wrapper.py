"""Base class of strategies that wrap another strategy, which chooses the actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gymnasium import Space
from torch import Generator, Tensor, nn

from lightning_rl.exploration.catalog import make_exploration
from lightning_rl.exploration.exploration import Actor, Exploration
from lightning_rl.exploration.random_actions import random_actions
from lightning_rl.models.distributions import ActionDistribution

if TYPE_CHECKING:
    from lightning_rl.sample_batch import SampleBatch

__all__ = ["ExplorationWrapper"]


class ExplorationWrapper(Exploration):
    """A strategy around another one: methods that a subclass does not override call the wrapped strategy.

    Args:
        action_space: see `Exploration`.
        observation_space: space of a single environment's observations.
        sub_exploration: `{type: …, **keywords}` of the strategy that chooses the actions; `None` samples from the
            action distribution.
    """

    def __init__(
        self,
        action_space: Space[Any],
        observation_space: Space[Any] | None = None,
        sub_exploration: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(action_space)
        self.sub_exploration = make_exploration(sub_exploration, action_space, observation_space)
        self.disturbs = type(self).disturbs or self.sub_exploration.disturbs
        self.reads_next_obs = type(self).reads_next_obs or self.sub_exploration.reads_next_obs

    def prepare_policy(self, policy: Any) -> None:
        """Prepare the policy for the wrapped strategy."""
        self.sub_exploration.prepare_policy(policy)

    def get_exploration_action(
        self, dist: ActionDistribution, *, timestep: int, explore: bool, generator: Generator | None = None
    ) -> tuple[Any, Tensor]:
        """The actions of the wrapped strategy, after the random steps."""
        if explore and timestep < self.random_timesteps:
            return random_actions(self.action_space, dist, generator)
        return self.sub_exploration.get_exploration_action(
            dist, timestep=timestep, explore=explore, generator=generator
        )

    def model_outputs(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        state: Sequence[Tensor],
        *,
        timestep: int,
        explore: bool,
        generator: Generator | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """The outputs of the model under the wrapped strategy."""
        return self.sub_exploration.model_outputs(
            model, inputs, state, timestep=timestep, explore=explore, generator=generator
        )

    def extra_action_out(self, outputs: Tensor) -> dict[str, Tensor]:
        """The columns of the wrapped strategy."""
        return self.sub_exploration.extra_action_out(outputs)

    @property
    def follows_episodes(self) -> bool:
        """Whether this strategy or the wrapped one does."""
        own = type(self).on_episode_start is not ExplorationWrapper.on_episode_start
        return own or self.sub_exploration.follows_episodes

    def begin_fragment(self, actor: Actor) -> None:
        """Switch the wrapped strategy to this actor as well."""
        super().begin_fragment(actor)
        self.sub_exploration.begin_fragment(actor)

    def on_episode_start(self, env_indices: Sequence[int]) -> None:
        """Restart the noise of the wrapped strategy as well."""
        self.sub_exploration.on_episode_start(env_indices)

    def episode_state(self) -> dict[str, Any] | None:
        """That of the wrapped strategy; a subclass that keeps more for an episode overrides this."""
        own = type(self).on_episode_start is not ExplorationWrapper.on_episode_start
        return None if own else self.sub_exploration.episode_state()

    def load_episode_state(self, state: Mapping[str, Any]) -> None:
        """Go on with the running episodes of the wrapped strategy."""
        self.sub_exploration.load_episode_state(state)

    def postprocess_trajectory(self, policy: Any, batch: SampleBatch) -> SampleBatch:
        """The fragment as the wrapped strategy changes it."""
        return self.sub_exploration.postprocess_trajectory(policy, batch)

    @property
    def reads_fragments(self) -> bool:
        """Whether this strategy or the wrapped one does."""
        own = type(self).postprocess_trajectory is not ExplorationWrapper.postprocess_trajectory
        return own or self.sub_exploration.reads_fragments

    def loss(self, policy: Any, batch: SampleBatch) -> tuple[Tensor, dict[str, Tensor]] | None:
        """The loss of the wrapped strategy."""
        return self.sub_exploration.loss(policy, batch)

    def info(self, timestep: int) -> dict[str, float]:
        """The numbers of the wrapped strategy."""
        return self.sub_exploration.info(timestep)
