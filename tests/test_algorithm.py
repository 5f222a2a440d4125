"""Algorithm takes the same settings as the command line."""

from __future__ import annotations

import pytest

from lightning_rl import Algorithm
from lightning_rl.errors import ConfigError


def test_a_config_s_model_exploration_and_seed_reach_the_policy() -> None:
    """The policy's YAML refers to them (`model: ${model}`), and that is resolved before a config is put over it."""
    config = {"model": {"fcnet_hiddens": [7]}, "exploration": {"type": "random"}, "seed": 5}
    algorithm = Algorithm("ppo", env="CartPole-v1", config=config)
    assert algorithm.policy.model.trunk.size == 7
    assert type(algorithm.policy.exploration).__name__ == "Random"
    assert algorithm.policy.seed == 5
    algorithm.stop()


def test_keys_of_the_policy_section_take_precedence_over_shared_sections() -> None:
    config = {"model": {"fcnet_hiddens": [7]}, "policy": {"model": {"fcnet_hiddens": [8]}, "seed": 6}}
    algorithm = Algorithm("ppo", env="CartPole-v1", config=config)
    assert algorithm.policy.model.trunk.size == 8 and algorithm.policy.seed == 6
    algorithm.stop()


def test_a_policy_class_takes_them_too() -> None:
    from lightning_rl.policies import PPO

    algorithm = Algorithm(PPO, env="CartPole-v1", config={"model": {"fcnet_hiddens": [7]}})
    assert algorithm.policy.model.trunk.size == 7
    algorithm.stop()


def test_a_config_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ConfigError, match="config=7 is integer; expected mapping"):
        Algorithm("ppo", "cartpole", config=7)  # type: ignore[arg-type]  # pyright: ignore
