"""Exploration in workers: fragments, episodes, schedules, and checkpoints."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from lightning_rl.envs import EnvCreator
from lightning_rl.exploration import Actor, EpsilonGreedy, Exploration
from lightning_rl.models import FullyConnectedNetwork
from lightning_rl.policies import DQN, PPO, R2D2, SAC, TD3, Policy
from lightning_rl.policies.acting import can_skip_model
from lightning_rl.rollouts import RolloutWorker, WorkerSet
from tests.envs.classic_control import CARTPOLE, PENDULUM

FALLING = {"type": "epsilon_greedy", "initial_epsilon": 1.0, "final_epsilon": 0.0, "epsilon_timesteps": 100}


SHORT = EnvCreator("Pendulum-v1", max_episode_steps=3)


class Diary(Exploration):
    """Records the calls of workers."""

    def __init__(self, action_space: Any) -> None:
        super().__init__(action_space)
        self.entries: list[Any] = []

    def get_exploration_action(self, dist: Any, *, timestep: int, explore: bool, generator: Any = None) -> Any:
        self.entries.append(timestep)
        return dist.deterministic_sample(), dist.sampled_action_logp()

    def begin_fragment(self, actor: Actor) -> None:
        self.entries.append(actor)

    def on_episode_start(self, env_indices: Any) -> None:
        self.entries.append(list(env_indices))


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_workers_call_begin_fragment_and_on_episode_start_of_the_strategy(mode: AutoresetMode) -> None:
    """3 steps, an end, (a reset row,) and the next episode, in both environments, across two fragments."""
    policy = PPO(*SHORT.spaces(), exploration={"type": Diary})
    options: dict[str, Any] = {"num_envs": 2, "fragment_length": 4, "vectorization": "sync", "mode": mode}
    worker = RolloutWorker(SHORT, policy, worker_index=1, logical_workers=3, **options)
    worker.sample()
    policy.env_steps = 7
    worker.sample()
    actor = Actor(1, 3, 2, "rollout")
    diary: Any = policy.exploration
    # Under NEXT_STEP only, an action is chosen in the reset row too.
    first = [actor, [0, 1], 0, 0, 0, *([0, [0, 1]] if mode == AutoresetMode.NEXT_STEP else [[0, 1], 0])]
    assert diary.entries[: len(first)] == first
    second = diary.entries[len(first) :]
    assert second[0] == actor and set(map(str, second[1:])) == {"7", "[0, 1]"}  # the running episode goes on
    assert second[1] == 7


def test_ou_noise_starts_at_0_with_every_episode_of_a_worker() -> None:
    """With θ = 1 noise is what was drawn; with θ = 0 it is the sum since the episode began: within 3 steps, 3 draws."""
    settings = {"type": "ornstein_uhlenbeck_noise", "random_timesteps": 0, "scale_schedule": 0.01, "ou_base_noise": 0.5}
    noise = {}
    for theta in (0.0, 1.0):
        policy = PPO(*SHORT.spaces(), exploration={**settings, "ou_theta": theta}, seed=1)
        worker = RolloutWorker(SHORT, policy, num_envs=2, fragment_length=11, vectorization="sync", seed=1)
        fragment = worker.sample()
        best = policy.compute_actions(fragment.obs[:-1].flatten(0, 1), explore=False)[0]
        noise[theta] = (fragment.actions - best.view_as(fragment.actions))[..., 0]
    drawn, summed = noise[1.0], noise[0.0]
    for start in (0, 4, 8):  # rows 3 and 7 are resets
        torch.testing.assert_close(summed[start : start + 3], drawn[start : start + 3].cumsum(0), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["gaussian_noise", "ornstein_uhlenbeck_noise", "parameter_noise"])
def test_a_fragment_that_starts_with_a_reset_can_be_computed_again(name: str) -> None:
    """The third fragment, alone and after two others, bit for bit."""
    settings = {"type": name, "random_timesteps": 0}
    fragments = []
    for before in (0, 2):
        policy = PPO(*PENDULUM.spaces(), exploration=settings, seed=1)
        worker = RolloutWorker(PENDULUM, policy, num_envs=2, fragment_length=8, seed=1)
        for _ in range(before):
            worker.sample()
        worker.load_state_dict({"fragment": 2, "env_steps": 0})
        fragments.append(worker.sample())
    assert torch.equal(fragments[0].actions, fragments[1].actions)
    assert torch.equal(fragments[0].action_logp, fragments[1].action_logp)


@pytest.mark.parametrize(
    "settings",
    [{"type": "ornstein_uhlenbeck_noise", "random_timesteps": 0}, {"type": "gsde", "sample_freq": 12}],
    ids=lambda settings: settings["type"],
)
def test_two_workers_in_one_process_act_like_two_in_two_processes(settings: dict[str, Any]) -> None:
    """Over fragments of 8 steps, which end in the middle of a noise."""

    def workers(*indices: int) -> WorkerSet:
        policy = PPO(*PENDULUM.spaces(), exploration=settings, seed=1)
        return WorkerSet(PENDULUM, policy, indices, num_envs=2, fragment_length=8, logical_workers=2, seed=1)

    together, apart = workers(0, 1), [workers(0), workers(1)]
    for _ in range(3):
        expected = torch.cat([each.sample().actions for each in apart], dim=1)
        assert torch.equal(together.sample().actions, expected)


def test_workers_get_their_own_epsilon() -> None:
    """ε is 0.4 and 0.4⁸: the first takes other actions than the best ones, the second hardly ever."""
    policy = PPO(*CARTPOLE.spaces(), exploration={"type": "per_worker_epsilon_greedy"}, seed=1)
    keywords: dict[str, Any] = {"num_envs": 8, "fragment_length": 32, "logical_workers": 2, "seed": 1}
    shares = []
    for fragment in (worker.sample() for worker in WorkerSet(CARTPOLE, policy, (0, 1), **keywords).workers):
        best = policy.compute_actions(fragment.obs[:-1].flatten(0, 1), explore=False)[0]
        shares.append((fragment.actions.flatten() != best).float().mean().item())
    assert shares[0] == pytest.approx(0.2, abs=0.08) and shares[1] < 0.02


# -- env steps --------------------------------------------------------------------------------------------------------
def test_rllib_defect_workers_scheduled_by_steps_of_their_own() -> None:
    """Weights and env steps of the whole run arrive together: a worker's ε is that of its weights."""
    learner = PPO(*CARTPOLE.spaces(), exploration=FALLING, seed=1)
    workers = WorkerSet(CARTPOLE, PPO(*CARTPOLE.spaces(), exploration=FALLING, seed=2), num_envs=4, fragment_length=32)
    learner.env_steps = 100
    workers.sync_weights(learner)
    fragment = workers.sample()
    best = learner.compute_actions(fragment.obs[:-1].flatten(0, 1), explore=False)[0]
    assert torch.equal(fragment.actions.flatten(), best)  # ε = 0 at 100, though this worker has made no step before


