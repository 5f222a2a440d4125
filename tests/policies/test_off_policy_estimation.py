"""Estimates of policies: what is read from recorded episodes, fitted Q evaluation, and values that are known."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from lightning_rl.errors import ConfigError
from lightning_rl.models.critics import CriticEnsemble
from lightning_rl.policies import BC, DQN, TD3
from lightning_rl.policies.off_policy_estimation import Estimate, estimate_value, whole_episodes
from lightning_rl.sample_batch import SampleBatch
from tests.losses.two_state_process import GAMMA, REWARDS, STEPS, TARGET, episodes, known_values
from tests.policies.off_policy_algorithms import BOX, OBS, SMALL, TWO, set_constant_values

ONE_HOT = spaces.Box(0, 1, (2 + STEPS,))  # the state, and the step, because values depend on it


def recorded(count: int, seed: int = 0) -> SampleBatch:
    """Episodes of uniformly random actions in the process of two states, one environment each."""
    states, actions = episodes(count, torch.Generator().manual_seed(seed))
    step = torch.arange(STEPS + 1).clamp(max=STEPS - 1).unsqueeze(1).expand_as(states)
    seen = [torch.nn.functional.one_hot(states, 2), torch.nn.functional.one_hot(step, STEPS)]
    last = (torch.arange(STEPS).unsqueeze(1) == STEPS - 1).expand(STEPS, count)
    return SampleBatch(
        obs=torch.cat(seen, -1).float(),
        actions=actions,
        rewards=REWARDS[states[:-1], actions].float(),
        action_logp=torch.full((STEPS, count), math.log(0.5)),
        terminated=last,
        truncated=torch.zeros_like(last),
        valid=torch.ones_like(last),
        t=step[:-1],
    )


def target_policy() -> BC:
    """π(a|s) of the process, as a linear model of the one-hot state."""
    policy = BC(ONE_HOT, TWO, gamma=GAMMA, model={"fcnet_hiddens": []})
    set_constant_values(policy.model, 0.0)
    head = next(m for m in policy.model.modules() if isinstance(m, torch.nn.Linear) and m.out_features == 2)
    head.weight.data[:, :2] = TARGET.log().float()
    return policy


def test_every_estimate_is_near_the_known_value() -> None:
    """1,000 episodes: intervals of all but the direct method hold the value, and each estimate is within 0.4 of it."""
    known = float(known_values()[0][0].mean())
    found = estimate_value(target_policy(), recorded(1000, seed=1), fqe_steps=600)
    behavior = float(found.pop("behavior").value)  # type: ignore[union-attr]
    assert 1.0 < found.pop("effective_episodes") < 1000.0  # type: ignore[operator]
    assert found.pop("mean_ratio") == pytest.approx(1.0, abs=0.2)
    assert behavior < known - 0.4
    for name, estimate in found.items():
        assert isinstance(estimate, Estimate) and abs(estimate.value - known) < 0.4, name
        if name != "dm":
            assert estimate.low < known < estimate.high, name
    widths = {name: each.high - each.low for name, each in found.items() if isinstance(each, Estimate)}
    assert widths["dr"] < widths["pdis"] < widths["is"]


def test_intervals_cover_the_known_value_of_continuous_actions() -> None:
    """One step pays −(a − ½)², π = N(½, e^−½), μ = N(0, 1): V = −e⁻¹. 90 % intervals of 100 episodes, 200 times."""
    policy = BC(OBS, BOX, gamma=1.0, **SMALL)
    set_constant_values(policy.model, 0.0)
    policy.distribution = lambda outputs, mask=None: BC.distribution(  # type: ignore[method-assign]
        policy, torch.tensor([0.5, 0.5, -0.5, -0.5]).expand(len(outputs), 4), mask
    )
    generator, covered = torch.Generator().manual_seed(0), dict.fromkeys(("is", "wis"), 0)
    for repetition in range(200):
        actions = torch.randn(1, 100, 2, generator=generator)
        yes = torch.ones(1, 100, dtype=torch.bool)
        fragment = SampleBatch(
            obs=torch.zeros(2, 100, 3),
            actions=actions,
            rewards=-(actions[..., 0] - 0.5).square(),
            action_logp=torch.distributions.Normal(0.0, 1.0).log_prob(actions).sum(-1),
            terminated=yes,
            truncated=~yes,
            valid=yes,
            t=torch.zeros(1, 100, dtype=torch.long),
        )
        found: Any = estimate_value(policy, fragment, estimators=["is", "wis"], seed=repetition)
        for name in covered:
            covered[name] += found[name].low <= -math.exp(-1.0) <= found[name].high
    assert all(0.85 <= count / 200 <= 0.95 for count in covered.values()), covered


def test_whole_episodes_are_columns_and_cut_ones_are_left_out() -> None:
    """One environment has an episode of 2 steps, a reset, a cut one; the other a cut one, a reset, one of 1 step."""
    flags = {name: torch.zeros(4, 2, dtype=torch.bool) for name in ("terminated", "truncated", "valid")}
    flags["terminated"][1, 0] = flags["truncated"][0, 1] = flags["terminated"][2, 1] = True
    flags["valid"][[0, 1, 3, 0, 2], [0, 0, 0, 1, 1]] = True
    t = torch.tensor([[0, 7], [1, 0], [0, 0], [0, 0]])
    numbers = torch.arange(10.0).view(5, 2)
    fragment = SampleBatch(obs=numbers.unsqueeze(-1), actions=numbers[:4], rewards=numbers[:4], t=t, **flags)
    one, two = whole_episodes(fragment)
    assert one.valid.tolist() == [[True]] and two.valid.tolist() == [[True], [True]]
    assert_close(one.rewards[:, 0], torch.tensor([5.0]))
    assert_close(two.rewards[:, 0], torch.tensor([0.0, 2.0]))
    assert one.obs[:, 0, 0].tolist() == [5.0, 7.0] and two.obs[:, 0, 0].tolist() == [0.0, 2.0, 4.0]


def test_episodes_of_very_different_length_are_not_padded_to_the_longest() -> None:
    """An episode of 1,000 steps and 1,000 episodes of one: padded to the longest they would be a million rows."""
    lengths = [1000, *[1] * 1000]
    t = torch.cat([torch.arange(length) for length in lengths]).unsqueeze(1)
    ends = torch.zeros(2000, 1, dtype=torch.bool)
    ends[torch.tensor(lengths).cumsum(0) - 1] = True
    columns = {"rewards": torch.ones(2000, 1), "terminated": ends, "truncated": ends & ~ends, "valid": ends | ~ends}
    groups = whole_episodes(SampleBatch(obs=torch.zeros(2001, 1, 3), t=t, **columns))
    assert sum(group.valid.numel() for group in groups) <= 2 * 2000
    assert sum(int(group.valid.sum()) for group in groups) == 2000


def test_an_epsilon_greedy_policy_takes_its_best_action() -> None:
    """Action 0 pays, and the best action is 1: with ε = 0.1 the policy is paid in 5 % of the steps."""
    policy = DQN(ONE_HOT, TWO, gamma=GAMMA, **SMALL)
    for parameter in policy.model.parameters():
        torch.nn.init.zeros_(parameter)
    policy.model.advantages.linear.bias.data = torch.tensor([0.0, 1.0])
    fragment = recorded(2000)
    fragment["rewards"] = 1.0 - fragment.actions.float()
    found: Any = estimate_value(policy, fragment, estimators=["pdis"], epsilon=0.1)
    known = 0.05 * (1 - GAMMA**STEPS) / (1 - GAMMA)
    assert found["pdis"].low < known < found["pdis"].high < 0.5


@pytest.mark.parametrize("shift", [-1000.0, 1000.0])
def test_weighted_importance_sampling_does_not_depend_on_the_scale_of_the_ratios(shift: float) -> None:
    """Densities that are e^250 times as large or small at each of 4 steps: no ratio of an episode is a double."""
    fragment, policy = recorded(50), target_policy()
    known: Any = estimate_value(policy, fragment, estimators=["wis"])
    fragment["action_logp"] = fragment.action_logp - shift / STEPS
    found: Any = estimate_value(policy, fragment, estimators=["wis"])
    assert found["effective_episodes"] == pytest.approx(known["effective_episodes"], rel=1e-3)
    assert found["mean_ratio"] == (math.inf if shift > 0 else 0.0)
    for name in ("value", "low", "high"):
        assert getattr(found["wis"], name) == pytest.approx(getattr(known["wis"], name), rel=1e-3)


def test_episodes_that_a_greedy_policy_cannot_repeat_are_refused() -> None:
    """Its best action is that of the state's number, and each episode has the other one."""
    policy, fragment = target_policy(), recorded(20)
    fragment["actions"] = 1 - fragment.obs[:-1, :, 1].long()
    with pytest.raises(ConfigError, match="raise epsilon"):
        estimate_value(policy, fragment, estimators=["wis"], epsilon=0.0)


