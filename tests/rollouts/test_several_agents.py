"""SeveralAgents: whom it asks, what it records, and what it gives to environments, policies and callbacks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent import ALL, MultiAgentEnv
from lightning_rl.envs.multi_agent.toy_games import TwoStepGame
from lightning_rl.errors import ConfigError, EnvApiError, EnvError
from lightning_rl.exploration import Exploration
from lightning_rl.learning.gradients import GradientUpdates
from lightning_rl.policies import DQN, PPO, PolicySet
from lightning_rl.rollouts import RolloutWorker, WorkerSet
from lightning_rl.rollouts.episodes import was_cut
from lightning_rl.sample_batch import env_steps, flatten_fragment
from tests.envs.classic_control import CARTPOLE
from tests.refusals import not_refused
from tests.rollouts.agents import TURNS, ByObs, Drawn, Fixed, Moment, OneAgent, Policies, own, packed, scripted, shared
from tests.rollouts.crashing import CrashingCartPole
from tests.rollouts.fragment_equality import assert_equal_fragments

OPTIONS: dict[str, Any] = {"num_envs": 3, "fragment_length": 20, "seed": 5, "vectorization": "sync"}
MEMORY = {"use_lstm": True, "lstm_cell_size": 8, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
TOGETHER = [Moment("ab"), Moment("ab", {"a": 1.0}), Moment("ab", {"b": 2.0}), Moment("", {"a": 3.0}, truncated=(ALL,))]


# -- as one agent ------------------------------------------------------------------------------------------------------
@pytest.fixture
def as_one_agent() -> Any:
    """Makes a worker of one agent, and one of several for the same environment with an equal policy."""

    def make(model: dict[str, Any] | None = None, **options: Any) -> tuple[RolloutWorker, RolloutWorker]:
        first, second = (PPO(*CARTPOLE.spaces(), model=model, seed=1, reward_filter="return_std") for _ in range(2))
        env = packed(lambda: OneAgent(partial(gym.make, "CartPole-v1")))
        several = RolloutWorker(env, shared(second, "agent"), **OPTIONS, **options)
        return RolloutWorker(CARTPOLE, first, **OPTIONS, **options), several

    return make


@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("model", [{}, MEMORY], ids=["plain", "memory"])
def test_one_agent_gives_the_fragments_of_the_ordinary_worker(
    model: dict[str, Any], batch_mode: str, as_one_agent: Any
) -> None:
    alone, source = as_one_agent(model, batch_mode=batch_mode)
    for _ in range(4):
        expected, batch = alone.sample(), source.sample()
        found = batch["shared"].select(*expected)
        if batch_mode == "complete_episodes":  # what lies behind an environment's last episode is padding
            expected, found = flatten_fragment(expected), flatten_fragment(found)
        assert_equal_fragments(expected, found)
        assert batch.env_steps == env_steps(expected) == batch.agent_steps
        assert {*batch["shared"]} - {*expected} - {"valid"} == {"env_t", "eps_id"}
    mine, metrics = alone.get_metrics(), source.get_metrics()
    assert mine["episode_returns"] == metrics["episode_returns"] == metrics["policy_returns"]["shared"]
    assert mine["episode_lengths"] == metrics["episode_lengths"]
    assert alone.run_episodes(4) == source.run_episodes(4)


def test_postprocessed_samples_are_the_ordinary_worker_s(as_one_agent: Any) -> None:
    alone, source = as_one_agent(postprocess=True)
    rows, batch = alone.sample(), source.sample()
    assert_equal_fragments(rows, batch["shared"].select(*rows))
    assert batch.env_steps == rows.count


def test_contributed_gradients_and_the_steps_with_them_are_the_ordinary_worker_s(as_one_agent: Any) -> None:
    alone, source = as_one_agent()
    mine, contribution = alone.contribute(), source.contribute()
    assert contribution.env_steps == contribution.agent_steps == mine.env_steps
    for one, other in zip(mine.gradients, contribution.updates["shared"].gradients, strict=True):
        assert torch.equal(torch.as_tensor(one), torch.as_tensor(other))

    policy, agents = alone.policy, (gym.spaces.Dict(agent=space) for space in CARTPOLE.spaces())
    learners = {"shared": source.policy.policies["shared"]}
    both = PolicySet(*agents, policies=learners, policy_mapping={"*": "shared"})
    own = policy.learner.update(GradientUpdates([(0, mine, True)]))
    metrics = {f"shared/{name}": value for name, value in own.items()}
    assert both.learn_on_batch(GradientUpdates([(0, contribution, True)])) == metrics
    assert (both.env_steps, both.gradient_steps, both.iterations) == (policy.env_steps, 1, 1)
    for name, value in policy.state_dict().items():
        assert torch.equal(value, both.state_dict()[f"policies.shared.{name}"]), name


# -- several agents and policies ---------------------------------------------------------------------------------------
class Asked(ByObs):
    """Records the observations that it is asked for, and gives fixed actions."""

    def __init__(self, action: int = 0) -> None:
        self.action, self.asked = action, list[np.ndarray]()

    def compute_actions(self, obs: Any, state: Any, **_: Any) -> Any:
        self.asked.append(obs)
        return torch.full((len(obs),), self.action), [], {}


def test_each_policy_is_asked_once_a_step_for_all_its_lanes_and_only_if_one_acts() -> None:
    """a and b take turns in both environments in step: of 4 steps b acts in 2. It is asked in the first step too, so
    that every fragment has its columns."""
    first, second = Asked(), Asked()
    RolloutWorker(scripted([TURNS]), own(a=first, b=second), num_envs=2, fragment_length=4).sample()
    assert [len(obs) for obs in first.asked] == [2] * 2
    assert [obs[0, 1] for obs in second.asked] == [0, 1, 3]


def test_each_agent_gets_the_action_of_its_policy() -> None:
    policies = Policies({"x": Asked(1), "y": Asked(0)}, Fixed({"a": "x", "b": "y", "c": "x"}))
    source = RolloutWorker(scripted([TOGETHER], "abc"), policies, fragment_length=3)
    taken = source.env.unwrapped.envs[0].env.taken
    source.sample()
    assert taken == [{"a": 1, "b": 0}] * 3


class Mixed(MultiAgentEnv):
    """A speaker with Discrete actions, and a listener with Box actions and Dict observations; both see the count."""

    def __init__(self) -> None:
        self.possible_agents = ["speaker", "listener"]
        number = spaces.Box(0, 100, (1,), np.float32)
        heard = spaces.Dict({"heard": spaces.Discrete(3), "count": number})
        self.observation_spaces = {"speaker": number, "listener": heard}
        self.action_spaces = {"speaker": spaces.Discrete(3), "listener": spaces.Box(-2, 2, (2,), np.float32)}
        self.said, self.count = 0, 0

    def _obs(self) -> dict[str, Any]:
        count = np.array([self.count], np.float32)
        return {"speaker": count, "listener": {"heard": np.int64(self.said), "count": count}}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.said = self.count = 0
        return self._obs(), {}

    def step(self, actions: Any) -> Any:
        assert self.action_spaces["listener"].contains(actions["listener"])
        self.said, self.count = int(actions["speaker"]), self.count + 1
        return self._obs(), {"speaker": 1.0, "listener": 2.0}, {ALL: False}, {ALL: self.count == 7}, {}


def mixed_worker(speaker: str = "dqn", listener: str = "ppo", **options: Any) -> RolloutWorker:
    """A DQN that fits the speaker and a PPO that fits the listener."""
    env = EnvCreator(Mixed)
    agents, acted = (space.spaces for space in env.spaces())
    policies = {"dqn": DQN(agents["speaker"], acted["speaker"]), "ppo": PPO(agents["listener"], acted["listener"])}
    return RolloutWorker(env, Policies(policies, Fixed({"speaker": speaker, "listener": listener})), **options)


def test_policies_with_different_spaces_act_in_one_environment() -> None:
    source = mixed_worker(num_envs=2, fragment_length=16, vectorization="sync")
    batch = source.sample()
    assert torch.equal(batch["ppo"].obs.heard[1:8, 0], batch["dqn"].actions[:7, 0])
    assert batch["ppo"].actions.shape == (16, 2, 2) and batch.env_steps == 28 and batch.agent_steps == 56
    assert source.get_metrics()["policy_returns"] == {"dqn": [7.0] * 4, "ppo": [14.0] * 4}
    assert [episode.by_policy for episode in source.run_episodes(2)] == [{"dqn": 7.0, "ppo": 14.0}] * 2
    source.max_episode_steps = 3  # an episode is cut after its third step
    cut = source.run_episodes(2)
    assert [(*episode, episode.by_policy) for episode in cut] == [(9.0, 3, {"dqn": 3.0, "ppo": 6.0})] * 2
    assert all(map(was_cut, pickle.loads(pickle.dumps(cut))))


def test_a_mapping_that_cannot_be_is_refused() -> None:
    cases = [("ppo", "ppo", r"'speaker'.*'ppo'"), ("dqm", "ppo", r"'dqm'.*'dqn'")]
    assert not_refused(mixed_worker, cases) == []
    with pytest.raises(ConfigError, match=r"'shared'.*'speaker'.*'listener'"):
        RolloutWorker(EnvCreator(Mixed), shared(ByObs(), "speaker", "listener"))


# -- a mapping that changes ------------------------------------------------------------------------------------------
def drawn_worker(**options: Any) -> RolloutWorker:
    policies = Policies({"x": Asked(0), "y": Asked(1), "z": Asked(1)}, Drawn("ab", "xyz"))
    return RolloutWorker(scripted([TOGETHER, TURNS]), policies, num_envs=2, **options)  # type: ignore[arg-type]


def test_a_mapping_may_give_agents_other_policies_in_each_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row belongs to exactly one policy: 2 agents and 3 + 2 rows in 8 + 1 steps; x says 0, the others 1."""
    monkeypatch.setattr(EnvCreator, "reseeds", False)  # a script begins with the first where it gets a seed
    source = drawn_worker(fragment_length=90)
    batch = source.sample()
    assert {name: part.valid.shape[1] for name, part in batch.items()} == {"x": 4, "y": 4, "z": 4}
    assert batch.agent_steps == 2 * 10 * (6 + 4) and batch.env_steps == 2 * 10 * (3 + 4)
    owners = set()
    for name, part in batch.items():
        episodes, agents = part.eps_id[part.valid].tolist(), (part.valid.nonzero()[:, 1] % 2).tolist()
        owners |= {(name, *pair) for pair in zip(episodes, agents, strict=True)}
    assert len({owner[1:] for owner in owners}) == len(owners) == 2 * 2 * 20
    assert {owner[0] for owner in owners} == {"x", "y", "z"}
    by_policy = source.get_metrics()["policy_returns"]
    assert sum(map(len, by_policy.values())) == 2 * 40


