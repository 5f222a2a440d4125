"""RLlib's section `multiagent` trains several policies, with its own words for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from lightning_rl import rllib
from lightning_rl.envs.multi_agent import make_multi_agent
from lightning_rl.envs.multi_agent.toy_games import TwoStepGame
from lightning_rl.errors import ConfigError
from lightning_rl.policies import DQN, PPO, Policy
from lightning_rl.rllib.env.wrappers.group_agents_wrapper import GroupAgentsWrapper
from tests.envs.classic_control import CARTPOLE
from tests.refusals import not_refused
from tests.rllib.classic import trainer

SMALL = {"num_envs_per_worker": 2, "rollout_fragment_length": 16}
REPLAY = {"learning_starts": 40, "train_batch_size": 16, "rollout_fragment_length": 4, "timesteps_per_iteration": 100}
SPACES = CARTPOLE.spaces()


def map_agents(agent_id: str, **_: Any) -> str:
    """Agent 0 has policy a, agent 1 policy b."""
    return {"agent_0": "a", "agent_1": "b"}[agent_id]


def two_agents(name: str = "PPO", keys: Any = None, plan: Any = None, env: Any = "CartPole-v1", **section: Any) -> Any:
    given = {**SMALL, **(keys or {}), "env_config": {"num_agents": 2}, "multiagent": section}
    return trainer(name, plan, make_multi_agent(env), **given)


def test_each_policy_has_its_class_and_its_own_keys() -> None:
    policies = {
        "a": (None, *SPACES, {"lr": 1e-5, "gamma": 0.9, "model": {"fcnet_hiddens": [7]}}),
        "b": rllib.PolicySpec(DQN, *SPACES, {"lr": 1e-4, "buffer_size": 500, "learning_starts": 200}),
    }
    made = two_agents(policies=policies, policy_mapping_fn=map_agents)
    first, second = made.get_policy("a"), made.get_policy("b")
    assert isinstance(first, PPO) and isinstance(second, DQN)
    assert (first.learner.optimizer.lr, first.gamma, second.learner.optimizer.lr) == (1e-5, 0.9, 1e-4)
    assert made.policy.agents_of("a") == ["agent_0"] and made.policy.agents_of("b") == ["agent_1"]
    result = made.train()
    assert "train/a/loss" in result and result["episode_reward_mean"] > 0
    assert result["info"]["learner"]["a"]["loss"] == result["train/a/loss"]
    assert made.datamodule.feeds["b"].capacity == 500
    assert made.compute_single_action(SPACES[0].sample(), policy_id="a") in (0, 1)
    made.stop()


@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_a_policy_whose_own_config_does_not_explore_acts_greedily(name: str) -> None:
    """In samples and alone, while the other one explores."""
    policies = {"a": (None, None, None, {"explore": False}), "b": (None, None, None, {})}
    made = two_agents(name, policies=policies, policy_mapping_fn=map_agents)
    batch = made.workers.local_worker().sample()
    deviates = {}
    for policy_id in ("a", "b"):
        policy, rows = made.get_policy(policy_id), batch[policy_id]
        best = policy.compute_actions(rows["obs"].numpy(force=True), explore=False)[0]
        deviates[policy_id] = bool((best != np.asarray(rows["actions"])).any())
    obs = np.zeros(4, np.float32)
    alone = {int(made.compute_single_action(obs, policy_id="a")) for _ in range(40)}
    made.stop()
    assert deviates == {"a": False, "b": True} and len(alone) == 1
    assert [made.get_policy(policy_id).config["explore"] for policy_id in ("a", "b")] == [False, True]


def test_a_list_of_ids_takes_the_trainers_class_for_all_and_some_of_them_are_trained() -> None:
    made = two_agents(
        policies=["a", "b"],
        policy_mapping_fn=lambda agent_id, episode, **kwargs: map_agents(agent_id),
        policies_to_train=["b"],
        count_steps_by="agent_steps",
    )
    before = made.get_weights()
    made.train()
    after = made.get_weights()
    assert all((before["a"][name] == value).all() for name, value in after["a"].items())
    assert any((before["b"][name] != value).any() for name, value in after["b"].items())
    made.set_weights({"a": after["b"]})
    assert all((made.get_weights(["a"])["a"][name] == value).all() for name, value in after["b"].items())
    made.stop()


def test_a_function_says_which_policies_are_trained_and_results_are_by_policy() -> None:
    """An episode's return is the sum of its two agents' returns, one for each policy."""
    seen: list[Any] = []

    class Watches(rllib.DefaultCallbacks):
        def on_postprocess_trajectory(self, *, policy_id: str, policies: Any, **_: Any) -> None:
            seen.append((policy_id, *policies[policy_id].learner.other_agent_batches))

    made = two_agents(
        keys={"gamma": 0.9, "callbacks": Watches},
        policies={"a": rllib.PPOTorchPolicy, "b": None},  # the trainer's own class has the trainer's keys
        policy_mapping_fn=map_agents,
        policies_to_train=lambda policy_id, batch: policy_id == "b",
    )
    assert made.policy.policies_to_train == ["b"] and made.get_policy("a").gamma == 0.9
    results = [made.train() for _ in range(4)]
    made.stop()
    assert [*results[-1]["info"]["learner"]] == ["b"] and {*seen} == {("b", "a")}
    low, mean, high = (results[-1][f"policy_reward_{name}"] for name in ("min", "mean", "max"))
    assert low.keys() == mean.keys() == high.keys() == {"a", "b"}
    assert all(low[name] <= mean[name] <= high[name] for name in "ab")
    total = [results[-1][f"episode_reward_{name}"] for name in ("min", "mean", "max")]
    assert total == sorted(total) and total[1] == pytest.approx(mean["a"] + mean["b"])


def test_policies_that_replay_draw_from_buffers_of_their_own() -> None:
    """Gradient steps are due for 1 env step of 8 after the first 40, for each policy."""
    policies = {"a": (None, *SPACES, {}), "b": (None, *SPACES, {"buffer_size": 500})}
    made = two_agents("DQN", REPLAY, policies=policies, policy_mapping_fn=map_agents, replay_mode="independent")
    results = [made.train() for _ in range(4)]
    feeds = made.datamodule.feeds
    assert feeds["a"].buffer is not feeds["b"].buffer and feeds["b"].capacity == 500
    assert not torch.equal(feeds["a"].draw().batch_indexes[:9], feeds["b"].draw().batch_indexes[:9])
    due = (results[-1]["timesteps_total"] - 40) // 8
    assert [made.get_policy(name).gradient_steps for name in "ab"] == [due, due] and due > 0
    made.stop()


def short_episodes(_: Any) -> Any:
    """Both agents' episodes end together, so that their rows are of the same steps."""
    return gym.make("CartPole-v1", max_episode_steps=5)


