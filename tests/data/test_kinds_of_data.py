"""A DataModule that is made in Python refuses a policy that learns from another kind of data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lightning import Trainer

from lightning_rl.data import (
    AsyncSource,
    GradientSource,
    PopulationSource,
    ReplayFeed,
    RolloutDataModule,
    ShardedReplayFeed,
    SyncSource,
)
from lightning_rl.envs.creator import EnvCreator
from lightning_rl.errors import ConfigError
from lightning_rl.policies import DQN, ES, PPO, PolicySet
from tests.envs.classic_control import CARTPOLE


def fit(policy: Any, data: Any) -> None:
    Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, barebones=True).fit(policy, data)


@pytest.mark.parametrize(
    ("policy_class", "sources", "pipeline"),
    [
        (DQN, [SyncSource, AsyncSource, GradientSource, PopulationSource], "replay"),
        (ES, [SyncSource, AsyncSource], "population"),
        (PPO, [ReplayFeed, ShardedReplayFeed, PopulationSource], "on_policy"),
    ],
)
def test_a_policy_of_another_kind_is_refused(policy_class: Any, sources: list[Any], pipeline: str) -> None:
    for data in (RolloutDataModule(CARTPOLE, None, None, kind()) for kind in sources):
        with pytest.raises(ConfigError, match=rf"{policy_class.__name__} learns from .*: use data={pipeline}$"):
            fit(policy_class(*CARTPOLE.spaces()), data)
        assert data.workers is None


def rollouts_alone(workers: Any, policy: Any) -> Iterator[Any]:
    while True:
        yield workers.sample()


def test_a_policy_that_replays_learns_nothing_from_rollouts() -> None:
    """A plan of one's own may give transitions, so that what comes is refused, before a step."""
    copies = EnvCreator("CartPole-v1", agents=2)
    mapping = {"agent_0": "a", "agent_1": "b"}
    several = PolicySet(*copies.spaces(), policies={"a": PPO, "b": DQN}, policy_mapping=mapping)
    for policy, learner, env, message in (
        (alone := DQN(*CARTPOLE.spaces()), alone, CARTPOLE, r"^DQN learns .*use a ReplayDataModule \(data=replay\)"),
        (several, several.get_policy("b"), copies, r"^policy 'b', a DQN, learns .*datamodule.feeds\['b'\] = "),
    ):
        with pytest.raises(ConfigError, match=message):
            fit(policy, RolloutDataModule(env, {"fragment_length": 8}, {"episodes": 1}, plan=rollouts_alone))
        assert learner.gradient_steps == 0


def test_a_plan_of_the_user_s_own_may_feed_any_policy() -> None:
    def no_rollouts(workers: Any, policy: Any) -> Iterator[Any]:
        raise KeyError("the plan began")
        yield

    with pytest.raises(KeyError, match="the plan began"):
        fit(DQN(*CARTPOLE.spaces()), RolloutDataModule(CARTPOLE, plan=no_rollouts))
