"""CrossQ and XQC: numbers of the authors' program, and what replaces target networks.

The golden numbers are those of github.com/danielpalenicek/xqc (JAX), which has both algorithms, for the weights and the
rows that `wave` makes. Its running variances are biased, those here are not: they are converted before the comparison.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.errors import ConfigError, UnsupportedSpaceError
from lightning_rl.models.batch_norm import BatchNorm
from lightning_rl.policies import XQC, CrossQ
from lightning_rl.sample_batch import SampleBatch
from tests.models.parameters import parameter_vector

OBS, BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Box(-1, 1, (2,))
SMALL: dict[str, Any] = {"model": {"fcnet_hiddens": [4], "fcnet_activation": "relu"}, "critic_hiddens": [4]}
CLASSES = {"crossq": (CrossQ, {}), "xqc": (XQC, {"num_atoms": 5, "reward_filter": "none"})}
each = pytest.mark.parametrize("name", CLASSES)


def wave(shape: tuple[int, ...], offset: float, scale: float = 0.5) -> Tensor:
    """scale · sin(offset + 0.7 i) of entry i."""
    count = math.prod(shape)
    return torch.from_numpy(scale * np.sin(offset + 0.7 * np.arange(count))).float().reshape(shape)


def small_policy(name: str, **changes: Any) -> Any:
    policy_class, keywords = CLASSES[name]
    return policy_class(OBS, BOX, **{**SMALL, **keywords, **changes})


def rows(count: int = 32, **columns: Any) -> SampleBatch:
    return SampleBatch(
        {
            "obs": wave((count, 3), 1.0, 2.0),
            "next_obs": wave((count, 3), 2.0, 2.0),
            "actions": wave((count, 2), 3.0, 0.9),
            "rewards": wave((count,), 5.0, 1.0),
            "terminated": torch.arange(count) % 5 == 2,
            "discounts": torch.full((count,), 0.9),
            **columns,
        }
    )


@torch.no_grad()
def fill(policy: Any, name: str) -> None:
    """Weights of the golden numbers: parameter i of a network in the order of the authors' names has offset 0.3 i."""

    def fill_critic(critic: Any, start: float) -> None:
        networks = critic.networks
        kernels = [(networks.weights[0], 4 + (name == "crossq")), (networks.weights[1], 6 + (name == "crossq"))]
        biases = [(networks.biases[-1], 5 + (name == "crossq"))]
        fill_parts(networks.batch_norms, kernels, [*biases, *([(networks.biases[0], 4)] * (name == "crossq"))], start)

    def fill_parts(norms: Any, kernels: Any, biases: Any, start: float) -> None:
        for number, layer in enumerate(zip(*norms, strict=True)):  # of each network
            shape = (len(layer), len(layer[0].bias))
            values = wave(shape, start + 0.6 * number, 0.2), wave(shape, start + 0.6 * number + 0.3, 0.2)
            for norm, bias, weight in zip(layer, *values, strict=True):
                norm.bias.copy_(bias)
                norm.weight.copy_(1.0 + weight)
        for parameter, place in kernels:
            parameter.copy_(wave(tuple(parameter.shape), start + 0.3 * place))
        for parameter, place in biases:
            parameter.copy_(wave(tuple(parameter.shape), start + 0.3 * place, 0.2))

    fill_critic(policy.critic, 0.0)
    if name == "xqc":
        fill_critic(policy.target_critic, 0.5)
    (layer,), head, shift = policy.model.trunk.layers, policy.model.head.linear, int(name == "crossq")
    fill_parts([policy.model.trunk.batch_norms], [], [(layer.bias, 4)] * shift, 0.0)
    layer.weight.copy_(wave((3, 4), 0.3 * (4 + shift)).T)
    log_std, mean = (
        (wave((4, 2), 0.3 * (place + shift)), wave((2,), 0.3 * (place - 1 + shift), 0.2)) for place in (6, 8)
    )
    head.weight.copy_(torch.cat([mean[0], log_std[0]], 1).T)
    head.bias.copy_(torch.cat([mean[1], log_std[1]]))


