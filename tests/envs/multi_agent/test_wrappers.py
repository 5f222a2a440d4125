"""Wrappers of multi-agent environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent import ALL, EpisodeLimit, MultiAgentEnv, PackedEnv
from lightning_rl.envs.multi_agent.random_play import check_env
from lightning_rl.envs.multi_agent.toy_games import TwoStepGame
from lightning_rl.envs.multi_agent.wrappers import (
    AgentIds,
    BlackDeath,
    CentralState,
    CommonReward,
    MultiAgentWrapper,
    PadActions,
    PadObservations,
    TeamRewards,
    blank,
)
from lightning_rl.errors import EnvError
from tests.envs.scripted_turns import ScriptedTurns
from tests.refusals import not_refused
from tests.space_cases import SUPPORTED

WRAPPERS = "lightning_rl.envs.multi_agent.wrappers:"


class Vectors(MultiAgentEnv):
    """Agents with vectors of 2 and 3 numbers, the second one within a Dict; all acts last one step."""

    def __init__(self) -> None:
        self.possible_agents = ["short", "long"]
        inner = spaces.Box(-2.0, 2.0, (3,), np.float32)
        self.observation_spaces = {
            "short": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "long": spaces.Dict(observation=inner, action_mask=spaces.MultiBinary(2)),
        }
        self.action_spaces = dict.fromkeys(self.possible_agents, spaces.Discrete(2))

    def reset(self, **keywords: Any) -> Any:
        long = {"observation": np.full(3, 2.0, np.float32), "action_mask": np.ones(2, np.int8)}
        return {"short": np.full(2, 0.5, np.float32), "long": long}, {}


def rewards_of(env: MultiAgentEnv, steps: int) -> list[dict[str, float]]:
    env.reset()
    return [env.step({})[1] for _ in range(steps)]


def test_a_common_reward_is_the_sum_for_every_agent_in_the_episode() -> None:
    """Paid are 1 to a; 2 to a and 102 to b; 103 to b: a has ended by then."""
    script = ScriptedTurns(turns=[["a"], ["a", "b"], ["b"]], ends={"a": 1})
    assert rewards_of(CommonReward(script), 3) == [{"a": 1.0, "b": 1.0}, {"a": 104.0, "b": 104.0}, {"b": 103.0}]


def test_the_members_of_a_team_share_and_others_keep_their_own() -> None:
    script = ScriptedTurns(turns=[["a", "b", "c"]])
    assert rewards_of(TeamRewards(script, {"pair": ["[ab]"]}), 1) == [{"a": 102.0, "b": 102.0, "c": 201.0}]


def test_ids_are_appended_to_vectors_and_to_vectors_in_dicts_which_may_be_padded_to_one_length() -> None:
    for pad, short, long in ((False, [0.5, 0.5, 1, 0], [2, 2, 2, 0, 1]), (True, [0.5, 0.5, 0, 1, 0], [2, 2, 2, 0, 1])):
        env = AgentIds(Vectors(), pad=pad)
        obs, _ = env.reset()
        assert obs["short"].tolist() == short and obs["long"]["observation"].tolist() == long
        assert obs["long"]["action_mask"].tolist() == [1, 1]
        assert all(env.observation_spaces[agent].contains(value) for agent, value in obs.items())
    assert env.observation_spaces["short"] == env.observation_spaces["long"]["observation"]


def test_padding_alone_gives_vectors_of_one_length_without_ids() -> None:
    """The bounds are the widest of both agents', and those of the zeros: [−1, 1], [−2, 2] and [0, 0]."""
    env = PadObservations(Vectors())
    obs, _ = env.reset()
    assert obs["short"].tolist() == [0.5, 0.5, 0] and obs["long"]["observation"].tolist() == [2, 2, 2]
    assert env.observation_spaces["short"] == spaces.Box(-2.0, 2.0, (3,), np.float32)


class Choices(MultiAgentEnv):
    """Agents with 2 and 4 actions; "few" may have a mask in its info, "many" has one in its observation."""

    def __init__(self, mask: list[int] | None = None) -> None:
        self.mask, self.taken = mask, []
        self.possible_agents = ["few", "many"]
        self.observation_spaces = {
            "few": spaces.Discrete(1),
            "many": spaces.Dict(observation=spaces.Discrete(1), action_mask=spaces.MultiBinary(4)),
        }
        self.action_spaces = {"few": spaces.Discrete(2), "many": spaces.Discrete(4)}

    def _seen(self) -> Any:
        many = {"observation": 0, "action_mask": np.array([0, 1, 1, 1], np.int8)}
        infos = {"few": {"action_mask": np.array(self.mask, np.int8)}} if self.mask else {"many": {"n": 1}}
        return {"few": 0, "many": many}, infos

    def reset(self, **keywords: Any) -> Any:
        return self._seen()

    def step(self, actions: dict[str, Any]) -> Any:
        self.taken.append(actions)
        obs, infos = self._seen()
        return obs, {}, {ALL: False}, {ALL: True}, infos


