"""Custom action distributions by class, import path and registered name, and in RLlib's form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from docs.examples.custom_action_dist import BangBang
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models import ModelCatalog
from lightning_rl.models.distributions import Categorical, DiagGaussian, MultiActionDistribution
from lightning_rl.policies import A2C, PG, PPO
from lightning_rl.rollouts import RolloutWorker
from tests.models.distribution_cases import CASES, generator
from tests.training import probes

HERE = "tests.models.test_distributions_custom"


class FirstOfThree(BangBang):
    """Reads its model and a setting of it, the environment's own space, and the first of three outputs."""

    def __init__(self, inputs: Tensor, model: Any = None, mask: Tensor | None = None) -> None:
        super().__init__(inputs[:, :1], model, mask)
        assert model.num_outputs == inputs.shape[1] == 3

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        assert model_config["fcnet_hiddens"] == [16] and action_space.low[0] == -2.0
        return 3


class Classic(Categorical):
    """In RLlib's form: two arguments, and a sample that takes no generator but draws from torch's global one."""

    def __init__(self, inputs: Tensor, model: Any) -> None:
        super().__init__(inputs, model)
        self.model_outputs = model.num_outputs

    def sample(self) -> Tensor:  # type: ignore[override]
        self._last = torch.distributions.Categorical(logits=self.inputs).sample()
        return self._last


def policy_of(env: Any, dist: Any, algorithm: Any = PPO, width: int = 16, **keywords: Any) -> tuple[Any, RolloutWorker]:
    creator, model = EnvCreator(env), {"custom_action_dist": dist, "fcnet_hiddens": [width]}
    policy = algorithm(*creator.spaces(), model=model, seed=1, **keywords)
    return policy, RolloutWorker(creator, policy, num_envs=4, fragment_length=16, vectorization="sync", seed=1)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelCatalog, "_dists", dict(ModelCatalog._dists))


@pytest.mark.parametrize("named", [FirstOfThree, f"{HERE}:FirstOfThree", f"{HERE}.FirstOfThree", "mine"])
def test_ppo_learns_two_iterations_with_a_custom_distribution(registry: None, named: Any) -> None:
    """It gets the model, and determines its number of outputs."""
    ModelCatalog.register_custom_action_dist("mine", FirstOfThree)
    policy, worker = policy_of(probes.MatchedBox, named, kl_coef=0.2)
    before = policy.get_weights()
    for _ in range(2):
        metrics = policy.learn_on_batch(worker.sample())
        assert all(math.isfinite(value) for value in metrics.values())
        assert metrics["first_kl"] == pytest.approx(0.0, abs=1e-6)
    assert any(not np.array_equal(before[name], value) for name, value in policy.get_weights().items())


def test_a_distribution_in_rllibs_form_learns_and_acts_reproducibly() -> None:
    """Its global draws are seeded around the call and leave the global generator as it was."""
    before, fragments = torch.get_rng_state(), []
    for _ in range(2):
        policy, worker = policy_of(probes.MatchedReward, Classic, kl_coef=0.2)
        fragments.append(worker.sample())
        torch.rand(7)
    assert torch.equal(fragments[0].actions, fragments[1].actions)
    assert fragments[0].actions.float().std() > 0.3
    torch.set_rng_state(before)
    policy.compute_actions(np.zeros((4, 1), np.float32))
    assert torch.equal(before, torch.get_rng_state())
    metrics = policy.learn_on_batch(fragments[0])
    assert metrics["first_kl"] == pytest.approx(0.0, abs=1e-6)


def test_a_distribution_in_rllibs_form_is_refused_with_a_mask() -> None:
    factory, _ = ModelCatalog.get_action_dist(spaces.Discrete(3), {"custom_action_dist": Classic})
    with pytest.raises(UnsupportedSpaceError, match=r"action_mask.*\(inputs, model, mask\)"):
        factory(torch.zeros(2, 3), None, torch.ones(2, 3, dtype=torch.bool))


def test_a_distribution_for_leaves_takes_its_place_inside_nested_actions() -> None:
    """A subclass of a built-in one serves the same kind of leaf; the other leaves keep theirs."""

    class Wide(DiagGaussian):
        pass

    factory, size = ModelCatalog.get_action_dist(CASES["nested"][0], {"custom_action_dist": Wide})
    dist = factory(torch.zeros(2, size), None, None)
    assert isinstance(dist, MultiActionDistribution)
    assert [type(child).__name__ for child in dist.children] == ["Bernoulli", "Categorical", "MultiCategorical", "Wide"]


NAMED = [case for case, (_, named, normalize) in CASES.items() if named is not None and normalize]


@pytest.mark.parametrize("algorithm", [PPO, A2C, PG])
@pytest.mark.parametrize("case", NAMED)
def test_every_named_distribution_goes_with_every_algorithm(algorithm: Any, case: str) -> None:
    """Two iterations with `model.custom_action_dist=…`; all actions are in the environment's space."""
    space, name, _ = CASES[case]

    class Acting(probes.Probe):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = space

        def reward(self, action: Any) -> float:
            return float(space.contains(action))

    policy, worker = policy_of(Acting, name, algorithm, width=8)
    for _ in range(2):
        fragment = worker.sample()
        assert float(fragment.rewards[fragment.valid].min()) == 1.0
        metrics = policy.learn_on_batch(fragment)
        assert all(math.isfinite(value) for value in metrics.values())


def test_an_autoregressive_policy_survives_its_weights() -> None:
    """The heads that the catalog added are parameters like all others."""
    space, obs = spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (3,))
    policy, other = (PPO(obs, space, model={"custom_action_dist": "Autoregressive"}, seed=seed) for seed in (1, 2))
    other.set_weights(policy.get_weights())
    rows = torch.randn(20, 3, generator=generator()).numpy()
    for copy_ in (other, policy.copy_for_acting()):
        copy_.seed_exploration(3), policy.seed_exploration(3)
        assert torch.equal(copy_.compute_actions(rows)[0], policy.compute_actions(rows)[0])
