"""SimBa's residual networks against its equations in NumPy, and as networks of the algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.errors import ConfigError
from lightning_rl.models import ModelCatalog
from lightning_rl.models.critics import CriticEnsemble
from lightning_rl.models.simba import ResidualMLP
from lightning_rl.policies import DQN, PPO, SAC, TD3, CrossQ
from lightning_rl.sample_batch import SampleBatch

BOX, PUSH, TURN = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,)), spaces.Discrete(4)
SIMBA: dict[str, Any] = {"fcnet_residual": True, "fcnet_hiddens": [8, 8], "fcnet_activation": "relu"}


def normed(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale + shift


def reference(network: ResidualMLP, x: np.ndarray) -> np.ndarray:
    """h ← h + W₂ ReLU(W₁ LN(h)) for each block, between a linear layer and a normalization (figure 4 of the paper)."""
    weights = {name: value.numpy().astype(np.float64) for name, value in network.state_dict().items()}

    def linear(name: str, inputs: np.ndarray) -> np.ndarray:
        return inputs @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    hidden = linear("first", x)
    for block in range(len(network.blocks)):
        name = f"blocks.{block}"
        inner = normed(hidden, weights[f"{name}.norm.weight"], weights[f"{name}.norm.bias"])
        hidden = hidden + linear(f"{name}.down", np.maximum(linear(f"{name}.up", inner), 0))
    features = normed(hidden, weights["norm.weight"], weights["norm.bias"])
    return linear("last", features) if network.last is not None else features


def shuffled(module: torch.nn.Module) -> Any:
    """With parameters that are neither 0 nor 1."""
    torch.manual_seed(3)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0.3, 0.5)
    return module


@pytest.mark.parametrize("outputs", [None, 2])
def test_output_is_that_of_the_papers_equations(outputs):
    network, x = shuffled(ResidualMLP(3, [8, 8], "relu", outputs)), torch.randn(5, 3)
    assert_close(network(x).detach().double().numpy(), reference(network, x.double().numpy()), rtol=1e-4, atol=1e-5)


def test_first_weights_are_the_papers():
    torch.manual_seed(0)
    network = ResidualMLP(64, [64], "relu")
    assert_close(network.first.weight @ network.first.weight.T, torch.eye(64), rtol=0, atol=1e-5)
    block = network.blocks[0]
    assert block.up.weight.shape == (256, 64)
    for layer, inputs in ((block.up, 64), (block.down, 256)):
        assert float(layer.weight.detach().std()) == pytest.approx((2 / inputs) ** 0.5, rel=0.05)


def test_each_critic_of_an_ensemble_has_a_network_of_its_own():
    critics = shuffled(CriticEnsemble(BOX, PUSH, SIMBA, count=2, action_size=2))
    obs, actions = torch.randn(5, 3), torch.randn(5, 2)
    inputs = torch.cat([obs, actions], 1).double().numpy()
    wanted = np.concatenate([reference(network, inputs).T for network in critics.networks])
    assert_close(critics({"obs_flat": obs}, actions).detach().double().numpy(), wanted, rtol=1e-4, atol=1e-5)


def rows(actions: spaces.Space[Any], count: int = 16) -> SampleBatch:
    """Transitions, with what PPO's loss reads beside them."""
    drawn = torch.randint(4, (count,)) if isinstance(actions, spaces.Discrete) else torch.rand(count, 2)
    numbers = ("rewards", "advantages", "value_targets", "vf_preds", "action_logp")
    return SampleBatch(
        {"obs": torch.randn(count, 3), "next_obs": torch.randn(count, 3), "actions": drawn}
        | {"terminated": torch.rand(count) < 0.2, "discounts": torch.full((count,), 0.99)}
        | {name: torch.randn(count) for name in numbers}
    )


@pytest.mark.parametrize(
    ("policy_class", "actions"), [(PPO, TURN), (PPO, PUSH), (DQN, TURN), (SAC, PUSH), (SAC, TURN), (TD3, PUSH)]
)
def test_a_gradient_step_changes_the_residual_layers_of_each_network(policy_class, actions):
    own = {"target_kl": None} if policy_class is PPO else {}  # the rows are of no policy
    policy = policy_class(BOX, actions, model=SIMBA, seed=0, **own)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    for _ in range(2):  # TD3's actor steps at every second one
        policy.learn_on_batch(rows(actions))
    names = [name for name, _ in policy.named_parameters() if "blocks" in name and "target" not in name]
    unchanged = [name for name in names if torch.equal(policy.state_dict()[name], before[name])]
    assert names and not unchanged


def test_networks_without_blocks_or_of_several_widths_are_refused():
    for hiddens in ([], [8, 16]):
        with pytest.raises(ConfigError) as caught:
            ModelCatalog.get_model(BOX, TURN, 4, {**SIMBA, "fcnet_hiddens": hiddens})
        assert caught.value.key == "model.fcnet_hiddens"


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("model.layer_norm", lambda: PPO(BOX, TURN, model={**SIMBA, "layer_norm": True})),
        ("model.batch_norm", lambda: CrossQ(BOX, PUSH, model=SIMBA)),
        ("policy.critic_dropout", lambda: SAC(BOX, PUSH, model=SIMBA, critic_dropout=0.1)),
    ],
)
def test_what_has_no_place_in_these_networks_is_refused(key, make):
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.key == key
