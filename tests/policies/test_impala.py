"""IMPALA and APPO: V-trace on rows, losses, target networks and KL penalties."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor, nn
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.losses import lambda_returns, vtrace
from lightning_rl.models import FullyConnectedNetwork
from lightning_rl.policies import A2C, APPO, IMPALA, PPO, Policy
from lightning_rl.policies.kl import mean_kl
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.nested_spaces import Nested
from tests.models.parameters import parameter_vector, trainable_vector
from tests.policies.memories import MEMORIES
from tests.policies.rows_of_an_older_policy import perturb_weights
from tests.refusals import not_refused
from tests.training.probes import ChosenReward

SHORT_CARTPOLE = EnvCreator("CartPole-v1", max_episode_steps=15)  # episodes terminate, or are truncated
BOTH = [IMPALA, APPO]


def sample_fragment(policy: Policy, env: Any = SHORT_CARTPOLE, length: int = 40, **options: Any) -> SampleBatch:
    return RolloutWorker(env, policy, num_envs=3, fragment_length=length, seed=2, **options).sample()


class DropoutModel(FullyConnectedNetwork):
    """Has dropout of ½ in train mode."""

    def forward(self, input_dict: dict[str, Any], state: Any = (), seq_lens: Any = None) -> tuple[Tensor, Any]:
        dropped = nn.functional.dropout(input_dict["obs_flat"], training=self.training)
        outputs, state = super().forward({**input_dict, "obs_flat": dropped}, state, seq_lens)
        return nn.functional.dropout(outputs + 1.0, training=self.training), state


def policies(first: Any, second: Any, *changes: dict[str, Any], **shared: Any) -> Any:
    """Two policies of CartPole, and a fragment of the first one."""
    own = changes or ({}, {})
    pair = [kind(*SHORT_CARTPOLE.spaces(), **shared, **given) for kind, given in zip((first, second), own, strict=True)]
    return *pair, sample_fragment(pair[0])


# -- V-trace on rows --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("env", "model"),
    [(SHORT_CARTPOLE, {}), *((EnvCreator(Nested), keywords) for keywords in ({}, *MEMORIES.values()))],
    ids=["CartPole", "Nested", *MEMORIES],
)
def test_impala_s_rows_have_the_v_trace_targets_and_advantages_of_their_fragment(
    env: EnvCreator, model: Any, mode: AutoresetMode
) -> None:
    """Compared with vtrace on the grid `[T, B]`, under other weights than those that acted."""
    clips = {"clip_rho": 1.2, "clip_c": 0.9, "clip_pg_rho": 1.1}
    plain = {"reward_filter": "none", "standardize_advantages": False}
    policy = IMPALA(*env.spaces(), model=model, gamma=0.9, vtrace_lambda=0.95, **plain, **clips)
    fragment = sample_fragment(policy, env, mode=mode)
    perturb_weights(policy)
    assert bool((fragment.terminated | fragment.truncated).any()) and not bool(fragment.valid.all())
    fragment["number"] = torch.arange(fragment.valid.numel()).view(fragment.valid.shape)
    rows = policy.postprocess_trajectory(fragment)
    assert sorted(rows["number"].tolist()) == fragment["number"][fragment.valid].tolist()

    with torch.no_grad():
        dist, again = policy.distribution_and_values(rows)
        logp = dist.logp(rows.actions)
    assert (logp - rows.action_logp).abs().max() > 0.1
    log_rhos = torch.zeros(fragment.valid.shape)
    log_rhos.view(-1)[rows["number"]] = logp - rows.action_logp
    ends = {name: fragment[name] for name in ("terminated", "truncated", "valid")}
    values = policy.values(fragment.obs, fragment)
    values.view(-1)[rows["number"]] = again
    targets, advantages = vtrace(log_rhos, fragment.rewards, values, **ends, gamma=0.9, lam=0.95, **clips)
    assert_close(rows.value_targets, targets.flatten()[rows["number"]], atol=1e-5, rtol=1e-4)
    assert_close(policy.weight_advantages(rows, logp), advantages.flatten()[rows["number"]], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("algorithm", BOTH)
def test_padding_of_traces_changes_neither_loss_nor_gradients(algorithm: type[IMPALA], memory: str) -> None:
    """The loss of traces padded together is the mean of the losses of each alone."""
    policy = algorithm(*SHORT_CARTPOLE.spaces(), model=MEMORIES[memory], standardize_advantages=False)
    fragment = sample_fragment(policy)
    perturb_weights(policy, 0.1)
    rows = policy.postprocess_trajectory(fragment)
    assert len(set(rows.seq_lens.tolist())) > 1
    together = policy.loss(rows)[0]
    parts = rows.minibatches(len(rows.seq_lens), torch.Generator())
    alone = torch.stack([policy.loss(part)[0] * part.count / rows.count for part in parts]).sum()
    assert_close(together, alone, atol=1e-5, rtol=1e-4)
    learned = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
    gradients = [torch.autograd.grad(loss, learned, allow_unused=True) for loss in (together, alone)]
    for ours, theirs in zip(*gradients, strict=True):
        if ours is not None:
            assert_close(ours, theirs, atol=1e-5, rtol=1e-3)


# -- IMPALA -----------------------------------------------------------------------------------------------------------
def assert_learn_alike(ours: Policy, theirs: Policy, fragment: SampleBatch) -> None:
    assert torch.equal(trainable_vector(ours), trainable_vector(theirs))
    for policy in (ours, theirs):
        policy.learn_on_batch(fragment)
    assert_close(trainable_vector(ours), trainable_vector(theirs), atol=1e-6, rtol=1e-5)


def test_impala_on_its_own_experience_equals_a2c() -> None:
    """ρ = 1: v is the n-step return, and the value loss ½ (V − v)² with weight 1 is A2C's with weight ½."""
    plain = {"max_grad_norm": None, "reward_filter": "none", "gamma": 0.9, "entropy_coef": 0.01, "seed": 4}
    values = {"value_coef": 1.0}, {"value_coef": 0.5}
    assert_learn_alike(*policies(IMPALA, A2C, *values, **plain, lr=0.1, optimizer="sgd"))


