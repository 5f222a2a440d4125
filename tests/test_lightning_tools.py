"""What docs/lightning.md says of Lightning's tools, beyond its code blocks, which test_docs.py runs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback, EMAWeightAveraging
from lightning.pytorch.profilers import SimpleProfiler
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lightning_rl import PPO, EnvCreator, Policy, RolloutDataModule
from lightning_rl.errors import ConfigError
from lightning_rl.runs import run
from tests.run_comparison import checked_config
from tests.run_processes import import_file

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "lightning.md").read_text(encoding="utf-8")
CARTPOLE = EnvCreator("CartPole-v1")
SHORT = ["policy=ppo", "env=cartpole", "experiment=none", "logger=csv", "workers.fragment_length=32"]

Weights = dict[str, torch.Tensor]


def rollouts() -> RolloutDataModule:
    workers, evaluation = {"envs_per_worker": 2, "fragment_length": 32}, {"episodes": 1, "every_env_steps": 200}
    return RolloutDataModule(CARTPOLE, workers, evaluation)


def fit(policy: Policy, **keywords: Any) -> L.Trainer:
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = L.Trainer(**{"max_epochs": 2, "accelerator": "cpu", "logger": False, **quiet, **keywords})
    trainer.fit(policy, rollouts())
    return trainer


def weights(policy: L.LightningModule) -> Weights:
    return {name: value.detach().clone() for name, value in policy.named_parameters()}


def same(some: Weights, others: Weights) -> bool:
    return all(torch.equal(some[name], others[name]) for name in some)


class Watch(Callback):
    """Keeps the weights after the first and the last iteration, and those that evaluation plays with."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if not hasattr(self, "first"):
            self.first = weights(pl_module)
        self.last = weights(pl_module)

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, *position: Any) -> None:
        self.evaluated = weights(pl_module)


def test_evaluation_plays_with_the_averaged_weights_and_training_goes_on_with_its_own() -> None:
    """With decay 1 the average stays what it was after the first iteration."""
    policy, watch = PPO(*CARTPOLE.spaces(), seed=0), Watch()
    fit(policy, callbacks=[watch, EMAWeightAveraging(decay=1.0, use_buffers=False)])
    assert same(watch.evaluated, watch.first) and same(weights(policy), watch.first)
    assert not same(watch.last, watch.first)


def test_a_run_s_last_checkpoint_holds_the_average_and_the_weights_that_learn(tmp_path: Path) -> None:
    averaging = "callbacks=[{callback: lightning.pytorch.callbacks:EMAWeightAveraging, decay: 0.9, use_buffers: false}]"
    run.train(checked_config(*SHORT, averaging, "total_env_steps=1000", f"run_dir={tmp_path / 'run'}"))
    file = tmp_path / "run" / "checkpoints" / "last.ckpt"
    saved = torch.load(file, weights_only=True)
    average, learning = saved["state_dict"], saved["current_model_state"]
    assert any(not torch.equal(average[name], learning[name]) for name in average if name.startswith("model."))
    loaded = weights(Policy.load(file))
    assert all(torch.equal(loaded[name], average[name]) for name in loaded)


def test_gradient_accumulation_is_refused_by_lightning_and_by_a_run() -> None:
    with pytest.raises(MisconfigurationException, match="not supported for manual optimization"):
        fit(PPO(*CARTPOLE.spaces()), accumulate_grad_batches=2)
    for key, home in (("accumulate_grad_batches=2", "policy.minibatches"), ("gradient_clip_val=1", "max_grad_norm")):
        with pytest.raises(ConfigError, match=home):
            checked_config(*SHORT, f"trainer.{key}")


def test_the_profiler_has_the_names_of_collecting_and_learning(tmp_path: Path) -> None:
    profiler = SimpleProfiler(tmp_path, filename="report")
    policy = PPO(*CARTPOLE.spaces())
    fit(policy, profiler=profiler, max_epochs=1)
    for name in ("[_TrainingEpochLoop].train_dataloader_next", "run_training_batch"):
        assert f"`{name}`" in PAGE
        assert policy.iterations <= len(profiler.recorded_durations[name]) <= policy.iterations + 1
    assert "run_training_batch" in "".join(file.read_text(encoding="utf-8") for file in tmp_path.glob("*.txt"))


def test_the_table_s_choices_compose_and_pass_the_check() -> None:
    table = PAGE.split("| feature | in a run |")[1].split("\n\n")[0]
    cells = [row.split("|")[2].strip() for row in table.splitlines()[2:]]
    found = [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]
    overrides = [code for code in found if "=" in code and "my_pkg" not in code]
    assert len(overrides) >= 9
    for code in overrides:
        words = re.findall(r"(?:[^\s{]|\{[^}]*\})+", code)
        checked_config("policy=ppo", "env=cartpole", *words)


def test_the_yaml_of_the_page_is_an_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    folder = tmp_path / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    config = checked_config("policy=ppo", "env=cartpole", "experiment=mine")
    assert (config["policy"]["lr"], config["total_env_steps"]) == (1e-3, 20_000)
    assert config["callbacks"] == [{"callback": "lightning.pytorch.callbacks:EMAWeightAveraging", "decay": 0.9}]


# -- the table of what was tried ---------------------------------------------------------------------------------------
def test_the_table_names_all_that_lightning_has_and_nothing_in_it_fails_or_is_ignored() -> None:
    program = import_file(ROOT / "scripts" / "lightning_table.py")
    written = PAGE.split(program.BEGIN)[1].split(program.END)[0]
    arguments = inspect.signature(L.Trainer).parameters
    for name in (*arguments, *program.MODULE_HOOKS, *program.methods(Callback), *program.CALLBACKS):
        assert f"`{name}`" in written, f"{name}: run python scripts/regenerate.py --all"
    assert not re.search(r"\| (fails|ignored|never called|nothing)", written)


@pytest.mark.slow
def test_the_table_is_what_its_program_finds() -> None:
    """Some 140 short runs."""
    program = import_file(ROOT / "scripts" / "lightning_table.py")
    assert program.table() == PAGE.split(program.BEGIN)[1].split(program.END)[0]
