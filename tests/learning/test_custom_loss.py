"""A model's `custom_loss` and `metrics`, in every algorithm of conf/policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn

from lightning_rl.cli import main
from lightning_rl.config import compose_config
from lightning_rl.data.offline import JsonReader, JsonWriter
from lightning_rl.errors import UnsupportedSpaceError, import_object
from lightning_rl.models import Model
from lightning_rl.models.fully_connected import FullyConnectedNetwork
from lightning_rl.policies import Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.sample_batch import SampleBatch
from tests.envs.classic_control import CARTPOLE, PENDULUM

EVOLVING = ("ars", "es")  # follow returns alone, and refuse a model with a loss of its own
FILES = sorted((Path(__file__).parents[2] / "conf" / "policy").glob("*.yaml"))
POLICIES = [file.stem for file in FILES if file.stem not in EVOLVING]


class Pulled(FullyConnectedNetwork):
    """Two parameters that nothing but the auxiliary losses reaches: d/dp of p² is 2p, of 3q is 3."""

    def __init__(self, obs_space: Any, action_space: Any, num_outputs: int, *, form: str = "list", **keywords: Any):
        super().__init__(obs_space, action_space, num_outputs, **keywords)
        self.p, self.q = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.tensor(1.0))
        self.form = form
        self.given: list[tuple[Tensor, SampleBatch]] = []

    def custom_loss(self, policy_loss: Tensor, loss_inputs: SampleBatch) -> Any:
        self.given.append((policy_loss.detach(), loss_inputs))
        self.auxiliary = self.p.square()
        if self.form == "list":
            return [policy_loss, self.auxiliary, 3 * self.q]
        return policy_loss + self.auxiliary + 3 * self.q

    def metrics(self) -> dict[str, Any]:
        return {"auxiliary": self.auxiliary, "constant": 0.25}


def made(name: str, model: dict[str, Any], **changes: Any) -> tuple[Policy, RolloutWorker]:
    sgd = {"optimizer": "sgd", "lr": 0.1, "max_grad_norm": None, "optimizer_kwargs": None}
    keywords = {**compose_config([f"policy={name}", "experiment=none"])["policy"], **sgd, "model": model, **changes}
    policy_class, env = import_object(keywords.pop("_target_")), CARTPOLE
    try:
        policy: Policy = policy_class(*env.spaces(), **keywords)
    except UnsupportedSpaceError:
        env = PENDULUM
        policy = policy_class(*env.spaces(), **keywords)
    policy.passes = policy.minibatches = 1
    policy.gradient_steps = 1  # TD3's actor steps at every second one
    return policy, RolloutWorker(env, policy, num_envs=4, fragment_length=16, seed=1)


def own(policy: Policy) -> Any:
    """The custom model, in a head for Q-values or not."""
    return getattr(policy.model, "wrapped", policy.model)


@pytest.mark.parametrize("form", ["list", "sum"])
@pytest.mark.parametrize("name", POLICIES)
def test_the_auxiliary_gradient_reaches_the_parameters_and_its_value_the_metrics(name: str, form: str) -> None:
    """SGD with rate 0.1: p = 2 − 0.1 · 2 · 2 = 1.6 and q = 1 − 0.1 · 3 = 0.7; the loss grows by p² + 3q = 7."""
    policy, worker = made(name, {"custom_model": Pulled, "custom_model_config": {"form": form}})
    model = own(policy)
    metrics = policy.learn_on_batch(worker.sample())
    assert (model.p.item(), model.q.item()) == pytest.approx((1.6, 0.7))
    assert metrics["model/auxiliary"] == 4.0 and metrics["model/constant"] == 0.25
    policy_loss, loss_inputs = model.given[0]
    assert metrics["loss"] == pytest.approx(float(policy_loss) + 7.0, rel=1e-5)
    assert {"obs", "actions"} <= set(loss_inputs.columns) and loss_inputs.count > 32


@pytest.mark.parametrize("name", POLICIES)
def test_without_an_auxiliary_loss_nothing_of_it_moves(name: str) -> None:
    class Plain(Pulled):
        custom_loss = Model.custom_loss
        metrics = Model.metrics

    policy, worker = made(name, {"custom_model": Plain})
    policy.learn_on_batch(worker.sample())
    assert own(policy).p.item() == 2.0 and own(policy).q.item() == 1.0


class Imitates(FullyConnectedNetwork):
    """Adds 10 × the cross entropy of the first output, as a logit, and the actions in a file."""

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


@pytest.fixture
def expert_file(tmp_path: Path) -> str:
    """An expert that pushes to the side to which the pole falls."""
    obs = torch.randn(512, 4, generator=torch.manual_seed(0))
    writer = JsonWriter(tmp_path / "expert")
    for rows in torch.arange(512).split(64):
        writer.write(SampleBatch(obs=obs[rows], actions=(obs[rows, 2] > 0).long()))
    return str(tmp_path / "expert")


@pytest.mark.parametrize("name", POLICIES)
def test_offline_data_can_be_read_inside_the_loss(name: str, expert_file: str) -> None:
    model = {"custom_model": Imitates, "custom_model_config": {"file": expert_file}}
    policy, worker = made(name, model, optimizer="adam", lr=1e-2)
    errors = [policy.learn_on_batch(worker.sample())["model/imitation"] for _ in range(30)]
    assert errors[0] == pytest.approx(0.693, abs=0.1)  # ln 2: undecided
    assert errors[-1] < 0.35


def test_the_metrics_of_a_model_reach_tensorboard(tmp_path: Path, expert_file: str) -> None:
    overrides = ["env=cartpole", "total_env_steps=600", "workers.envs_per_worker=4", "workers.fragment_length=32"]
    model = [f"model.custom_model={__name__}:Imitates", f"model.custom_model_config.file={expert_file}"]
    assert main(["train", "policy=ppo", *overrides, *model, f"run_dir={tmp_path / 'run'}"]) == 0
    events = EventAccumulator(str(tmp_path / "run" / "tb"))
    events.Reload()
    values = [event.value for event in events.Scalars("train/model/imitation")]
    assert len(values) >= 4 and values[-1] < values[0]
