"""ES and ARS: perturbations, returns of whole episodes, and the steps of the papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from lightning_rl.data.population_source import evaluate_perturbations
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.exploration import Exploration
from lightning_rl.models import FullyConnectedNetwork
from lightning_rl.policies import ARS, ES, Policy, evolution
from lightning_rl.policies.evolution import EvolutionStrategy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.feature_matrix import AnySpaces
from tests.refusals import not_refused

SHORT_PENDULUM = EnvCreator("Pendulum-v1", max_episode_steps=5)
SMALL: dict[str, Any] = {"model": {"fcnet_hiddens": [8]}}
BOTH = pytest.mark.parametrize("kind", [ES, ARS])


def small_policy(kind: type[EvolutionStrategy], env: EnvCreator = CARTPOLE, **keywords: Any) -> EvolutionStrategy:
    return kind(*env.spaces(), seed=1, **{**SMALL, **keywords})


def worker(policy: Policy, env: EnvCreator = CARTPOLE, num_envs: int = 2, **more: Any) -> RolloutWorker:
    how: dict[str, Any] = {"fragment_length": 1, "batch_mode": "complete_episodes", "seed": 1, "explore": False}
    return RolloutWorker(env, policy, num_envs=num_envs, vectorization="sync", **{**how, **more})


def evolved_vector(policy: EvolutionStrategy) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in policy.evolved_parameters()])


def population(policy: EvolutionStrategy, seeds: list[int], score: Callable[[Tensor], float]) -> SampleBatch:
    """Rows of one step whose returns are a function of the weights."""

    def returns(seed: int, scale: float) -> float:
        with policy.perturb(seed, scale):
            return score(evolved_vector(policy))

    return rows_with([[returns(seed, 1.0), returns(seed, -1.0)] for seed in seeds], seeds)


def rows_with(returns: list[list[float]], seeds: list[int]) -> SampleBatch:
    """Rows of one step with these returns of θ + σε and θ − σε."""
    ones = torch.ones(len(seeds), dtype=torch.int64)
    sides = torch.tensor(returns, dtype=torch.float64)
    return SampleBatch(seeds=torch.tensor(seeds), returns=sides, steps=ones, perturbed=ones.bool())


def noise_of(seed: int, weights: Tensor) -> Tensor:
    return torch.randn(len(weights), generator=torch.Generator().manual_seed(seed))


def fixed(policy: Any) -> dict[str, Tensor]:
    """The parameters that do not evolve."""
    return {name: parameter for name, parameter in policy.named_parameters() if not parameter.requires_grad}


# -- perturbing -------------------------------------------------------------------------------------------------------
@BOTH
def test_perturb_adds_or_subtracts_noise_and_restores_the_weights_after_errors_too(kind: Any) -> None:
    """θ + σε, θ − σε, and then θ bit for bit, also when an episode raises."""
    policy = small_policy(kind, sigma=0.5)
    before = evolved_vector(policy)
    moved = []
    for scale in (1.0, -1.0):
        with policy.perturb(7, scale):
            moved.append(evolved_vector(policy) - before)
    torch.testing.assert_close(moved[0], -moved[1])
    assert 0.3 < float(moved[0].std()) < 0.7
    with pytest.raises(RuntimeError, match="episode"), policy.perturb(8, 1.0):
        raise RuntimeError("episode")
    assert torch.equal(evolved_vector(policy), before)


def test_perturb_draws_the_same_noise_from_a_seed_in_every_policy() -> None:
    here, there = small_policy(ES), small_policy(ES)
    with here.perturb(11, 1.0), there.perturb(11, 1.0):
        assert torch.equal(evolved_vector(here), evolved_vector(there))
    with here.perturb(11, 1.0), there.perturb(12, 1.0):
        assert not torch.equal(evolved_vector(here), evolved_vector(there))


PAIR = spaces.MultiDiscrete([2, 3])


@pytest.mark.parametrize(
    ("action_space", "model"),
    [
        (spaces.Discrete(2), {"fcnet_hiddens": [8]}),
        (spaces.Discrete(2), {"use_lstm": True, "lstm_cell_size": 8}),
        (spaces.Discrete(2), {"vf_share_layers": True}),
        (PAIR, {"custom_action_dist": "Autoregressive"}),
    ],
    ids=str,
)
def test_es_leaves_out_parameters_that_only_values_depend_on(action_space: Any, model: dict[str, Any]) -> None:
    policy = ES(spaces.Box(-1, 1, (3,)), action_space, model=model)
    assert fixed(policy)
    assert all(("value" in name) != parameter.requires_grad for name, parameter in policy.named_parameters())


def test_es_uses_deterministic_actions_in_a_box_of_real_numbers_by_default() -> None:
    """One output for one action, where a Gaussian has a deviation too; two integers from 0 to 4 have 5 logits each."""
    assert small_policy(ES, SHORT_PENDULUM).model.num_outputs == 1
    assert small_policy(ARS, SHORT_PENDULUM, model={"custom_action_dist": "DiagGaussian"}).model.num_outputs == 2
    assert ES(spaces.Box(-1, 1, (3,)), spaces.Box(0, 4, (2,), np.int64)).model.num_outputs == 10


def test_es_builds_no_value_layers_but_the_last() -> None:
    """Its 8 weights and bias are the only parameters that do not evolve."""
    assert sum(parameter.numel() for parameter in fixed(small_policy(ES)).values()) == 9


class BatchNormModel(FullyConnectedNetwork):
    """Has batch norm, which raises on a single row in train mode."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.norm = nn.BatchNorm1d(self.preprocessor.size)

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        return super().forward({**input_dict, "obs_flat": self.norm(input_dict["obs_flat"])}, state, seq_lens)


