"""The toy tasks: their observations, their rewards, and which policies can solve them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.toy_tasks import (
    BitFlipping,
    HiddenCoin,
    ParametricActionsCartPole,
    PointReach,
    RepeatAfterMe,
    StatelessCartPole,
    StatelessPendulum,
)


@pytest.mark.parametrize("keywords", [{"varying": True}, {"embeddings": True}, {"embeddings": True, "mask": False}])
def test_every_variant_of_parametric_cartpole_passes_the_environment_check(keywords: dict[str, bool]) -> None:
    EnvCreator(ParametricActionsCartPole, {"slots": 7, **keywords}).spaces()


# -- StatelessCartPole, StatelessPendulum -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "env_id", "places"),
    [(StatelessCartPole, "CartPole-v1", [0, 2]), (StatelessPendulum, "Pendulum-v1", [0, 1])],
)
def test_stateless_tasks_show_positions_and_no_velocities(kind: Any, env_id: str, places: list[int]) -> None:
    blind, seeing = kind(), gym.make(env_id)
    shown, (seen, _) = [blind.reset(seed=3)[0]], seeing.reset(seed=3)
    expected = [seen[places]]
    seeing.action_space.seed(3)
    for _ in range(3):
        action = seeing.action_space.sample()
        shown.append(blind.step(action)[0])
        expected.append(seeing.step(action)[0][places])
    np.testing.assert_array_equal(shown, expected)
    assert blind.observation_space.shape == (2,)


# -- RepeatAfterMe ----------------------------------------------------------------------------------------------------
def play_episode(env: gym.Env[Any, Any], choose: Any, seed: int = 0) -> tuple[list[float], bool, bool]:
    """Rewards of one episode; `choose(observations so far, step)` gives the actions."""
    obs, _ = env.reset(seed=seed)
    shown, rewards, terminated, truncated = [obs], [], False, False
    while not (terminated or truncated):
        obs, reward, terminated, truncated, _ = env.step(choose(shown))
        shown.append(obs)
        rewards.append(float(reward))
    return rewards, terminated, truncated


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_repeat_after_me_pays_the_symbol_of_delay_steps_ago(delay: int) -> None:
    """10 steps: reward 0 in the first `delay` steps, 1 in each of the others."""
    env = RepeatAfterMe(delay=delay, symbols=3, length=10)
    rewards, terminated, truncated = play_episode(env, lambda shown: shown[-1 - delay] if len(shown) > delay else 0)
    assert rewards == [0.0] * delay + [1.0] * (10 - delay)
    assert terminated and not truncated


def test_repeat_after_me_charges_for_another_symbol_and_draws_symbols_by_the_seed() -> None:
    rewards, _, _ = play_episode(RepeatAfterMe(delay=1, length=6), lambda shown: 1 - shown[-2] if len(shown) > 1 else 0)
    assert rewards == [0.0] + [-1.0] * 5
    first, again, other = (play_episode(RepeatAfterMe(length=30), lambda _: 0, seed)[0] for seed in (1, 1, 2))
    assert first == again != other


# -- HiddenCoin -------------------------------------------------------------------------------------------------------
def pay_of_independent_parts(p: float, length: int) -> float:
    """The exact mean pay of hiding right with probability `p` and pointing to the likelier hand, the best q."""
    pay, counts = 0.0, np.ones(1)  # probabilities of 0 … step coins in the right hand so far
    for step in range(length):
        right = 2 * np.arange(step + 1)
        guess = counts[right > step].sum() + counts[right == step].sum() / 2
        pay += max(p, 1 - p) - (p * guess + (1 - p) * (1 - guess)) + 0.5
        counts = np.append(counts * (1 - p), 0.0) + np.append(0.0, counts * p)
    return pay / length


def test_independent_parts_cannot_exceed_0_53_in_hidden_coin() -> None:
    """Whatever p; q enters linearly, so pointing always to one hand is the best q."""
    best = max(pay_of_independent_parts(p, 100) for p in np.linspace(0, 1, 201))
    assert 0.526 < best < 0.527


def mean_pay(choose: Any, episodes: int = 200) -> float:
    env, random = HiddenCoin(), np.random.default_rng(0)
    return float(np.mean([sum(play_episode(env, lambda _: choose(random), seed)[0]) for seed in range(episodes)]))


@pytest.mark.parametrize("p", [0.5, 0.565, 0.8, 1.0])
def test_hidden_coin_returns_of_independent_parts_match_the_calculation(p: float) -> None:
    pay = mean_pay(lambda random: (int(random.random() < p), 1))
    assert pay == pytest.approx(pay_of_independent_parts(p, 100), abs=0.02)


def test_hidden_coin_pays_1_for_hiding_at_random_and_half_for_a_hand_that_the_opponent_learns() -> None:
    """Both point to the coin. 1 − 1 + ½ at each step but the first, where he guesses at random."""
    assert mean_pay(lambda random: (int(random.integers(2)),) * 2) == pytest.approx(1.0, abs=0.02)
    assert mean_pay(lambda _: (1, 1)) == pytest.approx(0.505, abs=0.005)


# -- ParametricActionsCartPole ----------------------------------------------------------------------------------------
def observations(steps: int = 200, **keywords: Any) -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
    """What was shown, and what each slot did then."""
    env = ParametricActionsCartPole(**keywords)
    random, shown = np.random.default_rng(0), []
    obs, _ = env.reset(seed=0)
    for _ in range(steps):
        shown.append((obs, env.directions.copy()))
        legal = np.flatnonzero(env.legal)
        obs, _, terminated, truncated, _ = env.step(int(random.choice(legal)))
        obs = env.reset()[0] if terminated or truncated else obs
    return shown


@pytest.mark.parametrize("embeddings", [False, True])
def test_both_directions_are_always_legal_in_changing_slots(embeddings: bool) -> None:
    masks = []
    for obs, directions in observations(embeddings=embeddings):
        legal = obs["action_mask"].astype(bool)
        assert sorted(directions[legal].tolist()) == [0, 1]
        masks.append(tuple(legal.tolist()))
    assert len(set(masks)) > 20


def test_the_number_of_legal_slots_varies_with_varying_true() -> None:
    assert {int(obs["action_mask"].sum()) for obs, _ in observations(varying=True)} == set(range(2, 11))


def test_an_embedding_encodes_the_direction_and_is_zero_where_illegal() -> None:
    for obs, directions in observations(embeddings=True, varying=True, steps=50):
        legal = obs["action_mask"].astype(bool)
        embeddings = ParametricActionsCartPole.EMBEDDINGS[directions[legal]]
        np.testing.assert_array_equal(obs["avail_actions"][legal], embeddings)
        assert not obs["avail_actions"][~legal].any()


def test_slots_keep_their_direction_without_embeddings() -> None:
    assert all(np.array_equal(directions, np.arange(10) % 2) for _, directions in observations(embeddings=False))


def test_an_illegal_slot_has_reward_0_and_ends_the_episode() -> None:
    env = ParametricActionsCartPole()
    env.reset(seed=0)
    _, reward, terminated, truncated, _ = env.step(int(np.flatnonzero(~env.legal)[0]))
    assert (reward, terminated, truncated) == (0.0, True, False)


def test_a_legal_slot_pushes_in_its_direction() -> None:
    """CartPole's velocity grows to the right of action 1 and to the left of action 0."""
    for direction, sign in ((0, -1.0), (1, 1.0)):
        env = ParametricActionsCartPole()
        env.reset(seed=0)
        slot = int(np.flatnonzero(env.legal & (env.directions == direction))[0])
        obs, reward, terminated, _, _ = env.step(slot)
        assert (reward, terminated) == (1.0, False)
        assert np.sign(obs["cart"][1]) == sign


