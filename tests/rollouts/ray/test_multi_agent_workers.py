"""Workers of several policies in a Ray process give what they give in this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent.toy_games import RockPaperScissors
from lightning_rl.policies import PPO
from lightning_rl.rollouts import WorkerSet, make_worker_set
from tests.envs.classic_control import CARTPOLE
from tests.rollouts.agents import Fixed, Policies
from tests.rollouts.crashing import CrashingCartPole
from tests.rollouts.fragment_equality import assert_equal_fragments

pytestmark = pytest.mark.ray

ENV = EnvCreator(RockPaperScissors, {"repetitions": 5})
OPTIONS: dict[str, Any] = {"num_envs": 2, "fragment_length": 14, "vectorization": "sync", "seed": 3}


def policies(seed: int) -> Policies:
    agents, acted = (space.spaces for space in ENV.spaces())
    ids = {"player_0": "first", "player_1": "second"}
    return Policies(
        {name: PPO(agents[agent], acted[agent], seed=seed + len(name)) for agent, name in ids.items()}, Fixed(ids)
    )


def test_a_process_acts_with_the_weights_of_all_policies() -> None:
    """The process builds its policies from other weights, and gets the learner's before it samples."""
    learner, built = policies(0), policies(0)
    with torch.no_grad():
        for weights in learner.parameters():
            weights.add_(0.3)
    here = WorkerSet(ENV, learner, [0, 1], **OPTIONS)
    there = make_worker_set(ENV, built, num_workers=1, worker_indices=[0, 1], **OPTIONS)
    try:
        there.sync_weights(learner)
        for _ in range(2):
            expected, found = here.sample(), there.sample()
            assert found.env_steps == expected.env_steps and found.num_envs == 4
            for policy_id in ("first", "second"):
                assert_equal_fragments(expected[policy_id], found[policy_id])
        assert there.get_metrics() == here.get_metrics()
        there.submit_samples(1, 0)
        reference = there.next_sample()
        assert reference.env_steps == sum(part.env_steps for part in there.fetch(reference)) > 0
        played = there.run_episodes(2)
        assert [episode.by_policy for episode in played] == [episode.by_policy for episode in here.run_episodes(2)]
    finally:
        there.stop()


def test_a_process_with_several_agents_that_dies_is_replaced_without_a_difference(tmp_path: Path) -> None:
    """The process is killed within a later fragment, which another one samples again with the same seeds."""
    options: dict[str, Any] = {**OPTIONS, "batch_mode": "complete_episodes"}
    mapping = Fixed({"agent_0": "first", "agent_1": "second"})
    built = [{name: PPO(*CARTPOLE.spaces(), seed=4) for name in ("first", "second")} for _ in range(2)]
    calm = EnvCreator(CrashingCartPole, {"at": -1}, agents=2)
    crash = EnvCreator(CrashingCartPole, {"how": "kill", "at": 40, "once": str(tmp_path / "died")}, agents=2)
    here = WorkerSet(calm, Policies(built[0], mapping), [0], **options)
    there = make_worker_set(
        crash, Policies(built[1], mapping), num_workers=1, worker_indices=[0], restart_backoff_s=0.1, **options
    )
    try:
        fragments = [(here.sample(), there.sample()) for _ in range(3)]
    finally:
        there.stop()
    assert (tmp_path / "died").exists()
    for expected, found in fragments:
        assert found.env_steps == expected.env_steps
        for policy_id in ("first", "second"):
            assert_equal_fragments(expected[policy_id], found[policy_id])
