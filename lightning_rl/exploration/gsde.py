"""gSDE: exploration noise as a function of the state, constant in form for several steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from torch import Generator, Tensor

from lightning_rl.errors import ConfigError
from lightning_rl.exploration.exploration import Actor, Choice, Exploration, require_box_actions
from lightning_rl.models.distributions import ActionDistribution, DiagGaussian
from lightning_rl.models.gsde_head import StateDependentHead
from lightning_rl.models.layers import ActionHead
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import Count, LogStd, WholeEnvSteps

__all__ = ["GSDE"]


class GSDE(Exploration):
    """Generalized state-dependent exploration: the mean action plus θ · z(s). Raffin et al. 2022, arXiv:2005.05719.

    z(s) are the last features of the policy's network, and θ is a matrix with entries from N(0, σᵢⱼ²), drawn for each
    environment at an episode's start and after every `sample_freq` steps. In between the noise is a smooth function of
    the state, so actions do not jitter. σ is learned: the deviation of the policy's Gaussian becomes that of such noise
    in each state, √(Σᵢ zᵢ² σᵢⱼ²), instead of an output of the network; losses, entropy, KL and log-probabilities use
    the distribution as usual. Squashed Gaussians are supported as well.

    Args:
        action_space: a float Box.
        sample_freq: number of steps between new matrices; `None`: one matrix per episode.
        log_std_init: initial log σᵢⱼ; the standard deviation of an action is about √L σ for L features of size 1.
        full_std: learn a σ for each feature and action, instead of one for each feature.
        use_expln: use σ = 1 + log(1 + x) instead of exp x for parameters x > 0, which grows more slowly.
        learn_features: whether the gradient of the standard deviation reaches the features; `None`: only in off-policy
            algorithms, as in the authors' code.
        random_timesteps: env steps before which actions are uniformly random.

    Raises:
        UnsupportedSpaceError: the actions are not a float Box.
        ConfigError: `sample_freq` is below 1.
    """

    def __init__(
        self,
        action_space: Space[Any],
        sample_freq: Count | None = 8,
        log_std_init: LogStd = -2.0,
        full_std: bool = True,
        use_expln: bool = False,
        learn_features: bool | None = None,
        random_timesteps: WholeEnvSteps = 0,
    ) -> None:
        super().__init__(action_space)
        require_box_actions(type(self).__name__, action_space)
        self.sample_freq, self.random_timesteps = sample_freq, to_env_steps(random_timesteps)
        self.log_std_init, self.full_std, self.use_expln = log_std_init, full_std, use_expln
        self.learn_features = learn_features
        self._held: dict[Actor, HeldNoise] = {}  # noise of each actor
        self._heads: tuple[StateDependentHead, ...] = ()  # the policy's heads; the policy saves and trains them

    def prepare_policy(self, policy: Any) -> None:
        """Replace the policy's action head, so that deviations become functions of the features.

        Raises:
            ConfigError: the policy has no Gaussian with learned deviations, or its network no head for it.
        """
        model = policy.model
        dist, head = policy.dist_class(torch.zeros(1, model.num_outputs), model, None), getattr(model, "head", None)
        if not isinstance(dist, DiagGaussian):
            raise ConfigError(
                f"exploration.type=gsde needs Gaussian actions, and {type(policy).__name__} has {type(dist).__name__}: "
                "use ppo, a2c, sac or tqc without a model.custom_action_dist, or another exploration, such as "
                "gaussian_noise"
            )
        if not isinstance(head, ActionHead) or head.linear is None:
            raise ConfigError(
                f"exploration.type=gsde reads the features before the last layer, and {type(model).__name__} has no "
                "such layer: give a custom model an ActionHead as its `head`, and leave model.no_final_linear out"
            )
        if head.free is not None and policy.model_config["free_log_std"]:
            raise ConfigError(
                "model.free_log_std=true and exploration.type=gsde both say what the deviations are: set "
                "model.free_log_std=false"
            )
        model.head = StateDependentHead(
            head,
            log_std_init=self.log_std_init,
            full_std=self.full_std,
            use_expln=self.use_expln,
            learn_features=policy.off_policy if self.learn_features is None else self.learn_features,
        )
        self._heads = (model.head,)

    @torch.no_grad()
    def info(self, timestep: int) -> dict[str, float]:
        """The mean of all σᵢⱼ, for logging."""
        return {"stddev": float(self._heads[0].stddev().mean())} if self._heads else {}

    # -- acting -------------------------------------------------------------------------------------------------------
    def on_episode_start(self, env_indices: Sequence[int]) -> None:
        """Draw new matrices for these environments."""
        held = self._held.get(self.actor)
        if held is not None:
            held.steps_left[list(env_indices)] = 0

    def episode_state(self) -> dict[str, Any]:
        """The actor's matrices, and how long they are used."""
        held = self._held.get(self.actor)
        if held is None:
            return {}
        return {"standard": held.standard.cpu().clone(), "steps_left": torch.from_numpy(held.steps_left.copy())}

    def load_episode_state(self, state: Mapping[str, Any]) -> None:
        """Go on with these matrices."""
        if state:
            standard = state["standard"].to(self._heads[0].log_std.device, copy=True)
            self._held[self.actor] = HeldNoise(standard, state["steps_left"].numpy().copy())

    def choose(self, dist: ActionDistribution, timestep: int, generator: Generator | None, logp: bool) -> Choice:
        """The noisy action, with its log density over draws of θ, which learning computes again."""
        assert isinstance(dist, DiagGaussian)
        head: StateDependentHead = dist.model.head
        noise = head.noise(self._matrices(head, len(dist.inputs), generator))
        # The distribution clips log σ, and its density is that of the clipped noise.
        clipped = dist.log_std - dist.inputs.chunk(2, dim=1)[1]
        actions = dist.sample_with(noise * clipped.exp())
        return actions, dist.logp(actions) if logp else None

    def _matrices(self, head: StateDependentHead, rows: int, generator: Generator | None) -> Tensor:
        """Standard normal matrices `[N, L, A]` for the next step of the actor's environments."""
        held, device = self._held.get(self.actor), head.log_std.device
        if held is None or len(held.standard) != rows or held.standard.device != device:
            empty = torch.empty(rows, head.size, head.actions, device=device)
            held = self._held[self.actor] = HeldNoise(empty, np.zeros(rows, np.int64))
        due = np.flatnonzero(held.steps_left == 0)
        if len(due):
            fresh = held.standard.new_empty(len(due), head.size, head.actions).normal_(generator=generator)
            held.standard[torch.from_numpy(due).to(device)] = fresh
            held.steps_left[due] = -1 if self.sample_freq is None else self.sample_freq
        held.steps_left -= 1
        return held.standard


@dataclass(slots=True)
class HeldNoise:
    """The current noise matrices of one actor.

    Args:
        standard: `[B, L, A]`, matrices of standard normal numbers, one for each environment.
        steps_left: int64 `[B]`, remaining steps of each matrix; 0: the next step draws another; negative: until the end
            of the episode.
    """

    standard: Tensor
    steps_left: np.ndarray