def test_finding_unused_parameters_changes_neither_the_model_nor_the_generator() -> None:
    state = torch.random.get_rng_state()
    policy = small_policy(ES, model={"custom_model": BatchNormModel})
    assert fixed(policy) and all("value" in name for name in fixed(policy)) and policy.training
    assert policy.model.norm.num_batches_tracked == 0 and not policy.model.norm.running_mean.any()
    assert torch.equal(torch.random.get_rng_state(), state)


# -- returns ----------------------------------------------------------------------------------------------------------
@BOTH
def test_evaluate_perturbations_gives_mean_returns_of_whole_episodes(kind: Any) -> None:
    """CartPole's reward is 1: the mean return is the steps per environment; each step is in the filter statistics."""
    actor = worker(small_policy(kind), num_envs=3)
    rows = evaluate_perturbations(actor, seeds=[4, 5]).torch()
    assert rows["returns"].shape == (2, 2) and bool(rows["perturbed"].all())
    torch.testing.assert_close(rows["returns"].sum(1) * 3, rows["steps"].double())
    assert rows["obs_count"].tolist() == rows["steps"].tolist()
    episode_returns = actor.get_metrics()["episode_returns"]
    assert len(episode_returns) == 12
    torch.testing.assert_close(torch.tensor(episode_returns).view(4, 3).mean(1), rows["returns"].flatten().float())


def test_population_row_averages_environments_over_valid_steps() -> None:
    """θ + σε: 1 + 2 and 4, mean 3½, 3 steps; θ − σε: 10 and 20, mean 15, 2 steps. Observations of 99 are invalid."""

    def fragment(rewards: list[list[float]], valid: list[list[bool]]) -> SampleBatch:
        obs = torch.tensor(rewards).unsqueeze(-1).expand(-1, -1, 2)
        ended = torch.zeros(len(rewards), 2, dtype=torch.bool)
        columns = {"rewards": torch.tensor(rewards), "valid": torch.tensor(valid), "terminated": ended}
        return SampleBatch(obs=torch.cat((obs, obs[:1])), truncated=ended, **columns)

    sides = [
        fragment([[1.0, 4.0], [2.0, 99.0]], [[True, True], [True, False]]),
        fragment([[10.0, 20.0], [99.0, 99.0]], [[True, True], [False, False]]),
    ]
    policy = ES(spaces.Box(-9, 9, (2,)), spaces.Discrete(2))
    row = policy.population_row(7, sides, perturbed=False)
    assert row["seeds"].tolist() == [7] and row["perturbed"].tolist() == [False]
    assert row["returns"].tolist() == [[3.5, 15.0]] and row["returns"].dtype == torch.float64
    assert row["steps"].tolist() == [5] and row["obs_count"].tolist() == [5.0]
    seen = torch.tensor([1.0, 4.0, 2.0, 10.0, 20.0]).double()
    torch.testing.assert_close(row["obs_mean"], seen.mean().expand(1, 2))
    torch.testing.assert_close(row["obs_m2"], (seen - seen.mean()).square().sum().expand(1, 2))


def test_evaluate_perturbations_is_deterministic() -> None:
    policy = small_policy(ES, SHORT_PENDULUM)
    first, second = (evaluate_perturbations(worker(policy, SHORT_PENDULUM), seeds=[4, 5]) for _ in range(2))
    assert np.array_equal(first["returns"], second["returns"])
    assert not np.array_equal(first["returns"][:, 0], first["returns"][:, 1])


