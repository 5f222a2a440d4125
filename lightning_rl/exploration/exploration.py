"""Base class of the exploration strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gymnasium import Space
from torch import Generator, Tensor, nn

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.exploration.random_actions import random_actions
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.schema.signatures import check_keywords
from lightning_rl.spaces import is_continuous, leaf_spaces

if TYPE_CHECKING:
    from lightning_rl.sample_batch import SampleBatch

__all__ = ["Actor", "Choice", "Exploration", "require_box_actions", "require_discrete_actions"]

Choice = tuple[Any, Any]
"""Actions `[N, …]` in the policy's space, and their log-probabilities (densities) `[N]`."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The worker that acts: its index in the run and its environments.

    Attributes:
        worker_index: 0 … `num_workers` − 1.
        num_workers: logical workers of the whole run, in any process.
        num_envs: environments that this worker steps together.
        stream: "rollout" or "evaluation"; workers of both may act with one policy object.
    """

    worker_index: int = 0
    num_workers: int = 1
    num_envs: int = 1
    stream: str = "rollout"


# Methods that use the model's outputs if a subclass overrides them.
OUTPUT_READERS = ("extra_action_out", "model_outputs")


class Exploration(nn.Module):
    """Chooses actions from a distribution; a subclass defines `get_exploration_action` or `choose`.

    All randomness comes from the generator that is passed in, which is seeded for every fragment. Schedules follow
    `timestep`; learned or adapted state is parameters and buffers, so checkpoints hold it; noise that is correlated
    over steps is stored per actor, restarts with each episode, and is saved by `episode_state`.

    Args:
        action_space: space of the policy's actions (`ActionTransform.policy_space`); noise is added and clipped there.
            A strategy whose constructor has a parameter `observation_space` also gets the observation space of one
            environment.

    Attributes:
        actor: the worker that acts now.
        random_timesteps: before this many environment steps, exploring actions are uniformly random.
    """

    random_timesteps: int = 0

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "__init__" in vars(cls):
            cls.__init__ = check_keywords("exploration")(cls.__init__)
        cls.reads_outputs = any(getattr(cls, name) is not getattr(Exploration, name) for name in OUTPUT_READERS)
        cls.uses_choose = cls.get_exploration_action is Exploration.get_exploration_action

    def __init__(self, action_space: Space[Any]) -> None:
        super().__init__()
        self.action_space = action_space
        self.actor = Actor()

    def prepare_policy(self, policy: Any) -> None:
        """Adapt a new policy's model to this strategy, or raise an error; the policy's constructor calls this once."""

    # -- acting -------------------------------------------------------------------------------------------------------
    def get_exploration_action(
        self, dist: ActionDistribution, *, timestep: int, explore: bool, generator: Generator | None = None
    ) -> tuple[Any, Tensor]:
        """Choose actions `[N, …]` in the policy's space; returns them with their log-probability (density) `[N]`.

        Args:
            dist: action distribution of the `N` rows; never changed.
            timestep: environment steps of the whole run so far.
            explore: False takes the best action, with its log-probability under `dist`.
            generator: on the distribution's device.
        """
        if not explore:
            return dist.deterministic_sample(), dist.sampled_action_logp()
        if timestep < self.random_timesteps:
            return random_actions(self.action_space, dist, generator)
        return self.choose(dist, timestep, generator, logp=True)

    def get_action(
        self, dist: ActionDistribution, *, timestep: int, explore: bool, generator: Generator | None = None
    ) -> Any:
        """The actions of `get_exploration_action`, without log-probabilities, which may be cheaper."""
        if not self.uses_choose:
            return self.get_exploration_action(dist, timestep=timestep, explore=explore, generator=generator)[0]
        if not explore:
            return dist.deterministic_sample()
        if timestep < self.random_timesteps:
            return random_actions(self.action_space, dist, generator)[0]
        return self.choose(dist, timestep, generator, logp=False)[0]

    def choose(self, dist: ActionDistribution, timestep: int, generator: Generator | None, logp: bool) -> Choice:
        """Exploring actions after the random steps; with `logp=False`, `None` may stand for the log-probabilities.

        Called only if `get_exploration_action` is not overridden.
        """
        raise NotImplementedError  # abstract

    def blind_action(self, rows: int, *, timestep: int, explore: bool, generator: Generator) -> Any:
        """Actions `[N, …]` of a step that needs no outputs of the model; `None`: this step needs them.

        Called before the model, if no action is masked and nothing else of the model's outputs is needed. `get_action`
        is called only if this returned `None`.
        """
        return None

    uses_choose: ClassVar[bool] = True
    """Whether actions come from `choose`: `get_exploration_action` is not overridden; each class sets this itself."""

    reads_outputs: ClassVar[bool] = False
    """Whether acting uses the model's outputs for more than the distribution; each class sets this itself."""

    disturbs: bool = False
    """Whether acting runs another network than the policy's own, so that recorded values are not the policy's."""

    reads_next_obs: bool = False
    """Whether `loss` reads the observation after each row's own step. Replay buffers then return it beside the one that
    an n-step return bootstraps from."""

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
        """Run `model(inputs, state, None)` while acting; strategies that perturb the network override this."""
        return model(inputs, state, None)

    def extra_action_out(self, outputs: Tensor) -> dict[str, Tensor]:
        """Further columns to record, for `postprocess_trajectory`; `outputs [N, K]` are the model's."""
        return {}

    @property
    def follows_episodes(self) -> bool:
        """Whether it keeps something for each environment from step to step: `on_episode_start` is overridden.

        Otherwise a step may ask for the actions of some environments only.
        """
        return type(self).on_episode_start is not Exploration.on_episode_start

    def begin_fragment(self, actor: Actor) -> None:
        """Switch to `actor`, which acts next; its episodes continue unless `on_episode_start` follows."""
        self.actor = actor

    def on_episode_start(self, env_indices: Sequence[int]) -> None:
        """Restart noise in these environments of the actor: episodes begin with the next action."""

    def episode_state(self) -> dict[str, Any] | None:
        """What the actor keeps for its running episodes, as plain data and tensors; `None`: it cannot be saved.

        A subclass that overrides `on_episode_start` overrides this and `load_episode_state` as well, so that a resumed
        run is the one that would have continued.
        """
        return None if self.follows_episodes else {}

    def load_episode_state(self, state: Mapping[str, Any]) -> None:
        """Go on with the running episodes of `state`, after `begin_fragment` with the same actor."""

    # -- learning -----------------------------------------------------------------------------------------------------
    def postprocess_trajectory(self, policy: Any, batch: SampleBatch) -> SampleBatch:
        """Change a fragment `[T, B, …]` before learning, ahead of the policy's own `postprocess_trajectory`.

        The learner adds a column "intrinsic_rewards" `[T, B]` to the (filtered) rewards (`Learner.transform_rewards`).
        """
        return batch

    @property
    def reads_fragments(self) -> bool:
        """Whether this class has its own `postprocess_trajectory`, which then needs every fragment."""
        return type(self).postprocess_trajectory is not Exploration.postprocess_trajectory

    def loss(self, policy: Any, batch: SampleBatch) -> tuple[Tensor, dict[str, Tensor]] | None:
        """Loss for this strategy's own parameters on rows `[N, …]`, with metrics; `None` if it learns nothing."""
        return None

    def info(self, timestep: int) -> dict[str, float]:
        """Numbers to log, such as the current ε, under `train/exploration/NAME`."""
        return {}


def require_discrete_actions(strategy: str, action_space: Space[Any]) -> None:
    """Raise an error if a part of the actions is continuous.

    Raises:
        UnsupportedSpaceError: names the part, and strategies that would work.
    """
    for path, leaf in leaf_spaces(action_space):
        if is_continuous(leaf):
            raise UnsupportedSpaceError(
                f"{strategy} needs discrete actions; {_where(path)}{leaf} is continuous: use gaussian_noise, "
                "ornstein_uhlenbeck_noise or stochastic_sampling"
            )


def require_box_actions(strategy: str, action_space: Space[Any]) -> None:
    """Raise an error if a part of the actions is not a float Box, so that noise cannot be added.

    Raises:
        UnsupportedSpaceError: names the part, and strategies that would work.
    """
    for path, leaf in leaf_spaces(action_space):
        if not is_continuous(leaf):
            raise UnsupportedSpaceError(
                f"{strategy} adds noise to float Box actions; {_where(path)}{leaf} is discrete: use epsilon_greedy, "
                "soft_q or stochastic_sampling"
            )


def _where(path: str) -> str:
    return f"action {path!r}, " if path else ""
