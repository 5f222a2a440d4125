"""What every policy does alone, without a Trainer."""

from __future__ import annotations

import math
import pickle
from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from lightning_rl.envs import EnvCreator
from lightning_rl.errors import CheckpointError, ConfigError, NonFiniteError, UnsupportedSpaceError
from lightning_rl.learning.custom_losses import CustomLosses, LossEntries
from lightning_rl.learning.flat_parameters import FlatParameters
from lightning_rl.models import Model
from lightning_rl.policies import A2C, PG, PPO, Policy
from lightning_rl.policies.kl import mean_kl
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.signatures import coerce
from tests.envs.classic_control import CARTPOLE, PENDULUM

ALGORITHMS = [PPO, A2C, PG]


def worker(policy: Policy, env: EnvCreator = CARTPOLE, **keywords: Any) -> RolloutWorker:
    return RolloutWorker(env, policy, num_envs=4, fragment_length=16, seed=3, **keywords)


def weights(policy: Policy) -> Tensor:
    return torch.cat([p.detach().flatten().double() for p in policy.parameters()])


# -- acting -----------------------------------------------------------------------------------------------------------
def test_equal_seeds_act_equally_and_others_do_not() -> None:
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    obs = np.zeros((64, 4), np.float32)
    drawn = []
    for seed in (5, 5, 6):
        policy.seed_exploration(seed)
        drawn.append(policy.compute_actions(obs)[0])
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_recorded_logp_is_the_likelihood_of_the_action() -> None:
    policy = PPO(*PENDULUM.spaces(), seed=1)
    obs = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    actions, _, extra = policy.compute_actions(obs)
    torch.testing.assert_close(policy.compute_log_likelihoods(actions, obs), extra["action_logp"])
    env_actions = policy.env_actions(actions)
    inside = np.abs(env_actions) < 2.0
    again = policy.compute_log_likelihoods(env_actions, obs, actions_normalized=False)
    torch.testing.assert_close(again[inside[:, 0]], extra["action_logp"][inside[:, 0]], rtol=1e-4, atol=1e-4)


def test_acting_leaves_the_mode_and_draws_nothing_from_global_generators() -> None:
    policy = PPO(*CARTPOLE.spaces()).train()
    before = torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    policy.compute_actions(np.zeros((2, 4), np.float32))
    assert policy.training
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # type: ignore[index]


def test_building_a_policy_draws_nothing_from_the_global_generator() -> None:
    before = torch.random.get_rng_state()
    first, second, other = (
        PPO(*CARTPOLE.spaces(), seed=1),
        PPO(*CARTPOLE.spaces(), seed=1),
        PPO(*CARTPOLE.spaces(), seed=2),
    )
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(weights(first), weights(second))
    assert not torch.equal(weights(first), weights(other))


@pytest.mark.parametrize(
    "id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "MountainCarContinuous-v0"]
)
def test_a_single_action_is_ready_for_the_environment(id: str) -> None:
    env = EnvCreator(id).make_single()
    policy = PPO(env.observation_space, env.action_space)
    obs, _ = env.reset(seed=0)
    action = policy.compute_single_action(obs)
    assert env.action_space.contains(action)
    env.step(action)
    action, state, extra = policy.compute_single_action(obs, explore=True, full_fetch=True)
    assert env.action_space.contains(action) and state == [] and extra["action_logp"].shape == ()


# -- learning ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("env", [CARTPOLE, PENDULUM], ids=["discrete", "continuous"])
def test_an_iteration_counts_steps_and_gives_finite_metrics(algorithm: type[Policy], env: EnvCreator) -> None:
    policy = algorithm(*env.spaces(), seed=1)
    fragment = worker(policy, env).sample()
    before = weights(policy)
    metrics = policy.learn_on_batch(fragment)
    assert policy.env_steps == int(fragment.valid.sum()) and policy.iterations == 1
    assert policy.gradient_steps == policy.passes * policy.learner.minibatch_count(
        policy.postprocess_trajectory(fragment)
    )
    assert all(np.isfinite(value) for value in metrics.values()) and metrics["grad_norm"] > 0
    assert not torch.equal(before, weights(policy))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_equal_seeds_learn_equal_weights(algorithm: type[Policy]) -> None:
    ends = []
    for _ in range(2):
        policy = algorithm(*CARTPOLE.spaces(), seed=4)
        source = worker(policy)
        for _ in range(3):
            policy.learn_on_batch(source.sample())
        ends.append(weights(policy))
    assert torch.equal(*ends)


