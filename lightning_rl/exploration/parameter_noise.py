"""Parameter noise: perturbed weights for a whole episode, so that exploration is consistent within it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import Space
from torch import Generator, Tensor, nn

from lightning_rl.distributed import mean_over_ranks
from lightning_rl.exploration.exploration import Actor
from lightning_rl.exploration.wrapper import ExplorationWrapper
from lightning_rl.models.batch_norm import BatchNorm
from lightning_rl.models.distributions import ActionDistribution
from lightning_rl.sample_batch import SampleBatch, map_leaves, row_count
from lightning_rl.schedules import to_env_steps
from lightning_rl.schema.ranges import Positive, WholeEnvSteps
from lightning_rl.spaces import is_continuous

__all__ = ["ParameterNoise", "row_distances"]

ADAPTED_EVERY = 50  # rows over which the distance is measured: Plappert et al. 2018, appendix C
# Their weights get no noise.
NORMALIZING = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm, BatchNorm)


class ParameterNoise(ExplorationWrapper):
    """Acts with weights θ + N(0, σ²), drawn for each environment when an episode starts and kept until it ends.

    Plappert et al. 2018, arXiv:1706.01905. σ is adapted after every rollout of 50 steps or more, or after several
    shorter ones with 50 in total (eq. 4): it grows by 1 % while the perturbed policy stays within `distance` of the
    unperturbed one, and shrinks by 1 % otherwise. The distance is that of the best continuous actions (root mean
    square, in the policy's units), or else the mean KL(unperturbed‖perturbed) in nats.
    Layers are equally sensitive to one σ only if they are normalized: use it with `model.layer_norm=true`.

    The weights themselves are never changed: every step of acting computes perturbed copies, with one forward pass per
    environment. So checkpoints, learning and evaluation only use unperturbed weights.

    Args:
        action_space: see `Exploration`.
        observation_space: space of a single environment's observations.
        initial_stddev: initial standard deviation σ of the noise on each weight.
        distance: target distance from the unperturbed policy, to which σ is adapted, > 0.
        random_timesteps: env steps before which actions are uniformly random.
        sub_exploration: `{type: …, **keywords}` of the strategy that chooses actions from the outputs of the perturbed
            network; `None` samples from its distribution (for Q-values use epsilon_greedy).
    """

    stddev: Tensor
    measured: Tensor  # sum of the rows' distances since σ was adapted, and number of these rows

    def __init__(
        self,
        action_space: Space[Any],
        observation_space: Space[Any] | None = None,
        initial_stddev: Positive = 0.1,
        distance: Positive = 0.1,
        random_timesteps: WholeEnvSteps = 10_000,
        sub_exploration: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(action_space, observation_space, sub_exploration)
        self.distance, self.random_timesteps = distance, to_env_steps(random_timesteps)
        self.register_buffer("stddev", torch.tensor(float(initial_stddev)))
        self.register_buffer("measured", torch.zeros(2))
        self._real = is_continuous(action_space)
        # For each actor and environment: standard normal numbers for every weight; `None`: the next step draws them.
        self._noise: dict[Actor, list[dict[str, Tensor] | None]] = {}

    # -- acting -------------------------------------------------------------------------------------------------------
    def begin_fragment(self, actor: Actor) -> None:
        """Switch to this actor's noise."""
        super().begin_fragment(actor)
        self._actor_noise(actor.num_envs)

    def on_episode_start(self, env_indices: Sequence[int]) -> None:
        """Draw new noise for these environments."""
        super().on_episode_start(env_indices)
        noise = self._noise.get(self.actor)
        if noise is not None:
            for index in env_indices:
                noise[index] = None

    def episode_state(self) -> dict[str, Any] | None:
        """The noise of the actor's environments, and what the wrapped strategy keeps."""
        wrapped = self.sub_exploration.episode_state()
        noise = [_on_cpu(drawn) for drawn in self._actor_noise(self.actor.num_envs)]
        return None if wrapped is None else {"noise": noise, "wrapped": wrapped}

    def load_episode_state(self, state: Mapping[str, Any]) -> None:
        """Go on with this noise."""
        device = self.stddev.device
        self._actor_noise(self.actor.num_envs)[:] = [
            None if drawn is None else {name: each.to(device, copy=True) for name, each in drawn.items()}
            for drawn in state["noise"]
        ]
        self.sub_exploration.load_episode_state(state["wrapped"])

    disturbs = True

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
        """Run the model row by row with the perturbed weights of its environment; unperturbed if `explore` is False."""
        if not explore or timestep < self.random_timesteps:
            return super().model_outputs(model, inputs, state, timestep=timestep, explore=explore, generator=generator)
        rows = row_count(inputs["obs"])
        weights = _disturbable(model)
        noise = self._actor_noise(rows)
        outputs, states = [], []
        for row in range(rows):
            drawn = noise[row]
            if drawn is None:
                drawn = noise[row] = {
                    name: torch.empty_like(weight).normal_(generator=generator) for name, weight in weights.items()
                }
            disturbed = {name: torch.addcmul(weight, drawn[name], self.stddev) for name, weight in weights.items()}
            own_state = [part[row : row + 1] for part in state]
            output, after = torch.func.functional_call(model, disturbed, (_Row(inputs, row), own_state, None))
            outputs.append(output)
            states.append(after)
        return torch.cat(outputs), [torch.cat(parts) for parts in zip(*states, strict=True)]

    def extra_action_out(self, outputs: Tensor) -> dict[str, Tensor]:
        """Record the outputs of the perturbed network."""
        return {**super().extra_action_out(outputs), "action_dist_inputs": outputs}

    def _actor_noise(self, rows: int) -> list[dict[str, Tensor] | None]:
        noise = self._noise.get(self.actor)
        if noise is None or len(noise) != rows:
            noise = self._noise[self.actor] = [None] * rows
        return noise

    # -- learning -----------------------------------------------------------------------------------------------------
    def postprocess_trajectory(self, policy: Any, batch: SampleBatch) -> SampleBatch:
        """Adapt σ to the distance between the perturbed and the current policy, once enough rows are measured."""
        if policy.env_steps > self.random_timesteps:
            self._measure(policy, batch)
        return super().postprocess_trajectory(policy, batch)

    @torch.no_grad()
    def _measure(self, policy: Any, batch: SampleBatch) -> None:
        if self.measured[1] < 0:  # workers that learn by themselves each subtracted their common start
            self.measured.zero_()
        if bool(batch.valid.any()):  # a fragment of one step may consist of a reset
            rows = policy.flatten_fragment(batch)
            disturbed = policy.distribution(rows.action_dist_inputs, policy.mask_of(rows))
            distances = row_distances(policy.distribution_of(rows), disturbed, best_actions=self._real)
            self.measured += torch.stack((distances.sum(), distances.new_tensor(len(distances))))
        total, rows = (mean_over_ranks(number) for number in self.measured)
        if rows < ADAPTED_EVERY:
            return
        distance = total / rows
        if self._real:
            distance = distance**0.5
        self.stddev.mul_(1.01 if distance <= self.distance else 1.0 / 1.01)
        self.measured.zero_()

    def info(self, timestep: int) -> dict[str, float]:
        """σ, for logging."""
        return {**super().info(timestep), "stddev": float(self.stddev)}


def row_distances(undisturbed: ActionDistribution, disturbed: ActionDistribution, *, best_actions: bool) -> Tensor:
    """Difference between the actions of two policies on each row, `[N]`: Plappert et al. 2018, appendix C.

    Args:
        undisturbed, disturbed: distributions of the same rows.
        best_actions: compare the best actions, which are real numbers, by the mean square over their entries; else
            KL(undisturbed‖disturbed) in nats.
    """
    if best_actions:
        return (undisturbed.deterministic_sample() - disturbed.deterministic_sample()).square().flatten(1).mean(1)
    return undisturbed.kl(disturbed)


def _on_cpu(noise: dict[str, Tensor] | None) -> dict[str, Tensor] | None:
    return None if noise is None else {name: drawn.cpu() for name, drawn in noise.items()}


def _disturbable(model: nn.Module) -> dict[str, Tensor]:
    """The weights that get noise, by name: all except those of normalizing layers."""
    kept = {id(p) for layer in model.modules() if isinstance(layer, NORMALIZING) for p in layer.parameters()}
    return {name: p.detach() for name, p in model.named_parameters() if id(p) not in kept and p.is_floating_point()}


class _Row(dict[str, Any]):
    """One row of a model's inputs; "obs_flat" is computed on first access, as in the model's inputs."""

    def __init__(self, inputs: Mapping[str, Any], row: int) -> None:
        self._inputs, self._row = inputs, slice(row, row + 1)
        super().__init__({name: self._take(value) for name, value in inputs.items()})

    def __missing__(self, key: str) -> Any:
        self[key] = self._take(self._inputs[key])
        return self[key]

    def _take(self, value: Any) -> Any:
        return map_leaves(lambda leaf: leaf if leaf is None or isinstance(leaf, bool) else leaf[self._row], value)
