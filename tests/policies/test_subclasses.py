"""What a subclass of Policy overrides or declares (verbs, constructor, data, metrics) is what runs and is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lightning_rl import Algorithm, RLCallback
from lightning_rl.callbacks import register_metric
from lightning_rl.config import check_config, compose_config
from lightning_rl.config.groups import group_options, option_text
from lightning_rl.errors import ConfigError, import_object
from lightning_rl.policies import A3C, DQN, PPO, Policy
from lightning_rl.policies.checkpoints import counters
from lightning_rl.rllib import PPOTrainer, build_trainer
from lightning_rl.rllib.policy_configs import defaults_of
from lightning_rl.runs import run
from lightning_rl.sample_batch import SampleBatch
from lightning_rl.schema.signatures import keywords_of
from tests.families import each
from tests.models.parameters import parameter_vector
from tests.refusals import not_refused

SMALL_REPLAY = ["data=replay", "workers=replay", "data.learning_starts=32", "data.batch_size=16"]
PIPELINES: dict[str, tuple[type[Policy], list[str]]] = {
    "rollouts": (PPO, ["workers.fragment_length=32"]),
    "replay": (DQN, SMALL_REPLAY),
}


def with_own_learn_on_batch(base: type[Policy]) -> type[Policy]:
    """The algorithm with a `learn_on_batch` of compute_gradients and apply_gradients."""

    class OwnLearnOnBatch(base):  # type: ignore[misc, valid-type]
        calls: list[int]

        def learn_on_batch(self, batch: SampleBatch) -> dict[str, float]:
            self.calls.append(batch.count)
            gradients, info = self.compute_gradients(batch)
            self.apply_gradients(gradients)
            return info

    return OwnLearnOnBatch


def with_own_gradient_halves(base: type[Policy]) -> type[Policy]:
    """The algorithm with its own compute_gradients and apply_gradients, which counts no step."""

    class OwnGradientHalves(base):  # type: ignore[misc, valid-type]
        calls: list[int]

        def compute_gradients(self, batch: SampleBatch) -> Any:
            self.calls.append(batch.count)
            return super().compute_gradients(batch)

        def apply_gradients(self, gradients: Any) -> Any:
            with torch.no_grad():
                for parameter, gradient in zip(self.parameters(), gradients, strict=True):
                    if gradient is not None:
                        parameter -= 1e-3 * torch.as_tensor(gradient)

    return OwnGradientHalves


def train(policy_class: type[Policy], path: Path, *overrides: str, iterations: int = 2) -> Any:
    algorithm = Algorithm(policy_class, "CartPole-v1", overrides=[f"run_dir={path}", *overrides])
    algorithm.policy.calls = []
    for _ in range(iterations):
        algorithm.train()
    algorithm.stop()
    return algorithm.policy


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("overriding", [with_own_learn_on_batch, with_own_gradient_halves])
def test_an_overridden_learn_on_batch_or_gradient_step_runs_in_every_pipeline_and_is_counted(
    overriding: Any, name: str, tmp_path: Path
) -> None:
    base, overrides = PIPELINES[name]
    policy = train(overriding(base), tmp_path, *overrides)
    assert policy.calls and policy.gradient_steps == len(policy.calls)
    assert policy.iterations == 2 and policy.env_steps >= 32 and "loss" in policy.iteration_metrics


def test_overridden_compute_and_apply_gradients_run_with_gradients_of_workers(tmp_path: Path) -> None:
    policy = train(with_own_gradient_halves(A3C), tmp_path, "data=gradients", "workers=gradients")
    assert policy.gradient_steps == 20 and policy.iterations == 2 and policy.env_steps > 0


def test_a_learn_on_batch_that_calls_super_is_counted_once(tmp_path: Path) -> None:
    class Around(PPO):
        def learn_on_batch(self, batch: SampleBatch) -> dict[str, float]:
            return {**super().learn_on_batch(batch), "own": 1.0}

    policy, plain = (
        train(kind, tmp_path / kind.__name__, "workers.fragment_length=32", "policy.passes=2") for kind in (Around, PPO)
    )
    assert counters(policy) == counters(plain) and policy.iteration_metrics["own"] == 1.0
    assert torch.equal(parameter_vector(policy), parameter_vector(plain))


# -- constructors -----------------------------------------------------------------------------------------------------
class OtherNames(PPO):
    def __init__(self, obs_space: Any, act_space: Any, **keywords: Any) -> None:
        super().__init__(obs_space, act_space, **keywords)


class ByPlace(PPO):
    def __init__(self, *spaces: Any, **keywords: Any) -> None:
        super().__init__(*spaces, **keywords)


@pytest.mark.parametrize("policy_class", [OtherNames, ByPlace])
def test_spaces_are_the_constructor_s_first_two_arguments_by_any_name(policy_class: Any, tmp_path: Path) -> None:
    algorithm = Algorithm(policy_class, "CartPole-v1", overrides=[f"run_dir={tmp_path}", "workers.fragment_length=32"])
    algorithm.train()
    loaded = Policy.load(algorithm.save(), policy_class)
    algorithm.stop()
    assert torch.equal(parameter_vector(loaded), parameter_vector(algorithm.policy))
    assert type(algorithm.policy.copy_for_acting()) is policy_class


# -- the data that a class needs --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", each(group_options("policy")))
def test_policy_data_names_the_datamodule_that_the_policy_s_config_chooses(name: str) -> None:
    chosen = compose_config([f"policy={name}", "env=none" if "none" in group_options("env") else "env=cartpole"])
    policy_class = import_object(chosen["policy"]["_target_"])
    of_config = import_object(chosen["data"]["_target_"])
    named = yaml.safe_load(option_text("data", policy_class.data))
    while "_target_" not in named:
        named = yaml.safe_load(option_text("data", named["defaults"][0]))
    assert issubclass(of_config, import_object(named["_target_"]))


class Transitions(Policy):
    """An off-policy algorithm without a file in `conf/`."""

    data = "replay"
    off_policy = True

    def loss(self, batch: SampleBatch) -> Any:
        loss = self.distribution_and_values(batch)[1].square().mean()
        return loss, {"loss": loss}


def test_a_policy_without_a_config_file_gets_the_datamodule_that_policy_data_names(tmp_path: Path) -> None:
    config = compose_config([f"policy={__name__}:Transitions", "env=cartpole"])
    assert config["data"]["_target_"].endswith("ReplayFeed") and config["workers"]["fragment_length"] < 128


def test_a_datamodule_of_another_kind_than_policy_data_is_refused(tmp_path: Path) -> None:
    cases = [
        ("dqn", "on_policy", r"DQN.*SyncSource"),
        (f"{__name__}:Transitions", "on_policy", "data=replay"),
        ("es", "on_policy", r"ES.*data=population"),
        ("ppo", "replay", r"PPO.*data=on_policy"),
        ("ppo", "population", r"PPO.*data=on_policy"),
    ]

    def train_with(policy: str, data: str) -> None:
        Algorithm(policy, "cartpole", overrides=[f"data={data}", f"run_dir={tmp_path}", "workers=default"]).train()

    assert not_refused(train_with, cases) == []


# -- the option of a class --------------------------------------------------------------------------------------------
class Wider(PPO):
    """Changes one default, adds a keyword, and leaves the rest to PPO."""

    def __init__(self, *spaces: Any, entropy_coef: float = 0.02, own: int = 3, **keywords: Any) -> None:
        super().__init__(*spaces, entropy_coef=entropy_coef, **keywords)


def settings_of(policy: Any, **without: Any) -> dict[str, Any]:
    """The config that a policy's name or class chooses, without the path of its class and what was typed."""
    config = defaults_of(policy)
    own = {name: value for name, value in config["policy"].items() if name not in ("_target_", *without)}
    return {**config, "policy": own, "overrides": None, "run_dir": None}


