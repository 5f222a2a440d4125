"""RLlib's batches of experience: the package's own, whose columns also have RLlib's names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from lightning_rl import sample_batch
from lightning_rl.sample_batch import DEFAULT_POLICY as DEFAULT_POLICY_ID
from lightning_rl.sample_batch import MultiAgentBatch, concat_samples

__all__ = ["DEFAULT_POLICY_ID", "OWN_NAMES", "MultiAgentBatch", "SampleBatch", "concat_samples"]

OWN_NAMES = {
    "dones": "terminated",
    "new_obs": "next_obs",
    "terminateds": "terminated",
    "truncateds": "truncated",
}
"""RLlib's names of columns that have another one here."""


class SampleBatch(sample_batch.SampleBatch):
    """A batch whose columns are found by RLlib's names and by this package's; the constants are RLlib's names.

    "dones" is `terminated`: an episode that a time limit cuts is not done, so its last value is bootstrapped.
    "weights" are 1 where rows were not drawn by priority, and "action_prob" is computed of "action_logp".
    "state_in_0" is the first part of the recurrent state `state_in`.
    """

    __slots__ = ()

    CUR_OBS = OBS = "obs"
    NEXT_OBS = "new_obs"
    ACTIONS = "actions"
    REWARDS = "rewards"
    PREV_ACTIONS = "prev_actions"
    PREV_REWARDS = "prev_rewards"
    DONES = "dones"
    TERMINATEDS = "terminateds"
    TRUNCATEDS = "truncateds"
    INFOS = "infos"
    SEQ_LENS = "seq_lens"
    T = "t"
    ACTION_DIST_INPUTS = "action_dist_inputs"
    ACTION_PROB = "action_prob"
    ACTION_LOGP = "action_logp"
    ACTION_DIST = "action_dist"
    VF_PREDS = "vf_preds"
    EPS_ID = "eps_id"
    ENV_ID = "env_id"
    AGENT_INDEX = "agent_index"
    UNROLL_ID = "unroll_id"

    @classmethod
    def of(cls, batch: sample_batch.SampleBatch) -> Self:
        """The batch under RLlib's names; both share their columns, those that are added later too."""
        shared = cls()
        shared._columns = batch._columns
        return shared

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(OWN_NAMES.get(name, name))

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, str):
            return super().__getitem__(index)
        if index.startswith("state_in_") and super().__contains__("state_in"):
            return super().__getitem__("state_in")[index.removeprefix("state_in_")]
        if index == "weights" and index not in self:  # rows that were drawn uniformly
            return self["rewards"] * 0 + 1
        if index == "action_prob" and index not in self:
            return (
                np.exp(self["action_logp"])
                if isinstance(self["action_logp"], np.ndarray)
                else self["action_logp"].exp()
            )
        return super().__getitem__(OWN_NAMES.get(index, index))

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(OWN_NAMES.get(name, name), value)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(OWN_NAMES.get(name, name))

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str) and name.startswith("state_in_") and super().__contains__("state_in"):
            return name.removeprefix("state_in_") in super().__getitem__("state_in")
        return super().__contains__(OWN_NAMES.get(name, name) if isinstance(name, str) else name)

    def get(self, name: str, default: Any = None) -> Any:
        """Column of that name, or `default`."""
        return self[name] if name in self else default  # noqa: SIM401

    def keys(self) -> list[str]:
        """Names of the columns, this package's."""
        return list(self)

    def values(self) -> list[Any]:
        """The columns."""
        return [column for _, column in self.items()]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row as a dict of its entries, by this package's names."""
        for index in range(self.count):
            yield dict(self[index].items())

    def slice(self, start: int, end: int) -> Self:
        """The rows from `start` to before `end`."""
        return self[start:end]

    def concat(self, other: sample_batch.SampleBatch) -> sample_batch.SampleBatch:
        """These rows and then those of the other batch."""
        return concat_samples([self, other])

    def env_steps(self) -> int:
        """Environment steps in the batch."""
        return sample_batch.env_steps(self)

    def size_bytes(self) -> int:
        """Bytes of all columns."""
        return self.nbytes