def test_the_drawn_policies_depend_on_seed_worker_and_fragment_only() -> None:
    first, *others = (drawn_worker(fragment_length=20, seed=seed) for seed in (0, 0, 1))
    first.sample()
    first.force_reset()
    for worker in others:
        worker.load_state_dict(first.state_dict())
    here, there, elsewhere = (worker.sample() for worker in (first, *others))
    for name in "xyz":
        assert_equal_fragments(here[name], there[name])
    assert any(not torch.equal(here[name].valid, elsewhere[name].valid) for name in "xyz")


def test_the_actions_of_drawn_policies_reach_their_agents() -> None:
    source = drawn_worker(fragment_length=60)
    batch = source.sample()
    taken = [env.env.taken for env in source.env.unwrapped.envs]
    zeros = sum(action == 0 for env in taken for step in env for action in step.values())
    assert zeros >= batch["x"].valid.sum() > 0
    assert sum(len(step) for env in taken for step in env) - zeros >= batch["y"].valid.sum() + batch["z"].valid.sum()


def test_a_policy_that_is_added_acts_from_the_next_fragment_on() -> None:
    source = drawn_worker(fragment_length=30)
    source.sample()
    source.policy.policies["w"] = Asked()
    source.policy.mapping = Drawn("ab", "xyzw")  # type: ignore[arg-type]
    assert source.sample()["w"].valid.any()


