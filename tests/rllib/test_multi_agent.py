"""RLlib's section `multiagent` trains several policies, with its own words for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from lightning_rl import rllib
from lightning_rl.envs.multi_agent import make_multi_agent
from lightning_rl.errors import ConfigError
from lightning_rl.policies import DQN, PPO

SMALL = {"num_envs_per_worker": 2, "rollout_fragment_length": 16}
SPACES = gym.make("CartPole-v1").observation_space, gym.make("CartPole-v1").action_space


@pytest.fixture(autouse=True)
def in_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trainer(**section: Any) -> Any:
    config = {**SMALL, "env_config": {"num_agents": 2}, "multiagent": section}
    return rllib.PPOTrainer(env=make_multi_agent("CartPole-v1"), config=config)


def test_each_policy_has_its_class_and_its_own_keys() -> None:
    policies = {
        "a": (None, *SPACES, {"lr": 1e-5, "gamma": 0.9, "model": {"fcnet_hiddens": [7]}}),
        "b": (DQN, *SPACES, {"lr": 1e-4, "buffer_size": 500, "learning_starts": 200}),
    }
    made = trainer(policies=policies, policy_mapping_fn=lambda agent_id, **_: "a" if agent_id == "agent_0" else "b")
    try:
        first, second = made.get_policy("a"), made.get_policy("b")
        assert isinstance(first, PPO) and isinstance(second, DQN)
        assert (first.learner.optimiser.lr, first.gamma, second.learner.optimiser.lr) == (1e-5, 0.9, 1e-4)
        assert made.policy.agents_of("a") == ["agent_0"] and made.policy.agents_of("b") == ["agent_1"]
        result = made.train()
        assert "train/a/loss" in result and result["episode_reward_mean"] > 0
        assert result["info"]["learner"]["a"]["loss"] == result["train/a/loss"]
        assert made.datamodule.policy_feeds.replays["b"].capacity == 500
        assert made.compute_single_action(SPACES[0].sample(), policy_id="a") in (0, 1)
    finally:
        made.stop()


def test_a_list_of_ids_takes_the_trainers_class_for_all_and_some_of_them_are_trained() -> None:
    made = trainer(
        policies=["a", "b"],
        policy_mapping_fn=lambda agent_id, episode, **kwargs: {"agent_0": "a", "agent_1": "b"}[agent_id],
        policies_to_train=["b"],
        count_steps_by="agent_steps",
    )
    try:
        before = made.get_weights()
        made.train()
        after = made.get_weights()
        assert all((before["a"][name] == value).all() for name, value in after["a"].items())
        assert any((before["b"][name] != value).any() for name, value in after["b"].items())
        made.set_weights({"a": after["b"]})
        assert all((made.get_weights(["a"])["a"][name] == value).all() for name, value in after["b"].items())
    finally:
        made.stop()


def test_a_function_says_which_policies_are_trained_and_results_are_by_policy() -> None:
    """An episode's return is the sum of its two agents' returns, one for each policy."""
    made = trainer(
        policies={"a", "b"},
        policy_mapping_fn=lambda agent_id, **_: {"agent_0": "a", "agent_1": "b"}[agent_id],
        policies_to_train=lambda policy_id, batch: policy_id == "b",
    )
    try:
        assert made.policy.policies_to_train == ["b"]
        results = [made.train() for _ in range(4)]
        assert [*results[-1]["info"]["learner"]] == ["b"]
        low, mean, high = (results[-1][f"policy_reward_{name}"] for name in ("min", "mean", "max"))
        assert low.keys() == mean.keys() == high.keys() == {"a", "b"}
        assert all(low[name] <= mean[name] <= high[name] for name in "ab")
        total = results[-1]["episode_reward_min"], results[-1]["episode_reward_mean"], results[-1]["episode_reward_max"]
        assert total[0] <= total[1] <= total[2] and total[1] == pytest.approx(mean["a"] + mean["b"])
    finally:
        made.stop()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"polices": {}}, "multiagent has no key 'polices' here"),
        ({"policies": {"a": 3}}, r"multiagent.policies\['a'\]=3; expected \(class or None"),
        ({"policies": {"a": (None, None, None, {})}, "replay_mode": "lockstep"}, "replay_mode='lockstep'"),
        ({"policies": {"a": (None, None, None, {"nonsense": 1})}}, "nonsense"),
        ({"policies_to_train": lambda policy_id, batch: True}, "policies_to_train=.* needs multiagent.policies"),
        (
            {"policies": {"a": (None, SPACES[1], None, {})}, "policy_mapping_fn": lambda agent_id, **_: "a"},
            r"multiagent.policies\['a'\]: its observation_space is not that of its agents: Discrete\(2\) against Box",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trainer(**section)
