"""RLlib's keys of IMPALA and APPO: what each means here, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_rl import rllib
from lightning_rl.data.async_datamodule import AsyncDataModule
from tests.refusals import not_refused

pytestmark = pytest.mark.filterwarnings("ignore:.*no counterpart.*")


@pytest.fixture(autouse=True)
def in_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(name: str, **given: Any) -> dict[str, Any]:
    """The configuration that a classic trainer makes of these keys."""
    return getattr(rllib, f"{name}Trainer")(env="CartPole-v1", config=given).config


@pytest.mark.parametrize("name", ["IMPALA", "Impala", "APPO"])
def test_rllib_has_trainers_and_policies_of_each_name(name: str) -> None:
    trainer = getattr(rllib, f"{name}Trainer")(env="CartPole-v1", config={"num_workers": 0, "train_batch_size": 100})
    assert isinstance(trainer.datamodule, AsyncDataModule)
    assert trainer.train()["timesteps_total"] >= 90  # resets are no steps
    assert type(trainer.policy) is getattr(rllib, f"{name}TorchPolicy")
    trainer.stop()


def test_the_keys_of_impala_reach_their_places() -> None:
    """10 fragments of 50 rows make 500 of the batch, over which RLlib sums: a clip of 40 is one of 0.08 of the mean."""
    keys = {"train_batch_size": 500, "vtrace_clip_rho_threshold": 1.5, "vtrace_clip_pg_rho_threshold": 2.0}
    keys |= {"replay_proportion": 0.5, "replay_buffer_num_slots": 20, "max_sample_requests_in_flight_per_worker": 3}
    keys |= {"num_aggregation_workers": 2, "grad_clip": 40.0, "lr": 1e-3, "entropy_coeff": 0.02, "vf_loss_coeff": 0.1}
    keys |= {"opt_type": "rmsprop", "decay": 0.9, "momentum": 0.1, "num_sgd_iter": 2, "sgd_minibatch_size": 250}
    keys |= {"vtrace": True, "broadcast_interval": 1, "learner_queue_size": 16, "min_iter_time_s": 10}
    made = config("IMPALA", **keys)
    assert made["data"]["fragments_per_batch"] == 10 and made["data"]["requests_per_worker"] == 3
    assert made["data"]["replay_proportion"] == 0.5 and made["data"]["replay_slots"] == 20
    assert made["data"]["num_aggregators"] == 2
    assert made["workers"]["fragment_length"] == 50 and made["workers"]["envs_per_worker"] == 1
    policy = made["policy"]
    assert policy["clip_rho"] == 1.5 and policy["clip_pg_rho"] == 2.0 and policy["max_grad_norm"] == 0.08
    assert policy["passes"] == 2 and policy["minibatches"] == 2 and policy["value_coef"] == 0.1
    assert policy["optimizer"] == "rmsprop" and policy["entropy_coef"] == 0.02 and policy["lr"] == 1e-3
    assert policy["optimizer_kwargs"] == {"alpha": 0.9, "momentum": 0.1, "eps": 0.1}


@pytest.mark.parametrize(("used", "coefficient"), [(True, 0.7), (False, 0.0)])
def test_appo_s_penalty_is_there_only_where_it_is_used(used: bool, coefficient: float) -> None:
    keys = {"use_kl_loss": used, "kl_coeff": 0.7, "kl_target": 0.02, "clip_param": 0.3, "grad_clip": 40.0}
    made = config("APPO", **keys, tau=0.5, **{"lambda": 1.0})
    policy = made["policy"]
    assert policy["kl_coef"] == coefficient and policy["kl_target"] == 0.02 and policy["clip"] == 0.3
    assert policy["max_grad_norm"] == 40.0 and policy["tau"] == 0.5


@pytest.mark.parametrize(("frequency", "steps"), [(1, None), (4, 4 * 3 * 2)])
def test_appo_s_target_moves_after_training_steps_not_after_gradient_steps(frequency: int, steps: int | None) -> None:
    """RLlib counts batches, which here are 3 passes of 2 minibatches."""
    sizes = {"train_batch_size": 500, "sgd_minibatch_size": 250, "num_sgd_iter": 3}
    assert config("APPO", **sizes, target_update_frequency=frequency)["policy"]["target_update_interval"] == steps


def test_without_keys_the_defaults_are_this_package_s() -> None:
    made = config("APPO")
    assert made["policy"]["kl_coef"] == 0.0 and made["policy"]["clip"] == 0.2
    assert config("IMPALA")["policy"]["max_grad_norm"] == 0.5


def test_keys_without_a_counterpart_are_refused() -> None:
    cases = [("vtrace", False, "be True"), ("lambda", 0.9, r"be 1\.0"), ("broadcast_interval", 5, "only be 1")]
    assert not_refused(lambda key, value: config("IMPALA", **{key: value}), cases) == []