# -- what policies read before a step ----------------------------------------------------------------------------------
class Masked(MultiAgentEnv):
    """Agents take turns; only the action with the number of the step (modulo 3) is allowed, none to those who wait."""

    def __init__(self, inside: bool) -> None:
        self.possible_agents, self.inside = ["a", "b"], inside
        number, mask = spaces.Box(0, 100, (1,), np.float32), spaces.MultiBinary(3)
        obs = spaces.Dict({"count": number, "action_mask": mask}) if inside else number
        self.observation_spaces = dict.fromkeys(self.possible_agents, obs)
        self.action_spaces = {agent: spaces.Discrete(3) for agent in self.possible_agents}
        self.count = 0

    def _see(self) -> tuple[dict[str, Any], dict[str, Any]]:
        acts, count = "ab"[self.count % 2], np.array([self.count], np.float32)
        mask = {"action_mask": np.eye(3, dtype=np.int8)[self.count % 3]}
        return ({acts: {"count": count, **mask}}, {}) if self.inside else ({acts: count}, {acts: mask})

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.count = 0
        return self._see()

    def step(self, actions: Any) -> Any:
        assert list(actions.values()) == [self.count % 3], "a forbidden action"
        self.count += 1
        obs, infos = self._see()
        return obs, {}, {ALL: False}, {ALL: self.count == 11}, infos


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_only_allowed_actions_are_taken_in_turns(algorithm: Any, inside: bool) -> None:
    """The environment refuses forbidden actions; a lane that waits has no allowed action, and never gives NaN."""
    env = EnvCreator(lambda: Masked(inside), check=False)
    agents, acted = (space.spaces for space in env.spaces())
    policy = algorithm(agents["a"], acted["a"], seed=0)
    batch = RolloutWorker(env, shared(policy, "a", "b"), num_envs=2, fragment_length=25).sample()
    part = batch["shared"]
    masks = part.obs.action_mask[:-1] if inside else part.action_mask
    assert (masks.sum(-1)[part.valid] == 1).all()
    assert torch.equal(masks.float().argmax(-1)[part.valid], part.actions[part.valid])
    assert torch.isfinite(part.action_logp).all()


