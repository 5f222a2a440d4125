"""Runs with several agents: every kind of policy, resumed and spread over processes without a difference."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from lightning_rl.cli import main
from lightning_rl.config import check_config, compose_config
from lightning_rl.data import ReplayFeed
from lightning_rl.envs.multi_agent import AgentLayout
from lightning_rl.errors import ConfigError, EnvError, UnsupportedSpaceError
from lightning_rl.policies import DQN, PPO, Policy, PolicySet
from lightning_rl.runs import evaluation, run
from lightning_rl.runs.algorithm import Algorithm
from lightning_rl.runs.multi_agent import default_policies
from tests.envs.classic_control import CARTPOLE
from tests.families import each
from tests.refusals import not_refused
from tests.run_comparison import assert_equal, first_checkpoint, resume, rows

LANES = ["workers.envs_per_worker=2", "workers.fragment_length=16"]
SMALL = [
    *("total_env_steps=256", "experiment=none", "workers.logical_workers=2", *LANES, "logger=csv"),
    *("evaluation.episodes=2", "evaluation.every_env_steps=128", "evaluation.max_share=null"),
    *("checkpoint.keep=20", "checkpoint.every_env_steps=64"),
]
CARTPOLES = ["env.id=CartPole-v1", "env.agents=3", "env.max_episode_steps=20"]
MAPPING = "policy_mapping={agent_0: a, *: b}"
PPO_BESIDE_DQN = (
    "policies={a: {policy: ppo, model: {fcnet_hiddens: [8]}}, b: {policy: dqn, data: {learning_starts: 64}}}"
)
TWO = [PPO_BESIDE_DQN, MAPPING]
BY_GRADIENTS = ["policy=a3c", *CARTPOLES, "policies={a: {}, b: {gamma: 0.9}}", MAPPING]
LATE_START = [*CARTPOLES, TWO[0].replace("64", "300"), MAPPING]
RUNS = {
    "ppo": ["policy=ppo", *CARTPOLES, "policy.observation_filter=mean_std"],
    "ppo and dqn": [*CARTPOLES, *TWO],
    "dqn": ["policy=dqn", *CARTPOLES, "data.learning_starts=64"],
    "turns": ["policy=ppo", "env=connect_four"],
}
RUNS_HERE = {**RUNS, "two by gradients": [*BY_GRADIENTS, "data.gradients_per_iteration=4"]}
IN_PROCESSES = [  # but for "two by gradients": whose gradient is first varies there
    pytest.param(name, 2, marks=[pytest.mark.ray, *([] if name == "ppo and dqn" else [pytest.mark.slow])])
    for name in RUNS
]


def config(run_dir: Path, *overrides: str) -> dict[str, Any]:
    composed = compose_config([*SMALL, f"run_dir={run_dir}", *overrides])
    check_config(composed)
    return composed


def learned(run_dir: Path) -> dict[str, Any]:
    checkpoint = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    return {name: checkpoint[name] for name in ("state_dict", "optimizer_states", "counters")}


# -- what a person gets -----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def two_algorithms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of PPO and DQN."""
    run_dir = tmp_path_factory.mktemp("two") / "run"
    assert run.train(config(run_dir, *RUNS["ppo and dqn"]))["state"] == "ok"
    return run_dir


def test_policies_of_several_algorithms_train_in_one_run(two_algorithms: Path) -> None:
    status = json.loads((two_algorithms / "status.json").read_text())
    assert set(status["policies"]) == {"a", "b"} and set(status["policies"]["a"]) == {"return", "evaluation"}
    found = {name for row in rows(two_algorithms) for name in row}
    assert {"train/a/policy_loss", "train/b/td_error", "rollout/a/ep_rew_mean", "eval/b/ep_rew_mean"} <= found
    assert "replay/b/rows" in found and "replay/a/rows" not in found
    loaded = Policy.load(two_algorithms / "checkpoints" / "last.ckpt", policy_id="b")
    assert isinstance(loaded, DQN) and loaded.compute_single_action(loaded.observation_space.sample()) in (0, 1)


def test_the_return_is_the_sum_over_the_agents_and_a_policys_the_mean_of_its_own(two_algorithms: Path) -> None:
    """Each of the three copies gives a reward of 1 per step that it lives."""
    last = [row for row in rows(two_algorithms) if "rollout/a/ep_rew_mean" in row][-1]
    total, one, two = (float(last[f"rollout/{name}ep_rew_mean"]) for name in ("", "a/", "b/"))
    assert total == pytest.approx(one + 2 * two)


