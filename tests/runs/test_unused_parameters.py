"""reaches_every_parameter: whether DDP can expect a gradient for every parameter, or must search for unused ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lightning_rl import build_policy
from lightning_rl.policies import A2C, APPO, ARS, DQN, ES, IMPALA, PG, PPO, R2D2, SAC, Policy, Rainbow, SimpleQ
from lightning_rl.policies.apex import ApexDQN
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs.trainer import reaches_every_parameter
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE
from tests.policies.off_policy_algorithms import Q_LEARNERS, small_policy, transitions
from tests.policies.rows_of_an_older_policy import ON_POLICY, policy_and_older_rows

SMALL: dict[str, Any] = {"model": {"fcnet_hiddens": [8]}, "seed": 1}


class OwnLearnOnBatch(Policy):
    """Overrides `learn_on_batch`."""

    def learn_on_batch(self, batch: SampleBatch) -> dict[str, float]:
        return {}


class OwnLoss(Policy):
    """Overrides `loss`."""

    def loss(self, batch: SampleBatch) -> Any:
        return self.distribution_and_values(batch)[1].square().mean(), {}


def loss_without_values(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> Any:
    """A user's loss function, which does not use the model's values."""
    outputs, _ = model(train_batch)
    return -dist_class(outputs, model).logp(train_batch["actions"]).mean()


def test_reaches_every_parameter_is_false_for_custom_models_and_loss_functions() -> None:
    """If it were true, DDP would not sum their gradients and ranks would diverge."""
    spaces = CARTPOLE.spaces()
    assert reaches_every_parameter(PPO(*spaces), None) and reaches_every_parameter(APPO(*spaces), None)
    assert not reaches_every_parameter(PPO(*spaces), "my_pkg.nets:Net")
    own = build_policy("WithoutValues", base=PPO, loss_fn=loss_without_values)
    assert not reaches_every_parameter(own(*spaces), None) and not reaches_every_parameter(PG(*spaces), None)


@pytest.mark.parametrize("algorithm", [A2C, PPO, IMPALA, APPO, PG])
def test_reaches_every_parameter_is_true_exactly_where_all_parameters_have_gradients(algorithm: type[Policy]) -> None:
    """Where it is false, DDP searches the graph at every step. PG's loss does not use the model's values."""
    env = CARTPOLE
    policy = algorithm(*env.spaces())
    loss, _ = policy.learner.total_loss(policy.learner.rows_of(RolloutWorker(env, policy, fragment_length=8).sample()))
    learned = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    reached = [gradient is not None for gradient in torch.autograd.grad(loss, learned, allow_unused=True)]
    assert reaches_every_parameter(policy, None) is all(reached) is (algorithm is not PG)


def test_reaches_every_parameter_is_true_for_losses_that_declare_it() -> None:
    declare = {PPO, A2C, IMPALA, APPO, ES, ARS, SimpleQ, DQN, Rainbow, ApexDQN, R2D2}
    others = {PG, SAC, OwnLearnOnBatch, OwnLoss}
    spaces = CARTPOLE.spaces()
    assert {each for each in declare | others if reaches_every_parameter(each(*spaces, **SMALL), None)} == declare


@pytest.mark.parametrize("name", [*Q_LEARNERS, *(each.__name__ for each in ON_POLICY)])
def test_losses_that_declare_to_reach_every_parameter_do(name: str) -> None:
    classes = {each.__name__: each for each in ON_POLICY}
    policy, batch = policy_and_older_rows(classes[name]) if name in classes else (small_policy(name), transitions(name))
    policy.zero_grad()
    policy.loss(batch)[0].backward()
    assert reaches_every_parameter(policy, None)
    for key, parameter in policy.named_parameters():
        assert not parameter.requires_grad or parameter.grad is not None, key
