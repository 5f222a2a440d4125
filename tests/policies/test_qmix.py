"""QMIX, VDN and independent Q-learning: losses against loops, monotonic mixing, absent members, masks, learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.testing import assert_close

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError, EnvError, UnsupportedSpaceError
from lightning_rl.models import FullyConnectedNetwork
from lightning_rl.models.preprocessors import Preprocessor
from lightning_rl.policies import MADDPG, QMIX, VDN, IndependentQ, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs.algorithm import Algorithm
from lightning_rl.sample_batch import SampleBatch
from tests.families import each
from tests.models.parameters import parameter_vector
from tests.policies.group_tasks import Remembered, TwoStepGame, group_rows
from tests.policies.off_policy_algorithms import gradients
from tests.refusals import not_refused

CLASSES = [QMIX, VDN, IndependentQ]
GRU = {"fcnet_hiddens": [8], "use_gru": True, "lstm_cell_size": 4}
GAME = "tests.policies.group_tasks:Remembered"


def made(policy_class: Any = QMIX, env: Any = None, **keywords: Any) -> Any:
    """A small policy whose target networks differ from the networks that they follow."""
    env = Remembered() if env is None else env
    keywords = {"model": {"fcnet_hiddens": [8]}, "last_action": False, **keywords}
    policy = policy_class(env.observation_space, env.action_space, **keywords)
    generator = torch.Generator().manual_seed(5)
    for name, parameter in policy.named_parameters():
        if name.startswith("target_"):
            parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return policy


def rows_of(env: Any = None, **columns: Any) -> SampleBatch:
    """Rows whose present members take allowed actions."""
    batch = group_rows(Remembered() if env is None else env, 8)
    for obs in (batch.obs, batch.next_obs):
        for mask in obs["action_masks"].columns:
            obs["action_masks"][mask] = torch.tensor([[1, 1, 0]] * 8, dtype=torch.int8)
    for member in batch.actions.columns:
        batch.actions[member] = batch.actions[member] % 2
    for name, value in columns.items():
        batch[name] = value
    return batch


def slow_value(policy: Any, model: Any, row: SampleBatch, member: int) -> Tensor:
    """Q-values `[A]` of one member in one row, computed alone."""
    group = policy.group
    inputs = torch.cat([row.obs["agents"][str(member)], torch.eye(group.size)[member : member + 1]], dim=1)
    values = model.wrapped({"obs": inputs, "obs_flat": inputs})[0][0]
    allowed = row.obs["action_masks"][str(member)][0].bool()
    return values.masked_fill(~allowed, -torch.inf)


def slow_mix(policy: Any, mixer: Any, values: list[Tensor], row: SampleBatch) -> Tensor:
    """Q_tot of one row by the formula, unit by unit."""
    if policy.mixing == "vdn":
        return torch.stack(values).sum()
    state = row.obs["state"][0]
    first = mixer.first(state).view(len(values), -1).abs()
    hidden = sum((value * weights for value, weights in zip(values, first, strict=True)), mixer.first_bias(state))
    hidden = torch.where(hidden > 0, hidden, hidden.exp() - 1)
    return (hidden * mixer.last(state).abs()).sum() + mixer.last_bias(state)[0]


def slow_loss(policy: Any, batch: SampleBatch) -> Tensor:
    """The loss by loops over rows and members."""
    size, losses = policy.group.size, []
    for index in range(batch.count):
        row = batch[index : index + 1]
        following = SampleBatch(obs=row.next_obs)
        present, next_present = (each.obs["present"][0].bool() for each in (row, following))
        taken, coming = [], []
        for member in range(size):
            values = slow_value(policy, policy.model, row, member)[row.actions[str(member)][0]]
            taken.append(values if present[member] else torch.tensor(0.0))
            with torch.no_grad():
                target = slow_value(policy, policy.target_model, following, member)
                chooser = slow_value(policy, policy.model, following, member) if policy.double_q else target
                coming.append(target[chooser.argmax()] if next_present[member] else torch.tensor(0.0))
        keep = row.discounts[0] * ~row.terminated[0]
        if policy.mixing == "none":
            errors = [
                0.5 * (taken[member] - (row.rewards[0] + keep * coming[member])) ** 2
                for member in range(size)
                if present[member]
            ]
            losses.append(torch.stack(errors).mean() if errors else torch.tensor(0.0))
        else:
            with torch.no_grad():
                target = row.rewards[0] + keep * slow_mix(policy, policy.target_mixer, coming, following)
            losses.append(0.5 * (slow_mix(policy, policy.mixer, taken, row) - target) ** 2)
    return torch.stack(losses).mean()


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("policy_class", CLASSES)
def test_the_loss_and_its_gradient_equal_a_loop_over_rows_and_members(policy_class: Any, double: bool) -> None:
    policy, batch = made(policy_class, double=double), rows_of()
    assert not batch.obs["present"].all() and batch.obs["present"].any()
    found = gradients(policy, batch)
    policy.zero_grad()
    expected = slow_loss(policy, batch)
    expected.backward()
    assert_close(policy.loss(batch)[0], expected)
    for name, parameter in policy.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert_close(found[name], gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("policy_class", CLASSES)
def test_the_gradient_reaches_every_online_parameter_and_no_target(policy_class: Any) -> None:
    policy = made(policy_class)
    for name, gradient in gradients(policy, rows_of()).items():
        assert bool(gradient.any()) == (not name.startswith("target_")), name


@pytest.mark.parametrize("state", [True, False])
def test_the_joint_value_never_falls_where_a_member_s_rises(state: bool) -> None:
    env = Remembered(with_state=state)
    policy, batch = made(env=env, hypernet_hiddens=[16]), rows_of(env)
    batch.obs["present"] = torch.ones(8, 3, dtype=torch.int8)
    for scale in (0.1, 1.0, 100.0):
        values = (scale * torch.randn(8, 3)).requires_grad_(True)
        mixed = policy.mix(policy.mixer, values, batch.obs)
        assert bool((torch.autograd.grad(mixed.sum(), values)[0] >= 0).all())


def test_without_a_state_the_members_observations_are_the_state() -> None:
    batch, with_state = rows_of(Remembered(with_state=False)), rows_of()
    joined = torch.cat([batch.obs["agents"][str(member)] for member in range(3)], dim=1)
    assert torch.equal(made(env=Remembered(with_state=False)).mixing_state(batch.obs), joined)
    assert torch.equal(made().mixing_state(with_state.obs), with_state.obs["state"])


@pytest.mark.parametrize("policy_class", CLASSES)
def test_absent_members_contribute_nothing(policy_class: Any) -> None:
    """Neither their observations nor their actions and masks change the loss or a gradient."""
    policy, found = made(policy_class), []
    for odd in (0.0, 1e6):
        batch = rows_of()
        for obs in (batch.obs, batch.next_obs):
            obs["present"] = torch.tensor([[1, 0, 1]] * 8, dtype=torch.int8)
            obs["agents"]["1"] = torch.full((8, 2), odd)
        batch.actions["1"] = torch.full((8,), int(odd > 0))
        batch.obs["action_masks"]["1"] = torch.tensor([[1, int(odd == 0), 0]] * 8, dtype=torch.int8)
        found.append(gradients(policy, batch))
    assert all(bool(gradient.isfinite().all()) for gradient in found[0].values())
    assert_close(*found, rtol=0, atol=0)


def test_an_independent_learner_does_not_bootstrap_after_its_own_end() -> None:
    """The second member leaves: its target is the reward alone, the others' bootstrap."""
    policy, batch = made(IndependentQ), rows_of()
    batch.obs["present"] = torch.ones(8, 3, dtype=torch.int8)
    batch.next_obs["present"] = torch.tensor([[1, 0, 1]] * 8, dtype=torch.int8)
    batch["terminated"] = torch.zeros(8, dtype=torch.bool)
    targets = policy.targets(batch)
    assert torch.equal(targets[:, 1], batch.rewards)
    assert not torch.isclose(targets[:, [0, 2]], batch.rewards.unsqueeze(1)).any()


