"""Takes the place of an environment where there are only data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from lightning_rl.data.offline.data_set import open_data
from lightning_rl.errors import ConfigError, EnvApiError

__all__ = ["NoEnv"]


class NoEnv(gym.Env[Any, Any]):
    """Has the spaces of a data set, and cannot be played: `env=none`.

    Args:
        input, columns, skip_damaged: see `OfflineSource`.

    Raises:
        ConfigError: there are no data, or they cannot be read.
    """

    def __init__(
        self,
        input: str | Sequence[str] | None = None,
        columns: Mapping[str, Any] | None = None,
        skip_damaged: bool = False,
    ) -> None:
        if input is None:
            raise ConfigError("env=none takes its spaces from the data of data=offline: give data.input")
        spec = open_data(input, columns, skip_damaged=skip_damaged).spec
        self.observation_space, self.action_space = spec.observation_space, spec.action_space

    def reset(self, **options: Any) -> Any:
        """Refuse.

        Raises:
            EnvApiError: always.
        """
        raise EnvApiError(
            "env=none has the spaces of the data and cannot be played: name an environment with env=, or with --env of "
            "a verb"
        )

    step: Any = reset
