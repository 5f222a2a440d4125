"""Multi-agent environments as arrays, alone and as vectors in this process and in others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lightning_rl.envs import EnvCreator
from lightning_rl.envs.multi_agent import ALL, GroupedAgents, MultiAgentEnv, PackedEnv, PackedVectorEnv
from lightning_rl.envs.multi_agent.toy_games import RockPaperScissors, TwoStepGame
from lightning_rl.errors import EnvApiError, EnvError
from tests.envs.scripted_turns import ScriptedTurns

FLAGS = ("acts", "terminated", "truncated", "present")


def copied(arrays: Any) -> Any:
    return {name: copied(child) for name, child in arrays.items()} if isinstance(arrays, dict) else np.array(arrays)


def flags_of(env: PackedEnv, steps: int) -> dict[str, list[list[int]]]:
    """The flags after the reset and after each step."""
    seen = [env.reset(seed=0)[0]]
    seen += [env.step({"0": np.ones(len(env.layout.agents), int)})[0] for _ in range(steps)]
    return {name: [obs[name].tolist() for obs in seen] for name in FLAGS}


def test_flags_follow_turns_late_arrival_and_early_ends() -> None:
    """a acts in steps 0 and 1 and ends in step 1, b appears at time 1 and ends with the episode."""
    env = PackedEnv(ScriptedTurns(turns=[["a"], ["a", "b"], ["b"]], ends={"a": 1}))
    for _ in range(2):
        assert flags_of(env, 3) == {
            "acts": [[1, 0], [1, 1], [0, 1], [0, 0]],
            "terminated": [[0, 0], [0, 0], [1, 0], [0, 1]],
            "truncated": [[0, 0]] * 4,
            "present": [[1, 0], [1, 1], [1, 1], [0, 1]],
        }


def test_only_agents_whose_turn_it_is_are_asked_and_all_may_be_paid() -> None:
    script = ScriptedTurns(turns=[["a"], ["b"], ["a"]])
    env = PackedEnv(script)
    env.reset(seed=0)
    paid = [env.step({"0": np.array([0, 1])}) for _ in range(3)]
    assert script.actions == [{"a": 0}, {"b": 1}, {"a": 0}]
    assert [obs["rewards"].tolist() for obs, *_ in paid] == [[1, 0], [2, 102], [3, 103]]
    assert [reward for _, reward, *_ in paid] == [1, 104, 106]
    assert [ended for _, _, ended, *_ in paid] == [False, False, True]


def test_zero_sum_rewards_stay_apart() -> None:
    env = PackedEnv(RockPaperScissors())
    env.reset(seed=0)
    obs, total, terminated, _, _ = env.step({"0": np.array([1, 0])})
    assert obs["rewards"].tolist() == [1.0, -1.0] and total == 0.0 and terminated


def test_masks_of_infos_are_written_and_default_to_everything() -> None:
    env = PackedEnv(MaskedTurns([["a", "b"]] * 3))
    assert env.layout.masked and env.reset(seed=0)[0]["masks"]["0"].tolist() == [[1, 1], [1, 1]]
    assert env.step({"0": np.array([0, 1])})[0]["masks"]["0"].tolist() == [[1, 1], [0, 1]]


class MaskedTurns(ScriptedTurns):
    """Only b, which is not there at the reset, has a mask, from time `since` on: it may take action 1 only."""

    def __init__(self, turns: list[list[str]], since: int = 0) -> None:
        super().__init__(turns=turns)
        self.since = since

    def step(self, actions: dict[str, Any]) -> Any:
        obs, *others, infos = super().step(actions)
        masked = "b" in obs and len(self.actions) >= self.since
        return obs, *others, {"b": {"action_mask": np.array([0, 1])}} if masked else infos


def test_a_mask_of_an_agent_that_comes_after_the_reset_is_found() -> None:
    env = PackedEnv(MaskedTurns([["a"], ["b"], ["a"]]))
    assert env.layout.masked and env.reset(seed=0)[0]["masks"]["0"].tolist() == [[1, 1], [0, 0]]
    assert env.step({"0": np.array([0, 0])})[0]["masks"]["0"].tolist() == [[1, 1], [0, 1]]
    assert GroupedAgents(MaskedTurns([["a"], ["b"]]), "all").observation_spaces["all"]["action_masks"]


def test_a_mask_that_appears_where_there_was_none_is_an_error() -> None:
    turns, message = [["a", "b"]] * 4, "agent 'b' an action mask now, and no agent had one"
    env = PackedEnv(MaskedTurns(turns, since=3), "mine")
    grouped = GroupedAgents(MaskedTurns(turns, since=3), "all")
    for kind, actions, named in (
        (env, {"0": np.array([0, 0])}, f"'mine' gives {message}"),
        (grouped, {"all": (0, 0)}, "'b'.*mask"),
    ):
        kind.reset(seed=0)
        kind.step(actions)
        kind.step(actions)
        with pytest.raises(EnvError, match=named):
            kind.step(actions)


def test_an_agent_that_acts_again_after_it_ended_is_an_error_until_the_next_episode() -> None:
    """a ends in step 0 and is to act in step 2; b's part of the episode goes on."""
    scripts = [ScriptedTurns(turns=[["a", "b"], ["b"], ["a", "b"], ["b"]], ends=ends) for ends in ({"a": 0}, {})]
    env = PackedVectorEnv([lambda script=script: PackedEnv(script, "mine", check=False) for script in scripts])
    for _ in range(2):
        env.reset(seed=0)
        env.step({"0": np.zeros((2, 2), int)})
        with pytest.raises(EnvApiError, match=r"'mine'.*'a'"):
            env.step({"0": np.zeros((2, 2), int)})


