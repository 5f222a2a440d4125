"""SAC, REDQ, TQC, TD3 and DDPG: targets, critics, actors and temperatures, with numbers worked by hand."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from functools import partial
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.errors import ConfigError
from lightning_rl.policies import SAC, TD3
from lightning_rl.sample_batch import SampleBatch
from tests.models.parameters import parameter_vector
from tests.policies.off_policy_algorithms import (
    CRITICS,
    NORMED,
    OBS,
    SMALL,
    TWO,
    each_with_critics,
    gradients,
    set_constant_critics,
    small_policy,
    td_errors,
    transitions,
)


# -- actors and critics -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["sac", "td3", "tqc", "sac, discrete"])
def test_td_errors_average_the_absolute_errors_of_the_critics(name: str) -> None:
    """Two critics give t + 3 and t − 1, the target is t: the TD error is (3 + 1) / 2, not 1; `q_mean` is t + 1.

    t is 20.
    """
    policy = small_policy(name, **({"dropped_quantiles": 0} if name == "tqc" else {}))
    set_constant_critics(policy.critic, 23.0, 19.0)
    batch = transitions(name, rewards=torch.full((6,), 20.0), terminated=torch.ones(6, dtype=torch.bool))
    assert_close(td_errors(policy, batch), torch.full((6,), 2.0))
    metrics = policy.loss(batch)[1]
    assert [metrics[name].item() for name in ("q_mean", "q_min", "q_max")] == pytest.approx([21.0, 19.0, 23.0])


@pytest.mark.parametrize("name", ["sac", "ddpg"])
def test_target_critics_move_by_tau_at_every_step(name: str) -> None:
    policy = small_policy(name, tau=0.25)
    for _ in range(3):
        before = parameter_vector(policy.target_critic)
        policy.learn_on_batch(transitions(name))
        assert_close(parameter_vector(policy.target_critic), 0.75 * before + 0.25 * parameter_vector(policy.critic))


def test_sac_s_target_critics_may_be_copies_of_every_third_step() -> None:
    policy = small_policy("sac", tau=1.0, target_update_interval=3)
    first = parameter_vector(policy.target_critic)
    for step in range(1, 7):
        policy.learn_on_batch(transitions("sac"))
        same = torch.equal(parameter_vector(policy.target_critic), parameter_vector(policy.critic))
        assert same == (step % 3 == 0)
        assert torch.equal(parameter_vector(policy.target_critic), first) == (step < 3)


@pytest.mark.parametrize("shapes", [((), (1,)), ((2, 2), (4,))], ids=str)
@pytest.mark.parametrize("name", ["sac", "tqc", "td3", "ddpg"])
def test_critics_read_actions_of_any_shape_as_vectors(name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Actions of two shapes with the same numbers give the same loss."""
    (policy_class, keywords), found = CRITICS[name], []
    actions = torch.rand(6, *shapes[1], generator=torch.Generator().manual_seed(1)) - 0.5
    for shape in shapes:
        policy: Any = policy_class(OBS, spaces.Box(-1, 1, shape), seed=1, **SMALL, **keywords)
        policy.gradient_steps = 1
        torch.manual_seed(0)
        found.append(policy.loss(transitions(name, actions=actions.view(6, *shape))))
    assert_close(*found)


@each_with_critics
def test_actor_and_critics_get_gradients_from_their_own_losses_only(name: str) -> None:
    """Weights of 0 leave the critics without gradient and do not change the actor's."""
    policy, (ones, zeros) = small_policy(name), (torch.ones(6), torch.zeros(6))
    with_error, without = (gradients(policy, transitions(name, weights=weights)) for weights in (ones, zeros))
    for key in with_error:
        if key.startswith("critic."):
            assert bool(with_error[key].any()) and not without[key].any()
        elif key.startswith("model.") and "value" not in key:
            assert bool(without[key].any())
            assert_close(with_error[key], without[key], rtol=0, atol=0)


