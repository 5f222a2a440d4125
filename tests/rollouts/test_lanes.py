"""Rows in the agents' own time: hand-made episodes of agents that wait, come late, end early and take turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent import ALL
from lightning_rl.exploration import Exploration, OrnsteinUhlenbeckNoise, SoftQ
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.rollouts.own_time import LaneSteps, OwnTime
from lightning_rl.sample_batch import MultiAgentBatch
from tests.rollouts.agents import DISCRETE, TURNS, ByObs, Moment, own, scripted, shared

Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def unseeded_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that gets a seed is that of episode 0, and these tests tell episodes apart."""
    monkeypatch.setattr(EnvCreator, "reseeds", False)


OVER = (ALL,)


def worker(scripts: Sequence[Sequence[Moment]], agents: str = "ab", length: int = 8, **options: Any) -> RolloutWorker:
    """A worker in which each agent has a policy of its own, named as the agent."""
    policies = own(**{agent: ByObs() for agent in agents})
    return RolloutWorker(scripted(scripts, agents), policies, fragment_length=length, **options)


def transitions(batches: Sequence[MultiAgentBatch], policy_id: str) -> list[list[Row]]:
    """(episode and step seen, reward, terminated, truncated, next episode and step seen, t, env_t), by lane."""
    lanes: list[list[Row]] = [[] for _ in range(batches[0][policy_id].valid.shape[1])]
    for batch in batches:
        part = batch[policy_id]
        for lane, rows in enumerate(lanes):
            for row in part.valid[:, lane].nonzero().flatten().tolist():
                names = ("rewards", "terminated", "truncated", "t", "env_t")
                reward, *flags, t, env_t = (part[name][row, lane].item() for name in names)
                seen, after = (tuple(part.obs[at, lane].int().tolist()) for at in (row, row + 1))
                rows.append((seen, reward, *flags, after, t, env_t))
    return lanes


# The rows of a and of b in `TURNS`.
FIRST = [((0, 0), 1, False, False, (0, 2), 0, 0), ((0, 2), -2, True, False, (0, 2), 1, 2)]
SECOND = [((0, 1), -1, False, False, (0, 3), 0, 1), ((0, 3), 2, True, False, (0, 3), 1, 3)]


def test_agents_that_take_turns_have_a_row_for_each_own_move() -> None:
    """a moves at steps 0 and 2, b at 1 and 3. The +1 of step 1 is a's before its next move; the −2 of b's last move
    belongs to a's last row, which ends with it. What b sees after its first move is its next own observation."""
    batch = worker([TURNS], length=5).sample()
    assert transitions([batch], "a") == [FIRST] and transitions([batch], "b") == [SECOND]
    assert batch.env_steps == 4 and batch.agent_steps == 4
    assert batch["a"].valid[:, 0].tolist() == [True, True, False]  # the last row has the final observation


def test_the_returns_of_a_zero_sum_game_are_the_sums_of_its_rows() -> None:
    """a gets 1 − 2, b gets −1 + 2; together 0."""
    source = worker([TURNS], length=15)
    batch = source.sample()
    assert batch["a"].rewards.sum() == -3 and batch["b"].rewards.sum() == 3
    assert source.get_metrics() == {
        "episode_returns": [0.0] * 3,
        "episode_lengths": [4] * 3,
        "policy_returns": {"a": [-1.0] * 3, "b": [1.0] * 3},
        "agent_returns": [{"a": ("a", -1.0), "b": ("b", 1.0)}] * 3,
    }


def test_rewards_between_own_turns_belong_to_the_last_own_action() -> None:
    """a acts at 0 and 3 only: 1 + 2 + 4 until then, and 8 + 16 until the end."""
    script = [Moment("ab"), Moment("b", {"a": 1.0}), Moment("b", {"a": 2.0}), Moment("ab", {"a": 4.0})]
    script += [Moment("b", {"a": 8.0}), Moment("", {"a": 16.0}, truncated=OVER)]
    (rows,) = transitions([worker([script], length=6).sample()], "a")
    assert [row[1:4] for row in rows] == [(7, False, False), (24, False, True)]


EARLY = [
    Moment("ab"),
    Moment("ab", {"a": 1.0, "b": 1.0}),
    Moment("b", {"a": 2.0, "b": 1.0}, terminated=("a",)),
    Moment("b", {"a": 50.0, "b": 1.0}),
    Moment("", {"b": 1.0}, truncated=(ALL,)),
]