@pytest.mark.parametrize("algorithm", BOTH)
def test_rows_of_filters_rewards_and_leaves_the_fragment_as_it_was(algorithm: type[IMPALA]) -> None:
    policy = algorithm(*SHORT_CARTPOLE.spaces(), reward_filter="sign")
    fragment = sample_fragment(policy)
    fragment["rewards"] = 3.0 * fragment.rewards
    before = set(fragment)
    rows = policy.learner.rows_of(fragment)
    assert torch.equal(rows.rewards, torch.ones(rows.count)) and set(fragment) == before
    assert float(fragment.rewards[fragment.valid].min()) == 3.0


@pytest.mark.parametrize("algorithm", BOTH)
def test_impala_computes_targets_without_dropout(algorithm: type[IMPALA]) -> None:
    """Two calls in train mode give equal targets."""
    policy = algorithm(*SHORT_CARTPOLE.spaces(), model={"custom_model": DropoutModel})
    fragment = sample_fragment(policy)
    policy.train()
    first, second = (policy.postprocess_trajectory(fragment) for _ in range(2))
    assert torch.equal(first.value_targets, second.value_targets) and torch.equal(first.advantages, second.advantages)
    assert not torch.equal(policy.distribution_and_values(first)[1], policy.distribution_and_values(first)[1])