GOLDEN: dict[str, dict[str, Any]] = {
    "crossq": {
        "value_loss": 0.967680811882019,
        "critic": [0.31038815, 0.44083485, 0.33299944, 0.42825228, 1.526611328125, 0.26504007, 1.07602954, 0.5018459],
        "mean": [[0.002195996, 0.002742, 0.00246, 0.001436], [0.001214, 0.000715996, 0.000397, 0.001052999]],
        "var": [[0.990472, 0.99088, 0.990938, 0.990394], [0.990297, 0.990156, 0.990088, 0.99027]],
        "policy_loss": -0.0643998458981514,
        "actor": [0.01108347, 0.07610081, 0.03339605, 0.03267271, 0.27552241, 0.01835069, 0.21184714, 0.09360395],
    },
    "xqc": {
        "value_loss": 3.2158830165863037,
        "critic": [0.0, 0.0382934, 0.08974082, 0.08372301, 0.15831734, 0.1960263, 0.23457063],
        "mean": [[-0.000207, -0.000212, -0.000118, 0.000032], [0.000218, 0.000216, 0.000112, -0.000045]],
        "var": [[0.990688, 0.991356, 0.992161, 0.991767], [0.991564, 0.991448, 0.990822, 0.990725]],
        "policy_loss": 0.6071911454200745,
        "actor": [0.0, 0.10463209, 0.02704448, 0.02450683, 0.35040024, 0.16166858, 0.06024952],
    },
}


PARTS = ("bias", "weight")


def gradient_norms(norms: Any, others: Any) -> list[float]:
    """Of biases and scales of the networks' batch norms, layer by layer, then of the `others`."""
    layers = list(zip(*norms, strict=True))
    of_norms = [torch.stack([getattr(norm, part).grad for norm in layer]) for layer in layers for part in PARTS]
    return [float(gradient.norm()) for gradient in [*of_norms, *(parameter.grad for parameter in others)]]


