"""DQN where the legal actions change at each step, by masks or by a model that gives −∞."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from lightning_rl import Algorithm
from lightning_rl.config import compose_config
from lightning_rl.envs import EnvCreator
from lightning_rl.envs.toy_tasks import ParametricActionsCartPole
from lightning_rl.errors import ConfigError
from lightning_rl.models import FullyConnectedNetwork, Model
from lightning_rl.policies import DQN, Rainbow
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs import run
from lightning_rl.runs.evaluation import evaluate
from lightning_rl.sample_batch import SampleBatch
from tests.families import each
from tests.policies.off_policy_algorithms import set_constant_q, td_errors, transitions

ALWAYS_RANDOM = {"type": "epsilon_greedy", "initial_epsilon": 1.0, "final_epsilon": 1.0}
HALF_RANDOM = {"type": "epsilon_greedy", "initial_epsilon": 0.5, "final_epsilon": 0.5}


class EmbeddingQModel(Model):
    """Q-values as inner products of a state's vector and action embeddings; −∞ for slots without embedding."""

    nothing = -torch.inf

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, **keywords: Any) -> None:
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.wanted = FullyConnectedNetwork(obs_space["cart"], action_space, 2)

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        embeddings = input_dict["obs"]["avail_actions"]
        wanted, _ = self.wanted({"obs_flat": input_dict["obs"]["cart"]})
        fit = torch.einsum("nse,ne->ns", embeddings, wanted)
        return fit.masked_fill(embeddings.abs().sum(2) == 0, self.nothing), []


class LeastNumberQModel(EmbeddingQModel):
    """Gives float32's least number instead, as RLlib's models do."""

    nothing = torch.finfo(torch.float32).min


def policy_and_worker(policy_class: type[DQN], length: int = 200, env: Any = None, **keywords: Any) -> tuple[Any, Any]:
    creator = EnvCreator(ParametricActionsCartPole, {"varying": True, **(env or {})})
    recording = {"record_logp": keywords.pop("record_logp", True)}
    policy = policy_class(*creator.spaces(), **keywords)
    return policy, RolloutWorker(creator, policy, num_envs=4, fragment_length=length, seed=1, **recording)


def are_legal(fragment: SampleBatch) -> Tensor:
    """Whether each action taken was legal, `[K]`."""
    taken = fragment.obs["avail_actions"][:-1].gather(2, fragment.actions[..., None, None].expand(-1, -1, 1, 2))
    return (taken.squeeze(2).abs().sum(-1) > 0)[fragment.valid]


EXPLORATIONS = {
    "always random": ALWAYS_RANDOM,
    "half random": HALF_RANDOM,
    "soft_q": {"type": "soft_q"},
    "random": {"type": "random"},
}
CASES: dict[str, tuple[type[DQN], dict[str, Any], dict[str, Any]]] = {
    "mask": (DQN, {"mask": True}, {}),
    "mask, dueling": (DQN, {"mask": True}, {"dueling": True, "hiddens": [16]}),
    "mask, rainbow": (Rainbow, {"mask": True}, {}),
    "−∞ of the model": (DQN, {"mask": False}, {"model": {"custom_model": EmbeddingQModel}}),
    "least number of the model": (DQN, {"mask": False}, {"model": {"custom_model": LeastNumberQModel}}),
}


@pytest.mark.parametrize("exploration", each(EXPLORATIONS, default=("half random", "soft_q")))
@pytest.mark.parametrize("case", each(CASES, default=("mask", "−∞ of the model")))
@pytest.mark.parametrize("record_logp", each([True, False], default=[True]))
def test_dqn_takes_legal_actions_only_at_random_greedily_and_after_gradient_steps(
    case: str, exploration: str, record_logp: bool
) -> None:
    policy_class, env, keywords = CASES[case]
    keywords = {"exploration": EXPLORATIONS[exploration], "record_logp": record_logp, **keywords}
    policy, rollouts = policy_and_worker(policy_class, 100, env, **keywords)
    for _ in range(3):
        fragment = rollouts.sample()
        assert bool(are_legal(fragment).all()) and int(fragment.valid.sum()) > 200
        policy.learn_on_batch(fragment)