@pytest.mark.parametrize("mode", ["independent", "lockstep"])
def test_policies_draw_the_same_steps_in_lockstep(mode: str) -> None:
    """Rows of the same steps are at the same places of both buffers."""
    policies = {name: (None, *SPACES, {}) for name in "ab"}
    section = {"policies": policies, "policy_mapping_fn": map_agents, "replay_mode": mode}
    made = two_agents("DQN", REPLAY, env=short_episodes, **section)
    drawn: dict[str, list[Any]] = {"a": [], "b": []}
    for name, indexes in drawn.items():
        policy = made.get_policy(name)
        loss = policy.loss
        policy.loss = lambda rows, loss=loss, indexes=indexes: indexes.append(rows.batch_indexes.clone()) or loss(rows)
    for _ in range(8):
        made.train()
    made.stop()
    same = [torch.equal(one, other) for one, other in zip(*drawn.values(), strict=True)]
    assert len(same) > 3 and (all(same) if mode == "lockstep" else not any(same))


def test_policies_that_cannot_draw_in_lockstep_are_refused() -> None:
    """Poles fall at different steps; and the priorities of one policy are not those of another."""
    policies = {name: (None, *SPACES, {}) for name in "ab"}
    section = {"policies": policies, "policy_mapping_fn": map_agents, "replay_mode": "lockstep"}
    made = two_agents("DQN", REPLAY, **section)
    with pytest.raises(ConfigError, match="end together"):
        for _ in range(20):
            made.train()
    made.stop()
    for more, message in (({"prioritized_replay": True}, "uniform"), ({}, r"data.batch_size.*\(16, 8\)")):
        policies["b"] = (None, *SPACES, {} if more else {"train_batch_size": 8})
        made = two_agents("DQN", {**REPLAY, **more}, env=short_episodes, **section)
        with pytest.raises(ConfigError, match=message):
            made.train()
        made.stop()


