"""Learning from the data of several agents, each policy from its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_rl.config import compose_config
from lightning_rl.data.offline.data_set import open_data
from lightning_rl.data.offline.recorder import Recorder
from lightning_rl.envs import EnvCreator
from lightning_rl.errors import CheckpointError, ConfigError
from lightning_rl.policies import PolicySet
from lightning_rl.rollouts.worker_set import WorkerSet
from tests.data.small_runs import fit
from tests.run_comparison import assert_equal

TWO = ["env=multi_agent_cartpole", "env.agents=2", "policy_mapping={agent_0: left, agent_1: right}"]
SMALL = ["policy.lr=1e-2", "data.rows_per_iteration=50"]


def say_the_goal(obs: np.ndarray) -> int:
    """The speaker sees the color of the goal, and says its number."""
    return int(obs.argmax())


def move_to_the_goal(obs: np.ndarray) -> int:
    """The listener sees its velocity [2], the way to each of 3 landmarks [2], and the word [3]; it brakes in time."""
    way = obs[2:8].reshape(3, 2)[obs[8:].argmax()] - obs[:2]
    if not obs[8:].any() or np.abs(way).max() < 0.05:
        return 0
    axis = int(np.abs(way).argmax())
    return 1 + 2 * axis + int(way[axis] > 0)


def record_two_agents(directory: Path, total: int = 400) -> Path:
    policies = "policies={left: {policy: ppo}, right: {policy: ppo}}"
    size = ["workers.envs_per_worker=2", "workers.fragment_length=64", f"total_env_steps={total}"]
    fit(directory / "ppo", *TWO, policies, *size, f"data.output={directory / 'data'}")
    return directory / "data"


@pytest.fixture(scope="module")
def two_agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_two_agents(tmp_path_factory.mktemp("two"))


def learned(run_dir: Path) -> dict[str, Any]:
    checkpoint = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    return {name: checkpoint[name] for name in ("state_dict", "optimizer_states", "counters", "policies")}


def test_bc_imitates_both_of_two_agents(tmp_path: Path) -> None:
    """A speaker and a listener of different spaces have one reward: −22 with the rules, −37 if the speaker is random.

    −79 if the listener is.
    """
    pytest.importorskip("mpe2", reason="a speaker and a listener")
    env, data = EnvCreator("mpe2.simple_speaker_listener_v4"), tmp_path / "data"
    functions = {"speaker": say_the_goal, "listener": move_to_the_goal}
    experts = PolicySet(*env.spaces(), policies=functions, policy_mapping={"speaker_0": "speaker", "*": "listener"})
    workers = WorkerSet(env, experts, num_envs=8, fragment_length=500, callbacks=[Recorder(data)])
    workers.sample()
    expert = float(np.mean(workers.get_metrics()["episode_returns"]))
    workers.stop()
    keys = ["policy=bc", "env=simple_speaker_listener", "policies={speaker: {}, listener: {}}", f"data.input={data}"]
    keys += ["policy_mapping={speaker_0: speaker, *: listener}", "policy.lr=3e-3", "model.fcnet_hiddens=[64, 64]"]
    keys += ["evaluation.every_env_steps=100%", "evaluation.max_share=null", "evaluation.episodes=40"]
    policy, _ = fit(tmp_path / "run", *keys, "total_env_steps=100_000")
    found = policy.reported
    assert 2 * found["eval/speaker/ep_rew_mean"] == pytest.approx(found["eval/ep_rew_mean"])
    assert found["eval/ep_rew_mean"] > 1.2 * expert > -30


@pytest.mark.parametrize(
    "policies",
    [
        "policies={left: {policy: bc}, right: {policy: marwil}}",
        "policies={left: {policy: dqn, data: {batch_size: 16}}, right: {policy: bc}}",
        "policies={left: {policy: dqn, data: {batch_size: 16, steps_per_iteration: 10}}, right: random}",
    ],
)
def test_n_steps_and_n_more_after_a_resume_equal_2n_steps(tmp_path: Path, two_agents: Path, policies: str) -> None:
    keys = ["policy=bc", *TWO, policies, *SMALL, f"data.input={two_agents}"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    policy, _ = fit(whole, *keys, "total_env_steps=240", "checkpoint.every_env_steps=120")
    fit(parts, *keys, "total_env_steps=120")
    assert fit(parts, *keys, "total_env_steps=240", resume=True)[0].env_steps == policy.env_steps >= 240
    assert all(policy.policies[name].gradient_steps > 2 for name in policy.policies_to_train)
    assert_equal(learned(whole), learned(parts))


def test_env_steps_are_those_of_the_policy_that_reads_most(tmp_path: Path, two_agents: Path) -> None:
    """Half a gradient step per env step: 10 are due after 20, also to the policy of a quarter, which takes 5."""
    own = "{policy: dqn, data: {batch_size: 16, steps_per_iteration: 10, update_to_data_ratio: %s}}"
    policies = f"policies={{left: {own % 0.5}, right: {own % 0.25}}}"
    policy, datamodule = fit(tmp_path, "policy=bc", *TWO, policies, f"data.input={two_agents}", "total_env_steps=80")
    assert policy.env_steps == 80 and datamodule.source.pop_metrics()["replay/left/updates"] == 40
    assert policy.policies["right"].gradient_steps == policy.reported["replay/right/updates"] == 20


def test_a_policy_may_have_a_data_set_elsewhere(tmp_path: Path, two_agents: Path) -> None:
    policies = f"policies={{left: {{}}, right: {{policy: bc, data: {{input: '{two_agents / 'left'}'}}}}}}"
    _, datamodule = fit(tmp_path, "policy=bc", *TWO, policies, *SMALL, f"data.input={two_agents}", "total_env_steps=60")
    inputs = {name: each.input for name, each in datamodule.source.data_sets.items()}
    assert inputs == dict.fromkeys(("left", "right"), str(two_agents / "left"))


def test_data_that_do_not_fit_the_policies_are_refused(tmp_path: Path, two_agents: Path) -> None:
    run = ["policy=bc", *TWO, *SMALL, "total_env_steps=60"]
    cases = [
        ("policies={left: {}, other: {}}", [f"data.input={two_agents}"], "policies.other.data.input"),
        ("policies={left: {}, right: {}}", [], "policies.left.data.input"),
        ("policies={left: {policy: ppo}, right: {}}", [f"data.input={two_agents}"], "PPO learns from rollouts"),
        (
            "policies={left: {policy: dqn, data: {capacity: 9}}, right: {}}",
            [f"data.input={two_agents}"],
            "policies.left.data.capacity",
        ),
        (
            "policies={left: {}, right: {}}",
            [f"data.input={two_agents}", "count_steps_by=agent_steps"],
            "count_steps_by=agent_steps",
        ),
    ]
    for number, (policies, keys, named) in enumerate(cases):
        mapping = ["policy_mapping={agent_0: left, agent_1: other}"] if "other" in policies else []
        with pytest.raises(ConfigError, match=named):
            fit(tmp_path / str(number), *run, policies, *keys, *mapping)
    with pytest.raises(ConfigError, match=str(two_agents / "left")):
        open_data(two_agents)
    fit(tmp_path / "run", *run, "policies={left: {}, right: {}}", f"data.input={two_agents}")
    more = record_two_agents(tmp_path, total=200)
    with pytest.raises(CheckpointError, match=f"data.input={more / 'left'} has"):
        keys = ["policies={left: {}, right: {}}", f"data.input={more}", "total_env_steps=120"]
        fit(tmp_path / "run", *run[:-1], *keys, resume=True)


def test_policies_of_a_run_on_data_have_the_keys_of_data_offline(two_agents: Path) -> None:
    """An entry with an algorithm of its own begins with the defaults of data=offline, not of that algorithm."""
    from lightning_rl.config.policies import complete_policies

    config = compose_config(["policy=bc", *TWO, "policies={left: {policy: dqn}}", f"data.input={two_agents}"])
    assert complete_policies(config)["left"]["data"] == {**config["data"], "input": None}
