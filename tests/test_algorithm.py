"""Algorithm takes the same settings as the command line."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl import PPO, Algorithm
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import ConfigError, EnvError
from lightning_rl.runs.evaluation import evaluate
from tests.refusals import not_refused


@pytest.mark.parametrize("policy", ["ppo", PPO])
def test_a_config_s_model_exploration_and_seed_reach_the_policy(policy: Any) -> None:
    """The policy's YAML refers to them (`model: ${model}`), and that is resolved before a config is put over it.

    Keys of the policy's own section take precedence.
    """
    shared: dict[str, Any] = {"model": {"fcnet_hiddens": [7]}, "exploration": {"type": "random"}, "seed": 5}
    own = {"model": {"fcnet_hiddens": [8]}, "seed": 6}
    for config, size, seed in ((shared, 7, 5), ({**shared, "policy": own}, 8, 6)):
        algorithm = Algorithm(policy, env="CartPole-v1", config=config)
        found = algorithm.policy
        assert (found.model.trunk.size, type(found.exploration).__name__, found.seed) == (size, "Random", seed)
        algorithm.stop()


def test_a_config_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ConfigError, match="config=7"):
        Algorithm("ppo", "cartpole", config=7)  # type: ignore[arg-type]  # pyright: ignore


def test_a_dotted_key_in_a_config_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"\{'policy': \{'lr': 1e-3\}\}.*overrides=\['policy.lr=1e-3'\]"):
        Algorithm("ppo", "cartpole", config={"policy.lr": 1e-3})


def test_iterations_after_total_env_steps_warn_once_that_schedules_have_ended_at_zero() -> None:
    config = {"total_env_steps": 300, "workers": {"fragment_length": 32}, "model": {"fcnet_hiddens": [8]}}
    algorithm = Algorithm("ppo", env="CartPole-v1", config=config)
    steps, said = [0], []
    for _ in range(6):
        with warnings.catch_warnings(record=True) as caught:
            algorithm.train()
        said.append([str(each.message) for each in caught if "policy.lr" in str(each.message)])
        steps.append(algorithm.policy.env_steps)
    first = next(number for number, before in enumerate(steps) if before >= 300)
    assert [bool(lines) for lines in said] == [number == first for number in range(6)]
    assert "policy.lr" in said[first][0]
    algorithm.stop()


def test_a_saved_algorithm_is_evaluated_in_the_environment_of_its_config(tmp_path: Path) -> None:
    config = {"run_dir": str(tmp_path / "own"), "model": {"fcnet_hiddens": [8]}}
    algorithm = Algorithm("ppo", env="Acrobot-v1", config={**config, "evaluation": {"max_episode_steps": 7}})
    file = algorithm.save()
    algorithm.stop()
    for place in (file, tmp_path / "own", shutil.copy(file, tmp_path / "moved.ckpt")):
        result = evaluate(Path(place), episodes=2)
        assert (result["env"], result["lengths"], result["cut"]) == ("Acrobot-v1", [7, 7], 2)
    assert evaluate(file, episodes=1, max_steps=9)["lengths"] == [9]


def test_an_environment_that_is_named_needs_no_config_of_the_run(tmp_path: Path) -> None:
    algorithm = Algorithm("ppo", env="Acrobot-v1", config={"run_dir": str(tmp_path), "model": {"fcnet_hiddens": [8]}})
    file = algorithm.save()
    algorithm.stop()
    (tmp_path / "config.yaml").write_text("of: another tool")
    with pytest.raises(ConfigError, match=r"config.yaml is damaged"):
        evaluate(file, episodes=1)
    assert evaluate(file, env="acrobot", episodes=1)["env"] == "Acrobot-v1"


def test_a_key_that_is_no_text_belongs_to_the_mapping_that_it_is_in() -> None:
    config = {"model": {"fcnet_hiddens": [8], "custom_model_config": {0: 64}}}
    algorithm = Algorithm("ppo", "cartpole", config=config)
    assert algorithm.config["model"]["custom_model_config"] == {0: 64}
    algorithm.stop()


def test_an_environment_that_is_there_already_is_refused() -> None:
    env = gym.make("CartPole-v1")
    with pytest.raises(EnvError, match=r"its id or class \(CartPole-v1\)"):
        Algorithm("ppo", env=env)


def test_an_observation_of_another_form_is_named() -> None:
    cases = [
        (np.zeros(3), r"shape \(3,\).*Box.*\(4,\)"),
        ("abcd", "has shape .* and type <U4"),
        ({"a": 1}, r"shape \(\) and type object"),
    ]

    def call(observation: Any) -> None:
        policy = PPO(*EnvCreator("CartPole-v1").spaces(), model={"fcnet_hiddens": [8]})
        policy.compute_single_action(observation)

    assert not_refused(call, cases, ValueError) == []


def test_a_nested_observation_of_another_form_is_named() -> None:
    space = spaces.Dict(
        {"a": spaces.Box(-1, 1, (2,)), "b": spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (1,))])}
    )
    policy = PPO(space, spaces.Discrete(2), model={"fcnet_hiddens": [8]})
    good = {"a": np.zeros(2, np.float32), "b": (1, np.zeros(1, np.float32))}
    assert policy.compute_single_action(good) in (0, 1)
    for bad, words in (
        ({"a": good["a"]}, r"'b'.*\['a', 'b'\]"),
        (np.zeros(3), r"ndarray.*\['a', 'b'\]"),
        ({**good, "b": (1, np.zeros(2))}, r"the observation\['b'\]\['1'\] has shape \(2,\)"),
    ):
        with pytest.raises(ValueError, match=words):
            policy.compute_single_action(bad)


@pytest.mark.parametrize("other", ["Acrobot-v1", "MountainCarContinuous-v0", "Pendulum-v1"])
def test_an_evaluation_environment_with_other_spaces_is_refused_before_training(other: str, tmp_path: Path) -> None:
    config = {"run_dir": str(tmp_path), "evaluation": {"env": {"id": other}}}
    with pytest.raises(ConfigError, match=rf"evaluation\.env='{other}'.*_space.*'CartPole-v1'"):
        Algorithm("ppo", "CartPole-v1", config=config)


def test_an_evaluation_environment_may_have_other_bounds(tmp_path: Path) -> None:
    """CartPole's limits of positions and angles grow in this one."""
    wider = {"id": "CartPole-v1", "wrappers": ["tests.test_algorithm:wider"]}
    Algorithm("ppo", "CartPole-v1", config={"run_dir": str(tmp_path), "evaluation": {"env": wider}}).stop()


def wider(env: Any) -> Any:
    return gym.wrappers.TransformObservation(env, lambda obs: obs, gym.spaces.Box(-1e6, 1e6, (4,), np.float32))


def test_an_algorithm_writes_only_what_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    algorithm = Algorithm("ppo", env="CartPole-v1")
    algorithm.train()
    assert [*tmp_path.iterdir()] == []
    saved = algorithm.save()
    algorithm.stop()
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [Path(saved).resolve()]