def test_targets_bootstrap_from_allowed_actions_only() -> None:
    """The forbidden third action has the value 100 everywhere."""
    policy, batch = made(VDN), rows_of()
    for model in (policy.model, policy.target_model):
        for parameter in model.parameters():
            torch.nn.init.zeros_(parameter)
        model.wrapped.advantages.linear.bias.data = torch.tensor([1.0, 2.0, 100.0])
    batch.next_obs["present"] = torch.ones(8, 3, dtype=torch.int8)
    expected = batch.rewards + 0.9 * torch.where(batch.terminated, 0.0, 6.0)
    assert_close(policy.targets(batch), expected)


@pytest.mark.parametrize("policy_class", CLASSES)
@pytest.mark.parametrize("model", [{"fcnet_hiddens": [8]}, GRU])
def test_actions_keep_to_the_masks_also_at_random(policy_class: Any, model: Any) -> None:
    """`Remembered` refuses a forbidden action of a present member."""
    env = EnvCreator(GAME, {"leaving": 0.5})
    policy = policy_class(*env.spaces(), model=model, exploration={"type": "epsilon_greedy", "final_epsilon": 0.5})
    worker = RolloutWorker(env, policy, num_envs=4, fragment_length=40, seed=1)
    fragment = worker.sample()
    actions = torch.stack([fragment.actions[str(member)] for member in range(3)], dim=2)
    present = fragment.obs["present"][:-1].bool() & fragment.valid.unsqueeze(2)
    assert set(actions[present].unique().tolist()) == {0, 1}
    metrics = policy.learn_on_batch(fragment)
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("policy_class", [VDN, MADDPG])
def test_members_explore_independently_of_each_other(policy_class: Any) -> None:
    """ε = ½ and 4 actions: the first member takes its best action in 5/8 of the rows, both do in 25/64."""
    obs_space = spaces.Tuple([spaces.Box(-1, 1, (1,))] * 2)
    exploration = {"type": "epsilon_greedy", "epsilon_schedule": 0.5}
    policy = policy_class(obs_space, spaces.Tuple([spaces.Discrete(4)] * 2), exploration=exploration)
    obs = (np.zeros((20_000, 1), np.float32),) * 2
    best = [leaf[0].item() for leaf in policy.compute_actions(obs, explore=False)[0]]
    for logp in (True, False):
        actions = policy.compute_actions(obs, logp=logp)[0]
        greedy = torch.stack([leaf == own for leaf, own in zip(actions, best, strict=True)]).float()
        found = [*greedy.mean(1).tolist(), greedy.prod(0).mean().item()]
        assert found == pytest.approx([5 / 8, 5 / 8, 25 / 64], abs=0.02)