@pytest.mark.parametrize("mode", ["independent", "lockstep"])
def test_a_plan_with_a_buffer_trains_several_policies_and_moves_their_targets(mode: str) -> None:
    """Env steps are counted where they are sampled, not where their rows are drawn; all policies step at each draw."""
    drawn: list[Any] = []

    def plan(workers: Any, config: Any) -> Any:
        starts, kind = config["learning_starts"], config["multiagent"]["replay_mode"]
        buffer = rllib.LocalReplayBuffer(learning_starts=starts, replay_batch_size=16, replay_mode=kind)
        store = rllib.ParallelRollouts(workers).for_each(rllib.StoreToReplayBuffer(local_buffer=buffer))

        def set_priorities(item: Any) -> Any:
            batch, info = item
            buffer.update_priorities({name: (batch[name].batch_indexes, info[name]["td_error"]) for name in info})
            drawn.append((workers.policy.env_steps, buffer.num_added, {name: batch[name] for name in info}))
            return batch, info

        learn = rllib.Replay(local_buffer=buffer).for_each(rllib.TrainOneStep(workers)).for_each(set_priorities)
        learn = learn.for_each(rllib.UpdateTargetNetwork(workers, 20))
        return rllib.StandardMetricsReporting(rllib.Concurrently([store, learn], output_indexes=[1]), workers, config)

    policies = {"a": (None, *SPACES, {}), "b": (DQN, *SPACES, {"lr": 1e-5})}
    section = {"policies": policies, "policy_mapping_fn": map_agents, "replay_mode": mode}
    made = two_agents("DQN", REPLAY, plan, short_episodes, **section)
    result = made.train()
    made.stop()
    steps = [made.get_policy(name).gradient_steps for name in "ab"]
    assert steps == [len(drawn), len(drawn)] and result["info"]["learner"].keys() == {"a", "b"}
    assert result["timesteps_total"] == drawn[-1][0] == drawn[-1][1] >= 100
    same = [torch.equal(rows["a"].batch_indexes, rows["b"].batch_indexes) for _, _, rows in drawn]
    assert all(same) if mode == "lockstep" else not any(same)


def all_have(policy_id: str) -> Any:
    return lambda agent_id, episode, worker, **kwargs: policy_id


