"""A Trainer is a trainable of Ray Tune: `tune.run(PPOTrainer, …)` and `Tuner`, on real Ray Tune."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightning_rl import rllib
from lightning_rl.errors import ConfigError
from lightning_rl.rllib import trainable

QUICK: dict[str, Any] = {
    "env": "CartPole-v1",
    "num_workers": 0,
    "num_envs_per_worker": 2,
    "rollout_fragment_length": 50,
    "model": {"fcnet_hiddens": [8]},
}


def test_without_ray_tune_a_trainer_says_what_is_missing_only_where_tune_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trainable, "PlacementGroupFactory", None)
    with pytest.raises(ConfigError, match="needs Ray Tune: pip install"):
        rllib.__getattr__("PPOTrainer").default_resource_request({})


@pytest.fixture(scope="module")
def tune() -> Iterator[Any]:
    """`ray.tune` with a session of two cores."""
    tune = pytest.importorskip("ray.tune", exc_type=ImportError)
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
    # Ray forgets names with the session in which the import of rllib, in another test, registered them.
    trainable.register_by_name([("PPO", rllib.__getattr__("PPOTrainer"))])
    try:
        yield tune
    finally:
        ray.shutdown()


@pytest.mark.ray(own_session=True)
def test_a_grid_of_two_by_two_runs_and_the_best_trial_is_restored(tune: Any, tmp_path: Path) -> None:
    made = rllib.__getattr__("PPOTrainer")
    assert issubclass(made, tune.Trainable)
    grid = {"lr": tune.grid_search([1e-3, 1e-4]), "gamma": tune.grid_search([0.9, 0.99])}
    keywords: dict[str, Any] = {"storage_path": str(tmp_path), "name": "grid", "verbose": 0}
    if "checkpoint_freq" in inspect.signature(tune.run).parameters:
        keywords |= {"checkpoint_freq": 2, "checkpoint_at_end": True}
    else:
        keywords["checkpoint_config"] = tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True)
    analysis = tune.run(made, config={**QUICK, **grid}, stop={"training_iteration": 3}, num_samples=1, **keywords)
    trials = analysis.trials
    assert sorted((trial.config["lr"], trial.config["gamma"]) for trial in trials) == [
        *((1e-4, 0.9), (1e-4, 0.99), (1e-3, 0.9), (1e-3, 0.99))
    ]
    for trial in trials:
        frame = analysis.trial_dataframes[trial.trial_id]
        assert frame["training_iteration"].tolist() == [1, 2, 3] and frame["timesteps_total"].is_monotonic_increasing
        assert frame["episode_reward_mean"].between(5, 200).all()
    best = analysis.get_best_trial("episode_reward_mean", mode="max")
    checkpoint = analysis.get_best_checkpoint(best, "training_iteration", mode="max")
    config = {name: value for name, value in best.config.items()}
    other = made(config=config)
    with checkpoint.as_directory() as folder:
        other.restore(folder)
    assert other.iteration == 3 and other.train()["training_iteration"] == 4
    other.stop()


@pytest.mark.ray(own_session=True)
@pytest.mark.parametrize("reuse_actors", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_population_based_training_gives_a_trial_the_weights_and_rate_of_a_better_one(
    reuse_actors: bool, tune: Any, tmp_path: Path
) -> None:
    """The trial with a rate of 0 continues from the other's checkpoint, with 0.8 or 1.2 times its rate."""
    pbt = tune.schedulers.PopulationBasedTraining(
        "training_iteration",
        metric="episode_reward_mean",
        mode="max",
        perturbation_interval=15,
        hyperparam_mutations={"lr": tune.loguniform(1e-4, 1e-2)},
        quantile_fraction=0.5,
        resample_probability=0.0,
        synch=True,
    )
    tuner = tune.Tuner(
        "PPO",
        param_space={**QUICK, "rollout_fragment_length": 100, "lr": tune.grid_search([3e-3, 0.0])},
        tune_config=tune.TuneConfig(scheduler=pbt, reuse_actors=reuse_actors),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="pbt", verbose=0, stop={"training_iteration": 20}),
    )
    results = tuner.fit()
    assert not results.errors
    assert len((tmp_path / "pbt" / "pbt_global.txt").read_text().splitlines()) == 1
    rates = sorted(result.config["lr"] for result in results)
    assert any(rates == pytest.approx(sorted((3e-3, factor * 3e-3))) for factor in (0.8, 1.2))
    for result in results:
        frame = result.metrics_dataframe
        assert frame["training_iteration"].iloc[-1] == 20 and frame["timesteps_total"].iloc[-1] > 19 * 190
    (changed,) = [result for result in results if result.config["lr"] != 3e-3]
    assert changed.metrics_dataframe["info/learner/default_policy/lr"].iloc[-1] == pytest.approx(changed.config["lr"])