def test_the_first_minibatch_of_an_iteration_has_no_divergence() -> None:
    """On-policy: the weights (and filter statistics) that learn are the ones that acted."""
    policy = PPO(*PENDULUM.spaces(), observation_filter="mean_std", reward_filter="return_std", passes=2, seed=1)
    source = worker(policy, PENDULUM)
    for _ in range(4):
        metrics = policy.learn_on_batch(source.sample())
        assert abs(metrics["first_kl"]) < 1e-6
    assert metrics["approx_kl"] > 1e-6


@pytest.mark.parametrize(
    ("name", "path", "keywords"),
    [
        ("adam", "torch.optim.Adam", {}),
        ("adam", "torch.optim.Adam", {"weight_decay": 0.1, "betas": (0.8, 0.9), "eps": 1e-3}),
        ("adam", "torch.optim.Adam", {"amsgrad": True}),
        ("adamw", "torch.optim.AdamW", {"weight_decay": 0.1}),
        ("sgd", "torch.optim.SGD", {"momentum": 0.9}),
        ("rmsprop", "torch.optim.RMSprop", {}),
    ],
)
def test_one_flat_tensor_learns_what_a_list_of_tensors_learns(name: str, path: str, keywords: dict[str, Any]) -> None:
    ends = []
    for optimizer in (name, path):  # import paths are stepped as a list, by torch's own step
        policy = PPO(*CARTPOLE.spaces(), seed=4, optimizer=optimizer, optimizer_kwargs=keywords)
        source = worker(policy)
        for _ in range(3):
            policy.learn_on_batch(source.sample())
        assert bool(policy.learner.optimiser.flat) == (optimizer == name)
        ends.append(weights(policy))
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)


def test_flat_parameters_survive_being_moved() -> None:
    layer = torch.nn.Linear(3, 2)
    flat = FlatParameters(list(layer.parameters()))
    for parameter in layer.parameters():
        parameter.data, parameter.grad = parameter.data.clone() + 1, None
    flat.attach()
    flat.parameter.data.mul_(2)
    layer(torch.ones(1, 3)).sum().backward()
    torch.testing.assert_close(layer.weight.flatten(), flat.parameter[:6])
    torch.testing.assert_close(flat.gradient[:6], torch.ones(6))


def test_parameters_of_the_flat_tensor_begin_where_a_workers_own_do() -> None:
    """Else a worker's matrix products end in other digits than the learner's; found in gSDE's second layer."""
    layers = [torch.nn.Linear(3, 5), torch.nn.Linear(5, 7)]
    before = [p.detach().clone() for layer in layers for p in layer.parameters()]
    parameters = [p for layer in layers for p in layer.parameters()]
    flat = FlatParameters(parameters)
    assert all(p.data_ptr() % 64 == flat.parameter.data_ptr() % 64 for p in parameters)
    assert all(torch.equal(p, old) for p, old in zip(parameters, before, strict=True))


def test_files_hold_moments_without_the_gaps_between_flat_parameters() -> None:
    policy = PPO(*CARTPOLE.spaces())
    policy.learn_on_batch(worker(policy).sample())
    size = sum(p.numel() for p in policy.parameters())
    state = policy.learner.optimiser.torch_optimizer.state_dict()
    assert state["state"][0]["exp_avg"].numel() > size
    filed = policy.learner.optimiser.to_file(state)
    assert filed["state"][0]["exp_avg"].numel() == size and filed["param_groups"] == state["param_groups"]
    again = policy.learner.optimiser.from_file(filed)
    for name, value in state["state"][0].items():
        assert torch.equal(again["state"][0][name], value), name


