"""A DataModule that is made in Python refuses a policy that learns from another kind of data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lightning import Trainer

from lightning_rl.data.apex_datamodule import ApexDataModule
from lightning_rl.data.async_datamodule import AsyncDataModule
from lightning_rl.data.datamodule import RolloutDataModule
from lightning_rl.data.gradient_datamodule import GradientDataModule
from lightning_rl.data.population_datamodule import PopulationDataModule
from lightning_rl.data.replay_datamodule import ReplayDataModule
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import ConfigError
from lightning_rl.policies import DQN, ES, PPO, MultiAgentPolicy


@pytest.mark.parametrize(
    ("policy_class", "data_class", "pipeline"),
    [
        (DQN, RolloutDataModule, "replay"),
        (DQN, AsyncDataModule, "replay"),
        (DQN, GradientDataModule, "replay"),
        (DQN, PopulationDataModule, "replay"),
        (ES, RolloutDataModule, "population"),
        (ES, AsyncDataModule, "population"),
        (PPO, ReplayDataModule, "on_policy"),
        (PPO, ApexDataModule, "on_policy"),
        (PPO, PopulationDataModule, "on_policy"),
    ],
)
def test_a_policy_of_another_kind_is_refused_before_workers_start(
    policy_class: Any, data_class: Any, pipeline: str
) -> None:
    env = EnvCreator("CartPole-v1")
    data = data_class(env)
    trainer = Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, barebones=True)
    with pytest.raises(ConfigError, match=rf"{policy_class.__name__} learns from .*: use data={pipeline}$"):
        trainer.fit(policy_class(*env.spaces()), data)
    assert data.workers is None


def rollouts_alone(workers: Any, policy: Any) -> Iterator[Any]:
    while True:
        yield workers.sample()


def test_a_policy_that_replays_learns_nothing_from_rollouts() -> None:
    """A plan of one's own may give transitions, so that what comes is refused, before a step."""
    env = EnvCreator("CartPole-v1")
    copies = EnvCreator("CartPole-v1", agents=2)
    several = MultiAgentPolicy(
        *copies.spaces(), policies={"a": PPO, "b": DQN}, policy_mapping={"agent_0": "a", "agent_1": "b"}
    )
    for policy, learner, rollouts, message in (
        (alone := DQN(*env.spaces()), alone, env, r"^DQN learns .*use a ReplayDataModule \(data=replay\)"),
        (several, several.get_policy("b"), copies, r"^policy 'b', a DQN, learns .*policy_feeds.replays\['b'\] = "),
    ):
        data = RolloutDataModule(rollouts, {"fragment_length": 8}, {"episodes": 1}, plan=rollouts_alone)
        trainer = Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, barebones=True)
        with pytest.raises(ConfigError, match=message):
            trainer.fit(policy, data)
        assert learner.gradient_steps == 0


def test_a_plan_of_the_user_s_own_may_feed_any_policy() -> None:
    def no_rollouts(workers: Any, policy: Any) -> Iterator[Any]:
        raise KeyError("the plan began")
        yield

    env = EnvCreator("CartPole-v1")
    trainer = Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, barebones=True)
    with pytest.raises(KeyError, match="the plan began"):
        trainer.fit(DQN(*env.spaces()), RolloutDataModule(env, plan=no_rollouts))