def test_impala_s_loss_is_the_sum_of_its_terms() -> None:
    """−mean w A log π + c₁ ½ mean (V − v)² − c₂ H, whose gradient takes w = min(1, π/μ) as a constant."""
    policy = IMPALA(*SHORT_CARTPOLE.spaces(), value_coef=0.3, entropy_coef=0.2, standardize_advantages=False)
    fragment = sample_fragment(policy)
    perturb_weights(policy, 0.1)
    rows = policy.postprocess_trajectory(fragment)
    policy.log_extra = True
    loss, metrics = policy.loss(rows)
    dist, values = policy.distribution_and_values(rows)
    logp = dist.logp(rows.actions)
    weights_of_rows = (logp - rows.action_logp).exp().clamp(max=1.0).detach()
    squares = (values - rows.value_targets).square().mean()
    expected = -(weights_of_rows * rows.advantages * logp).mean() + 0.15 * squares - 0.2 * dist.entropy().mean()
    assert_close(loss, expected)
    learned = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
    for ours, theirs in zip(*(torch.autograd.grad(each, learned) for each in (loss, expected)), strict=True):
        assert_close(ours, theirs, atol=1e-6, rtol=1e-4)
    log_ratio = (logp - rows.action_logp).detach()
    assert_close(metrics["approx_kl"], (log_ratio.exp() - 1 - log_ratio).mean())
    unexplained = (rows.value_targets - values.detach()).var(correction=0) / rows.value_targets.var(correction=0)
    assert_close(metrics["explained_variance"], 1 - unexplained, atol=1e-5, rtol=1e-4)
    policy.log_extra = False
    assert not {"approx_kl", "explained_variance"} & set(policy.loss(rows)[1])


def kl_to_target(policy: Any, rows: SampleBatch) -> Tensor:
    """The mean KL(π_target‖π), from the networks."""
    target = policy.dist_class(policy.outputs_of(rows, policy.target_model)[0], policy.target_model, None)
    return target.kl(policy.distribution_of(rows)).mean()


def test_appo_adds_kl_coef_times_kl_to_its_loss() -> None:
    """β mean KL(π_target‖π), after π has changed."""
    plain, penalized, fragment = policies(APPO, APPO, {"kl_coef": 0.0}, {"kl_coef": 7.0}, seed=3)
    for policy in (plain, penalized):
        perturb_weights(policy, 0.1)
    rows = penalized.postprocess_trajectory(fragment)
    kl = kl_to_target(plain, rows)
    assert kl > 1e-3
    assert_close(penalized.loss(rows)[0] - plain.loss(rows)[0], 7.0 * kl, atol=1e-5, rtol=1e-4)


def test_appo_s_approx_kl_compares_with_the_policy_that_acted() -> None:
    """KL(μ‖π) by Schulman's estimator; the target network differs from both."""
    policy = APPO(*SHORT_CARTPOLE.spaces())
    fragment = sample_fragment(policy)
    perturb_weights(policy, 0.1)
    rows = policy.postprocess_trajectory(fragment)
    log_ratio = (policy.distribution_of(rows).logp(rows.actions) - rows.action_logp).detach()
    assert_close(policy.loss(rows)[1]["approx_kl"], (log_ratio.exp() - 1 - log_ratio).mean())
    assert log_ratio.abs().max() > 0.01
    policy.log_extra = False
    assert not {"approx_kl", "clip_fraction"} & policy.loss(rows)[1].keys()


def test_mean_kl_is_computed_without_dropout() -> None:
    """The policy equals its target network, so the KL is 0."""
    policy = APPO(*SHORT_CARTPOLE.spaces(), model={"custom_model": DropoutModel}, kl_coef=0.1)
    rows = policy.postprocess_trajectory(sample_fragment(policy))
    policy.train()
    assert abs(mean_kl(policy, rows, policy.target_distribution)) < 1e-6 and policy.training
    assert policy.target_distribution(rows).kl(policy.distribution_of(rows)).mean() > 1e-4