def test_policies_are_added_and_removed_while_a_trainer_trains(tmp_path: Path) -> None:
    """The added one has the trainer's keys and its own over them, acts and learns; files lack the removed one."""
    section = {"policies": {"a": None, "b": None}, "policy_mapping_fn": map_agents}
    made = two_agents(keys={"gamma": 0.9, "lr": 1e-3}, **section)
    made.train()
    added = made.add_policy("c", rllib.PPOTorchPolicy, config={"lr": 1e-4}, policy_mapping_fn=all_have("c"))
    assert added is made.get_policy("c") and isinstance(added, rllib.PPOTorchPolicy)
    assert (added.learner.optimizer.lr, added.gamma) == (1e-4, 0.9)
    added.set_weights(made.get_weights()["a"])
    before = made.get_weights()
    result = made.train()
    after = made.get_weights()
    assert result["policy_reward_mean"]["c"] > 0 and all(
        (before["a"][key] == after["a"][key]).all() for key in after["a"]
    )
    assert any((before["c"][name] != value).any() for name, value in after["c"].items())
    made.remove_policy("a")
    with pytest.raises(ConfigError, match="no policy 'a'"):
        made.get_policy("a")
    assert [*made.train()["info"]["learner"]] == ["b", "c"]
    path = made.save(tmp_path)
    made.stop()
    other = two_agents(keys={"gamma": 0.9}, **section)
    other.restore(path)
    assert [*other.policy.policies] == ["b", "c"] and other.policy.policies_to_train == ["b", "c"]
    assert all((other.get_weights()["c"][name] == value).all() for name, value in made.get_weights()["c"].items())
    before = [other.get_policy(name).iterations for name in "bc"]
    other.train()
    assert [other.get_policy(name).iterations for name in "bc"] == [before[0], before[1] + 1]
    other.stop()


def test_an_added_policy_may_be_of_another_class_with_a_buffer_of_its_own() -> None:
    policies = {"a": (None, *SPACES, {}), "b": (None, *SPACES, {})}
    made = two_agents("DQN", REPLAY, policies=policies, policy_mapping_fn=map_agents)
    made.train()
    keys = {"buffer_size": 300, "learning_starts": 20}
    mapping = {"agent_0": "a", "agent_1": "c"}.__getitem__
    made.add_policy(
        "c", DQN, observation_space=SPACES[0], action_space=SPACES[1], config=keys,
        policy_mapping_fn=lambda agent_id, **_: mapping(agent_id), policies_to_train=["c"],
    )  # fmt: skip
    before = [made.get_policy(name).gradient_steps for name in "abc"]
    made.train()
    after = [made.get_policy(name).gradient_steps for name in "abc"]
    assert after[:2] == before[:2] and after[2] > before[2] == 0
    assert made.datamodule.feeds["c"].capacity == 300
    made.remove_policy("b", policies_to_train=lambda policy_id, batch: policy_id == "a")
    assert made.policy.policies_to_train == ["a"] and "b" not in made.datamodule.feeds
    made.train()
    assert made.get_policy("a").gradient_steps > after[0]
    made.stop()


def test_a_policy_is_written_to_a_file_of_its_own(tmp_path: Path) -> None:
    made = two_agents(policies={"a": None, "b": None}, policy_mapping_fn=map_agents)
    for name in "ab":
        path = made.export_policy_checkpoint(tmp_path / name, policy_id=name)
        loaded = PPO.load(path)
        assert path == str(tmp_path / name / "model.ckpt") and loaded.policy_id is None
        assert all((loaded.get_weights()[key] == value).all() for key, value in made.get_weights()[name].items())
    made.stop()
    alone = trainer("PPO", **SMALL)
    loaded = Policy.load(alone.export_policy_checkpoint(tmp_path, "alone"))
    assert loaded.compute_single_action(SPACES[0].sample(), explore=False)[0] in (0, 1)
    with pytest.raises(ConfigError, match="one agent and one policy"):
        alone.add_policy("b", PPO)
    alone.stop()


def test_a_policy_that_agents_have_is_not_removed_and_its_id_not_used_again() -> None:
    made = two_agents(policies={"a": None, "b": None}, policy_mapping_fn=map_agents)
    for wrong in (lambda: made.remove_policy("a"), lambda: made.remove_policy("d"), lambda: made.add_policy("a", PPO)):
        with pytest.raises(ConfigError):
            wrong()
    assert [*made.policy.policies] == ["a", "b"] == made.policy.policies_to_train
    made.remove_policy("a", policy_mapping_fn=all_have("b"))
    with pytest.raises(ConfigError, match="choose another id"):
        made.add_policy("a", PPO)
    made.stop()


