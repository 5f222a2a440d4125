"""RolloutWorker: what it records under every autoreset mode."""

from __future__ import annotations

from collections import Counter as Counts
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import EnvError
from lightning_rl.rollouts import RolloutWorker, WorkerSet, rollout_worker
from lightning_rl.rollouts.episodes import was_cut
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.refusals import not_refused
from tests.rollouts.agents import OneAgent, packed, shared
from tests.rollouts.counting import Alternating, Breaks, Counter


def worker(env: Any, **keywords: Any) -> RolloutWorker:
    keywords.setdefault("vectorization", "sync")
    return RolloutWorker(env, Alternating(), **keywords)


def transitions(fragments: list[SampleBatch]) -> list[list[tuple[Any, ...]]]:
    """(obs, action, reward, terminated, truncated, next obs, t) of every valid row, by environment."""

    def leaf(obs: Any) -> Any:
        return {name: column.tolist() for name, column in obs.items()} if isinstance(obs, SampleBatch) else obs.tolist()

    envs: list[list[tuple[Any, ...]]] = [[] for _ in range(fragments[0].valid.shape[1])]
    for fragment in fragments:
        for step, env in fragment.valid.nonzero().tolist():
            row = [fragment[name][step, env].item() for name in ("actions", "rewards", "terminated", "truncated", "t")]
            obs, after = (leaf(fragment.obs[at, env]) for at in (step, step + 1))
            envs[env].append((obs, *row, after))
    return envs


