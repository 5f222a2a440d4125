"""Environments that fail are made anew in the same process, and the fragment that they spoiled is begun again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from gymnasium.vector import VectorEnv

from lightning_rl.errors import ConfigError, EnvError
from lightning_rl.seeding import derive_seed

__all__ = ["EnvRestarts"]

log = logging.getLogger(__name__)

Collected = TypeVar("Collected")
Env = VectorEnv[Any, Any, Any]


class EnvRestarts:
    """Makes the environments of a worker, and makes them anew where one fails.

    What an episode was before its environment failed is dropped with the fragment: nothing of it is spliced to the
    episode that follows.

    Args:
        worker: a `RolloutWorker`.
        make: a vector environment.
        most: how often one fragment is begun again.
        wrap: put around each vector environment; `None` for nothing.

    Attributes:
        attempt: 0, or which of several attempts to begin the present fragment this is; it belongs into its seeds.
        count: vector environments made anew so far.

    Raises:
        ConfigError: `most` is below 0.
    """

    def __init__(self, worker: Any, make: Callable[[], Env], most: int, wrap: Callable[[Env], Env] | None) -> None:
        if most < 0:
            raise ConfigError(f"max_env_restarts={most}; expected 0 or more")
        self.worker, self._make, self.most, self.wrap = worker, make, most, wrap
        self.attempt = self.count = 0

    def make(self) -> Env:
        """A new vector environment.

        Raises:
            EnvError: it cannot be made.
        """
        return self._make() if self.wrap is None else self.wrap(self._make())

    def seed(self, env: int | None = None) -> int:
        """Of the present fragment's exploration, or of one environment's reset; each attempt has others."""
        worker = self.worker
        indices = [worker.worker_index, worker.fragment]
        if self.attempt:
            indices += [worker.num_envs if env is None else env, self.attempt]
        elif env is not None:
            indices.append(env)
        return derive_seed(worker.seed, worker.stream, *indices)

    def retry(self, begin: Callable[[], None], collect: Callable[[], Collected]) -> Collected:
        """What `collect` returns after `begin`; both again, with new environments, as long as that is allowed.

        Raises:
            EnvError: of the first failure, when all attempts have failed; or a new environment cannot be made.
        """
        finished = len(self.worker.book.finished)
        first: EnvError | None = None
        for failures in range(self.most + 1):
            try:
                begin()
                collected = collect()
            except EnvError as error:
                first = first or error
                if failures == self.most:
                    break
                del self.worker.book.finished[finished:]
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
        except Exception:  # an environment that has failed may fail here as well, and nobody needs it any more
            log.debug("a failed environment could not be closed", exc_info=True)