@each
def test_losses_gradients_and_running_statistics_are_those_of_the_authors(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """γ = 0.9, α = 0.2 in the targets and 0 in the actor's loss, whose actions are tanh of the means."""
    policy, golden, batch = small_policy(name), GOLDEN[name], rows()
    fill(policy, name)
    following = SimpleNamespace(
        rsample=lambda: wave((32, 2), 4.0, 0.9), sampled_action_logp=lambda: wave((32,), 6.0, 1.0)
    )
    with monkeypatch.context() as patch:
        patch.setattr(policy, "inputs_and_distribution", lambda *_, **__: (None, following))
        loss, _, _ = policy.loss_of_critics(batch, torch.tensor(0.2))
    assert float(loss.detach()) == pytest.approx(golden["value_loss"], rel=1e-5)
    loss.backward()
    networks = policy.critic.networks
    layers = [parameter for pair in networks._layers for parameter in pair if parameter is not None]
    assert gradient_norms(networks.batch_norms, layers) == pytest.approx(golden["critic"], rel=1e-4, abs=1e-6)
    for mean, var, norms in zip(golden["mean"], golden["var"], networks.batch_norms, strict=True):
        for norm in norms:
            norm.running_var.copy_(0.99 + (norm.running_var - 0.99) * 63 / 64)
        assert_close(norms[1].running_mean, torch.tensor(mean), rtol=0, atol=2e-6)
        assert_close(norms[1].running_var, torch.tensor(var), rtol=0, atol=2e-6)

    policy.zero_grad()
    monkeypatch.setattr(Tensor, "normal_", lambda self, **_: self.zero_())
    policy_loss, _ = policy.policy_loss(batch, torch.tensor(0.0))
    assert float(policy_loss.detach()) == pytest.approx(golden["policy_loss"], rel=1e-5)
    policy_loss.backward()
    trunk, head = policy.model.trunk, policy.model.head.linear
    layers = [*trunk.layers[0].parameters(), head.weight, head.bias]
    assert gradient_norms([trunk.batch_norms], layers) == pytest.approx(golden["actor"], rel=1e-4, abs=1e-6)
    assert all(parameter.grad is None for parameter in policy.critic.parameters())


def test_xqc_projects_the_weights_of_the_authors_to_theirs() -> None:
    """Kernels of the hidden layer and of the heads; first column of each."""
    policy = small_policy("xqc")
    fill(policy, "xqc")
    policy.project_weights()
    hidden, mean = policy.model.trunk.layers[0].weight, policy.model.head.linear.weight
    assert_close(hidden[0], torch.tensor([0.717889, -0.582916, 0.380584]), rtol=0, atol=1e-6)
    assert_close(mean[0], torch.tensor([0.516816, -0.46815, -0.675956, 0.238369]), rtol=0, atol=1e-6)
    first, last = policy.critic.networks.weights
    expected = [0.705886, -0.573169, 0.37422, -0.132028, -0.125421]
    assert_close(first[0, :, 0], torch.tensor(expected), rtol=0, atol=1e-6)
    assert_close(last[0, :, 0], torch.tensor([0.679756, -0.580931, 0.408278, -0.183738]), rtol=0, atol=1e-6)


# -- batch normalization ----------------------------------------------------------------------------------------------
def test_batch_renormalization_is_that_of_the_paper() -> None:
    """Ioffe 2017, algorithm 1, in float64: r clipped to [1/3, 3], d to ±5; far columns reach both limits."""
    x = np.random.default_rng(0).normal([0.0, 2.0, 60.0], [1.0, 9.0, 0.1], (50, 3))
    mean, var = np.array([0.5, 1.0, 3.0]), np.array([2.0, 4.0, 1.0])
    norm = BatchNorm(3)
    norm.renormalizes = True
    norm.running_mean.copy_(torch.from_numpy(mean))
    norm.running_var.copy_(torch.from_numpy(var))
    norm.weight.data = torch.tensor([1.0, 2.0, 3.0])
    sigma, of_batch = np.sqrt(var + 1e-3), np.sqrt(x.var(0, ddof=1) + 1e-3)
    r, d = np.clip(of_batch / sigma, 1 / 3, 3), np.clip((x.mean(0) - mean) / sigma, -5, 5)
    assert (r[1], r[2], d[2]) == (3, 1 / 3, 5) and 1 / 3 < r[0] < 1 and abs(d[0]) < 5
    expected = ((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3) * r + d) * [1.0, 2.0, 3.0]
    assert_close(norm(torch.from_numpy(x).float()), torch.from_numpy(expected).float(), rtol=1e-4, atol=1e-4)
    assert_close(norm.running_mean, torch.from_numpy(0.99 * mean + 0.01 * x.mean(0)).float())


def test_batch_renormalization_begins_after_its_gradient_steps() -> None:
    policy = small_policy("crossq", renorm_after=2)
    for step in range(4):
        policy.learn_on_batch(rows())
        assert {m.renormalizes for m in policy.modules() if isinstance(m, BatchNorm)} == {step >= 2}


@each
def test_acting_and_evaluation_leave_the_running_statistics(name: str) -> None:
    policy = small_policy(name)
    policy.learn_on_batch(rows())
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    alone = policy.compute_actions(wave((1, 3), 0.0), explore=False)[0]
    among = policy.compute_actions(torch.cat([wave((1, 3), 0.0), wave((9, 3), 1.0, 9.0)]), explore=False)[0]
    assert_close(among[:1], alone)
    assert policy.training and all(torch.equal(before[key], value) for key, value in policy.state_dict().items())


@each
def test_weights_bring_the_running_statistics_to_workers(name: str) -> None:
    policy = small_policy(name)
    for _ in range(3):
        policy.learn_on_batch(rows())
    twin = policy.copy_for_acting()
    assert any("running_mean" in key for key in policy.get_weights())
    obs = wave((4, 3), 0.0)
    assert torch.equal(twin.compute_actions(obs, explore=False)[0], policy.compute_actions(obs, explore=False)[0])


# -- learning ---------------------------------------------------------------------------------------------------------
@each
def test_actor_and_temperature_step_every_policy_delay_steps(name: str) -> None:
    policy = small_policy(name, policy_delay=3)
    for step in range(1, 7):
        before = [
            parameter_vector(policy.critic),
            parameter_vector(policy.model.head),
            policy.log_alpha.detach().clone(),
        ]
        policy.learn_on_batch(rows())
        after = [parameter_vector(policy.critic), parameter_vector(policy.model.head), policy.log_alpha.detach()]
        moved = [not torch.allclose(*pair, rtol=0, atol=1e-6) for pair in zip(before, after, strict=True)]
        assert moved == [True, step % 3 == 0, step % 3 == 0], step


@each
def test_weights_of_replayed_rows_scale_their_errors(name: str) -> None:
    policy = small_policy(name)
    losses = []
    for columns in ({"weights": torch.full((32,), 2.0)}, {"weights": torch.ones(32)}, {}):
        torch.manual_seed(0)
        losses.append(float(policy.loss_of_critics(rows(**columns), torch.tensor(0.0))[0].detach()))
    assert losses[0] == pytest.approx(2 * losses[1], rel=1e-5) and losses[1] == pytest.approx(losses[2], rel=1e-6)


def test_xqc_keeps_all_weights_of_linear_units_at_norm_one() -> None:
    policy = small_policy("xqc", num_critics=3)
    for _ in range(4):
        policy.learn_on_batch(rows())
    for weight in [
        *policy.critic.networks.weights,
        *(m.weight for m in policy.model.modules() if type(m) is nn.Linear),
    ]:
        assert_close(weight.norm(dim=1), torch.ones_like(weight.norm(dim=1)))


def test_xqc_takes_the_targets_of_the_critic_with_the_lowest_mean() -> None:
    """Means −1 and 2 in the first row, 3 and 0 in the second: the first critic, then the second."""
    policy = small_policy("xqc", v_min=-4.0, v_max=4.0)
    probs = torch.zeros(2, 2, 5)
    probs[0, 0, 1] = probs[0, 0, 2] = 0.5  # atoms −2 and 0
    probs[1, 0, 3] = 1.0
    probs[0, 1, 3] = probs[0, 1, 4] = 0.5
    probs[1, 1, 2] = 1.0
    assert_close(policy.lowest(probs), torch.stack([probs[0, 0], probs[1, 1]]))


def test_the_automatic_target_entropy() -> None:
    assert small_policy("crossq").target_entropy == -2.0
    assert small_policy("xqc").target_entropy == -1.0
    assert small_policy("xqc", target_entropy=None).target_entropy is None


@pytest.mark.parametrize("keywords", [{"tau": 0.5}, {"target_critics": 1}], ids=str)
def test_crossq_refuses_options_of_target_networks(keywords: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"policy.{next(iter(keywords))}"):
        small_policy("crossq", **keywords)
    assert not hasattr(small_policy("crossq"), "target_critic")


@each
def test_discrete_actions_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match="Discrete"):
        CLASSES[name][0](OBS, spaces.Discrete(2))


