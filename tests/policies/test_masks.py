"""Action masks, in an info or in the observation: every distribution computed from a row is masked."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import NonFiniteError
from lightning_rl.policies import DQN, PPO, SAC, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch, action_mask_of

MASK = spaces.MultiBinary(3)
VECTOR = spaces.Box(-1.0, 1.0, (2,), np.float32)
SPACES: dict[str, spaces.Space[Any]] = {
    "in info": VECTOR,
    "in obs": spaces.Dict(action_mask=MASK, x=VECTOR),
    "in nested obs": spaces.Dict(action_mask=MASK, parts=spaces.Dict(x=VECTOR, y=spaces.Tuple((VECTOR, VECTOR)))),
}
NOISE = {"type": "parameter_noise", "random_timesteps": 0, "initial_stddev": 1e-3}


class Forbidding(gym.Env[Any, int]):
    """Episodes of 5 steps with random observations; each step forbids one of three actions at random."""

    action_space = spaces.Discrete(3)

    def __init__(self, kind: str) -> None:
        self.kind, self.observation_space = kind, SPACES[kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self._observation_and_info()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.mask[action], f"action {action} is forbidden by {self.mask}"
        self.steps += 1
        obs, info = self._observation_and_info()
        return obs, float(action), False, self.steps == 5, info

    def _observation_and_info(self) -> tuple[Any, dict[str, Any]]:
        self.mask = np.ones(3, np.int8)
        self.mask[self.np_random.integers(3)] = 0
        obs = self.observation_space.sample()
        if self.kind == "in info":
            return obs, {"action_mask": self.mask.astype(bool)}
        return {**obs, "action_mask": self.mask}, {}


def policy_and_worker(kind: str, policy_class: type[Policy] = PPO, **keywords: Any) -> tuple[Policy, RolloutWorker]:
    env = EnvCreator(Forbidding, {"kind": kind}, check=False)
    policy = policy_class(SPACES[kind], Forbidding.action_space, model={"fcnet_hiddens": [8]}, seed=1, **keywords)
    return policy, RolloutWorker(env, policy, num_envs=2, fragment_length=32, vectorization="sync", seed=2)


def test_action_mask_of_prefers_the_mask_column_to_the_observation_s() -> None:
    inside, beside = torch.tensor([[True, False]]), torch.tensor([[False, True]])
    obs = SampleBatch(action_mask=inside, x=torch.zeros(1))
    assert action_mask_of(obs) is inside and action_mask_of({"action_mask": inside}) is inside
    assert action_mask_of(obs, beside) is beside and action_mask_of(torch.zeros(1), beside) is beside
    assert action_mask_of(torch.zeros(1)) is None and action_mask_of({"x": inside}) is None


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("memory", [False, True], ids=["feed-forward", "lstm"])
def test_ppo_s_kl_penalty_compares_two_masked_distributions(kind: str, memory: bool) -> None:
    """Before the first gradient step the policy is the one that acted: KL(π_old‖π) = 0."""
    policy, worker = policy_and_worker(kind, kl_coef=0.2)
    if memory:
        policy = PPO(SPACES[kind], Forbidding.action_space, model={"use_lstm": True, "lstm_cell_size": 8}, kl_coef=0.2)
        env = EnvCreator(Forbidding, {"kind": kind}, check=False)
        worker = RolloutWorker(env, policy, num_envs=2, fragment_length=32, vectorization="sync", seed=2)
    rows = policy.learner.rows_of(worker.sample())
    _, metrics = policy.loss(rows)
    assert abs(metrics["kl"].item()) < 1e-6
    assert torch.isfinite(policy.acting_distribution(rows).logp(rows.actions)).all()
    assert policy.acting_distribution(rows).log_probs().exp().eq(0.0).sum(1).eq(1).all()


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("policy_class", [PPO, DQN])
def test_parameter_noise_measures_the_distance_between_masked_distributions(
    kind: str, policy_class: type[Policy]
) -> None:
    """Noise of σ = 0.001 hardly changes the policy, so σ grows; masked against unmasked the distance would be ln 2."""
    policy, worker = policy_and_worker(kind, policy_class, exploration=NOISE)
    policy.env_steps = 1
    policy.exploration.postprocess_trajectory(policy, worker.sample())
    assert policy.exploration.stddev.item() == pytest.approx(1.01e-3)


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("policy_class", [DQN, SAC])
def test_mask_of_gives_the_masks_of_rows_and_of_their_next_observations(kind: str, policy_class: type[Policy]) -> None:
    policy, worker = policy_and_worker(kind, policy_class)
    rows = policy.postprocess_trajectory(worker.sample())
    if kind == "in info":
        rows["next_action_mask"] = ~rows.action_mask
    for following, expected in ((False, policy.mask_of(rows)), (True, policy.mask_of(rows, following=True))):
        prefix = "next_" if following else ""
        given = rows.get(f"{prefix}action_mask")
        given = rows[f"{prefix}obs"].action_mask.bool() if given is None else given
        assert expected is not None and torch.equal(expected, given)


def test_the_error_for_an_infinite_kl_names_action_masks_and_not_the_learning_rate() -> None:
    """π excludes an action that π_old allows: KL(π_old‖π) = inf in the first gradient step."""

    class WithoutMask(PPO):
        """Computes the distribution that acted without its mask."""

        def acting_distribution(self, rows: SampleBatch) -> Any:
            return self.distribution(rows.action_dist_inputs)

    policy, worker = policy_and_worker("in obs", WithoutMask, kl_coef=0.2)
    with pytest.raises(NonFiniteError, match=r"loss is inf \(kl inf.*in gradient step 0.*action masks\)$") as refusal:
        policy.learn_on_batch(worker.sample())
    assert "policy.lr" not in str(refusal.value)


def test_random_actions_keep_to_masks_and_need_a_forward_only_for_masks_and_log_probabilities() -> None:
    """With ε = 1 only a mask or the log-probability needs the model's distribution."""
    policy = DQN(VECTOR, spaces.Discrete(3), exploration={"type": "epsilon_greedy", "epsilon_schedule": 1.0})
    obs, mask = np.zeros((64, 2), np.float32), np.tile([True, False, True], (64, 1))
    forwards: list[Any] = []
    policy.model.register_forward_hook(lambda *args: forwards.append(args))
    drawn, _, columns = policy.compute_actions(obs, logp=False)
    assert set(drawn.tolist()) == {0, 1, 2} and columns == {} and not forwards
    drawn, _, columns = policy.compute_actions(obs, action_mask=mask, logp=False)
    assert set(drawn.tolist()) == {0, 2} and "action_logp" not in columns and len(forwards) == 1
    _, _, columns = policy.compute_actions(obs)
    assert torch.allclose(columns["action_logp"].exp(), torch.full((64,), 1 / 3)) and len(forwards) == 2