def filed_state(optimizer: str, **keywords: Any) -> tuple[Policy, dict[str, Any]]:
    """A policy that has learned, and its optimizer's state as a checkpoint has it."""
    policy = PPO(*CARTPOLE.spaces(), optimizer=optimizer, optimizer_kwargs=keywords)
    policy.learn_on_batch(worker(policy).sample())
    return policy, deepcopy(policy.learner.optimiser.to_file(policy.learner.optimiser.torch_optimizer.state_dict()))


def load_state(policy: Policy, filed: dict[str, Any]) -> torch.optim.Optimizer:
    optimizer = policy.learner.optimiser.torch_optimizer
    optimizer.load_state_dict(policy.learner.optimiser.from_file(filed))
    return optimizer


OPTIMIZER_CLASSES = {
    "adam": {},
    "sgd": {"momentum": 0.9},
    "torch.optim:Adam": {},
    "torch.optim:SGD": {"momentum": 0.9},
    "torch.optim:Adagrad": {"fused": True},
    "torch.optim:RMSprop": {},
    "torch.optim:NAdam": {},
}


@pytest.mark.parametrize("optimizer", OPTIMIZER_CLASSES)
@pytest.mark.parametrize(
    "wrong",
    [torch.ones(5), torch.tensor(0.0), torch.ones(1), torch.ones(0), 0.5, "x"],
    ids=lambda wrong: str(wrong).replace(" ", ""),
)
def test_moments_of_another_size_are_refused(optimizer: str, wrong: Any) -> None:
    """Torch's fused kernels read and write past their end."""
    policy, filed = filed_state(optimizer, **OPTIMIZER_CLASSES[optimizer])
    for name in [name for name in filed["state"][0] if name not in ("step", "mu_product")]:
        spoilt = deepcopy(filed)
        spoilt["state"][0][name] = wrong
        with pytest.raises(CheckpointError, match=f"holds {name}"):
            load_state(policy, spoilt)
    load_state(policy, filed)


@pytest.mark.parametrize("optimizer", ["adam", "torch.optim:Adam"])
@pytest.mark.parametrize("wrong", [torch.zeros(0), torch.zeros(2), "x", [1.0]], ids=str)
def test_a_step_that_is_not_one_number_is_refused(optimizer: str, wrong: Any) -> None:
    policy, filed = filed_state(optimizer)
    filed["state"][0]["step"] = wrong
    with pytest.raises(CheckpointError, match="holds step"):
        load_state(policy, filed)


def test_moments_that_hold_less_than_their_shape_says_are_copied() -> None:
    """A tensor of stride 0 has one number in its memory; fused kernels take the numbers that follow it."""
    policy, filed = filed_state("torch.optim:Adam")
    shape = filed["state"][0]["exp_avg"].shape
    filed["state"][0]["exp_avg"] = torch.zeros(1).expand(shape)
    state = load_state(policy, filed).state_dict()["state"][0]
    assert state["exp_avg"].is_contiguous()


@pytest.mark.parametrize("optimizer", ["adam", "torch.optim:Adam", "torch.optim:Adagrad", "torch.optim:RMSprop"])
def test_a_file_does_not_choose_how_an_optimizer_computes(optimizer: str) -> None:
    policy, filed = filed_state(optimizer)
    before = deepcopy(policy.learner.optimiser.torch_optimizer.state_dict()["param_groups"])
    switches = ("fused", "foreach", "capturable", "amsgrad", "differentiable", "maximize")
    filed["param_groups"][0] |= {**dict.fromkeys(switches, True), "every": "x", "lr_scale": "x", "params": ["x"]}
    assert load_state(policy, filed).state_dict()["param_groups"] == before


@pytest.mark.parametrize(
    ("name", "value"), [("betas", "xy"), ("betas", (0.9,)), ("betas", (0.9, "x")), ("eps", "x"), ("eps", math.nan)]
)
def test_an_optimizer_s_options_of_another_type_are_refused(name: str, value: Any) -> None:
    policy, filed = filed_state("adam")
    filed["param_groups"][0][name] = value
    with pytest.raises(CheckpointError, match=f"has {name}=.*expected the like of"):
        load_state(policy, filed)


