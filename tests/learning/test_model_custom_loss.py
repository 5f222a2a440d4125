"""A model's `custom_loss` and `metrics`, in every algorithm of conf/policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

from lightning_rl.config import compose_config
from lightning_rl.config.groups import group_options, option_text
from lightning_rl.data.offline import JsonReader, JsonWriter
from lightning_rl.errors import ConfigError, UnsupportedSpaceError, import_object
from lightning_rl.models import Model
from lightning_rl.models.fully_connected import FullyConnectedNetwork
from lightning_rl.policies import A2C, A3C, APPO, IMPALA, PG, PPO, Policy
from lightning_rl.policies.evolution import EvolutionStrategy
from lightning_rl.rollouts import RolloutWorker, WorkerSet
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE, PENDULUM
from tests.families import each
from tests.learning.models import AuxiliaryLoss


def takes_custom_losses(name: str) -> bool:
    """Whether a policy learns by gradients, and not as a group, for which there are tests of its own."""
    policy_class = import_object(yaml.safe_load(option_text("policy", name))["_target_"])
    return not issubclass(policy_class, EvolutionStrategy) and not policy_class.acts_for_group


POLICIES = [name for name in group_options("policy") if takes_custom_losses(name)]


def policy_and_worker(name: str, model: dict[str, Any], **changes: Any) -> tuple[Policy, RolloutWorker]:
    sgd = {"optimizer": "sgd", "lr": 0.1, "max_grad_norm": None, "optimizer_kwargs": None}
    keywords = {**compose_config([f"policy={name}", "experiment=none"])["policy"], **sgd, "model": model, **changes}
    policy_class, env = import_object(keywords.pop("_target_")), CARTPOLE
    try:
        policy: Policy = policy_class(*env.spaces(), **keywords)
    except UnsupportedSpaceError:
        env = PENDULUM
        policy = policy_class(*env.spaces(), **keywords)
    policy.passes = policy.minibatches = 1
    policy.gradient_steps = getattr(policy, "policy_delay", 2) - 1  # the next step is one of delayed actors
    return policy, RolloutWorker(env, policy, num_envs=4, fragment_length=16, seed=1)


def custom_model(policy: Policy) -> Any:
    """The custom model, inside the QModel if there is one."""
    return getattr(policy.model, "wrapped", policy.model)


class WithoutLoss(AuxiliaryLoss):
    custom_loss, metrics = Model.custom_loss, Model.metrics


@pytest.mark.parametrize("form", ["list", "sum"])
@pytest.mark.parametrize("name", each(POLICIES))
def test_a_model_s_custom_loss_trains_its_parameters_and_its_metrics_are_reported(name: str, form: str) -> None:
    """SGD with rate 0.1: p = 2 − 0.1 · 2 · 2 = 1.6 and q = 1 − 0.1 · 3 = 0.7; the loss grows by p² + 3q = 7."""
    policy, worker = policy_and_worker(name, {"custom_model": AuxiliaryLoss, "custom_model_config": {"form": form}})
    model = custom_model(policy)
    metrics = policy.learn_on_batch(worker.sample())
    assert (model.p.item(), model.q.item()) == pytest.approx((1.6, 0.7))
    assert metrics["model/auxiliary"] == 4.0 and metrics["model/constant"] == 0.25
    policy_loss, loss_inputs = model.given[0]
    assert metrics["loss"] == pytest.approx(float(policy_loss) + 7.0, rel=1e-5)
    assert {"obs", "actions"} <= set(loss_inputs.columns) and loss_inputs.count > 32


@pytest.mark.parametrize("name", each(POLICIES))
def test_a_model_without_custom_loss_keeps_the_parameters_that_only_it_would_train(name: str) -> None:
    policy, worker = policy_and_worker(name, {"custom_model": WithoutLoss})
    policy.learn_on_batch(worker.sample())
    assert (custom_model(policy).p.item(), custom_model(policy).q.item()) == (2.0, 1.0)


@pytest.mark.parametrize("name", ["ppo", "dqn"])
@pytest.mark.parametrize("returned", [None, 3.0, [], [torch.zeros(()), 1.0], torch.zeros(2)], ids=repr)
def test_a_custom_loss_that_returns_no_loss_is_refused(name: str, returned: Any) -> None:
    class Forgetful(FullyConnectedNetwork):
        def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Any:
            return returned

    policy, worker = policy_and_worker(name, {"custom_model": Forgetful})
    with pytest.raises(ConfigError, match=r"Forgetful\.custom_loss"):
        policy.learn_on_batch(worker.sample())


class ImitationLoss(FullyConnectedNetwork):
    """Adds 10 × the cross entropy between its first output, a logit, and the actions in a file."""

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, *, file: str, **keywords: Any):
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.reader = JsonReader(file)

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> list[Tensor]:
        batch = self.reader.next()
        outputs, _ = self({"obs_flat": batch.obs[:, : self.preprocessor.size]}, [], None)
        self.imitation = nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], batch.actions.float())
        return [policy_loss, 10 * self.imitation]

    def metrics(self) -> dict[str, Any]:
        return {"imitation": self.imitation}


@pytest.mark.parametrize("name", each(POLICIES, default=("ppo", "dqn")))
def test_a_model_s_custom_loss_may_read_offline_data(name: str, tmp_path: Path) -> None:
    """The expert pushes the cart to the side to which the pole falls."""
    obs = torch.randn(512, 4, generator=torch.manual_seed(0))
    for rows in torch.arange(512).split(64):
        JsonWriter(tmp_path).write(SampleBatch(obs=obs[rows], actions=(obs[rows, 2] > 0).long()))
    model = {"custom_model": ImitationLoss, "custom_model_config": {"file": str(tmp_path)}}
    policy, worker = policy_and_worker(name, model, optimizer="adam", lr=1e-2)
    errors = [policy.learn_on_batch(worker.sample())["model/imitation"] for _ in range(30)]
    assert errors[0] == pytest.approx(0.693, abs=0.1)  # ln 2: probability ½ for each action
    assert errors[-1] < 0.35


class LastForward(AuxiliaryLoss):
    """Its custom loss and its metrics use the values of its last forward."""

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Tensor:
        values = self.value_function()
        self.seen = [*getattr(self, "seen", []), (loss_inputs.count, len(values), values.requires_grad)]
        return policy_loss + values.square().mean()

    def metrics(self) -> dict[str, Any]:
        return {"rows": float(len(self.value_function()))}


@pytest.mark.parametrize("algorithm", [PG, A2C, A3C, PPO, IMPALA, APPO], ids=lambda algorithm: algorithm.__name__)
def test_a_model_s_custom_loss_sees_its_last_forward_on_the_batch_of_the_loss(algorithm: type[Policy]) -> None:
    policy: Any = algorithm(*CARTPOLE.spaces(), model={"custom_model": LastForward}, seed=0)
    policy.passes, policy.minibatches = 2, 1
    workers = WorkerSet(CARTPOLE, policy, [0], num_envs=2, fragment_length=30)
    fragment = workers.sample()
    metrics = policy.learn_on_batch(fragment)
    rows = int(fragment.valid.sum())
    assert policy.model.seen == [(rows, rows, True)] * len(policy.model.seen) and policy.model.seen
    assert metrics["model/rows"] == rows
