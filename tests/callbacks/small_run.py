"""The smallest run with all that callbacks rely on: a counting policy, data with state, evaluation, a real Trainer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from lightning_rl.callbacks import AtomicCheckpointIO
from lightning_rl.data.datasets import ENDLESS
from lightning_rl.data.epochs import Epochs

STEPS = 100  # environment steps per iteration
COUNTERS = ("env_steps", "iterations", "gradient_steps")


class SmallPolicy(LightningModule):
    """Descends on numbers; `warmup` iterations take no gradient step."""

    def __init__(self, warmup: int = 0, start: int = 0) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.layer = torch.nn.Linear(1, 1)
        with torch.no_grad():
            self.layer.weight.fill_(0.1)
            self.layer.bias.fill_(0.2)
        self.warmup = warmup
        self.env_steps, self.iterations, self.gradient_steps = start, 0, 0
        self.iteration_metrics: dict[str, float] = {}
        self.learn_seconds = 0.0
        self.policy_id, self.policies_to_train = None, ("default_policy",)
        self.seen: list[tuple[int, int]] = []

    @property
    def policies(self) -> dict[str, Any]:
        return {"default_policy": self}

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.seen.append((int(batch[0]), int(batch[1])))
        loss = (self.layer(batch[:1].float() + 0.1 * batch[1:].float()) - 1.0).square().mean()
        if self.iterations >= self.warmup:
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            self.gradient_steps += 1
        self.env_steps += STEPS
        self.iterations += 1
        self.iteration_metrics = {"loss": float(loss.detach()), "lr": 0.01}
        self.learn_seconds = 0.001

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("eval/ep_rew_mean", batch.double().mean(), on_epoch=True, batch_size=1, logger=False)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["policy"] = {"class": "small"}
        checkpoint["counters"] = {name: getattr(self, name) for name in COUNTERS}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        for name in COUNTERS:
            setattr(self, name, checkpoint["counters"][name])


class SmallData(LightningDataModule):
    """Fragment k of an environment that has run for `phase` fragments since its last reset; epochs of 4 iterations."""

    def __init__(
        self, every_env_steps: int = 4 * STEPS, evaluations: Sequence[float] = (), epochs: Epochs | None = None
    ) -> None:
        super().__init__()
        self.epochs, self.evaluations = epochs or Epochs(every_env_steps), evaluations
        self.fragment = self.phase = self.evaluation = 0
        self.episode_window = SimpleNamespace(returns=deque(maxlen=100))

    def setup(self, stage: str) -> None:
        trainer: Any = self.trainer
        if self.epochs not in trainer.callbacks:
            trainer.callbacks.insert(0, self.epochs)

    def train_dataloader(self) -> Any:
        return Sized(self.fragments, ENDLESS)

    def val_dataloader(self) -> Any:
        return Sized(self.evaluate, 1) if self.evaluations else []

    def fragments(self) -> Iterator[torch.Tensor]:
        while True:
            item = torch.tensor([self.fragment, self.phase])
            self.fragment, self.phase = self.fragment + 1, self.phase + 1
            self.episode_window.returns.append(float(self.fragment))
            yield item

    def evaluate(self) -> Iterator[torch.Tensor]:
        value = self.evaluations[self.evaluation % len(self.evaluations)]
        self.evaluation += 1
        yield torch.tensor([value])

    def pop_iteration_metrics(self) -> dict[str, float]:
        return {"rollout/ep_rew_mean": float(self.fragment), "time/collect_s": 0.002}

    def state_dict(self) -> dict[str, Any]:
        return {"fragment": self.fragment, "evaluation": self.evaluation, "phase": self.phase}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.fragment, self.evaluation, self.phase = (state_dict[name] for name in ("fragment", "evaluation", "phase"))


class Sized:
    """A sized iterable, as Lightning must be given: it prefetches from an unsized one."""

    def __init__(self, make: Any, length: int) -> None:
        self.make, self.length = make, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Any:
        return self.make()


class At(Callback):
    """Does something after iteration `iteration` (counted in the policy)."""

    def __init__(self, iteration: int, action: Any, hook: str = "on_train_batch_end") -> None:
        self.iteration, self.action = iteration, action
        setattr(self, hook, self._act)

    def _act(self, trainer: Trainer, pl_module: Any, *args: Any) -> None:
        if pl_module.iterations == self.iteration:
            self.action(trainer)


def small_trainer(directory: Path, callbacks: Sequence[Callback] = (), logger: Any = False, **options: Any) -> Trainer:
    """The Trainer as a run makes it."""
    keywords: dict[str, Any] = {
        "accelerator": "cpu",
        "max_epochs": -1,
        "logger": logger,
        "callbacks": list(callbacks),
        "plugins": [AtomicCheckpointIO()],
        "default_root_dir": directory,
        "enable_checkpointing": any("Checkpoint" in type(callback).__name__ for callback in callbacks),
        "enable_progress_bar": any("ProgressBar" in type(callback).__name__ for callback in callbacks),
        "enable_model_summary": False,
        "enable_autolog_hparams": False,
        "log_every_n_steps": 1,
        "num_sanity_val_steps": 0,
    }
    return Trainer(**{**keywords, **options})


def stop(trainer: Trainer) -> None:
    trainer.should_stop = True