def test_without_the_check_no_step_is_taken_to_find_masks() -> None:
    script = MaskedTurns([["a"], ["b"]])
    assert not PackedEnv(script, check=False).layout.masked and not script.actions


def test_an_agent_that_is_not_possible_and_an_observation_of_another_shape_are_errors() -> None:
    class Broken(TwoStepGame):
        def step(self, actions: dict[str, Any]) -> Any:
            return {self.agent: np.zeros(self.size)}, {}, {ALL: False}, {ALL: False}, {}

    env = Broken()
    packed = PackedEnv(env, "mine", check=False)
    for env.agent, env.size, named in (("ghost", 3, r"'mine'.*'ghost'"), ("agent_0", 1, r"'mine'.*'agent_0'.*\(1,\)")):
        packed.reset()
        with pytest.raises(EnvError, match=named):
            packed.step({"0": np.zeros(2, int)})


def test_an_environment_that_ended_is_reset_in_the_next_step_which_takes_no_action_of_it() -> None:
    scripts = [ScriptedTurns(turns=[["a", "b"]] * length) for length in (1, 3)]
    env = PackedVectorEnv([lambda script=script: PackedEnv(script) for script in scripts])
    env.reset(seed=0)
    actions = {"0": np.ones((2, 2), int)}
    _, _, terminated, _, _ = env.step(actions)
    assert terminated.tolist() == [True, False] and env.step(actions)[1].tolist() == [0.0, 104.0]
    obs, *_ = env.step(actions)
    assert obs["obs"]["0"].tolist() == [[[1, 0], [1, 1]], [[3, 0], [3, 1]]]


def same_trace(creator: EnvCreator, steps: int) -> int:
    """Step one vector in this process and one in others with equal actions; the number of ends they agree on."""
    envs = [creator.make(2, vectorization) for vectorization in ("sync", "async")]
    try:
        layout = creator.layout()
        assert isinstance(envs[0], PackedVectorEnv) and layout is not None and layout == envs[0].layout
        traces: list[list[Any]] = []
        for env in envs:
            obs, _ = env.reset(seed=[5, 6])
            trace = [copied(obs)]
            for step in range(steps):
                legal = {key: np.zeros_like(value) for key, value in env.action_space.sample().items()}
                for index, kind in enumerate(layout.kinds):
                    legal[str(index)][...] = (step + np.arange(len(kind.slots))) % 2
                obs, *others = env.step(legal)
                trace.append((copied(obs), copied(layout.join(obs)), *map(copied, others[:3])))
            traces.append(trace)
        for first, second in zip(*traces, strict=True):
            np.testing.assert_equal(first, second)
        return sum(int(step[3].sum() + step[4].sum()) for step in traces[0][1:])
    finally:
        for env in envs:
            env.close()


@pytest.mark.parametrize(
    ("id", "package"),
    [
        ("mpe2.simple_speaker_listener_v4", "mpe2"),
        ("pettingzoo.classic.connect_four_v3", "pettingzoo"),
        ("lbforaging:Foraging-8x8-2p-2f-coop-v3", "lbforaging"),
        ("tests.envs.scripted_turns:ScriptedTurns", "numpy"),
    ],
)
def test_processes_give_the_same_arrays_as_this_process(id: str, package: str) -> None:
    pytest.importorskip(package, reason='needs pip install -e ".[multiagent]"')
    assert same_trace(EnvCreator(id, max_episode_steps=10), 25) >= 4


def test_equal_seeds_give_equal_episodes() -> None:
    pytest.importorskip("mpe2", reason='needs pip install -e ".[multiagent]"')
    env = EnvCreator("mpe2.simple_spread_v3").make_single()
    actions = {"0": np.array([1, 2, 3])}
    found = [(env.reset(seed=3)[0], env.step(actions)[0]) for _ in range(2)]
    np.testing.assert_equal(found[0], found[1])


def test_a_state_is_written_at_each_step() -> None:
    env = PackedEnv(TwoStepGame())
    assert env.reset(seed=0)[0]["state"].tolist() == [1, 0, 0]
    assert env.step({"0": np.array([0, 0])})[0]["state"].tolist() == [0, 1, 0]


def test_an_environment_without_reset_names_the_method() -> None:
    class Half(MultiAgentEnv):
        possible_agents = ["a"]  # noqa: RUF012
        observation_spaces = action_spaces = TwoStepGame().action_spaces | {"a": TwoStepGame().action_spaces["agent_0"]}

    with pytest.raises(EnvError, match=r"must define reset\(\*, seed, options\)"):
        PackedEnv(Half())