def test_an_optimizer_s_numbers_come_from_the_file() -> None:
    policy, filed = filed_state("adam")
    filed["param_groups"][0] |= {"weight_decay": 0.5, "betas": [0.5, 0.6]}
    (group,) = load_state(policy, filed).param_groups
    assert group["weight_decay"] == 0.5 and tuple(group["betas"]) == (0.5, 0.6)


def test_another_number_of_parameter_groups_is_refused() -> None:
    policy, filed = filed_state("adam")
    filed["param_groups"] *= 2
    with pytest.raises(CheckpointError, match="has 2 parameter groups, and not 1"):
        load_state(policy, filed)


class RowMeans(torch.optim.SGD):
    """An optimizer of a user's own, which keeps what is not of a parameter's shape."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            for parameter in group["params"]:
                self.state[parameter]["mean"] = parameter.detach().mean()


def test_an_optimizer_of_a_user_s_own_is_restored_as_it_was_but_for_its_kernels() -> None:
    policy, filed = filed_state(f"{__name__}:RowMeans")
    filed["param_groups"][0] |= {"fused": True, "foreach": True}
    optimizer = load_state(policy, filed)
    assert optimizer.param_groups[0]["steps"] == filed["param_groups"][0]["steps"] > 0
    assert not optimizer.param_groups[0]["fused"] and not optimizer.param_groups[0]["foreach"]
    assert optimizer.state_dict()["state"] == filed["state"]


def test_the_gradient_is_clipped_to_the_norm() -> None:
    policy = PPO(*CARTPOLE.spaces(), max_grad_norm=0.01)
    loss, _ = policy.learner.total_loss(policy.postprocess_trajectory(worker(policy).sample()))
    policy.learner.optimiser.backward(loss)
    before = policy.learner.optimiser.clip()
    after = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None]))
    assert before > 0.01
    torch.testing.assert_close(after, torch.tensor(0.01), rtol=1e-3, atol=0)


@pytest.mark.parametrize(("rows", "steps"), [(1, 1), (2, 1), (64, 1), (100, 2), (256, 4), (1024, 16), (4160, 65)])
def test_minibatches_without_a_count_have_about_64_rows(rows: int, steps: int) -> None:
    policy = PPO(*CARTPOLE.spaces())
    assert policy.learner.minibatch_count(SampleBatch(rewards=torch.zeros(rows))) == steps
    assert PPO(*CARTPOLE.spaces(), minibatches=3).learner.minibatch_count(SampleBatch(rewards=torch.zeros(rows))) == 3


def test_minibatches_without_a_count_are_no_more_than_there_are_sequences() -> None:
    policy = PPO(*CARTPOLE.spaces())
    rows = SampleBatch(rewards=torch.zeros(400), seq_lens=torch.full((4,), 100))
    assert policy.learner.minibatch_count(rows) == 4


def test_a_parameter_that_something_else_replaces_is_learned_from_there() -> None:
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    source = worker(policy)
    policy.learn_on_batch(source.sample())
    replaced = policy.model.head.linear.weight
    replaced.data = replaced.data.clone()
    before = replaced.detach().clone()
    policy.learn_on_batch(source.sample())
    assert (replaced.detach() - before).abs().min() > 0


def test_schedules_follow_env_steps() -> None:
    policy = PPO(*CARTPOLE.spaces(), lr=[[0, 1e-3], [128, 0.0]], passes=1, minibatches=1)
    source = worker(policy)
    assert policy.learn_on_batch(source.sample())["lr"] == pytest.approx(1e-3 * (1 - policy.env_steps / 128))
    while policy.env_steps < 128:
        metrics = policy.learn_on_batch(source.sample())
    assert metrics["lr"] == 0.0


def test_target_kl_stops_an_iteration_early() -> None:
    policy = PPO(*CARTPOLE.spaces(), lr=5e-2, target_kl=1e-3, passes=10, seed=1)
    policy.learn_on_batch(worker(policy).sample())
    assert 0 < policy.gradient_steps < 40


@pytest.mark.parametrize(("lr", "grows"), [(3e-2, True), (0.0, False)])
def test_the_kl_penalty_is_steered_to_its_target(lr: float, grows: bool) -> None:
    policy = PPO(*PENDULUM.spaces(), kl_coef=0.2, kl_target=0.01, lr=lr, passes=5, seed=1)
    metrics = policy.learn_on_batch(worker(policy, PENDULUM).sample())
    assert policy.kl_coef.item() == pytest.approx(0.3 if grows else 0.1)
    assert (metrics["kl"] > 0.02) is grows


def test_the_penalty_is_steered_by_the_kl_after_the_last_step() -> None:
    """Before an only gradient step the KL is 0; after it it is beyond 2 × 0.01, so the coefficient grows."""
    policy = PPO(*PENDULUM.spaces(), kl_coef=0.2, kl_target=0.01, lr=3e-2, passes=1, minibatches=1, seed=1)
    fragment = worker(policy, PENDULUM).sample()
    rows = policy.learner.rows_of(fragment)
    metrics = policy.learn_on_batch(fragment)
    with torch.no_grad():
        moved = policy.distribution(rows.action_dist_inputs).kl(policy.distribution_of(rows)).mean().item()
    assert moved > 0.02 and metrics["kl"] == pytest.approx(moved, rel=1e-5)
    assert policy.kl_coef.item() == pytest.approx(0.3)


def test_the_kl_after_the_last_step_is_the_mean_over_all_rows() -> None:
    """Of sequences too, which minibatches keep whole: their sizes differ."""
    memory = {"use_lstm": True, "lstm_cell_size": 8}
    policy = PPO(*CARTPOLE.spaces(), kl_coef=0.2, lr=3e-2, minibatches=4, model=memory, seed=1)
    rows = policy.learner.rows_of(worker(policy).sample())
    before = mean_kl(policy, rows, policy.acting_distribution)
    policy.learn_on_batch(rows)
    with torch.no_grad(), policy.in_eval_mode():
        moved = policy.distribution(rows.action_dist_inputs).kl(policy.distribution_of(rows)).mean().item()
    assert abs(before) < 1e-6 and moved > 1e-4
    assert mean_kl(policy, rows, policy.acting_distribution) == pytest.approx(moved, rel=1e-4)


def test_a_custom_loss_without_a_weight_counts_once() -> None:
    """Alone, in a dict, and twice with a weight of 2: 3, 3 and 6 more than without."""

    def three(policy: Policy, batch: SampleBatch) -> Tensor:
        return torch.tensor(3.0)

    policy = PPO(*CARTPOLE.spaces(), seed=1)
    fragment = worker(policy).sample()
    losses = []
    for given in ([], [three], [{"loss": three}], [{"loss": three, "weight": 2.0}]):
        policy = PPO(*CARTPOLE.spaces(), custom_losses=given, seed=1)
        losses.append(policy.learner.total_loss(policy.learner.rows_of(fragment))[0].item())
    assert [loss - losses[0] for loss in losses] == pytest.approx([0.0, 3.0, 3.0, 6.0], abs=1e-5)


class NaNLoss(PPO):
    def loss(self, batch: SampleBatch) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = super().loss(batch)
        return loss * torch.nan, metrics


def test_a_loss_that_is_not_finite_stops_before_the_step() -> None:
    policy = NaNLoss(*CARTPOLE.spaces())
    before = weights(policy)
    with pytest.raises(
        NonFiniteError, match=r"loss is nan in gradient step 0; gradients not finite: model\.trunk.*lower policy\.lr"
    ):
        policy.learn_on_batch(worker(policy).sample())
    assert torch.equal(before, weights(policy))


# -- custom losses ----------------------------------------------------------------------------------------------------
class Auxiliary(Model):
    """A model whose custom loss pulls one parameter of its own to 3."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.trunk = torch.nn.Linear(self.preprocessor.size, self.num_outputs + 1)
        self.pulled = torch.nn.Parameter(torch.zeros(()))

    def forward(self, input_dict: Any, state: Any = (), seq_lens: Any = None) -> tuple[Tensor, list[Tensor]]:
        outputs = self.trunk(input_dict["obs_flat"])
        self.value = outputs[:, -1]
        return outputs[:, :-1], []

    def value_function(self) -> Tensor:
        return self.value

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor:
        self.auxiliary = (self.pulled - 3.0).square() * len(loss_inputs.actions) / len(loss_inputs.actions)
        return policy_loss + self.auxiliary

    def metrics(self) -> dict[str, Tensor | float]:
        return {"auxiliary": self.auxiliary.detach()}


