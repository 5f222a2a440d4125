"""Where agents lie in arrays, and what they see together."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from lightning_rl.envs.multi_agent import AgentLayout, PackedEnv
from lightning_rl.envs.multi_agent.agent_layout import flat_size, flatten
from lightning_rl.envs.multi_agent.toy_games import TwoStepGame
from lightning_rl.errors import EnvError
from tests.envs.scripted_turns import ScriptedTurns


def test_agents_with_equal_spaces_are_one_kind_and_join_puts_observations_in_the_order_of_the_agents() -> None:
    """Kinds (a, c) and (b): the rows of one kind are not beside each other in the joined vector."""
    obs = {"a": spaces.Discrete(2), "b": spaces.Discrete(3), "c": spaces.Discrete(2)}
    layout = AgentLayout.from_spaces(["a", "b", "c"], obs, dict.fromkeys(obs, spaces.Discrete(4)))
    assert [kind.slots for kind in layout.kinds] == [(0, 2), (1,)]
    assert layout.places == ((0, 0), (1, 0), (0, 1))
    assert layout.observation_spaces == obs and layout.central_size == 2 + 3 + 2
    seen = {"0": np.array([[1, 0], [0, 1]]), "1": np.array([[2], [0]])}
    arrays = {"acts": np.ones((2, 3)), "present": np.array([[1, 1, 1], [1, 1, 0]]), "obs": seen}
    joined = layout.join(arrays)
    assert joined.dtype == np.float32
    assert joined.tolist() == [[0, 1, 0, 0, 1, 1, 0], [1, 0, 1, 0, 0, 0, 0]]


def test_the_environments_state_comes_before_the_observations() -> None:
    env = PackedEnv(TwoStepGame())
    obs, _ = env.reset(seed=0)
    obs, *_ = env.step({"0": np.array([1, 0])})
    assert env.layout.central_size == 3 and env.layout.join(obs).tolist() == [0, 0, 1]


def test_agents_that_have_not_appeared_or_ended_before_contribute_zeros() -> None:
    """a acts in steps 0 and 1 and ends in step 1; b appears at step 1. An observation is [time, slot]."""
    env = PackedEnv(ScriptedTurns(turns=[["a"], ["a", "b"], ["b"], ["b"]], ends={"a": 1}))
    layout = env.layout
    for episode in range(2):  # the second sees nothing of the first
        obs, _ = env.reset(seed=episode)
        seen = [layout.join(obs).tolist()]
        for _ in range(4):
            obs, *_ = env.step({"0": np.zeros(2, int)})
            seen.append(layout.join(obs).tolist())
        assert seen == [[0, 0, 0, 0], [1, 0, 1, 1], [2, 0, 2, 1], [0, 0, 3, 1], [0, 0, 4, 1]]


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (spaces.Box(0, 255, (2, 2), np.uint8), np.array([[1, 2], [3, 4]], np.uint8), [1, 2, 3, 4]),
        (spaces.Discrete(3, start=5), 6, [0, 1, 0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1]),
        (spaces.MultiBinary(2), np.array([1, 0]), [1, 0]),
        (
            spaces.Dict(observation=spaces.Discrete(2), action_mask=spaces.MultiBinary(9)),
            {"observation": 1, "action_mask": np.ones(9)},
            [0, 1],
        ),
        (spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(1)]), (0, np.array([1])), [1, 0, 1]),
    ],
)
def test_flatten_makes_float32_of_each_space(space: spaces.Space, value: object, expected: list[float]) -> None:
    found = flatten(space, value, ())
    assert found.dtype == np.float32 and found.tolist() == expected and flat_size(space) == len(expected)


def test_a_space_of_changing_size_is_an_error_that_names_a_way_out() -> None:
    with pytest.raises(EnvError, match=r"state\(\)"):
        flat_size(spaces.Sequence(spaces.Discrete(2)))