def test_a_policy_with_rllib_s_constructor_gets_the_trainer_s_keys_and_its_own() -> None:
    class Own(rllib.Policy):
        def compute_actions(self, obs_batch: Any, state_batches: Any = None, **_: Any) -> Any:  # type: ignore[override]
            return [self.config["action"] for _ in obs_batch], [], {}

        def learn_on_batch(self, batch: Any) -> Any:
            return {}

    policies = {"a": None, "b": (Own, *SPACES, {"action": 1, "gamma": 0.5})}
    made = two_agents(keys={"lr": 0.25}, policies=policies, policy_mapping_fn=map_agents, policies_to_train=["a"])
    assert {"action": 1, "gamma": 0.5, "lr": 0.25}.items() <= made.get_policy("b").config.items()
    assert made.train()["policy_reward_mean"]["b"] > 0
    made.stop()


@pytest.mark.ray
def test_workers_in_processes_follow_added_and_removed_policies() -> None:
    section = {"policies": {"a": None, "b": None}, "policy_mapping_fn": map_agents}
    made = two_agents(keys={"num_workers": 1, "rollout_fragment_length": 64}, **section)
    made.train()
    made.add_policy("c", PPO, policy_mapping_fn=all_have("c"))
    made.train()
    made.remove_policy("a")
    result = made.train()
    steps = {name: made.get_policy(name).iterations for name in "bc"}
    made.stop()
    assert steps == {"b": 1, "c": 2} and result["policy_reward_mean"]["c"] > 0


def test_a_policy_cannot_explore_where_the_trainer_does_not() -> None:
    with pytest.raises(ConfigError, match="'explore'=True"):
        two_agents(keys={"explore": False}, policies={"a": (None, None, None, {"explore": True})})


def test_what_has_no_meaning_is_refused() -> None:
    cases = [
        ({"polices": {}}, "'polices'"),
        ({"policies": {"a": 3}}, r"multiagent.policies\['a'\]=3"),
        ({"policies": {"a": (None, None, None, {})}, "replay_mode": "lock"}, "replay_mode=.*'lock'"),
        ({"policies": {"a": (None, None, None, {"nonsense": 1})}}, "nonsense"),
        ({"policies_to_train": lambda policy_id, batch: True}, "policies_to_train=.* needs multiagent.policies"),
        (
            {"policies": {"a": (None, SPACES[1], None, {})}, "policy_mapping_fn": lambda agent_id, **_: "a"},
            r"multiagent.policies\['a'\].*observation_space.*Discrete\(2\) against Box",
        ),
    ]
    assert not_refused(lambda section: two_agents(**section), cases) == []


def test_an_environment_that_groups_its_agents_is_not_grouped_again() -> None:
    """`GroupAgentsWrapper` with the spaces of the groups, as in RLlib's example; QMIX has `group_agents=all`."""
    game = TwoStepGame()
    observed, acted = (gym.spaces.Tuple([*spaces.values()]) for spaces in (game.observation_spaces, game.action_spaces))

    def create(config: dict[str, Any]) -> rllib.MultiAgentEnv:
        return GroupAgentsWrapper(TwoStepGame(), {"both": game.possible_agents}, observed, acted)

    rllib.register_env("grouped_game", create)
    made = trainer("QMix", env="grouped_game", **SMALL)
    assert made.train()["timesteps_total"] > 0
    assert acted.contains(made.compute_single_action(observed.sample()))
    made.stop()


class Three(rllib.MultiAgentEnv):
    """Three agents, of which the third acts in every second step, in episodes of 10 steps."""

    def __init__(self, env_config: Any = None) -> None:
        self.possible_agents = ["one", "two", "three"]
        self.observation_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Box(-9, 9, (1,)))
        self.action_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Discrete(2))

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self._obs(), {}

    def step(self, actions):
        self.steps += 1
        over = {"__all__": self.steps == 10}
        obs = self._obs()
        return obs, dict.fromkeys(obs, 1.0), over, {"__all__": False}, {}

    def _obs(self):
        acting = self.possible_agents[: 3 if self.steps % 2 == 0 else 2]
        return {name: np.zeros(1, np.float32) for name in acting}