def sequences(policy: Any) -> SampleBatch:
    """Two sequences of 5 and 3 rows; the first two rows and the first row of them are burn-in."""
    batch = rows_of()
    batch["seq_lens"], batch["bootstrap_rows"] = torch.tensor([5, 3]), torch.arange(8)
    batch["burn_in"] = torch.tensor([True, True, False, False, False, True, False, False])
    state = SampleBatch({"0": policy.get_initial_state(2)[0]})
    batch["state_in"] = batch["next_state_in"] = state
    return batch


@pytest.mark.parametrize("policy_class", CLASSES)
def test_burn_in_rows_are_not_trained(policy_class: Any) -> None:
    policy = made(policy_class, model=GRU)
    batch, other = sequences(policy), sequences(policy)
    other["rewards"] = torch.where(other["burn_in"], 1e6, other.rewards)
    assert_close(gradients(policy, batch), gradients(policy, other), rtol=0, atol=0)
    priorities = policy.loss(batch)[1]["td_errors"]
    assert priorities.shape == (2,) and not priorities.requires_grad


def test_prioritized_sequences_weigh_their_rows() -> None:
    policy = made(model=GRU)
    halves = []
    for weights in ([1.0, 0.0], [0.0, 1.0], [1.0, 1.0]):
        batch = sequences(policy)
        batch["weights"] = torch.tensor(weights)
        halves.append(policy.loss(batch)[0])
    assert_close(halves[0] + halves[1], halves[2])