def test_an_evaluation_names_each_policys_return(two_algorithms: Path) -> None:
    result = evaluation.evaluate(two_algorithms, episodes=4)
    assert result["mean"] == pytest.approx(result["policies"]["a"] + 2 * result["policies"]["b"])
    assert json.loads(json.dumps(result))["policies"].keys() == {"a", "b"}


def test_agents_with_equal_spaces_share_the_runs_policy(tmp_path: Path) -> None:
    """Others have a policy for each kind of spaces."""
    kinds = {"speaker_0": ["speaker_0"], "listener_0": ["listener_0"]}
    shared = {"shared": ["agent_0", "agent_1", "agent_2"]}
    for env, agents in ((CARTPOLES, shared), (["env=simple_speaker_listener"], kinds)):
        policy, _, _ = run.build(config(tmp_path / "run", "policy=ppo", *env))
        assert {name: policy.agents_of(name) for name in policy.policies} == agents
        assert all(isinstance(each, PPO) for each in policy.policies.values())


@pytest.mark.parametrize(
    ("agents", "ids"),
    [
        (["a b", "a_b"], ["a_b", "a_b_2"]),
        (["☃", "★", "x.y", "x/y"], ["_", "__2", "x_y", "x_y_2"]),
        (["keys", "keys_2"], ["keys_2", "keys_2_2"]),
        (["*", "[a]"], ["_", "_a_"]),
    ],
)
def test_agents_of_each_kind_have_a_policy_whatever_their_names_are(agents: list[str], ids: list[str]) -> None:
    observed = {agent: gym.spaces.Box(-1, 1, (size,)) for size, agent in enumerate(agents, start=1)}
    acted = {agent: gym.spaces.Discrete(2) for agent in agents}
    entry = {"_target_": PPO, "model": {"fcnet_hiddens": [8]}}
    layout = AgentLayout.from_spaces(agents, observed, acted)
    entries, mapping = default_policies({"policy": entry, "data": {}}, layout)
    for settings in entries.values():
        settings.pop("data", None)
    spaces = (gym.spaces.Dict([*part.items()]) for part in (observed, acted))
    policy = PolicySet(*spaces, policies=entries, policy_mapping=mapping)
    assert [policy.agents_of(name) for name in ids] == [[agent] for agent in agents]
    assert [*policy.policies] == ids


def test_an_algorithm_names_policies_by_their_ids(tmp_path: Path) -> None:
    changes = {"policies": {"learner": {}, "other": "random"}, "policy_mapping": {"agent_0": "learner", "*": "other"}}
    algorithm = Algorithm("ppo", overrides=[*LATE, "workers.logical_workers=2"], config=changes)
    try:
        before = algorithm.get_weights()["learner"]
        result = algorithm.train()
        assert result["env_steps"] > 0 and "train/learner/loss" in result
        learned = algorithm.get_weights(["learner"])["learner"]
        assert any((before[name] != value).any() for name, value in learned.items())
        algorithm.set_weights({"learner": before})
        np.testing.assert_equal(algorithm.get_weights()["learner"], before)
        assert algorithm.compute_single_action(gym.make("CartPole-v1").reset(seed=0)[0], policy_id="learner") in (0, 1)
        with pytest.raises(ConfigError, match="no policy 'lerner'"):
            algorithm.get_policy("lerner")
    finally:
        algorithm.stop()


def test_a_frozen_policy_keeps_its_weights(tmp_path: Path) -> None:
    both = ["policies={a: {policy: ppo}, b: {policy: ppo}}", MAPPING, "policies_to_train=[a]"]
    policy, datamodule, trainer = run.build(config(tmp_path / "run", *CARTPOLES, *both))
    before = policy.get_weights()
    run.fit(policy, datamodule, trainer)
    after = policy.get_weights()
    np.testing.assert_equal(after["b"], before["b"])
    assert any((before["a"][name] != value).any() for name, value in after["a"].items())