@pytest.mark.parametrize(("algorithm", "stay"), [(IMPALA, False), (APPO, True)])
def test_impala_recomputes_targets_at_each_sweep_and_appo_does_not(algorithm: type[IMPALA], stay: bool) -> None:
    plain: dict[str, Any] = {"standardize_advantages": False, "max_grad_norm": None}
    policy = algorithm(*SHORT_CARTPOLE.spaces(), passes=2, minibatches=1, lr=0.05, **plain)
    fragment = sample_fragment(policy)
    fragment["number"] = torch.arange(fragment.valid.numel()).view(fragment.valid.shape)
    seen = []

    def record(rows: SampleBatch, logp: Tensor) -> Tensor:
        weighted = algorithm.weight_advantages(policy, rows, logp)
        place = rows["number"].argsort()  # each sweep shuffles
        seen.append((rows.value_targets[place], rows.advantages[place], (weighted / rows.advantages)[place]))
        if len(seen) == 2:  # the second sweep begins, so weights are still those of its targets
            now = policy.postprocess_trajectory(policy.learner.transform_rewards(fragment))
            expected = now.value_targets[now["number"].argsort()]
            assert stay or torch.allclose(rows.value_targets[place], expected, atol=1e-5)
        return weighted

    policy.weight_advantages = record  # type: ignore[method-assign]
    policy.learn_on_batch(fragment)
    (first, earlier, ones), (second, later, ratios) = seen
    assert torch.equal(first, second) == torch.equal(earlier, later) == stay
    assert_close(ones, torch.ones_like(ones))
    assert (ratios.min() < 0.9) != stay and ratios.max() <= 1.0 + 1e-5


@pytest.mark.parametrize("algorithm", BOTH)
def test_advantages_are_standardized_after_weighting(algorithm: type[IMPALA]) -> None:
    ours, other, fragment = policies(algorithm, algorithm, {"standardize_advantages": False}, {}, seed=3)
    for policy in (ours, other):
        perturb_weights(policy)
        if isinstance(policy, APPO):
            policy.target_model.load_state_dict(policy.model.state_dict())
    rows = ours.postprocess_trajectory(fragment)
    logp, _ = ours.logp_and_values(rows)
    ratios = (logp - rows.action_logp).exp().clamp(max=1.0)
    plain = ratios * rows.advantages
    assert ratios.min() < 0.9
    standard = (plain - plain.mean()) / plain.std(unbiased=False)
    assert_close(other.weight_advantages(rows, logp), standard, atol=1e-4, rtol=1e-3)
    assert_close(ours.weight_advantages(rows, logp), plain)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [(IMPALA, 1.0), *(pytest.param(*each, marks=pytest.mark.every) for each in ((APPO, 1.0), (A2C, 0.0)))],
)
def test_impala_and_appo_learn_the_values_of_the_learning_policy(algorithm: Any, expected: float) -> None:
    """Random actions earn 0 on average, the learned policy 1; A2C, without correction, learns values of 0."""
    env = EnvCreator(ChosenReward)
    model = {"fcnet_hiddens": [16]}
    policy = algorithm(*env.spaces(), exploration={"type": "random"}, model=model, lr=1e-2, optimizer="adam", seed=1)
    worker = RolloutWorker(env, policy, num_envs=8, fragment_length=16, seed=1)
    for _ in range(120):
        policy.learn_on_batch(worker.sample())
    assert abs(policy.values(torch.zeros(1, 1, 1)).item() - expected) < 0.2
    if algorithm is not A2C:
        assert policy.compute_single_action(np.zeros(1, np.float32)) == 1


def test_settings_out_of_their_range_are_refused() -> None:
    """Also a KL penalty of APPO where its target network always equals the policy."""
    once: dict[str, Any] = {"passes": 1, "minibatches": 1, "kl_coef": 0.2}
    always_0 = r"KL\(π_target‖π\)"
    cases = [
        (IMPALA, {"clip_rho": 0.0}, r"policy\.clip_rho=0\.0; expected a number above 0"),
        (IMPALA, {"vtrace_lambda": 1.5}, r"policy\.vtrace_lambda=1\.5; expected between 0 and 1"),
        (APPO, {"target_update_interval": 0}, "interval=0"),
        (APPO, {"tau": 0.0}, r"tau=0\.0"),
        *((kind, {"kl_coef": -1.0}, r"policy\.kl_coef=-1\.0") for kind in (APPO, PPO)),
        *((kind, {"kl_target": 0.0}, r"policy\.kl_target=0\.0") for kind in (APPO, PPO)),
        *((APPO, {**once, "target_update_interval": interval}, always_0) for interval in (1, None)),
    ]

    def build(kind: Any, change: dict[str, Any]) -> Policy:
        return kind(*SHORT_CARTPOLE.spaces(), **change)

    assert not_refused(build, cases) == []
    for change in ({"tau": 0.5}, {"passes": 2}, {"minibatches": 2}, {"minibatches": None}):
        for interval in (1, None):
            build(APPO, {**once, "target_update_interval": interval, **change})
    build(APPO, {**once, "target_update_interval": 2})