def test_rows_without_perturbation_give_own_return_and_do_not_change_the_step() -> None:
    policy = small_policy(ES)
    with_own = evaluate_perturbations(worker(policy), seeds=[4, 5], own=[4]).torch()
    assert with_own["perturbed"].tolist() == [True, True, False]
    own = float(with_own["returns"][2].mean())
    metrics = policy.learn_on_batch(with_own)
    assert metrics["own_return"] == pytest.approx(own)
    tried = with_own["returns"][:2]
    assert metrics["return_mean"] == pytest.approx(float(tried.mean()))
    assert metrics["return_max"] == pytest.approx(float(tried.max())) and tried.max() > tried.min()
    assert policy.env_steps == int(with_own["steps"].sum())
    twin = small_policy(ES)
    assert "own_return" not in twin.learn_on_batch(with_own[torch.tensor([True, True, False])])
    torch.testing.assert_close(evolved_vector(policy), evolved_vector(twin), rtol=0, atol=0)


# -- learning ---------------------------------------------------------------------------------------------------------
def test_an_es_step_is_the_paper_s_gradient_estimate_and_weight_decay() -> None:
    """SGD with rate 1: θ + Σ (rank⁺ − rank⁻) ε / 2nσ − λθ/σ. Two rows: ranks ½ −½, −1/6 1/6 (the losses' test)."""
    policy = small_policy(ES, sigma=0.25, weight_decay=0.1, lr=1.0, optimizer="sgd", observation_filter="none")
    before = evolved_vector(policy)
    policy.learn_on_batch(rows_with([[9.0, 1.0], [3.0, 5.0]], [4, 5]))
    expected = before + noise_of(4, before) - noise_of(5, before) / 3 - 0.4 * before
    torch.testing.assert_close(evolved_vector(policy), expected)


def test_an_ars_step_is_the_paper_s_update() -> None:
    """Two of three directions: θ + α / (b σ_R) Σ (r⁺ − r⁻) δ, α = 1, b = 2, σ_R = √17."""
    policy = small_policy(ARS, lr=1.0, top_directions=2, observation_filter="none")
    before = evolved_vector(policy)
    policy.learn_on_batch(rows_with([[4.0, 3.0], [10.0, 2.0], [0.0, 8.0]], [4, 5, 6]))
    expected = before + (8 * noise_of(5, before) - 8 * noise_of(6, before)) / (2 * 17**0.5)
    torch.testing.assert_close(evolved_vector(policy), expected)


class FirstDirection(EvolutionStrategy):
    """Gives the better side of the first perturbation the whole weight."""

    def perturbation_weights(self, returns: Tensor) -> Tensor:
        return torch.tensor([1.0, *[0.0] * (len(returns) - 1)]) * (returns[:, 0] - returns[:, 1]).sign()


@pytest.mark.parametrize("model", [{"fcnet_hiddens": [8]}, {"use_lstm": True, "lstm_cell_size": 4}], ids=str)
def test_a_subclass_of_evolution_strategy_needs_perturbation_weights_only(model: dict[str, Any]) -> None:
    policy = small_policy(FirstDirection, lr=0.5, optimizer="sgd", model=model)
    before = evolved_vector(policy)
    metrics = policy.learn_on_batch(rows_with([[1.0, 2.0], [9.0, 3.0]], [4, 5]))
    torch.testing.assert_close(evolved_vector(policy), before - 0.5 * noise_of(4, before))
    assert metrics["weights_norm"] == pytest.approx(float(before.norm()), rel=1e-5)
    assert policy.evolves and policy.uses_every_parameter and policy.is_recurrent is ("use_lstm" in model)