def keep_small(policy: Policy, batch: SampleBatch, power: int = 2) -> tuple[Tensor, dict[str, Tensor]]:
    norm = sum((p.abs() ** power).sum() for p in policy.model.parameters())
    return norm, {"rows": torch.tensor(float(batch.count))}  # type: ignore[return-value]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_custom_losses_reach_the_parameters_and_the_metrics_of_every_algorithm(algorithm: type[Policy]) -> None:
    policy = algorithm(
        *CARTPOLE.spaces(),
        model={"custom_model": Auxiliary},
        custom_losses=[{"loss": f"{__name__}:keep_small", "weight": 1e-6, "power": 4}],
        lr=0.1,
        optimizer="sgd",
        max_grad_norm=None,
    )
    metrics = policy.learn_on_batch(worker(policy).sample())
    assert 0 < policy.model.pulled.item() <= 3.0  # type: ignore[union-attr]
    assert metrics["model/auxiliary"] <= 9.0 and metrics["keep_small"] > 0 and metrics["keep_small/rows"] > 0


def test_several_custom_losses_are_added_each_with_its_weight() -> None:
    """2 · 3 + 0.5 · 5 + 7 = 15.5."""
    entries = [{"loss": lambda policy, batch: torch.tensor(3.0), "weight": 2.0}]
    entries.append({"loss": lambda policy, batch: torch.tensor(5.0), "weight": 0.5})
    total, _ = CustomLosses([*entries, lambda policy, batch: torch.tensor(7.0)])(None, SampleBatch())
    assert total is not None and total.item() == 15.5 and CustomLosses([])(None, SampleBatch()) == (None, {})


