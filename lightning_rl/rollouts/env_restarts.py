"""Replaces environments that fail by new ones in the same process, and begins their fragment again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from gymnasium.vector import VectorEnv

from lightning_rl.errors import ConfigError, EnvApiError, EnvError
from lightning_rl.seeding import derive_seed

__all__ = ["EnvRestarts"]

log = logging.getLogger(__name__)

Collected = TypeVar("Collected")
Env = VectorEnv[Any, Any, Any]


class EnvRestarts:
    """Makes the vector environment of a worker, and a new one when an environment fails.

    The whole fragment of the failure is dropped, so that no episode continues in another environment.

    Args:
        worker: a `RolloutWorker`.
        make: makes a vector environment.
        max_restarts: how often one fragment is begun again.

    Attributes:
        attempt: 0, or the number of the present repetition of a fragment; its seeds are derived from it.
        count: vector environments that were replaced so far.

    Raises:
        ConfigError: `max_restarts` is below 0.
    """

    def __init__(self, worker: Any, make: Callable[[], Env], max_restarts: int) -> None:
        if max_restarts < 0:
            raise ConfigError(f"max_env_restarts={max_restarts}; expected 0 or more")
        self.worker, self.make, self.max_restarts = worker, make, max_restarts
        self.attempt = self.count = 0

    def seed(self, env: int | None = None) -> int:
        """The seed of the present fragment's exploration, or of one environment's reset; different for each attempt."""
        worker = self.worker
        indices = [worker.worker_index, worker.fragment]
        if self.attempt:
            indices += [worker.num_envs if env is None else env, self.attempt]
        elif env is not None:
            indices.append(env)
        return derive_seed(worker.seed, worker.stream, *indices)

    def retry(self, begin: Callable[[], None], collect: Callable[[], Collected]) -> Collected:
        """Call `begin` and `collect`; both again, with a new vector environment, after each `EnvError`.

        Returns:
            What `collect` returned.

        Raises:
            EnvApiError: at once; also if the policy failed on an observation outside of its space, for which the
                environment is at fault.
            EnvError: that of the first failure, when all attempts have failed; or a new environment cannot be made.
        """
        finished = len(self.worker.episodes.finished)
        first: EnvError | None = None
        for failures in range(self.max_restarts + 1):
            try:
                begin()
                try:
                    collected = collect()
                except (IndexError, RuntimeError, ValueError) as error:
                    if not isinstance(error, EnvError) and (problem := self.worker.describe_outside()):
                        failed = f"the policy failed on it with {type(error).__name__}: {error}"
                        raise EnvApiError(f"{problem}; {failed}") from error
                    raise
            except EnvApiError:
                raise
            except EnvError as error:
                first = first or error
                if failures == self.max_restarts:
                    break
                del self.worker.episodes.finished[finished:]
                self._replace(error)
            else:
                self.attempt = 0
                return collected
        assert first is not None
        raise first from first.__cause__

    def _replace(self, error: EnvError) -> None:
        self.attempt += 1
        self.count += 1
        log.warning("%s; its fragment is begun again with a new one", error, exc_info=self.count == 1)
        old, self.worker.env = self.worker.env, self.make()
        self.worker.force_reset()
        try:
            old.close()
        except Exception:  # an environment that has failed may fail here as well; it is not needed any more
            log.debug("a failed environment could not be closed", exc_info=True)
