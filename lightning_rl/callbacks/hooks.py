"""The base class of a user's callback: Lightning's hooks, and RLlib's hooks on episodes, samples and learning."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningModule, Trainer

from lightning_rl.errors import ConfigError
from lightning_rl.rollouts.rollout_worker import EPISODE_HOOKS, WORKER_HOOKS, RolloutWorker

if TYPE_CHECKING:
    import numpy as np

    from lightning_rl.sample_batch import AnyBatch, SampleBatch

__all__ = ["LEARNER_HOOKS", "WORKER_HOOKS", "RLCallback", "overridden_hooks", "worker_hooks"]

LEARNER_HOOKS = ("on_postprocess_trajectory", "on_learn_on_batch", "on_train_result")

ATTACHED_BY_LIGHTNING = ("log", "log_dict")  # methods of the policy that Lightning sets on callbacks in fit


class RLCallback(Callback):
    """Base class for your own callbacks: override some hooks. Arguments come by keyword (`**kwargs` for unused ones).

    The first five hooks are called where the environments are: in the learner's process with `num_workers=0`, else in
    the workers' processes. Each of these has its own copy of the callback, made when the workers start; attributes of a
    copy stay in its process.
    """

    def on_reset(self, *, worker: RolloutWorker, obs: Any, info: dict[str, Any]) -> None:
        """All environments of the worker were reset, at the start of a run or of a sample: results `[B, …]`.

        Within a sample, environments reset themselves after an episode's end, which `on_episode_step` sees.
        """

    def on_episode_start(self, *, worker: RolloutWorker, env_index: int) -> None:
        """An episode starts: environment `env_index` of the worker has just been reset."""

    def on_episode_step(
        self,
        *,
        worker: RolloutWorker,
        obs: Any,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: dict[str, Any],
    ) -> None:
        """All environments of the worker took a step: results `[B, …]`.

        `info` is in Gymnasium's form for vector environments; values that no array of numbers can hold together stand
        in an array of objects. From environments in processes of their own come only values that can be pickled.
        """

    def on_episode_end(
        self,
        *,
        worker: RolloutWorker,
        env_index: int,
        episode_return: float,
        episode_length: int,
        agent_returns: Mapping[str, tuple[str, float]] | None = None,
    ) -> None:
        """An episode ended: the sum of its raw rewards, and its steps.

        With several agents, `agent_returns` has agent → (its policy's id, its return) of those that acted; a hook
        without that argument is called without it.
        """

    def on_sample_end(self, *, worker: RolloutWorker, samples: AnyBatch) -> None:
        """A fragment `[T, B, …]` is complete; columns may be added or changed in place.

        With several agents, a `MultiAgentBatch` with a fragment for each policy.
        """

    def on_postprocess_trajectory(
        self, *, policy: LightningModule, postprocessed_batch: SampleBatch, original_batch: SampleBatch
    ) -> None:
        """The fragment `[T, B, …]` has become the rows `[N, …]` to learn from; they may be changed in place.

        With replay: the fragment as the buffer stores it. With `data=gradients` workers call it, with their own policy.

        With several agents it is called for each policy that learns: `policy.policy_id` says which, and
        `policy.learner.other_agent_batches` has id → (policy, fragment) of the others, from the same environments.
        """

    def on_worker_report(self, *, report: Any) -> None:
        """In the learner's process: a worker process has sent this with a sample, as an entry of `worker.reports`.

        It comes before the sample is learned from. `worker.reports` is `None` where no other process is involved.
        """

    def on_learn_on_batch(self, *, policy: LightningModule, train_batch: SampleBatch, result: dict[str, float]) -> None:
        """The learner has learned from these rows `[N, …]`; numbers added to `result` are logged as `train/<name>`.

        With several agents it is called for each policy that learns, `policy.policy_id`, and numbers are logged as
        `train/<policy_id>/<name>`.
        """

    def on_train_result(self, *, trainer: Trainer, policy: LightningModule, result: dict[str, float]) -> None:
        """An iteration is over: `result` holds all its metrics, full names; numbers added to it are logged."""

    def __getstate__(self) -> dict[str, Any]:
        """State for a worker's process, without Lightning's methods, which would pickle the policy and the Trainer."""
        return {name: value for name, value in self.__dict__.items() if name not in ATTACHED_BY_LIGHTNING}


def overridden_hooks(callback: Any, names: Iterable[str] = (*EPISODE_HOOKS, *LEARNER_HOOKS)) -> list[str]:
    """Which of the hooks `names` a callback defines itself; any object with such methods will do."""
    return [name for name in names if getattr(type(callback), name, None) not in (None, getattr(RLCallback, name))]


def check_arguments(name: str, hook: Callable[..., None]) -> None:
    """Refuse a hook that cannot be called with the arguments of `RLCallback`'s.

    Raises:
        ConfigError: names the arguments that it needs, and those that it gets.
    """
    given = [each for each in inspect.signature(getattr(RLCallback, name)).parameters if each != "self"]
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        each.name
        for each in inspect.signature(hook).parameters.values()
        if each.kind in kinds and each.default is each.empty and each.name not in given
    ]
    if needed:
        raise ConfigError(
            f"callbacks: {getattr(hook, '__qualname__', name)} needs the arguments {', '.join(needed)}; it gets "
            f"{', '.join(given)}, by keyword: take those, and **kwargs"
        )


def worker_hooks(callbacks: Iterable[Any]) -> list[SimpleNamespace]:
    """Objects with the worker hooks that callbacks override, and nothing else, to send to rollout workers.

    A hook that does nothing still costs a call per environment step, so workers only get overridden ones.

    Raises:
        ConfigError: a hook needs arguments that it does not get, such as those of RLlib.
    """
    found = [
        {name: getattr(callback, name) for name in overridden_hooks(callback, WORKER_HOOKS)} for callback in callbacks
    ]
    for hooks in found:
        for name, hook in hooks.items():
            check_arguments(name, hook)
    return [SimpleNamespace(**hooks) for hooks in found if hooks]