@pytest.mark.parametrize("option", each(group_options("policy"), default=("ddppo", "rainbow")))
def test_a_class_has_the_option_of_its_name_and_so_has_a_subclass(option: str) -> None:
    """DD-PPO's file builds a PPO, too, with other workers; the files' rates fall, the constructors' do not."""
    policy_class = import_object(yaml.safe_load(option_text("policy", option))["_target_"])
    spelled = {name.replace("_", ""): name for name in group_options("policy")}
    name = next(name for short, name in spelled.items() if policy_class.__name__.lower() in (short, f"{short}dqn"))
    subclass = type("Mine", (policy_class,), {"__module__": __name__})
    assert settings_of(policy_class) == settings_of(subclass) == settings_of(name)


def test_a_subclass_changes_what_it_says_itself() -> None:
    assert defaults_of(Wider)["policy"]["entropy_coef"] == 0.02 and defaults_of(Wider)["policy"]["own"] == 3
    changed = {"entropy_coef": 0, "own": 0}
    assert settings_of(Wider, **changed) == settings_of("ppo", **changed)


def test_every_way_to_name_a_class_gives_it_its_own_option(tmp_path: Path) -> None:
    """Eight environments in one worker, and a batch of 200 steps of RLlib's trainer is not one of four workers each."""
    expected = compose_config(["policy=ppo", "env=cartpole", "experiment=none"])["workers"]
    assert expected["logical_workers"] is None
    assert compose_config([f"policy={__name__}:Wider", "env=cartpole", "experiment=none"])["workers"] == expected
    algorithm = Algorithm(PPO, "CartPole-v1", overrides=["experiment=none"], config={"run_dir": str(tmp_path)})
    assert algorithm.config["workers"] == expected
    for trainer_class in (PPOTrainer, build_trainer("T", default_policy=Wider)):
        trainer = trainer_class(config={"env": "CartPole-v1", "train_batch_size": 200})
        assert trainer.train()["timesteps_total"] <= 200
        trainer.stop()