# -- policies that replay, trained from a later iteration on ----------------------------------------------------------
LATE = ["env.id=CartPole-v1", "env.agents=2", "workers.logical_workers=1", *LANES, "experiment=none"]
PPO_AND_DQN: dict[str, Any] = {
    "policies": {"a": {"policy": "ppo", "model": {"fcnet_hiddens": [8]}}, "b": {"policy": "dqn"}},
    "policy_mapping": {"agent_0": "a", "agent_1": "b"},
    "policies_to_train": ["a"],
}
REPLAYED: dict[str, Any] = {"learning_starts": 40, "batch_size": 8}


@pytest.fixture
def algorithm(tmp_path: Path) -> Iterator[Any]:
    """PPO learns beside a frozen DQN; an iteration has 32 env steps."""
    changes = copy.deepcopy({**PPO_AND_DQN, "run_dir": str(tmp_path)})
    changes["policies"]["b"]["data"] = REPLAYED
    made = Algorithm("ppo", overrides=LATE, config=changes)
    yield made
    made.stop()


def test_a_frozen_policy_that_is_trained_later_learns_from_replay(algorithm: Any, tmp_path: Path) -> None:
    """Its first step comes 40 env steps after it is trained: 24 steps in its second iteration and 32 in its third.

    The iteration in which it is frozen again adds none.
    """
    taken = []
    for trained in (["a"], ["a", "b"], ["a", "b"], ["a"], ["a", "b"]):
        algorithm.policy.set_policies_to_train(trained)
        result = algorithm.train()
        assert ("replay/b/rows" in result) == (len(taken) > 0)
        taken.append(algorithm.get_policy("b").gradient_steps)
    assert taken == [0, 0, 24, 24, 56]


def test_an_added_policy_that_replays_needs_a_buffer_before_it_learns(algorithm: Any) -> None:
    """One gradient step for each env step but the first 40."""
    algorithm.train()
    entry = {"_target_": DQN, "model": {"fcnet_hiddens": [8]}}
    mapping = {"agent_0": "a", "agent_1": "c"}
    added = algorithm.policy.add_policy("c", entry, trained=True, policy_mapping=mapping)
    with pytest.raises(ConfigError, match=r"'c'.*DQN.*datamodule.feeds\['c'\] ="):
        algorithm.train()
    assert added.gradient_steps == 0
    algorithm.datamodule.feeds["c"] = ReplayFeed(**REPLAYED)
    before = algorithm.policy.env_steps
    algorithm.train()
    result = algorithm.train()
    assert result["replay/c/updates"] == added.gradient_steps == result["env_steps"] - before - 40 > 0


def test_a_mapping_by_a_lambda_is_saved_as_the_policy_of_each_agent(tmp_path: Path) -> None:
    """RLlib's usual form; no file can name a lambda."""
    by_number = {"policy_mapping": lambda agent: "x" if agent.endswith("0") else "y", "policies": {"x": {}, "y": {}}}
    first: Any = Algorithm("ppo", config={**by_number, "run_dir": str(tmp_path / "run")}, overrides=LATE)
    first.train()
    again: Any = Algorithm.restore(first.save(tmp_path / "two.ckpt"))
    for algorithm in (first, again):
        assert [algorithm.policy.mapping.policy_of(agent) for agent in ("agent_0", "agent_1")] == ["x", "y"]
        assert algorithm.train()["env_steps"] > 0
        algorithm.stop()


def test_a_policy_that_no_file_can_name_is_warned_of_before_training() -> None:
    policies = {"x": {}, "y": {"policy": lambda obs: 0}}
    settings: dict[str, Any] = {"policies": policies, "policy_mapping": {"agent_0": "x", "agent_1": "y"}}
    with pytest.warns(UserWarning, match=r"save\(\).*policies\.y\.function"):
        Algorithm("ppo", config=settings, overrides=LATE).stop()


def test_a_buffer_that_is_made_late_is_restored_from_a_checkpoint(algorithm: Any, tmp_path: Path) -> None:
    algorithm.policy.set_policies_to_train(["a", "b"])
    algorithm.train()
    rows_before = algorithm.train()["replay/b/rows"]
    path = algorithm.save(tmp_path / "both.ckpt")
    again: Any = Algorithm.restore(path)
    try:
        assert again.policy.policies_to_train == ["a", "b"]  # as chosen during the run, not as in its config
        result = again.train()
        assert result["replay/b/rows"] > rows_before and result["replay/b/updates"] == result["env_steps"] - 40
    finally:
        again.stop()


