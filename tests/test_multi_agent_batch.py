"""MultiAgentBatch: joining, slicing, moving between forms, and finding the rows of one environment step."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.data.fragment_joiner import FragmentJoiner
from lightning_rl.sample_batch import (
    DEFAULT_POLICY,
    MultiAgentBatch,
    SampleBatch,
    align_by_env_time,
    concat_samples,
    env_steps,
    other_agent_batches,
)


def fragment(steps: int, lanes: int, value: float = 0.0) -> SampleBatch:
    """Every row valid, with rewards `value`."""
    return SampleBatch(
        rewards=torch.full((steps, lanes), value),
        valid=torch.ones(steps, lanes, dtype=torch.bool),
        obs=torch.full((steps + 1, lanes, 2), value),
    )


def rows(count: int, **columns: Any) -> SampleBatch:
    return SampleBatch(rewards=torch.arange(float(count)), **columns)


def test_concat_joins_the_lanes_of_each_policy_and_sums_the_steps() -> None:
    """The second batch has no policy "a", another number of lanes of "b", shorter fragments, and a new policy "c"."""
    first = MultiAgentBatch({"b": fragment(3, 2, 1.0), "a": fragment(2, 1)}, 5, num_envs=1)
    second = MultiAgentBatch({"c": fragment(1, 1), "b": fragment(1, 3, 2.0)}, 7, num_envs=2)
    joined = concat_samples([first, second])
    assert list(joined.policy_batches) == ["b", "a", "c"]
    assert joined.count == env_steps(joined) == 12 and joined.num_envs == 3
    assert joined["b"].valid.tolist() == [[True] * 5, *[[True, True, False, False, False]] * 2]
    assert joined["b"].rewards[0].tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]
    assert joined.agent_steps == 6 + 2 + 1 + 3


def test_concat_of_both_classes_gives_a_multi_agent_batch() -> None:
    joined = concat_samples([rows(3), MultiAgentBatch({DEFAULT_POLICY: rows(2), "x": rows(1)}, 2)])
    assert isinstance(joined, MultiAgentBatch) and joined.env_steps == 5 and joined.num_envs is None
    assert joined[DEFAULT_POLICY].rewards.tolist() == [0, 1, 2, 0, 1]


def test_a_batch_of_one_policy_becomes_one_of_several_and_is_wrapped_only_as_needed() -> None:
    batch = rows(3)
    several = batch.as_multi_agent()
    assert several.env_steps == 3 and several[DEFAULT_POLICY] is batch and several.as_multi_agent() is several
    assert MultiAgentBatch.wrap_as_needed({DEFAULT_POLICY: batch}, 3) is batch
    assert isinstance(MultiAgentBatch.wrap_as_needed({"x": batch}, 3), MultiAgentBatch)


def test_every_policy_changes_its_form_together() -> None:
    batch = MultiAgentBatch({"a": fragment(2, 1, 1.0), "b": fragment(2, 1, 2.0)}, 2, num_envs=1)
    arrays = batch.numpy()
    assert all(type(part.rewards) is np.ndarray for _, part in arrays.items())
    assert arrays.torch()["b"].rewards.tolist() == [[2.0], [2.0]]
    assert batch.map(lambda column: column + 1)["a"].rewards.tolist() == [[2.0], [2.0]]
    assert batch.to("cpu")["a"].rewards.device.type == "cpu" and batch.nbytes == 2 * batch["a"].nbytes
    copied = batch.copy()
    copied["a"]["new"] = batch["a"].rewards
    assert "new" not in batch["a"] and copied["a"].rewards is batch["a"].rewards
    assert pickle.loads(pickle.dumps(batch)).num_envs == 1


def test_an_unknown_policy_names_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"'huntr'.*'hunter'.*Present: hunter"):
        MultiAgentBatch({"hunter": rows(1)}, 1)["huntr"]


def test_timeslices_cut_at_the_same_environment_steps_for_each_policy() -> None:
    """5 steps: a acts at all of them, b at steps 1 and 4 of them; a slice of 2 steps has what was done in them."""
    zeros = torch.zeros(5, dtype=torch.long)
    each_step, twice = (
        rows(5, eps_id=zeros, env_t=torch.arange(5)),
        rows(2, eps_id=zeros[:2], env_t=torch.tensor([1, 4])),
    )
    slices = MultiAgentBatch({"a": each_step, "b": twice}, 5).timeslices(2)
    assert [part.env_steps for part in slices] == [2, 2, 1]
    found = [{name: own.rewards.tolist() for name, own in part.items()} for part in slices]
    assert found == [{"a": [0, 1], "b": [0]}, {"a": [2, 3]}, {"a": [4], "b": [1]}]


def test_timeslices_need_to_know_the_step_of_each_row() -> None:
    with pytest.raises(ValueError, match=r"'b' has 2 rows of 5 .*eps_id and env_t"):
        MultiAgentBatch({"a": rows(5), "b": rows(2)}, 5).timeslices(2)
    with pytest.raises(ValueError, match="flatten"):
        MultiAgentBatch({"a": fragment(5, 1)}, 5).timeslices(2)


def test_other_agents_rows_are_found_by_the_environment_s_step() -> None:
    """Two environments. a has one agent in each and acts at steps 0 and 2; b has two agents, of which the second acts
    at 1 and 2 in environment 0 only, the first at 0 and 2 in both. Environment 1 is in episode 8."""

    def part(eps_id: list[list[int]], env_t: list[list[int]], valid: list[list[int]]) -> SampleBatch:
        return SampleBatch(eps_id=torch.tensor(eps_id), env_t=torch.tensor(env_t), valid=torch.tensor(valid).bool())

    own = part([[7, 8], [7, 8]], [[0, 0], [2, 2]], [[1, 1], [1, 0]])
    other = part([[7, 7, 8, 8], [7, 7, 8, 8]], [[0, 1, 0, 0], [2, 2, 2, 0]], [[1, 1, 1, 0], [1, 1, 1, 0]])
    found = align_by_env_time(own, other, num_envs=2)
    assert found.tolist() == [[[0, -1], [0, -1]], [[1, 1], [-1, -1]]]
    assert align_by_env_time(own, own, num_envs=2).squeeze(-1).tolist() == [[0, 0], [1, -1]]
    with pytest.raises(ValueError, match=r"own has 2 lanes.*num_envs=3"):
        align_by_env_time(own, other, num_envs=3)


def test_other_agent_batches_leave_out_the_own_one() -> None:
    batch = MultiAgentBatch({"a": rows(1), "b": rows(2)}, 1)
    assert other_agent_batches(batch, {"a": "A", "b": "B"}, "a") == {"b": ("B", batch["b"])}


@pytest.mark.parametrize(("num_envs", "found"), [(2, ["a", "b"]), (4, ["b"]), (None, ["b"])])
def test_other_agents_of_the_same_policy_are_in_the_own_fragment(num_envs: int | None, found: list[str]) -> None:
    """Four lanes are two agents in each of two environments, or one in each of four."""
    batch = MultiAgentBatch({"a": fragment(3, 4), "b": fragment(3, 4)}, 3, num_envs)
    others = other_agent_batches(batch, {"a": "A", "b": "B"}, "a")
    assert list(others) == found and all(others[name][1] is batch[name] for name in found)


def test_replayed_fragments_of_several_policies_bring_no_new_steps() -> None:
    joiner = FragmentJoiner(replay_proportion=1.0, replay_slots=1)
    for expected in (2, 4):
        batch: Any = joiner.join(0, [MultiAgentBatch({"a": fragment(2, 1)}, 2, num_envs=1).numpy()])
        assert batch.env_steps == 2 and batch.agent_steps == expected
    assert batch["a"].replayed.tolist() == [[False, True], [False, True]]