def test_impala_does_not_count_replayed_rows_again() -> None:
    policy = IMPALA(*SHORT_CARTPOLE.spaces(), observation_filter="mean_std")
    fragment = sample_fragment(policy)
    lived = int(fragment.valid[:, 0].sum())
    fragment["replayed"] = torch.ones_like(fragment.valid)
    fragment["replayed"][:, 0] = False
    policy.learn_on_batch(fragment)
    assert policy.env_steps == lived == int(policy.observation_filter.moments.count)


# -- APPO -------------------------------------------------------------------------------------------------------------
def test_appo_s_first_step_on_its_own_experience_equals_impala_s() -> None:
    """Target, acting and learning policy are equal: all ratios are 1, and the surrogate's gradient is −A ∇log π."""
    plain = {"standardize_advantages": False, "vtrace_lambda": 1.0, "max_grad_norm": None}
    assert_learn_alike(*policies(APPO, IMPALA, **plain, passes=1, minibatches=1, lr=0.1, optimizer="sgd"))


def surrogate_gradient(ratio: float, advantage: float, acted: float = 1.0) -> float:
    """∂loss/∂log π of one row whose π/π_target is `ratio` and μ/π_target `acted`; value_coef is 0."""
    plain: dict[str, Any] = {"value_coef": 0.0, "entropy_coef": 0.0, "standardize_advantages": False}
    policy: Any = APPO(*EnvCreator(ChosenReward).spaces(), clip=0.2, **plain)
    rows = SampleBatch(
        actions=torch.tensor([1]),
        action_logp=torch.tensor([math.log(0.25 * acted)]),
        target_logp=torch.tensor([math.log(0.25)]),
        advantages=torch.tensor([advantage * max(acted, 1.0)]),  # weighted with min(1, π_target/μ)
        value_targets=torch.zeros(1),
        obs=torch.zeros(1, 1),
    )
    logp = torch.tensor([math.log(0.25 * ratio)], requires_grad=True)
    dist = SimpleNamespace(logp=lambda actions: logp, entropy=lambda: torch.zeros(1))
    policy.distribution_and_values = lambda batch: (dist, torch.zeros(1))
    return torch.autograd.grad(policy.loss(rows)[0], logp)[0].item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "acted", "gradient"),
    [
        (1.1, 3.0, 1.0, -3.3),
        (1.3, 3.0, 1.0, 0.0),  # beyond the clip: no gradient
        (1.3, -3.0, 1.0, 3.9),  # towards the clip
        (0.7, -3.0, 1.0, 0.0),
        (1.1, 3.0, 3.0, -2.2),  # μ = 3 π_target: π/max(π_target, μ/2) = 1.1 / 1.5
    ],
)
def test_appo_s_surrogate_is_clipped_around_the_target_network(
    ratio: float, advantage: float, acted: float, gradient: float
) -> None:
    assert abs(surrogate_gradient(ratio, advantage, acted) - gradient) < 1e-4


@pytest.mark.parametrize("change", [{"clip": 1e-9}, {"kl_coef": 10.0}], ids=str)
def test_appo_s_clip_and_kl_penalty_have_an_effect_with_default_settings(change: dict[str, Any]) -> None:
    """The target network does not change during a batch.

    One that followed every gradient step would keep all ratios at 1 and the KL at 0; weights would differ by 1e-7.
    """
    *both, fragment = policies(APPO, APPO, {}, change, seed=4)
    for policy in both:
        policy.learn_on_batch(fragment)
    metrics = [policy.learn_on_batch(fragment) for policy in both][1]  # the fragment is now of an older policy
    assert (trainable_vector(both[0]) - trainable_vector(both[1])).abs().max() > 1e-3
    if "clip" in change:
        assert metrics["clip_fraction"] > 0.5
    else:
        assert 0.0 < metrics["kl"] < 0.1 and metrics["kl_coef"] != 10.0