def test_policies_that_replay_cannot_be_trained_later_on_gradients_of_workers(tmp_path: Path) -> None:
    changes = {**PPO_AND_DQN, "policies": {"a": {}, "b": {"policy": "dqn"}}, "run_dir": str(tmp_path)}
    algorithm: Any = Algorithm("a3c", overrides=LATE, config=changes)
    try:
        algorithm.train()
        algorithm.policy.set_policies_to_train(["b"])
        with pytest.raises(ConfigError, match=r"DQN.*GradientSource"):
            algorithm.train()
    finally:
        algorithm.stop()


def test_steps_are_those_of_agents_if_the_config_says_so(tmp_path: Path) -> None:
    """Three agents act in each step until the first of them has ended."""
    status = run.train(config(tmp_path / "run", "policy=ppo", *CARTPOLES, "count_steps_by=agent_steps"))
    steps = run.train(config(tmp_path / "other", "policy=ppo", *CARTPOLES))
    assert status["env_steps"] >= 256 and steps["env_steps"] >= 256
    first = rows(tmp_path / "run")[0]["env_steps"], rows(tmp_path / "other")[0]["env_steps"]
    assert float(first[0]) > 2 * float(first[1])


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["policy=dqn", *CARTPOLES, "data.learning_starts=300"], "data"),
        (LATE_START, "policies.b.data"),
        ([*LATE_START, "policies_to_train=[a]"], None),
    ],
    ids=["one policy", "a policy of two", "but not one that is not trained"],
)
def test_a_policy_whose_first_gradient_step_lies_beyond_the_run_is_named_before_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, overrides: list[str], key: str | None
) -> None:
    _, datamodule, _ = run.build(config(tmp_path, *overrides))
    if key is None:
        assert "b" in datamodule.feeds and caplog.messages == []
    else:
        due = rf"{key}\.learning_starts=300: the first gradient step is due after 301 env steps.*{key}\.learning_starts"
        (message,) = caplog.messages
        assert re.match(due, message)


# -- resumed, and in other processes ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "workers"),
    [
        *(pytest.param(name, 0, marks=() if name == "ppo and dqn" else pytest.mark.every) for name in RUNS_HERE),
        *IN_PROCESSES,
    ],
)
def test_a_resumed_run_is_equal_bit_for_bit(tmp_path: Path, name: str, workers: int) -> None:
    whole = tmp_path / "whole"
    run.train(config(whole, *RUNS_HERE[name], f"workers.num_workers={workers}"))
    again = resume(whole, first_checkpoint(whole), tmp_path / "again", 256, workers)
    assert_equal(learned(whole), learned(again))


def test_a_run_goes_on_without_the_file_of_its_frozen_policy(tmp_path: Path) -> None:
    """The run's own checkpoint holds it; what lies at the place of the file meanwhile is not read."""
    file = tmp_path / "solo.ckpt"
    solo = PPO(*CARTPOLE.spaces(), model={"fcnet_hiddens": [8]}, seed=3)
    checkpoint: dict[str, Any] = {"state_dict": solo.state_dict()}
    solo.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, file)
    overrides = [f"policies={{a: {{}}, b: {{checkpoint: {file}}}}}", MAPPING, *CARTPOLES]
    run.train(config(tmp_path / "run", "policy=ppo", *overrides))
    before = learned(tmp_path / "run")["state_dict"]
    for change in (file.unlink, lambda: file.write_text("of something else")):
        change()
        total = 128 + json.loads((tmp_path / "run" / "status.json").read_text())["env_steps"]
        assert main(["resume", str(tmp_path / "run"), f"total_env_steps={total}"]) == 0
    after = learned(tmp_path / "run")["state_dict"]
    assert all(torch.equal(value, after[name]) for name, value in before.items() if name.startswith("policies.b."))
    algorithm: Any = Algorithm.restore(tmp_path / "run" / "checkpoints" / "last.ckpt")
    assert algorithm.policy.policies_to_train == ["a"]
    algorithm.stop()


@pytest.mark.ray
@pytest.mark.parametrize(
    "name", ["turns", *(pytest.param(each, marks=pytest.mark.slow) for each in ("ppo", "ppo and dqn"))]
)
def test_the_number_of_processes_does_not_change_the_result(tmp_path: Path, name: str) -> None:
    for workers in (0, 2):
        run.train(config(tmp_path / str(workers), *RUNS[name], f"workers.num_workers={workers}"))
    assert_equal(learned(tmp_path / "0"), learned(tmp_path / "2"))


