"""Half precision in networks only: acting, recorded columns and losses stay float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from lightning.fabric.plugins.precision.precision import _PRECISION_INPUT
from lightning.pytorch import Trainer
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader

from lightning_rl.config import check_config, compose_config
from lightning_rl.data import RolloutDataModule
from lightning_rl.errors import ConfigError
from lightning_rl.policies import Policy, ppo
from lightning_rl.runs import run
from lightning_rl.runs.precision import LowPrecisionLoss, LowPrecisionWeights, precision_plugin
from tests.envs.classic_control import CARTPOLE
from tests.families import each

SMALL = ("experiment=none", "logger=none", "evaluation=none", "model.fcnet_hiddens=[16]", "total_env_steps=256")
ON_POLICY = ("workers.fragment_length=16", "policy.minibatches=2", "policy.passes=2")
REPLAYED = ("data.learning_starts=64", "data.batch_size=16", "total_env_steps=96")


def build(tmp_path: Path, *overrides: str) -> tuple[Any, Any, Trainer]:
    config = compose_config([*SMALL, f"run_dir={tmp_path}", "trainer.enable_progress_bar=false", *overrides])
    check_config(config)
    return run.build(config)


def train(tmp_path: Path, *overrides: str) -> Any:
    policy, data, trainer = build(tmp_path, *overrides)
    run.fit(policy, data, trainer)
    assert policy.gradient_steps > 0
    return policy


RUNS = {
    "ppo": ("env=cartpole", *ON_POLICY, "policy.observation_filter=mean_std", "model.vf_share_layers=true"),
    "a2c": ("env=pendulum", "workers.fragment_length=16"),
    "dqn": ("env=cartpole", *REPLAYED),
    "sac": ("env=pendulum", *REPLAYED),
    "td3": ("env=pendulum", *REPLAYED),
}


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("policy", each(RUNS, default=("ppo", "sac")))
def test_policies_learn_in_half_precision(policy: str, precision: str, tmp_path: Path):
    learned = train(tmp_path, f"policy={policy}", f"trainer.precision={precision}", *RUNS[policy])
    kinds = {parameter.dtype for parameter in learned.parameters()}
    assert kinds == {torch.float32 if precision == "bf16-mixed" else torch.bfloat16}
    assert {buffer.dtype for buffer in learned.buffers()} & {torch.bfloat16} == set()
    copy = learned.copy_for_acting()
    for name, tensor in learned.state_dict().items():
        assert torch.equal(copy.state_dict()[name], tensor.to(copy.state_dict()[name].dtype)), name


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_the_network_computes_in_half_precision_and_the_loss_in_float32(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lossy, layers = set[torch.dtype](), set[torch.dtype]()

    def spy(logp: torch.Tensor, *others: Any) -> torch.Tensor:
        lossy.update(tensor.dtype for tensor in (logp, *others[:2]))
        return surrogate(logp, *others)

    surrogate = ppo.clipped_surrogate
    monkeypatch.setattr(ppo, "clipped_surrogate", spy)
    policy, data, trainer = build(tmp_path, "policy=ppo", "env=cartpole", *ON_POLICY, f"trainer.precision={precision}")

    class Watched(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            outputs = function(*arguments, **(keywords or {}))
            if function in (torch.nn.functional.linear, torch.addmm) and outputs.requires_grad:
                layers.add(outputs.dtype)
            return outputs

    with Watched():
        run.fit(policy, data, trainer)
    assert (lossy, layers) == ({torch.float32}, {torch.bfloat16})


@pytest.mark.parametrize("policy", ["ppo", "sac"])
def test_acting_and_recording_is_as_in_full_precision(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """SAC's environment acts in the middle of a training step; until the first gradient step both runs are the same."""
    env = ("env=pendulum", *(REPLAYED if policy == "sac" else ON_POLICY))

    def fragments(precision: str) -> list[Any]:
        seen: list[Any] = []
        chosen, data, trainer = build(tmp_path / precision, f"policy={policy}", *env, f"trainer.precision={precision}")
        owner, name = (chosen.learner, "take_experience") if policy == "sac" else (chosen, "postprocess_trajectory")
        taken = getattr(owner, name)

        def watched(fragment: Any, *others: Any) -> Any:
            seen.append(fragment)
            return taken(fragment, *others)

        monkeypatch.setattr(owner, name, watched)
        run.fit(chosen, data, trainer)
        return seen

    half, full = fragments("bf16-mixed"), fragments("32-true")
    for column in ("obs", "actions", "action_logp", "rewards"):
        if column in full[0]:
            assert torch.equal(half[0][column], full[0][column])
            assert {fragment[column].dtype for fragment in half} == {full[0][column].dtype}


