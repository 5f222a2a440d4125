"""`Trainer.fit(policy, datamodule)` by hand logs what a run logs, and Lightning's own parts work with a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.data import DataLoader

from lightning_rl import build_policy
from lightning_rl.callbacks import MetricsCallback, RLCheckpoint
from lightning_rl.callbacks.metric_names import METRICS
from lightning_rl.config import check_config, compose_config
from lightning_rl.data import ReplayDataModule, RolloutDataModule
from lightning_rl.errors import CheckpointError, ConfigError, import_path
from lightning_rl.policies import A2C, DQN, PPO, Policy
from lightning_rl.rollouts import RolloutWorker
from lightning_rl.runs import run
from tests.callbacks.log_files import csv_rows, curve
from tests.envs.classic_control import CARTPOLE
from tests.refusals import not_refused

WORKERS = {"envs_per_worker": 4, "fragment_length": 32}


def lightning_trainer(directory: Path, **keywords: Any) -> Trainer:
    """A Trainer as a user of Lightning makes it, two epochs long and silent."""
    options = {"max_epochs": 2, "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return Trainer(default_root_dir=directory, accelerator="cpu", **{**options, **keywords})


def rollouts() -> RolloutDataModule:
    """Epochs of three iterations: they bring some 122 env steps each."""
    return RolloutDataModule(CARTPOLE, WORKERS, {"episodes": 2, "every_env_steps": 360})


def policy(**keywords: Any) -> PPO:
    return PPO(*CARTPOLE.spaces(), passes=1, minibatches=1, **keywords)


@pytest.mark.parametrize("cls", [RolloutDataModule, ReplayDataModule])
def test_a_datamodule_is_printed_in_one_line_without_playing(cls: Any, tmp_path: Path) -> None:
    """Lightning's own text iterates over the datasets: before `setup` that fails, and later it plays an evaluation."""
    data = cls("CartPole-v1", {"envs_per_worker": 4}, seed=7)
    expected = f"{cls.__name__}('CartPole-v1', num_workers=0, envs_per_worker=4, seed=7)"
    assert str(data) == repr(data) == expected
    lightning_trainer(tmp_path).validate(policy(), data, verbose=False)
    data.evaluate = None  # type: ignore[method-assign, assignment]
    assert str(data) == expected


def table(directory: Path) -> list[dict[str, str]]:
    (file,) = directory.rglob("metrics.csv")
    return csv_rows(file)


def same_weights(one: Policy, other: Policy) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


# -- logging ----------------------------------------------------------------------------------------------------------
def test_lightning_s_loggers_get_the_metrics_of_a_run_at_env_steps(tmp_path: Path) -> None:
    """Six iterations and two evaluations, each a row of Lightning's file."""
    learner = policy()
    loggers = [TensorBoardLogger(tmp_path / "tensorboard"), CSVLogger(tmp_path / "csv")]
    lightning_trainer(tmp_path, logger=loggers).fit(learner, rollouts())
    rows = table(tmp_path / "csv")
    steps = [int(row["step"]) for row in rows]
    assert steps == sorted(steps) and steps[-1] == learner.env_steps
    assert len(set(steps)) == 6 and len(steps) == 8
    assert set(rows[0]) - {"step"} <= set(METRICS)
    common = {"rollout/ep_rew_mean", "train/loss", "train/approx_kl", "time/fps", "sys/rss_mb", "eval/ep_rew_mean"}
    assert common <= set(rows[0])
    assert [row["eval/ep_rew_mean"] != "" for row in rows] == [False, False, False, True] * 2
    (events,) = (tmp_path / "tensorboard").rglob("events*")
    assert [step for step, _ in curve(events.parent, "train/loss")] == sorted(set(steps))


def test_replay_is_logged_too(tmp_path: Path) -> None:
    often = {"episodes": 1, "every_env_steps": 60}
    data = ReplayDataModule(CARTPOLE, {"fragment_length": 8}, often, batch_size=4, learning_starts=16)
    lightning_trainer(tmp_path, logger=CSVLogger(tmp_path)).fit(DQN(*CARTPOLE.spaces()), data)
    assert {"replay/rows", "train/loss", "train/q_mean"} <= set(table(tmp_path)[0])


def test_a_trainer_has_one_metrics_callback_added_or_given(tmp_path: Path) -> None:
    own = MetricsCallback()
    trainer = lightning_trainer(tmp_path, callbacks=[own], logger=CSVLogger(tmp_path))
    learner, data = policy(), rollouts()
    trainer.fit(learner, data)
    trainer.fit_loop.max_epochs = 3
    trainer.fit(learner, data)
    assert [callback for callback in trainer.callbacks if isinstance(callback, MetricsCallback)] == [own]  # type: ignore[attr-defined]
    assert len({row["step"] for row in table(tmp_path)}) == 9
    again = lightning_trainer(tmp_path)
    again.fit(learner, data)
    again.fit(learner, data)
    assert [type(callback) for callback in again.callbacks].count(MetricsCallback) == 1  # type: ignore[attr-defined]