def test_a_user_s_file_that_builds_a_shipped_class_is_not_the_class_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "conf" / "policy"
    folder.mkdir(parents=True)
    content = "defaults: [ppo, _self_]\n_target_: lightning_rl.policies.PPO\npasses: 1\n"
    (folder / "a_quick_one.yaml").write_text(content)
    monkeypatch.chdir(tmp_path)
    assert defaults_of("a_quick_one")["policy"]["passes"] == 1 and defaults_of(PPO)["policy"]["passes"] == 10


def test_a_user_s_file_begins_with_the_keywords_of_every_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "conf" / "policy"
    folder.mkdir(parents=True)
    content = "defaults: [signature/Policy@_here_, _self_]\n_target_: my_pkg:Mine\nepsilon: 0.2\n"
    (folder / "mine.yaml").write_text(content)
    monkeypatch.chdir(tmp_path)
    config = compose_config(["policy=mine", "policy.gamma=0.9", "seed=4"])["policy"]
    assert (config["gamma"], config["seed"], config["epsilon"]) == (0.9, 4, 0.2)
    assert config.keys() - {"_target_", "epsilon"} == keywords_of(Policy).keys() - {
        "observation_space",
        "action_space",
        "config",
    }


def test_a_user_s_file_begins_with_the_keywords_of_the_user_s_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is read, not imported: it is found on Python's path, and its first line would raise."""
    source = """raise ImportError
from lightning_rl import PPO as Base, Policy
class Mine(Policy):
    def __init__(self, observation_space, action_space, *, bonus: float = 0.1, gamma=0.5, **keywords): ...
"""
    (tmp_path / "own_policies.py").write_text(source)
    folder = tmp_path / "conf" / "policy"
    folder.mkdir(parents=True)
    content = "defaults: [signature/own_policies.Mine@_here_, _self_]\n_target_: own_policies:Mine\n"
    (folder / "mine.yaml").write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = compose_config(["policy=mine", "policy.bonus=0.3"])["policy"]
    assert (config["gamma"], config["bonus"]) == (0.5, 0.3) and "max_grad_norm" in config
    with pytest.raises(ConfigError, match=r"policy\.bonu'"):
        compose_config(["policy=mine", "policy.bonu=0.3"])


# -- callbacks --------------------------------------------------------------------------------------------------------
class Counting(RLCallback):
    calls = 0

    def on_learn_on_batch(self, **_: Any) -> None:
        self.calls += 1


def test_algorithm_calls_the_callback_object_in_its_config(tmp_path: Path) -> None:
    callback, overrides = Counting(), [f"run_dir={tmp_path}", "workers.fragment_length=32"]
    algorithm = Algorithm("ppo", "cartpole", overrides=overrides, config={"callbacks": [callback]})
    algorithm.train()
    algorithm.stop()
    assert callback.calls == 1


# -- metrics ----------------------------------------------------------------------------------------------------------
class Counts(PPO):
    """Reports the number of its loss calls."""

    calls = 0.0

    def loss(self, batch: SampleBatch) -> Any:
        loss, metrics = super().loss(batch)
        self.calls += 1.0
        return loss, {**metrics, "own_calls": torch.tensor(self.calls)}


register_metric("train/own_calls", "how often the loss was computed")


def test_stop_metric_may_be_a_registered_metric_that_a_loss_returns(tmp_path: Path) -> None:
    """Ten calls an iteration: the means 5.5, 15.5, 25.5; the third is the first above 20."""
    keys = ["env=cartpole", "experiment=none", "logger=none", "evaluation=none", "total_env_steps=10000"]
    keys += ["workers.fragment_length=32", "policy.passes=5", "policy.minibatches=2", "stop.return=20"]
    keys += [f"policy={__name__}:Counts", "stop.metric=train/own_calls", f"run_dir={tmp_path}"]
    config = compose_config(keys)
    check_config(config)
    policy, data, trainer = run.build(config)
    run.fit(policy, data, trainer)
    assert policy.iterations == 3 and policy.calls == 30.0