@pytest.mark.parametrize("optimizer", each(["adam", "rmsprop", "sgd", "torch.optim.NAdam"], default=["adam"]))
def test_float16_gradients_that_overflow_are_scaled_down_and_no_reason_to_stop(optimizer: str, tmp_path: Path):
    """A scale of 2^40 overflows float16 at once: steps are left out and the scale is halved until they fit."""
    how = ("policy.passes=20", f"policy.optimizer={optimizer}")
    policy, data, trainer = build(tmp_path, "policy=ppo", "env=cartpole", *ON_POLICY, *how)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)  # pyright: ignore[reportPrivateImportUsage]
    trainer.strategy.precision_plugin = LowPrecisionLoss("16-mixed", "cpu", scaler)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    run.fit(policy, data, trainer)
    assert scaler.get_scale() < 2.0**40
    assert all(torch.isfinite(parameter).all() for parameter in policy.parameters())
    assert any(not torch.equal(before[name], tensor) for name, tensor in policy.state_dict().items())


def test_a_checkpoint_of_half_precision_weights_loads_as_float32(tmp_path: Path):
    train(tmp_path, "policy=ppo", "env=cartpole", *ON_POLICY, "trainer.precision=bf16-true")
    loaded = Policy.load(str(tmp_path / "checkpoints" / "last.ckpt"))
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    loaded.compute_single_action(loaded.observation_space.sample())


def test_lightning_keeps_its_own_plugins_for_other_precisions():
    assert precision_plugin("32-true", "cpu") is precision_plugin(None, "cpu") is None
    assert isinstance(precision_plugin("bf16", "cpu"), LowPrecisionLoss)
    assert isinstance(precision_plugin("bf16-true", "cuda"), LowPrecisionWeights)


# -- every precision of Lightning's ------------------------------------------------------------------------------------
WORKING = {"32-true", "32", 32, "bf16-mixed", "bf16", "bf16-true"}  # on a CPU


PRECISIONS = [name for kind in get_args(_PRECISION_INPUT) for name in get_args(kind)]


@pytest.mark.parametrize("precision", each(PRECISIONS, default=("bf16-true", "16-mixed", "16-true", "64-true")))
def test_every_precision_of_lightning_s_works_in_a_run_or_is_refused_before_it(precision: Any, tmp_path: Path) -> None:
    overrides = ["policy=ppo", "env=cartpole", *ON_POLICY, f"trainer.precision={precision}", "total_env_steps=64"]
    if precision in WORKING:
        train(tmp_path, *overrides)
        return
    with pytest.raises(ConfigError, match=rf"trainer.precision={precision}\b.*(32-true|bf16-mixed)"):
        build(tmp_path, *overrides)


@pytest.mark.parametrize("precision", ["64-true", "16-true", "bf16-true"])
def test_a_precision_that_converts_the_whole_policy_is_refused_in_a_fit_of_one_s_own(
    precision: Any, tmp_path: Path
) -> None:
    policy = ppo.PPO(*CARTPOLE.spaces())
    keywords: dict[str, Any] = {"accelerator": "cpu", "logger": False, "default_root_dir": tmp_path}
    data = RolloutDataModule(CARTPOLE, {"fragment_length": 16}, {"episodes": 1})
    trainer = Trainer(precision=precision, **keywords)
    for verb in (trainer.fit, trainer.validate):
        with pytest.raises(ConfigError, match=rf"{precision}.*32-true"):
            verb(policy, datamodule=data)
    with pytest.raises(ConfigError, match=precision):
        trainer.predict(policy, DataLoader(torch.zeros(2, 4)))  # type: ignore[arg-type]