def test_appo_updates_its_target_network_once_per_batch_by_default() -> None:
    policy, seen = APPO(*SHORT_CARTPOLE.spaces(), minibatches=2), []
    assert policy.minibatches == 2 and policy.passes > 1

    def record_distance() -> None:
        seen.append((trainable_vector(policy) - parameter_vector(policy.target_model)).abs().max())

    policy.after_step = record_distance  # type: ignore[method-assign]
    first = parameter_vector(policy.target_model)
    policy.learn_on_batch(sample_fragment(policy))
    assert len(seen) == policy.passes * policy.minibatches and all(distance > 0 for distance in seen)
    assert torch.equal(parameter_vector(policy.target_model), trainable_vector(policy))
    assert not torch.equal(first, trainable_vector(policy))


def test_appo_updates_its_target_network_every_target_update_interval_steps() -> None:
    policy = APPO(*SHORT_CARTPOLE.spaces(), passes=1, minibatches=1, target_update_interval=3, lr=0.05)
    first, fragment = parameter_vector(policy.target_model), sample_fragment(policy)
    for step in range(1, 4):
        policy.learn_on_batch(fragment)
        assert torch.equal(first, parameter_vector(policy.target_model)) == (step < 3)
    assert torch.equal(parameter_vector(policy.target_model), parameter_vector(policy.model))


@pytest.mark.parametrize(("lr", "steered"), [(0.05, 0.3), (1e-6, 0.1)])
def test_appo_adapts_kl_coef_to_kl_target(lr: float, steered: float) -> None:
    """A KL far above the target multiplies kl_coef by 1.5, one far below by ½."""
    policy = APPO(*SHORT_CARTPOLE.spaces(), kl_coef=0.2, passes=4, target_update_interval=100, lr=lr, kl_target=0.001)
    metrics = policy.learn_on_batch(sample_fragment(policy))
    assert (metrics["kl"] > 0.002) == (lr == 0.05)
    assert abs(policy.kl_coef.item() - steered) < 1e-6


def test_appo_s_kl_penalty_keeps_the_policy_near_the_target_network() -> None:
    kls, slow = [], {"passes": 8, "target_update_interval": 100, "lr": 0.01, "clip": 10.0}
    for kl_coef in (0.0, 50.0):
        policy = APPO(*SHORT_CARTPOLE.spaces(), kl_coef=kl_coef, **slow)  # type: ignore[arg-type]
        fragment = sample_fragment(policy)
        policy.learn_on_batch(fragment)
        rows = policy.flatten_fragment(fragment)
        kls.append(kl_to_target(policy, rows).item())
    assert kls[1] < 0.3 * kls[0]


def test_appo_s_value_targets_are_v_trace_of_the_target_network() -> None:
    """Where the target network is the policy that acted, ratios are 1 and targets are λ-returns."""
    policy = APPO(*SHORT_CARTPOLE.spaces(), gamma=0.9, vtrace_lambda=1.0, reward_filter="none")
    fragment = sample_fragment(policy)
    perturb_weights(policy)
    policy.target_model.load_state_dict(policy.model.state_dict())
    again = sample_fragment(policy)
    perturb_weights(policy)
    for acted, same in ((again, True), (fragment, False)):
        rows = policy.postprocess_trajectory(acted)
        ends = {name: acted[name] for name in ("terminated", "truncated", "valid")}
        grid = lambda_returns(acted.rewards, policy.values(acted.obs, acted), **ends, gamma=0.9, lam=1.0)
        assert torch.allclose(rows.value_targets, grid[acted.valid], atol=1e-3) == same
