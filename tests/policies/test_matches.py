"""Who plays in an episode, drawn for all its agents together."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lightning_rl.policies.matches import Matches
from lightning_rl.policies.policy_mapping import PolicyMapping
from tests.refusals import not_refused

AGENTS = ["a", "b", "c", "d"]


def draws(mapping: Any, count: int = 4000) -> list[dict[str, str]]:
    return [mapping.assign(np.random.default_rng(seed)) for seed in range(count)]


def test_the_policy_has_a_random_side_and_opponents_come_by_their_weights() -> None:
    found = draws(Matches(["a", "b"], "main", {"old": 3.0, "older": 1.0, "never": 0.0}))
    sides = Counter("a" if each["a"] == "main" else "b" for each in found)
    opponents = Counter(next(name for name in each.values() if name != "main") for each in found)
    assert sides["a"] / 4000 == pytest.approx(0.5, abs=0.03)
    assert opponents["old"] / 4000 == pytest.approx(0.75, abs=0.03) and set(opponents) == {"old", "older"}


def test_the_agents_of_a_side_have_one_policy_and_agents_on_no_side_keep_theirs() -> None:
    matches = Matches(AGENTS, "main", {"main": 1.0, "old": 1.0}, sides=[["a", "c"], ["b"]], others={"d": "judge"})
    found = draws(matches, 200)
    assert all(each["a"] == each["c"] and each["d"] == "judge" and "main" in each.values() for each in found)
    assert {(each["a"], each["b"]) for each in found} == {("main", "main"), ("main", "old"), ("old", "main")}
    assert matches.choices()["b"] == ("main", "old") and matches.choices()["d"] == ("judge",)


def test_of_three_sides_one_has_the_policy_and_all_others_have_opponents() -> None:
    found = draws(Matches(["a", "b", "c"], "main", {"old": 1.0}), 60)
    assert {tuple(each.values()).count("main") for each in found} == {1}
    assert {next(agent for agent in each if each[agent] == "main") for each in found} == {"a", "b", "c"}


def test_the_highest_random_number_draws_the_last_opponent() -> None:
    """It is 1 − 2⁻⁵³, which is also the sum of ten times 0.1 in float64."""
    rng: Any = SimpleNamespace(integers=lambda count: 0, random=lambda: 1 - 2.0**-53)
    names = [f"old{number}" for number in range(10)]
    assert Matches(["a", "b"], "main", dict.fromkeys(names, 0.1)).assign(rng) == {"a": "main", "b": "old9"}


def test_matches_that_cannot_be_played_are_refused() -> None:
    cases = [
        ({"opponents": {"old": 0.0}}, "weight above 0"),
        ({"opponents": {"old": -1.0}}, r"policy_mapping\.opponents.*-1"),
        ({"sides": [["a"], ["b"]]}, "names agent 'c' 0 times"),
        ({"sides": [["a", "b"], ["b", "c", "d"]]}, "names agent 'b' 2 times"),
        ({"sides": [["a"], ["z"]]}, "'z'"),
        ({"sides": [["a", "b", "c", "d"]]}, "two sides"),
        ({"sides": [["a", "b"], ["c", "d"], []]}, "an agent"),
        ({"others": {"b": "judge", "c": "judge", "d": "judge"}}, "two sides"),
    ]
    given: dict[str, Any] = {"policy": "main", "opponents": {"old": 1.0}}
    assert not_refused(lambda keywords: Matches(AGENTS, **{**given, **keywords}), cases) == []


def test_a_mapping_may_name_matches() -> None:
    given = {"_target_": "lightning_rl.policies.Matches", "policy": "main", "opponents": {"old": 1.0}}
    ids = ["main", "old", "extra"]
    mapping = PolicyMapping(given, ["a", "b"], ids)
    assert not mapping.static and mapping.given == given
    assert mapping.agents_of("old") == ["a", "b"] and mapping.agents_of("extra") == []
    assert {each["a"] for each in draws(mapping, 50)} == {"main", "old"}
    cases = [
        ({}, ["main"], "'old'"),
        ({"_target_": "lightning_rl.policies.PPO"}, ids, r"lightning_rl\.policies\.Matches"),
        ({"_target_": f"{__name__}:draws"}, ids, r"lightning_rl\.policies\.Matches"),
        ({"oponents": {}}, ids, "'oponents'"),
    ]
    assert not_refused(lambda changes, ids: PolicyMapping({**given, **changes}, ["a", "b"], ids), cases) == []
