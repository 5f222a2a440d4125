"""Methods of a LightningModule that a policy's learner replaces are refused before training, in every way to train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer, callbacks
from lightning.pytorch.callbacks import Callback

from lightning_rl import Algorithm, RolloutDataModule, ScratchPolicy
from lightning_rl.cli import main
from lightning_rl.errors import ConfigError
from lightning_rl.learning.lightning_limits import REPLACED
from lightning_rl.policies import DQN, PPO, SAC, PolicySet
from tests.envs.classic_control import CARTPOLE, PENDULUM
from tests.policies.fits_and_files import trainer_of
from tests.policies.several_agents import several as policies_of

WAYS = r"optimizer=.*lr=.*parameter_groups"
KEYWORDS: dict[str, Any] = {"passes": 1, "minibatches": 1}


def own_optimizer(self: Any) -> Any:
    """SGD with a rate of 0 and a scheduler, as in a LightningModule for supervised learning."""
    optimizer = torch.optim.SGD(self.parameters(), lr=0.0)
    return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class OwnOptimizer(PPO):
    """PPO with a method that the learner would ignore."""

    configure_optimizers = own_optimizer


def fit(policy: Any, directory: Path, **keywords: Any) -> Trainer:
    trainer, workers = trainer_of(directory, **keywords), {"envs_per_worker": 2, "fragment_length": 16}
    trainer.fit(policy, RolloutDataModule(CARTPOLE, workers, {"episodes": 1, "every_env_steps": 60}))
    return trainer


def several(entry: Any) -> PolicySet:
    return policies_of({"a": entry}, carts=1)


def test_a_class_s_own_configure_optimizers_is_refused_by_every_way_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=f"OwnOptimizer.configure_optimizers .*{WAYS}"):
        OwnOptimizer(*CARTPOLE.spaces())
    with pytest.raises(ConfigError, match=WAYS):
        Algorithm(OwnOptimizer, "CartPole-v1", config={"run_dir": str(tmp_path)})
    path = f"policy={__name__}:OwnOptimizer"
    assert main(["train", path, "env=cartpole", "experiment=none", f"run_dir={tmp_path / 'run'}"]) == 2
    assert "parameter_groups" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=f"policies.a.*{WAYS}"):
        several({"_target_": OwnOptimizer})
    monkeypatch.setattr(PPO, "configure_optimizers", own_optimizer)
    with pytest.raises(ConfigError, match=WAYS):
        PPO(*CARTPOLE.spaces())


def test_a_method_assigned_to_an_object_is_refused_when_fit_begins(tmp_path: Path) -> None:
    policy = PPO(*CARTPOLE.spaces(), **KEYWORDS)
    policy.configure_optimizers = lambda: own_optimizer(policy)  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match=WAYS):
        fit(policy, tmp_path)
    assert policy.env_steps == 0


@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.parametrize(("base", "env"), [(PPO, CARTPOLE), (DQN, CARTPOLE), (SAC, PENDULUM)])
def test_every_method_that_the_learner_replaces_is_refused(name: str, base: Any, env: Any) -> None:
    own = type("Own", (base,), {name: lambda self, *arguments: None, "__module__": __name__})
    with pytest.raises(ConfigError, match=f"Own.{name}"):
        own(*env.spaces())


class Stepping(ScratchPolicy):
    """Learns from scratch, by an optimizer that Lightning knows."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any = None) -> None:
        super().__init__(observation_space, action_space, config)
        self.net = torch.nn.Linear(4, 2)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.net.parameters(), lr=0.1)

    def compute_actions(self, obs: Any, state: Any = (), **_: Any) -> Any:
        return [0 for _ in obs], [], {}

    def learn_on_batch(self, batch: Any) -> dict[str, float]:
        optimizer: Any = self.optimizers()
        loss = self.net(torch.as_tensor(batch.obs)).square().mean()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return {"loss": loss.item()}


def test_a_policy_from_scratch_steps_its_own_optimizer_but_not_among_several(tmp_path: Path) -> None:
    policy = Stepping(*CARTPOLE.spaces())
    before = policy.net.weight.detach().clone()
    trainer = fit(policy, tmp_path)
    assert trainer.global_step == policy.iterations > 0 and not torch.equal(policy.net.weight, before)
    with pytest.raises(ConfigError, match=r"policies.a.*configure_optimizers"):
        several({"_target_": Stepping})


def test_hooks_that_lightning_does_not_call_of_one_of_several_policies_are_refused() -> None:
    for name in ("on_train_epoch_end", "setup", "on_save_checkpoint", "validation_step", "backward"):
        own = type("Own", (PPO,), {name: lambda self, *arguments: None, "__module__": __name__})
        own(*CARTPOLE.spaces())  # alone it is called
        with pytest.raises(ConfigError, match=rf"policies.a.*Own.{name} .*callback"):
            several({"_target_": own})
    built = PPO(*CARTPOLE.spaces())
    held = several(built)
    built.on_train_epoch_end = lambda: None  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="on_train_epoch_end"):
        held.on_fit_start()


def test_on_before_zero_grad_is_called_before_each_step_with_the_last_gradients(tmp_path: Path) -> None:
    """Of the policy, and of callbacks."""
    gradients: list[bool] = []

    class Counting(PPO):
        zeroed = 0

        def on_before_zero_grad(self, optimizer: torch.optim.Optimizer) -> None:
            self.zeroed += 1

    class BeforeZeroGrad(Callback):
        def on_before_zero_grad(self, trainer: Trainer, pl_module: Any, optimizer: torch.optim.Optimizer) -> None:
            gradients.append(any(p.grad is not None and bool(p.grad.any()) for p in pl_module.parameters()))

    policy = Counting(*CARTPOLE.spaces(), **KEYWORDS)
    fit(policy, tmp_path, callbacks=[BeforeZeroGrad()])
    assert policy.zeroed == policy.gradient_steps > 1
    assert gradients == [False, *[True] * (policy.gradient_steps - 1)]


def test_callbacks_that_change_a_learner_s_steps_are_refused_before_training(tmp_path: Path) -> None:
    policy = PPO(*CARTPOLE.spaces(), **KEYWORDS)
    for callback in (
        callbacks.StochasticWeightAveraging(swa_lrs=1e-2),
        callbacks.LearningRateFinder(),
        callbacks.BatchSizeFinder(),
        callbacks.SpikeDetection(),
        callbacks.GradientAccumulationScheduler({0: 2}),
        callbacks.BackboneFinetuning(),
    ):
        with pytest.raises(ConfigError, match=f"callback {type(callback).__name__}: .*: "):
            fit(policy, tmp_path, callbacks=[callback])
    assert policy.env_steps == 0


def test_validations_after_every_iteration_may_be_configured(tmp_path: Path) -> None:
    """`val_check_interval=1` is one iteration; 1.0, the default, is the end of an epoch."""

    class Evaluations(Callback):
        seen = 0

        def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
            self.seen += 1

    policy, evaluations = PPO(*CARTPOLE.spaces(), **KEYWORDS), Evaluations()
    fit(policy, tmp_path, callbacks=[evaluations], val_check_interval=1)
    assert evaluations.seen == 1 + policy.iterations > 2  # one before training