@pytest.mark.parametrize("answer", [torch.zeros(2), 3.0, (3.0, {})])
def test_a_custom_loss_whose_answer_is_no_scalar_tensor_is_named(answer: Any) -> None:
    def odd(policy: Policy, batch: SampleBatch) -> Any:
        return answer

    with pytest.raises(ConfigError, match=r"custom loss 'odd' returned .*; expected a scalar tensor"):
        CustomLosses([odd])(None, SampleBatch())


def test_a_custom_loss_that_is_no_scalar_is_refused() -> None:
    policy = PPO(*CARTPOLE.spaces(), custom_losses=[lambda policy, batch: torch.zeros(2)])
    with pytest.raises(ConfigError, match="expected a scalar tensor"):
        policy.learn_on_batch(worker(policy).sample())
    with pytest.raises(ConfigError, match="expected an import path, a callable"):
        PPO(*CARTPOLE.spaces(), custom_losses=[{"weight": 2.0}])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("nothing", r"='nothing' is no import path; expected 'package\.module:Name'"),
        ("math:pi", r"='math:pi' is number; expected the import path of a function"),
        ({"loss": "math:exp", "weight": "x"}, r"\.weight='x' is text; expected number"),
        ({"loss": f"{__name__}:keep_small", "powr": 3}, r"unexpected keyword argument 'powr'; it is called as loss\("),
    ],
)
def test_a_custom_loss_that_cannot_be_called_is_refused_by_its_place_in_the_config(entry: Any, message: str) -> None:
    """When a config is checked, and when a policy is made."""
    entries = [keep_small, entry]
    for refuse in (lambda: coerce("policy.custom_losses", entries, LossEntries), lambda: CustomLosses(entries)):
        with pytest.raises(ConfigError, match=rf"^policy\.custom_losses\[1\].*{message}"):
            refuse()