def test_the_trained_rows_begin_in_the_state_after_burn_in_without_its_gradient() -> None:
    policy = made(model=GRU)
    batch = sequences(policy)
    found = policy.q_values(policy.model, batch)[~batch["burn_in"]]
    expected = []
    for start, warm, stop in ((0, 2, 5), (5, 6, 8)):
        before = policy.input_dict(batch.obs[start:warm], prev_actions=None)
        state = policy.get_initial_state(1)
        with torch.no_grad():
            _, state = policy.model(before, state, torch.tensor([warm - start]))
        rest = policy.input_dict(batch.obs[warm:stop], prev_actions=None)
        expected.append(policy.model(rest, state, torch.tensor([stop - warm]))[0].unflatten(1, (3, -1)))
    assert_close(found, torch.cat(expected))
    finite = found[..., :2].square().sum(), torch.cat(expected)[..., :2].square().sum()
    learned = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
    for one, other in zip(*(torch.autograd.grad(total, learned) for total in finite), strict=True):
        assert_close(one, other)


def test_a_mask_of_all_members_beside_the_observation_forbids_actions_too() -> None:
    policy, batch = made(), rows_of()
    allowed = torch.ones(8, 9, dtype=torch.bool)
    allowed[:, 4] = False
    batch["action_mask"] = allowed
    values = policy.q_values(policy.model, batch)
    assert values.isneginf().nonzero()[:, 1:].unique(dim=0).tolist() == [[0, 2], [1, 1], [1, 2], [2, 2]]


@pytest.mark.parametrize("policy_class", CLASSES)
def test_td_errors_and_metrics_have_no_gradient_and_those_of_independent_learners_are_sizes(policy_class: Any) -> None:
    policy, batch = made(policy_class), rows_of()
    policy.log_extra = True
    _, metrics = policy.loss(batch)
    assert not any(value.requires_grad for value in metrics.values())
    assert policy_class is not IndependentQ or bool((metrics["td_errors"] >= 0).all())


def test_the_rate_of_target_networks_follows_from_their_interval() -> None:
    assert made(target_update_interval=1).tau < 0.1
    assert made(target_update_interval=2).tau == made(target_update_interval=200).tau == 1.0


class Doubled(Preprocessor):
    """A member's observation and its double."""

    def _init_shape(self, obs_space: Any, options: Any) -> tuple[int, ...]:
        return (4,)

    def transform(self, obs: Any) -> np.ndarray:
        return np.concatenate([obs, 2 * obs]).astype(np.float32)


def test_a_custom_preprocessor_reads_each_member_s_observation_once() -> None:
    policy = made(model={"fcnet_hiddens": [8], "custom_preprocessor": Doubled})
    assert policy.model.wrapped.preprocessor.size == 4 + 3  # the member's number


def test_hiddens_stand_behind_a_custom_model() -> None:
    model = {"custom_model": FullyConnectedNetwork, "fcnet_hiddens": [8]}
    plain, more = (parameter_vector(made(model=model, hiddens=hiddens).model) for hiddens in ((), (5,)))
    assert len(plain) != len(more)


def test_prioritized_rows_count_by_their_weights() -> None:
    policy, weights = made(), torch.linspace(0.0, 2.0, 8)
    errors = torch.stack([policy.loss(rows_of()[index : index + 1])[0] for index in range(8)])
    assert_close(policy.loss(rows_of(weights=weights))[0], (weights * errors).mean())


def test_metrics_are_means_over_rows() -> None:
    policy, batch = made(), rows_of()
    policy.log_extra = True
    metrics = policy.loss(batch)[1]
    td_errors = metrics.pop("td_errors")
    parts = [policy.loss(rows_of()[index : index + 1])[1] for index in range(8)]
    for name, value in metrics.items():
        assert_close(value, torch.stack([part[name] for part in parts]).mean(), msg=name)
    assert_close(metrics["td_error"], td_errors.abs().mean())


def test_n_step_targets_bootstrap_at_the_row_of_the_last_reward() -> None:
    policy, batch = made(VDN), rows_of()
    batch["terminated"] = torch.zeros(8, dtype=torch.bool)
    own = policy.targets(batch) - batch.rewards
    batch["bootstrap_rows"] = torch.tensor([2, 3, 3, 3, 6, 7, 7, 7])
    assert_close(policy.targets(batch) - batch.rewards, own[batch["bootstrap_rows"]])


def test_target_networks_follow_after_their_interval() -> None:
    policy = made(target_update_interval=3)
    pairs = ((policy.target_model, policy.model), (policy.target_mixer, policy.mixer))
    for step in range(1, 4):
        policy.gradient_steps = step
        policy.after_step()
        same = [torch.equal(parameter_vector(target), parameter_vector(source)) for target, source in pairs]
        assert same == [step == 3] * 2


