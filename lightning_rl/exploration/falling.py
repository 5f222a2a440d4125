"""The number of a strategy that falls with the run: RLlib's keys, or one schedule, as one schedule."""

from __future__ import annotations

from lightning_rl.schedules import EnvSteps, Schedule, Share, to_env_steps

__all__ = ["TENTH", "falling"]

TENTH = Share("10%")


def falling(schedule: Schedule | None, initial: float, final: float, steps: EnvSteps, start: EnvSteps = 0) -> Schedule:
    """`schedule`; if it is `None`, `initial` until `start`, then linearly to `final` within `steps`."""
    if schedule is not None:
        return schedule
    steps, start = max(1, to_env_steps(steps)), to_env_steps(start)
    return {"type": "linear", "initial": initial, "final": final, "steps": steps, "start": start}