def one_or_others(agent_id: str, **_: Any) -> str:
    return "a" if agent_id == "one" else "b"


def three_agents(name: str, by: str, **keys: Any) -> Any:
    section = {"policies": ["a", "b"], "policy_mapping_fn": one_or_others, "count_steps_by": by}
    return trainer(name, env=Three, multiagent=section, **keys)


COUNTS = ("num_env_steps_sampled", "num_agent_steps_sampled", "num_env_steps_trained", "num_agent_steps_trained")


@pytest.mark.parametrize(("by", "steps"), [("env_steps", 48), ("agent_steps", 20)])
def test_batches_and_fragments_are_counted_in_steps_of_the_environment_or_of_agents(by: str, steps: int) -> None:
    """2.5 agents act in a step. Fragments of 12 steps: four of them have 48. Fragments of at most 12 agents' steps are
    of 4 steps, with 10 rows: four of them have 40 rows, so a batch of at least 42 takes five."""
    made = three_agents("PPO", by, train_batch_size=42, rollout_fragment_length=12)
    first, result = made.train(), made.train()
    made.stop()
    rows = round(2.5 * steps)
    assert [first[name] for name in COUNTS] == [steps, rows, steps, rows]
    assert [result[name] for name in COUNTS] == [2 * steps, 2 * rows, 2 * steps, 2 * rows]
    total, new = (2 * rows, rows) if by == "agent_steps" else (2 * steps, steps)
    assert result["timesteps_total"] == total and result["agent_timesteps_total"] == 2 * rows
    unit = by.removesuffix("_steps")
    assert result[f"num_{unit}_steps_sampled_this_iter"] == result["num_steps_trained_this_iter"] == new
    assert result["info"]["num_steps_sampled"] == result["num_steps_trained"] == 2 * steps


def test_minibatches_of_a_policy_have_the_rows_of_its_own_agents() -> None:
    """40 steps are 40 rows of agent one, and 60 of the others: 2 and 3 minibatches of 20, or 4 of 10."""
    made = three_agents("PPO", "env_steps", train_batch_size=40, sgd_minibatch_size=20, num_sgd_iter=1)
    made.train()
    made.stop()
    assert [made.get_policy(name).gradient_steps for name in "ab"] == [2, 3]
    policies = {"a": (None, None, None, {"sgd_minibatch_size": 10}), "b": (None, None, None, {})}
    section = {"policies": policies, "policy_mapping_fn": one_or_others}
    made = trainer(env=Three, multiagent=section, train_batch_size=40, sgd_minibatch_size=20, num_sgd_iter=1)
    made.train()
    made.stop()
    assert [made.get_policy(name).gradient_steps for name in "ab"] == [4, 3]


@pytest.mark.parametrize("by", ["env_steps", "agent_steps"])
def test_rows_that_are_replayed_are_counted_each_time(by: str, tmp_path: Path) -> None:
    made = three_agents("DQN", by, **REPLAY)
    _, result = made.train(), made.train()
    a, b = (made.get_policy(name).gradient_steps for name in "ab")
    assert result["num_agent_steps_trained"] == 16 * (a + b) > 0
    assert result["num_env_steps_trained"] == result["num_steps_trained"] == 16 * max(a, b)
    assert result["num_agent_steps_sampled"] == 2.5 * result["num_env_steps_sampled"]
    assert result["timesteps_total"] == result[f"num_{by}_sampled"] >= 200
    path = made.save(str(tmp_path))
    made.stop()
    again = three_agents("DQN", by, **REPLAY)
    again.restore(path)
    assert again.policy.steps_by_unit["env_steps"] == result["num_env_steps_sampled"]
    again.stop()