def test_a_fit_without_a_datamodule_warns_that_no_metrics_are_logged(tmp_path: Path) -> None:
    learner = policy()
    fragment = RolloutWorker(CARTPOLE, learner, num_envs=4, fragment_length=8).sample()
    fragments = DataLoader([fragment], batch_size=None)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match=r"callbacks=\[lightning_rl.callbacks.MetricsCallback\(\)\]"):
        lightning_trainer(tmp_path, max_epochs=1, logger=CSVLogger(tmp_path / "empty")).fit(learner, fragments)
    logger = CSVLogger(tmp_path / "full")
    lightning_trainer(tmp_path, max_epochs=2, logger=logger, callbacks=[MetricsCallback()]).fit(policy(), fragments)
    assert [int(row["step"]) for row in table(tmp_path / "full")] == [32, 64]


def test_every_metric_can_be_watched(tmp_path: Path) -> None:
    """As exact as in the loggers: float32 cannot hold 2^24 + 1."""
    trainer, learner = lightning_trainer(tmp_path), policy()
    learner.env_steps = 2**24
    trainer.fit(learner, rollouts())
    (metrics,) = (callback for callback in trainer.callbacks if isinstance(callback, MetricsCallback))  # type: ignore[attr-defined]
    watched = {name: value.item() for name, value in trainer.callback_metrics.items()}
    assert {"rollout/ep_rew_mean", "train/loss", "time/total_s", "eval/ep_rew_mean"} <= set(watched)
    assert watched == metrics.latest


@pytest.mark.parametrize("name", ["rollout/episodes", "train/entropy", "eval/ep_len_mean"])
def test_early_stopping_and_model_checkpoint_read_the_metrics(name: str, tmp_path: Path) -> None:
    """Stops at the second epoch's end: nothing rises by 1e9."""
    stopping = EarlyStopping(name, mode="max", min_delta=1e9, patience=1)
    best = ModelCheckpoint(tmp_path, monitor=name, mode="max", filename="best")
    trainer = lightning_trainer(tmp_path, max_epochs=9, callbacks=[stopping, best])
    trainer.fit(policy(), rollouts())
    assert trainer.current_epoch == 2
    assert best.best_model_score is not None and torch.isfinite(best.best_model_score)
    assert Path(best.best_model_path).is_file()


def test_early_stopping_waits_for_a_metric_that_is_not_there_yet(tmp_path: Path) -> None:
    """Two steps of CartPole end no episode, and Lightning refuses a missing metric in strict mode."""
    data = RolloutDataModule(CARTPOLE, {"fragment_length": 2}, {"episodes": 1, "every_env_steps": 2})
    stopping = EarlyStopping("rollout/ep_rew_mean", mode="max", strict=False)
    trainer = lightning_trainer(tmp_path, max_epochs=2, callbacks=[stopping])
    trainer.fit(policy(), data)
    assert trainer.current_epoch == 2 and "rollout/ep_rew_mean" not in trainer.callback_metrics


def test_early_stopping_and_model_checkpoint_read_the_metrics_of_a_run(tmp_path: Path) -> None:
    """`callbacks=[…]` of a config; the run ends before its steps are taken."""
    watched = {"monitor": "rollout/ep_rew_mean", "mode": "max"}
    stopping = {"callback": EarlyStopping, **watched, "min_delta": 1e9, "patience": 1}
    best = {"callback": ModelCheckpoint, **watched, "dirpath": str(tmp_path / "best")}
    config = compose_config(
        f"""policy=ppo env=cartpole experiment=none logger=none run_dir={tmp_path}/run
        workers.fragment_length=32 evaluation.every_env_steps=200 evaluation.episodes=1
        total_env_steps=100_000""".split()
    )
    config["callbacks"] = [{**each, "callback": import_path(each["callback"])} for each in (stopping, best)]
    check_config(config)
    status = run.train(config)
    assert status["state"] == "ok" and status["env_steps"] < 100_000
    assert len(list((tmp_path / "best").glob("*.ckpt"))) == 1


def test_lightning_s_progress_bar_shows_no_length_of_an_endless_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = TQDMProgressBar()
    lightning_trainer(tmp_path, enable_progress_bar=True, callbacks=[bar]).fit(policy(), rollouts())
    assert bar.total_train_batches == float("inf")
    shown = "".join(capsys.readouterr())
    assert "Epoch 1" in shown and str(2**31) not in shown