# -- environments with goals ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(5))
def test_bit_flipping_is_solved_by_flipping_the_different_bits_or_ends_after_as_many_steps_as_bits(seed: int) -> None:
    """d bits that differ: d − 1 steps that cost 1, and one that pays 0 and ends it."""
    env = BitFlipping(bits=12)
    obs, _ = env.reset(seed=seed)
    differs = obs["observation"] != obs["desired_goal"]
    results = [env.step(action)[1:] for action in np.flatnonzero(differs).tolist()]
    assert {result[:3] for result in results[:-1]} <= {(-1.0, False, False)}
    assert results[-1] == (0.0, True, False, {"is_success": True})
    env.reset(seed=seed)
    same = int(np.flatnonzero(~differs)[0])
    assert [env.step(same)[2:4] for _ in range(12)] == [(False, False)] * 11 + [(False, True)]


def test_point_reach_is_solved_by_pushing_towards_the_goal_and_braking() -> None:
    """A hand-written controller reaches every goal within 40 of 50 steps and stays; standing still reaches none."""
    for seed in range(10):
        env = PointReach()
        for gain, damping in ((0.0, 0.0), (8.0, 6.0)):
            obs, _ = env.reset(seed=seed)
            rewards = []
            for step in range(50):
                place, velocity = obs["observation"][:2], obs["observation"][2:]
                obs, reward, terminated, truncated, info = env.step(
                    np.clip(gain * (obs["desired_goal"] - place) - damping * velocity, -1, 1)
                )
                rewards.append(reward)
                assert not terminated and truncated == (step == 49)
                assert info["is_success"] == (reward == 0.0) and env.observation_space.contains(obs)
            start = np.linalg.norm(env.goal - env.place)
            assert sum(rewards[40:]) == (0 if gain else -10), (seed, gain, start)


def test_point_reach_stops_at_walls() -> None:
    env = PointReach()
    env.reset(seed=0)
    for _ in range(200):
        obs, *_ = env.step(np.array([1.0, -1.0]))
    np.testing.assert_array_equal(obs["observation"], [1.0, -1.0, 0.0, 0.0])
