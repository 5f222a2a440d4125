"""Joins fragments to training batches, and keeps some fragments to be learned from again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from lightning_rl.sample_batch import (
    AnyBatch,
    MultiAgentBatch,
    as_plain,
    concat_samples,
    to_nested_batch,
)

__all__ = ["FragmentJoiner"]


class FragmentJoiner:
    """Joins fragments side by side, in this process or as an aggregator in one of its own.

    With a replay proportion old fragments are mixed in, drawn from the latest ones as IMPALA does (Espeholt et al.
    2018, arXiv:1802.01561, section 5.2.2); rows then have a column `replayed`.

    Args:
        replay_proportion: old fragments per new one, ≥ 0.
        replay_slots: how many of the latest fragments are kept for that.
    """

    def __init__(self, replay_proportion: float = 0.0, replay_slots: int = 0) -> None:
        self.replay_proportion, self.replay_slots = replay_proportion, replay_slots
        self.forget()

    def forget(self) -> None:
        """Drop the kept fragments."""
        self._kept: list[AnyBatch] = []
        self._next = 0
        self._due = 0.0  # fragments to be replayed

    def state_dict(self) -> dict[str, Any]:
        """The kept fragments as nested dicts of tensors, and the next to be replaced; nothing with several agents."""
        if any(isinstance(each, MultiAgentBatch) for each in self._kept):
            return {"kept": [], "next": 0, "due": 0.0}
        return {"kept": [as_plain(each) for each in self._kept], "next": self._next, "due": self._due}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the kept fragments of `state`."""
        self._kept = [to_nested_batch(each) for each in state["kept"]]
        self._next, self._due = int(state["next"]), float(state["due"])

    def join(self, seed: int, *received: Sequence[AnyBatch]) -> AnyBatch:
        """A training batch `[T, B, …]` as arrays.

        Args:
            seed: the seed of the draws.
            received: lists of fragments, as tensors or arrays; a list for each sample.
        """
        fragments = [fragment.torch() for part in received for fragment in part]
        if self.replay_proportion == 0:
            return concat_samples(fragments).numpy()
        generator = np.random.default_rng(seed)
        mixed: list[AnyBatch] = []
        for fragment in fragments:
            mixed.append(_with_flag(fragment, replayed=False))
            self._due += self.replay_proportion if self._kept else 0.0
            while self._due >= 1.0:
                self._due -= 1.0
                mixed.append(_with_flag(self._kept[generator.integers(len(self._kept))], replayed=True))
            self._keep(fragment)
        return concat_samples(mixed).numpy()

    def _keep(self, fragment: AnyBatch) -> None:
        if len(self._kept) < self.replay_slots:
            self._kept.append(fragment)
        else:
            self._kept[self._next] = fragment
            self._next = (self._next + 1) % self.replay_slots


def _with_flag(fragment: AnyBatch, *, replayed: bool) -> AnyBatch:
    if isinstance(fragment, MultiAgentBatch):  # the environment steps of an earlier iteration are not new
        parts: dict[str, Any] = {name: _with_flag(part, replayed=replayed) for name, part in fragment.items()}
        return MultiAgentBatch(parts, 0 if replayed else fragment.env_steps, fragment.num_envs)
    fragment = fragment.copy()
    fragment["replayed"] = torch.full_like(fragment.valid, replayed)
    return fragment
