"""What a rollout worker does with its policy beside acting: the verbs of a training loop written by hand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import ConfigError
from lightning_rl.sample_batch import SampleBatch, is_fragment

__all__ = ["DEFAULT_POLICY", "PolicyVerbs", "made_policy"]

DEFAULT_POLICY = "default_policy"  # the id of the one policy where weights are keyed by policy


class PolicyVerbs:
    """Weights in and out, gradients and learning, of a worker that has a `policy`."""

    policy: Any
    sample: Callable[[], SampleBatch]

    def get_weights(self) -> dict[str, Any]:
        """The weights by policy id: `{"default_policy": …}`."""
        return {DEFAULT_POLICY: self.policy.get_weights()}

    def set_weights(self, weights: Mapping[str, Any], env_steps: int | None = None) -> None:
        """Act with these weights from now on.

        Args:
            weights: as `get_weights` gives them; or one policy's own.
            env_steps: of the learner, which exploration and schedules follow; `None`: as they were.
        """
        self.policy.set_weights(weights[DEFAULT_POLICY] if set(weights) == {DEFAULT_POLICY} else weights)
        if env_steps is not None:
            self.policy.env_steps = env_steps

    def compute_gradients(self, samples: SampleBatch) -> tuple[Any, dict[str, float]]:
        """Gradients on these samples, and metrics; nothing is stepped."""
        return self.policy.compute_gradients(samples)

    def contribute(self) -> Any:
        """A sample of this worker as a `GradientUpdate`: its gradients, and what else a learner has to know."""
        samples = self.sample()
        while not has_experience(samples):
            samples = self.sample()
        return self.policy.learner.gradient_update(samples)

    def apply_gradients(self, gradients: Any) -> None:
        """Step with gradients, perhaps of another worker."""
        self.policy.apply_gradients(gradients)

    def learn_on_batch(self, samples: SampleBatch) -> dict[str, float]:
        """Let this worker's policy learn; returns its metrics."""
        return self.policy.learn_on_batch(samples)

    def apply(self, fn: Callable[[Any], Any]) -> Any:
        """`fn(worker)`, for what no verb is there for."""
        return fn(self)

    def get_policy(self, policy_id: str = DEFAULT_POLICY) -> Any:
        """The policy.

        Raises:
            ConfigError: there is none of that id.
        """
        if policy_id != DEFAULT_POLICY:
            raise ConfigError(f"policy_id={policy_id!r}: this worker has one policy, {DEFAULT_POLICY!r}")
        return self.policy


def has_experience(samples: SampleBatch) -> bool:
    """Whether there is anything but resets in a sample: a fragment of one step may have nothing else."""
    return bool(samples.valid.any()) if is_fragment(samples) else samples.count > 0


def made_policy(policy: Any, env: EnvCreator, config: Mapping[str, Any] | None) -> Any:
    """The policy of a worker: as it is, or built from its class and the spaces of the environment.

    Args:
        policy: an object that acts, or a class: called with (observation space, action space, config) if its
            constructor names `config` and no default, as classic ones do, else with the config as keywords.
        env: whose spaces it gets; the environment is checked.
        config: for the constructor.

    Raises:
        ConfigError: the constructor does not take this.
        EnvError: the environment cannot be made, or breaks the Gymnasium API.
    """
    if not isinstance(policy, type):
        if config is not None:
            raise ConfigError(f"policy_config={dict(config)!r} with a policy that is built already: pass its class")
        return policy
    parameters = inspect.signature(policy).parameters
    classic = "config" in parameters and parameters["config"].default is inspect.Parameter.empty
    arguments, keywords = ((dict(config or {}),), {}) if classic else ((), dict(config or {}))
    try:
        inspect.signature(policy).bind(None, None, *arguments, **keywords)
    except TypeError as error:
        raise ConfigError(
            f"policy {policy.__name__}: {error}; its constructor is called with (observation_space, action_space, "
            "config), or with policy_config as keywords"
        ) from error
    return policy(*env.spaces(), *arguments, **keywords)