# -- gradients of workers ---------------------------------------------------------------------------------------------
def test_two_policies_learn_by_gradients_of_several_workers(tmp_path: Path) -> None:
    assert run.train(config(tmp_path / "run", *BY_GRADIENTS))["state"] == "ok"
    last = rows(tmp_path / "run")[-1]
    assert float(last["train/a/grad_norm"]) > 0 and float(last["train/b/grad_norm"]) > 0
    assert float(last["rollout/policy_lag"]) <= 2 and last["rollout/dropped"] == "0.0"


# -- everything that trains one agent ---------------------------------------------------------------------------------
PENDULUMS = ["env.id=Pendulum-v1", "env.agents=2", "data.learning_starts=64", "data.batch_size=16"]
COMBINATIONS = {
    "a2c": ["policy=a2c", *CARTPOLES],
    "a3c": ["policy=a3c", *CARTPOLES],
    "pg": ["policy=pg", *CARTPOLES],
    "impala": ["policy=impala", *CARTPOLES],
    "appo": ["policy=appo", *CARTPOLES],
    "rainbow": ["policy=rainbow", *CARTPOLES, "data.learning_starts=64"],
    "sac": ["policy=sac", *PENDULUMS],
    "td3": ["policy=td3", *PENDULUMS],
    "an LSTM": ["policy=ppo", *CARTPOLES, "model=lstm", "model.lstm_cell_size=8"],
    "attention": ["policy=ppo", *CARTPOLES, "model=attention"],
    "curiosity": ["policy=ppo", *CARTPOLES, "exploration=curiosity"],
    "a central critic": ["policy=ppo", "env=simple_spread", "policy.central_critic=true"],
    "a central critic and an LSTM": ["policy=a2c", "env=lbf", "policy.central_critic=true", "model=lstm"],
    "masks in turns, replayed": ["policy=dqn", "env=connect_four", "data.learning_starts=64"],
    "sequences": ["policy=r2d2", *CARTPOLES, "model=lstm", "data.learning_starts=64", "data.batch_size=4"],
    "half precision": ["policy=ppo", *CARTPOLES, "trainer.precision=bf16-true"],
    "whole episodes": ["policy=ppo", *CARTPOLES, "workers.batch_mode=complete_episodes"],
    "a process for each environment": ["policy=ppo", *CARTPOLES, "workers.vectorization=async"],
}


@pytest.mark.parametrize("name", each(COMBINATIONS, ("impala", "sac", "a central critic", "masks in turns, replayed")))
def test_what_trains_one_agent_trains_several(tmp_path: Path, name: str) -> None:
    status = run.train(config(tmp_path / "run", *COMBINATIONS[name], "total_env_steps=128"))
    assert status["state"] == "ok" and status["env_steps"] >= 128
    assert any(row.get(key) for row in rows(tmp_path / "run") for key in row if key.endswith("/grad_norm"))


# -- bad input --------------------------------------------------------------------------------------------------------
def test_what_cannot_work_is_refused_before_training(tmp_path: Path) -> None:
    cases = [
        (["env=pettingzoo", "env.id=mpe2.simple_spred_v3"], r"'simple_spred_v3'.*'simple_spread_v3'"),
        (["env=connect_four", "policy.central_critic=true"], r"policy.central_critic=true.*connect_four"),
        (["env=simple_speaker_listener", "policies={a: {}}"], "spaces"),
        (
            ["policy=maddpg", "env=simple_tag", "policies={h: {}, p: random}", "policy_mapping={agent_*: p, *: h}"],
            r"env.group_agents='all'.*'mpe2.simple_tag_v3'.*env.group_agents=null",
        ),
        (
            ["env=pettingzoo", "env.id=pettingzoo.sisl.pursuit_v4"],
            "pursuit_v4 is now deprecated, use pursuit_v5 instead",
        ),
    ]

    def train(overrides: list[str]) -> None:
        run.train(config(tmp_path / "run", *overrides))

    penalty = ["policy=a3c", *CARTPOLES, "policies={a: {}, b: {policy: ppo, kl_coef: 0.2}}", MAPPING]
    cases.append((penalty, r"policy\.kl_coef.*PPO"))  # the last, as it begins a run
    assert not_refused(train, cases, (ConfigError, EnvError, UnsupportedSpaceError)) == []