# -- weights, state, checkpoints --------------------------------------------------------------------------------------
def test_a_state_stays_as_it_was_while_its_policy_and_others_learn() -> None:
    policy, twin = (PPO(*CARTPOLE.spaces(), seed=1) for _ in range(2))
    fragments = [worker(policy).sample() for _ in range(2)]
    policy.learn_on_batch(fragments[0])
    state = policy.get_state()
    ends = []
    for _ in range(2):
        policy.learn_on_batch(fragments[1])
        ends.append(weights(policy))
        policy.set_state(state)
    assert torch.equal(*ends)
    twin.set_state(state)
    twin.learn_on_batch(fragments[1])
    assert torch.equal(weights(twin), ends[0])
    policy.learn_on_batch(fragments[1])
    assert torch.equal(weights(policy), ends[0])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_state_survives_pickling_and_learning_goes_on_equally(algorithm: type[Policy]) -> None:
    policy = algorithm(*PENDULUM.spaces(), observation_filter="mean_std", seed=1)
    fragments = [worker(policy, PENDULUM).sample() for _ in range(2)]
    policy.learn_on_batch(fragments[0])
    twin = algorithm(*PENDULUM.spaces(), observation_filter="mean_std", seed=1)
    twin.set_state(pickle.loads(pickle.dumps(policy.get_state())))
    for each in (policy, twin):
        each.learn_on_batch(fragments[1])
    assert torch.equal(weights(policy), weights(twin))
    assert policy.env_steps == twin.env_steps


def test_weights_are_copies() -> None:
    policy = PPO(*CARTPOLE.spaces(), seed=1)
    kept = policy.get_weights()
    before = weights(policy)
    policy.learn_on_batch(worker(policy).sample())
    assert not torch.equal(before, weights(policy))
    policy.set_weights(kept)
    assert torch.equal(before, weights(policy))


def test_gradients_of_one_copy_step_another() -> None:
    here, there = (PPO(*CARTPOLE.spaces(), passes=1, minibatches=1, seed=1) for _ in range(2))
    fragment = worker(here).sample()
    gradients, info = here.compute_gradients(fragment)
    there.env_steps = int(fragment.valid.sum())
    there.apply_gradients(gradients)
    here.learn_on_batch(fragment)
    torch.testing.assert_close(weights(here), weights(there))
    assert np.isfinite(info["loss"])


def saved(policy: Policy, path: Path) -> Path:
    checkpoint: dict[str, Any] = {"state_dict": policy.state_dict()}
    policy.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, path)
    return path


def test_a_loaded_policy_acts_bit_equally(tmp_path: Path) -> None:
    policy = PPO(
        *PENDULUM.spaces(), observation_filter="mean_std", model={"fcnet_hiddens": [8], "free_log_std": True}, seed=1
    )
    policy.learn_on_batch(worker(policy, PENDULUM).sample())
    loaded = Policy.load(str(saved(policy, tmp_path / "policy.ckpt")))
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert isinstance(loaded, PPO) and loaded.env_steps == policy.env_steps
    assert torch.equal(loaded.compute_actions(obs, explore=False)[0], policy.compute_actions(obs, explore=False)[0])