@pytest.mark.parametrize("length", [5, 10, 3])
def test_an_agent_that_ends_early_is_not_learned_from_afterwards(length: int) -> None:
    """a ends at step 2 with its second action; the 50 that it gets later belong to no action. It comes back in the next
    episode."""
    source = worker([EARLY, TURNS], length=length)
    batches = [source.sample() for _ in range(30 // length)]
    (rows,) = transitions(batches, "a")
    assert rows[:3] == [
        ((0, 0), 1, False, False, (0, 1), 0, 0),
        ((0, 1), 2, True, False, (0, 2), 1, 1),
        ((1, 0), 1, False, False, (1, 2), 0, 0),
    ]
    (others,) = transitions(batches, "b")
    assert [row[:4] for row in others[:4]] == [((0, i), 1, False, i == 3) for i in range(4)]


class CountsRows(ByObs):
    """Notes how many rows it is asked for, step by step."""

    def __init__(self, exploration: Exploration | None = None) -> None:
        super().__init__()
        self.exploration, self.rows = exploration, []

    def compute_actions(self, obs: Any, state: Any, **how: Any) -> Any:
        self.rows.append(len(obs))
        return super().compute_actions(obs, state, **how)


FREE = spaces.Box(-np.inf, np.inf, (2,), np.float32)


@pytest.mark.parametrize(
    "exploration, rows",
    [(None, 2), (SoftQ(DISCRETE), 2), (OrnsteinUhlenbeckNoise(FREE), 4)],
    ids=["none", "rows alone", "noise of each environment"],
)
def test_a_policy_is_asked_for_the_agents_whose_turn_it_is_alone(exploration: Any, rows: int) -> None:
    """Two agents in two environments are 4 lanes, of which 2 act. Noise that lasts wants all of them at each step."""
    policy = CountsRows(exploration)
    source = RolloutWorker(scripted([TURNS]), shared(policy, "a", "b"), num_envs=2, fragment_length=4)
    batch = source.sample()
    assert policy.rows == [rows] * 4
    assert transitions([batch], "shared") == [FIRST, SECOND] * 2
    # ByObs acts by the step's number, and records −step as action_logp.
    assert batch["shared"].actions[:2].tolist() == [[0, 1, 0, 1]] * 2
    assert batch["shared"].action_logp[:2].tolist() == [[0, -1, 0, -1], [-2, -3, -2, -3]]


def test_without_waiting_agents_the_fragment_is_what_was_recorded() -> None:
    """a is out from step 2 on, and never waits: 4 steps and the reset give 5 rows, of which 2 are a's."""
    batch = worker([EARLY], length=5).sample()
    assert batch["a"].valid[:, 0].tolist() == [True, True, False, False, False]
    assert batch["b"].valid[:, 0].tolist() == [True, True, True, True, False]


def test_an_agent_that_comes_late_starts_at_its_own_first_step() -> None:
    """b appears at step 2; its t counts its own actions, env_t the steps of the environment."""
    script = [Moment("a"), Moment("a"), Moment("ab"), Moment("ab", {"b": 1.0}), Moment("", terminated=OVER)]
    batches = [worker([script], length=10).sample()]
    (rows,) = transitions(batches, "b")
    assert [row[5:] for row in rows] == [(0, 2), (1, 3)] * 2
    assert [row[:2] for row in rows[:2]] == [((0, 2), 1), ((0, 3), 0)]


def test_an_action_whose_next_observation_is_not_known_begins_the_next_fragment() -> None:
    """Fragments of one step: a's move at step 0 is a row only when a sees step 2, in the fragment of step 1."""
    source = worker([TURNS], length=1)
    batches = [source.sample() for _ in range(5)]
    assert [batch["a"].valid.sum().item() for batch in batches] == [0, 1, 0, 1, 0]
    assert [batch["b"].valid.sum().item() for batch in batches] == [0, 0, 1, 1, 0]
    assert [batch.env_steps for batch in batches] == [1, 1, 1, 1, 0]
    assert transitions(batches, "a") == transitions([worker([TURNS], length=5).sample()], "a")


def test_a_forced_reset_drops_the_actions_that_are_no_rows_yet() -> None:
    """After a's move at step 0 the environment is reset: that move never becomes a row."""
    source = worker([TURNS], length=1)
    source.sample()
    source.force_reset()
    batches = [source.sample() for _ in range(4)]
    assert transitions(batches, "a")[0] == transitions([worker([TURNS], length=4).sample()], "a")[0]


def test_complete_episodes_hold_whole_games_of_both_players() -> None:
    """6 steps reach into the second game, which is finished; each game has 2 moves of each player."""
    batch = worker([TURNS], length=6, batch_mode="complete_episodes", num_envs=2).sample()
    for policy_id in "ab":
        for rows in transitions([batch], policy_id):
            assert [row[5] for row in rows] == [0, 1, 0, 1] and rows[-1][2]


# -- the same transitions whatever the fragments -----------------------------------------------------------------------
def random_script(generator: np.random.Generator, agents: str) -> list[Moment]:
    """An episode in which agents act, wait, come late and end at random; the first acts at every step."""
    moments, ended = [Moment("".join(agents[: generator.integers(1, len(agents) + 1)]))], set[str]()
    for _ in range(generator.integers(1, 7)):
        rewards = {agent: float(generator.integers(-9, 10)) for agent in agents if generator.random() < 0.7}
        ends = {agent for agent in moments[-1].acts if agent != agents[0] and generator.random() < 0.2}
        ended |= ends
        acts = [agent for agent in agents[1:] if agent not in ended and generator.random() < 0.5]
        cut = tuple(agent for agent in ends if generator.random() < 0.5)
        by_itself = tuple(agent for agent in ends if agent not in cut)
        moments.append(Moment("".join([agents[0], *acts]), rewards, by_itself, cut))
    return [*moments, Moment("", {agent: 1.0 for agent in agents}, terminated=OVER)]


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), length=st.integers(1, 9))
def test_fragments_of_any_length_give_the_transitions_of_one_long_fragment(seed: int, length: int) -> None:
    generator = np.random.default_rng(seed)
    scripts = [random_script(generator, "abc") for _ in range(4)]
    long = [worker(scripts, "abc", length=60, num_envs=2).sample()]
    source = worker(scripts, "abc", length=length, num_envs=2)
    short = [source.sample() for _ in range(-(-60 // length))]
    for policy_id in "abc":
        for once, cut in zip(transitions(long, policy_id), transitions(short, policy_id), strict=True):
            assert cut[: len(once)] == once or once[: len(cut)] == cut
            assert abs(len(cut) - len(once)) <= length + 1
    assert sum(batch.env_steps for batch in short) >= long[0].env_steps


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10_000))
def test_the_rows_of_own_time_are_those_of_a_walk_through_the_steps(seed: int) -> None:
    """In each lane an action opens a row, rewards go to the open row, and an end or the next action closes it."""
    generator = np.random.default_rng(seed)
    steps, lanes = int(generator.integers(1, 12)), 3
    acting, ended = generator.random((2, steps + 1, lanes)) < np.array([0.6, 0.15])[:, None, None]
    rewards = generator.normal(size=(steps, lanes))
    nothing = np.zeros((steps, lanes), dtype=bool)
    own = OwnTime.of(LaneSteps(acting, rewards, ended[:-1], nothing))
    for lane in range(lanes):
        rows: list[list[Any]] = []  # [step, reward, ended, closed]
        for step in range(steps):
            if acting[step, lane]:
                if rows:
                    rows[-1][3] = True
                rows.append([step, 0.0, False, False])
            if rows and not rows[-1][2]:
                rows[-1][1] += rewards[step, lane]
                rows[-1][2] = bool(ended[step, lane])
        if rows and (rows[-1][2] or acting[-1, lane]):
            rows[-1][3] = True
        valid = own.valid[:, lane]
        found = zip(own.steps[:-1][valid, lane], own.rewards[valid, lane], own.terminated[valid, lane], strict=True)
        expected = [tuple(row[:3]) for row in rows if row[3]]
        assert [(step, pytest.approx(reward), end) for step, reward, end in found] == expected
        assert own.held[lane] == bool(rows and not rows[-1][3])


def test_padding_repeats_real_observations() -> None:
    """b has fewer rows than a; every observation of its column is one that the environment gave."""
    script = [Moment("ab"), *[Moment("a")] * 4, Moment("", terminated=OVER)]
    part = RolloutWorker(scripted([script]), shared(ByObs(), "a", "b"), fragment_length=6).sample()["shared"]
    assert part.valid.sum(0).tolist() == [5, 1]
    assert torch.isfinite(part.obs).all() and (part.obs[..., 0] <= 1).all() and (part.obs[2:, 1].sum(-1) > 0).any()