def test_random_actions_are_uniform_over_the_actions_with_finite_q_values() -> None:
    """Their probability is 1 / the number of slots with an embedding."""
    model = {"custom_model": EmbeddingQModel}
    _, rollouts = policy_and_worker(DQN, env={"mask": False}, exploration=ALWAYS_RANDOM, model=model)
    fragment = rollouts.sample()
    count = (fragment.obs["avail_actions"][:-1].abs().sum(-1) > 0).sum(-1)
    torch.testing.assert_close(fragment.action_logp.exp()[fragment.valid], (1.0 / count)[fragment.valid])


@pytest.mark.parametrize("double", [False, True])
def test_dqn_bootstraps_from_the_best_action_that_the_next_observation_s_mask_allows(double: bool) -> None:
    """Both networks give Q(s') = (1, 5, 3): the best is 5, without action 1 it is 3, without 1 and 2 it is 1."""
    obs_space = spaces.Dict({"action_mask": spaces.MultiBinary(3), "x": spaces.Box(-1, 1, (2,))})
    policy: Any = DQN(obs_space, spaces.Discrete(3), double=double, gamma=0.5)
    for model in (policy.model, policy.target_model):
        set_constant_q(model, 1.0, 5.0, 3.0)
    masks, x = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 0, 0]], dtype=torch.int8), torch.zeros(3, 2)
    columns = {"rewards": torch.full((3,), 2.0), "discounts": torch.full((3,), 0.5), "actions": torch.zeros(3).long()}
    rows = transitions(count=3, **columns)
    rows["obs"], rows["next_obs"] = (SampleBatch(action_mask=mask, x=x) for mask in (torch.ones_like(masks), masks))
    best = torch.tensor([5.0, 3.0, 1.0])
    torch.testing.assert_close(td_errors(policy, rows), 1.0 - (2.0 + 0.5 * best))


def test_a_custom_model_that_gives_q_values_is_refused_with_dueling() -> None:
    """A dueling head reads 64 features (the last of `fcnet_hiddens`); the model gives 10 Q-values."""
    with pytest.raises(ConfigError, match=r"\[2, 10\].*\[2, 64\]"):
        policy_and_worker(DQN, dueling=True, model={"custom_model": EmbeddingQModel})


class SecondIsBest(gym.Env[Any, int]):
    """One step; three actions with rewards 1, 3 and 2; the observation shows whether the second is legal."""

    observation_space = spaces.Dict({"action_mask": spaces.MultiBinary(3), "x": spaces.Box(0, 1, (1,))})
    action_space = spaces.Discrete(3)

    def _observation(self) -> dict[str, Any]:
        allowed = int(self.np_random.integers(2))
        return {"action_mask": np.array([1, allowed, 1], np.int8), "x": np.array([allowed], np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observation(), [1.0, 3.0, 2.0][action], True, False, {}


@pytest.mark.parametrize("dueling", each([False, True], default=[False]))
def test_dqn_learns_the_best_legal_action(dueling: bool) -> None:
    algorithm = Algorithm(
        "dqn",
        SecondIsBest,
        overrides=["data.learning_starts=64", "data.batch_size=64", "data.fragments_per_iteration=600"],
        config={"policy": {"dueling": dueling, "lr": 1e-2, "target_update_interval": 10}, "seed": 2},
    )
    algorithm.train()
    policy = algorithm.policy
    for allowed, best in ((0, 2), (1, 1)):
        obs = {"action_mask": np.array([1, allowed, 1], np.int8), "x": np.array([allowed], np.float32)}
        assert policy.compute_single_action(obs) == best
    algorithm.stop()


OF_MODEL = ["embeddings=true", "mask=false", "varying=true"]
LEARNING = {
    "mask, dueling": ["policy.dueling=true"],
    "mask": ["policy.dueling=false"],
    "−∞ of the model": ["policy.dueling=false", f"model.custom_model={__name__}:EmbeddingQModel"]
    + [f"env.kwargs.{each}" for each in OF_MODEL],
}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", LEARNING)
def test_dqn_learns_parametric_cartpole(tmp_path: Path, case: str) -> None:
    config = ["policy=dqn", "env=parametric_cartpole", "seed=1", "evaluation.every_env_steps=0", *LEARNING[case]]
    run.train(compose_config([*config, f"run_dir={tmp_path / 'run'}"]))
    assert evaluate(tmp_path / "run", episodes=30)["mean"] >= 150
