"""Measures how fast this machine steps environments and learns, and compares that with reference bands.

The bands are in reference_speeds.json, with the machine on which they were measured. They say whether a machine is as
fast as one would expect; `lightning-rl benchmark` measures whole runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning_rl.diagnosis.findings import Finding

__all__ = ["MEASUREMENTS", "examine_speed", "judge_rate", "reference_speeds"]

SECONDS = 1.0  # of each measurement
ROWS = 64  # of a minibatch, as that of on-policy algorithms
MUCH_SLOWER = 10.0  # a rate below the band's lower end by this factor is bad


def reference_speeds() -> dict[str, dict[str, Any]]:
    """Name of a measurement → {what, unit, measured, low, high}: rates, in `unit`."""
    return json.loads((Path(__file__).parent / "reference_speeds.json").read_text(encoding="utf-8"))["bands"]


def examine_speed(seconds: float = SECONDS) -> list[Finding]:
    """Measure each rate, and compare it with its band.

    Args:
        seconds: length of each measurement, above 0.
    """
    bands = reference_speeds()
    return [judge_rate(bands[name], measure(seconds)) for name, measure in MEASUREMENTS.items()]


def judge_rate(band: dict[str, Any], rate: float) -> Finding:
    """A finding for one measured rate.

    Args:
        band: an entry of `reference_speeds`.
        rate: measured rate, in the band's unit.
    """
    low, high = band["low"], band["high"]
    text = f"{rate:,.0f} {band['unit']} (reference band: {low:,.0f} … {high:,.0f})"
    subject = f"speed: {band['what']}"
    if rate >= low:
        return Finding(subject, "ok", text)
    fix = "end other programs that use the cores, turn power saving off, and set OMP_NUM_THREADS=1; then measure again"
    return Finding(subject, "bad" if rate * MUCH_SLOWER < low else "warn", text, fix)


def rate_of(step: Callable[[], int], seconds: float) -> float:
    """How many units a second a function makes; the first calls are not timed."""
    for _ in range(10):
        step()
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        count += step()
    return count / passed


def env_steps_per_second(vectorization: str, num_envs: int, seconds: float) -> float:
    """CartPole's steps a second with random actions, by the package's own vector environments."""
    from lightning_rl.envs.creator import EnvCreator

    env = EnvCreator("CartPole-v1", check=False).make(num_envs, vectorization)
    try:
        env.reset(seed=0)
        env.action_space.seed(0)
        actions = [env.action_space.sample() for _ in range(64)]
        steps = 0

        def step() -> int:
            nonlocal steps
            env.step(actions[steps % len(actions)])
            steps += 1
            return num_envs

        return rate_of(step, seconds)
    finally:
        env.close()


def sync_env_steps(seconds: float) -> float:
    """Steps a second of 8 environments, each a Python object."""
    return env_steps_per_second("sync", 8, seconds)


def native_env_steps(seconds: float) -> float:
    """Steps a second of 64 environments in one object of arrays."""
    return env_steps_per_second("native", 64, seconds)


def gradient_steps(seconds: float) -> float:
    """Adam steps a second of two hidden layers of 64 units on one torch thread, in plain torch."""
    import torch
    from torch import nn

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
        generator = torch.Generator().manual_seed(0)
        inputs, targets = (torch.randn(ROWS, size, generator=generator) for size in (4, 3))

        def step() -> int:
            optimizer.zero_grad()
            (network(inputs) - targets).square().mean().backward()
            optimizer.step()
            return 1

        return rate_of(step, seconds)
    finally:
        torch.set_num_threads(threads)


MEASUREMENTS: dict[str, Callable[[float], float]] = {
    "cartpole_sync": sync_env_steps,
    "cartpole_native": native_env_steps,
    "gradient_steps": gradient_steps,
}