@each_with_critics
def test_actor_and_critics_descend_the_reported_losses(name: str) -> None:
    policy, batch = small_policy(name), transitions(name)
    policy.gradient_steps = 1
    loss, metrics = policy.loss(batch)
    for part, reported in ((policy.model, "policy_loss"), (policy.critic, "value_loss")):
        parameters = list(part.parameters())
        whole, own = (
            torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
            for value in (loss, metrics[reported])
        )
        assert max(float(gradient.abs().max()) for gradient in own) > 1e-4
        assert_close(whole, own)


def test_sac_reports_alpha_and_entropy_only_with_log_extra() -> None:
    policy = small_policy("sac", initial_alpha=0.25)
    metrics = policy.loss(transitions("sac"))[1]
    assert metrics["alpha"].item() == pytest.approx(0.25)
    excess = metrics["entropy"].item() - policy.target_entropy
    assert metrics["alpha_loss"].item() == pytest.approx(math.log(0.25) * excess, rel=1e-5)
    policy.log_extra = False
    assert set(policy.loss(transitions("sac"))[1]) == {"value_loss", "policy_loss", "td_errors"}


# -- TD3 and target networks ------------------------------------------------------------------------------------------
def test_td3_updates_actor_and_targets_every_policy_delay_steps_only() -> None:
    policy = small_policy("td3", policy_delay=3, tau=0.5)
    parts = {part: getattr(policy, part) for part in ("critic", "model", "target_model", "target_critic")}
    optimizer = policy.learner.optimizer.torch_optimizer
    delayed = next(group["params"] for group in optimizer.param_groups if "every" in group)
    for step in range(1, 7):
        before = {part: parameter_vector(module) for part, module in parts.items()}
        moments = [copy.deepcopy(optimizer.state[parameter]) for parameter in delayed]
        policy.learn_on_batch(transitions("td3"))
        moved = [not torch.equal(before[part], parameter_vector(module)) for part, module in parts.items()]
        assert moved == [True, *[step % 3 == 0] * 3], f"step {step}"
        assert all(map(moments_equal, moments, (optimizer.state[each] for each in delayed))) == (step % 3 != 0)
        if step % 3 == 0:
            for part in ("model", "critic"):
                halfway = (before[f"target_{part}"] + parameter_vector(parts[part])) / 2
                assert_close(parameter_vector(parts[f"target_{part}"]), halfway)


def test_td3_updates_its_actor_every_policy_delay_steps_with_apply_gradients_too() -> None:
    policy = small_policy("td3", policy_delay=3)
    changed = []
    for _ in range(6):
        before = {part: parameter_vector(getattr(policy, part)) for part in ("model", "critic")}
        policy.apply_gradients(policy.compute_gradients(transitions("td3"))[0])
        assert not torch.equal(before["critic"], parameter_vector(policy.critic))
        changed.append(not torch.equal(before["model"], parameter_vector(policy.model)))
    assert changed == [False, False, True] * 2


def moments_equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether an optimizer's states of one parameter are equal; they are empty before its first step."""
    return set(one) == set(other) and all(torch.equal(one[key], other[key]) for key in one)


def test_td3_s_target_is_the_lowest_of_its_target_critics() -> None:
    """Target critics give 3 and −1 everywhere: the target is r + 0.9 · (−1)."""
    policy = small_policy("td3", target_noise=0.0)
    set_constant_critics(policy.target_critic, 3.0, -1.0)
    set_constant_critics(policy.critic, 0.0, 0.0)
    assert_close(td_errors(policy, transitions("td3", rewards=torch.ones(6))), torch.full((6,), 1.0 - 0.9))


class FirstActionCritic(nn.Module):
    """A critic whose value is the first number of the action."""

    def forward(self, inputs: Any, actions: Tensor) -> Tensor:
        return actions[None, :, 0]


