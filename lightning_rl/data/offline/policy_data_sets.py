"""Offline learning of several policies, each from a data set of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightning_rl.data.draws import Draws
from lightning_rl.data.offline.source import OfflineSource
from lightning_rl.data.policy_feeds import FedBatch
from lightning_rl.data.source import Source
from lightning_rl.sample_batch import MultiAgentBatch, env_steps

__all__ = ["PolicyDataSets", "learn_from_data_sets"]


def learn_from_data_sets(workers: Any, policy: Any, data: PolicyDataSets) -> Iterator[FedBatch]:
    """What the plan of each policy's data set gives: draws of transitions, or fragments of whole episodes.

    The lanes of two policies' fragments are different episodes, so that `postprocess_trajectory` gets no
    `other_agent_batches`.
    """
    plans = {name: each.run_plan(workers, policy.policies[name], each) for name, each in data.data_sets.items()}
    while True:
        parts = {name: next(plans[name]) for name in policy.policies_to_train if name in plans}
        steps = max(data.env_steps_of(name, part) for name, part in parts.items())
        yield FedBatch(parts, MultiAgentBatch({}, steps))


@dataclass(kw_only=True, eq=False)
class PolicyDataSets(Source):
    """Recorded experience of several policies takes the place of workers.

    An iteration counts the env steps of the policy that reads most: the rows of one that imitates, or as many as the
    gradient steps of a replay algorithm are due after. Other replay algorithms follow this count by their ratios.

    Args:
        data_sets: policy id → its data set, for each policy in training.
    """

    gives = OfflineSource.gives
    reads_logp = False
    acts = False
    default_plan = staticmethod(learn_from_data_sets)

    data_sets: Mapping[str, OfflineSource]
    output: str | None = field(default=None, init=False)  # no worker acts
    plan: Any = field(default=None, init=False)  # each data set has its own

    def attach(self, datamodule: Any) -> None:
        """As `Source`, and with every data set."""
        super().attach(datamodule)
        for each in self.data_sets.values():
            each.attach(datamodule)

    def prepare(self, policy: Any) -> None:
        """Read the data of every policy, once.

        Raises:
            ConfigError: see `OfflineSource.prepare`.
        """
        self.policy = policy
        for name, each in self.data_sets.items():
            each.seed = policy.policies[name].seed
            each.prepare(policy.policies[name])

    def env_steps_of(self, name: str, experience: Any) -> int:
        """Env steps of what a policy learns from in an iteration; of draws, which all ranks share, on the first one."""
        if not isinstance(experience, Draws):
            return env_steps(experience)
        source = self.data_sets[name]
        due = source.ratio.env_steps_until(self.policy.env_steps, source.steps_per_iteration)
        return due if self.datamodule.rank == 0 else 0

    def pop_metrics(self) -> dict[str, float]:
        """The metrics of each data set, under the names of the metric registry."""
        found = {name: each.pop_metrics() for name, each in self.data_sets.items()}
        return {key.replace("/", f"/{name}/", 1): value for name, own in found.items() for key, value in own.items()}

    def state_dict(self) -> dict[str, Any]:
        """The state of each data set, by policy."""
        return {"data_sets": {name: each.state_dict() for name, each in self.data_sets.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the checkpoint was written.

        Raises:
            CheckpointError: the data have another size than then.
        """
        for name, each in self.data_sets.items():
            each.load_state_dict(state["data_sets"][name])
