"""HindsightReplayBuffer: goals achieved later in the same episode, with their rewards."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.policies import RandomPolicy
from lightning_rl.replay.buffer import REPLAY_COLUMNS
from lightning_rl.replay.hindsight import HindsightReplayBuffer
from lightning_rl.replay.transitions import OF_STEPS
from lightning_rl.rollouts import RolloutWorker
from tests.refusals import not_refused
from tests.replay.streams import compute_reward


class Line(gym.Env[Any, int]):
    """Walks along a line towards a goal out of reach; what is achieved is [episode, place].

    Args:
        length: of an episode in steps; 0 has no end.
        terminates: end as a goal does, not by a time limit.
    """

    episodes = 0

    def __init__(self, length: int = 10, terminates: bool = False) -> None:
        box = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
        self.observation_space = gym.spaces.Dict({"observation": box, "achieved_goal": box, "desired_goal": box})
        self.action_space, self.length, self.terminates = gym.spaces.Discrete(2), length, terminates

    def _obs(self) -> dict[str, Any]:
        reached = np.array([self.episode, self.place], np.float32)
        return {"observation": reached * 2, "achieved_goal": reached, "desired_goal": np.full(2, -5, np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        Line.episodes += 1
        self.episode, self.place = Line.episodes, 0
        return self._obs(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 1
        end = self.place == self.length
        return self._obs(), -1.0, end and self.terminates, end and not self.terminates, {}


def uneven(context: Any) -> Line:
    """The first environment never ends; the others do with each step."""
    return Line(length=int(context.vector_index > 0))


def line_worker(env: Any = Line, num_envs: int = 3, length: int = 7, **keywords: Any) -> RolloutWorker:
    creator = EnvCreator(env, keywords.pop("kwargs", {}))
    policy = RandomPolicy(*creator.spaces())
    return RolloutWorker(creator, policy, num_envs=num_envs, fragment_length=length, vectorization="sync", **keywords)


def hindsight_buffer(**keywords: Any) -> HindsightReplayBuffer:
    return HindsightReplayBuffer(**{"capacity": 250, "compute_reward": compute_reward, "gamma": 0.9, **keywords})


def buffer_of_walks(
    mode: AutoresetMode = AutoresetMode.NEXT_STEP, fragments: int = 20, **keywords: Any
) -> HindsightReplayBuffer:
    worker, buffer = line_worker(mode=mode), hindsight_buffer(**keywords)
    for index in range(fragments):
        if index == 8:
            worker.force_reset()
        buffer.add(worker.sample())
    return buffer


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_are_achieved_in_the_same_episode_and_rewards_follow(strategy: str, mode: AutoresetMode) -> None:
    """Places count steps: a goal of the future is no earlier than the place after the row, the final one is at 10."""
    buffer = buffer_of_walks(mode, strategy=strategy, relabeled=0.75)
    batch = buffer.sample(200, np.random.default_rng(0))
    goals, after = batch.obs.desired_goal, batch.next_obs.achieved_goal
    assert torch.equal(goals, batch.next_obs.desired_goal)
    other = (goals != -5).any(1)
    assert other.sum() == 150 and (batch.rewards[~other] == -1).all()
    goals, after = goals[other], after[other]
    assert torch.equal(goals[:, 0], after[:, 0])  # of the same episode
    assert (goals[:, 1] >= 1).all() and (goals[:, 1] <= 10).all()
    assert torch.equal(batch.rewards[other], -(goals != after).any(1).float())
    ahead = goals[:, 1] - after[:, 1]
    if strategy == "future":
        assert (ahead >= 0).all() and (ahead == 0).any() and (ahead > 3).any()
    elif strategy == "final":
        assert (goals[:, 1] == 10).float().mean() > 0.6  # the others are of episodes that were cut or still go on
        assert len(torch.stack([goals[:, 0], goals[:, 1]]).unique(dim=1).T) == len(goals[:, 0].unique())
    else:
        assert (ahead < 0).any() and (ahead > 0).any()
    assert not batch.terminated.any()
    assert (buffer.rows(batch.batch_indexes).obs.desired_goal == -5).all()  # the stored goals stay


def test_future_goals_are_uniform_over_the_rest_of_the_episode() -> None:
    """From the first row of an episode of ten, each place from 1 to 10; five standard deviations of 4000 draws."""
    buffer = buffer_of_walks(fragments=2, relabeled=1.0)
    assert buffer._episodes is not None and buffer.ring is not None
    first = buffer.ring.slot(np.zeros(4000, np.int64), np.zeros(4000, np.int64))
    drawn = buffer._episodes.draw_goals(first, "future", np.random.default_rng(0))
    counts = np.bincount(drawn // 3)
    assert len(counts) == 10 and np.abs(counts - 400).max() < 5 * np.sqrt(400 * 0.9)


def test_n_step_rewards_are_summed_for_the_new_goal() -> None:
    """γ .9, two steps, the goal is the place after the second one: −1 + .9 · 0, or after the first: 0 − .9."""
    batch = buffer_of_walks(n_step=2, relabeled=1.0).sample(200, np.random.default_rng(0))
    steps = (batch.discounts.log() / np.log(0.9)).round()
    reached = batch.obs.achieved_goal[:, 1]
    goals = batch.obs.desired_goal[:, 1]
    expected = -(goals != reached + 1).float() - 0.9 * (steps == 2) * (goals != reached + 2)
    assert_close(batch.rewards, expected)
    assert len(batch.rewards.unique()) >= 3


def test_invalid_settings_are_refused() -> None:
    cases = [
        (lambda: hindsight_buffer(strategy="futur"), "strategy='futur'.*'future'"),
        (lambda: hindsight_buffer(relabeled=1.5), "relabeled=1.5"),
    ]
    assert not_refused(lambda call: call(), cases) == []


@pytest.mark.parametrize("n_step", [1, 3])
def test_rows_end_where_the_other_goal_does(n_step: int) -> None:
    """γ .9, −1 a step, 0 at the goal, which ends it: −1 − .9 + 0 where it is two steps further and no sum goes on."""

    def over(achieved: np.ndarray, desired: np.ndarray, info: Any) -> np.ndarray:
        return compute_reward(achieved, desired, info) == 0

    batch = buffer_of_walks(n_step=n_step, relabeled=0.5, compute_terminated=over).sample(200, np.random.default_rng(0))
    other = (batch.obs.desired_goal != -5).any(1)
    recorded, batch = batch[~other], batch[other]
    assert len(batch.rewards) == 100
    steps = (batch.discounts.log() / np.log(0.9)).round()
    ahead = batch.obs.desired_goal[:, 1] - batch.obs.achieved_goal[:, 1]  # steps to the goal, at least 1
    reached = ahead <= steps
    assert torch.equal(batch.terminated, reached) and reached.any() and not reached.all()
    paid = torch.minimum(steps, ahead - 1)  # steps that cost 1
    assert_close(batch.rewards, -(1 - 0.9**paid) / (1 - 0.9))
    assert not recorded.terminated.any()


def test_recorded_terminations_do_not_apply_to_relabeled_rows() -> None:
    """Every episode of this line ends by itself at place 10; with a goal elsewhere it would have gone on."""
    worker, ends = line_worker(num_envs=2, length=30, kwargs={"terminates": True}), []
    never = {"compute_terminated": lambda achieved, desired, info: np.zeros(len(achieved), bool)}
    for keywords in ({}, never):
        buffer = hindsight_buffer(relabeled=0.5, **keywords)
        for _ in range(3):
            buffer.add(worker.sample())
        batch = buffer.sample(150, np.random.default_rng(0))
        other = (batch.obs.desired_goal != -5).any(1)
        ends.append((batch.terminated[other], batch.terminated[~other]))
    assert ends[0][0].any() and ends[0][1].any()  # without it, ends are as recorded
    assert not ends[1][0].any() and ends[1][1].any()


@pytest.mark.parametrize(("share", "batch_size"), [(0.8, 20), (0.5, 8), (0.75, 16), (0.0, 25)])
def test_each_batch_of_a_draw_of_several_has_its_share(share: float, batch_size: int) -> None:
    batch = buffer_of_walks(relabeled=share).sample(4 * batch_size, np.random.default_rng(0))
    other = (batch.obs.desired_goal != -5).any(1)
    assert other.view(4, batch_size).sum(1).tolist() == [round(share * batch_size)] * 4
    assert (batch.rewards[~other] == -1).all()


def test_the_steps_that_a_sum_is_made_of_have_the_other_goal_too() -> None:
    """What normalized rewards read instead of the sum: `step_rewards [N, n]`, and each step's following observation."""
    buffer = buffer_of_walks(n_step=3, relabeled=1.0, columns=(*REPLAY_COLUMNS, *OF_STEPS))
    batch = buffer.sample(200, np.random.default_rng(0))
    assert_close(batch["step_rewards"] @ torch.tensor([1, 0.9, 0.81]), batch.rewards)
    assert (batch["step_rewards"] == 0).any()
    assert torch.equal(batch["step_next_obs"].desired_goal, batch.obs.desired_goal)


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_a_long_episode_beside_many_short_ones_keeps_its_own_goals(strategy: str) -> None:
    """More episodes begin while it is stored than the buffer has rows."""
    worker = line_worker(uneven, num_envs=4, length=8)
    buffer = hindsight_buffer(capacity=200, strategy=strategy, relabeled=1.0)
    generator, long = np.random.default_rng(0), 0
    for _ in range(120):
        buffer.add(worker.sample())
        if len(buffer) > 100:
            batch = buffer.sample(100, generator)
            assert torch.equal(batch.obs.achieved_goal[:, 0], batch.obs.desired_goal[:, 0])
            long += int((batch.obs.achieved_goal[:, 1] > 100).sum())
    assert long > 100  # rows of the long one were among them


def test_episode_goals_come_from_all_stored_rows_of_the_episode() -> None:
    """One that never ends, and whose first rows have been overwritten."""
    worker = line_worker(num_envs=1, length=8, kwargs={"length": 0})
    buffer = hindsight_buffer(capacity=50, strategy="episode", relabeled=1.0)
    for _ in range(20):
        buffer.add(worker.sample())
    generator = np.random.default_rng(0)
    batches = [buffer.sample(50, generator) for _ in range(40)]
    rows = torch.cat([batch.next_obs.achieved_goal[:, 1] for batch in batches]).unique()
    goals = torch.cat([batch.obs.desired_goal[:, 1] for batch in batches]).unique()
    assert torch.equal(rows, goals) and len(rows) == len(buffer) and rows.max() == 160