@pytest.mark.parametrize(("noise", "clip"), [(100.0, 0.25), (1e-9, 0.25), (100.0, 0.0)])
def test_td3_s_target_noise_stays_within_its_clip_and_the_action_space(noise: float, clip: float) -> None:
    """The target critic gives the noisy action: it is in [−1, 1] and within ± clip of the actor's action."""
    policy = small_policy("td3", target_noise=noise, target_noise_clip=clip, num_critics=1)
    policy.target_critic = FirstActionCritic()
    batch = transitions("td3", count=200)
    undisturbed = policy.actor_actions(policy.target_model, policy.input_dict(batch.next_obs))[:, 0]
    found = policy.bootstrap_values(batch)
    distance = (found - undisturbed).abs()
    assert float(found.abs().max()) <= 1.0 and float(distance.max()) <= clip + 1e-6
    if noise > 1 and clip:
        assert float((distance - clip).abs().median()) < 1e-6  # nearly all noise is cut


@pytest.mark.parametrize("name", ["sac", "tqc", "td3", "sac, discrete"])
def test_is_training_is_false_for_target_networks_and_true_for_the_others(name: str) -> None:
    """A custom model may read `is_training` in its input."""
    policy, modes = small_policy(name).train(), defaultdict(set)

    def record(part: str, network: nn.Module, inputs: Any) -> None:
        modes[part].add(inputs[0]["is_training"])

    for part, network in policy.named_children():
        if part in ("model", "critic", "target_model", "target_critic"):
            network.register_forward_pre_hook(partial(record, part))
    policy.gradient_steps = 1
    policy.loss(transitions(name))
    assert modes == {part: {not part.startswith("target_")} for part in modes} and len(modes) >= 3


def test_discrete_sac_gives_forbidden_actions_probability_0_now_and_next() -> None:
    policy, mask = small_policy("sac, discrete"), torch.tensor([[True, False], [False, True]]).repeat(3, 1)
    batch = transitions(action_mask=mask, next_action_mask=~mask)
    for following, allowed in ((False, mask), (True, ~mask)):
        _, dist = policy.inputs_and_distribution(batch, following=following)
        assert_close(dist.log_probs().exp(), allowed.float())


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_target_critics_are_in_eval_mode_except_networks_with_dropout(dropout: float) -> None:
    policy = small_policy("sac", critic_dropout=dropout, **NORMED).train()
    target = policy.target_critic
    assert target.networks.training is (dropout > 0)
    assert not target.training and not any(module.training for module in target.encoder.modules())
    assert all(module.training for module in policy.critic.modules())


@pytest.mark.parametrize(
    ("delay", "actor_scale", "expected"),
    [
        (1, 3.0, {("critic", "model"): (3.0, 1)}),
        (1, 2.0, {("critic",): (3.0, 1), ("model",): (2.0, 1)}),
        (2, 3.0, {("critic",): (3.0, 1), ("model",): (3.0, 2)}),
    ],
)
def test_td3_s_parameter_groups_have_their_own_learning_rates_and_intervals(
    delay: int, actor_scale: float, expected: dict[tuple[str, ...], tuple[float, int]]
) -> None:
    """One group where both are equal; frozen parameters and target networks are in no group."""
    policy = small_policy("td3", policy_delay=delay, actor_lr_scale=actor_scale, critic_lr_scale=3.0)
    fixed = [policy.model.head.linear.bias, policy.critic.networks.biases[0]]
    for parameter in fixed:
        parameter.requires_grad_(False)
    names = {id(parameter): key for key, parameter in policy.named_parameters()}
    found = [{names[id(p)] for p in group["params"]} for group in policy.parameter_groups()]
    learned = {key for key, p in policy.named_parameters() if not key.startswith("target_") and p.requires_grad}
    assert set().union(*found) == learned and sum(map(len, found)) == len(learned) == len(names) // 2 - len(fixed)
    parts = [tuple(sorted({key.split(".")[0] for key in keys})) for keys in found]
    settings = [(group["lr_scale"], group.get("every", 1)) for group in policy.parameter_groups()]
    assert dict(zip(parts, settings, strict=True)) == expected