def test_the_row_after_an_end_is_the_reset_and_is_not_experience() -> None:
    """Episodes of 3 steps, 8 rows: 0 1 2 | reset | 0 1 2 | reset. The observation of a reset row is the final one."""
    fragment = worker(EnvCreator(Counter), fragment_length=8).sample()
    assert fragment.valid[:, 0].tolist() == [True, True, True, False, True, True, True, False]
    assert fragment.obs[:, 0, 0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert fragment.rewards[:, 0].tolist() == [1, 2, 3, 0, 1, 2, 3, 0]
    assert fragment.terminated[:, 0].nonzero().squeeze(1).tolist() == [2, 6]
    assert not fragment.truncated.any()
    assert fragment.t[:, 0].tolist() == [0, 1, 2, 0, 0, 1, 2, 0]


@pytest.mark.parametrize(  # how many whole episodes of CartPole fit depends on the rows that resets take
    ("env", "batch_mode"),
    [("cartpole", "truncate_episodes"), *product(["counter", "nested"], ["truncate_episodes", "complete_episodes"])],
)
def test_all_autoreset_modes_give_the_same_transitions(env: str, batch_mode: str) -> None:
    creator = CARTPOLE if env == "cartpole" else EnvCreator(Counter, {"length": 5, "nested": env == "nested"})
    taken = []
    for mode in AutoresetMode:
        source = worker(creator, num_envs=3, fragment_length=50, batch_mode=batch_mode, mode=mode, seed=5)
        taken.append(transitions([source.sample() for _ in range(3)]))
        metrics = source.get_metrics()
        if env != "cartpole":
            assert set(metrics["episode_lengths"]) == {5} and set(metrics["episode_returns"]) == {15.0}
    for index in range(3):
        length = min(len(envs[index]) for envs in taken)
        assert length > 100 and any(row[3] for row in taken[0][index])
        assert all(envs[index][:length] == taken[0][index][:length] for envs in taken)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
def test_a_fragment_that_does_not_count_resets_has_its_length_in_rows_of_experience(
    mode: AutoresetMode, batch_mode: str
) -> None:
    """Episodes of 3 steps: of 2 × 10 rows, 5 or 6 would be resets."""
    env = EnvCreator(Counter, {"length": 3})
    source = worker(env, num_envs=2, fragment_length=10, batch_mode=batch_mode, count_resets=False, mode=mode)
    for _ in range(3):
        assert int(source.sample().valid.sum()) in ((20, 21) if batch_mode == "truncate_episodes" else (24,))


def test_complete_episodes_hold_whole_episodes_only() -> None:
    env = EnvCreator(Counter, {"length": 4, "terminates": False})
    fragment = worker(env, num_envs=2, fragment_length=5, batch_mode="complete_episodes").sample()
    for rows in transitions([fragment]):
        assert [row[5] for row in rows] == [0, 1, 2, 3] * 2  # t restarts; the last row is an end
        assert rows[-1][4] and rows[3][4]


@pytest.mark.parametrize("agents", ["one", "several"])
def test_a_wait_for_the_end_of_an_episode_is_said_and_a_stop_of_the_run_ends_it(
    agents: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rollout_worker, "LONGEST_EPISODE", 50)
    if agents == "one":
        source = worker(EnvCreator(Counter, {"length": 200}), batch_mode="complete_episodes")
    else:
        env, policies = packed(lambda: OneAgent(partial(Counter, 200))), shared(Alternating(), "agent")
        source = RolloutWorker(env, policies, batch_mode="complete_episodes")
    source.sample()
    assert caplog.text.count("have not ended after 50 steps: set env.max_episode_steps=1000") == 1
    source.stopping = lambda: True
    with pytest.raises(KeyboardInterrupt, match="ends of episodes"):
        source.sample()


def test_a_fragment_continues_the_last_one_unless_a_reset_is_forced() -> None:
    source = worker(EnvCreator(Counter, {"length": 10}), fragment_length=4)
    assert source.sample().t[:, 0].tolist() == [0, 1, 2, 3]
    assert source.sample().t[:, 0].tolist() == [4, 5, 6, 7]
    source.force_reset()
    assert source.sample().t[:, 0].tolist() == [0, 1, 2, 3]
    assert source.get_metrics()["episode_lengths"] == []


def test_a_worker_s_data_depend_on_seed_worker_index_and_fragment_number_only() -> None:
    """A fresh worker that starts at the position continues exactly like the one that was cut."""
    first, second, other = (
        worker(CARTPOLE, num_envs=2, fragment_length=6, seed=3, worker_index=index) for index in (1, 1, 2)
    )
    first.sample()
    position = first.position()
    first.force_reset()
    second.start_at(position)
    other.start_at(position)
    here, there, elsewhere = first.sample(), second.sample(), other.sample()
    assert torch.equal(here.obs, there.obs)
    assert not torch.equal(here.obs, elsewhere.obs)
    assert not torch.equal(here.obs[0, 0], here.obs[0, 1])


def test_a_set_of_two_workers_gives_the_fragments_of_each_alone() -> None:
    options = {"num_envs": 2, "fragment_length": 5, "seed": 1, "vectorization": "sync"}
    both = WorkerSet(CARTPOLE, Alternating(), [0, 1], **options).sample()
    alone = [WorkerSet(CARTPOLE, Alternating(), [index], **options).sample() for index in (0, 1)]
    assert torch.equal(both.obs, torch.cat([fragment.obs for fragment in alone], dim=1))


def test_run_episodes_plays_the_given_number_of_whole_episodes() -> None:
    played = worker(EnvCreator(Counter, {"length": 4}), num_envs=3).run_episodes(7)
    assert played == [(10.0, 4)] * 7


def test_episodes_that_are_missing_where_some_were_cut_are_played_from_a_reset() -> None:
    """Environment 0 of three is to play 2 of 4 episodes; all are cut in their first one."""
    cut = worker(EnvCreator(Counter, {"length": 40}), num_envs=3, max_episode_steps=4)
    for _ in range(2):
        played = cut.run_episodes(4)
        assert played == [(10.0, 4)] * 4 and all(map(was_cut, played))


def test_an_episode_of_the_longest_length_is_not_cut() -> None:
    whole = worker(EnvCreator(Counter, {"length": 4}), num_envs=2, max_episode_steps=4)
    assert (played := whole.run_episodes(4)) == [(10.0, 4)] * 4 and not any(map(was_cut, played))


def test_a_request_to_stop_ends_episodes_at_once() -> None:
    playing = worker(EnvCreator(Counter, {"length": 1_000_000}), num_envs=2)
    WorkerSet.from_workers([playing]).stop_when(lambda: int(playing.episodes.lengths[0]) >= 7)
    with pytest.raises(KeyboardInterrupt, match="stopped"):
        playing.run_episodes(2)
    assert playing.episodes.lengths.tolist() == [7, 7]


def test_native_and_sync_cartpole_have_the_same_length_statistics() -> None:
    env = EnvCreator("CartPole-v1", max_episode_steps=6)
    for vectorization in ("sync", "native"):
        source = worker(env, num_envs=4, fragment_length=30, vectorization=vectorization)
        fragment = source.sample()
        assert set(source.get_metrics()["episode_lengths"]) == {6}
        assert fragment.truncated.sum() == 4 * 4 and not fragment.terminated.any()


def test_a_breaking_environment_is_named_with_worker_and_step() -> None:
    cases = [
        ("raise", r"'Breaks' of worker 4 .*RuntimeError.*motor on fire"),
        ("obs", "'obs' of sub-environment 0, row 3 is nan"),
        ("reward", "reward of sub-environment 0, row 2 is nan, after action"),
    ]

    def sample(part: str) -> None:
        worker(EnvCreator(Breaks, {"part": part}), fragment_length=5, worker_index=4).sample()

    assert not_refused(sample, cases, EnvError) == []


def test_impossible_settings_are_refused() -> None:
    cases = [
        ({"num_envs": 0}, "num_envs=0"),
        ({"fragment_length": 0}, "fragment_length=0"),
        ({"batch_mode": "half"}, "batch_mode='half'"),
    ]
    assert not_refused(lambda keywords: worker(EnvCreator(Counter), **keywords), cases, ValueError) == []


def test_hooks_see_every_episode() -> None:
    seen: Counts[str] = Counts()

    def record(name: str, *, episode_return: float = 6.0, episode_length: int = 3, **_: Any) -> None:
        assert (episode_return, episode_length) == (6.0, 3)
        seen[name] += 1

    names = ("on_episode_start", "on_episode_step", "on_episode_end", "on_sample_end")
    hooks = SimpleNamespace(**{name: partial(record, name) for name in names})
    worker(EnvCreator(Counter), num_envs=2, fragment_length=8, callbacks=[hooks]).sample()
    assert [seen[name] for name in names] == [2 + 2 * 2, 8, 4, 1]


@pytest.mark.parametrize("length", [2, 9])
def test_measuring_the_pace_of_episodes_does_not_change_the_next_ones(length: int) -> None:
    """Six steps, in which some episodes of 2 steps end, and none of 9."""
    env = EnvCreator(Counter, {"length": length})
    measured, other = (worker(env, num_envs=2) for _ in range(2))
    assert measured.seconds_per_step() > 0.0
    assert measured.get_metrics()["episode_returns"] == [] and measured.fragment == other.fragment
    assert measured.run_episodes(3) == other.run_episodes(3)
    measured.seconds_per_step()
    assert np.array_equal(measured.sample().obs, other.sample().obs)
