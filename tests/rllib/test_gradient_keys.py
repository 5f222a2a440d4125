"""RLlib's keys of A3C, DD-PPO, ES and ARS: what each means here, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_rl import rllib
from lightning_rl.data.gradient_datamodule import GradientDataModule
from lightning_rl.data.population_datamodule import PopulationDataModule
from lightning_rl.errors import ConfigError
from lightning_rl.policies import A3C, ARS, ES, PPO
from lightning_rl.rllib.keys import translate_keys
from lightning_rl.rllib.trainers import defaults_of


@pytest.fixture(autouse=True)
def in_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(name: str, **given: Any) -> dict[str, Any]:
    """The configuration that a classic trainer makes of these keys."""
    return getattr(rllib, f"{name}Trainer")(env="CartPole-v1", config=given).config


@pytest.mark.parametrize(("name", "policy"), [("A3C", A3C), ("DDPPO", PPO), ("ES", ES), ("ARS", ARS)])
def test_rllib_has_a_trainer_and_a_policy_of_each_name(name: str, policy: type[Any]) -> None:
    assert getattr(rllib, f"{name}TorchPolicy") is policy
    assert getattr(rllib, f"{name}Trainer").default_policy == name.lower()


def test_the_keys_of_a3c_reach_their_places() -> None:
    keys = {"lr": 1e-4, "grad_clip": 40.0, "lambda": 0.9, "vf_loss_coeff": 0.4, "entropy_coeff": 0.02}
    made = config("A3C", **keys, rollout_fragment_length=10, num_envs_per_worker=2)
    assert made["data"]["_target_"].endswith("GradientDataModule") and made["workers"]["fragment_length"] == 10
    policy = made["policy"]
    assert (policy["lr"], policy["max_grad_norm"], policy["gae_lambda"]) == (1e-4, 40.0, 0.9)
    assert (policy["value_coef"], policy["entropy_coef"]) == (0.4, 0.02)


def test_rllib_s_workers_are_the_logical_ones() -> None:
    """Six would not be four workers in six processes; 0 is one that the trainer has itself."""
    found = translate_keys({"num_workers": 6}, defaults_of("a3c"), {})
    assert found["workers"] == {"num_workers": 6, "logical_workers": 6}
    assert config("A3C", num_workers=0)["workers"]["logical_workers"] == 1


def test_microbatches_are_counted_in_rows() -> None:
    """A2C: 120 rows in parts of 40."""
    made = config("A2C", train_batch_size=120, microbatch_size=40, num_envs_per_worker=1)
    assert made["policy"]["microbatches"] == 3 and config("A2C", microbatch_size=None)["policy"]["microbatches"] == 1


def test_the_keys_of_es_reach_their_places() -> None:
    """RLlib plays two episodes for each direction."""
    keys = {"noise_stdev": 0.03, "l2_coeff": 0.001, "stepsize": 0.02, "episodes_per_batch": 51, "eval_prob": 0.1}
    made = config("ES", **keys, observation_filter="NoFilter", return_proc_mode="centered_rank")
    policy, data = made["policy"], made["data"]
    assert (policy["sigma"], policy["weight_decay"], policy["lr"]) == (0.03, 0.001, 0.02)
    assert (data["directions"], data["eval_prob"], policy["observation_filter"]) == (26, 0.1, "none")


def test_the_keys_of_ars_reach_their_places() -> None:
    made = config("ARS", noise_stdev=0.1, num_rollouts=8, rollouts_used=4, sgd_stepsize=0.05)
    assert (made["policy"]["sigma"], made["policy"]["lr"], made["policy"]["top_directions"]) == (0.1, 0.05, 4)
    assert made["data"]["directions"] == 8


def test_the_keys_of_ddppo_reach_their_places() -> None:
    """A batch of −1 rows is what the fragments have; 4 environments × 100 steps in minibatches of 50."""
    keys: dict[str, Any] = {"train_batch_size": -1, "rollout_fragment_length": 100, "sgd_minibatch_size": 50}
    made = config("DDPPO", **keys, num_envs_per_worker=4, num_sgd_iter=6, keep_local_weights_in_sync=True)
    assert made["workers"]["fragment_length"] == 100
    assert (made["policy"]["passes"], made["policy"]["minibatches"]) == (6, 8)


@pytest.mark.parametrize("name", ["ES", "ARS"])
@pytest.mark.parametrize("key", ["train_batch_size", "noise_size", "report_length"])
def test_keys_without_a_counterpart_are_named(name: str, key: str) -> None:
    with pytest.warns(UserWarning, match=f"'{key}'"):
        made = config(name, **{key: 100})
    assert made["workers"]["fragment_length"] == 1


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("ES", "return_proc_mode", "raw"),
        ("ES", "action_noise_std", 0.01),
        ("ARS", "offset", 1),
        ("DDPPO", "keep_local_weights_in_sync", False),
        ("PPO", "noise_stdev", 0.02),
    ],
)
def test_keys_with_another_meaning_are_refused(name: str, key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{key}|sigma"):
        config(name, **{key: value})


def test_a_classic_trainer_trains_by_gradients_and_by_returns() -> None:
    small: dict[str, Any] = {"model": {"fcnet_hiddens": [8]}, "num_workers": 0}
    for name, more, kind in (
        ("A3C", {"rollout_fragment_length": 4, "num_envs_per_worker": 1}, GradientDataModule),
        ("ARS", {"num_rollouts": 2, "horizon": 10}, PopulationDataModule),
    ):
        trainer = getattr(rllib, f"{name}Trainer")(env="CartPole-v1", config={**small, **more})
        assert isinstance(trainer.datamodule, kind)
        result = trainer.train()
        trainer.stop()
        assert result["timesteps_total"] > 5 and result["info"]["learner"]["default_policy"]["grad_norm"] >= 0


@pytest.mark.parametrize("name", ["evaluation_num_workers", "evaluation_num_env_runners"])
def test_evaluation_has_processes_of_its_own(name: str) -> None:
    made = config("PPO", **{name: 1}, evaluation_parallel_to_training=True, evaluation_duration=3)
    assert made["evaluation"]["num_workers"] == 1 and made["evaluation"]["parallel"] is True
    assert made["evaluation"]["episodes"] == 3