def test_td3_copies_the_bounds_of_its_action_space_and_does_not_save_them() -> None:
    """They are no view of the space's arrays, and follow from the space."""
    space = spaces.Box(-3.0, 5.0, (2,))
    policy: Any = TD3(OBS, space, normalize_actions=False, **SMALL)
    space.low[:], space.high[:] = 0.0, 0.0
    assert policy.low.tolist() == [-3.0, -3.0] and policy.high.tolist() == [5.0, 5.0]
    assert not {"low", "high"} & set(policy.state_dict())


def test_td3_s_target_noise_has_mean_0_and_deviation_target_noise() -> None:
    """The target actor gives 0; a clip at ± 0.25 hardly changes a deviation of 0.1."""
    policy = small_policy("td3", target_noise=0.1, target_noise_clip=0.25, num_critics=1)
    policy.target_critic = FirstActionCritic()
    for parameter in policy.target_model.parameters():
        nn.init.zeros_(parameter)
    torch.manual_seed(0)
    found = policy.bootstrap_values(transitions("td3", count=2000))
    assert abs(float(found.mean())) < 0.01 and float(found.std()) == pytest.approx(0.1, rel=0.1)


# -- SAC --------------------------------------------------------------------------------------------------------------
def test_discrete_sac_takes_the_better_of_two_actions_nine_times_in_ten_by_default() -> None:
    """A bandit with rewards 0 and 1: an entropy of ½ log 2 is p = 0.89; the paper's 0.98 log 2 would be p = 0.58."""
    policy = SAC(OBS, TWO, **SMALL, lr=1e-2, initial_alpha=0.1, tau=0.1)
    actions, obs, ended = torch.arange(64) % 2, torch.zeros(64, 3), torch.ones(64, dtype=torch.bool)
    columns = {"actions": actions, "rewards": actions.float(), "terminated": ended, "discounts": torch.zeros(64)}
    batch = SampleBatch(obs=obs, next_obs=obs, **columns)
    for _ in range(400):
        policy.learn_on_batch(batch)
    assert 0.85 < policy.distribution_of(batch).log_probs().exp()[0, 1].item() < 0.93


@pytest.mark.parametrize("name", ["sac", "sac, discrete"])
def test_the_gradient_of_sac_s_log_alpha_is_entropy_minus_its_target(name: str) -> None:
    policy = small_policy(name, target_entropy=-2.0)
    loss, metrics = policy.loss(transitions(name))
    loss.backward()
    assert policy.log_alpha.grad.item() == pytest.approx(metrics["entropy"].item() + 2.0, rel=1e-5)


@pytest.mark.parametrize("name", ["sac", "sac, discrete"])
def test_sac_s_temperature_is_constant_and_saved_without_a_target_entropy(name: str) -> None:
    policy = small_policy(name, target_entropy=None, initial_alpha=0.3)
    for _ in range(3):
        metrics = policy.learn_on_batch(transitions(name))
    assert metrics["alpha"] == pytest.approx(0.3) and "log_alpha" not in dict(policy.named_parameters())
    assert "log_alpha" in policy.state_dict()


def test_sac_s_default_target_entropy_follows_the_action_space() -> None:
    """−A nats for A real numbers, ½ log n for n discrete actions."""
    assert small_policy("sac").target_entropy == -2.0 and small_policy("tqc").target_entropy == -2.0
    assert SAC(OBS, spaces.Box(-1, 1, ()), **SMALL).target_entropy == -1.0
    assert SAC(OBS, spaces.Discrete(9), **SMALL).target_entropy == pytest.approx(math.log(3.0))


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        ("sac", None, "SquashedGaussian"),
        ("sac", "Beta", "Beta"),
        ("tqc", "Beta", "Beta"),
        ("td3", None, "SquashedDeterministic"),
        ("td3", "Beta", "Beta"),
        ("sac, discrete", None, "Categorical"),
    ],
)
def test_actors_use_squashed_distributions_by_default(name: str, asked: str | None, expected: str) -> None:
    policy = small_policy(name, model={"fcnet_hiddens": [16], "custom_action_dist": asked})
    outputs, _ = policy.model(policy.inputs_of(transitions(name)), (), None)
    assert type(policy.distribution(outputs)).__name__ == expected


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_actors_have_no_separate_value_network(name: str) -> None:
    policy = small_policy(name, model={"fcnet_hiddens": [16], "vf_share_layers": False})
    layers = {key.split(".")[0] for key, _ in policy.model.named_parameters()}
    assert layers == {"trunk", "head", "value_head"}