@pytest.mark.parametrize("mask, expected", [(None, [1, 1, 0, 0]), ([0, 1], [0, 1, 0, 0])])
def test_agents_with_fewer_actions_get_masks_and_keep_their_own(mask: Any, expected: list[int]) -> None:
    env = PadActions(Choices(mask))
    assert {agent: int(space.n) for agent, space in env.action_spaces.items()} == {"few": 4, "many": 4}
    for obs, infos in (env.reset(), env.step({"few": 1, "many": 3})[::4]):
        assert infos["few"]["action_mask"].tolist() == expected
        assert obs["many"]["action_mask"].tolist() == [0, 1, 1, 1] and "action_mask" not in infos.get("many", {})
        assert all(env.observation_spaces[agent].contains(value) for agent, value in obs.items())
    assert env.env.taken == [{"few": 1, "many": 3}]
    check_env(env, "padded actions")


def test_what_wrappers_cannot_take_is_refused() -> None:
    """Actions that are not discrete from 0, images that should get ids, teams of unknown agents."""
    shifted, images = Choices(), Vectors()
    shifted.action_spaces["few"] = spaces.Discrete(2, start=1)
    images.observation_spaces = dict.fromkeys(images.possible_agents, spaces.Box(0, 255, (8, 8, 3), np.uint8))
    script = ScriptedTurns(turns=[["a", "b", "c"]])
    cases = [
        (lambda: PadActions(shifted), r"'few'.*Discrete\(2, start=1\); PadActions"),
        (lambda: AgentIds(images), "AgentIds"),
        (lambda: TeamRewards(script, {"pair": ["x"]}), "team 'pair' names 'x'"),
    ]
    assert not_refused(lambda call: call(), cases, EnvError) == []


def test_speaker_and_listener_have_one_kind_of_spaces_when_they_are_padded() -> None:
    """3 numbers and 3 actions, 11 numbers and 5 actions."""
    pytest.importorskip("mpe2")
    wrappers = [WRAPPERS + "PadObservations", WRAPPERS + "PadActions"]
    layout = EnvCreator("mpe2.simple_speaker_listener_v4", wrappers=wrappers).layout()
    assert layout is not None and layout.masked
    [kind] = layout.kinds
    assert kind.observation_space.shape == (11,) and kind.action_space == spaces.Discrete(5)


def test_black_death_keeps_ended_agents_with_zeros_until_all_end() -> None:
    script = ScriptedTurns(turns=[["a", "b"], ["b"], ["b"]], ends={"a": 0})
    env = BlackDeath(script)
    env.reset()
    obs, rewards, terminated, _, _ = env.step({"a": 1, "b": 1})
    assert obs["a"].tolist() == [0, 0] and terminated == {ALL: False} and rewards["a"] == 1.0
    obs, rewards, terminated, _, _ = env.step({"a": 1, "b": 1})
    assert obs["a"].tolist() == [0, 0] and rewards == {"a": 0.0, "b": 102.0} and script.actions[-1] == {"b": 1}
    _, _, terminated, _, _ = env.step({"a": 1, "b": 1})
    assert terminated[ALL] and terminated["a"]
    check_env(env, "black death")


def test_the_central_state_is_what_the_layout_joins() -> None:
    turns, ends = [["a"], ["a", "b"], ["b"], ["b"]], {"a": 1}
    plain, central = PackedEnv(ScriptedTurns(turns, ends)), PackedEnv(CentralState(ScriptedTurns(turns, ends)))
    assert central.layout.central_size == 4
    seen, states = plain.reset(seed=0)[0], central.reset(seed=0)[0]
    for _ in range(4):
        np.testing.assert_array_equal(central.layout.join(states), plain.layout.join(seen))
        seen, states = (env.step({"0": np.zeros(2, int)})[0] for env in (plain, central))
    np.testing.assert_array_equal(states["state"], [0, 0, 4, 1])


def test_the_limit_truncates_all_and_leaves_a_terminated_episode_alone() -> None:
    both = {"agent_0": 0, "agent_1": 0}
    for game, actions, over in ((ScriptedTurns(turns=[["a", "b"]] * 3), {}, False), (TwoStepGame(), both, True)):
        env = EpisodeLimit(game, 2)
        env.reset()
        assert not env.step(actions)[3][ALL]
        _, _, terminated, truncated, _ = env.step(actions)
        assert (terminated[ALL], truncated[ALL]) == (over, not over)


def test_a_wrapper_in_the_config_wraps_the_multi_agent_environment() -> None:
    wrappers = [{"wrapper": WRAPPERS + "AgentIds"}, WRAPPERS + "CentralState"]
    layout = EnvCreator(TwoStepGame, wrappers=wrappers).layout()
    assert layout is not None and layout.central_size == 2 * (3 + 2)


def test_with_copies_a_gymnasium_wrapper_wraps_each_and_a_multi_agent_wrapper_all() -> None:
    wrappers = [WRAPPERS + "CommonReward", {"wrapper": "gymnasium.wrappers:TimeLimit", "max_episode_steps": 2}]
    env = EnvCreator("CartPole-v1", agents=2, wrappers=wrappers).make_single()
    env.reset(seed=0)
    assert env.step({"0": np.zeros(2, int)})[0]["rewards"].tolist() == [2.0, 2.0]
    assert env.step({"0": np.zeros(2, int)})[3] is True


def test_a_wrapper_passes_everything_on() -> None:
    env = MultiAgentWrapper(TwoStepGame())
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(env.state(), obs["agent_0"])
    assert isinstance(env.unwrapped, TwoStepGame) and env.render() is None


@pytest.mark.parametrize("space", [spaces.Box(1.0, 2.0, (2,)), *SUPPORTED], ids=str)
def test_a_blank_observation_is_in_its_space(space: spaces.Space[Any]) -> None:
    assert space.contains(blank(space))
