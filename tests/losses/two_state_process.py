"""A process of two states and two actions, whose values are known, and episodes of it."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["GAMMA", "REWARDS", "STEPS", "TARGET", "episodes", "known_values"]

GAMMA, STEPS = 0.9, 4
# The next state is the action with probability 0.8; an episode has four steps.
MOVES = torch.tensor([[0.8, 0.2], [0.2, 0.8]], dtype=torch.double).expand(2, 2, 2)  # [s, a, s']
REWARDS = torch.tensor([[1.0, 0.0], [0.5, 1.5]], dtype=torch.double)  # [s, a]
TARGET = torch.tensor([[0.8, 0.2], [0.2, 0.8]], dtype=torch.double)  # π(a|s)


def known_values() -> tuple[Tensor, Tensor]:
    """V `[T+1, S]` and Q `[T, S, A]` of the target policy."""
    values, q_values = torch.zeros(STEPS + 1, 2, dtype=torch.double), torch.zeros(STEPS, 2, 2, dtype=torch.double)
    for t in range(STEPS - 1, -1, -1):
        q_values[t] = REWARDS + GAMMA * (MOVES @ values[t + 1])
        values[t] = (TARGET * q_values[t]).sum(1)
    return values, q_values


def episodes(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """States `[T+1, B]` and actions `[T, B]` of a behavior policy that acts uniformly at random."""
    states, actions = [torch.randint(2, (count,), generator=generator)], []
    for _ in range(STEPS):
        actions.append(torch.randint(2, (count,), generator=generator))
        moves = MOVES[states[-1], actions[-1]]
        states.append(torch.multinomial(moves, 1, generator=generator)[:, 0])
    return torch.stack(states), torch.stack(actions)
