"""Checks the experience that clients of a policy server report, so that one of them cannot end training."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lightning_rl.envs.action_masks import choice_sizes
from lightning_rl.errors import did_you_mean
from lightning_rl.rllib.external_lanes import lane_env
from lightning_rl.rllib.policy_client import Inference
from lightning_rl.rollouts.episodes import Episode
from lightning_rl.rollouts.fragments import describe_not_finite
from lightning_rl.rollouts.obs_bounds_check import bounds_of
from lightning_rl.sample_batch import DEFAULT_POLICY, Fragment, MultiAgentBatch, SampleBatch
from lightning_rl.spaces import leaf_spaces, leaf_values

__all__ = ["ReportCheck"]


class ReportCheck:
    """Compares fragments with one that a client with the same policy reports.

    Args:
        policy: acts in an episode of one step.
        options: keywords of the clients' workers.
    """

    def __init__(self, policy: Any, options: Mapping[str, Any]) -> None:
        self.policy, self.example = policy, play_one_step(policy, options)
        self.layouts = {name: layout(fragment) for name, fragment in by_policy(self.example)}

    def samples(self, samples: Any) -> Any:
        """The samples.

        Raises:
            ValueError: their type, a policy, a column, a discrete value or a number is not what a client reports.
        """
        if type(samples) is not type(self.example):
            raise ValueError(f"samples are {type(samples).__name__}; expected {type(self.example).__name__}")
        for name, fragment in by_policy(samples):
            self._check_fragment(name, fragment)
        if isinstance(samples, MultiAgentBatch) and (
            type(samples.env_steps) is not int or samples.env_steps < 0 or samples.num_envs != self.example.num_envs
        ):
            raise ValueError(f"env_steps={samples.env_steps!r} of {samples.num_envs!r} environments; expected integers")
        return samples

    def episodes(self, episodes: Any) -> list[Episode]:
        """Finished episodes, sent as (return, length, agent → (policy, return), cut).

        Raises:
            TypeError, ValueError: they have another form, or name an unknown policy.
        """
        return [
            Episode(
                float(gain),
                int(length),
                {str(agent): (self._known(name), float(own)) for agent, (name, own) in dict(by_agent).items()},
                bool(cut),
            )
            for gain, length, by_agent, cut in episodes
        ]

    def _known(self, policy_id: Any) -> str:
        if policy_id not in self.layouts:
            raise ValueError(f"no policy {policy_id!r}.{did_you_mean(str(policy_id), self.layouts)}")
        return policy_id

    def _check_fragment(self, policy_id: str, fragment: Any) -> None:
        expected, policy = self.layouts[self._known(policy_id)], self.policy.policies[policy_id]
        if not isinstance(fragment, Fragment) or not isinstance(fragment.get("valid"), torch.Tensor):
            raise ValueError(f"samples of policy {policy_id!r} are not a fragment with a column 'valid'")
        found = layout(fragment)
        if "action_mask" in found:  # from infos, which have one in some episodes only
            width = sum(choice_sizes(policy.action_space))
            expected = {"action_mask": (torch.bool, (*expected["valid"][1], width), 0), **expected}
        for name in expected.keys() | found.keys():
            if found.get(name) != expected.get(name):
                raise ValueError(
                    f"column {name!r} of policy {policy_id!r} has (dtype, shape of a step, more rows than steps) "
                    f"{found.get(name)}; expected {expected.get(name)}: the client's policy is another one"
                )
        acted = policy.action_transform.policy_space if policy.has_model else policy.action_space
        for name, space in (("obs", policy.observation_space), ("actions", acted)):
            values = leaf_values(space, fragment[name])
            for (path, leaf), value in zip(leaf_spaces(space), values, strict=True):
                bounds = None if np.dtype(leaf.dtype).kind == "f" else bounds_of(leaf)
                rows = value.numpy() if name == "obs" else value[fragment.valid].numpy()
                if bounds is not None and ((rows < np.minimum(bounds[0], 0)) | (rows > bounds[1])).any():
                    raise ValueError(f"{name}{path and f'.{path}'} of policy {policy_id!r} left the space {leaf}")
        if problem := describe_not_finite(fragment, fragment.rewards.numpy(), lambda lane: f"lane {lane}"):
            raise ValueError(f"samples of policy {policy_id!r}: {problem}; expected finite numbers")


def by_policy(samples: Any) -> list[tuple[str, Any]]:
    """Pairs of policy id and fragment."""
    return [*samples.items()] if isinstance(samples, MultiAgentBatch) else [(DEFAULT_POLICY, samples)]


def layout(fragment: SampleBatch) -> dict[str, tuple[Any, tuple[int, ...], int]]:
    """Dotted name of each column → its dtype, the shape of a step, and how many more rows than steps it has."""
    found: dict[str, tuple[Any, tuple[int, ...], int]] = {}
    for name, column in fragment.items():
        if isinstance(column, SampleBatch):
            nested = Fragment({**dict(column.items()), "valid": fragment.valid})
            found |= {f"{name}.{path}": entry for path, entry in layout(nested).items() if path != "valid"}
        else:
            found[name] = column.dtype, tuple(column.shape[1:]), len(column) - len(fragment.valid)
    return found


def play_one_step(policy: Any, options: Mapping[str, Any]) -> Any:
    """What a client reports of an episode of one step, whose observations are drawn from their spaces."""
    reports: queue.SimpleQueue[Any] = queue.SimpleQueue()
    inference = Inference(policy, {**options, "fragment_length": 1}, 0, lambda *report: reports.put(report))
    obs: Any = lane_env(inference.env).example().obs
    episode = inference.env.start_episode()
    for each in obs.values() if policy.agents else [obs]:
        if isinstance(each, dict) and "action_mask" in each:
            each["action_mask"] = np.ones_like(each["action_mask"])  # a drawn one may forbid every action
    inference.env.get_action(episode, obs)
    inference.env.end_episode(episode, obs)
    samples, *_ = reports.get(timeout=60)
    inference.sampler.stop()
    return samples