def test_sac_s_target_critics_may_be_all_critics_but_not_more() -> None:
    """Two of two: targets take the lower of both, and the actor climbs their mean."""
    policy, q_values = small_policy("sac", num_critics=2, target_critics=2), torch.tensor([[1.0, 4.0], [3.0, 2.0]])
    assert policy.min_target_q(q_values).tolist() == [1.0, 2.0]
    assert policy.actor_q_values(q_values).tolist() == [2.0, 3.0]
    with pytest.raises(ConfigError, match=r"target_critics=3.*policy\.num_critics=2"):
        small_policy("sac", num_critics=2, target_critics=3)


def test_sac_s_actor_critics_and_temperature_have_their_own_learning_rates() -> None:
    policy = small_policy("sac", actor_lr_scale=2.0, critic_lr_scale=3.0, alpha_lr_scale=5.0)
    found = {group["lr_scale"]: {id(p) for p in group["params"]} for group in policy.parameter_groups()}
    assert found[2.0] == {id(p) for p in policy.model.parameters()}
    assert found[3.0] == {id(p) for p in policy.critic.parameters()}
    assert found[5.0] == {id(policy.log_alpha)} and len(found) == 3


def test_discrete_sac_s_targets_rise_with_the_temperature() -> None:
    """V(s') = Q − α log π, and −log π > 0 on average for discrete actions."""
    policy = small_policy("sac, discrete", target_entropy=None)
    with torch.no_grad():
        low, high = (policy.targets(transitions("sac, discrete"), torch.tensor(alpha)) for alpha in (0.1, 1.0))
    assert bool((high > low).all())


@pytest.mark.parametrize("name", ["sac", "tqc", "sac, discrete"])
@pytest.mark.parametrize("other", [False, True])
def test_the_entropy_of_the_next_step_is_in_targets_by_default_of_continuous_actions_only(name: str, other: bool):
    """`backup_entropy` says otherwise."""
    included = (name != "sac, discrete") != other
    backup = {"backup_entropy": included} if other else {}
    policy, batch = small_policy(name, initial_alpha=2.0, target_entropy=None, **backup), transitions(name)
    errors = []
    for alpha in (2.0, 0.0):
        torch.manual_seed(0)
        with torch.no_grad():
            errors.append(policy.critic_loss(batch, policy.targets(batch, torch.tensor(alpha)))[1])
    with_entropy, without = errors
    assert not torch.allclose(with_entropy, without)
    assert_close(td_errors(policy, batch), with_entropy if included else without)


def test_redq_s_target_is_the_lowest_of_a_random_subset_and_its_actor_climbs_the_mean() -> None:
    """Critics give 1, 2, 3, 4: the lowest of two is 1, 2 or 3 with chances ½, ⅓, ⅙; the lowest of all is 1."""
    q_values = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(4, 1).expand(4, 5)
    policy = small_policy("sac, redq")
    torch.manual_seed(0)
    lowest = torch.stack([policy.min_target_q(q_values) for _ in range(600)])
    assert bool((lowest == lowest[:, :1]).all())  # one subset for all rows
    chances = torch.bincount(lowest[:, 0].long(), minlength=5)[1:].float() / 600
    assert_close(chances, torch.tensor([1 / 2, 1 / 3, 1 / 6, 0.0]), rtol=0, atol=0.06)
    assert_close(policy.actor_q_values(q_values), torch.full((5,), 2.5))
    plain = small_policy("sac", num_critics=4)
    assert_close(plain.min_target_q(q_values), torch.ones(5))
    assert_close(plain.actor_q_values(q_values), torch.ones(5))