# -- test and predict -------------------------------------------------------------------------------------------------
def test_test_plays_episodes_as_validate_does(tmp_path: Path) -> None:
    learner = policy()
    (tested,) = lightning_trainer(tmp_path).test(learner, rollouts(), verbose=False)
    (validated,) = lightning_trainer(tmp_path).validate(learner, rollouts(), verbose=False)
    assert tested == validated and set(tested) == {"eval/ep_rew_mean", "eval/ep_len_mean"}


def test_predict_gives_the_best_actions(tmp_path: Path) -> None:
    learner, observations = policy(), torch.randn(6, 4)
    predicted = lightning_trainer(tmp_path).predict(learner, DataLoader(observations, batch_size=3))  # type: ignore[arg-type]
    assert predicted is not None
    expected = [learner.compute_single_action(row.numpy()) for row in observations]
    assert [int(action) for batch in predicted for action in batch] == [int(action) for action in expected]


# -- load_from_checkpoint ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weights_only", [False, True])
def test_load_from_checkpoint_reads_files_of_model_checkpoint(weights_only: bool, tmp_path: Path) -> None:
    kept = ModelCheckpoint(tmp_path, monitor="rollout/episodes", mode="max", save_weights_only=weights_only)
    learner = policy(lr=1e-4, model={"fcnet_hiddens": [8]})
    lightning_trainer(tmp_path, callbacks=[kept]).fit(learner, rollouts())
    loaded = PPO.load_from_checkpoint(kept.best_model_path)
    assert type(loaded) is PPO and same_weights(loaded, learner) and loaded.env_steps == learner.env_steps
    assert loaded.constructor_arguments()[1]["lr"] == 1e-4


def test_load_from_checkpoint_reads_files_of_the_trainer_and_of_this_package(tmp_path: Path) -> None:
    learner, trainer = policy(), lightning_trainer(tmp_path, callbacks=[RLCheckpoint(tmp_path)])
    trainer.fit(learner, rollouts())
    trainer.save_checkpoint(tmp_path / "by_hand.ckpt")
    for file in ("last.ckpt", "by_hand.ckpt"):
        for loaded in (PPO.load_from_checkpoint(tmp_path / file), Policy.load_from_checkpoint(str(tmp_path / file))):
            assert type(loaded) is PPO and same_weights(loaded, learner) and not loaded.training


def save_checkpoint(learner: Policy, path: Path) -> Path:
    checkpoint: dict[str, Any] = {"state_dict": learner.state_dict()}
    learner.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, path)
    return path


def test_load_from_checkpoint_takes_keywords_that_replace_the_file_s(tmp_path: Path) -> None:
    file = save_checkpoint(policy(lr=1e-4), tmp_path / "policy.ckpt")
    assert PPO.load_from_checkpoint(file, lr=5e-4, gamma=0.5).constructor_arguments()[1]["lr"] == 5e-4
    with pytest.raises(ConfigError, match=r"PPO.*'gama'.*'gamma'"):
        PPO.load_from_checkpoint(file, gama=0.5)
    with pytest.raises(CheckpointError, match="weights"):
        PPO.load_from_checkpoint(file, model={"fcnet_hiddens": [3]})


def test_load_from_checkpoint_refuses_another_class_and_unsupported_arguments(tmp_path: Path) -> None:
    file = save_checkpoint(policy(), tmp_path / "policy.ckpt")
    with pytest.raises(CheckpointError, match=r"holds a lightning_rl\.policies\.ppo:PPO, not a .*a2c:A2C"):
        A2C.load_from_checkpoint(file)
    cases: list[tuple[type[Policy], dict[str, Any], str]] = [
        (PPO, {"hparams_file": "h.yaml"}, r"hparams_file='h\.yaml'"),
        (PPO, {"weights_only": False}, "weights_only=False"),
        (PPO, {"map_location": lambda storage, location: storage}, "device"),
        (Policy, {"lr": 1e-3}, "the class"),
    ]
    assert not_refused(lambda cls, keywords: cls.load_from_checkpoint(file, **keywords), cases) == []
    assert PPO.load_from_checkpoint(file, map_location="cpu", strict=False, weights_only=True).device.type == "cpu"


def test_load_from_checkpoint_accepts_a_class_that_cannot_be_imported(tmp_path: Path) -> None:
    class Local(PPO):
        pass

    Hooked = build_policy("Hooked", base=PPO, loss_fn=lambda policy, model, dist_class, train_batch: model)  # noqa: N806
    for cls in (Local, Hooked):
        learner = cls(*CARTPOLE.spaces(), seed=3)
        loaded = cls.load_from_checkpoint(save_checkpoint(learner, tmp_path / "policy.ckpt"))
        assert type(loaded) is cls and same_weights(loaded, learner)