def test_wrong_spaces_and_settings_are_one_clear_error() -> None:
    images = spaces.Tuple([spaces.Box(0, 255, (12, 12, 3), np.uint8)] * 2)
    two, x = spaces.Discrete(2), spaces.Box(-1, 1, (3,))
    filters, game = {"conv_filters": [[4, 4, 2]]}, Remembered()
    cases = [
        (QMIX, (images, spaces.Tuple([two] * 2)), {"model": filters}, "images"),
        (VDN, (x, two), {}, r"VDN learns .* is Discrete\(2\): use env.group_agents=all"),
        (QMIX, (game.observation_space, game.action_space), {"mixer": "sum"}, "mixer"),
    ]
    errors = (UnsupportedSpaceError, ConfigError)
    assert not_refused(lambda kind, of, keywords: kind(*of, **keywords), cases, errors) == []
    with pytest.raises(EnvError, match="group_agents=null"):
        Algorithm("qmix", "cartpole")


@pytest.mark.parametrize("policy", each(["qmix", "vdn", "independent_q"], default=["qmix"]))
def test_a_run_saves_and_restores_a_policy_that_acts_alike(policy: str, tmp_path: Path) -> None:
    """Through replayed sequences of an environment whose members leave."""
    data = {"learning_starts": 40, "batch_size": 4, "sequence_length": 4, "sequence_stride": 2, "burn_in": 2}
    data |= {"n_step": 2, "prioritized": True}
    config = {"env": {"kwargs": {"leaving": 0.3}}, "data": data, "run_dir": str(tmp_path)}
    algorithm = Algorithm(policy, GAME, config=config)
    for _ in range(4):
        result = algorithm.train()
    assert algorithm.policy.gradient_steps > 0 and np.isfinite(result["train/loss"])
    loaded = Policy.load(algorithm.save(), trust="tests")
    obs = Remembered().reset(seed=1)[0]
    state, other = ([part[0] for part in each.get_initial_state(1)] for each in (algorithm.policy, loaded))
    for _ in range(2):
        here, state, _ = algorithm.policy.compute_single_action(obs, state, full_fetch=True)
        there, other, _ = loaded.compute_single_action(obs, other, full_fetch=True)
        assert here == there and len(here) == 3
    algorithm.stop()


def greedy_return(policy: str, tmp_path: Path, env: str, *overrides: str) -> float:
    algorithm = Algorithm(policy, env, overrides=[f"run_dir={tmp_path}", *overrides])
    while algorithm.policy.env_steps < algorithm.config["total_env_steps"]:
        algorithm.train()
    result = algorithm.evaluate()["eval/ep_rew_mean"]
    algorithm.stop()
    return result


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("policy", "low", "high"), [("qmix", 8.0, 8.0), ("vdn", 7.0, 7.3), ("independent_q", 0.0, 7.3)]
)
def test_only_qmix_learns_the_best_of_the_two_step_game(policy: str, low: float, high: float, tmp_path: Path) -> None:
    """20k steps: the sum of two functions of the members' actions cannot tell that 8 can be reached."""
    assert low <= greedy_return(policy, tmp_path, "two_step_game", "seed=1") <= high


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("policy", ["qmix", "vdn"])
def test_members_with_memory_repeat_what_they_saw(policy: str, tmp_path: Path) -> None:
    """Guessing earns ½."""
    overrides = ["env.kwargs.leaving=0.3", "total_env_steps=16000", "workers.envs_per_worker=4"]
    assert greedy_return(policy, tmp_path, GAME, *overrides) > 0.95


def test_the_test_s_game_is_the_package_s() -> None:
    """The group of the package's two-step game pays as the one here, whose spaces are tuples."""
    theirs, ours = EnvCreator("lightning_rl.envs.multi_agent.toy_games:TwoStepGame", group_agents="all"), TwoStepGame()
    env = theirs.make_single()
    for first in ((0, 1), (1, 0)):
        for second in np.ndindex(2, 2):
            assert torch.tensor(env.reset(seed=0)[0]["state"]).tolist() == ours.reset(seed=0)[0][0].tolist()
            for action in (first, tuple(int(part) for part in second)):
                found, expected = env.step(action), ours.step(action)
                assert found[1:4] == expected[1:4]
