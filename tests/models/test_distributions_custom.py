"""Custom action distributions by class, import path and registered name, and in RLlib's form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import UnsupportedSpaceError
from lightning_rl.models import ModelCatalog
from lightning_rl.models.distributions import ActionDistribution, Categorical, DiagGaussian, MultiActionDistribution
from lightning_rl.policies import A2C, PG, PPO
from lightning_rl.rollouts import RolloutWorker
from tests.models.distribution_cases import CASES, WHOLE, generator
from tests.training import probes

HERE = "tests.models.test_distributions_custom"


class Laplace(ActionDistribution):
    """A new density: double exponential around the mean, with a scale of its own; it reads a setting of its model."""

    def __init__(self, inputs: Tensor, model: Any = None, mask: Tensor | None = None) -> None:
        super().__init__(inputs, model, mask)
        assert model.num_outputs == inputs.shape[1] == 3
        self.mean, self.scale, _ = inputs.split(1, dim=1)
        self.scale = 0.3 * self.scale.exp()
        self.last: Tensor | None = None

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        assert model_config["fcnet_hiddens"] == [16] and action_space.low[0] == -2.0  # the environment's own space
        return 3

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        uniform = torch.empty_like(self.mean).uniform_(-0.499, 0.499, generator=generator)
        self.last = self.mean - self.scale * uniform.sign() * torch.log1p(-2 * uniform.abs())
        return self.last

    def deterministic_sample(self) -> Tensor:
        self.last = self.mean
        return self.last

    def logp(self, actions: Tensor) -> Tensor:
        return (-(actions - self.mean).abs() / self.scale - (2 * self.scale).log()).sum(1)

    def sampled_action_logp(self) -> Tensor:
        assert self.last is not None
        return self.logp(self.last)

    def entropy(self) -> Tensor:
        return (1 + (2 * self.scale).log()).sum(1)

    def kl(self, other: Any) -> Tensor:
        distance = (self.mean - other.mean).abs()
        nearness = self.scale * (-distance / self.scale).exp()
        return ((distance + nearness) / other.scale - 1 + (other.scale / self.scale).log()).sum(1)


class Classic(Categorical):
    """In RLlib's form: two arguments, and a sample that takes no generator but draws from torch's global one."""

    def __init__(self, inputs: Tensor, model: Any) -> None:
        super().__init__(inputs, model)
        self.model_outputs = model.num_outputs

    def sample(self) -> Tensor:  # type: ignore[override]
        self._last = torch.distributions.Categorical(logits=self.inputs).sample()
        return self._last


def policy_of(probe: type[probes.Probe], dist: Any, seed: int = 1, **model: Any) -> tuple[PPO, RolloutWorker]:
    creator = EnvCreator(probe)
    policy = PPO(
        *creator.spaces(), model={"custom_action_dist": dist, "fcnet_hiddens": [16], **model}, seed=seed, kl_coef=0.2
    )
    return policy, RolloutWorker(creator, policy, num_envs=4, fragment_length=16, vectorization="sync", seed=1)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelCatalog, "_dists", dict(ModelCatalog._dists))


@pytest.mark.parametrize("named", [Laplace, f"{HERE}:Laplace", f"{HERE}.Laplace", "mine"])
def test_ppo_learns_two_iterations_with_a_custom_distribution(registry: None, named: Any) -> None:
    """It gets the model, and determines its number of outputs."""
    ModelCatalog.register_custom_action_dist("mine", Laplace)
    policy, worker = policy_of(probes.MatchedBox, named)
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
        policy, worker = policy_of(probes.MatchedReward, Classic)
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


@pytest.mark.parametrize("algorithm", [PPO, A2C, PG])
@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("SquashedGaussian", spaces.Box(-2, 6, (2,))),
        ("Beta", spaces.Box(-2, 6, (2,))),
        ("Dirichlet", WHOLE),
        ("GumbelSoftmax", spaces.Discrete(3)),
        ("Autoregressive", spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,))])),
        ("SquashedGaussian", CASES["nested"][0]),
        ("Dirichlet", spaces.Tuple([spaces.Discrete(3), WHOLE])),
    ],
    ids=str,
)
def test_every_named_distribution_goes_with_every_algorithm(algorithm: Any, name: str, space: spaces.Space) -> None:
    """Two iterations with `model.custom_action_dist=…`; all actions are in the environment's space."""

    class Acting(probes.Probe):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = space

        def reward(self, action: Any) -> float:
            return float(space.contains(action))

    creator = EnvCreator(Acting)
    policy = algorithm(*creator.spaces(), model={"custom_action_dist": name, "fcnet_hiddens": [8]}, seed=1)
    worker = RolloutWorker(creator, policy, num_envs=4, fragment_length=16, vectorization="sync", seed=1)
    for _ in range(2):
        fragment = worker.sample()
        assert float(fragment.rewards[fragment.valid].min()) == 1.0
        metrics = policy.learn_on_batch(fragment)
        assert all(math.isfinite(value) for value in metrics.values())


def test_an_autoregressive_policy_survives_its_weights_and_a_checkpoint(tmp_path: Any) -> None:
    """The heads that the catalog added are parameters like all others."""
    space = spaces.MultiDiscrete([2, 3])
    obs = spaces.Box(-1, 1, (3,))
    policy, other = (PPO(obs, space, model={"custom_action_dist": "Autoregressive"}, seed=seed) for seed in (1, 2))
    other.set_weights(policy.get_weights())
    rows = torch.randn(20, 3, generator=generator()).numpy()
    for copy_ in (other, policy.copy_for_acting()):
        copy_.seed_exploration(3), policy.seed_exploration(3)
        assert torch.equal(copy_.compute_actions(rows)[0], policy.compute_actions(rows)[0])
