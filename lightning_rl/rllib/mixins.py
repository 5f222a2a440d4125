"""RLlib's mixins of policies; call their constructors in `before_init` or `after_init`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_rl.rllib.sample_batch import SampleBatch
from lightning_rl.sample_batch import to_tensors
from lightning_rl.schedules import schedule_value

__all__ = ["EntropyCoeffSchedule", "KLCoeffMixin", "LearningRateSchedule", "ValueNetworkMixin"]


class ValueNetworkMixin:
    """A method `_value` of one observation.

    Args:
        obs_space, action_space, config: not read.
    """

    def __init__(self, obs_space: Any = None, action_space: Any = None, config: Any = None) -> None: ...

    def _value(self: Any, obs: Any, prev_action: Any = None, prev_reward: Any = None, *state: Any) -> float:
        """V of one observation, as the environment gave it."""
        columns = {"obs": obs, "prev_actions": prev_action, "prev_rewards": prev_reward}
        given = {name: value for name, value in columns.items() if value is not None}
        rows = SampleBatch({name: to_tensors(value, self.device) for name, value in given.items()})
        if state:
            rows["state_in"] = {str(number): to_tensors(part, self.device) for number, part in enumerate(state)}
        rows = rows.map(lambda leaf: leaf[None, None])
        return float(self.values(rows.obs, rows))


class LearningRateSchedule:
    """The learning rate as `cur_lr`, for an `optimizer_fn`.

    Args:
        lr: the rate.
        lr_schedule: `[[env_step, rate], …]`, in its place.
    """

    def __init__(self, lr: float, lr_schedule: Any = None) -> None:
        self._lr_schedule = lr if lr_schedule is None else lr_schedule

    @property
    def cur_lr(self: Any) -> float:
        """The rate at the current number of environment steps."""
        return _value_now(self, self._lr_schedule)


class EntropyCoeffSchedule:
    """The weight of the entropy bonus as `entropy_coeff`, for a loss.

    Args:
        entropy_coeff: the weight.
        entropy_coeff_schedule: `[[env_step, weight], …]`, in its place.
    """

    def __init__(self, entropy_coeff: float, entropy_coeff_schedule: Any = None) -> None:
        self._entropy_schedule = entropy_coeff if entropy_coeff_schedule is None else entropy_coeff_schedule

    @property
    def entropy_coeff(self: Any) -> float:
        """The weight at the current number of environment steps."""
        return _value_now(self, self._entropy_schedule)


class KLCoeffMixin:
    """A weight of the KL penalty that follows the KL divergence, by factors of 1.5 and 0.5.

    Schulman et al. 2017, arXiv:1707.06347, section 4.

    Args:
        config: "kl_coeff", the first weight, and "kl_target".
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.kl_coeff, self.kl_target = float(config["kl_coeff"]), float(config["kl_target"])

    def update_kl(self, sampled_kl: float) -> float:
        """Adapt the weight to the KL of an iteration; returns the new one."""
        if sampled_kl > 2.0 * self.kl_target:
            self.kl_coeff *= 1.5
        elif sampled_kl < 0.5 * self.kl_target:
            self.kl_coeff *= 0.5
        return self.kl_coeff


def _value_now(policy: Any, schedule: Any) -> float:
    """The value of a schedule at the env steps of a policy, which has none yet while it is built."""
    return schedule_value(schedule, getattr(vars(policy).get("progress"), "env_steps", 0))