@BOTH
def test_perturbation_weights_compare_the_directions_of_all_ranks(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over two ranks equals one rank with all directions; ARS's two best directions are both on rank 1."""
    policy = small_policy(kind, **({"top_directions": 2} if kind is ARS else {}))
    shares = [torch.tensor([[1.0, 2.0], [2.0, 0.0]]).double(), torch.tensor([[9.0, 3.0], [4.0, 8.0]]).double()]
    alone = policy.perturbation_weights(torch.cat(shares))
    monkeypatch.setattr(evolution, "all_gather_objects", lambda _: [share.numpy() for share in shares])
    mine = []
    for rank, share in enumerate(shares):
        monkeypatch.setattr(type(policy), "global_rank", rank)
        mine.append(policy._rank_weights(share))
    torch.testing.assert_close(torch.cat(mine) / 2, alone)


CLIMBING = {ES: {"lr": 0.02, "weight_decay": 0.0}, ARS: {"lr": 0.1, "sigma": 0.1}}


@BOTH
def test_es_and_ars_climb_to_the_weights_of_the_highest_return(kind: Any) -> None:
    """Return −‖θ − 1‖²: the distance falls to a fifth; with a flipped sign it would grow."""
    policy = small_policy(kind, observation_filter="none", model={"fcnet_hiddens": []}, **CLIMBING[kind])

    def distance(weights: Tensor) -> float:
        return float((weights - 1.0).square().sum())

    before = distance(evolved_vector(policy))
    for iteration in range(150):
        seeds = [100 * iteration + number for number in range(8)]
        policy.learn_on_batch(population(policy, seeds, lambda weights: -distance(weights)))
    assert distance(evolved_vector(policy)) < 0.04 * before
    assert policy.gradient_steps == policy.iterations == 150 and policy.env_steps == 1200


@BOTH
def test_observation_statistics_take_in_the_population_s_observations_after_the_step(kind: Any) -> None:
    """Count, mean and variance are those of all observations; during the evaluation they do not change."""
    policy, seen = small_policy(kind), []

    class Collect:
        def on_sample_end(self, *, worker: Any, samples: SampleBatch) -> None:
            seen.append(samples.obs[:-1][samples.valid])

    policy.learn_on_batch(evaluate_perturbations(worker(policy, callbacks=[Collect()]), seeds=[4, 5]).torch())
    rows, moments = torch.cat(seen).double(), policy.observation_filter.moments  # type: ignore[union-attr]
    assert int(moments.count) == len(rows) == policy.env_steps
    torch.testing.assert_close(moments.mean, rows.mean(0))
    torch.testing.assert_close(moments.variance, rows.var(0, correction=0))
    torch.testing.assert_close(policy.observation_filter.shift, rows.mean(0).float())  # type: ignore[union-attr]


@BOTH
def test_es_and_ars_learn_with_lstms_and_nested_spaces(kind: Any) -> None:
    observed = spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "n": spaces.Discrete(3)})
    acted = spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,))))
    env = EnvCreator(AnySpaces, {"observation_space": observed, "action_space": acted})
    model = {"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [4]}
    policy = kind(observed, acted, model=model, observation_filter="mean_std", seed=1, lr=0.1)
    before = evolved_vector(policy)
    metrics = policy.learn_on_batch(evaluate_perturbations(worker(policy, env), seeds=[1, 2, 3]).torch())
    assert np.isfinite(metrics["loss"]) and metrics["grad_norm"] > 0 and not torch.equal(evolved_vector(policy), before)


# -- refusals ---------------------------------------------------------------------------------------------------------
def test_settings_out_of_their_range_and_reward_filters_are_refused() -> None:
    cases = [
        *((kind, {"sigma": 0.0}, r"policy\.sigma=0\.0; expected a number above 0") for kind in (ES, ARS)),
        *((kind, {"reward_filter": "sign"}, "none") for kind in (ES, ARS)),
        (ES, {"weight_decay": -1.0}, r"policy\.weight_decay=-1\.0"),
        (ARS, {"top_directions": 0}, r"policy\.top_directions=0"),
    ]
    assert not_refused(lambda kind, keywords: small_policy(kind, **keywords), cases) == []


class FixedNetwork(Exploration):
    """Exploration with a network that does not learn from fragments."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.network = nn.Linear(2, 2)


def test_es_accepts_exploration_with_a_network_that_does_not_learn() -> None:
    policy = small_policy(ES, exploration={"type": f"{__name__}:FixedNetwork"})
    assert isinstance(policy.exploration, FixedNetwork)


class CustomLossModel(FullyConnectedNetwork):
    """A model with a custom loss."""

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor:
        return policy_loss + sum(parameter.square().sum() for parameter in self.parameters())


def test_es_refuses_what_learns_from_fragments() -> None:
    """Models with a custom loss, and exploration."""
    custom, memory = {"custom_model": CustomLossModel}, {"use_lstm": True, "lstm_cell_size": 4}
    loss = r"ES.*CustomLossModel.*custom_loss"
    cases = [({"model": custom}, loss), ({"model": {**custom, **memory}}, loss)]
    strategies = ("curiosity", "rnd", "parameter_noise")
    cases += [({"exploration": {"type": strategy}}, "exploration ") for strategy in strategies]
    assert not_refused(lambda keywords: small_policy(ES, **keywords), cases, UnsupportedSpaceError) == []


def test_the_error_for_learning_from_a_fragment_names_data_population() -> None:
    policy = small_policy(ES)
    with pytest.raises(ConfigError, match="data=population"):
        policy.learn_on_batch(worker(policy).sample())