def test_rllib_defect_epsilon_was_not_restored() -> None:
    """ε before saving is ε after loading: through the state, and in the acting copy."""
    policy = PPO(*CARTPOLE.spaces(), exploration=FALLING, seed=1)
    policy.learn_on_batch(RolloutWorker(CARTPOLE, policy, num_envs=2, fragment_length=16).sample())

    def epsilon(each: Policy) -> float:
        return each.exploration.info(each.env_steps)["epsilon"]

    twin = PPO(*CARTPOLE.spaces(), exploration=FALLING, seed=2)
    assert epsilon(twin) == 1.0 != epsilon(policy)
    twin.set_state(policy.get_state())
    assert epsilon(twin) == epsilon(policy) == epsilon(policy.copy_for_acting())


TAXI = max(id for id in gym.registry if id.startswith("Taxi-v"))  # an earlier version is deprecated later
HALF = {"exploration": {"type": "epsilon_greedy", "epsilon_schedule": 0.5}}
POLICIES = {
    "dqn": (DQN, CARTPOLE, HALF),
    "masked": (DQN, EnvCreator(TAXI), HALF),
    "recurrent": (R2D2, CARTPOLE, HALF),
    "sac": (SAC, PENDULUM, {}),
    "random start": (SAC, PENDULUM, {"exploration": {"type": "stochastic_sampling", "random_timesteps": 10**6}}),
    "td3": (TD3, PENDULUM, {}),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_without_probabilities_the_same_is_recorded(name: str, num_envs: int) -> None:
    """`record_logp=False` saves work, among it forwards whose actions are random anyhow, and changes no action."""
    kind, env, keywords = POLICIES[name]
    fragments = []
    for record_logp in (True, False):
        policy = kind(*env.spaces(), **keywords, seed=2)
        worker = RolloutWorker(env, policy, num_envs=num_envs, fragment_length=25, seed=3, record_logp=record_logp)
        fragments.append([worker.sample() for _ in range(2)])
        worker.stop()
    for whole, short in zip(*fragments, strict=True):
        assert set(whole) - set(short) == {"action_logp"}
        assert torch.equal(whole.actions, short.actions) and torch.equal(whole.rewards, short.rewards)


def test_random_steps_skip_the_model_unless_the_model_may_forbid_actions() -> None:
    """A model class counts as forbidding actions unless the class itself sets `forbids_actions = False`."""
    calls: list[int] = []
    for model in ({}, {"custom_model": Subclass}):
        policy = DQN(*CARTPOLE.spaces(), model=model, exploration={"type": "epsilon_greedy", "epsilon_schedule": 1.0})
        policy.model.register_forward_hook(lambda *_: calls.append(1))
        worker = RolloutWorker(CARTPOLE, policy, fragment_length=20, record_logp=False)
        worker.sample()
        worker.stop()
        assert len(calls) == (20 if model else 0)


class OwnMask(DQN):
    def _mask(self, obs: Any, mask: Any) -> Any:
        return torch.tensor([[True, False]])


class OwnDistribution(DQN):
    def distribution(self, outputs: Any, mask: Any = None) -> Any:
        return super().distribution(outputs, torch.tensor([[True, False]]))


class OwnOutputs(EpsilonGreedy):
    def model_outputs(self, model: Any, inputs: Any, state: Any, **how: Any) -> Any:
        outputs, state = super().model_outputs(model, inputs, state, **how)
        return outputs + torch.tensor([0.0, -torch.inf]), state


class Subclass(FullyConnectedNetwork):
    """Does not set `forbids_actions` itself."""


@pytest.mark.parametrize("way", ["mask", "distribution", "strategy", "swapped"])
def test_a_forbidden_action_is_never_taken_at_random(way: str) -> None:
    kind = {"mask": OwnMask, "distribution": OwnDistribution}.get(way, DQN)
    exploration: dict[str, Any] = {"type": OwnOutputs if way == "strategy" else "epsilon_greedy", "epsilon_schedule": 1}
    policy = kind(*CARTPOLE.spaces(), exploration=exploration)
    if way == "swapped":
        policy.model.wrapped = Subclass(*CARTPOLE.spaces(), 0)
        assert policy.model.forbids_actions and not can_skip_model(policy, np.zeros((1, 4)))
        return
    worker = RolloutWorker(CARTPOLE, policy, fragment_length=30, record_logp=False)
    assert not worker.sample().actions.any()
    worker.stop()


def test_random_numbers_of_a_failed_step_are_dropped() -> None:
    """Randomness of a fragment follows from its seed alone."""
    actions = []
    for fails in (False, True):
        policy = DQN(*CARTPOLE.spaces(), **HALF, seed=1)
        worker = RolloutWorker(CARTPOLE, policy, fragment_length=30, record_logp=False, seed=5)
        if fails:
            policy.seed_exploration(9)
            while policy.exploration._drawn is None:
                policy.exploration.blind_action(1, timestep=0, explore=True, generator=policy.generators[policy.device])
        actions.append(worker.sample().actions)
        worker.stop()
    assert torch.equal(*actions)
