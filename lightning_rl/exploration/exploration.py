"""The contract of every exploration strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.signatures import check_keywords
from lightning_rl.spaces import leaf_spaces

if TYPE_CHECKING:
    from lightning_rl.sample_batch import SampleBatch

__all__ = ["Actor", "Exploration", "require_box_actions", "require_discrete_actions"]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: one worker of a run.

    Attributes:
        worker_index: 0 … `num_workers` − 1.
        num_workers: logical workers of the whole run, wherever they live.
        num_envs: environments that this one steps together.
        stream: "rollout" or "evaluation"; workers of both may act with one policy object.
    """

    worker_index: int = 0
    num_workers: int = 1
    num_envs: int = 1
    stream: str = "rollout"


class Exploration(nn.Module):
    """Chooses actions from a distribution; a subclass defines `get_exploration_action`, the rest has defaults.

    All randomness comes from the generator that is passed in, which is seeded afresh for every fragment. Schedules
    follow `timestep`; what is learned or adapted is parameters and buffers, so checkpoints hold it; noise that runs on
    from step to step is kept for each actor, and starts from nothing with an episode (environments are cut when a
    checkpoint is written, so it is never part of one).

    Args:
        action_space: that the policy acts in (`ActionTransform.policy_space`); noise is added and clipped there. A
            strategy whose constructor names `observation_space` gets that of one environment too.

    Attributes:
        actor: who acts now.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "__init__" in vars(cls):
            cls.__init__ = check_keywords("exploration")(cls.__init__)
        # A class that chooses in its own way has not the short ways to its parents' choices.
        if "get_exploration_action" in vars(cls):
            for name in ("get_action", "blind_action"):
                if name not in vars(cls):
                    setattr(cls, name, vars(Exploration)[name])

    def __init__(self, action_space: Space[Any]) -> None:
        super().__init__()
        self.action_space = action_space
        self.actor = Actor()

    def prepare_policy(self, policy: Any) -> None:
        """Change a new policy's model as this strategy needs it, or refuse it; called once, by its constructor."""

    # -- acting -------------------------------------------------------------------------------------------------------
    def get_exploration_action(
        self, dist: ActionDistribution, *, timestep: int, explore: bool, generator: torch.Generator | None = None
    ) -> tuple[Any, Tensor]:
        """Actions `[N, …]` in the policy's space, and the log-probability (density) `[N]` they were chosen with.

        Args:
            dist: of the `N` rows; never changed.
            timestep: environment steps of the whole run so far.
            explore: False takes the best action, with its log-probability under `dist`.
            generator: on the distribution's device.
        """
        raise NotImplementedError  # abstract

    def get_action(
        self, dist: ActionDistribution, *, timestep: int, explore: bool, generator: torch.Generator | None = None
    ) -> Any:
        """The actions alone, where nobody asks how likely they were; the same as of `get_exploration_action`."""
        return self.get_exploration_action(dist, timestep=timestep, explore=explore, generator=generator)[0]

    def blind_action(self, rows: int, *, timestep: int, explore: bool, generator: torch.Generator) -> Any:
        """Actions `[N, …]` of a step that does not depend on what the model says; `None`: this one does.

        It is asked before the model, if any of its actions are allowed and nobody reads anything else of it; and then
        `get_action` only where this gave `None`.
        """
        return None

    disturbs: bool = False
    """Whether acting runs another network than the policy's own, so that its values are not the policy's."""

    reads_next_obs: bool = False
    """Whether `loss` reads the observation after each row's own step, which a replay buffer then gives beside the one
    that an n-step return is bootstrapped from."""

    def model_outputs(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        state: Sequence[Tensor],
        *,
        timestep: int,
        explore: bool,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """What `model(inputs, state, None)` gives while acting; strategies that disturb the network do it here."""
        return model(inputs, state, None)

    def extra_action_out(self, outputs: Tensor) -> dict[str, Tensor]:
        """More columns for the worker to record, which `postprocess_trajectory` wants; `outputs [N, K]` acted."""
        return {}

    def begin_fragment(self, actor: Actor) -> None:
        """`actor` is about to act, after others perhaps; with a running episode or before `on_episode_start`."""
        self.actor = actor

    def on_episode_start(self, env_indices: Sequence[int]) -> None:
        """Episodes begin with the next action in these environments of the actor."""

    # -- learning -----------------------------------------------------------------------------------------------------
    def postprocess_trajectory(self, policy: Any, batch: SampleBatch) -> SampleBatch:
        """The fragment `[T, B, …]` that the policy learns from, before its own `postprocess_trajectory`.

        The learner adds a column "intrinsic_rewards" `[T, B]` to the (filtered) rewards (`Learner.with_rewards`).
        """
        return batch

    def loss(self, policy: Any, batch: SampleBatch) -> tuple[Tensor, dict[str, Tensor]] | None:
        """What this strategy's own parameters descend on the rows `[N, …]`, with metrics; `None`: nothing to learn."""
        return None

    def info(self, timestep: int) -> dict[str, float]:
        """Numbers worth a curve, such as the current ε: they are logged as `train/exploration/NAME`."""
        return {}


def require_discrete_actions(strategy: str, action_space: Space[Any]) -> None:
    """Refuse actions that cannot be counted.

    Raises:
        UnsupportedSpaceError: names the part, and strategies that would work.
    """
    for path, leaf in leaf_spaces(action_space):
        if _is_continuous(leaf):
            raise UnsupportedSpaceError(
                f"{strategy} needs discrete actions; {_where(path)}{leaf} is continuous: use gaussian_noise, "
                "ornstein_uhlenbeck_noise or stochastic_sampling"
            )


def require_box_actions(strategy: str, action_space: Space[Any]) -> None:
    """Refuse actions that noise cannot be added to.

    Raises:
        UnsupportedSpaceError: names the part, and strategies that would work.
    """
    for path, leaf in leaf_spaces(action_space):
        if not _is_continuous(leaf):
            raise UnsupportedSpaceError(
                f"{strategy} adds noise to float Box actions; {_where(path)}{leaf} is discrete: use epsilon_greedy, "
                "soft_q or stochastic_sampling"
            )


def _is_continuous(leaf: Space[Any]) -> bool:
    return isinstance(leaf, spaces.Box) and leaf.dtype.kind == "f"


def _where(path: str) -> str:
    return f"action {path!r}, " if path else ""
