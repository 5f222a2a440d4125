"""Observation and action spaces of all kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from hypothesis import strategies as st

BOX = spaces.Box(-2.0, 3.0, (2,))


GRAPH = spaces.Graph(node_space=spaces.Box(-1, 1, (2,)), edge_space=None)


# space → (works as observation, works as action, a word of the message when it does not)
TABLE: list[tuple[Space[Any], bool, bool, str]] = [
    (BOX, True, True, ""),
    (spaces.Box(-1.0, 1.0, ()), True, True, ""),
    (spaces.Box(-1.0, 1.0, (2, 3), dtype=np.float64), True, True, ""),
    (spaces.Box(-np.inf, np.inf, (2,)), True, True, ""),
    (spaces.Box(0, np.array([np.inf, 1.0]), (2,), dtype=np.float32), True, True, ""),
    (spaces.Box(0, 255, (8, 8, 3), dtype=np.uint8), True, True, ""),
    (spaces.Box(-3, 4, (2,), dtype=np.int32), True, True, ""),
    (spaces.Box(0, 1, (2,), dtype=bool), True, True, ""),
    (spaces.Box(-(2**40), 2**40, (1,), dtype=np.int64), True, False, "float Box"),
    (spaces.Box(0.0, 1.0, (0,)), False, False, "leave it out"),
    (spaces.Discrete(4), True, True, ""),
    (spaces.Discrete(4, start=-2), True, True, ""),
    (spaces.Discrete(100_000), True, False, "65536"),
    (spaces.MultiDiscrete([3, 2, 4]), True, True, ""),
    (spaces.MultiDiscrete([[3, 2], [2, 2]], start=[[1, 0], [0, -1]]), True, True, ""),
    (spaces.MultiBinary(3), True, True, ""),
    (spaces.MultiBinary([2, 3]), True, True, ""),
    (spaces.Dict({"a": BOX, "b": spaces.Discrete(3)}), True, True, ""),
    (
        spaces.Tuple([BOX, spaces.Tuple([spaces.Discrete(3), spaces.Dict({"x": spaces.MultiBinary(2)})])]),
        True,
        True,
        "",
    ),
    (spaces.Dict({}), False, False, "empty"),
    (spaces.Text(5), False, False, "token ids"),
    (GRAPH, False, False, "adjacency"),
    (spaces.Sequence(spaces.Discrete(3)), False, False, "pad"),
    (spaces.OneOf([spaces.Discrete(3), BOX]), False, False, "choice"),
    (spaces.Dict({"words": spaces.Text(5), "b": BOX}), False, False, "'words'"),
]


SUPPORTED = [space for space, as_obs, _, _ in TABLE if as_obs]


ACTIONS = [space for space, _, as_action, _ in TABLE if as_action]


LEAVES = st.one_of(
    st.integers(1, 5).flatmap(lambda n: st.integers(-3, 3).map(lambda start: spaces.Discrete(n, start=start))),
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(spaces.MultiDiscrete),
    st.integers(1, 4).map(spaces.MultiBinary),
    st.lists(st.integers(1, 3), max_size=3).map(lambda shape: spaces.Box(-1.5, 2.0, tuple(shape))),
    st.integers(1, 3).map(lambda size: spaces.Box(-2, 5, (size,), dtype=np.int64)),
)


KEYS = st.text("abcxyz", min_size=1, max_size=3)


NESTED = st.recursive(
    LEAVES,
    lambda children: st.one_of(
        st.lists(children, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(KEYS, children, min_size=1, max_size=3).map(lambda parts: spaces.Dict(list(parts.items()))),
    ),
    max_leaves=6,
)