# -- TQC --------------------------------------------------------------------------------------------------------------
def test_tqc_s_targets_use_a_random_subset_of_target_critics() -> None:
    """The quantiles of critic k are all k = 1, 2, 3; one quantile per critic is dropped."""
    batch = transitions("tqc", rewards=torch.zeros(6), discounts=torch.ones(6))
    for target_critics, expected in ((1, {1.0, 2.0, 3.0}), (None, {1.0, 2.0})):
        policy = small_policy("tqc", num_critics=3, target_critics=target_critics, num_quantiles=3, dropped_quantiles=1)
        set_constant_critics(policy.target_critic, 1.0, 2.0, 3.0)
        found = torch.stack([policy.targets(batch, torch.tensor(0.0)) for _ in range(40)])
        assert set(found.unique().tolist()) == expected
        assert found.shape[2] == 2 * (target_critics or 3)


def test_tqc_refuses_to_drop_all_quantiles() -> None:
    policy = small_policy("tqc", num_quantiles=3, dropped_quantiles=2)
    assert policy.targets(transitions("tqc"), torch.tensor(0.0)).shape == (6, 2)
    with pytest.raises(ConfigError, match=r"dropped_quantiles=3.*policy\.num_quantiles=3"):
        small_policy("tqc", num_quantiles=3, dropped_quantiles=3)


def test_tqc_s_targets_drop_each_row_s_highest_quantiles_and_its_actor_climbs_the_mean() -> None:
    """Two critics of four quantiles, two dropped per critic: the four lowest of eight remain in each row."""
    policy, batch = small_policy("tqc", num_quantiles=4, dropped_quantiles=2), transitions("tqc")
    torch.manual_seed(0)
    found = policy.targets(batch, torch.tensor(0.0))
    torch.manual_seed(0)
    inputs, dist = policy.inputs_and_distribution(batch, following=True)
    every = policy.target_critic(inputs, dist.rsample()).transpose(0, 1).flatten(1)
    expected = batch.rewards.unsqueeze(1) + 0.9 * every.sort().values[:, :4]
    assert_close(found.sort().values, expected)
    quantiles = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 9.0]]])
    assert policy.actor_q_values(quantiles).tolist() == [3.5, 5.75]


def test_tqc_s_critic_loss_is_the_quantile_huber_loss() -> None:
    """Critics give (0, 2) and (5, 5) at the fractions ¼ and ¾; the target is 1.

    First critic: errors 1 and −1, Huber loss ½ each, weighted by ¼ and |¾ − 1|: mean ⅛. Second critic: errors −4 and
    −4, Huber loss 3.5 each, weighted by |¼ − 1| and |¾ − 1|: mean 1.75. Weights of 1 and 0 halve the sum.
    """
    policy = small_policy("tqc", num_quantiles=2, dropped_quantiles=0)
    set_constant_critics(policy.critic, [0.0, 2.0], [5.0, 5.0])
    for weights, expected in (({}, 1.875), ({"weights": torch.tensor([1.0, 0.0] * 3)}, 0.9375)):
        batch = transitions("tqc", rewards=torch.ones(6), terminated=torch.ones(6, dtype=torch.bool), **weights)
        metrics = policy.loss(batch)[1]
        assert (metrics["value_loss"].item(), metrics["q_mean"].item()) == pytest.approx((expected, 3.0))
        assert_close(metrics["td_errors"], torch.full((6,), 2.0))  # (|1 − 1| + |5 − 1|) / 2


def test_critic_dropout_is_active_in_train_mode_only() -> None:
    policy = small_policy("sac", critic_dropout=0.5)
    batch = transitions("sac")

    def q_values(mode: bool) -> Tensor:
        policy.train(mode)
        return policy.critic(policy.input_dict(batch.obs), batch.actions)

    assert not torch.equal(q_values(True), q_values(True))
    assert torch.equal(q_values(False), q_values(False))
    policy.learn_on_batch(batch)
    assert policy.training