def test_what_cannot_be_written_down_says_so() -> None:
    policy = PPO(*CARTPOLE.spaces(), custom_losses=[lambda policy, batch: torch.zeros(())])
    with pytest.raises(CheckpointError, match=r"custom_losses\[0\].*import path"):
        policy.spec()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read"),
        (b"not a checkpoint", "cannot be read"),
        (None, "does not exist"),
        ({"weights": 1}, "was not written by lightning_rl"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "file.ckpt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(CheckpointError, match=message):
        Policy.load(str(path))


def test_a_checkpoint_never_runs_code(tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Payload:
        def __reduce__(self) -> Any:
            return Path.touch, (canary,)

    torch.save({"policy": Payload()}, tmp_path / "evil.ckpt")
    with pytest.raises(CheckpointError):
        Policy.load(str(tmp_path / "evil.ckpt"))
    assert not canary.exists()


def test_a_checkpoint_of_something_else_is_refused_before_anything_is_loaded() -> None:
    policy = PPO(*CARTPOLE.spaces())
    other: dict[str, Any]
    for stranger, message in (
        (A2C(*CARTPOLE.spaces()), "a2c:A2C; this run trains"),
        (PPO(*PENDULUM.spaces()), "observation_space is not this environment's"),
        (PPO(*CARTPOLE.spaces(), model={"fcnet_hiddens": [3]}), r"weights do not fit.*\[3, 4\] against \[64, 4\]"),
    ):
        other = {"state_dict": stranger.state_dict()}
        stranger.on_save_checkpoint(other)
        before = weights(policy)
        with pytest.raises(CheckpointError, match=message):
            policy.on_load_checkpoint(other)
        assert torch.equal(before, weights(policy))


# -- what is not supported --------------------------------------------------------------------------------------------
VECTOR, DISCRETE = spaces.Box(-1, 1, (3,)), spaces.Discrete(3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("observation", "action", "model", "message"),
    [
        (spaces.Text(5), DISCRETE, None, "Text"),
        (spaces.Graph(VECTOR, None), DISCRETE, None, "Graph"),
        (VECTOR, spaces.Text(5), None, "Text"),
        (VECTOR, spaces.Sequence(DISCRETE), None, "Sequence"),
    ],
)
def test_unsupported_combinations_say_what_would_work(
    algorithm: type[Policy], observation: gym.Space[Any], action: gym.Space[Any], model: Any, message: str
) -> None:
    with pytest.raises(UnsupportedSpaceError, match=message):
        algorithm(observation, action, model=model)


class Forgetful(PPO):
    """An algorithm whose loss does not read sequences."""

    supports_recurrent = False


def test_an_algorithm_that_reads_no_sequences_refuses_models_with_memory() -> None:
    with pytest.raises(UnsupportedSpaceError, match="Forgetful does not learn from recurrent models"):
        Forgetful(VECTOR, DISCRETE, model={"use_lstm": True})


IMAGE = spaces.Box(0, 255, (84, 84, 3), np.uint8)
NESTED = spaces.Dict({"a": VECTOR, "b": spaces.Tuple((DISCRETE, spaces.MultiBinary(2)))})
OBSERVATIONS = [
    VECTOR,
    DISCRETE,
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(3),
    IMAGE,
    NESTED,
    spaces.Box(-1, 1, (2, 3)),
]
ACTIONS = [
    DISCRETE,
    spaces.Discrete(3, start=5),
    spaces.MultiDiscrete([2, 3]),
    spaces.Box(-2, 5, (2,)),
    spaces.Box(0, 4, (2,), np.int64),
    NESTED,
]


class AnySpaces(gym.Env[Any, Any]):
    """Random observations, any action."""

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t % 3 == 0, False, {}


@pytest.mark.parametrize("observation", OBSERVATIONS, ids=str)
@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_supported_spaces_sample_and_learn(observation: gym.Space[Any], action: gym.Space[Any]) -> None:
    env = EnvCreator(AnySpaces, {"observation_space": observation, "action_space": action})
    policy = PPO(observation, action, passes=1, minibatches=2)
    source = RolloutWorker(env, policy, num_envs=2, fragment_length=4, vectorization="sync")
    metrics = policy.learn_on_batch(source.sample())
    assert np.isfinite(metrics["loss"]) and abs(metrics["first_kl"]) < 1e-5


def test_a_mask_in_the_observation_is_kept() -> None:
    observation = spaces.Dict({"action_mask": spaces.MultiBinary(3), "x": VECTOR})
    policy = PPO(observation, DISCRETE)
    obs = {"action_mask": np.array([[1, 0, 0], [0, 1, 1]] * 50, np.int8), "x": np.zeros((100, 3), np.float32)}
    actions, _, _ = policy.compute_actions(obs)
    assert set(actions[::2].tolist()) == {0} and set(actions[1::2].tolist()) == {1, 2}