@each
def test_rewards_are_learned(name: str) -> None:
    """Episodes of one step with the reward −(a₁ − ½)²: the best action is ½, its value 0."""
    wide = {"model": {"fcnet_hiddens": [32], "fcnet_activation": "relu"}, "critic_hiddens": [32]}
    atoms = {"num_atoms": 21, "v_min": -3.0, "v_max": 1.0} if name == "xqc" else {}
    policy = small_policy(name, **wide, **atoms, lr=5e-3, target_entropy=None, initial_alpha=0.01, policy_delay=1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(250):
        actions = torch.rand(64, 2, generator=generator) * 2 - 1
        obs = torch.randn(64, 3, generator=generator)
        columns = {"obs": obs, "next_obs": obs, "actions": actions, "rewards": -((actions[:, 0] - 0.5) ** 2)}
        policy.learn_on_batch(rows(64, **columns, terminated=torch.ones(64, dtype=torch.bool)))
    best = policy.compute_actions(torch.randn(64, 3, generator=generator), explore=False)[0][:, 0]
    assert abs(float(best.mean()) - 0.5) < 0.35  # the bounds are −1 and 1


def test_xqc_leaves_the_weights_of_exploration_alone() -> None:
    policy = small_policy("xqc", exploration={"type": "curiosity"})
    before = parameter_vector(policy.exploration)
    policy.project_weights()
    assert torch.equal(parameter_vector(policy.exploration), before)
    assert any(abs(float(weight.norm()) - 1.0) > 1e-2 for weight in policy.exploration.parameters() if weight.dim() > 1)