class Remembers(ByObs):
    """Its state counts how often it was asked; it also reads the last action and the last two rewards."""

    prev_actions, prev_rewards = 1, 2

    def get_initial_state(self, batch_size: int) -> list[torch.Tensor]:
        return [torch.zeros(batch_size, 1)]

    def initial_previous_step(self, batch_size: int) -> dict[str, Any]:
        return {"prev_actions": torch.full((batch_size,), -1), "prev_rewards": torch.zeros(batch_size, 2)}

    def compute_actions(self, obs: Any, state: Any, **_: Any) -> Any:
        return torch.from_numpy(obs[:, 1].astype(np.int64) % 2), [state[0] + 1], {}


@pytest.mark.parametrize("length", [1, 2, 5, 10])
def test_memory_advances_with_own_actions_and_restarts_with_the_episode(length: int) -> None:
    """b acts at steps 1 and 3 and gets −1 for the first: its state is 0, then 1, its rewards (0, 0), then (0, −1), and
    on the final row 2 and (−1, 2), of which the last is the reward of the final action."""
    source = RolloutWorker(scripted([TURNS]), own(a=Remembers(), b=Remembers()), fragment_length=length)
    batches = [source.sample() for _ in range(20 // length)]

    def read(name: str, column: str, behind: int) -> Iterator[tuple[float, int, list[float]]]:
        """State, last action and last two rewards at the rows in which a column is true, or behind them."""
        for part in (batch[name] for batch in batches):
            for row in (part[column][:, 0].nonzero().flatten() + behind).tolist():
                state, action = part.state_in["0"][row, 0].item(), part.prev_actions[row, 0].item()
                yield state, action, part.prev_rewards[row, 0].tolist()

    for name, second, between, final in (("a", 0, [0.0, 1.0], [1.0, -2.0]), ("b", 1, [0.0, -1.0], [-1.0, 2.0])):
        assert [*read(name, "valid", 0)][:4] == [(0.0, -1, [0.0, 0.0]), (1.0, second, between)] * 2
        assert [*read(name, "terminated", 1)][:2] == [(2.0, second, final)] * 2


class Central(ByObs):
    """Its critic sees everything."""

    central_obs_size = 1


def test_the_central_observation_is_that_of_the_row_s_own_step() -> None:
    """The state is the step: a acts at 0 and 2 and sees 4 at the end; b acts at 1 and 3."""
    env, policies = scripted([TURNS], central=True), own(a=Central(), b=Central())
    batch = RolloutWorker(env, policies, fragment_length=5).sample()
    assert batch["a"].central_obs[:, 0, 0].tolist() == [0, 2, 4, 0]
    assert batch["b"].central_obs[:, 0, 0].tolist()[:3] == [1, 3, 4]


def test_without_a_state_the_central_observation_is_that_of_all_agents() -> None:
    policies = shared(Central(), "a", "b")
    part = RolloutWorker(scripted([TOGETHER]), policies, num_envs=2, fragment_length=4).sample()["shared"]
    for lane in range(4):
        env = lane // 2 * 2
        assert torch.equal(part.central_obs[:, lane], torch.cat([part.obs[:, env], part.obs[:, env + 1]], -1))


class Notes(Exploration):
    """Records what a worker says."""

    def get_exploration_action(self, dist: Any, *, timestep: int, explore: bool, generator: Any = None) -> Any:
        return dist.deterministic_sample(), dist.sampled_action_logp()

    def begin_fragment(self, actor: Any) -> None:
        super().begin_fragment(actor)
        self.notes: list[Any] = getattr(self, "notes", [])
        self.notes.append(actor.num_envs)

    def on_episode_start(self, env_indices: Any) -> None:
        self.notes.append(list(env_indices))


def test_exploration_noise_restarts_with_the_lanes_of_the_environment() -> None:
    """Two lanes in each of two environments: 4 rows are an episode of 3 steps and its reset."""
    env = scripted([TOGETHER])
    agents, acted = (space.spaces for space in env.spaces())
    policy = PPO(agents["a"], acted["a"], exploration={"type": Notes})
    source = RolloutWorker(env, shared(policy, "a", "b"), num_envs=2, fragment_length=4)
    source.sample()
    source.sample()
    assert policy.exploration.notes == [4, [0, 1, 2, 3], [0, 1, 2, 3], 4, [0, 1, 2, 3]]


# -- callbacks, errors, other places -----------------------------------------------------------------------------------
class Listener:
    """Records what a worker calls."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_episode_start(self, *, worker: Any, env_index: int) -> None:
        self.heard.append(("start", env_index))

    def on_episode_step(self, *, obs: Any, rewards: Any, **_: Any) -> None:
        self.heard.append(("step", rewards.tolist(), obs["rewards"].tolist()))

    def on_episode_end(self, *, worker: Any, env_index: int, episode_return: float, episode_length: int) -> None:
        self.heard.append(("end", env_index, episode_return, episode_length))

    def on_sample_end(self, *, worker: Any, samples: Any) -> None:
        self.heard.append(("sample", samples.env_steps))


def test_callbacks_are_called_as_for_one_agent_or_with_each_agents_policy_and_return() -> None:
    """a gets 1 + 3, b gets 2; 3 steps and a reset make 4 rows. Only one of the hooks takes the agents' returns."""

    def on_episode_end(*, episode_return: float, agent_returns: Any, **_: Any) -> None:
        ends.append((episode_return, agent_returns))

    ends: list[Any] = []
    callbacks = [SimpleNamespace(on_episode_end=on_episode_end), listener := Listener()]
    policies = own(a=ByObs(), b=ByObs())
    RolloutWorker(scripted([TOGETHER]), policies, fragment_length=4, callbacks=callbacks).sample()
    assert listener.heard[:2] == [("start", 0), ("step", [1.0], [[1.0, 0.0]])]
    assert listener.heard[-3:] == [("end", 0, 6.0, 3), ("start", 0), ("sample", 3)]
    assert ends == [(6.0, {"a": ("a", 4.0), "b": ("b", 2.0)})]


LATE = [
    Moment("ab"),
    Moment("b", {"a": 1.0, "b": 2.0}, terminated=("a",)),
    Moment("b", {"a": 10.0, "b": 4.0}),
    Moment("", {"a": 20.0, "b": 8.0}, truncated=(ALL,)),
]


@pytest.mark.parametrize("fragment_length", [1, 2, 8])
def test_a_reward_after_an_agents_end_counts_in_no_return_and_no_row(
    fragment_length: int, caplog: pytest.LogCaptureFixture
) -> None:
    """a gets 1 before it ends, and 10 + 20 later; b gets 2 + 4 + 8."""
    policies = own(a=ByObs(), b=ByObs())
    worker = RolloutWorker(scripted([LATE]), policies, fragment_length=fragment_length, num_envs=2)
    fragments = [worker.sample() for _ in range(8 // fragment_length)]
    learned = {name: sum(float(fragment[name].rewards.sum()) for fragment in fragments) for name in "ab"}
    metrics = worker.get_metrics()
    assert metrics["policy_returns"] == {"a": [1.0] * 4, "b": [14.0] * 4}
    assert learned == {"a": 4.0, "b": 56.0} and metrics["episode_returns"] == [15.0] * 4
    assert sum("after it has ended" in record.getMessage() for record in caplog.records) == 1


class Breaks(TwoStepGame):
    """Gives a number that is not finite in its third step."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.steps = what, 0

    def step(self, actions: dict[str, Any]) -> Any:
        obs, rewards, *others = super().step(actions)
        self.steps += 1
        if self.steps == 3 and self.what == "reward":
            rewards["agent_1"] = float("nan")
        if self.steps == 3 and self.what == "obs":
            obs["agent_1"] = np.full(3, np.inf, np.float32)
        return obs, rewards, *others


def test_values_that_are_not_finite_name_the_agent() -> None:
    cases = [
        ("reward", "'agent_1' of sub-environment 0, row 3 is nan"),
        ("obs", "'obs' of agent 'agent_1' of sub-environment 0, row 4 is inf"),
    ]
    policies = shared(Asked(), "agent_0", "agent_1")

    def sample(what: str) -> None:
        env = packed(lambda: Breaks(what))
        RolloutWorker(env, policies, max_env_restarts=0, fragment_length=6).sample()

    assert not_refused(sample, cases, EnvError) == []


def test_an_evaluation_refuses_an_observation_that_is_not_finite() -> None:
    worker = RolloutWorker(packed(lambda: Breaks("obs")), shared(Asked(), "agent_0", "agent_1"), max_env_restarts=0)
    with pytest.raises(EnvError, match="observation holds NaN or infinity"):
        worker.run_episodes(2)


def test_a_failed_environment_is_replaced_and_its_fragment_begins_again(tmp_path: Path) -> None:
    """Step 30 of both copies raises, once; what was played before in that fragment is neither a row nor an episode."""
    crash = {"at": 30, "once": str(tmp_path / "once")}
    env = EnvCreator(CrashingCartPole, crash, agents=2, check=False)
    source = RolloutWorker(env, shared(ByObs(), "agent_0", "agent_1"), fragment_length=60)
    part = source.sample()["shared"]
    assert source.restarts.count == 1 and len(part.valid) == 60
    assert 2 * len(source.get_metrics()["episode_returns"]) == int(part.terminated.sum()) > 0


class Grows(TwoStepGame):
    """Agents observe one number more from the second episode on, in steps after the reset."""

    resets = 0

    def reset(self, **keywords: Any) -> Any:
        self.resets += 1
        return super().reset(**keywords)

    def step(self, actions: dict[str, Any]) -> Any:
        obs, *others = super().step(actions)
        return ({agent: np.zeros(4) for agent in obs} if self.resets > 4 else obs), *others


def test_an_environment_that_breaks_its_api_is_not_tried_again() -> None:
    """A new one would do the same."""
    policies = shared(ByObs(), "agent_0", "agent_1")
    worker = RolloutWorker(packed(Grows), policies, num_envs=1, fragment_length=40)
    with pytest.raises(EnvApiError, match=r"'Grows'.*'agent_0'.*\(4,\)"):
        worker.sample()
    assert worker.restarts.count == 0


def test_a_container_of_policies_is_refused_in_environments_of_one_agent() -> None:
    with pytest.raises(EnvError, match="one agent"):
        RolloutWorker(CARTPOLE, shared(ByObs(), "agent"), vectorization="sync")


def test_a_set_puts_the_lanes_of_its_workers_side_by_side() -> None:
    options: dict[str, Any] = {"num_envs": 2, "fragment_length": 6, "vectorization": "sync"}
    both, *sets = (
        WorkerSet(scripted([TURNS]), own(a=ByObs(), b=ByObs()), indices, **options) for indices in ([0, 1], [0], [1])
    )
    batch, *alone = (workers.sample() for workers in (both, *sets))
    assert batch.env_steps == sum(part.env_steps for part in alone) and batch.num_envs == 4
    assert torch.equal(batch["b"].rewards, torch.cat([part["b"].rewards for part in alone], 1))
    reference = both.next_sample()
    assert reference.env_steps == both.fetch(reference)[0].env_steps and reference.nbytes > 0
    assert {*both.get_metrics()} == {"episode_returns", "episode_lengths", "policy_returns", "agent_returns"}


def test_batches_and_episodes_travel_between_processes() -> None:
    source = RolloutWorker(scripted([TURNS]), shared(ByObs(), "a", "b"), fragment_length=6)
    batch, (episode,) = source.sample(), source.run_episodes(1)
    arrived: Any = pickle.loads(pickle.dumps(batch.numpy()))
    assert_equal_fragments(arrived.torch()["shared"], batch["shared"])
    assert (arrived.env_steps, arrived.num_envs) == (batch.env_steps, batch.num_envs)
    again = copy.deepcopy(pickle.loads(pickle.dumps(episode)))
    assert again == episode == (0.0, 4) and again.by_policy == {"shared": 0.0}
