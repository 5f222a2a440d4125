"""Environments with tasks that can be changed, for a curriculum."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

__all__ = ["TaskSettableEnv", "TaskType"]

TaskType = Any


class TaskSettableEnv(gym.Env[Any, Any]):
    """The base of environments that `config["env_task_fn"]` sets the tasks of."""

    def sample_tasks(self, n_tasks: int) -> list[TaskType]:
        """Several random tasks."""
        raise NotImplementedError  # abstract

    def set_task(self, task: TaskType) -> None:
        """Go on with this task, after the next reset at the latest."""
        raise NotImplementedError  # abstract

    def get_task(self) -> TaskType:
        """The present task."""
        raise NotImplementedError  # abstract