@pytest.mark.parametrize(("gamma", "longest"), [(0.5, 2.0), (1.0, 4.0)])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_the_direct_method_stays_within_what_the_rewards_allow(
    gamma: float, longest: float, sign: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """|r| from 1 to 2, in episodes of 4 steps: |V| from 1, if the next step ends it, to 2 Σ γᵗ = 4, or 8 if γ = 1."""
    fragment = recorded(50)
    fragment["rewards"] = sign * (fragment.rewards / 1.5 + 1.0)
    for wrong, bound in ((0.0, 1.0), (1000.0, 2.0 * longest), (-1000.0, 1.0)):
        value = functools.partial(torch.full_like, fill_value=sign * wrong)
        monkeypatch.setattr(
            CriticEnsemble, "state_values", lambda self, inputs, dist, space, v=value: v(dist.entropy())
        )
        found: Any = estimate_value(target_policy(), fragment, estimators=["dm"], gamma=gamma, fqe_steps=1)
        assert found["dm"].value == pytest.approx(sign * bound)


def test_memory_starts_with_each_episode() -> None:
    """Ratios of a model with an LSTM are those of its states along the episode."""
    policy = BC(ONE_HOT, TWO, model={"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 2})
    fragment = recorded(5)
    state, total = policy.get_initial_state(5), torch.zeros(5)
    with torch.no_grad():
        for t in range(STEPS):
            outputs, state = policy.model(policy.input_dict(fragment.obs[t]), state, torch.ones(5, dtype=torch.long))
            total += policy.distribution(outputs).logp(fragment.actions[t]) - math.log(0.5)
    known = (total.exp() * (GAMMA ** torch.arange(STEPS).unsqueeze(1) * fragment.rewards).sum(0)).mean()
    found: Any = estimate_value(policy, fragment, estimators=["is"], gamma=GAMMA)
    assert abs(found["is"].value - float(known)) < 1e-5


@pytest.mark.parametrize(
    ("made", "keywords", "named"),
    [
        (lambda: DQN(ONE_HOT, TWO, **SMALL), {}, "epsilon"),
        (lambda: TD3(OBS, BOX, **SMALL), {"epsilon": 0.1}, "epsilon=0.1"),
        (target_policy, {"estimators": ["magic"]}, "magic"),
        (target_policy, {"no": "action_logp", "estimators": ["is"]}, "action_logp"),
    ],
    ids=["greedy", "epsilon", "estimator", "logp"],
)
def test_what_cannot_be_estimated_is_refused(made: Any, keywords: dict[str, Any], named: str) -> None:
    fragment = recorded(3)
    if "no" in keywords:
        fragment = fragment.without(keywords.pop("no"))
    with pytest.raises(ConfigError, match=named):
        estimate_value(made(), fragment, **keywords)
