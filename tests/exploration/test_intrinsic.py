"""Curiosity and RND: equations, rewards in rollouts and replay, learning, and checkpoints."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.exploration import RND, Curiosity
from lightning_rl.exploration.curiosity import ActionGuess
from lightning_rl.models.preprocessors import make_preprocessor
from lightning_rl.policies import A2C, DQN, PG, PPO, Policy
from lightning_rl.replay import ReplayBuffer
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import to_nested_batch
from lightning_rl.spaces import ActionTransform, leaf_spaces, leaf_values
from tests.envs.classic_control import CARTPOLE
from tests.exploration.spaces import DISCRETE, MIXED, build_strategy, choose_actions, distribution
from tests.feature_matrix import AnySpaces

PICTURE = spaces.Box(0, 255, (16, 16, 3), np.uint8)
NESTED = spaces.Dict(camera=PICTURE, parts=spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)]))
KINDS = ["curiosity", "rnd"]


def policy_and_worker(kind: str, policy_class: type[Policy] = PPO, env: Any = "CartPole-v1", **keywords: Any) -> Any:
    creator = env if isinstance(env, EnvCreator) else EnvCreator(env)
    settings = {"type": kind, **keywords.pop("settings", {})}
    policy = policy_class(*creator.spaces(), exploration=settings, seed=1, **keywords)
    worker = RolloutWorker(creator, policy, num_envs=2, fragment_length=16, vectorization="sync", seed=1)
    return policy, worker


# -- equations --------------------------------------------------------------------------------------------------------
def test_curiosity_and_its_loss_by_hand() -> None:
    """Pathak et al. 2017, eq. 6: φ̂ is a constant 1 and φ(s') is 0 in 4 entries, so r = ½ · 4.

    All weights are 0 but that bias: the inverse loss is ln 2, the forward loss ½ · 4; β = 0.2 weighs them.
    """
    exploration = Curiosity(spaces.Discrete(2), spaces.Discrete(3), feature_dim=4, beta=0.2, normalize=False)
    with torch.no_grad():
        for p in exploration.parameters():
            p.zero_()
        exploration.forward_model[1].bias.fill_(1.0)
    obs, actions = exploration._inputs(torch.tensor([0, 1])), torch.tensor([0, 1])
    assert_close(exploration.novelty(obs, actions, obs), torch.tensor([2.0, 2.0]))
    loss, metrics = exploration.own_loss(obs, actions, obs)
    assert_close(metrics["inverse_loss"], torch.tensor(2.0).log())
    assert_close(loss, 0.8 * torch.tensor(2.0).log() + 0.2 * 2.0)


def test_only_the_inverse_model_shapes_the_features() -> None:
    exploration = Curiosity(spaces.Discrete(2), spaces.Discrete(3), beta=1.0)
    obs = exploration._inputs(torch.tensor([0, 1, 2]))
    exploration.own_loss(obs, torch.tensor([0, 1, 0]), obs)[0].backward()
    assert all(p.grad is None or not p.grad.any() for p in exploration.encoder.parameters())
    assert all(bool(p.grad.any()) for p in exploration.forward_model.parameters() if p.grad is not None)


@pytest.mark.parametrize("space", [*DISCRETE, *MIXED], ids=str)
def test_the_inverse_loss_of_a_perfect_guess_is_0_for_any_action_space(space: Space[Any]) -> None:
    """Logits of ±100 are certain, and numbers are guessed exactly; a guess of zeros has a loss."""
    policy_space, guess = ActionTransform(space).policy_space, ActionGuess(ActionTransform(space).policy_space)
    actions, _ = choose_actions(build_strategy("random", space), distribution(space, 8))
    leaves = zip(leaf_spaces(policy_space), leaf_values(policy_space, actions), strict=True)
    certain = torch.cat([_certain(leaf, taken) for (_, leaf), taken in leaves], dim=1)
    assert guess.loss(certain, to_nested_batch(actions)).item() == pytest.approx(0.0, abs=1e-5)
    assert guess.loss(torch.zeros_like(certain), to_nested_batch(actions)).item() > 0.1


def _certain(leaf: Space[Any], taken: torch.Tensor) -> torch.Tensor:
    if isinstance(leaf, spaces.Box):
        return taken.flatten(1)
    hot = make_preprocessor(leaf).transform_batch(taken)
    return 200.0 * hot - 100.0


def test_rnd_is_the_distance_to_a_network_that_never_learns() -> None:
    exploration = RND(spaces.Discrete(2), spaces.Discrete(3), embed_dim=8, normalize=False)
    obs = exploration._inputs(torch.tensor([0, 1]))
    expected = (exploration.encoder(obs) - exploration.target(obs)).square().mean(1)
    assert_close(exploration.novelty(obs, None, obs), expected)
    assert bool((expected > 0).all()) and not any(p.requires_grad for p in exploration.target.parameters())


# -- rewards ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reward_filter", ["none", "clip"])
def test_rewards_are_paid_on_top_of_the_filtered_ones_and_only_for_experience(kind: str, reward_filter: str) -> None:
    policy, worker = policy_and_worker(kind, reward_filter=reward_filter)
    fragment = worker.sample()
    raw = fragment.rewards.clone()
    paid = policy.learner.transform_rewards(fragment)
    assert not fragment.valid.all() and bool((paid.intrinsic_rewards[fragment.valid] > 0).all())
    assert not paid.intrinsic_rewards[~fragment.valid].any()
    assert_close(paid.rewards, raw + paid.intrinsic_rewards)  # CartPole pays 1, which clip keeps
    assert torch.equal(fragment.rewards, raw) and "intrinsic_rewards" not in fragment


def test_replay_learns_from_the_same_rewards_as_rollouts_do() -> None:
    """Rewards of 100 that are scaled: what RND pays comes on top of what becomes of them, and is not divided again."""
    env = CARTPOLE
    policy = DQN(*env.spaces(), exploration={"type": "rnd"}, reward_filter="return_std", gamma=0.9, seed=1)
    fragment = RolloutWorker(env, policy, num_envs=2, fragment_length=64, vectorization="sync", seed=1).sample()
    fragment["rewards"] = 100.0 * fragment.rewards
    state = policy.get_state()
    expected = policy.learner.rows_of(fragment)
    policy.set_state(state)
    buffer = ReplayBuffer(1000)
    buffer.add(policy.learner.take_experience(fragment))
    rows = policy.reward_filter.scale_rewards(buffer.sample(100))
    known = {tuple(obs.tolist()): reward for obs, reward in zip(expected.obs, expected.rewards, strict=True)}
    assert_close(rows.rewards, torch.stack([known[tuple(obs.tolist())] for obs in rows.obs]))
    bonus = rows.rewards - policy.reward_filter.filter_rewards(torch.tensor(100.0))
    assert bonus.mean() > 0.01


@pytest.mark.parametrize("policy_class", [PPO, A2C, PG])
@pytest.mark.parametrize("kind", KINDS)
def test_every_algorithm_learns_from_intrinsic_rewards(kind: str, policy_class: type[Policy]) -> None:
    env = EnvCreator(AnySpaces, {"observation_space": spaces.Discrete(5), "action_space": spaces.Discrete(2)})
    policy, worker = policy_and_worker(kind, policy_class, env)
    fragment = worker.sample()
    rows = policy.learner.rows_of(fragment)
    unpaid = policy.postprocess_trajectory(fragment)
    assert not torch.allclose(rows.advantages, unpaid.advantages)
    before = {name: p.detach().clone() for name, p in policy.exploration.named_parameters()}
    metrics = policy.learn_on_batch(fragment)
    moved = {name: not torch.equal(before[name], p) for name, p in policy.exploration.named_parameters()}
    assert all(moved[name] is not name.startswith("target") for name in moved)
    assert metrics["exploration/intrinsic_reward"] > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        (spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-2, 2, (2,), np.float32)),
        (PICTURE, spaces.MultiDiscrete([2, 3])),
        (NESTED, MIXED[0]),
        (spaces.MultiBinary(4), spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(2)])),
    ],
    ids=["vector", "picture", "nested", "bits"],
)
def test_rllib_defect_only_discrete_actions_and_only_one_process(
    kind: str, observations: Space[Any], actions: Space[Any]
) -> None:
    """Any spaces; and the worker only records, so it may be anywhere."""
    env = EnvCreator(AnySpaces, {"observation_space": observations, "action_space": actions})
    policy, worker = policy_and_worker(kind, env=env, passes=1, minibatches=2)
    fragment = worker.sample()
    assert "intrinsic_rewards" not in fragment and "next_obs" not in fragment
    metrics = policy.learn_on_batch(fragment)
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("kind", KINDS)
def test_recurrent_policies_are_paid_too(kind: str) -> None:
    policy, worker = policy_and_worker(kind, model={"use_lstm": True, "lstm_cell_size": 8}, minibatches=1)
    assert np.isfinite(policy.learn_on_batch(worker.sample())["loss"])


# -- scale, checkpoints, metrics --------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_rewards_are_normalized_by_the_deviation_of_their_discounted_sum(kind: str) -> None:
    policy, worker = policy_and_worker(kind)
    exploration = policy.exploration
    fragment = worker.sample()
    paid = exploration.postprocess_trajectory(policy, fragment)
    deviation = exploration.normalizer.moments.variance.sqrt().float()
    valid = fragment.valid.flatten()
    obs = exploration._inputs(fragment.obs[:-1].flatten(0, 1)), exploration._inputs(fragment.obs[1:].flatten(0, 1))
    novelty = exploration.novelty(obs[0], fragment.actions.flatten(), obs[1]).detach()
    assert_close(paid.intrinsic_rewards.flatten()[valid], novelty[valid] / deviation / 10, rtol=1e-4, atol=1e-6)


def test_the_coefficient_may_be_a_schedule() -> None:
    policy, worker = policy_and_worker("rnd", settings={"intrinsic_reward_coeff": [[0, 1.0], [100, 0.0]]})
    fragment = worker.sample()
    policy.env_steps = 100
    assert not policy.exploration.postprocess_trajectory(policy, fragment).intrinsic_rewards.any()


@pytest.mark.parametrize("kind", KINDS)
def test_networks_and_statistics_are_in_the_state(kind: str) -> None:
    policy, worker = policy_and_worker(kind)
    policy.learn_on_batch(worker.sample())
    twin, _ = policy_and_worker(kind, gamma=0.98)
    worker.force_reset()  # as where a checkpoint is written: no running episode is part of it
    fragment = worker.sample()
    twin.set_state(policy.get_state())
    ours, theirs = (each.exploration.postprocess_trajectory(each, fragment) for each in (policy, twin))
    assert_close(ours.intrinsic_rewards, theirs.intrinsic_rewards, rtol=0, atol=0)


def test_novelty_falls_for_observations_that_repeat() -> None:
    """100 updates on one observation: RND's error there falls to a tenth, and stays higher for other observations."""
    policy = PPO(
        spaces.Discrete(4), spaces.Discrete(2), exploration={"type": "rnd", "observation_filter": "none"}, lr=1e-3
    )
    exploration: Any = policy.exploration
    met, new = exploration._inputs(torch.tensor([1])), exploration._inputs(torch.tensor([3]))
    before = exploration.novelty(met, None, met).item()
    optimizer = torch.optim.Adam(exploration.encoder.parameters(), lr=1e-3)
    for _ in range(100):
        optimizer.zero_grad()
        exploration.own_loss(met, None, met)[0].backward()
        optimizer.step()
    after = exploration.novelty(met, None, met).item()
    assert after < 0.1 * before and after < 0.1 * exploration.novelty(new, None, new).item()


class Ring(gym.Env[np.ndarray, int]):
    """16 places in a circle; action 0 goes back, action 1 goes on; no reward, and no end but every 64 steps."""

    observation_space, action_space = spaces.Box(0.0, 1.0, (16,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Any]:
        super().reset(seed=seed)
        self.place, self.steps = 0, 0
        return np.eye(16, dtype=np.float32)[0], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.place, self.steps = (self.place + 2 * int(action) - 1) % 16, self.steps + 1
        return np.eye(16, dtype=np.float32)[self.place], 0.0, False, self.steps == 64, {}


def bonuses(n_step: int, iterations: int) -> list[float]:
    """What curiosity pays a DQN that replays, by iteration: 64 steps and 16 gradient steps each."""
    exploration = {"type": "curiosity", "normalize": False, "feature_dim": 16, "eta": 0.1}
    exploration["sub_exploration"] = {"type": "epsilon_greedy", "epsilon_schedule": 1.0}
    policy = DQN(*EnvCreator(Ring).spaces(), model={"fcnet_hiddens": [8]}, exploration=exploration, lr=1e-3, seed=1)
    worker = RolloutWorker(EnvCreator(Ring), policy, num_envs=1, fragment_length=64, vectorization="sync", seed=1)
    buffer, generator, paid = ReplayBuffer(4096, n_step=n_step), np.random.default_rng(1), []
    for _ in range(iterations):
        buffer.add(policy.learner.take_experience(worker.sample()))
        for _ in range(16):
            policy.learn_on_batch(buffer.sample(64, generator))
        paid.append(policy.exploration.info(0)["intrinsic_reward"])
    return paid


def test_curiosity_falls_for_known_transitions_with_n_step_replay_too() -> None:
    """The state after two more random steps cannot be predicted; a model of it would keep its error."""
    paid = bonuses(n_step=3, iterations=12)
    assert paid[-1] < 0.1 * paid[0]
    assert paid[:4] == bonuses(n_step=1, iterations=4)


def test_the_other_strategy_chooses_the_actions() -> None:
    greedy = {"sub_exploration": {"type": "epsilon_greedy", "epsilon_schedule": 0.0}}
    policy, _ = policy_and_worker("curiosity", settings=greedy)
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    assert torch.equal(policy.compute_actions(obs)[0], policy.compute_actions(obs, explore=False)[0])
    assert policy.exploration.info(0)["epsilon"] == 0.0
